//! The pacer.

use crate::repair::{Bound, Memory};

const SECOND_NS: u64 = 1_000_000_000;
/// A kept lag is at most this, whatever the configuration says: more would overflow.
const MAX_LAG_NS: u64 = SECOND_NS;
/// Later times, and longer ones, are taken for this: sums of two of them fit.
const MAX_NS: u64 = 1 << 62;
const MAX_RATE: u64 = 1_000_000_000_000;
/// While there is a lag, the gaps of `Rule::Kept` are shortened to a 16th at most: a burst is spread a little.
const CATCH_UP_SHIFT: u32 = 4;
const MAX_BYTES: u32 = i32::MAX as u32;
const MAX_PACKET: u32 = 0xffff;
/// An ACK may be so much later than a round trip.
const ACK_NS: u64 = 2_000_000;
/// `Rule::Loop` takes the mean of so many calls, and a loop for no shorter than a millisecond.
const LOOPS: u64 = 64;
const MIN_LOOP_NS: u64 = 1_000_000;

/// How much of a missed departure is made up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing (draft-ietf-ccwg-bbr-06, cloudflare/quiche).
    None,
    /// Half of the gap to the next packet (Linux TCP).
    HalfGap,
    /// One burst (picoquic, quinn, s2n-quic, quic-go, neqo, xquic, tquic).
    Quantum,
    /// Five bursts, which are write intervals (mvfst).
    Intervals,
    /// 1.5 times the mean time between two calls (HAProxy: of its scheduler's loop).
    Loop,
    /// All of what the CPU kept, within a bound that losses teach.
    Kept,
}

impl Rule {
    /// Return the rule of this name: none, half-gap, quantum, intervals, loop or kept.
    pub fn named(name: &str) -> Option<Rule> {
        Some(match name {
            "none" => Rule::None,
            "half-gap" => Rule::HalfGap,
            "quantum" => Rule::Quantum,
            "intervals" => Rule::Intervals,
            "loop" => Rule::Loop,
            "kept" => Rule::Kept,
            _ => return None,
        })
    }
}

/// What a pacer is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub rule: Rule,
    /// A full packet, bytes.
    pub packet_bytes: u32,
    /// How much earlier than due a packet may leave: what the stack's timers need, such as 1 ms. A call that is later
    /// by more than twice this is an absence. At most a second.
    pub burst_ns: u64,
    /// The most that is ever made up for, such as 100 ms; at most a second.
    pub max_lag_ns: u64,
}

/// What kept the data when the stack last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeptBy {
    Nothing,
    Pacing,
    /// The congestion window; an ACK is expected within so much time.
    Window {
        ack_ns: u64,
    },
}

/// The schedule of one connection or path.
#[derive(Debug, Clone)]
pub struct Pacer {
    config: Config,
    next_ns: u64,
    looked_ns: u64,
    kept_by: KeptBy,
    /// Yet to be made up for.
    lag_ns: u64,
    rate: u64,
    gap_ns: u64,
    mean_loop_ns: u64,
    absences: Memory,
    /// Of the bytes in flight, above which none leaves early.
    bound: Bound,
    /// Bytes, as last told, less what was acknowledged and lost since.
    in_flight: u32,
    /// Bytes, since the last ACK.
    lost: u32,
    /// Bytes acknowledged or lost since the beginning; the round ends at `round`.
    resolved: u64,
    round: u64,
}

impl Pacer {
    pub fn new(config: Config) -> Self {
        Pacer {
            config: Config { burst_ns: config.burst_ns.min(SECOND_NS), ..config },
            next_ns: 0,
            looked_ns: 0,
            kept_by: KeptBy::Nothing,
            lag_ns: 0,
            rate: 0,
            gap_ns: 0,
            mean_loop_ns: 0,
            absences: Memory::default(),
            bound: Bound::new(config.packet_bytes.clamp(1, MAX_PACKET)),
            in_flight: 0,
            lost: 0,
            resolved: 0,
            round: 0,
        }
    }

