//! A schedule, as python/brobust/drivers/schedules.py writes it in JSON. Times are ns.
use serde::Deserialize;

/// Shorter periods would be millions of timeslices a second.
pub(crate) const MIN_PERIOD: u64 = 1_000;
const MIN_TICK: u64 = 1_000;
const MAX_TICK: u64 = 1_000_000_000;
/// An hour, as long as a run may be.
pub(crate) const MAX_PERIOD: u64 = 3_600_000_000_000;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// The CPU is never taken away.
    #[default]
    Always,
    Slices(Slices),
    /// Recorded off-times: (begin, length) since the schedule's origin, in order, without overlap.
    Replay {
        offtimes: Vec<(u64, u64)>,
    },
    /// What SCHED_DEADLINE gives a busy thread: `timeslice` is its runtime and relative deadline.
    Deadline(Ticked),
    /// What SCHED_DEADLINE gives a thread that sleeps when it has nothing to do.
    OnWakeUp(Woken),
    /// What a host gives a thread that sleeps when it has nothing to do, if its scheduler is late now and then.
    Late(Late),
    /// What a cgroup's bandwidth control (cpu.max) gives a busy thread: `timeslice` is the quota.
    Quota(Ticked),
    /// What the fair scheduler gives a busy thread beside period / timeslice - 1 others.
    Fair(Ticked),
    /// Several CPUs, of which one suffices: there is a CPU whenever one of them may run.
    AnyOf(AnyOf),
}

/// CPUs of one machine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnyOf {
    /// Of each its schedule (slices, a recording, or a host's scheduler with ticks, which all of its CPUs have at the
    /// same time if they have the same seed), and how much later than there its periods begin.
    pub cpus: Vec<(Schedule, u64)>,
}

/// More CPUs than this would be a mistake.
pub(crate) const MAX_CPUS: usize = 16;

/// How long the fair scheduler lets a thread run before it looks for another one, ns: sysctl_sched_base_slice with eight
/// CPUs and more (kernel/sched/fair.c, 6.6 and later).
pub(crate) const FAIR_SLICE: u64 = 3_000_000;

/// A scheduler of the host that stops a busy thread at ticks.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticked {
    pub timeslice: u64,
    pub period: u64,
    /// Time between two ticks: 4 ms at HZ=250.
    pub tick: u64,
    /// The same seed draws the same phases of periods and ticks.
    #[serde(default)]
    pub seed: u64,
}

/// A `timeslice` out of every `period`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slices {
    pub timeslice: u64,
    pub period: u64,
    /// When the first whole period begins, counted from `start`; before it, the rest of the period under way is seen.
    /// None: drawn.
    #[serde(default)]
    pub phase: Option<u64>,
    /// Each timeslice begins somewhere in the first `start_jitter` part of its period's off-time.
    #[serde(default)]
    pub start_jitter: f64,
    /// Timeslice and off-time are each drawn evenly from `1 - length_jitter` to `1 + length_jitter` of their length.
    #[serde(default)]
    pub length_jitter: f64,
    /// The same seed draws the same timeslices.
    #[serde(default)]
    pub seed: u64,
    /// The CPU is free before `start` and from `stop` on.
    #[serde(default)]
    pub start: u64,
    #[serde(default)]
    pub stop: Option<u64>,
    /// With a time t here, contention lasts for t, then the CPU is free for t, and so on.
    #[serde(default)]
    pub alternate: Option<u64>,
}

/// SCHED_DEADLINE with `timeslice` as runtime and relative deadline, for a thread whose wake-ups begin its periods.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Woken {
    pub timeslice: u64,
    pub period: u64,
    /// The same seed draws the same phase of the first period.
    #[serde(default)]
    pub seed: u64,
}

