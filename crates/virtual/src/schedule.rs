//! When a node's CPU may run: windows in order, drawn as time goes on.
use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

use crate::shared::{Window, NEVER};

/// Times in ns.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// The CPU is never taken away.
    #[default]
    Always,
    /// `timeslice` out of every `period`. The slice begins somewhere in the first `start_jitter` part of its period's
    /// off-time; slice and off-time are each drawn evenly from `1 - length_jitter` to `1 + length_jitter` of their
    /// length. `phase`: when the first period begins, counted from `start`; none: drawn. Before `start` and from `stop`
    /// on the CPU is there. `alternate`: so it is for that long after every time of that length with slices.
    Slices {
        timeslice: u64,
        period: u64,
        phase: Option<u64>,
        start_jitter: f64,
        #[serde(default)]
        length_jitter: f64,
        seed: u64,
        #[serde(default)]
        start: u64,
        #[serde(default)]
        stop: Option<u64>,
        #[serde(default)]
        alternate: Option<u64>,
    },
    /// Recorded off-times: (begin, length) since the run began, in order, without overlap.
    Replay { offtimes: Vec<(u64, u64)> },
}

const SHORTEST_PERIOD: u64 = 1_000;
const LONGEST_PERIOD: u64 = 3_600_000_000_000;

impl Schedule {
    /// All windows from `origin` to `end`, counted from `origin`.
    pub fn windows(&self, origin: u64, end: u64) -> Vec<Window> {
        let (mut windows, mut all, mut at) = (Windows::new(self, origin, end), Vec::new(), origin);
        let mut written = [Window { begin: 0, end: 0 }; 64];
        while at < end {
            let count = windows.write(at, &mut written);
            if count == 0 {
                break;
            }
            for window in written[..count].iter().filter(|window| window.begin < end) {
                all.push(Window { begin: window.begin.max(at) - origin, end: window.end.min(end) - origin });
            }
            at = written[count - 1].end;
        }
        all
    }

    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Always => Ok(()),
            Self::Slices { timeslice, period, start_jitter, length_jitter, alternate, .. } => {
                // Shorter ones would be millions of windows a second.
                if *period < SHORTEST_PERIOD || *period > LONGEST_PERIOD {
                    return Err(format!("contention: a period of {period} ns is not between 1 us and an hour"));
                }
                if *timeslice == 0 || timeslice > period {
                    return Err(format!(
                        "contention: a timeslice of {timeslice} ns does not fit a period of {period} ns"
                    ));
                }
                if let Some(time) = alternate.filter(|time| time < period) {
                    return Err(format!("contention.alternate: {time} ns is less than a period of {period} ns"));
                }
                if !(0.0..=1.0).contains(start_jitter) {
                    return Err(format!("contention.start_jitter: {start_jitter} is not between 0 and 1"));
                }
                if !(0.0..1.0).contains(length_jitter) {
                    return Err(format!("contention.length_jitter: {length_jitter} is not at least 0 and below 1"));
                }
                Ok(())
            }
            Self::Replay { offtimes } => {
                let ends = offtimes.iter().map(|(begin, length)| begin.saturating_add(*length));
                let next = offtimes.iter().skip(1).map(|(begin, _)| *begin);
                match ends.zip(next).find(|(end, next)| end > next) {
                    None => Ok(()),
                    Some((end, next)) => Err(format!(
                        "contention.replay: an off-time begins at {next} ns, before the last ends at {end} ns"
                    )),
                }
            }
        }
    }
}

/// The windows of a schedule from `origin` on; before, the CPU is free.
pub struct Windows {
    upcoming: VecDeque<Window>,
    source: Source,
    origin: u64,
    end: u64,
}

enum Source {
    Ended,
    Slices(Box<Slices>),
    Replay { offtimes: std::vec::IntoIter<(u64, u64)>, from: u64 },
}

