//! From intervals to the numbers a run is judged by. Pure.
//!
//! An *off-time* is a stretch in which the thread waited for a CPU; a *timeslice* lies between two off-times: the time in
//! which it could run, whether it did or slept. Asked for 10 ms out of 40 ms, timeslices should be 10 ms and off-times
//! 30 ms long.
use crate::intervals::{Interval, State};

/// Waits shorter than this are not off-times, unless others were asked for.
pub const NOISE_NS: u64 = 100_000;

/// Returns the length below which a wait is not an off-time.
///
/// Interrupts, kernel workers and a neighbour's wakeup take the CPU for some 5 to 100 us; they end no timeslice,
/// because no sender notices them. With a known off-time the limit grows to a fifth of it: no driver's off-times vary that
/// much, and a shorter wait inside a timeslice is a neighbour's. For very short off-times it is half the off-time, so that
/// they are still detected.
pub fn noise_limit_ns(requested_off_ns: Option<u64>) -> u64 {
    match requested_off_ns {
        Some(off_ns) => NOISE_NS.min(off_ns / 2).max(off_ns / 5),
        None => NOISE_NS,
    }
}

/// What a thread really got.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Time of which the state is known; the shares below are of this.
    pub known_ns: u64,
    pub unknown_ns: u64,
    /// If high, the vCPU idled. What is taken away while it sleeps cannot be seen, so timeslices look longer than they were.
    pub asleep_share: f64,
    pub waiting_share: f64,
    /// 1 - waiting_share, noise included: the fraction of time in which the thread had a CPU whenever it wanted one.
    pub effective_share: f64,
    /// Every complete timeslice and off-time, in order; without those cut off by the recording's ends or by lost events.
    pub timeslices_ns: Vec<u64>,
    pub offtimes_ns: Vec<u64>,
    /// Start of each of them, CLOCK_MONOTONIC.
    pub timeslice_starts_ns: Vec<u64>,
    pub offtime_starts_ns: Vec<u64>,
    /// None: there is not a single complete one.
    pub timeslice: Option<Distribution>,
    /// The length of the timeslices in one number: the mean of all but the longest and the shortest tenth.
    ///
    /// Not the median: at HZ=250, SCHED_DEADLINE makes 10 ms timeslices by alternating 8 and 12 ms (or 9, 9, 9 and 13, as
    /// the phase to the tick happens to be). The budget is kept exactly, but the median is 8, 9 or 12. Not the plain mean:
    /// one timeslice cut in two by a neighbour counts twice in it. Measured on 6.18, HZ=250, 12 runs of 10 ms: mean
    /// 9.96..10.07, this 9.67..10.31, median 8.92..11.83.
    pub effective_timeslice_ns: Option<f64>,
    pub effective_offtime_ns: Option<f64>,
    pub lost_events: u64,
}

/// How lengths spread, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distribution {
    /// Mean without the lowest and the highest tenth.
    pub trimmed_mean_ns: f64,
    pub median_ns: f64,
    pub p10_ns: f64,
    pub p90_ns: f64,
}

impl Distribution {
    /// Returns None for an empty list.
    pub fn of(lengths_ns: &[u64]) -> Option<Self> {
        if lengths_ns.is_empty() {
            return None;
        }
        let mut sorted = lengths_ns.to_vec();
        sorted.sort_unstable();
        let tenth = sorted.len() / 10;
        Some(Self {
            trimmed_mean_ns: mean(&sorted[tenth..sorted.len() - tenth]),
            median_ns: quantile(&sorted, 0.5),
            p10_ns: quantile(&sorted, 0.1),
            p90_ns: quantile(&sorted, 0.9),
        })
    }
}

fn mean(numbers: &[u64]) -> f64 {
    numbers.iter().sum::<u64>() as f64 / numbers.len() as f64
}

/// Interpolates linearly between two values (as NumPy does by default).
fn quantile(sorted: &[u64], fraction: f64) -> f64 {
    let position = fraction * (sorted.len() - 1) as f64;
    let below = sorted[position.floor() as usize] as f64;
    let above = sorted[position.ceil() as usize] as f64;
    below + (above - below) * position.fract()
}

