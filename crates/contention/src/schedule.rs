//! When a burner takes the CPU: an endless sequence of off-windows on CLOCK_MONOTONIC. Pure arithmetic.
use crate::error::{ContentionError, Result};
use crate::host::RealTimeBudget;

/// The period in which a thread gets `timeslice_ns`.
pub fn period_ns(timeslice_ns: u64, share: f64) -> Result<u64> {
    if timeslice_ns == 0 {
        return Err(ContentionError::ZeroDuration { what: "timeslice" });
    }
    // Not `share <= 0.0 || ...`: that would let NaN pass.
    if !(share > 0.0 && share < 1.0) {
        return Err(ContentionError::Share { share });
    }
    Ok((timeslice_ns as f64 / share).round() as u64)
}

/// `on_ns` with the CPU, then `off_ns` without, again and again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    pub on_ns: u64,
    pub off_ns: u64,
    /// Time before the first on-window, in which the CPU is free too.
    pub phase_ns: u64,
    /// The on-window begins somewhere in the first `start_jitter` part of its period's off-time; 0: at once.
    pub start_jitter: f64,
    /// Each length is drawn evenly from `1 - length_jitter` to `1 + length_jitter` of what was asked; 0: none is drawn.
    pub length_jitter: f64,
    /// The same seed draws the same windows.
    pub seed: u64,
    /// CLOCK_MONOTONIC time of the beginning, to let several burners go together; None for now.
    pub start_ns: Option<u64>,
}

impl Schedule {
    /// The plain schedule: no phase, no jitter, from now on.
    pub fn new(on_ns: u64, off_ns: u64) -> Self {
        Self { on_ns, off_ns, phase_ns: 0, start_jitter: 0.0, length_jitter: 0.0, seed: 0, start_ns: None }
    }

    /// The plain schedule that leaves the CPU free for `timeslice_ns` out of every `timeslice_ns / share`.
    pub fn with_share(timeslice_ns: u64, share: f64) -> Result<Self> {
        let period_ns = period_ns(timeslice_ns, share)?;
        Ok(Self::new(timeslice_ns, period_ns - timeslice_ns))
    }

    /// Refuses what cannot be kept, before anything is started.
    pub fn check(&self) -> Result<()> {
        self.check_against(&RealTimeBudget::read())
    }

    fn check_against(&self, budget: &RealTimeBudget) -> Result<()> {
        if self.on_ns == 0 {
            return Err(ContentionError::ZeroDuration { what: "on time" });
        }
        if self.off_ns == 0 {
            return Err(ContentionError::ZeroDuration { what: "off time" });
        }
        for (field, given) in [("start_jitter", self.start_jitter), ("length_jitter", self.length_jitter)] {
            if !(0.0..1.0).contains(&given) {
                return Err(ContentionError::Jitter { field, given });
            }
        }
        let busy_ns = self.most_off_time_in(budget.period_ns);
        let RealTimeBudget { runtime_ns: allowed_ns, period_ns } = *budget;
        match busy_ns > allowed_ns {
            true => Err(ContentionError::RealTimeThrottled { busy_ns, allowed_ns, period_ns }),
            false => Ok(()),
        }
    }

    /// The most off-time that any stretch of `span_ns` can hold.
    ///
    /// Real-time throttling (kernel/sched/rt.c, sched_rt_runtime_exceeded; since 6.12 the fair server) looks at one
    /// stretch of a second at a time: an off-window of a second is cut short even if the next ten seconds are free.
    fn most_off_time_in(&self, span_ns: u64) -> u64 {
        let on_ns = (self.on_ns as f64 * (1.0 - self.length_jitter)) as u64;
        let off_ns = (self.off_ns as f64 * (1.0 + self.length_jitter)) as u64;
        let period_ns = on_ns.saturating_add(off_ns).max(1);
        let (whole, rest) = (span_ns / period_ns, span_ns % period_ns);
        // An on-window at its earliest, and all that follow at their latest: the off-time between them is so much longer.
        let later_ns = (off_ns as f64 * self.start_jitter) as u64;
        (whole * off_ns + rest.min(off_ns)).saturating_add(later_ns).min(span_ns)
    }