/// Its times are signed and wide enough for every sum of them: a period may begin long before the clock does.
struct Slices {
    timeslice: u64,
    period: u64,
    start_jitter: f64,
    length_jitter: f64,
    random: Pcg64Mcg,
    /// When the next period begins.
    at: i128,
    /// What came before is nobody's.
    from: i128,
    /// When the CPU is there for good.
    stop: i128,
    alternate: Option<u64>,
    /// When it is there for a while.
    pause: i128,
}

impl Slices {
    /// The last one has no end.
    fn next(&mut self) -> Window {
        let (timeslice, off) = self.lengths();
        let spare = off as f64 * self.start_jitter;
        let drawn = self.at + i128::from((spare * self.random.random::<f64>()) as u64);
        self.at += i128::from(timeslice) + i128::from(off);
        let (mut begin, mut end) = (drawn.max(self.from), drawn + i128::from(timeslice));
        if let Some(time) = self.alternate.filter(|_| end >= self.pause) {
            begin = begin.min(self.pause);
            end = self.pause + i128::from(time);
            // The first period afterwards is under way, as one is when a run begins.
            self.from = end;
            self.at = end - i128::from(self.random.random_range(0..self.period));
            self.pause = end + i128::from(time);
        }
        match end < self.stop {
            true => Window { begin: on_clock(begin), end: on_clock(end) },
            false => Window { begin: on_clock(begin.min(self.stop)), end: NEVER },
        }
    }

    /// Of the next slice and its off-time. A period that is under way has the usual ones, so that it ends when it should.
    fn lengths(&mut self) -> (u64, u64) {
        let off = self.period - self.timeslice;
        if self.length_jitter == 0.0 || self.at < self.from {
            return (self.timeslice, off);
        }
        let mut drawn = |length: u64| {
            let factor = 1.0 + self.length_jitter * (2.0 * self.random.random::<f64>() - 1.0);
            (length as f64 * factor).round() as u64
        };
        (drawn(self.timeslice).max(1), drawn(off))
    }
}

fn on_clock(time: i128) -> u64 {
    time.clamp(0, NEVER.into()) as u64
}

impl Windows {
    /// Windows from `origin` to `end`; nobody asks for later ones.
    pub fn new(schedule: &Schedule, origin: u64, end: u64) -> Self {
        let mut upcoming = VecDeque::new();
        let source = match schedule {
            Schedule::Always => {
                upcoming.push_back(Window { begin: 0, end: NEVER });
                Source::Ended
            }
            Schedule::Slices {
                timeslice,
                period,
                phase,
                start_jitter,
                length_jitter,
                seed,
                start,
                stop,
                alternate,
            } => {
                let (timeslice, period, alternate) = (*timeslice, *period, *alternate);
                let after = |begin: i128, time: Option<u64>| time.map_or(NEVER.into(), |time| begin + i128::from(time));
                let from = i128::from(origin) + i128::from(*start);
                upcoming.push_back(Window { begin: 0, end: on_clock(from) });
                let mut random = Pcg64Mcg::seed_from_u64(*seed);
                let drawn = random.random_range(0..period);
                let phase = phase.unwrap_or(drawn) % period;
                // Of the period that is under way when the run begins, only the rest is seen.
                let at = from + i128::from(phase) - if phase > 0 { i128::from(period) } else { 0 };
                Source::Slices(Box::new(Slices {
                    timeslice,
                    period,
                    start_jitter: *start_jitter,
                    length_jitter: *length_jitter,
                    random,
                    at,
                    from,
                    stop: after(origin.into(), *stop),
                    alternate,
                    pause: after(from, alternate),
                }))
            }
            Schedule::Replay { offtimes } => Source::Replay { offtimes: offtimes.clone().into_iter(), from: 0 },
        };
        Self { upcoming, source, origin, end }
    }