/// Sums up one recording. `requested_off_ns` is the off-time that was asked for, if any (see `noise_limit_ns`).
pub fn summarize(intervals: &[Interval], lost_events: u64, requested_off_ns: Option<u64>) -> Summary {
    let time_in = |state| -> u64 {
        let of_state = intervals.iter().filter(|i| i.state == state);
        of_state.map(|i| i.duration_ns).sum()
    };
    let (running, asleep, waiting) = (time_in(State::Running), time_in(State::Asleep), time_in(State::Waiting));
    let known_ns = running + asleep + waiting;
    // If nothing at all is known, every share is 0 of it and `unknown_ns` says why.
    let share = |ns: u64| ns as f64 / known_ns.max(1) as f64;
    let pattern = Pattern::find(intervals, noise_limit_ns(requested_off_ns));
    let (timeslice, offtime) = (Distribution::of(&pattern.timeslices_ns), Distribution::of(&pattern.offtimes_ns));
    Summary {
        known_ns,
        unknown_ns: time_in(State::Unknown),
        asleep_share: share(asleep),
        waiting_share: share(waiting),
        effective_share: 1.0 - share(waiting),
        effective_timeslice_ns: timeslice.map(|timeslice| timeslice.trimmed_mean_ns),
        effective_offtime_ns: offtime.map(|offtime| offtime.trimmed_mean_ns),
        timeslice,
        timeslices_ns: pattern.timeslices_ns,
        offtimes_ns: pattern.offtimes_ns,
        timeslice_starts_ns: pattern.timeslice_starts_ns,
        offtime_starts_ns: pattern.offtime_starts_ns,
        lost_events,
    }
}

/// Timeslices and off-times as they alternate.
#[derive(Default)]
struct Pattern {
    timeslices_ns: Vec<u64>,
    offtimes_ns: Vec<u64>,
    timeslice_starts_ns: Vec<u64>,
    offtime_starts_ns: Vec<u64>,
    /// Start of the timeslice under way; None if it was not seen.
    timeslice_start_ns: Option<u64>,
}

impl Pattern {
    fn find(intervals: &[Interval], noise_limit_ns: u64) -> Self {
        let mut pattern = Self::default();
        for (i, interval) in intervals.iter().enumerate() {
            match interval.state {
                State::Running | State::Asleep => {}
                State::Unknown => pattern.timeslice_start_ns = None,
                State::Waiting if interval.duration_ns < noise_limit_ns => {}
                State::Waiting => pattern.off(interval, is_complete(intervals, i)),
            }
        }
        pattern
    }

    /// An off-time that was not seen whole still bounds the timeslices beside it.
    fn off(&mut self, interval: &Interval, is_complete: bool) {
        if let Some(start_ns) = self.timeslice_start_ns {
            self.timeslices_ns.push(interval.start_ns - start_ns);
            self.timeslice_starts_ns.push(start_ns);
        }
        if is_complete {
            self.offtimes_ns.push(interval.duration_ns);
            self.offtime_starts_ns.push(interval.start_ns);
        }
        self.timeslice_start_ns = Some(interval.start_ns + interval.duration_ns);
    }
}

/// Returns whether both ends of the interval were seen: it touches neither an end of the recording nor lost events.
fn is_complete(intervals: &[Interval], i: usize) -> bool {
    let is_seen = |i: usize| intervals.get(i).is_some_and(|neighbour| neighbour.state != State::Unknown);
    i > 0 && is_seen(i - 1) && is_seen(i + 1)
}

#[cfg(test)]
mod tests {
    use super::State::{Asleep, Running, Unknown, Waiting};
    use super::*;

    const MS: u64 = 1_000_000;

    /// Intervals of these durations, one after the other.
    fn timeline(parts: &[(u64, State)]) -> Vec<Interval> {
        let mut start_ns = 1_000_000_000;
        let mut intervals = Vec::new();
        for &(duration_ns, state) in parts {
            intervals.push(Interval { start_ns, duration_ns, state });
            start_ns += duration_ns;
        }
        intervals
    }

    fn summary(parts: &[(u64, State)]) -> Summary {
        summarize(&timeline(parts), 0, None)
    }

    #[test]
    fn an_even_pattern_is_read_back() {
        let period = [(10 * MS, Running), (30 * MS, Waiting)];
        let summary = summary(&period.repeat(20));
        assert_eq!(summary.timeslices_ns, vec![10 * MS; 19]);
        // The last off-time ends with the recording: how long it went on is not known.
        assert_eq!(summary.offtimes_ns, vec![30 * MS; 19]);
        assert_eq!(summary.effective_share, 0.25);
        assert_eq!(summary.effective_timeslice_ns, Some(10e6));
        assert_eq!(summary.effective_offtime_ns, Some(30e6));
    }

    #[test]
    fn each_timeslice_and_off_time_says_when_it_began() {
        let period = [(10 * MS, Running), (30 * MS, Waiting)];
        let summary = summary(&period.repeat(3));
        assert_eq!(summary.offtime_starts_ns, [1_010 * MS, 1_050 * MS]);
        assert_eq!(summary.timeslice_starts_ns, [1_040 * MS, 1_080 * MS]);
    }