    /// Return when the next packet may leave, with data waiting and room in the window: `now_ns` if at once, else when
    /// to ask again. Rate 0: it is not paced.
    pub fn next(&mut self, now_ns: u64, rate: u64) -> u64 {
        self.look(now_ns, rate);
        if self.rate == 0 || self.next_ns <= now_ns.saturating_add(self.config.burst_ns) {
            return now_ns;
        }
        self.kept_by = KeptBy::Pacing;
        self.next_ns
    }

    /// Record that a packet, or several, left. `in_flight_bytes`: without it.
    pub fn sent(&mut self, now_ns: u64, bytes: u32, in_flight_bytes: u64, rate: u64) {
        self.look(now_ns, rate);
        self.kept_by = KeptBy::Nothing;
        let before = in_flight_bytes.min(MAX_BYTES.into()) as u32;
        self.in_flight = before.saturating_add(bytes).min(MAX_BYTES);
        self.bound.in_flight(self.in_flight);
        if self.rate == 0 {
            return;
        }
        self.gap_ns = u64::from(bytes) * SECOND_NS / self.rate;
        let credit = self.credit(before);
        self.lag_ns -= credit;
        self.next_ns = (self.next_ns.max(now_ns.min(MAX_NS)) + self.gap_ns - credit).min(MAX_NS);
    }

    /// Say that data waits, but the congestion window is full: now, and at each call until it is not. `rtt_ns`: the
    /// least round-trip time, or a quarter of the smoothed one if that is longer. What the peer's flow control keeps is no
    /// data: the peer opens it when its application reads, which may be late for any reason.
    pub fn window_full(&mut self, now_ns: u64, window_bytes: u64, rtt_ns: u64) {
        self.look(now_ns, self.rate);
        self.kept_by = KeptBy::Window { ack_ns: rtt_ns.min(MAX_NS) };
        // A window that is small for a reason, as BBR's in PROBE_RTT, takes no burst.
        let window = window_bytes.min(MAX_BYTES.into());
        if let Some(most) = (4 * window * SECOND_NS).checked_div(self.rate) {
            self.lag_ns = self.lag_ns.min(most);
        }
    }

    /// Say that there is no data that may be sent: what an application did not write, or the peer does not admit, is
    /// not late.
    pub fn idle(&mut self) {
        self.kept_by = KeptBy::Nothing;
        self.lag_ns = 0;
    }

    /// Say that a timeout declared everything lost: nothing is made up for, and the losses since the last ACK teach
    /// nothing.
    pub fn timeout(&mut self) {
        self.idle();
        self.lost = 0;
    }

    /// Say that so much was lost. It counts at the next ACK.
    pub fn lost(&mut self, bytes: u32) {
        self.lost = self.lost.saturating_add(bytes).min(MAX_BYTES);
        self.resolve(bytes);
    }

    /// Say that an ACK came, and how much it acknowledged that was not before. A buffer that overflows drops most of
    /// the packets that follow; random losses are far apart.
    pub fn acked(&mut self, bytes: u32) {
        self.bound.count(self.lost, bytes);
        self.lost = 0;
        self.resolve(bytes);
        // A round trip is over when all that was in flight as it began is acknowledged or lost.
        if self.resolved >= self.round {
            self.bound.end_round(self.in_flight, self.looked_ns, &mut self.absences);
            self.round = self.resolved + u64::from(self.in_flight);
        }
    }

    /// Return the congestion window for a control whose own is `window_bytes`, and whose estimates are `bw` (bytes per
    /// second) and `bdp_bytes`: it must hold what is sent ahead. It replaces the control's own while an absence is
    /// remembered, so ask in PROBE_BW only: in PROBE_RTT, in recovery from persistent congestion and before the pipe was
    /// full the control has a reason for a smaller one.
    pub fn window(&self, bw: u64, bdp_bytes: u64, window_bytes: u64) -> u64 {
        if self.config.rule != Rule::Kept {
            return window_bytes;
        }
        let ahead = self.absences.ahead() / 1000 * bw.min(MAX_RATE) / 1_000_000;
        let window = if ahead > 0 { self.bound.window(bdp_bytes.min(MAX_BYTES.into()), ahead) } else { window_bytes };
        if self.bound.cap > 0 {
            window.min(self.bound.cap.into())
        } else {
            window
        }
    }

