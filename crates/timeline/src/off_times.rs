//! The same schedule seen from outside: when the CPU is away.
use crate::drawn::Drawn;
use crate::schedule::Schedule;

/// The CPU is taken away from `begin` until `end`, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffTime {
    pub begin: u64,
    pub end: u64,
}

impl Schedule {
    /// Returns the off-times from `origin` on, on the clock of `origin`.
    pub fn off_times(&self, origin: u64) -> OffTimes {
        OffTimes::new(self, origin)
    }
}

/// Iterator over the off-times of a schedule, in order. Each begins where the schedule says, never at "now": errors do
/// not add up.
#[derive(Debug)]
pub struct OffTimes {
    slices: Drawn,
    /// When the timeslice before the next off-time ends.
    free_until: u64,
}

impl OffTimes {
    fn new(schedule: &Schedule, origin: u64) -> Self {
        let is_endless = matches!(schedule, Schedule::Slices(slices) if slices.off_time() == 0);
        // A schedule without off-times would be searched for the first one for ever.
        let schedule = if is_endless { &Schedule::Always } else { schedule };
        Self { slices: Drawn::new(schedule, origin), free_until: origin }
    }
}

impl Iterator for OffTimes {
    type Item = OffTime;

    fn next(&mut self) -> Option<OffTime> {
        loop {
            let slice = self.slices.next()?;
            let off = OffTime { begin: self.free_until, end: slice.begin };
            self.free_until = self.free_until.max(slice.end);
            if off.begin < off.end {
                return Some(off);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Slices;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn off_times(slices: Slices, origin: u64) -> OffTimes {
        Schedule::Slices(slices).off_times(origin)
    }

    #[test]
    fn off_times_keep_to_the_absolute_period() {
        let slices = Slices { phase: Some(5), ..Slices::plain(10, 40) };
        let offs: Vec<_> = off_times(slices, 1_000).take(4).map(|off| (off.begin, off.end)).collect();
        // The period that began 35 before the origin had its timeslice then.
        assert_eq!(offs, [(1_000, 1_005), (1_015, 1_045), (1_055, 1_085), (1_095, 1_125)]);
    }

    #[test]
    fn a_cpu_that_is_never_away_has_no_off_times() {
        assert_eq!(off_times(Slices::plain(MS, MS), 0).next(), None);
        assert_eq!(Schedule::Always.off_times(7).next(), None);
    }

    #[test]
    fn recorded_off_times_count_from_the_origin() {
        let schedule = Schedule::Replay { offtimes: vec![(0, 5), (20, 30)] };
        let offs: Vec<_> = schedule.off_times(100).map(|off| (off.begin, off.end)).collect();
        assert_eq!(offs, [(100, 105), (120, 150)]);
    }

    #[test]
    fn drawn_lengths_keep_the_mean_and_their_bounds_and_are_the_same_for_the_same_seed() {
        let slices = Slices { length_jitter: 0.2, seed: 7, ..Slices::plain(10 * MS, 40 * MS) };
        let offs: Vec<_> = off_times(slices, 0).take(10_000).collect();
        let lengths: Vec<_> = offs.iter().map(|off| off.end - off.begin).collect();
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((mean / (30.0 * MS as f64) - 1.0).abs() < 0.01, "{mean}");
        assert!(lengths.iter().all(|length| (24 * MS..=36 * MS).contains(length)));
        assert!(off_times(slices, 0).take(10_000).eq(offs));
    }

    #[test]
    fn drawn_starts_keep_the_lengths_and_stay_in_their_part_of_the_off_time() {
        let slices = Slices { start_jitter: 0.5, seed: 7, ..Slices::plain(10 * MS, 40 * MS) };
        let offs: Vec<_> = off_times(slices, 0).take(10_000).collect();
        let ons = offs.windows(2).map(|two| two[1].begin - two[0].end);
        assert!(ons.into_iter().all(|on| on == 10 * MS));
        // Each timeslice begins where an off-time ends: in the first 15 ms of its period of 40.
        let starts: Vec<_> = offs.iter().map(|off| off.end % (40 * MS)).collect();
        assert!(starts.iter().all(|start| *start < 15 * MS));
        assert!(*starts.iter().max().unwrap() > 14 * MS && *starts.iter().min().unwrap() < MS);
    }

    #[test]
    fn durations_beyond_all_reason_overflow_nothing() {
        let slices = Slices { phase: Some(u64::MAX), ..Slices::plain(u64::MAX / 2, u64::MAX) };
        assert!(off_times(slices, 1).take(3).all(|off| off.begin < off.end));
    }

    proptest! {
        /// What the simulation grants and what the burner takes away are one timeline without gap or overlap.
        #[test]
        fn timeslices_and_off_times_make_up_all_of_the_time(
            timeslice in 1u64..1_000_000, off in 0u64..1_000_000, phase in proptest::option::of(0u64..2_000_000),
            start_jitter in 0.0f64..=1.0, length_jitter in 0.0f64..0.999, seed: u64, start in 0u64..5_000_000,
            alternates: bool, origin in 0u64..1_000_000_000,
        ) {
            let period = (timeslice + off).max(1_000);
            let schedule = Schedule::Slices(Slices {
                timeslice, period, phase, start_jitter, length_jitter, seed, start,
                stop: Some(start + 40 * period), alternate: alternates.then_some(2 * period),
            });
            schedule.check().unwrap();
            let end = start + 50 * period;
            let slices = schedule.time_slices(origin, origin + end);
            let mut spans: Vec<_> = slices.iter().map(|slice| (slice.begin, slice.end)).collect();
            let offs = schedule.off_times(origin).map(|off| (off.begin - origin, off.end - origin));
            spans.extend(offs.filter(|(begin, _)| *begin < end));
            spans.sort_unstable();
            let mut at = 0;
            for (begin, until) in spans {
                prop_assert_eq!(begin, at);
                at = until;
            }
            prop_assert_eq!(at, end);
        }
    }
}