/// A thread that is late by `period - timeslice` at a part of its wake-ups, and awake for `timeslice` after each.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    pub timeslice: u64,
    pub period: u64,
    /// The part of the wake-ups that are late.
    pub chance: f64,
    /// Only timers wake it up late: a packet that arrives does so on time, and what is due is then done.
    #[serde(default)]
    pub timers: bool,
    /// The same seed draws the same wake-ups.
    #[serde(default)]
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    #[error("contention: a period of {period} ns is not between 1 us and an hour")]
    Period { period: u64 },

    #[error("contention: a timeslice of {timeslice} ns does not fit a period of {period} ns")]
    Timeslice { timeslice: u64, period: u64 },

    #[error("contention.tick: {tick} ns is not between 1 us and 1 s")]
    Tick { tick: u64 },

    #[error("contention.vcpus: {count} of them; a sender has 1 to {MAX_CPUS}")]
    Cpus { count: usize },

    #[error("contention.vcpus: only constant or drawn timeslices, recordings, and deadline, quota and competitor of a busy host, are known for several vCPUs")]
    NotForSeveral,

    #[error("contention.alternate: {time} ns is less than a period of {period} ns")]
    Alternate { time: u64, period: u64 },

    #[error("contention.driver: a chance of {given} is not above 0 and at most 1")]
    Chance { given: f64 },

    #[error("contention.start_jitter: {given} is not between 0 and 1")]
    StartJitter { given: f64 },

    #[error("contention.length_jitter: {given} is not at least 0 and below 1")]
    LengthJitter { given: f64 },

    #[error("contention.replay: an off-time begins at {begin} ns, before the previous one ends at {end} ns: give the recording of one thread, sorted by start")]
    Overlap { begin: u64, end: u64 },
}

impl Schedule {
    /// Refuses what makes no sense, wherever it is to be kept.
    pub fn check(&self) -> Result<(), ScheduleError> {
        match self {
            Self::Always => Ok(()),
            Self::Slices(slices) => slices.check(),
            Self::OnWakeUp(given) => check_period(given.timeslice, given.period),
            Self::Late(given) => given.check(),
            Self::Deadline(given) | Self::Quota(given) | Self::Fair(given) => given.check(),
            Self::AnyOf(several) => several.check(),
            Self::Replay { offtimes } => {
                let ends = offtimes.iter().map(|(begin, length)| begin.saturating_add(*length));
                let next = offtimes.iter().skip(1).map(|(begin, _)| *begin);
                match ends.zip(next).find(|(end, next)| end > next) {
                    None => Ok(()),
                    Some((end, begin)) => Err(ScheduleError::Overlap { begin, end }),
                }
            }
        }
    }
}

impl Schedule {
    /// Returns of how many CPUs it is.
    pub fn cpus(&self) -> usize {
        match self {
            Self::AnyOf(several) => several.cpus.len(),
            _ => 1,
        }
    }
}

impl AnyOf {
    fn check(&self) -> Result<(), ScheduleError> {
        if !(1..=MAX_CPUS).contains(&self.cpus.len()) {
            return Err(ScheduleError::Cpus { count: self.cpus.len() });
        }
        self.cpus.iter().try_for_each(|(each, _)| match each {
            Schedule::Slices(_)
            | Schedule::Replay { .. }
            | Schedule::Deadline(_)
            | Schedule::Quota(_)
            | Schedule::Fair(_) => each.check(),
            _ => Err(ScheduleError::NotForSeveral),
        })
    }
}

impl Slices {
    /// Slices without phase or jitter.
    pub fn plain(timeslice: u64, period: u64) -> Self {
        Self { timeslice, period, phase: Some(0), ..Self::default() }
    }

    pub fn off_time(&self) -> u64 {
        self.period.saturating_sub(self.timeslice)
    }

    pub fn share(&self) -> f64 {
        self.timeslice as f64 / self.period as f64
    }

    fn check(&self) -> Result<(), ScheduleError> {
        let Self { timeslice, period, .. } = *self;
        check_period(timeslice, period)?;
        if let Some(time) = self.alternate.filter(|time| *time < period) {
            return Err(ScheduleError::Alternate { time, period });
        }
        // Ranges rather than comparisons: these would let NaN pass.
        if !(0.0..=1.0).contains(&self.start_jitter) {
            return Err(ScheduleError::StartJitter { given: self.start_jitter });
        }
        if !(0.0..1.0).contains(&self.length_jitter) {
            return Err(ScheduleError::LengthJitter { given: self.length_jitter });
        }
        Ok(())
    }
}

