//! What the repair decides: cc/repair.h in Rust, with the same names. tests/vectors.rs compares the two.

/// 256ths: part of a stall that is made up for.
const AHEAD: u64 = 384;
/// 256ths: part of the longest stall that the window holds beside a BDP.
const WINDOW: u64 = 320;
/// A stall is remembered for one to two times this.
const MEMORY_NS: u64 = 1_000_000_000;
/// For so long after a stall a bound that is reached keeps the memory.
const HOLD_NS: u64 = 10_000_000_000;
/// What a lost packet adds to the excess, of which a delivered one takes 1.
const LOSS: u32 = 7;
/// Packets: excess at which a buffer overflowed.
const OVERFLOW: u32 = 20;
/// Packets by which a lost one in excess lowers the bound.
const CUT: u32 = 8;
/// 256ths: least that a round leaves of the bound.
const BETA: u32 = 179;
/// 1024ths that another round adds to a bound that it reached.
const GROWTH: u32 = 10;
/// The bound returns to where it was by an eighth of the way.
const RETURN_SHIFT: u32 = 3;
const MAX_EXCESS: u64 = 1 << 31;

/// The longest stalls.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// When the last stall ended.
    last: u64,
    /// When `recent` began.
    since: u64,
    recent: u64,
    before: u64,
}

impl Memory {
    pub(crate) fn longest(&self) -> u64 {
        self.recent.max(self.before)
    }

    pub(crate) fn forget(&mut self, now: u64) {
        let age = now - self.since;
        if age < MEMORY_NS {
            return;
        }
        self.before = if age < 2 * MEMORY_NS { self.recent } else { 0 };
        self.recent = 0;
        self.since = now;
    }

    /// Record a stall that ends now, and return the lag after it: what a whole slot did not make up for is dropped.
    pub(crate) fn lag(&mut self, lag: u64, stall: u64, now: u64) -> u64 {
        self.last = now;
        self.recent = self.recent.max(stall);
        (lag + ((stall * AHEAD) >> 8)).min((self.longest() * AHEAD) >> 8)
    }

    /// Return the time, in ns, of which the window holds what the bandwidth carries, beside a BDP.
    pub(crate) fn ahead(&self) -> u64 {
        (self.longest() * WINDOW) >> 8
    }
}

/// The bound of what is in flight, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    packet: u32,
    /// What was lost beyond chance, times `LOSS`, and its maximum in the round.
    excess: u32,
    round_excess: u32,
    /// Maximum in flight in the round.
    round_max: u32,
    /// 0: none.
    pub(crate) cap: u32,
    /// Before it was cut.
    last_cap: u32,
    /// At the end of the last round.
    was_cut: bool,
}

impl Bound {
    pub(crate) fn new(packet: u32) -> Self {
        Bound { packet, excess: 0, round_excess: 0, round_max: 0, cap: 0, last_cap: 0, was_cut: false }
    }

    pub(crate) fn in_flight(&mut self, bytes: u32) {
        self.round_max = self.round_max.max(bytes);
    }

    /// Return the window for a BDP, and what the bandwidth carries in [`Memory::ahead`].
    pub(crate) fn window(&self, bdp: u64, ahead: u64) -> u64 {
        bdp.max(ahead) + bdp + 4 * u64::from(self.packet)
    }

    /// Count what an ACK shows as lost and as delivered.
    pub(crate) fn count(&mut self, lost: u32, delivered: u32) {
        let excess = u64::from(self.excess) + u64::from(lost) * u64::from(LOSS);
        self.excess = excess.saturating_sub(delivered.into()).min(MAX_EXCESS) as u32;
        self.round_excess = self.round_excess.max(self.excess);
    }

    /// End a round, with so much in flight. Without a stall that is remembered there is no bound. Where the bound keeps
    /// the data no stall is seen, so a bound that was reached keeps the memory; but not for ever, for other flows' losses keep it low as
    /// well when the CPU has long come back.
    pub(crate) fn end_round(&mut self, in_flight: u32, now: u64, memory: &mut Memory) {
        let overflowed = self.round_excess >= OVERFLOW * self.packet;
        let mut cut = false;
        if memory.longest() == 0 {
            self.cap = 0;
        } else if overflowed && !self.was_cut {
            self.cut();
            cut = true;
        } else if overflowed {
            self.excess = 0; // what was sent before the cut teaches nothing
        } else if self.cap > 0 && u64::from(self.round_max) >= u64::from(self.cap) * 9 / 10 {
            if now - memory.last < HOLD_NS {
                memory.since = now;
            }
            self.raise();
        }
        (self.was_cut, self.round_excess, self.round_max) = (cut, 0, in_flight);
    }

    fn cut(&mut self) {
        let from = if self.cap > 0 { self.cap } else { self.round_max };
        let min = ((u64::from(from) * u64::from(BETA)) >> 8) as u32;
        let by = u64::from(self.round_excess) * u64::from(CUT) / u64::from(LOSS);
        self.last_cap = from;
        self.cap = (u64::from(from).saturating_sub(by) as u32).max(min).max(4 * self.packet);
        self.excess = 0;
    }

    fn raise(&mut self) {
        let by = (((u64::from(self.cap) * u64::from(GROWTH)) >> 10) as u32).max(self.packet);
        self.cap += by.max(self.last_cap.saturating_sub(self.cap) >> RETURN_SHIFT);
    }
}
