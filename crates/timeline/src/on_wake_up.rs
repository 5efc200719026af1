//! Timeslices that begin when the CPU is wanted.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::schedule::Woken;
use crate::time_slice::TimeSlice;

/// The windows of a thread under SCHED_DEADLINE, with runtime = deadline < period, that sleeps when it has nothing to do
/// (kernel/sched/deadline.c). It may run for a runtime from its wake-up on, by the wall clock, whatever it sleeps in
/// between (update_dl_revised_wakeup). If it wants to run after that and before the end of its period, it waits until
/// then (dl_check_constrained_dl); if it wakes up later, a new period begins with it (replenish_dl_new_period).
#[derive(Debug)]
pub(crate) struct OnWakeUp {
    given: Woken,
    current: TimeSlice,
    /// When the period of the current window began.
    period_began: u64,
    past: Vec<TimeSlice>,
}

impl OnWakeUp {
    pub fn new(given: Woken, origin: u64) -> Self {
        // A period is under way when the schedule begins. Before, the CPU is free.
        let before = Pcg64Mcg::seed_from_u64(given.seed).random_range(0..given.period);
        let period_began = origin.saturating_sub(before);
        let current = TimeSlice { begin: 0, end: period_began.saturating_add(given.timeslice) };
        Self { given, current, period_began, past: Vec::new() }
    }

    pub fn first_from(&self, at: u64) -> u64 {
        if at < self.current.end {
            at
        } else {
            at.max(self.next_period())
        }
    }

    /// Returns the windows that have begun, from `origin` to `end`, on the clock of `origin`.
    pub fn begun(&self, origin: u64, end: u64) -> Vec<TimeSlice> {
        let all = self.past.iter().chain([&self.current]).filter(|slice| slice.end > origin && slice.begin < end);
        all.map(|slice| TimeSlice { begin: slice.begin.max(origin) - origin, end: slice.end.min(end) - origin })
            .collect()
    }

    fn next_period(&self) -> u64 {
        self.period_began.saturating_add(self.given.period)
    }

    pub fn wake_up(&mut self, at: u64) -> u64 {
        if at >= self.current.end {
            let begin = at.max(self.next_period());
            self.past.push(self.current);
            self.period_began = begin;
            self.current = TimeSlice { begin, end: begin.saturating_add(self.given.timeslice) };
        }
        self.next_period()
    }

    /// Returns the window under way and, for what has to wait for it, the next one. After the end the CPU is free.
    pub fn known(&self, end: u64) -> impl Iterator<Item = TimeSlice> {
        let next = self.next_period();
        let waiting = TimeSlice { begin: next.min(end), end: next.saturating_add(self.given.timeslice) };
        [self.current, waiting].into_iter()
    }
}
