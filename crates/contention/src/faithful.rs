//! Whether a run got the contention that was asked for, and if not, why probably. Pure.
use crate::host;
use crate::summary::{Distribution, Summary};
use crate::text::{percent, time};

/// A share or timeslice that is off by more than this makes a run unfaithful.
const TOLERANCE: f64 = 0.1;

/// Slices are also off if a tenth of them is shorter, or a tenth longer, than asked by more than this. SCHED_DEADLINE at
/// two and a half ticks a slice alternates 8 with 12 ms or 6 with 10 and is right on average, since the next slice repays
/// the overrun of the last; a wider spread is another schedule than the one asked for, whatever its mean.
const SPREAD: f64 = 0.45;

/// A vCPU that slept this much hides much of what was taken from it. Measured: 13 % asleep moved share and
/// timeslice by up to 4 %, 25 % by up to 14 %.
const MUCH_SLEEP: f64 = 0.1;

/// More than this unknown, and the numbers may be off by as much as is allowed.
const MUCH_UNKNOWN: f64 = 0.05;

/// SCHED_DEADLINE slices end at ticks. From two ticks on the overrun is repaid by the next slice, so that slices are
/// right on average; shorter ones come out as long as the tick decides.
const TICKS_PER_SLICE: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Deadline,
    Burner,
    Quota,
}

/// The contention that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    pub driver: Driver,
    pub timeslice_ns: u64,
    pub share: f64,
}

/// What the host's scheduler can do, as far as it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    pub hz: Option<u32>,
    pub hrtick_dl: Option<bool>,
}

impl Ticks {
    pub fn of_this_host() -> Self {
        Self { hz: host::hz(), hrtick_dl: host::hrtick_dl() }
    }
}

/// None if the run was faithful; else one sentence with the numbers and the likely cause.
pub fn unfaithful(asked: &Asked, got: &Summary, ticks: Ticks) -> Option<String> {
    let Some(timeslice_ns) = got.effective_timeslice_ns() else {
        return Some(nothing_seen(got));
    };
    let share_is_off = is_off(got.effective_share, asked.share);
    // A quota is handed out in pieces and at ticks (kernel/sched/fair.c, sched_cfs_bandwidth_slice): it promises a share.
    let mean_is_off = asked.driver != Driver::Quota && is_off(timeslice_ns, asked.timeslice_ns as f64);
    // Of interest only where the mean looks right.
    let spread = got
        .window
        .filter(|window| asked.driver != Driver::Quota && !mean_is_off && is_spread(window, asked.timeslice_ns as f64));
    let timeslice_is_off = mean_is_off || spread.is_some();
    if !share_is_off && !timeslice_is_off && unknown_share(got) <= MUCH_UNKNOWN {
        return None;
    }
    Some(format!(
        "the vCPU had {} of the CPU in slices of {}{} instead of {} in slices of {}: {}",
        percent(got.effective_share),
        time(timeslice_ns.round() as u64),
        spread.map_or(String::new(), |window| format!(
            " (a tenth below {}, a tenth above {})",
            time(window.p10_ns.round() as u64),
            time(window.p90_ns.round() as u64)
        )),
        percent(asked.share),
        time(asked.timeslice_ns),
        likely_cause(asked, got, ticks, timeslice_is_off)
    ))
}

fn is_off(got: f64, asked: f64) -> bool {
    (got / asked - 1.0).abs() > TOLERANCE
}

fn is_spread(window: &Distribution, asked_ns: f64) -> bool {
    window.p10_ns < asked_ns * (1.0 - SPREAD) || window.p90_ns > asked_ns * (1.0 + SPREAD)
}

fn unknown_share(got: &Summary) -> f64 {
    got.unknown_ns as f64 / (got.known_ns + got.unknown_ns).max(1) as f64
}

fn nothing_seen(got: &Summary) -> String {
    let why = match got.asleep_share > MUCH_SLEEP {
        true => asleep(got),
        false => "the recording is shorter than two periods, or no driver held the vCPU thread".into(),
    };
    format!("not one whole timeslice was seen in {}: {why}", time(got.known_ns))
}

