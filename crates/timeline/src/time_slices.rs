//! The timeslices of a schedule, in order, drawn as time goes on.
use std::collections::VecDeque;

use crate::drawn::Drawn;
use crate::late_wake_ups::LateWakeUps;
use crate::on_wake_up::OnWakeUp;
use crate::schedule::Schedule;
use crate::time_slice::{TimeSlice, NEVER};

impl Schedule {
    /// Returns all timeslices from `origin` to `end`. Their times count from `origin`.
    ///
    /// Those of several CPUs that follow without a gap are one.
    pub fn time_slices(&self, origin: u64, end: u64) -> Vec<TimeSlice> {
        let slices = Drawn::new(self, origin)
            .skip_while(|slice| slice.end <= origin)
            .take_while(|slice| slice.begin < end)
            .map(|slice| TimeSlice { begin: slice.begin.max(origin) - origin, end: slice.end.min(end) - origin });
        let mut all: Vec<TimeSlice> = Vec::new();
        for slice in slices {
            match all.last_mut().filter(|last| matches!(self, Self::AnyOf(_)) && last.end == slice.begin) {
                Some(last) => last.end = slice.end,
                None => all.push(slice),
            }
        }
        all
    }
}

/// The timeslices of a schedule from `origin` on; before, the CPU is free.
#[derive(Debug)]
pub struct TimeSlices {
    source: Source,
    end: u64,
}

#[derive(Debug)]
enum Source {
    /// They are known in advance.
    Drawn { upcoming: VecDeque<TimeSlice>, drawn: Drawn },
    /// When they begin depends on when the CPU is wanted.
    OnWakeUp(OnWakeUp),
    /// Whether one is late is drawn at each wake-up.
    Late(LateWakeUps),
}

impl Source {
    fn drawn(mut drawn: Drawn) -> Self {
        Self::Drawn { upcoming: drawn.next().into_iter().collect(), drawn }
    }
}

impl TimeSlices {
    /// Timeslices from `origin` to `end`; nobody asks for later ones.
    pub fn new(schedule: &Schedule, origin: u64, end: u64) -> Self {
        let source = match schedule {
            Schedule::OnWakeUp(given) => Source::OnWakeUp(OnWakeUp::new(*given, origin)),
            Schedule::Late(given) => Source::Late(LateWakeUps::new(*given, origin)),
            _ => Source::drawn(Drawn::new(schedule, origin)),
        };
        Self { source, end }
    }

    /// Returns those of each CPU, where the schedule is of several; nothing where it is of one.
    pub fn of_each(schedule: &Schedule, origin: u64, end: u64) -> Vec<Self> {
        let Schedule::AnyOf(several) = schedule else { return Vec::new() };
        let drawn = several.cpus.iter().map(|(each, shift)| Drawn::shifted(each, origin, *shift));
        drawn.map(|drawn| Self { source: Source::drawn(drawn), end }).collect()
    }

    /// Returns the earliest time from `at` on at which the CPU may run; after the end, `at` itself.
    pub fn first_from(&mut self, at: u64) -> u64 {
        if at >= self.end {
            return at;
        }
        let (upcoming, drawn) = match &mut self.source {
            Source::Drawn { upcoming, drawn } => (upcoming, drawn),
            Source::OnWakeUp(windows) => return windows.first_from(at),
            Source::Late(wake_ups) => return wake_ups.first_from(at),
        };
        let mut number = 0;
        loop {
            fill(upcoming, drawn, number + 1);
            match upcoming.get(number) {
                Some(slice) if slice.end <= at => number += 1,
                Some(slice) => return at.max(slice.begin),
                None => return NEVER,
            }
        }
    }

    /// Returns the earliest time at which the CPU may run for a timer that fires at `timer`, or for a packet that arrives
    /// at `arrival`.
    pub fn first_of(&mut self, timer: u64, arrival: u64) -> u64 {
        match &self.source {
            Source::Late(wake_ups) if arrival < self.end => {
                wake_ups.interrupted_from(arrival).min(self.first_from(timer))
            }
            _ => self.first_from(timer.min(arrival)),
        }
    }

