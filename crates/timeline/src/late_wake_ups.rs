//! A CPU that is there while it is used, and comes late to some of the wake-ups of a thread that has slept.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::schedule::Late;
use crate::time_slice::{TimeSlice, NEVER};

/// A thread that sleeps when it has nothing to do, on a host whose scheduler is late at some of its wake-ups: by an
/// off-time, and otherwise not at all. For a timeslice after each wake-up it is awake, so that what comes then is not late.
#[derive(Debug)]
pub(crate) struct LateWakeUps {
    given: Late,
    random: Pcg64Mcg,
    /// By how much the CPU will be late at the next wake-up. It is drawn before anybody asks, since who asks may then
    /// wake the thread up for something earlier.
    lateness: u64,
    woken_at: u64,
    awake_until: u64,
    /// Since when the CPU has not been late.
    free_from: u64,
    past: Vec<TimeSlice>,
}

impl LateWakeUps {
    pub fn new(given: Late, origin: u64) -> Self {
        let random = Pcg64Mcg::seed_from_u64(given.seed);
        let (lateness, past) = (0, Vec::new());
        let mut new = Self { given, random, lateness, woken_at: 0, awake_until: origin, free_from: 0, past };
        new.lateness = new.draw();
        new
    }

    fn draw(&mut self) -> u64 {
        let late = self.random.random::<f64>() < self.given.chance;
        if late {
            self.given.period - self.given.timeslice
        } else {
            0
        }
    }

    pub fn first_from(&self, at: u64) -> u64 {
        if at < self.awake_until {
            at
        } else {
            at.saturating_add(self.lateness)
        }
    }

    pub fn interrupted_from(&self, at: u64) -> u64 {
        if self.given.timers {
            at
        } else {
            self.first_from(at)
        }
    }

    /// The thread, which has wanted to run since `wanted`, does from `at` on. Returns until when it is known that it may.
    pub fn wake_up(&mut self, at: u64, wanted: u64) -> u64 {
        if at >= self.awake_until {
            if wanted < at {
                self.past.push(TimeSlice { begin: self.free_from, end: wanted });
                self.free_from = at;
            }
            self.woken_at = at;
            self.awake_until = at.saturating_add(self.given.timeslice);
            self.lateness = self.draw();
        }
        self.awake_until
    }

    /// Returns when the CPU was there or not wanted, from `origin` to `end`, on the clock of `origin`.
    pub fn begun(&self, origin: u64, end: u64) -> Vec<TimeSlice> {
        let current = TimeSlice { begin: self.free_from, end: NEVER };
        let all = self.past.iter().chain([&current]).filter(|slice| slice.end > origin && slice.begin < end);
        all.map(|slice| TimeSlice { begin: slice.begin.max(origin) - origin, end: slice.end.min(end) - origin })
            .filter(|slice| slice.begin < slice.end)
            .collect()
    }

    /// Returns the time until which the thread is awake: whether it may run after that depends on when it wakes up.
    pub fn known(&self) -> impl Iterator<Item = TimeSlice> {
        std::iter::once(TimeSlice { begin: self.woken_at, end: self.awake_until })
    }
}
