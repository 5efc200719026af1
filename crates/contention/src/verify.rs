//! Whether a thread got the contention that was asked for, and if not, the likely cause. Pure.
use crate::host;
use crate::summary::{Distribution, Summary};
use crate::text::{percent, time};

/// A share or timeslice that is off by more than this part makes a run unfaithful.
pub const TOLERANCE: f64 = 0.1;

/// Timeslices are also off if a tenth of them is shorter, or a tenth longer, than asked by more than this part.
/// SCHED_DEADLINE at two and a half ticks a timeslice alternates 8 with 12 ms or 6 with 10 and is right on average, since
/// the next timeslice repays the overrun of the previous one; a wider spread is another schedule than the one asked for,
/// whatever its mean.
const MAX_SPREAD: f64 = 0.45;

/// A vCPU that slept for more than this part of the time hides much of what was taken from it. Measured: 13 % asleep moved
/// share and timeslice by up to 4 %, 25 % by up to 14 %.
const MAX_ASLEEP_SHARE: f64 = 0.1;

/// If more than this part of the time is unknown, the numbers may be off by as much as is allowed.
const MAX_UNKNOWN_SHARE: f64 = 0.05;

/// SCHED_DEADLINE timeslices end at ticks. From two ticks on the overrun is repaid by the next timeslice, so that they are
/// right on average; shorter ones come out as long as the tick decides.
const MIN_TICKS_PER_TIMESLICE: f64 = 2.0;

/// What a driver is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// The share alone. A quota is handed out in pieces and at ticks (kernel/sched/fair.c, sched_cfs_bandwidth_slice).
    Share,
    /// The share, in timeslices of the length that was asked for.
    Timeslices,
    /// The same, but a timeslice ends at the scheduler's next tick.
    TimeslicesAtTicks,
}

impl Promise {
    /// Returns the promise of that name, as a file of python/brobust/drivers writes it.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "share" => Some(Self::Share),
            "timeslices" => Some(Self::Timeslices),
            "timeslices at ticks" => Some(Self::TimeslicesAtTicks),
            _ => None,
        }
    }
}

/// The contention that was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContentionRequest {
    pub promise: Promise,
    pub timeslice_ns: u64,
    pub share: f64,
}

/// Resolution of the host's scheduler, as far as it tells.
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

/// Returns None if the thread got what was asked for; else one sentence with the numbers and the likely cause.
pub fn deviation(request: &ContentionRequest, got: &Summary, ticks: Ticks) -> Option<String> {
    let Some(timeslice_ns) = got.effective_timeslice_ns else {
        return Some(nothing_seen(got));
    };
    let requested_ns = request.timeslice_ns as f64;
    let share_is_off = is_off(got.effective_share, request.share);
    let has_length = request.promise != Promise::Share;
    let mean_is_off = has_length && is_off(timeslice_ns, requested_ns);
    // The spread is of interest only where the mean looks right.
    let spread = got.timeslice.filter(|timeslice| has_length && !mean_is_off && is_spread(timeslice, requested_ns));
    let timeslice_is_off = mean_is_off || spread.is_some();
    let is_too_unknown = unknown_share(got) > MAX_UNKNOWN_SHARE;
    if !share_is_off && !timeslice_is_off && !is_too_unknown {
        return None;
    }
    let (mut had, mut asked) = (percent(got.effective_share) + " of the CPU", percent(request.share));
    if has_length {
        had += &format!(" in slices of {}", time(timeslice_ns.round() as u64));
        asked += &format!(" in slices of {}", time(request.timeslice_ns));
    }
    if let Some(timeslice) = spread {
        let [below, above] = [timeslice.p10_ns, timeslice.p90_ns].map(|ns| time(ns.round() as u64));
        had += &format!(" (a tenth below {below}, a tenth above {above})");
    }
    let of_ticks = ticks_too_coarse(request, ticks).filter(|_| timeslice_is_off && !is_too_unknown);
    let cause = of_ticks.unwrap_or_else(|| likely_cause(got, got.effective_share > request.share));
    Some(format!("the vCPU had {had} instead of {asked}: {cause}"))
}

