//! Whether a real-time thread may keep a CPU busy for the off-times of a schedule. Pure but for the sysctls.
use brobust_timeline::{Schedule, Slices};

use crate::error::{ContentionError, Result};
use crate::host::RealTimeBudget;

/// Refuses a schedule that the host's limits for real-time threads would cut short, before anything is started.
pub(crate) fn check(schedule: &Schedule) -> Result<()> {
    check_against(schedule, &RealTimeBudget::read())
}

fn check_against(schedule: &Schedule, budget: &RealTimeBudget) -> Result<()> {
    schedule.check()?;
    let RealTimeBudget { runtime_ns: allowed_ns, period_ns } = *budget;
    let busy_ns = match schedule {
        Schedule::Always => 0,
        Schedule::Slices(slices) => max_off_time_in(slices, period_ns),
        // Schedulers of the host, which the burner imitates: how long they are away in a row has no simple bound.
        Schedule::Deadline(_)
        | Schedule::OnWakeUp(_)
        | Schedule::Late(_)
        | Schedule::Quota(_)
        | Schedule::Fair(_)
        | Schedule::AnyOf(_) => period_ns,
        Schedule::Replay { offtimes } => max_recorded_off_time_in(offtimes, period_ns),
    };
    match busy_ns {
        0 => Err(ContentionError::NothingTaken),
        busy_ns if busy_ns > allowed_ns => Err(ContentionError::RealTimeThrottled { busy_ns, allowed_ns, period_ns }),
        _ => Ok(()),
    }
}

/// Returns the largest off-time that any stretch of `span_ns` can hold.
///
/// Real-time throttling (kernel/sched/rt.c, sched_rt_runtime_exceeded; since 6.12 the fair server) looks at one stretch of
/// a second at a time: an off-time of a second is cut short even if the next ten seconds are free.
fn max_off_time_in(slices: &Slices, span_ns: u64) -> u64 {
    let timeslice_ns = (slices.timeslice as f64 * (1.0 - slices.length_jitter)) as u64;
    let off_ns = (slices.off_time() as f64 * (1.0 + slices.length_jitter)) as u64;
    let period_ns = timeslice_ns.saturating_add(off_ns).max(1);
    let (whole, rest) = (span_ns / period_ns, span_ns % period_ns);
    // One timeslice at its earliest, and all that follow at their latest: the off-time between them is longer by this.
    let later_ns = (off_ns as f64 * slices.start_jitter) as u64;
    (whole * off_ns + rest.min(off_ns)).saturating_add(later_ns).min(span_ns)
}

/// Returns the same for recorded off-times, which are in order and do not overlap: (begin, length).
fn max_recorded_off_time_in(offtimes: &[(u64, u64)], span_ns: u64) -> u64 {
    let (mut max_ns, mut next, mut whole_ns) = (0, 0, 0);
    // The stretch with the largest off-time begins with some off-time.
    for (number, &(begin_ns, length_ns)) in offtimes.iter().enumerate() {
        let until_ns = begin_ns.saturating_add(span_ns);
        while let Some((_, length_ns)) = offtimes.get(next).filter(|off| off.0.saturating_add(off.1) <= until_ns) {
            whole_ns += length_ns;
            next += 1;
        }
        let cut_off_ns = offtimes.get(next).map_or(0, |(begin_ns, _)| until_ns.saturating_sub(*begin_ns));
        max_ns = max_ns.max(whole_ns + cut_off_ns);
        // An off-time that is longer than the span is never counted as a whole one.
        match next > number {
            true => whole_ns -= length_ns,
            false => next = number + 1,
        }
    }
    max_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const DEFAULT_BUDGET: RealTimeBudget = RealTimeBudget { runtime_ns: 950 * MS, period_ns: 1_000 * MS };

    fn plain(timeslice: u64, off: u64) -> Slices {
        Slices::plain(timeslice, timeslice + off)
    }

    fn check(slices: Slices) -> Result<()> {
        check_against(&Schedule::Slices(slices), &DEFAULT_BUDGET)
    }

    fn is_allowed(timeslice_ms: u64, off_ms: u64) -> bool {
        check(plain(timeslice_ms * MS, off_ms * MS)).is_ok()
    }

    #[test]
    fn an_off_fraction_above_the_real_time_budget_is_refused() {
        assert!(is_allowed(10, 30));
        assert!(is_allowed(6, 94));
        assert!(!is_allowed(4, 96));
    }

    #[test]
    fn a_single_off_time_above_the_budget_is_refused_whatever_the_share() {
        assert!(is_allowed(9_000, 900));
        assert!(!is_allowed(9_000, 1_000));
    }

    #[test]
    fn off_time_that_a_late_start_lengthens_counts_against_the_budget() {
        let late = |start_jitter| check(Slices { start_jitter, ..plain(100 * MS, 800 * MS) });
        late(0.0).unwrap();
        assert!(matches!(late(0.5), Err(ContentionError::RealTimeThrottled { .. })));
    }

    #[test]
    fn the_error_names_the_sysctl() {
        let error = check(plain(MS, 99 * MS)).unwrap_err();
        assert!(error.to_string().contains("kernel.sched_rt_runtime_us"));
    }

    fn check_recorded(offtimes: &[(u64, u64)], budget: &RealTimeBudget) -> Result<()> {
        let offtimes = offtimes.iter().map(|(begin, length)| (begin * MS, length * MS)).collect();
        check_against(&Schedule::Replay { offtimes }, budget)
    }

    #[test]
    fn recorded_off_times_are_held_to_order_and_budget() {
        let check = |offtimes: &[(u64, u64)]| check_recorded(offtimes, &DEFAULT_BUDGET);
        check(&[(0, 30), (40, 30), (5_000, 900)]).unwrap();
        assert!(matches!(check(&[]), Err(ContentionError::NothingTaken)));
        assert!(matches!(check(&[(0, 30), (20, 20)]), Err(ContentionError::Schedule(_))));
        assert!(matches!(check(&[(0, 951)]), Err(ContentionError::RealTimeThrottled { .. })));
        // Longer than the budget's own period, and an hour.
        assert!(matches!(check(&[(0, 1_001)]), Err(ContentionError::RealTimeThrottled { .. })));
        assert!(matches!(check(&[(1, 3_600_000)]), Err(ContentionError::RealTimeThrottled { .. })));
        // 480 of 490 ms again and again: 960 of a second, though each is short.
        let often: Vec<_> = (0..10).map(|n| (n * 490, 480)).collect();
        assert!(matches!(check(&often), Err(ContentionError::RealTimeThrottled { .. })));
    }

    #[test]
    fn a_budget_of_the_whole_period_admits_any_recording() {
        let whole = RealTimeBudget { runtime_ns: 1_000 * MS, period_ns: 1_000 * MS };
        check_recorded(&[(0, 3_000), (3_500, 100), (4_000, 5_000), (9_000, 100)], &whole).unwrap();
    }
}