    /// Says that the CPU, which has been wanted since `wanted`, runs from `at` on, which [`Self::first_of`] has
    /// returned, and returns until when it is known what the CPU may do: later timeslices depend on when it is wanted
    /// then.
    pub fn wake_up(&mut self, at: u64, wanted: u64) -> u64 {
        match &mut self.source {
            Source::Drawn { .. } => NEVER,
            _ if at >= self.end => NEVER,
            Source::OnWakeUp(windows) => windows.wake_up(at),
            Source::Late(wake_ups) => wake_ups.wake_up(at, wanted),
        }
    }

    /// Forgets the timeslices that have ended by `now`, and writes as many of the others as there is room for. Returns
    /// how many it has written.
    pub fn write(&mut self, now: u64, to: &mut [TimeSlice]) -> usize {
        match &mut self.source {
            Source::Drawn { upcoming, drawn } => {
                while upcoming.front().is_some_and(|slice| slice.end <= now) {
                    upcoming.pop_front();
                    fill(upcoming, drawn, 1);
                }
                fill(upcoming, drawn, to.len());
                write_all(upcoming.iter().copied(), to)
            }
            Source::OnWakeUp(windows) => write_all(windows.known(self.end), to),
            Source::Late(wake_ups) => write_all(wake_ups.known(), to),
        }
    }

    /// Returns the timeslices until `end` that began when the CPU was wanted, from `origin` on. None: the schedule says
    /// them itself ([`Schedule::time_slices`]).
    pub fn begun(&self, origin: u64, end: u64) -> Option<Vec<TimeSlice>> {
        match &self.source {
            Source::Drawn { .. } => None,
            Source::OnWakeUp(windows) => Some(windows.begun(origin, end)),
            Source::Late(wake_ups) => Some(wake_ups.begun(origin, end)),
        }
    }
}

fn fill(upcoming: &mut VecDeque<TimeSlice>, drawn: &mut Drawn, count: usize) {
    while upcoming.len() < count {
        match drawn.next() {
            Some(slice) => upcoming.push_back(slice),
            None => return,
        }
    }
}