    /// Return how far the flow is behind its schedule and will make up for, ns.
    pub fn lag_ns(&self) -> u64 {
        self.lag_ns
    }

    /// Return the bytes in flight above which nothing is sent ahead; 0 if no loss has taught a bound.
    pub fn bound_bytes(&self) -> u64 {
        self.bound.cap.into()
    }

    fn look(&mut self, now_ns: u64, rate: u64) {
        self.rate = rate.min(MAX_RATE);
        // ACKs may have been stamped before the last packet left.
        let now_ns = now_ns.min(MAX_NS).max(self.looked_ns);
        let since_looked = now_ns - self.looked_ns;
        if self.looked_ns > 0 {
            self.mean_loop_ns += since_looked / LOOPS;
            self.mean_loop_ns -= self.mean_loop_ns / LOOPS;
        }
        if self.config.rule == Rule::Kept {
            self.look_for_absence(now_ns);
        } else if self.next_ns > 0 && now_ns > self.next_ns {
            // A bucket of tokens fills whatever keeps the data.
            let late = now_ns - self.next_ns;
            self.lag_ns = (self.lag_ns + late).min(self.most_ns());
            self.next_ns = now_ns;
        }
        self.looked_ns = now_ns;
    }

    fn most_ns(&self) -> u64 {
        match self.config.rule {
            Rule::None => 0,
            Rule::HalfGap => self.gap_ns / 2,
            Rule::Quantum => self.config.burst_ns,
            Rule::Intervals => 5 * self.config.burst_ns,
            Rule::Loop => self.mean_loop_ns.max(MIN_LOOP_NS) * 3 / 2,
            Rule::Kept => MAX_LAG_NS,
        }
        .min(self.config.max_lag_ns.min(MAX_LAG_NS))
    }

    fn look_for_absence(&mut self, now_ns: u64) {
        self.absences.forget(now_ns);
        let (since, wait) = match self.kept_by {
            KeptBy::Nothing => return,
            KeptBy::Pacing => (self.next_ns, 0),
            KeptBy::Window { ack_ns } => (self.next_ns.max(self.looked_ns), ack_ns + ACK_NS),
        };
        if now_ns <= since + wait {
            if wait > 0 {
                // What the window keeps is not late.
                self.lag_ns -= self.lag_ns.min(now_ns - self.looked_ns);
            }
            return;
        }
        let late = (now_ns - since).min(self.most_ns());
        self.kept_by = KeptBy::Nothing;
        self.next_ns = self.next_ns.max(now_ns);
        if self.rate == 0 {
            self.lag_ns = 0;
            return;
        }
        // Timers that are rounded up are late by two bursts at most: no absence. With half more a flow finds out that
        // the path carries more.
        let lag = if now_ns - since > 2 * self.config.burst_ns {
            self.absences.lag(self.lag_ns, late, now_ns)
        } else {
            self.lag_ns + late
        };
        self.lag_ns = lag.min(self.most_ns());
    }

    /// How much shorter the gap after a packet is.
    fn credit(&self, in_flight: u32) -> u64 {
        let most = match self.config.rule {
            Rule::Kept if self.bound.cap > 0 && in_flight >= self.bound.cap => 0,
            Rule::Kept => self.gap_ns - (self.gap_ns >> CATCH_UP_SHIFT),
            _ => self.gap_ns,
        };
        most.min(self.lag_ns)
    }

    fn resolve(&mut self, bytes: u32) {
        self.resolved += u64::from(bytes);
        self.in_flight = self.in_flight.saturating_sub(bytes);
    }
}
