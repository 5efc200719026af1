//! The timeslices of several CPUs as those of one, which may run whenever any of them may.
//!
//! That is the most that several CPUs can be worth. A timer or a packet waits for the very CPU that it is bound to, so
//! that a kernel in virtual time gets the timeslices of each, too.

use crate::time_slice::TimeSlice;

/// Iterator over the timeslices of all CPUs together, in order and without overlap. Some follow without a gap: what is
/// free for ever would otherwise be one timeslice, whose end is never found.
#[derive(Debug)]
pub(crate) struct Merged<Slices> {
    /// Of each CPU, its next timeslice and those after it.
    cpus: Vec<(TimeSlice, Slices)>,
    /// Until here everything has been returned.
    until: u64,
}

impl<Slices: Iterator<Item = TimeSlice>> Merged<Slices> {
    /// `of_each`: of each CPU, its timeslices in order.
    pub fn new(of_each: impl Iterator<Item = Slices>) -> Self {
        let cpus = of_each.filter_map(|mut slices| Some((slices.next()?, slices))).collect();
        Self { cpus, until: 0 }
    }
}

impl<Slices: Iterator<Item = TimeSlice>> Iterator for Merged<Slices> {
    type Item = TimeSlice;

    fn next(&mut self) -> Option<TimeSlice> {
        loop {
            let (number, _) = self.cpus.iter().enumerate().min_by_key(|(_, (slice, _))| slice.begin)?;
            let (slice, slices) = &mut self.cpus[number];
            let next = TimeSlice { begin: slice.begin.max(self.until), end: slice.end };
            match slices.next() {
                Some(following) => *slice = following,
                None => drop(self.cpus.swap_remove(number)),
            }
            if next.begin < next.end {
                self.until = next.end;
                return Some(next);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::Drawn;
    use crate::schedule::{AnyOf, Schedule, Slices, Ticked};
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const ORIGIN: u64 = 1_000 * MS;

    fn several(each: Schedule, shifts: &[u64]) -> Schedule {
        Schedule::AnyOf(AnyOf { cpus: shifts.iter().map(|shift| (each.clone(), *shift)).collect() })
    }

    fn in_ms(schedule: &Schedule, end: u64) -> Vec<(u64, u64)> {
        let slices = schedule.time_slices(ORIGIN, ORIGIN + end * MS);
        slices.iter().map(|slice| (slice.begin / MS, slice.end / MS)).collect()
    }

    #[test]
    fn there_is_a_cpu_whenever_one_of_them_may_run() {
        let each = Schedule::Slices(Slices::plain(10 * MS, 40 * MS));
        assert_eq!(in_ms(&several(each.clone(), &[0, 0]), 80), [(0, 10), (40, 50)]);
        assert_eq!(in_ms(&several(each.clone(), &[0, 20 * MS]), 80), [(0, 10), (20, 30), (40, 50), (60, 70)]);
        assert_eq!(in_ms(&several(each.clone(), &[0, 5 * MS]), 80), [(0, 15), (40, 55)]);
        assert_eq!(in_ms(&several(each, &[0, 10 * MS]), 80), [(0, 20), (40, 60)]);
    }

    #[test]
    fn two_halves_out_of_phase_are_a_whole_cpu() {
        let halves = several(Schedule::Slices(Slices::plain(10 * MS, 20 * MS)), &[0, 10 * MS]);
        assert_eq!(in_ms(&halves, 100), [(0, 100)]);
    }

    #[test]
    fn the_cpus_of_a_host_have_their_ticks_together() {
        let given = Ticked { timeslice: 10 * MS, period: 40 * MS, tick: 4 * MS, seed: 3 };
        let together = several(Schedule::Deadline(given), &[0, 17 * MS]);
        let slices = together.time_slices(ORIGIN, ORIGIN + 1_000 * MS);
        let ends: Vec<_> = slices.iter().map(|slice| slice.end).filter(|end| *end < 1_000 * MS).collect();
        assert!(ends.iter().all(|end| end % (4 * MS) == ends[0] % (4 * MS)), "{ends:?}");
        let alone = Schedule::Deadline(given).time_slices(ORIGIN, ORIGIN + 1_000 * MS);
        assert!(slices.len() > alone.len() * 3 / 2);
    }

    proptest! {
        /// A time is in a timeslice of the CPUs together if, and only if, it is in one of a CPU.
        #[test]
        fn together_they_have_what_each_has(
            timeslice in 1u64..40, off in 1u64..80, shifts in prop::collection::vec(0u64..200, 1..5),
            start_jitter in 0.0f64..1.0, length_jitter in 0.0f64..0.5, seed: u64, pauses: bool,
        ) {
            let period = (timeslice + off) * MS;
            let each = Slices {
                timeslice: timeslice * MS, period, phase: None, start_jitter, length_jitter, seed, start: 30 * MS,
                stop: Some(30 * period), alternate: pauses.then_some(3 * period),
            };
            let shifts: Vec<u64> = shifts.iter().map(|ms| ms * MS).collect();
            let together = several(Schedule::Slices(each), &shifts);
            together.check().unwrap();
            let end = ORIGIN + 40 * period;
            let slices = together.time_slices(ORIGIN, end);
            prop_assert!(slices.windows(2).all(|two| two[0].end < two[1].begin), "{:?}", slices);
            let of_each: Vec<TimeSlice> = shifts
                .iter()
                .flat_map(|shift| Drawn::shifted(&Schedule::Slices(each), ORIGIN, *shift).take_while(|s| s.begin < end))
                .collect();
            for time in (0..40 * period).step_by(997_331) {
                let of_one = of_each.iter().any(|slice| (slice.begin..slice.end).contains(&(ORIGIN + time)));
                prop_assert_eq!(slices.iter().any(|slice| (slice.begin..slice.end).contains(&time)), of_one, "{}", time);
            }
        }

        #[test]
        fn a_shift_moves_the_periods_and_nothing_else(shift in 0u64..100, seed: u64) {
            let slices = Slices { phase: None, seed, start_jitter: 0.3, ..Slices::plain(10 * MS, 40 * MS) };
            let drawn = |shift| {
                let all = Drawn::shifted(&Schedule::Slices(slices), ORIGIN, shift).skip(1);
                all.filter(move |slice| slice.begin > ORIGIN + 120 * MS).take(20).map(|s| s.begin).collect::<Vec<_>>()
            };
            let (first, moved) = (drawn(0), drawn(shift * MS));
            let moves = |from: &[u64], to: u64| from.iter().any(|begin| (begin + shift * MS).abs_diff(to) % (40 * MS) == 0);
            prop_assert!(moved.iter().skip(5).take(5).all(|begin| moves(&first, *begin)));
        }
    }
}
