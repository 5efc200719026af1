//! What the schedulers of a Linux host give a thread that is always busy.
//!
//! A thread that runs all the time is charged, and stopped, at the ticks of its CPU only. It therefore runs longer than
//! it may, and is charged for that in its next turn. Where the ticks fall within the periods is drawn once: neither
//! moves.
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::schedule::{Ticked, FAIR_SLICE};
use crate::time_slice::{on_clock, TimeSlice};

/// The turns of a thread under one scheduler, one after the other.
#[derive(Debug)]
pub(crate) struct Turns {
    scheduler: Scheduler,
    given: Ticked,
    /// A tick; the others are multiples of `given.tick` away.
    tick: i128,
    /// When the thread may run again.
    at: i128,
    /// When the period began of which the thread has its budget.
    period_began: i128,
    /// CPU time that the thread has left, ns; negative where it has overrun.
    budget: i128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheduler {
    /// SCHED_DEADLINE with a runtime, which is also the relative deadline, in every period (kernel/sched/deadline.c).
    Deadline,
    /// Bandwidth control of a cgroup, cpu.max without burst (kernel/sched/fair.c).
    Quota,
    /// The fair scheduler, beside so many other busy threads on the same CPU (kernel/sched/fair.c).
    Fair { others: u32 },
}

impl Turns {
    /// Periods begin `shift` later than the seed says; ticks do not move, since a host's CPUs have them together.
    pub fn new(scheduler: Scheduler, given: Ticked, origin: u64, shift: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(given.seed);
        let origin = i128::from(origin);
        // A period is under way when the schedule begins.
        let shift = i128::from(shift % given.period);
        let before = i128::from(random.random_range(0..given.period)) - shift;
        let at = origin - before.rem_euclid(i128::from(given.period));
        let tick = origin - i128::from(random.random_range(0..given.tick));
        Self { scheduler, given, tick, at, period_began: at - i128::from(given.period), budget: 0 }
    }

    /// Returns the next turn.
    pub fn next_turn(&mut self) -> TimeSlice {
        let begin = self.at;
        let mut end = match self.scheduler {
            Scheduler::Deadline => self.under_deadline(),
            Scheduler::Quota => self.under_quota(),
            Scheduler::Fair { others } => self.beside(others),
        };
        end = end.max(begin + 1);
        TimeSlice { begin: on_clock(begin), end: on_clock(end) }
    }

    /// replenish_dl_entity() adds whole runtimes until there is some to use, and moves the period as often; the timer for
    /// the next replenishment is set when a tick finds the runtime used up (update_curr_dl_se, start_dl_timer).
    fn under_deadline(&mut self) -> i128 {
        let (runtime, period) = (i128::from(self.given.timeslice), i128::from(self.given.period));
        let mut now = self.at;
        loop {
            while self.budget <= 0 {
                self.budget += runtime;
                self.period_began += period;
            }
            if self.period_began + runtime < now {
                (self.period_began, self.budget) = (now, runtime);
            }
            let end = self.tick_at_or_after(now + self.budget);
            self.budget -= end - now;
            self.at = self.period_began + period;
            if self.at > end {
                return end;
            }
            // The next period has begun already: it is replenished at once.
            now = end;
        }
    }

    /// Periods begin on time. A debt is paid from the quotas of the next ones (distribute_cfs_runtime); what is left
    /// over is lost, since the thread is busy until it has none left.
    fn under_quota(&mut self) -> i128 {
        let (quota, period) = (i128::from(self.given.timeslice), i128::from(self.given.period));
        let mut now = self.at;
        self.period_began = now;
        self.budget += quota;
        loop {
            let end = self.tick_at_or_after(now + self.budget);
            let next = self.period_began + period;
            if end < next {
                self.budget -= end - now;
                break self.wait_for_quota(end, quota, period);
            }
            self.budget += quota - (next - now);
            (now, self.period_began) = (next, next);
        }
    }

    fn wait_for_quota(&mut self, end: i128, quota: i128, period: i128) -> i128 {
        self.at = self.period_began + period;
        while self.budget + quota <= 0 {
            self.budget += quota;
            self.at += period;
        }
        end
    }

