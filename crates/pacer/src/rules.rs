//! The pacer.

const SECOND_NS: u64 = 1_000_000_000;
/// A kept lag is at most this, whatever the configuration says: more would overflow.
const MAX_LAG_NS: u64 = SECOND_NS;
/// Later times, and longer ones, are taken for this: sums of two of them fit.
const MAX_NS: u64 = 1 << 62;
const MAX_RATE: u64 = 1_000_000_000_000;
/// While there is a lag, the gaps of `Rule::Kept` are shortened to a 16th at most: a burst is spread a little.
const CATCH_UP_SHIFT: u32 = 4;
/// A bound that binds grows by a 128th for each absence, by a 32nd once two absences did no harm.
const GROWTH_SHIFT: u32 = 7;
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

/// How a packet was sent. Keep it with the packet, and give it back if the packet is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sent {
    #[default]
    OnTime,
    /// In the first half of what was sent to catch up.
    Ahead,
    /// In the later half.
    FarAhead,
}

/// What a pacer is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub rule: Rule,
    /// A full packet, bytes.
    pub packet_bytes: u32,
    /// How much earlier than due a packet may leave: what the stack's timers need, such as 1 ms. A call that is later
    /// by more than this is an absence. At most a second.
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
    /// The lag after the last absence.
    ahead_ns: u64,
    catching_up: bool,
    rate: u64,
    gap_ns: u64,
    mean_loop_ns: u64,
    /// What may be sent ahead; 0: nothing learned.
    bound_bytes: u64,
    bound_binds: bool,
    /// Harmless absences while it binds, at most 2.
    bound_grows: u32,
    /// What the later halves lost, less twice what the first halves did.
    excess_bytes: i64,
}

