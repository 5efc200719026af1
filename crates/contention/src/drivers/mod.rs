//! The drivers of this crate, by name. A new one is a file here and a row of `KINDS`.
mod burner;
mod deadline;

pub(crate) use deadline::slices_of as constant_slices;

use brobust_timeline::Schedule;

use crate::driver::{Driver, Target};
use crate::error::{ContentionError, Result};
use crate::thread::Thread;

type Prepare = fn(Vec<(Thread, Target)>, Option<u64>) -> Result<Box<dyn Driver>>;

struct Kind {
    name: &'static str,
    /// Refuses, before anything is started, a schedule that could not be kept for so many threads.
    check: fn(&Schedule, usize) -> Result<()>,
    /// Reads what the threads are, and changes nothing. The schedules begin at a time of CLOCK_MONOTONIC; None: at `start`.
    prepare: Prepare,
}

const KINDS: &[Kind] = &[
    Kind { name: "deadline", check: deadline::check, prepare: deadline::prepare },
    Kind { name: "burner", check: burner::check, prepare: burner::prepare },
];

/// Refuses, before anything is started, a schedule that this driver could not keep for `threads` threads here.
pub fn check(driver: &str, schedule: &Schedule, threads: usize) -> Result<()> {
    (kind(driver)?.check)(schedule, threads)
}

/// Returns contention that is ready to be started. Its schedules begin at `start_ns` of CLOCK_MONOTONIC, so that several
/// threads go together; None: when it is started.
pub fn prepare(driver: &str, targets: Vec<Target>, start_ns: Option<u64>) -> Result<Box<dyn Driver>> {
    let kind = kind(driver)?;
    if targets.is_empty() {
        return Err(ContentionError::NoThreads);
    }
    // The checks take milliseconds, in which a thread may end and another one may get its id.
    let found: Vec<Result<Thread>> = targets.iter().map(|target| Thread::find(target.tid)).collect();
    for (number, target) in targets.iter().enumerate() {
        // The limits of the host are read for each check, which takes a while, and most threads share a schedule.
        if targets[..number].iter().all(|other| other.schedule != target.schedule) {
            (kind.check)(&target.schedule, 1)?;
        }
    }
    let threads = found.into_iter().collect::<Result<Vec<_>>>()?;
    (kind.prepare)(threads.into_iter().zip(targets).collect(), start_ns)
}

fn kind(name: &str) -> Result<&'static Kind> {
    let known = || KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
    let found = KINDS.iter().find(|kind| kind.name == name);
    found.ok_or_else(|| ContentionError::NoDriver { name: name.into(), known: known() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use brobust_timeline::Slices;

    fn target(slices: Slices) -> Target {
        Target { tid: crate::tid::Tid::MAX, cpu: Some(0), schedule: Schedule::Slices(slices) }
    }

    #[test]
    fn no_threads_are_an_error_not_a_silent_success() {
        for kind in KINDS {
            assert!(matches!(prepare(kind.name, Vec::new(), None), Err(ContentionError::NoThreads)));
        }
    }

    #[test]
    fn a_bad_schedule_is_refused_before_the_thread_is_touched() {
        for kind in KINDS {
            let error = prepare(kind.name, vec![target(Slices::plain(0, 1_000_000))], None).unwrap_err();
            assert!(matches!(error, ContentionError::Schedule(_)), "{error:?}");
        }
    }

    #[test]
    fn a_schedule_that_takes_nothing_away_is_refused() {
        for kind in KINDS {
            let never_away = Schedule::Slices(Slices::plain(1_000_000, 1_000_000));
            assert!(matches!(check(kind.name, &never_away, 1), Err(ContentionError::NothingTaken)));
            assert!(matches!(check(kind.name, &Schedule::Always, 1), Err(ContentionError::NothingTaken)));
        }
    }

    #[test]
    fn an_unknown_driver_is_refused_with_those_there_are() {
        let error = check("magic", &Schedule::Always, 1).unwrap_err();
        assert_eq!(error.to_string(), "there is no driver magic here: give one of deadline, burner");
    }
}
