//! Sweeps at regular intervals.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::report::SweepReport;
use crate::watch::{cpu_time, Watch};

/// The pause after a sweep is at least this many times the CPU time that the sweep took. So watching takes at most 2 % of
/// a CPU. The time for which a sweep waits for the CPU does not count: where many tasks wait, one of 12 ms took 2.4 s, and
/// a pause of two minutes would blind us on just the hosts that we look for.
const PAUSE_FACTOR: u32 = 50;

/// Where sweeps are farther apart than this, no namespace is kept open in between.
const MAX_OPEN: Duration = Duration::from_secs(5);

/// Decides when to sweep. The caller sleeps until [`Sweeps::due`], since callers differ in what ends their sleep.
pub struct Sweeps {
    watch: Watch,
    interval: Duration,
    before: Instant,
    due: Instant,
}

/// A sweep and when it was made: the JSON object of `brobust watch --json`.
#[derive(Debug, Clone, Serialize)]
pub struct TimedSweep {
    pub time_unix_s: f64,
    /// From the start of the previous sweep, or from the beginning to the first.
    pub interval_s: f64,
    #[serde(flatten)]
    pub report: SweepReport,
}

impl Sweeps {
    pub fn new(watch: Watch, interval: Duration) -> Sweeps {
        let now = Instant::now();
        let mut sweeps = Sweeps { watch, interval, before: now, due: now + interval };
        sweeps.rest();
        sweeps
    }

    fn rest(&mut self) {
        if self.interval > MAX_OPEN {
            self.watch.close();
        }
    }

    pub fn due(&self) -> Instant {
        self.due
    }

    /// Sweeps now, and returns the report with that many flows. `state_maps` as in [`Watch::sweep`].
    pub fn sweep(&mut self, state_maps: Vec<OwnedFd>, top: usize) -> TimedSweep {
        let (begun, cpu_before) = (Instant::now(), cpu_time());
        let time_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let report = self.watch.sweep(state_maps, top);
        self.rest();
        let interval_s = (begun - self.before).as_secs_f64();
        self.before = begun;
        let worked = cpu_time().saturating_sub(cpu_before);
        self.due = next(self.due, begun, Instant::now(), worked, self.interval);
        TimedSweep { time_unix_s, interval_s, report }
    }
}

/// Returns when the sweep is due that follows one which was due, begun and ended at these times, and worked for that long.
fn next(due: Instant, begun: Instant, ended: Instant, worked: Duration, interval: Duration) -> Instant {
    // If we were kept off the CPU for so long that sweeps were missed, do not catch up on them.
    let from = if begun.saturating_duration_since(due) > interval { begun } else { due };
    (from + interval).max(ended + worked * PAUSE_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_keep_their_grid_unless_they_are_slow_or_were_missed() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let (at, millis) = (|seconds: f64| start + Duration::from_secs_f64(seconds), Duration::from_millis);
        assert_eq!(next(at(1.0), at(1.1), at(1.101), millis(1), second), at(2.0));
        assert_eq!(next(at(1.0), at(1.0), at(1.1), millis(100), second), at(1.1 + 5.0));
        assert_eq!(next(at(1.0), at(4.5), at(4.5), millis(0), second), at(5.5));
        // One that had to wait for the CPU does not put the next one off.
        assert_eq!(next(at(0.0), at(0.0), at(2.4), millis(12), second), at(2.4 + 0.6));
    }
}