fn is_off(got: f64, requested: f64) -> bool {
    (got / requested - 1.0).abs() > TOLERANCE
}

fn is_spread(timeslice: &Distribution, requested_ns: f64) -> bool {
    timeslice.p10_ns < requested_ns * (1.0 - MAX_SPREAD) || timeslice.p90_ns > requested_ns * (1.0 + MAX_SPREAD)
}

fn unknown_share(got: &Summary) -> f64 {
    got.unknown_ns as f64 / (got.known_ns + got.unknown_ns).max(1) as f64
}

fn nothing_seen(got: &Summary) -> String {
    let why = match got.asleep_share > MAX_ASLEEP_SHARE {
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

/// Says why a thread had another part of the CPU than was asked for: more of it, or less. Sleep hides what is taken, so it is
/// no cause of less.
pub fn likely_cause(got: &Summary, had_more: bool) -> String {
    if unknown_share(got) > MAX_UNKNOWN_SHARE {
        return format!(
            "{} events were lost, {} of the time is unknown; lower the load of the host",
            got.lost_events,
            percent(unknown_share(got))
        );
    }
    if !had_more {
        return "other threads of the host want the same CPU; lower the load of the host".into();
    }
    if got.asleep_share > MAX_ASLEEP_SHARE {
        return asleep(got);
    }
    "something let the vCPU run in its off-times (real-time throttling by kernel.sched_rt_runtime_us, or a changed \
     policy, affinity or cgroup)"
        .into()
}

/// Returns None if ticks are no problem for such timeslices, or not known to be one.
fn ticks_too_coarse(request: &ContentionRequest, ticks: Ticks) -> Option<String> {
    if request.promise != Promise::TimeslicesAtTicks || ticks.hrtick_dl == Some(true) {
        return None;
    }
    let hz = ticks.hz?;
    let tick_ns = 1e9 / f64::from(hz);
    (request.timeslice_ns as f64 / tick_ns < MIN_TICKS_PER_TIMESLICE).then(|| {
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

    fn request(promise: Promise, timeslice_ns: u64, share: f64) -> ContentionRequest {
        ContentionRequest { promise, timeslice_ns, share }
    }

    /// 50 periods of timeslices and off-times; `asleep_ns` of each timeslice is slept.
    fn got(timeslice_ns: u64, off_ns: u64, asleep_ns: u64) -> Summary {
        periods(&[(timeslice_ns - asleep_ns, State::Running), (asleep_ns, State::Asleep), (off_ns, State::Waiting)])
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
        let quota = |share| request(Promise::Share, 10 * MS, share);
        assert_eq!(deviation(&quota(0.25), &got(15 * MS, 45 * MS, 0), HZ_250), None);
        let said = deviation(&quota(0.5), &got(15 * MS, 45 * MS, 0), HZ_250).unwrap();
        assert!(said.starts_with("the vCPU had 25 % of the CPU instead of 50 %: other threads"), "{said}");
    }

    #[test]
    fn what_was_asked_is_faithful() {
        let request = request(Promise::TimeslicesAtTicks, 10 * MS, 0.25);
        assert_eq!(deviation(&request, &got(10 * MS, 30 * MS, 0), HZ_250), None);
    }

    #[test]
    fn ten_percent_are_allowed_and_more_is_not() {
        let request = request(Promise::Timeslices, 10 * MS, 0.25);
        let near = got(10_900_000, 30 * MS, 0);
        assert_eq!(deviation(&request, &near, HZ_250), None);
        let far = got(11_200_000, 30 * MS, 0);
        assert!(deviation(&request, &far, HZ_250).is_some());
    }

    /// Timeslices of two lengths in turn, with the share of a quarter.
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
        let request = request(Promise::TimeslicesAtTicks, 10 * MS, 0.25);
        assert_eq!(deviation(&request, &alternating(8 * MS, 12 * MS), HZ_250), None);
    }

    #[test]
    fn slices_that_are_right_only_on_average_are_not_what_was_asked() {
        let request = request(Promise::TimeslicesAtTicks, MS, 0.25);
        assert_eq!(
            deviation(&request, &alternating(MS / 4, 7 * MS / 4), HZ_250).unwrap(),
            "the vCPU had 25 % of the CPU in slices of 1.01 ms (a tenth below 250 us, a tenth above 1.75 ms) instead of \
             25 % in slices of 1 ms: HZ=250 rounds SCHED_DEADLINE slices to ticks of 4 ms; use the burner driver"
        );
    }

    #[test]
    fn slices_below_the_tick_are_blamed_on_the_tick() {
        let request = request(Promise::TimeslicesAtTicks, MS, 0.25);
        assert_eq!(
            deviation(&request, &got(3_500_000, 10_500_000, 0), HZ_250).unwrap(),
            "the vCPU had 25 % of the CPU in slices of 3.5 ms instead of 25 % in slices of 1 ms: \
             HZ=250 rounds SCHED_DEADLINE slices to ticks of 4 ms; use the burner driver"
        );
    }

    #[test]
    fn the_tick_is_not_blamed_where_it_does_not_matter() {
        let reason = |promise, timeslice_ns, ticks| {
            let request = request(promise, timeslice_ns, 0.25);
            deviation(&request, &got(timeslice_ns / 2, 3 * timeslice_ns, 0), ticks).unwrap()
        };
        let hrtick = Ticks { hz: Some(250), hrtick_dl: Some(true) };
        let hz_1000 = Ticks { hz: Some(1000), hrtick_dl: None };
        assert!(!reason(Promise::Timeslices, MS, HZ_250).contains("HZ"));
        assert!(!reason(Promise::TimeslicesAtTicks, MS, hrtick).contains("HZ"));
        assert!(!reason(Promise::TimeslicesAtTicks, 5 * MS, hz_1000).contains("HZ"));
        assert!(reason(Promise::TimeslicesAtTicks, MS, hz_1000).contains("HZ=1000"));
    }

    #[test]
    fn a_sleepy_vcpu_is_blamed_on_its_sleep() {
        let request = request(Promise::Timeslices, 10 * MS, 0.25);
        let reason = deviation(&request, &got(14 * MS, 26 * MS, 10 * MS), HZ_250).unwrap();
        assert!(reason.contains("slept 25 % of the time"), "{reason}");
    }

    #[test]
    fn too_little_cpu_is_blamed_on_the_neighbours_and_too_much_on_throttling() {
        let request = request(Promise::Timeslices, 10 * MS, 0.25);
        let less = deviation(&request, &got(8 * MS, 32 * MS, 0), HZ_250).unwrap();
        assert!(less.contains("other threads"), "{less}");
        let sleepy = deviation(&request, &got(8 * MS, 32 * MS, 6 * MS), HZ_250).unwrap();
        assert!(sleepy.contains("other threads"), "sleep takes no CPU away: {sleepy}");
        let more = deviation(&request, &got(14 * MS, 26 * MS, 0), HZ_250).unwrap();
        assert!(more.contains("sched_rt_runtime_us"), "{more}");
    }

    #[test]
    fn a_run_without_a_timeslice_is_deviation() {
        let request = request(Promise::Timeslices, 10 * MS, 0.25);
        let undisturbed = Interval { start_ns: 0, duration_ns: 1000 * MS, state: State::Running };
        let reason = deviation(&request, &summarize(&[undisturbed], 0, None), HZ_250).unwrap();
        assert!(reason.contains("not one whole timeslice"), "{reason}");
    }

    #[test]
    fn lost_events_are_named_even_if_the_rest_looks_right() {
        let request = request(Promise::Timeslices, 10 * MS, 0.25);
        let mut summary = got(10 * MS, 30 * MS, 0);
        summary.lost_events = 99;
        summary.unknown_ns = summary.known_ns / 5;
        let reason = deviation(&request, &summary, HZ_250).unwrap();
        assert!(reason.contains("99 events were lost"), "{reason}");
    }
}