impl Pacer {
    pub fn new(config: Config) -> Self {
        Pacer {
            config: Config { burst_ns: config.burst_ns.min(SECOND_NS), ..config },
            next_ns: 0,
            looked_ns: 0,
            kept_by: KeptBy::Nothing,
            lag_ns: 0,
            ahead_ns: 0,
            catching_up: false,
            rate: 0,
            gap_ns: 0,
            mean_loop_ns: 0,
            bound_bytes: 0,
            bound_binds: false,
            bound_grows: 0,
            excess_bytes: 0,
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

    /// Record that a packet, or several, left.
    pub fn sent(&mut self, now_ns: u64, bytes: u32, rate: u64) -> Sent {
        self.look(now_ns, rate);
        self.kept_by = KeptBy::Nothing;
        if self.rate == 0 {
            return Sent::OnTime;
        }
        let gap_ns = u64::from(bytes) * SECOND_NS / self.rate;
        self.gap_ns = gap_ns;
        let how = self.how(gap_ns);
        let kept_gap = if self.config.rule == Rule::Kept { gap_ns >> CATCH_UP_SHIFT } else { 0 };
        let credit = self.lag_ns.min(gap_ns - kept_gap);
        self.lag_ns -= credit;
        self.catching_up &= self.lag_ns > 0;
        self.next_ns = (self.next_ns.max(now_ns.min(MAX_NS)) + gap_ns - credit).min(MAX_NS);
        how
    }

    /// Say that data waits, but the congestion window is full: now, and at each call until it is not. `rtt_ns`: the
    /// least round-trip time, or a quarter of the smoothed one if that is longer.
    pub fn window_full(&mut self, now_ns: u64, window_bytes: u64, rtt_ns: u64) {
        self.look(now_ns, self.rate);
        self.kept_by = KeptBy::Window { ack_ns: rtt_ns.min(MAX_NS) };
        // A window that is small for a reason, as BBR's in PROBE_RTT, takes no burst.
        let window = window_bytes.min(u64::from(u32::MAX) / 4);
        if let Some(most) = (4 * window * SECOND_NS).checked_div(self.rate) {
            self.lag_ns = self.lag_ns.min(most);
        }
    }

    /// Say that there is no data to send: what an application did not write is not late.
    pub fn idle(&mut self) {
        self.kept_by = KeptBy::Nothing;
        self.lag_ns = 0;
        self.catching_up = false;
    }

    /// Say that a timeout declared everything lost: nothing is made up for, and these losses teach nothing.
    pub fn timeout(&mut self) {
        self.idle();
        self.ahead_ns = 0;
    }

    /// Say that a packet was lost. Losses at random hit both halves of what was sent ahead alike; a buffer that it
    /// overflows loses the later half, since it drained while the CPU was away.
    pub fn lost(&mut self, how: Sent, bytes: u32) {
        if self.config.rule != Rule::Kept || how == Sent::OnTime || self.ahead_ns == 0 || self.rate == 0 {
            return;
        }
        let ahead = self.bytes_of(self.ahead_ns);
        if how == Sent::Ahead {
            // Twice, because by chance the later half may lose more for a while.
            self.excess_bytes = (self.excess_bytes - 2 * i64::from(bytes)).max(-self.tolerance(ahead));
            return;
        }
        self.excess_bytes += i64::from(bytes);
        if self.excess_bytes <= 0 {
            return;
        }
        // Less by four times the excess, but at least half of it.
        let bound = if self.bound_bytes > 0 { self.bound_bytes.min(ahead) } else { ahead };
        let least = bound.min(ahead / 2).max(4 * u64::from(self.config.packet_bytes));
        self.bound_bytes = bound.saturating_sub(4 * self.excess_bytes as u64).max(least);
        self.bound_grows = 0;
        self.excess_bytes = 0;
    }

    /// Return how far the flow is behind its schedule and will make up for, ns.
    pub fn lag_ns(&self) -> u64 {
        self.lag_ns
    }

    /// Return how much may be sent ahead, bytes; 0 if no loss has taught a bound.
    pub fn bound_bytes(&self) -> u64 {
        self.bound_bytes
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
        let late = now_ns - since;
        self.kept_by = KeptBy::Nothing;
        self.next_ns = self.next_ns.max(now_ns);
        self.lag_ns = (self.lag_ns + late).min(self.most_ns());
        if self.rate == 0 {
            self.lag_ns = 0;
        } else if late > self.config.burst_ns {
            self.begin_to_catch_up();
        }
    }

    fn begin_to_catch_up(&mut self) {
        if self.bound_binds {
            self.bound_bytes += self.bound_bytes >> (GROWTH_SHIFT - self.bound_grows);
            self.bound_grows = (self.bound_grows + 1).min(2);
        }
        let mut bytes = self.bytes_of(self.lag_ns);
        self.bound_binds = self.bound_bytes > 0 && bytes >= self.bound_bytes;
        if self.bound_binds {
            bytes = self.bound_bytes;
        }
        // A loss of less than a 128th of what is sent ahead is no reason to send less.
        self.excess_bytes = (self.excess_bytes - (bytes >> 7) as i64).max(-self.tolerance(bytes));
        self.lag_ns = self.lag_ns.min(bytes * SECOND_NS / self.rate);
        self.ahead_ns = self.lag_ns;
        self.catching_up = true;
    }

    fn how(&self, gap_ns: u64) -> Sent {
        // Of less than three packets the halves say nothing.
        if !self.catching_up || self.ahead_ns < 3 * gap_ns {
            Sent::OnTime
        } else if self.lag_ns > self.ahead_ns / 2 + gap_ns / 2 {
            Sent::Ahead
        } else {
            Sent::FarAhead
        }
    }

    /// What the later half may lose more than the first by chance, of so many bytes sent ahead.
    fn tolerance(&self, ahead_bytes: u64) -> i64 {
        (ahead_bytes / 8).max(8 * u64::from(self.config.packet_bytes)) as i64
    }

    /// The bytes of a time at the rate, at most 2^32 - 1.
    fn bytes_of(&self, ns: u64) -> u64 {
        (ns / 1000 * self.rate / 1_000_000).min(u64::from(u32::MAX))
    }
}