fn asleep(got: &Summary) -> String {
    format!(
        "the vCPU slept {} of the time, and what is taken from a sleeper is not seen; keep the guest busy",
        percent(got.asleep_share)
    )
}

fn likely_cause(asked: &Asked, got: &Summary, ticks: Ticks, timeslice_is_off: bool) -> String {
    if unknown_share(got) > MUCH_UNKNOWN {
        return format!(
            "{} events were lost, {} of the time is unknown; lower the load of the host",
            got.lost_events,
            percent(unknown_share(got))
        );
    }
    if let Some(cause) = ticks_too_coarse(asked, ticks).filter(|_| timeslice_is_off) {
        return cause;
    }
    if got.asleep_share > MUCH_SLEEP {
        return asleep(got);
    }
    if got.effective_share > asked.share {
        return "something let the vCPU run beyond its slices (real-time throttling by \
                kernel.sched_rt_runtime_us, or a changed policy or affinity)"
            .into();
    }
    "other threads of the host want the same CPU; lower the load of the host".into()
}

/// None if ticks are no problem for such slices, or not known to be one.
fn ticks_too_coarse(asked: &Asked, ticks: Ticks) -> Option<String> {
    if asked.driver != Driver::Deadline || ticks.hrtick_dl == Some(true) {
        return None;
    }
    let hz = ticks.hz?;
    let tick_ns = 1e9 / f64::from(hz);
    (asked.timeslice_ns as f64 / tick_ns < TICKS_PER_SLICE).then(|| {
        format!(
            "HZ={hz} rounds SCHED_DEADLINE slices to ticks of {}; use the burner driver",
            time(tick_ns.round() as u64)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::{Interval, State};
    use crate::summary::summarize;

    const MS: u64 = 1_000_000;
    const HZ_250: Ticks = Ticks { hz: Some(250), hrtick_dl: None };

    fn asked(driver: Driver, timeslice_ns: u64, share: f64) -> Asked {
        Asked { driver, timeslice_ns, share }
    }

    /// 50 periods of windows and off-times; `asleep_ns` of each window is slept.
    fn got(window_ns: u64, off_ns: u64, asleep_ns: u64) -> Summary {
        periods(&[(window_ns - asleep_ns, State::Running), (asleep_ns, State::Asleep), (off_ns, State::Waiting)])
    }

    fn periods(parts: &[(u64, State)]) -> Summary {
        let mut start_ns = 0;
        let mut intervals = Vec::new();
        for (duration_ns, state) in parts.repeat(50) {
            intervals.push(Interval { start_ns, duration_ns, state });
            start_ns += duration_ns;
        }
        summarize(&intervals, 0, None)
    }

    #[test]
    fn a_quota_promises_a_share_and_no_slices() {
        let quota = |share| asked(Driver::Quota, 10 * MS, share);
        assert_eq!(unfaithful(&quota(0.25), &got(15 * MS, 45 * MS, 0), HZ_250), None);
        assert!(unfaithful(&quota(0.5), &got(15 * MS, 45 * MS, 0), HZ_250).is_some());
    }

    #[test]
    fn what_was_asked_is_faithful() {
        let asked = asked(Driver::Deadline, 10 * MS, 0.25);
        assert_eq!(unfaithful(&asked, &got(10 * MS, 30 * MS, 0), HZ_250), None);
    }

    #[test]
    fn ten_percent_are_allowed_and_more_is_not() {
        let asked = asked(Driver::Burner, 10 * MS, 0.25);
        let near = got(10_900_000, 30 * MS, 0);
        assert_eq!(unfaithful(&asked, &near, HZ_250), None);
        let far = got(11_200_000, 30 * MS, 0);
        assert!(unfaithful(&asked, &far, HZ_250).is_some());
    }

    /// Windows of two lengths in turn, with the share of a quarter.
    fn alternating(first_ns: u64, second_ns: u64) -> Summary {
        periods(&[
            (first_ns, State::Running),
            (3 * first_ns, State::Waiting),
            (second_ns, State::Running),
            (3 * second_ns, State::Waiting),
        ])
    }

    #[test]
    fn slices_that_a_tick_shortens_and_lengthens_in_turn_are_right_on_average() {
        let asked = asked(Driver::Deadline, 10 * MS, 0.25);
        assert_eq!(unfaithful(&asked, &alternating(8 * MS, 12 * MS), HZ_250), None);
    }

    #[test]
    fn slices_that_are_right_only_on_average_are_not_what_was_asked() {
        let asked = asked(Driver::Deadline, MS, 0.25);
        assert_eq!(
            unfaithful(&asked, &alternating(MS / 4, 7 * MS / 4), HZ_250).unwrap(),
            "the vCPU had 25 % of the CPU in slices of 1.01 ms (a tenth below 250 us, a tenth above 1.75 ms) instead of \
             25 % in slices of 1 ms: HZ=250 rounds SCHED_DEADLINE slices to ticks of 4 ms; use the burner driver"
        );
    }

    #[test]
    fn slices_below_the_tick_are_blamed_on_the_tick() {
        let asked = asked(Driver::Deadline, MS, 0.25);
        assert_eq!(
            unfaithful(&asked, &got(3_500_000, 10_500_000, 0), HZ_250).unwrap(),
            "the vCPU had 25 % of the CPU in slices of 3.5 ms instead of 25 % in slices of 1 ms: \
             HZ=250 rounds SCHED_DEADLINE slices to ticks of 4 ms; use the burner driver"
        );
    }

    #[test]
    fn the_tick_is_not_blamed_where_it_does_not_matter() {
        let reason = |driver, timeslice_ns, ticks| {
            let asked = asked(driver, timeslice_ns, 0.25);
            unfaithful(&asked, &got(timeslice_ns / 2, 3 * timeslice_ns, 0), ticks).unwrap()
        };
        let hrtick = Ticks { hz: Some(250), hrtick_dl: Some(true) };
        let hz_1000 = Ticks { hz: Some(1000), hrtick_dl: None };
        assert!(!reason(Driver::Burner, MS, HZ_250).contains("HZ"));
        assert!(!reason(Driver::Deadline, MS, hrtick).contains("HZ"));
        assert!(!reason(Driver::Deadline, 5 * MS, hz_1000).contains("HZ"));
        assert!(reason(Driver::Deadline, MS, hz_1000).contains("HZ=1000"));
    }

    #[test]
    fn a_sleepy_vcpu_is_blamed_on_its_sleep() {
        let asked = asked(Driver::Burner, 10 * MS, 0.25);
        let reason = unfaithful(&asked, &got(14 * MS, 26 * MS, 10 * MS), HZ_250).unwrap();
        assert!(reason.contains("slept 25 % of the time"), "{reason}");
    }

    #[test]
    fn too_little_cpu_is_blamed_on_the_neighbours_and_too_much_on_throttling() {
        let asked = asked(Driver::Burner, 10 * MS, 0.25);
        let less = unfaithful(&asked, &got(8 * MS, 32 * MS, 0), HZ_250).unwrap();
        assert!(less.contains("other threads"), "{less}");
        let more = unfaithful(&asked, &got(14 * MS, 26 * MS, 0), HZ_250).unwrap();
        assert!(more.contains("sched_rt_runtime_us"), "{more}");
    }

    #[test]
    fn a_run_without_a_timeslice_is_unfaithful() {
        let asked = asked(Driver::Burner, 10 * MS, 0.25);
        let undisturbed = Interval { start_ns: 0, duration_ns: 1000 * MS, state: State::Running };
        let reason = unfaithful(&asked, &summarize(&[undisturbed], 0, None), HZ_250).unwrap();
        assert!(reason.contains("not one whole timeslice"), "{reason}");
    }

    #[test]
    fn lost_events_are_named_even_if_the_rest_looks_right() {
        let asked = asked(Driver::Burner, 10 * MS, 0.25);
        let mut summary = got(10 * MS, 30 * MS, 0);
        summary.lost_events = 99;
        summary.unknown_ns = summary.known_ns / 5;
        let reason = unfaithful(&asked, &summary, HZ_250).unwrap();
        assert!(reason.contains("99 events were lost"), "{reason}");
    }
}