    /// The off-windows, one after the other, beginning at `start_ns` (or `now_ns`); the CPU is free until the end of the
    /// first on-window. Periods that have passed are left out, except with jitter, where only drawing them tells when
    /// they were.
    pub fn windows(&self, now_ns: u64) -> Windows {
        let start_ns = self.start_ns.unwrap_or(now_ns);
        let first_ns = start_ns.saturating_add(self.phase_ns);
        let passed_ns = now_ns.saturating_sub(first_ns);
        let skipped_ns = match self.start_jitter == 0.0 && self.length_jitter == 0.0 {
            true => passed_ns - passed_ns % self.on_ns.saturating_add(self.off_ns).max(1),
            false => 0,
        };
        let begin_ns = first_ns.saturating_add(skipped_ns);
        let mut windows =
            Windows { schedule: *self, on_ends_ns: begin_ns, period_ends_ns: begin_ns, random: self.seed };
        windows.next_period();
        windows
    }
}

/// The CPU is taken away from `begin_ns` until `end_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffWindow {
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Refuses recorded off-windows that cannot be had: out of order, or more than real-time threads may use.
pub fn check_recorded(windows: &[OffWindow]) -> Result<()> {
    check_recorded_against(windows, &RealTimeBudget::read())
}

fn check_recorded_against(windows: &[OffWindow], budget: &RealTimeBudget) -> Result<()> {
    if windows.is_empty() {
        return Err(ContentionError::ZeroDuration { what: "off time" });
    }
    if windows.iter().any(|w| w.end_ns < w.begin_ns) || windows.windows(2).any(|two| two[1].begin_ns < two[0].end_ns) {
        return Err(ContentionError::Overlap);
    }
    let allowed_ns = budget.runtime_ns;
    // The most off-time in one period of the budget begins with some off-window.
    let (mut last, mut busy_ns) = (0, 0);
    for (number, first) in windows.iter().enumerate() {
        let until_ns = first.begin_ns.saturating_add(budget.period_ns);
        while let Some(window) = windows.get(last).filter(|window| window.end_ns <= until_ns) {
            busy_ns += window.end_ns - window.begin_ns;
            last += 1;
        }
        let cut_off_ns = windows.get(last).map_or(0, |window| until_ns.saturating_sub(window.begin_ns));
        if busy_ns + cut_off_ns > allowed_ns {
            let (busy_ns, period_ns) = (busy_ns + cut_off_ns, budget.period_ns);
            return Err(ContentionError::RealTimeThrottled { busy_ns, allowed_ns, period_ns });
        }
        // One that is longer than the budget's period was not counted, and is let pass where all of a period is allowed.
        match last > number {
            true => busy_ns -= first.end_ns - first.begin_ns,
            false => last = number + 1,
        }
    }
    Ok(())
}

/// Iterator over the off-windows of a schedule.
#[derive(Debug, Clone)]
pub struct Windows {
    schedule: Schedule,
    /// Of the last period drawn. Each begins where the one before ended, never at "now": errors do not add up.
    on_ends_ns: u64,
    period_ends_ns: u64,
    random: u64,
}

impl Windows {
    /// Goes on to the next period. Returns when its on-window begins.
    fn next_period(&mut self) -> u64 {
        let (on_ns, off_ns) = (self.drawn(self.schedule.on_ns), self.drawn(self.schedule.off_ns));
        let begin_ns = self.period_ends_ns.saturating_add(self.delay(off_ns));
        self.on_ends_ns = begin_ns.saturating_add(on_ns);
        self.period_ends_ns = self.period_ends_ns.saturating_add(on_ns).saturating_add(off_ns);
        begin_ns
    }

    fn drawn(&mut self, length_ns: u64) -> u64 {
        if self.schedule.length_jitter == 0.0 {
            return length_ns;
        }
        let factor = 1.0 + self.schedule.length_jitter * (2.0 * self.uniform() - 1.0);
        (length_ns as f64 * factor).round() as u64
    }

