//! The detector: does this flow lack the CPU?

/// A part of the window's time that is late, from which on the CPU is away; per mille.
const LATE_PERMILLE: u32 = 100;
/// A part of the samples with a deficit, from which on the flow has too little in flight; per mille.
const DEFICIT_PERMILLE: u32 = 500;
/// A deficit is less than three quarters of a bandwidth-delay product.
const DEFICIT_QUARTERS: u64 = 3;
const MIN_SAMPLES: u32 = 4;
/// More would overflow: half a year in a window.
const MAX_LATE_NS: u64 = 1 << 54;

/// The state of a flow just before it sends, when ACKs have been taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub in_flight_bytes: u64,
    /// Bandwidth estimate times the least round-trip time; 0: unknown.
    pub bdp_bytes: u64,
    /// Data waits, the application is not the limit, the window has room, and the control has no reason to have little
    /// in flight: no PROBE_RTT, no drain, no loss recovery.
    pub could_send: bool,
}

/// What the last whole window showed. `None`: too little was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The part of the time by which departures were late, per mille: of the departures that the schedule had, those
    /// that were missed.
    pub late_permille: Option<u32>,
    /// The part of the samples in which less than three quarters of a BDP was in flight, of those that could send, per
    /// mille. None unless these were a third of all.
    pub deficit_permille: Option<u32>,
}

impl Verdict {
    /// Return whether the CPU was away for a tenth of the time or more.
    pub fn is_late(&self) -> bool {
        self.late_permille.is_some_and(|share| share >= LATE_PERMILLE)
    }

    /// Return whether too little was in flight in more than half of the samples.
    pub fn has_deficit(&self) -> bool {
        self.deficit_permille.is_some_and(|share| share > DEFICIT_PERMILLE)
    }
}

/// Judges a flow over windows, one after the other.
#[derive(Debug, Clone)]
pub struct Detector {
    window_ns: u64,
    tolerance_ns: u64,
    begin_ns: Option<u64>,
    departures: u32,
    late_ns: u64,
    samples: u32,
    could_send: u32,
    deficits: u32,
    verdict: Verdict,
}

impl Detector {
    /// `window_ns`: such as 10 s; at least 1. `tolerance_ns`: by how much a timer may be late, such as 2 ms.
    pub fn new(window_ns: u64, tolerance_ns: u64) -> Self {
        Detector {
            window_ns: window_ns.max(1),
            tolerance_ns,
            begin_ns: None,
            departures: 0,
            late_ns: 0,
            samples: 0,
            could_send: 0,
            deficits: 0,
            verdict: Verdict::default(),
        }
    }

    /// Record that data which only pacing kept, until `due_ns`, was looked at again.
    pub fn departure(&mut self, now_ns: u64, due_ns: u64) {
        self.turn(now_ns);
        self.departures = self.departures.saturating_add(1);
        let late = now_ns.saturating_sub(due_ns);
        if late > self.tolerance_ns {
            self.late_ns = (self.late_ns + late.min(MAX_LATE_NS)).min(MAX_LATE_NS);
        }
    }

    /// Record a sample.
    pub fn sample(&mut self, now_ns: u64, sample: Sample) {
        self.turn(now_ns);
        self.samples = self.samples.saturating_add(1);
        if sample.could_send && sample.bdp_bytes > 0 {
            self.could_send = self.could_send.saturating_add(1);
            if sample.in_flight_bytes < sample.bdp_bytes / 4 * DEFICIT_QUARTERS {
                self.deficits = self.deficits.saturating_add(1);
            }
        }
    }

    /// Return what the last whole window before `now_ns` showed.
    pub fn verdict(&mut self, now_ns: u64) -> Verdict {
        self.turn(now_ns);
        self.verdict
    }

    /// Begin another window if this one is over.
    fn turn(&mut self, now_ns: u64) {
        let begin = *self.begin_ns.get_or_insert(now_ns);
        let passed = now_ns.saturating_sub(begin);
        if passed < self.window_ns {
            return;
        }
        let share = |part: u64, all: u64| (part * 1000 / all).min(1000) as u32;
        self.verdict = Verdict {
            late_permille: (self.departures >= MIN_SAMPLES).then(|| share(self.late_ns, passed)),
            deficit_permille: (self.could_send >= MIN_SAMPLES && self.could_send >= self.samples / 3)
                .then(|| share(u64::from(self.deficits), u64::from(self.could_send))),
        };
        self.begin_ns = Some(now_ns);
        (self.departures, self.samples, self.could_send, self.deficits, self.late_ns) = (0, 0, 0, 0, 0);
    }
}
