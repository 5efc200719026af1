//! Timeslices that are known in advance, drawn one after the other.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::any_of::Merged;
use crate::host_schedulers::{Scheduler, Turns};
use crate::schedule::{Schedule, Slices, Ticked, Woken};
use crate::time_slice::{on_clock, TimeSlice, NEVER};

/// Iterator over the timeslices of a schedule. No timeslice is empty; the last one has no end.
#[derive(Debug)]
pub(crate) enum Drawn {
    Ended,
    Always,
    /// `free_until`: the end of the timeslice before the first period, while that is to come.
    Slices {
        periods: Box<Periods>,
        free_until: Option<u64>,
    },
    Turns(Box<Turns>),
    AnyOf(Merged<Self>),
    Replay {
        offtimes: std::vec::IntoIter<(u64, u64)>,
        origin: u64,
        from: u64,
    },
}

impl Drawn {
    pub fn new(schedule: &Schedule, origin: u64) -> Self {
        Self::shifted(schedule, origin, 0)
    }

    /// Periods begin `shift` later than in the schedule. What has no periods does not move.
    pub fn shifted(schedule: &Schedule, origin: u64, shift: u64) -> Self {
        match schedule {
            // Who asks in advance is told what a thread would get that is always busy.
            Schedule::OnWakeUp(given) => {
                let Woken { timeslice, period, seed } = *given;
                Self::turns(Scheduler::Deadline, Ticked { timeslice, period, tick: 1_000, seed }, origin, shift)
            }
            // A thread that is always busy never wakes up.
            Schedule::Always | Schedule::Late(_) => Self::Always,
            Schedule::Slices(slices) => {
                let periods = Box::new(Periods::new(slices, origin, shift));
                let free_until = Some(on_clock(periods.from));
                Self::Slices { periods, free_until }
            }
            Schedule::Deadline(given) => Self::turns(Scheduler::Deadline, *given, origin, shift),
            Schedule::Quota(given) => Self::turns(Scheduler::Quota, *given, origin, shift),
            Schedule::Fair(given) => {
                let others = (given.period as f64 / given.timeslice as f64).round() as u32 - 1;
                Self::turns(Scheduler::Fair { others }, *given, origin, shift)
            }
            Schedule::AnyOf(several) => {
                let of_each = several.cpus.iter().map(|(each, shift)| Self::shifted(each, origin, *shift));
                Self::AnyOf(Merged::new(of_each))
            }
            Schedule::Replay { offtimes } => Self::Replay { offtimes: offtimes.clone().into_iter(), origin, from: 0 },
        }
    }

    fn turns(scheduler: Scheduler, given: Ticked, origin: u64, shift: u64) -> Self {
        Self::Turns(Box::new(Turns::new(scheduler, given, origin, shift)))
    }

    /// Returns the next timeslice, which is empty where all of it would lie before the schedule's start.
    fn draw(&mut self) -> Option<TimeSlice> {
        let slice = match self {
            Self::Ended => return None,
            Self::Always => TimeSlice { begin: 0, end: NEVER },
            Self::Slices { periods, free_until } => match free_until.take() {
                Some(end) => return Some(TimeSlice { begin: 0, end }),
                None => periods.next_slice(),
            },
            Self::Turns(turns) => turns.next_turn(),
            Self::AnyOf(merged) => merged.next()?,
            Self::Replay { offtimes, origin, from } => {
                let begin = *from;
                let end = offtimes.next().map_or(NEVER, |(off, length)| {
                    let end = origin.saturating_add(off);
                    *from = end.saturating_add(length);
                    end
                });
                TimeSlice { begin, end }
            }
        };
        if slice.end == NEVER {
            *self = Self::Ended;
        }
        Some(slice)
    }
}

impl Iterator for Drawn {
    type Item = TimeSlice;

    fn next(&mut self) -> Option<TimeSlice> {
        loop {
            let slice = self.draw()?;
            if slice.begin < slice.end {
                return Some(slice);
            }
        }
    }
}

/// The periods of [`Slices`], one after the other. Times are signed and wide enough for every sum of them: a period may
/// begin long before the clock does.
#[derive(Debug)]
pub(crate) struct Periods {
    slices: Slices,
    shift: u64,
    random: Pcg64Mcg,
    /// When the next period begins.
    at: i128,
    /// What comes before is not part of the schedule.
    from: i128,
    /// When the CPU is free for good.
    stop: i128,
    /// When the CPU is free for the next while.
    pause: i128,
}

impl Periods {
    fn new(slices: &Slices, origin: u64, shift: u64) -> Self {
        let after = |begin: i128, time: Option<u64>| time.map_or(NEVER.into(), |time| begin + i128::from(time));
        let from = i128::from(origin) + i128::from(slices.start);
        let mut random = Pcg64Mcg::seed_from_u64(slices.seed);
        let drawn = random.random_range(0..slices.period);
        let shift = shift % slices.period;
        let phase = later(slices.phase.unwrap_or(drawn) % slices.period, shift, slices.period);
        // Only the rest is seen of the period that is under way when the schedule starts.
        let at = from + i128::from(phase) - if phase > 0 { i128::from(slices.period) } else { 0 };
        let (stop, pause) = (after(origin.into(), slices.stop), after(from, slices.alternate));
        Self { slices: *slices, shift, random, at, from, stop, pause }
    }

    fn next_slice(&mut self) -> TimeSlice {
        let (timeslice, off) = self.lengths();
        let spare = off as f64 * self.slices.start_jitter;
        let drawn = self.at + i128::from((spare * self.random.random::<f64>()) as u64);
        self.at += i128::from(timeslice) + i128::from(off);
        let (mut begin, mut end) = (drawn.max(self.from), drawn + i128::from(timeslice));
        if let Some(time) = self.slices.alternate.filter(|_| end >= self.pause) {
            begin = begin.min(self.pause);
            end = self.pause + i128::from(time);
            // The first period afterwards is under way, as one is when a run begins.
            self.from = end;
            let period = self.slices.period;
            let before = later(self.random.random_range(0..period), period - self.shift, period);
            self.at = end - i128::from(before);
            self.pause = end + i128::from(time);
        }
        match end < self.stop {
            true => TimeSlice { begin: on_clock(begin), end: on_clock(end) },
            false => TimeSlice { begin: on_clock(begin.min(self.stop)), end: NEVER },
        }
    }

    /// Returns the lengths of the next timeslice and of its off-time. A period that is under way has the usual ones, so
    /// that it ends when it should.
    fn lengths(&mut self) -> (u64, u64) {
        let (timeslice, off) = (self.slices.timeslice, self.slices.off_time());
        if self.slices.length_jitter == 0.0 || self.at < self.from {
            return (timeslice, off);
        }
        let mut drawn = |length: u64| {
            let factor = 1.0 + self.slices.length_jitter * (2.0 * self.random.random::<f64>() - 1.0);
            (length as f64 * factor).round() as u64
        };
        (drawn(timeslice).max(1), drawn(off))
    }
}

/// Returns where in a period a time lies that is `shift` later.
fn later(time: u64, shift: u64, period: u64) -> u64 {
    ((u128::from(time) + u128::from(shift)) % u128::from(period)) as u64
}