impl Late {
    fn check(&self) -> Result<(), ScheduleError> {
        check_period(self.timeslice, self.period)?;
        match self.chance > 0.0 && self.chance <= 1.0 {
            true => Ok(()),
            false => Err(ScheduleError::Chance { given: self.chance }),
        }
    }
}

impl Ticked {
    fn check(&self) -> Result<(), ScheduleError> {
        check_period(self.timeslice, self.period)?;
        match (MIN_TICK..=MAX_TICK).contains(&self.tick) {
            true => Ok(()),
            false => Err(ScheduleError::Tick { tick: self.tick }),
        }
    }
}

fn check_period(timeslice: u64, period: u64) -> Result<(), ScheduleError> {
    if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
        return Err(ScheduleError::Period { period });
    }
    if timeslice == 0 || timeslice > period {
        return Err(ScheduleError::Timeslice { timeslice, period });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_times_that_overlap_are_refused() {
        let error = Schedule::Replay { offtimes: vec![(0, 5), (4, 1)] }.check().unwrap_err();
        assert!(error.to_string().contains("before the previous one ends"), "{error}");
    }

    #[test]
    fn several_cpus_have_a_schedule_with_periods() {
        let several = |each: Schedule, shifts: &[u64]| {
            Schedule::AnyOf(AnyOf { cpus: shifts.iter().map(|shift| (each.clone(), *shift)).collect() })
        };
        several(Schedule::Slices(Slices::plain(10_000, 40_000)), &[0, 5]).check().unwrap();
        for refused in [
            several(Schedule::Slices(Slices::plain(10_000, 40_000)), &[]),
            several(Schedule::Slices(Slices::plain(0, 40_000)), &[0, 5]),
            several(Schedule::Always, &[0, 5]),
            several(Schedule::Replay { offtimes: vec![(0, 5), (4, 1)] }, &[0, 5]),
        ] {
            assert!(refused.check().is_err(), "{refused:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let plain = Slices::plain(10_000, 40_000);
        plain.check().unwrap();
        for slices in [
            Slices { timeslice: 0, ..plain },
            Slices { timeslice: 40_001, ..plain },
            Slices { period: 999, timeslice: 1, ..plain },
            Slices { period: MAX_PERIOD + 1, ..plain },
            Slices { alternate: Some(39_999), ..plain },
            Slices { start_jitter: 1.1, ..plain },
            Slices { start_jitter: f64::NAN, ..plain },
            Slices { length_jitter: 1.0, ..plain },
            Slices { length_jitter: f64::NAN, ..plain },
        ] {
            assert!(slices.check().is_err(), "{slices:?}");
        }
    }

    #[test]
    fn a_schedule_is_read_from_json_and_a_misspelt_field_is_refused() {
        let read = |text: &str| serde_json::from_str::<Schedule>(text);
        let slices = Slices { seed: 7, ..Slices::plain(10, 40) };
        assert_eq!(
            read(r#"{"kind": "slices", "timeslice": 10, "period": 40, "phase": 0, "seed": 7}"#).unwrap(),
            Schedule::Slices(slices)
        );
        assert_eq!(read(r#"{"kind": "always"}"#).unwrap(), Schedule::Always);
        assert_eq!(
            read(r#"{"kind": "replay", "offtimes": [[1, 2]]}"#).unwrap(),
            Schedule::Replay { offtimes: vec![(1, 2)] }
        );
        assert!(read(r#"{"kind": "slices", "timeslice": 10, "period": 40, "phaze": 0}"#).is_err());
        assert!(read(r#"{"kind": "replay", "offtimes": [], "seed": 0}"#).is_err());
        let each = r#"{"kind": "slices", "timeslice": 10, "period": 40, "phase": 0, "seed": 7}"#;
        let several = read(&format!(r#"{{"kind": "any_of", "cpus": [[{each}, 0], [{each}, 20]]}}"#)).unwrap();
        let [one, other] = [(Schedule::Slices(slices), 0), (Schedule::Slices(slices), 20)];
        assert_eq!(several, Schedule::AnyOf(AnyOf { cpus: vec![one, other] }));
    }
}