    /// Each thread runs until the first tick at which it has had a slice, and then the others do.
    fn beside(&mut self, others: u32) -> i128 {
        let (tick, slice) = (i128::from(self.given.tick), i128::from(FAIR_SLICE));
        let turn = (slice + tick - 1) / tick * tick;
        let begin = self.tick_at_or_after(self.at);
        self.at = begin + turn * (1 + i128::from(others));
        begin + turn
    }

    fn tick_at_or_after(&self, time: i128) -> i128 {
        let tick = i128::from(self.given.tick);
        time + (self.tick - time).rem_euclid(tick)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn given(timeslice: u64, period: u64, tick: u64, seed: u64) -> Ticked {
        Ticked { timeslice, period, tick, seed }
    }

    fn turns(scheduler: Scheduler, given: Ticked, count: usize) -> Vec<TimeSlice> {
        let mut turns = Turns::new(scheduler, given, 10_000 * MS, 0);
        (0..count).map(|_| turns.next_turn()).collect()
    }

    fn lengths(turns: &[TimeSlice]) -> Vec<u64> {
        turns.iter().map(|turn| turn.end - turn.begin).collect()
    }

    fn share(turns: &[TimeSlice]) -> f64 {
        let busy: u64 = lengths(turns).iter().sum();
        busy as f64 / (turns[turns.len() - 1].end - turns[0].begin) as f64
    }

    #[test]
    fn a_deadline_turn_ends_at_a_tick_and_its_overrun_is_paid_back() {
        // 10 ms of 40 at a tick of 4: the tick falls alike in every period, so turns of 8 to 12 ms take turns.
        let turns = turns(Scheduler::Deadline, given(10 * MS, 40 * MS, 4 * MS, 3), 100);
        let first_tick = turns[1].end % (4 * MS);
        assert!(turns[1..].iter().all(|turn| turn.end % (4 * MS) == first_tick));
        assert!(lengths(&turns[1..]).iter().all(|length| (6 * MS..=14 * MS).contains(length)));
        assert!(turns.windows(2).all(|two| two[1].begin - two[0].begin == 40 * MS));
    }

    #[test]
    fn turns_shorter_than_a_tick_become_rarer_instead() {
        // 1 ms of 4 with a tick of 4: a turn lasts until the next tick, and then as many periods pass without one.
        let turns = turns(Scheduler::Deadline, given(MS, 4 * MS, 4 * MS, 1), 1_000);
        assert!(lengths(&turns).iter().all(|length| *length > 2 * MS), "{:?}", &lengths(&turns)[..8]);
        assert!((share(&turns) - 0.25).abs() < 0.01, "{}", share(&turns));
    }

    #[test]
    fn beside_others_a_thread_has_one_turn_of_whole_ticks_in_every_round() {
        let turns = turns(Scheduler::Fair { others: 3 }, given(10 * MS, 40 * MS, 4 * MS, 1), 10);
        assert!(lengths(&turns[1..]).iter().all(|length| *length == 4 * MS));
        assert!(turns[1..].windows(2).all(|two| two[1].begin - two[0].begin == 16 * MS));
    }

    proptest! {
        #[test]
        fn a_thread_gets_its_share_in_the_long_run(
            slice in 500_000_u64..20_000_000, percent in 5_u64..95, tick in prop::sample::select(vec![1_u64, 4, 10]),
            seed: u64, is_quota: bool,
        ) {
            let period = slice * 100 / percent;
            let scheduler = if is_quota { Scheduler::Quota } else { Scheduler::Deadline };
            let turns = turns(scheduler, given(slice, period, tick * MS, seed), 4_000);
            prop_assert!(turns.windows(2).all(|two| two[0].begin < two[0].end && two[0].end <= two[1].begin));
            let got = share(&turns);
            prop_assert!((got / (percent as f64 / 100.0) - 1.0).abs() < 0.02, "{} of {}", got, percent);
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_turns() {
        let schedule = |seed| Schedule::Deadline(given(10 * MS, 25 * MS, 4 * MS, seed));
        let slices = |seed| schedule(seed).time_slices(1_000 * MS, 3_000 * MS);
        assert_eq!(slices(5), slices(5));
        assert_ne!(slices(5), slices(6));
    }
}