    /// The earliest time from `at` on at which the CPU may run; after the end, `at` itself.
    pub fn first_from(&mut self, at: u64) -> u64 {
        if at >= self.end {
            return at;
        }
        let mut number = 0;
        loop {
            self.fill(number + 1);
            match self.upcoming.get(number) {
                Some(window) if window.end <= at => number += 1,
                Some(window) => return at.max(window.begin),
                None => return NEVER,
            }
        }
    }

    /// Forgets the windows that end before `now`, and writes as many of the rest as there is room for. Returns how many.
    pub fn write(&mut self, now: u64, to: &mut [Window]) -> usize {
        while self.upcoming.front().is_some_and(|window| window.end <= now) {
            self.upcoming.pop_front();
            self.fill(1);
        }
        self.fill(to.len());
        let count = to.len().min(self.upcoming.len());
        for (to, from) in to.iter_mut().zip(&self.upcoming) {
            *to = *from;
        }
        count
    }

    fn fill(&mut self, count: usize) {
        while self.upcoming.len() < count {
            let window = match &mut self.source {
                Source::Ended => return,
                Source::Slices(slices) => {
                    let window = slices.next();
                    if window.end == NEVER {
                        self.source = Source::Ended;
                    }
                    window
                }
                Source::Replay { offtimes, from } => {
                    let begin = *from;
                    match offtimes.next() {
                        Some((off, length)) => {
                            let end = self.origin.saturating_add(off);
                            *from = end.saturating_add(length);
                            Window { begin, end }
                        }
                        None => {
                            self.source = Source::Ended;
                            Window { begin, end: NEVER }
                        }
                    }
                }
            };
            // The part of a window that lies before the run is nobody's.
            if window.begin < window.end {
                self.upcoming.push_back(window);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const ORIGIN: u64 = 1_000 * MS;

    /// Every period begins on time, with its slice.
    fn plain(timeslice: u64, period: u64, phase: Option<u64>) -> Schedule {
        Schedule::Slices {
            timeslice,
            period,
            phase,
            start_jitter: 0.0,
            length_jitter: 0.0,
            seed: 7,
            start: 0,
            stop: None,
            alternate: None,
        }
    }

    fn slices(phase: u64) -> Windows {
        Windows::new(&plain(10 * MS, 40 * MS, Some(phase)), ORIGIN, NEVER)
    }

    #[test]
    fn before_its_start_and_from_its_stop_on_the_cpu_is_there() {
        let mut schedule = plain(10 * MS, 40 * MS, Some(0));
        if let Schedule::Slices { start, stop, .. } = &mut schedule {
            (*start, *stop) = (100 * MS, Some(200 * MS));
        }
        let windows = schedule.windows(ORIGIN, ORIGIN + 300 * MS);
        let seen: Vec<_> = windows.iter().map(|window| (window.begin / MS, window.end / MS)).collect();
        assert_eq!(seen, [(0, 100), (100, 110), (140, 150), (180, 190), (200, 300)]);
    }

    #[test]
    fn contention_that_alternates_pauses_for_as_long_as_it_lasts() {
        let mut schedule = plain(10 * MS, 40 * MS, Some(0));
        if let Schedule::Slices { start, stop, alternate, .. } = &mut schedule {
            (*start, *stop, *alternate) = (100 * MS, Some(600 * MS), Some(100 * MS));
        }
        let windows = schedule.windows(ORIGIN, ORIGIN + 1_000 * MS);
        let off = |from: u64, to: u64| (to - from) - time_within(&windows, from * MS, to * MS) / MS;
        assert_eq!(off(100, 200), 70); // slices at 100, 140 and 180 ms
        assert_eq!([off(0, 100), off(200, 300), off(400, 500), off(600, 1_000)], [0, 0, 0, 0]);
        // Later ones begin within a period: two or three slices, or parts of them.
        assert!((60..=80).contains(&off(300, 400)) && (60..=80).contains(&off(500, 600)), "{windows:?}");
        assert!(windows.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    }

    #[test]
    fn a_period_longer_than_the_clock_has_run_begins_when_its_phase_says() {
        let windows = plain(1_000 * MS, 4_000 * MS, Some(MS)).windows(ORIGIN, ORIGIN + 20_000 * MS);
        let seen: Vec<_> = windows.iter().map(|window| (window.begin / MS, window.end / MS)).collect();
        assert_eq!(seen, [(1, 1_001), (4_001, 5_001), (8_001, 9_001), (12_001, 13_001), (16_001, 17_001)]);
    }

    fn time_within(windows: &[Window], from: u64, to: u64) -> u64 {
        windows.iter().map(|window| window.end.min(to).saturating_sub(window.begin.max(from))).sum()
    }

    #[test]
    fn an_event_in_an_off_time_waits_for_the_next_slice() {
        let mut windows = slices(0);
        assert_eq!(windows.first_from(ORIGIN + 3 * MS), ORIGIN + 3 * MS);
        assert_eq!(windows.first_from(ORIGIN + 10 * MS), ORIGIN + 40 * MS);
        assert_eq!(windows.first_from(ORIGIN + 47 * MS), ORIGIN + 47 * MS);
        assert_eq!(windows.first_from(ORIGIN + 79 * MS), ORIGIN + 80 * MS);
    }

    #[test]
    fn a_phase_begins_in_the_middle_of_a_period() {
        let mut windows = slices(5 * MS);
        // The period that began 35 ms before the run had its slice then.
        assert_eq!(windows.first_from(ORIGIN), ORIGIN + 5 * MS);
        let mut windows = slices(35 * MS);
        assert_eq!(windows.first_from(ORIGIN), ORIGIN);
        assert_eq!(windows.first_from(ORIGIN + 5 * MS), ORIGIN + 35 * MS);
    }

    #[test]
    fn before_the_run_the_cpu_is_free() {
        let mut windows = slices(5 * MS);
        assert_eq!(windows.first_from(3), 3);
    }

    #[test]
    fn recorded_offtimes_come_when_they_were_recorded() {
        let schedule = Schedule::Replay { offtimes: vec![(0, 5 * MS), (20 * MS, 30 * MS)] };
        let mut windows = Windows::new(&schedule, ORIGIN, NEVER);
        assert_eq!(windows.first_from(ORIGIN), ORIGIN + 5 * MS);
        assert_eq!(windows.first_from(ORIGIN + 20 * MS), ORIGIN + 50 * MS);
        assert_eq!(windows.first_from(ORIGIN + 60 * MS), ORIGIN + 60 * MS);
    }

    #[test]
    fn offtimes_that_overlap_are_refused() {
        assert!(Schedule::Replay { offtimes: vec![(0, 5), (4, 1)] }
            .check()
            .unwrap_err()
            .contains("before the last ends"));
    }

    #[test]
    fn drawn_lengths_keep_their_bounds_and_the_share() {
        let mut schedule = plain(10 * MS, 40 * MS, Some(0));
        if let Schedule::Slices { length_jitter, .. } = &mut schedule {
            *length_jitter = 0.5;
        }
        let windows = schedule.windows(ORIGIN, ORIGIN + 400_000 * MS);
        let lengths: Vec<_> = windows.iter().map(|window| window.end - window.begin).collect();
        let offs: Vec<_> = windows.windows(2).map(|pair| pair[1].begin - pair[0].end).collect();
        let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
        assert!((5 * MS..6 * MS).contains(least) && (14 * MS..=15 * MS).contains(most), "{least} {most}");
        assert!(offs.iter().all(|off| (15 * MS..=45 * MS).contains(off)));
        let share = lengths.iter().sum::<u64>() as f64 / (400_000 * MS) as f64;
        assert!((share / 0.25 - 1.0).abs() < 0.02, "{share}");
    }

    proptest! {
        /// From a microsecond to an hour, evenly over the orders of magnitude, and parts of it in thousandths.
        #[test]
        fn without_jitter_every_slice_is_where_its_phase_says(exponent in 3.0f64..12.556, part in 1u64..=1000,
                                                              begins in proptest::option::of(0u64..1000), seed: u64) {
            let period = (10f64.powf(exponent) as u64).clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
            let timeslice = (period / 1000 * part).max(1);
            let mut schedule = plain(timeslice, period, begins.map(|thousandth| period / 1000 * thousandth));
            if let Schedule::Slices { seed: drawn, .. } = &mut schedule {
                *drawn = seed;
            }
            schedule.check().unwrap();
            let end = ORIGIN + 30 * period;
            let windows = schedule.windows(ORIGIN, end);
            prop_assert!(windows.iter().all(|window| window.begin < window.end && window.end <= 30 * period));
            // A slice that is cut in two by the run's beginning has its other part at the run's end.
            prop_assert_eq!(time_within(&windows, 0, 30 * period), 30 * timeslice);
            let whole = windows.iter().find(|window| window.begin > 0);
            if let (Some(first), Some(thousandth)) = (whole.filter(|_| timeslice < period), begins) {
                prop_assert_eq!(first.begin % period, period / 1000 * thousandth);
            }
        }

        #[test]
        fn whatever_moves_them_windows_are_in_order_and_keep_the_share(
            exponent in 3.0f64..12.556, part in 1u64..=1000, thousandth in proptest::option::of(0u64..1000),
            start_jitter in 0.0f64..=1.0, start in 0u64..5, contended in 1u64..20, pauses: bool, seed: u64,
        ) {
            let period = (10f64.powf(exponent) as u64).clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
            let timeslice = (period / 1000 * part).max(1);
            let (begin, end) = (start * period, (start + contended) * period);
            let schedule = Schedule::Slices {
                timeslice, period, phase: thousandth.map(|thousandth| period / 1000 * thousandth),
                start_jitter, length_jitter: 0.0, seed, start: begin, stop: Some(end),
                alternate: pauses.then_some(2 * period),
            };
            schedule.check().unwrap();
            let windows = schedule.windows(ORIGIN, ORIGIN + end + period);
            prop_assert!(windows.iter().all(|window| window.begin < window.end && window.end <= end + period));
            prop_assert!(windows.windows(2).all(|pair| pair[0].end <= pair[1].begin));
            prop_assert_eq!(time_within(&windows, 0, begin), begin);
            prop_assert_eq!(time_within(&windows, end, end + period), period);
            let stretch = if pauses { 2 * period } else { contended * period };
            let mut at = begin;
            while at < end {
                let until = (at + stretch).min(end);
                // At either end a slice may have been moved into the stretch, or out of it.
                let (got, due) = (time_within(&windows, at, until), (until - at) as f64 / period as f64 * timeslice as f64);
                prop_assert!((got as f64 - due).abs() <= 2.0 * timeslice as f64, "{} of {}", got, due);
                at = until;
                if pauses {
                    let until = (at + stretch).min(end);
                    prop_assert_eq!(time_within(&windows, at, until), until - at);
                    at = until;
                }
            }
        }

        #[test]
        fn times_beyond_all_reason_wrap_around_nothing(
            timeslice in 1u64.., period: u64, phase: Option<u64>, start_jitter in 0.0f64..=1.0,
            length_jitter in 0.0f64..0.999, seed: u64, start: u64, stop: Option<u64>, alternate: Option<u64>,
        ) {
            let period = period % LONGEST_PERIOD + SHORTEST_PERIOD;
            let timeslice = timeslice % period + 1;
            let schedule =
                Schedule::Slices { timeslice, period, phase, start_jitter, length_jitter, seed, start, stop, alternate };
            let windows = schedule.windows(ORIGIN, ORIGIN + 20 * period);
            prop_assert!(windows.iter().all(|window| window.begin < window.end && window.end <= 20 * period));
            prop_assert!(windows.windows(2).all(|pair| pair[0].end <= pair[1].begin));
        }
    }
}