    fn delay(&mut self, off_ns: u64) -> u64 {
        if self.schedule.start_jitter == 0.0 {
            return 0;
        }
        (off_ns as f64 * self.schedule.start_jitter * self.uniform()) as u64
    }

    /// Evenly from 0 to 1: SplitMix64 (Steele, Lea, Flood 2014), enough for lengths and the same on every machine.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // The upper 53 bits: as many as a double holds exactly.
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Iterator for Windows {
    type Item = OffWindow;

    fn next(&mut self) -> Option<OffWindow> {
        let begin_ns = self.on_ends_ns;
        Some(OffWindow { begin_ns, end_ns: self.next_period() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DEFAULT_BUDGET: RealTimeBudget = RealTimeBudget { runtime_ns: 950 * MS, period_ns: 1_000 * MS };

    fn allowed(on_ms: u64, off_ms: u64) -> bool {
        Schedule::new(on_ms * MS, off_ms * MS).check_against(&DEFAULT_BUDGET).is_ok()
    }

    #[test]
    fn the_period_is_the_timeslice_over_the_share() {
        assert_eq!(period_ns(10 * MS, 0.25).unwrap(), 40 * MS);
        assert_eq!(period_ns(10 * MS, 0.7).unwrap(), 14_285_714);
    }

    #[test]
    fn windows_keep_to_the_absolute_period() {
        let schedule = Schedule { phase_ns: 5, start_ns: Some(1_000), ..Schedule::new(10, 30) };
        let windows: Vec<_> = schedule.windows(1_000).take(3).collect();
        let begins: Vec<_> = windows.iter().map(|w| w.begin_ns).collect();
        assert_eq!(begins, [1_015, 1_055, 1_095]);
        assert!(windows.iter().all(|w| w.end_ns - w.begin_ns == 30));
    }

    #[test]
    fn without_a_start_the_schedule_begins_now() {
        let first = Schedule::new(10, 30).windows(500).next().unwrap();
        assert_eq!(first.begin_ns, 510);
    }

    #[test]
    fn a_schedule_that_began_long_ago_is_joined_where_it_is_now() {
        let schedule = Schedule { start_ns: Some(0), ..Schedule::new(10, 30) };
        let first = schedule.windows(4_000_000_000_015).next().unwrap();
        assert_eq!(first.begin_ns, 4_000_000_000_010);
    }

    #[test]
    fn drawn_lengths_keep_the_mean_and_their_bounds_and_are_the_same_for_the_same_seed() {
        let schedule = Schedule { length_jitter: 0.2, seed: 7, start_ns: Some(0), ..Schedule::new(10 * MS, 30 * MS) };
        let windows: Vec<_> = schedule.windows(0).take(10_000).collect();
        let lengths: Vec<_> = windows.iter().map(|w| w.end_ns - w.begin_ns).collect();
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        assert!((mean / (30.0 * MS as f64) - 1.0).abs() < 0.01, "{mean}");
        assert!(lengths.iter().all(|l| (24 * MS..=36 * MS).contains(l)));
        assert!(schedule.windows(0).take(10_000).eq(windows));
    }

    #[test]
    fn drawn_starts_keep_the_lengths_and_stay_in_their_part_of_the_off_time() {
        let schedule = Schedule { start_jitter: 0.5, seed: 7, start_ns: Some(0), ..Schedule::new(10 * MS, 30 * MS) };
        let windows: Vec<_> = schedule.windows(0).take(10_000).collect();
        let ons = windows.windows(2).map(|two| two[1].begin_ns - two[0].end_ns);
        assert!(ons.into_iter().all(|on| on == 10 * MS));
        // Each on-window begins where an off-window ends: in the first 15 ms of its period of 40.
        let starts: Vec<_> = windows.iter().map(|window| window.end_ns % (40 * MS)).collect();
        assert!(starts.iter().all(|start| *start < 15 * MS));
        assert!(*starts.iter().max().unwrap() > 14 * MS && *starts.iter().min().unwrap() < MS);
        assert!(schedule.windows(0).take(10_000).eq(windows));
    }

    #[test]
    fn off_time_that_a_late_start_lengthens_counts_against_the_budget() {
        let late = |start_jitter| Schedule { start_jitter, ..Schedule::new(100 * MS, 800 * MS) };
        late(0.0).check_against(&DEFAULT_BUDGET).unwrap();
        assert!(matches!(late(0.5).check_against(&DEFAULT_BUDGET), Err(ContentionError::RealTimeThrottled { .. })));
    }

    #[test]
    fn an_off_fraction_above_the_real_time_budget_is_refused() {
        assert!(allowed(10, 30));
        assert!(allowed(6, 94));
        assert!(!allowed(4, 96));
    }

    #[test]
    fn a_single_off_window_above_the_budget_is_refused_whatever_the_share() {
        assert!(allowed(9_000, 900));
        assert!(!allowed(9_000, 1_000));
    }

    #[test]
    fn the_error_names_the_sysctl() {
        let error = Schedule::new(MS, 99 * MS).check_against(&DEFAULT_BUDGET).unwrap_err();
        assert!(error.to_string().contains("kernel.sched_rt_runtime_us"));
    }

    #[test]
    fn durations_beyond_all_reason_overflow_nothing() {
        let schedule = Schedule { phase_ns: u64::MAX, ..Schedule::new(u64::MAX, u64::MAX) };
        assert!(schedule.check_against(&DEFAULT_BUDGET).is_err());
        assert_eq!(schedule.windows(1).next().unwrap().end_ns, u64::MAX);
    }

    #[test]
    fn recorded_windows_are_held_to_order_and_budget() {
        let check = |windows: &[(u64, u64)]| {
            let window = |&(begin, end): &(u64, u64)| OffWindow { begin_ns: begin * MS, end_ns: end * MS };
            check_recorded_against(&windows.iter().map(window).collect::<Vec<_>>(), &DEFAULT_BUDGET)
        };
        check(&[(0, 30), (40, 70), (5_000, 5_900)]).unwrap();
        assert!(matches!(check(&[]), Err(ContentionError::ZeroDuration { .. })));
        assert!(matches!(check(&[(0, 30), (20, 40)]), Err(ContentionError::Overlap)));
        assert!(matches!(check(&[(10, 5)]), Err(ContentionError::Overlap)));
        assert!(matches!(check(&[(0, 951)]), Err(ContentionError::RealTimeThrottled { .. })));
        // Longer than the budget's own period, and an hour.
        assert!(matches!(check(&[(0, 1_001)]), Err(ContentionError::RealTimeThrottled { .. })));
        assert!(matches!(check(&[(1, 3_600_001)]), Err(ContentionError::RealTimeThrottled { .. })));
        // 480 of 490 ms again and again: 960 of a second, though each is short.
        let often: Vec<_> = (0..10).map(|n| (n * 490, n * 490 + 480)).collect();
        assert!(matches!(check(&often), Err(ContentionError::RealTimeThrottled { .. })));
    }

    #[test]
    fn a_budget_of_the_whole_period_admits_any_recording() {
        let whole = RealTimeBudget { runtime_ns: 1_000 * MS, period_ns: 1_000 * MS };
        let windows = [(0, 3_000), (3_500, 3_600), (4_000, 9_000), (9_000, 9_100)];
        let windows = windows.map(|(begin, end)| OffWindow { begin_ns: begin * MS, end_ns: end * MS });
        check_recorded_against(&windows, &whole).unwrap();
    }

    #[test]
    fn empty_windows_and_senseless_jitter_are_refused() {
        for schedule in [
            Schedule::new(0, MS),
            Schedule::new(MS, 0),
            Schedule { start_jitter: 1.0, ..Schedule::new(MS, MS) },
            Schedule { length_jitter: 1.0, ..Schedule::new(MS, MS) },
            Schedule { length_jitter: f64::NAN, ..Schedule::new(MS, MS) },
        ] {
            assert!(schedule.check_against(&DEFAULT_BUDGET).is_err());
        }
    }
}