    #[test]
    fn a_sleep_inside_a_timeslice_belongs_to_it() {
        let period = [(4 * MS, Running), (5 * MS, Asleep), (MS, Running), (30 * MS, Waiting)];
        let summary = summary(&period.repeat(10));
        assert_eq!(summary.timeslices_ns, vec![10 * MS; 9]);
        assert_eq!(summary.asleep_share, 0.125);
        assert_eq!(summary.effective_share, 0.25);
    }

    #[test]
    fn an_interrupt_ends_no_timeslice_but_counts_as_waiting() {
        let period = [(5 * MS, Running), (50_000, Waiting), (5 * MS - 50_000, Running), (30 * MS, Waiting)];
        let summary = summary(&period.repeat(10));
        assert_eq!(summary.timeslices_ns, vec![10 * MS; 9]);
        assert!(summary.effective_share < 0.25);
    }

    #[test]
    fn the_noise_limit_follows_the_requested_off_time() {
        assert_eq!(noise_limit_ns(None), 100_000);
        assert_eq!(noise_limit_ns(Some(30 * MS)), 6_000_000);
        assert_eq!(noise_limit_ns(Some(MS)), 200_000);
        assert_eq!(noise_limit_ns(Some(60_000)), 30_000);
    }

    #[test]
    fn alternating_timeslices_average_to_what_was_asked() {
        let two_periods = [(8 * MS, Running), (32 * MS, Waiting), (12 * MS, Running), (28 * MS, Waiting)];
        let timeslice = summary(&two_periods.repeat(25)).effective_timeslice_ns;
        assert!((timeslice.unwrap() / 10e6 - 1.0).abs() < 0.02);
    }

    #[test]
    fn a_few_cut_timeslices_hardly_move_the_timeslice() {
        let mut parts = [(10 * MS, Running), (30 * MS, Waiting)].repeat(40);
        let cut = [(MS, Running), (3 * MS, Waiting), (9 * MS, Running), (27 * MS, Waiting)];
        parts.extend(cut.repeat(3));
        let summary = summary(&parts);
        let timeslice = summary.effective_timeslice_ns.unwrap();
        assert!((timeslice / 10e6 - 1.0).abs() < 0.02, "{timeslice}");
    }

    #[test]
    fn timeslices_and_off_times_that_were_not_seen_whole_are_left_out() {
        let summary = summary(&[(2 * MS, Waiting), (10 * MS, Running), (30 * MS, Waiting), (3 * MS, Running)]);
        assert_eq!(summary.timeslices_ns, [10 * MS]);
        assert_eq!(summary.offtimes_ns, [30 * MS]);
    }

    #[test]
    fn lost_events_break_the_pattern_and_are_left_out_of_the_shares() {
        let summary = summarize(
            &timeline(&[
                (10 * MS, Running),
                (30 * MS, Waiting),
                (10 * MS, Running),
                (7 * MS, Unknown),
                (10 * MS, Running),
                (30 * MS, Waiting),
                (10 * MS, Running),
                (30 * MS, Waiting),
                (5 * MS, Unknown),
            ]),
            17,
            None,
        );
        assert_eq!(summary.timeslices_ns, [10 * MS]);
        assert_eq!(summary.offtimes_ns, [30 * MS, 30 * MS]);
        assert_eq!((summary.known_ns, summary.unknown_ns), (130 * MS, 12 * MS));
        assert_eq!(summary.lost_events, 17);
    }

    #[test]
    fn an_undisturbed_thread_has_the_whole_cpu_and_no_timeslices() {
        let summary = summary(&[(1000 * MS, Running)]);
        assert_eq!(summary.effective_share, 1.0);
        assert_eq!(summary.timeslice, None);
        assert_eq!(summary.effective_timeslice_ns, None);
    }

    #[test]
    fn an_empty_recording_is_no_division_by_zero() {
        let summary = summary(&[]);
        assert_eq!((summary.known_ns, summary.asleep_share), (0, 0.0));
    }

    #[test]
    fn quantiles_lie_between_the_values_around_them() {
        let lengths: Vec<u64> = (0..=100).map(|n| 10 * n).collect();
        let distribution = Distribution::of(&lengths).unwrap();
        assert_eq!(distribution.p10_ns, 100.0);
        assert_eq!(distribution.p90_ns, 900.0);
        assert_eq!(Distribution::of(&[1, 2]).unwrap().median_ns, 1.5);
        assert_eq!(Distribution::of(&[]), None);
    }
}