fn write_all(slices: impl Iterator<Item = TimeSlice>, to: &mut [TimeSlice]) -> usize {
    to.iter_mut().zip(slices).map(|(to, from)| *to = from).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Late, Slices, Woken};
    use crate::schedule::{MAX_PERIOD, MIN_PERIOD};
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const ORIGIN: u64 = 1_000 * MS;

    /// Every period begins on time, with its slice.
    fn plain(timeslice: u64, period: u64, phase: Option<u64>) -> Slices {
        Slices { phase, seed: 7, ..Slices::plain(timeslice, period) }
    }

    fn from_phase(phase: u64) -> TimeSlices {
        TimeSlices::new(&Schedule::Slices(plain(10 * MS, 40 * MS, Some(phase))), ORIGIN, NEVER)
    }

    /// All timeslices until `end` after the origin.
    fn all(slices: Slices, end: u64) -> Vec<TimeSlice> {
        Schedule::Slices(slices).time_slices(ORIGIN, ORIGIN + end)
    }

    #[test]
    fn before_its_start_and_from_its_stop_on_the_cpu_is_there() {
        let slices = Slices { start: 100 * MS, stop: Some(200 * MS), ..plain(10 * MS, 40 * MS, Some(0)) };
        let granted = all(slices, 300 * MS);
        let seen: Vec<_> = granted.iter().map(|slice| (slice.begin / MS, slice.end / MS)).collect();
        assert_eq!(seen, [(0, 100), (100, 110), (140, 150), (180, 190), (200, 300)]);
    }

    #[test]
    fn contention_that_alternates_pauses_for_as_long_as_it_lasts() {
        let plain = plain(10 * MS, 40 * MS, Some(0));
        let slices = Slices { start: 100 * MS, stop: Some(600 * MS), alternate: Some(100 * MS), ..plain };
        let granted = all(slices, 1_000 * MS);
        let off = |from: u64, to: u64| (to - from) - time_within(&granted, from * MS, to * MS) / MS;
        assert_eq!(off(100, 200), 70); // slices at 100, 140 and 180 ms
        assert_eq!([off(0, 100), off(200, 300), off(400, 500), off(600, 1_000)], [0, 0, 0, 0]);
        // Later ones begin within a period: two or three slices, or parts of them.
        assert!((60..=80).contains(&off(300, 400)) && (60..=80).contains(&off(500, 600)), "{granted:?}");
        assert!(granted.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    }

    #[test]
    fn a_period_longer_than_the_clock_has_run_begins_when_its_phase_says() {
        let granted = all(plain(1_000 * MS, 4_000 * MS, Some(MS)), 20_000 * MS);
        let seen: Vec<_> = granted.iter().map(|slice| (slice.begin / MS, slice.end / MS)).collect();
        assert_eq!(seen, [(1, 1_001), (4_001, 5_001), (8_001, 9_001), (12_001, 13_001), (16_001, 17_001)]);
    }

    fn time_within(granted: &[TimeSlice], from: u64, to: u64) -> u64 {
        granted.iter().map(|slice| slice.end.min(to).saturating_sub(slice.begin.max(from))).sum()
    }

    #[test]
    fn an_event_in_an_off_time_waits_for_the_next_slice() {
        let mut granted = from_phase(0);
        assert_eq!(granted.first_from(ORIGIN + 3 * MS), ORIGIN + 3 * MS);
        assert_eq!(granted.first_from(ORIGIN + 10 * MS), ORIGIN + 40 * MS);
        assert_eq!(granted.first_from(ORIGIN + 47 * MS), ORIGIN + 47 * MS);
        assert_eq!(granted.first_from(ORIGIN + 79 * MS), ORIGIN + 80 * MS);
    }

    #[test]
    fn a_phase_begins_in_the_middle_of_a_period() {
        let mut granted = from_phase(5 * MS);
        // The period that began 35 ms before the run had its slice then.
        assert_eq!(granted.first_from(ORIGIN), ORIGIN + 5 * MS);
        let mut granted = from_phase(35 * MS);
        assert_eq!(granted.first_from(ORIGIN), ORIGIN);
        assert_eq!(granted.first_from(ORIGIN + 5 * MS), ORIGIN + 35 * MS);
    }

    #[test]
    fn before_the_run_the_cpu_is_free() {
        let mut granted = from_phase(5 * MS);
        assert_eq!(granted.first_from(3), 3);
    }

    #[test]
    fn recorded_offtimes_come_when_they_were_recorded() {
        let schedule = Schedule::Replay { offtimes: vec![(0, 5 * MS), (20 * MS, 30 * MS)] };
        let mut granted = TimeSlices::new(&schedule, ORIGIN, NEVER);
        assert_eq!(granted.first_from(ORIGIN), ORIGIN + 5 * MS);
        assert_eq!(granted.first_from(ORIGIN + 20 * MS), ORIGIN + 50 * MS);
        assert_eq!(granted.first_from(ORIGIN + 60 * MS), ORIGIN + 60 * MS);
    }

    #[test]
    fn drawn_lengths_keep_their_bounds_and_the_share() {
        let granted = all(Slices { length_jitter: 0.5, ..plain(10 * MS, 40 * MS, Some(0)) }, 400_000 * MS);
        let lengths: Vec<_> = granted.iter().map(|slice| slice.end - slice.begin).collect();
        let offs: Vec<_> = granted.windows(2).map(|pair| pair[1].begin - pair[0].end).collect();
        let (min, max) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
        assert!((5 * MS..6 * MS).contains(min) && (14 * MS..=15 * MS).contains(max), "{min} {max}");
        assert!(offs.iter().all(|off| (15 * MS..=45 * MS).contains(off)));
        let share = lengths.iter().sum::<u64>() as f64 / (400_000 * MS) as f64;
        assert!((share / 0.25 - 1.0).abs() < 0.02, "{share}");
    }

    proptest! {
        /// From a microsecond to an hour, evenly over the orders of magnitude, and parts of it in thousandths.
        #[test]
        fn without_jitter_every_slice_is_where_its_phase_says(exponent in 3.0f64..12.556, part in 1u64..=1000,
                                                              begins in proptest::option::of(0u64..1000), seed: u64) {
            let period = (10f64.powf(exponent) as u64).clamp(MIN_PERIOD, MAX_PERIOD);
            let timeslice = (period / 1000 * part).max(1);
            let plain = plain(timeslice, period, begins.map(|thousandth| period / 1000 * thousandth));
            let slices = Slices { seed, ..plain };
            Schedule::Slices(slices).check().unwrap();
            let granted = all(slices, 30 * period);
            prop_assert!(granted.iter().all(|slice| slice.begin < slice.end && slice.end <= 30 * period));
            // A slice that is cut in two by the run's beginning has its other part at the run's end.
            prop_assert_eq!(time_within(&granted, 0, 30 * period), 30 * timeslice);
            let whole = granted.iter().find(|slice| slice.begin > 0);
            if let (Some(first), Some(thousandth)) = (whole.filter(|_| timeslice < period), begins) {
                prop_assert_eq!(first.begin % period, period / 1000 * thousandth);
            }
        }

        #[test]
        fn whatever_moves_them_slices_are_in_order_and_keep_the_share(
            exponent in 3.0f64..12.556, part in 1u64..=1000, thousandth in proptest::option::of(0u64..1000),
            start_jitter in 0.0f64..=1.0, start in 0u64..5, contended in 1u64..20, pauses: bool, seed: u64,
        ) {
            let period = (10f64.powf(exponent) as u64).clamp(MIN_PERIOD, MAX_PERIOD);
            let timeslice = (period / 1000 * part).max(1);
            let (begin, end) = (start * period, (start + contended) * period);
            let slices = Slices {
                timeslice, period, phase: thousandth.map(|thousandth| period / 1000 * thousandth),
                start_jitter, length_jitter: 0.0, seed, start: begin, stop: Some(end),
                alternate: pauses.then_some(2 * period),
            };
            Schedule::Slices(slices).check().unwrap();
            let granted = all(slices, end + period);
            prop_assert!(granted.iter().all(|slice| slice.begin < slice.end && slice.end <= end + period));
            prop_assert!(granted.windows(2).all(|pair| pair[0].end <= pair[1].begin));
            prop_assert_eq!(time_within(&granted, 0, begin), begin);
            prop_assert_eq!(time_within(&granted, end, end + period), period);
            let stretch = if pauses { 2 * period } else { contended * period };
            let mut at = begin;
            while at < end {
                let until = (at + stretch).min(end);
                // At either end a slice may have been moved into the stretch, or out of it.
                let (got, due) = (time_within(&granted, at, until), (until - at) as f64 / period as f64 * timeslice as f64);
                prop_assert!((got as f64 - due).abs() <= 2.0 * timeslice as f64, "{} of {}", got, due);
                at = until;
                if pauses {
                    let until = (at + stretch).min(end);
                    prop_assert_eq!(time_within(&granted, at, until), until - at);
                    at = until;
                }
            }
        }

        #[test]
        fn times_beyond_all_reason_wrap_around_nothing(
            timeslice in 1u64.., period: u64, phase: Option<u64>, start_jitter in 0.0f64..=1.0,
            length_jitter in 0.0f64..0.999, seed: u64, start: u64, stop: Option<u64>, alternate: Option<u64>,
        ) {
            let period = period % MAX_PERIOD + MIN_PERIOD;
            let timeslice = timeslice % period + 1;
            let granted = all(
                Slices { timeslice, period, phase, start_jitter, length_jitter, seed, start, stop, alternate }, 20 * period,
            );
            prop_assert!(granted.iter().all(|slice| slice.begin < slice.end && slice.end <= 20 * period));
            prop_assert!(granted.windows(2).all(|pair| pair[0].end <= pair[1].begin));
        }
    }

    #[test]
    fn a_sleeping_thread_begins_its_periods_when_it_wakes_up() {
        let given = Woken { timeslice: 10 * MS, period: 40 * MS, seed: 1 };
        let mut slices = TimeSlices::new(&Schedule::OnWakeUp(given), ORIGIN, ORIGIN + 1_000 * MS);
        let at = |ms: u64| ORIGIN + ms * MS;
        // Wherever the first period began, at 100 ms a new one may begin, and does.
        assert_eq!((slices.first_from(at(100)), slices.wake_up(at(100), at(100))), (at(100), at(140)));
        // Sleep within the window costs its time; what comes after it waits for the next period.
        assert_eq!((slices.first_from(at(109)), slices.wake_up(at(109), at(109))), (at(109), at(140)));
        assert_eq!(slices.first_from(at(110)), at(140));
        assert_eq!(slices.wake_up(at(140), at(140)), at(180));
        // Who comes later than that begins a period of his own.
        assert_eq!((slices.first_from(at(195)), slices.wake_up(at(195), at(195))), (at(195), at(235)));
        let begun = slices.begun(ORIGIN, at(200)).expect("they cannot be known in advance");
        let begun = begun.iter().filter(|slice| slice.begin >= 100 * MS);
        let begun: Vec<_> = begun.map(|slice| (slice.begin / MS, slice.end / MS)).collect();
        assert_eq!(begun, [(100, 110), (140, 150), (195, 200)]);
        let mut written = [TimeSlice { begin: 0, end: 0 }; 8];
        assert_eq!(slices.write(at(195), &mut written), 2);
        assert_eq!(
            written[..2],
            [TimeSlice { begin: at(195), end: at(205) }, TimeSlice { begin: at(235), end: at(245) }]
        );
    }

    #[test]
    fn a_cpu_that_is_late_at_every_wake_up_is_there_while_its_thread_is_awake() {
        let given = Late { timeslice: 2 * MS, period: 12 * MS, chance: 1.0, timers: false, seed: 1 };
        let mut slices = TimeSlices::new(&Schedule::Late(given), ORIGIN, ORIGIN + 1_000 * MS);
        let at = |ms: u64| ORIGIN + ms * MS;
        assert_eq!(slices.first_from(at(100)), at(110));
        // Something earlier may come while it waits.
        assert_eq!((slices.first_from(at(99)), slices.wake_up(at(109), at(99))), (at(109), at(111)));
        assert_eq!((slices.first_from(at(110)), slices.wake_up(at(110), at(110))), (at(110), at(111)));
        assert_eq!((slices.first_from(at(111)), slices.wake_up(at(121), at(111))), (at(121), at(123)));
        let begun = slices.begun(ORIGIN, at(130)).expect("they cannot be known in advance");
        let begun: Vec<_> = begun.iter().map(|slice| (slice.begin / MS, slice.end / MS)).collect();
        assert_eq!(begun, [(0, 99), (109, 111), (121, 130)]);
        assert_eq!((slices.first_from(at(1_000)), slices.wake_up(at(1_000), at(1_000))), (at(1_000), NEVER));
    }

    #[test]
    fn a_part_of_the_wake_ups_is_late_and_the_same_seed_draws_the_same() {
        let late = |seed| {
            let given = Late { timeslice: MS, period: 11 * MS, chance: 0.05, timers: false, seed };
            let mut slices = TimeSlices::new(&Schedule::Late(given), 0, NEVER);
            let mut now = 0;
            let woken = (0..20_000).map(|_| {
                let wanted = now + MS;
                now = slices.first_from(wanted);
                slices.wake_up(now, wanted);
                now - wanted
            });
            woken.collect::<Vec<_>>()
        };
        let drawn = late(7);
        assert!(drawn.iter().all(|late| [0, 10 * MS].contains(late)));
        let part = drawn.iter().filter(|late| **late > 0).count() as f64 / drawn.len() as f64;
        assert!((part - 0.05).abs() < 0.01, "{part}");
        assert_eq!(drawn, late(7));
        assert_ne!(drawn, late(8));
    }

    #[test]
    fn where_only_timers_are_late_a_packet_ends_the_wait() {
        let given = Late { timeslice: MS, period: 11 * MS, chance: 1.0, timers: true, seed: 1 };
        let mut slices = TimeSlices::new(&Schedule::Late(given), ORIGIN, ORIGIN + 1_000 * MS);
        let at = |ms: u64| ORIGIN + ms * MS;
        assert_eq!((slices.first_from(at(100)), slices.first_of(at(100), at(104))), (at(110), at(104)));
        assert_eq!(slices.wake_up(at(104), at(100)), at(105));
        let mut written = [TimeSlice { begin: 0, end: 0 }; 2];
        assert_eq!(slices.write(at(104), &mut written), 1);
        assert_eq!(written[0], TimeSlice { begin: at(104), end: at(105) });
        let begun = slices.begun(ORIGIN, at(130)).expect("they cannot be known in advance");
        let begun: Vec<_> = begun.iter().map(|slice| (slice.begin / MS, slice.end / MS)).collect();
        assert_eq!(begun, [(0, 100), (104, 130)]);
    }
}
