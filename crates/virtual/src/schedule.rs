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
    /// `timeslice` out of every `period`. The slice begins somewhere in the first `jitter` part of what the period has
    /// to spare. `phase`: when the first period begins, counted from `start`; none: drawn. Before `start` and from
    /// `stop` on the CPU is there. `alternate`: so it is for that long after every time of that length with slices.
    Slices {
        timeslice: u64,
        period: u64,
        phase: Option<u64>,
        jitter: f64,
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
            Self::Slices { timeslice, period, jitter, alternate, .. } => {
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
                if !(0.0..=1.0).contains(jitter) {
                    return Err(format!("contention.jitter: {jitter} is not between 0 and 1"));
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

struct Slices {
    timeslice: u64,
    period: u64,
    jitter: f64,
    random: Pcg64Mcg,
    /// When the next period begins.
    at: u64,
    /// What came before is nobody's.
    from: u64,
    /// When the CPU is there for good.
    stop: u64,
    alternate: Option<u64>,
    /// When it is there for a while.
    pause: u64,
}

impl Slices {
    /// The last one has no end.
    fn next(&mut self) -> Window {
        let spare = (self.period - self.timeslice) as f64 * self.jitter;
        let drawn = self.at.saturating_add((spare * self.random.random::<f64>()) as u64);
        self.at = self.at.saturating_add(self.period);
        let (mut begin, mut end) = (drawn.max(self.from), drawn.saturating_add(self.timeslice));
        if let Some(time) = self.alternate.filter(|_| end >= self.pause) {
            begin = begin.min(self.pause);
            end = self.pause.saturating_add(time);
            // The first period afterwards is under way, as one is when a run begins.
            self.from = end;
            self.at = end.saturating_sub(self.random.random_range(0..self.period));
            self.pause = end.saturating_add(time);
        }
        match end < self.stop {
            true => Window { begin, end },
            false => Window { begin: begin.min(self.stop), end: NEVER },
        }
    }
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
            Schedule::Slices { timeslice, period, phase, jitter, seed, start, stop, alternate } => {
                let from = origin.saturating_add(*start);
                let stop = stop.map_or(NEVER, |stop| origin.saturating_add(stop));
                upcoming.push_back(Window { begin: 0, end: from });
                let mut random = Pcg64Mcg::seed_from_u64(*seed);
                let drawn = random.random_range(0..*period);
                let phase = phase.unwrap_or(drawn) % period;
                // Of the period that is under way when the run begins, only the rest is seen.
                let at = from.saturating_add(phase) - if phase > 0 { *period } else { 0 };
                let (timeslice, period, jitter, alternate) = (*timeslice, *period, *jitter, *alternate);
                let pause = alternate.map_or(NEVER, |time| from.saturating_add(time));
                let slices = Slices { timeslice, period, jitter, random, at, from, stop, alternate, pause };
                Source::Slices(Box::new(slices))
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
                            *from = self.origin + off + length;
                            Window { begin, end: self.origin + off }
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

    fn slices(phase: Option<u64>, jitter: f64) -> Windows {
        let schedule = Schedule::Slices {
            timeslice: 10 * MS,
            period: 40 * MS,
            phase,
            jitter,
            seed: 7,
            start: 0,
            stop: None,
            alternate: None,
        };
        Windows::new(&schedule, ORIGIN, NEVER)
    }

    #[test]
    fn before_its_start_and_from_its_stop_on_the_cpu_is_there() {
        let (start, stop) = (100 * MS, Some(200 * MS));
        let schedule = Schedule::Slices {
            timeslice: 10 * MS,
            period: 40 * MS,
            phase: Some(0),
            jitter: 0.0,
            seed: 7,
            start,
            stop,
            alternate: None,
        };
        let windows = schedule.windows(ORIGIN, ORIGIN + 300 * MS);
        let seen: Vec<_> = windows.iter().map(|window| (window.begin / MS, window.end / MS)).collect();
        assert_eq!(seen, [(0, 100), (100, 110), (140, 150), (180, 190), (200, 300)]);
    }

    #[test]
    fn contention_that_alternates_pauses_for_as_long_as_it_lasts() {
        let (timeslice, period, alternate) = (10 * MS, 40 * MS, Some(100 * MS));
        let (phase, jitter, start, stop) = (Some(0), 0.0, 100 * MS, Some(600 * MS));
        let schedule = Schedule::Slices { timeslice, period, phase, jitter, seed: 7, start, stop, alternate };
        let windows = schedule.windows(ORIGIN, ORIGIN + 1_000 * MS);
        let off = |from: u64, to: u64| -> u64 {
            let on = windows.iter().map(|w| w.end.min(to * MS).saturating_sub(w.begin.max(from * MS)));
            (to - from) - on.sum::<u64>() / MS
        };
        assert_eq!(off(100, 200), 70); // slices at 100, 140 and 180 ms
        assert_eq!([off(0, 100), off(200, 300), off(400, 500), off(600, 1_000)], [0, 0, 0, 0]);
        // Later ones begin within a period: two or three slices, or parts of them.
        assert!((60..=80).contains(&off(300, 400)) && (60..=80).contains(&off(500, 600)), "{windows:?}");
        assert!(windows.windows(2).all(|pair| pair[0].end <= pair[1].begin));
    }

    #[test]
    fn an_event_in_an_off_time_waits_for_the_next_slice() {
        let mut windows = slices(Some(0), 0.0);
        assert_eq!(windows.first_from(ORIGIN + 3 * MS), ORIGIN + 3 * MS);
        assert_eq!(windows.first_from(ORIGIN + 10 * MS), ORIGIN + 40 * MS);
        assert_eq!(windows.first_from(ORIGIN + 47 * MS), ORIGIN + 47 * MS);
        assert_eq!(windows.first_from(ORIGIN + 79 * MS), ORIGIN + 80 * MS);
    }

    #[test]
    fn a_phase_begins_in_the_middle_of_a_period() {
        let mut windows = slices(Some(5 * MS), 0.0);
        // The period that began 35 ms before the run had its slice then.
        assert_eq!(windows.first_from(ORIGIN), ORIGIN + 5 * MS);
        let mut windows = slices(Some(35 * MS), 0.0);
        assert_eq!(windows.first_from(ORIGIN), ORIGIN);
        assert_eq!(windows.first_from(ORIGIN + 5 * MS), ORIGIN + 35 * MS);
    }

    #[test]
    fn before_the_run_the_cpu_is_free() {
        let mut windows = slices(Some(5 * MS), 0.0);
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

    proptest! {
        #[test]
        fn every_period_has_its_whole_slice(slice in 1u64..1_000_000, off in 0u64..4_000_000, jitter in 0.0f64..=1.0,
                                            seed: u64) {
            let phase = Some(0);
            let schedule = Schedule::Slices { timeslice: slice, period: slice + off, phase, jitter, seed, start: 0, stop: None, alternate: None };
            let mut windows = Windows::new(&schedule, ORIGIN, NEVER);
            let (mut at, mut got) = (ORIGIN, 0);
            let end = ORIGIN + 50 * (slice + off);
            let mut written = vec![Window { begin: 0, end: 0 }; 60];
            let count = windows.write(at, &mut written);
            for window in &written[..count] {
                prop_assert!(window.begin >= at || window.begin <= ORIGIN);
                prop_assert!(window.end > window.begin);
                got += window.end.min(end).saturating_sub(window.begin.max(ORIGIN));
                at = window.end;
                if at >= end { break; }
            }
            prop_assert_eq!(got, 50 * slice);
        }
    }
}
