//! Contention by SCHED_DEADLINE: a thread gets `runtime` of CPU in every `period`, then none until the next.
//!
//! It needs no CPU of its own and no pinning, and lasts as long as the thread. But the kernel charges the budget at
//! scheduler ticks (kernel/sched/deadline.c, update_curr_dl), so a timeslice ends at the first tick after the budget is
//! spent and the overrun is taken from the next one: right on average, and only if a timeslice is a few ticks long. For
//! shorter ones there is `burner`.
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use brobust_host::sched_attr::{SchedAttr, SCHED_DEADLINE};
use brobust_host::threads::{cpus_of, shrink_deadline, MIN_RUNTIME_NS};
use brobust_host::Stat;
use brobust_timeline::{Schedule, Slices};

use crate::driver::{Driver, Target};
use crate::error::{ContentionError, Result};
use crate::host::{hrtick_dl, hz, kernel_is_at_least, online_cpus, sysctl, RealTimeBudget};
use crate::thread::Thread;
use crate::tid::Tid;

/// kernel/sched/core.c, to_ratio: bandwidths are counted in units of 2^-20.
const BANDWIDTH_UNIT: f64 = 1.0 / (1 << 20) as f64;

/// Defaults of kernel.sched_deadline_period_{min,max}_us (kernel/sched/deadline.c).
const DEFAULT_PERIOD_MIN_US: i64 = 100;
const DEFAULT_PERIOD_MAX_US: i64 = 1 << 22;

/// kernel/sched/deadline.c, sched_init_dl_servers: since 6.12 every CPU keeps 50 ms in 1 s for ordinary threads in
/// case real-time threads starve them, and this counts as admitted bandwidth.
const FAIR_SERVER_SHARE: f64 = 0.05;

/// The longest that a thread may be away to pay for a tick, if that is longer than its period: nobody would see for minutes
/// whether it runs, and the guardian would take the command for stuck.
const MAX_AWAY_NS: u64 = 1_000_000_000;

/// How often to try with a thread that does not run under SCHED_DEADLINE.
const MAX_ATTEMPTS: usize = 5;

/// How long to ask again, and how often, while the kernel refuses what there is room for.
const ASKED_AGAIN_FOR: Duration = Duration::from_secs(1);
const ASKED_AGAIN_EVERY: Duration = Duration::from_millis(50);

/// Refuses what SCHED_DEADLINE would not admit for `threads` threads, beside those that are there already.
pub(super) fn check(schedule: &Schedule, threads: usize) -> Result<()> {
    Limits::read().check(&slices_of(schedule)?, threads)
}

pub(super) fn prepare(targets: Vec<(Thread, Target)>, _start_ns: Option<u64>) -> Result<Box<dyn Driver>> {
    let held = targets.into_iter().map(|(thread, target)| {
        let Slices { timeslice, period, phase, .. } = slices_of(&target.schedule)?;
        Held::of(thread, SchedAttr::deadline(timeslice, period), Duration::from_nanos(phase.unwrap_or(0)))
    });
    let mut held: Vec<Held> = held.collect::<Result<_>>()?;
    held.sort_by_key(|held| held.phase);
    Ok(Box::new(Deadline { held, attempts: 0, begun: None }))
}

/// Every period is the same. The first of a busy thread begins when it is put under SCHED_DEADLINE: that can be a phase
/// after the others.
pub(crate) fn slices_of(schedule: &Schedule) -> Result<Slices> {
    schedule.check()?;
    match schedule {
        Schedule::Slices(slices) if slices.off_time() == 0 => Err(ContentionError::NothingTaken),
        Schedule::Slices(slices) if is_plain(slices) => Ok(*slices),
        Schedule::Always => Err(ContentionError::NothingTaken),
        _ => Err(ContentionError::OnlySlices),
    }
}

fn is_plain(slices: &Slices) -> bool {
    slices.phase.is_some() && Slices { phase: Some(0), ..*slices } == Slices::plain(slices.timeslice, slices.period)
}

/// Threads held under SCHED_DEADLINE. When dropped, it gives each its previous policy back.
#[derive(Debug)]
struct Deadline {
    /// In the order of their phases.
    held: Vec<Held>,
    attempts: usize,
    /// What phases count from.
    begun: Option<Instant>,
}

/// A thread, its previous attributes, and those for SCHED_DEADLINE.
#[derive(Debug)]
struct Held {
    thread: Thread,
    before: SchedAttr,
    wanted: SchedAttr,
    phase: Duration,
    /// Whether it is under SCHED_DEADLINE now.
    is_admitted: bool,
}

impl Driver for Deadline {
    /// Counts what the host has admitted to others itself: this is called while the kernel does not, to admit threads
    /// that are confined to some CPUs.
    fn start(&mut self) -> Result<()> {
        let asked = Instant::now();
        loop {
            let outcome = self.admit_if_there_is_room();
            if outcome.is_err() {
                // The error is worth more than one of undoing.
                let _ = self.release();
            }
            // The sum of what is admitted can be wrong for a moment. Linux 6.18 makes it anew whenever somebody reads
            // kernel.sched_rt_runtime_us, as Limits does, and forgets threads that have just left; when it then takes
            // these off, the sum falls below nothing, and everything is refused until the next time.
            if !matches!(outcome, Err(ContentionError::Admission { .. })) || asked.elapsed() > ASKED_AGAIN_FOR {
                return outcome;
            }
            thread::sleep(ASKED_AGAIN_EVERY);
        }
    }

    /// Returns true when each thread has been seen to run in its second period. False if the kernel keeps one from
    /// running: it is not under SCHED_DEADLINE any more, and has to be admitted again.
    fn settle(&mut self) -> Result<bool> {
        self.attempts += 1;
        let max_period_ns = self.held.iter().map(|held| held.wanted.period_ns).max().unwrap_or(0);
        thread::sleep(Duration::from_nanos(max_period_ns));
        let admitted = self.held.iter_mut().filter(|held| held.is_admitted);
        let watched: Vec<(Option<u64>, &mut Held)> = admitted.map(|held| (held.thread.run_ns(), held)).collect();
        let limit = watched.iter().map(|(_, held)| held.longest_wait()).max().unwrap_or_default();
        let pause = Duration::from_nanos(max_period_ns / 8);
        // All of them in the same time: whoever guards this process hears nothing of it meanwhile.
        let waiting = still_waiting(watched, limit, pause, |(before, held)| held.runs_again(*before));
        let (mut stuck, mut settling) = (None, Duration::ZERO);
        for (_, held) in waiting {
            settling = settling.max(held.leave()?);
            stuck = Some(held.thread.tid);
        }
        thread::sleep(settling);
        match stuck {
            Some(tid) if self.attempts >= MAX_ATTEMPTS => Err(ContentionError::Stuck { tid }),
            stuck => Ok(stuck.is_none()),
        }
    }

    /// Returns when the threads can be put under SCHED_DEADLINE again, a few periods later. The contention ends at once.
    fn stop(&mut self) -> Result<()> {
        let outcome = self.release();
        self.held.clear();
        outcome
    }
}

impl Deadline {
    fn admit_if_there_is_room(&mut self) -> Result<()> {
        let missing: Vec<f64> =
            self.held.iter().filter(|held| !held.is_admitted).map(|held| held.wanted.share()).collect();
        Limits::read().check_room(missing.iter().sum(), missing.len())?;
        self.admit_in_phase()
    }

    fn admit_in_phase(&mut self) -> Result<()> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let is_alone = self.held.len() == 1;
        for held in self.held.iter_mut().filter(|held| !held.is_admitted) {
            if !is_alone {
                thread::sleep(held.until_its_period(begun.elapsed()));
            }
            held.admit()?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        let mut settling = Duration::ZERO;
        for held in self.held.iter_mut().filter(|held| held.is_admitted) {
            match held.restore() {
                Ok(held_settling) => settling = settling.max(held_settling),
                Err(error) => outcome = outcome.and(Err(error)),
            }
            held.is_admitted = false;
        }
        thread::sleep(settling);
        outcome
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        // Nobody is left to hear of an error here; whoever wants to know calls stop().
        let _ = self.stop();
    }
}

impl Held {
    fn of(thread: Thread, wanted: SchedAttr, phase: Duration) -> Result<Self> {
        let before = SchedAttr::of(thread.tid).map_err(|error| refusal(&thread, wanted, error))?;
        Ok(Self { thread, before, wanted, phase, is_admitted: false })
    }

    /// Returns how long it is until a period of the thread begins, if so much time has passed since those of a thread
    /// without phase began. One that has just begun will do.
    fn until_its_period(&self, passed: Duration) -> Duration {
        let period = Duration::from_nanos(self.wanted.period_ns);
        let Some(late) = passed.checked_sub(self.phase) else {
            return self.phase - passed;
        };
        let late = Duration::from_nanos((late.as_nanos() % period.as_nanos().max(1)) as u64);
        if late < period / 50 {
            return Duration::ZERO;
        }
        period - late
    }

    fn admit(&mut self) -> Result<()> {
        self.thread.refuse_another()?;
        self.wanted.set(self.thread.tid).map_err(|error| refusal(&self.thread, self.wanted, error))?;
        self.is_admitted = true;
        Ok(())
    }

    /// Gives the thread its previous policy until it is admitted again, and returns how long it must not be before.
    ///
    /// A thread that was under SCHED_DEADLINE before may get one timeslice and then none ever again: throttled, with no
    /// timer armed to end that. `settling` makes this rare and not impossible (6.18: 9 of 300 returns, spinning and
    /// sleeping threads). Leaving the class and coming back sets the thread going.
    fn leave(&mut self) -> Result<Duration> {
        let tid = self.thread.tid;
        self.before.set(tid).map_err(|error| refusal(&self.thread, self.before, error))?;
        self.is_admitted = false;
        Ok(self.settling())
    }

    /// Returns false while the thread wants to run and does not: it has used no CPU time since `before`.
    fn runs_again(&self, before: Option<u64>) -> bool {
        // A sleeping thread is not throttled, and one that has ended or cannot be measured is not ours to restart.
        self.thread.state() != Some('R') || before.is_none() || self.thread.run_ns() != before
    }

    /// Returns how long a thread may have to wait, from its second period on.
    fn longest_wait(&self) -> Duration {
        // A timeslice that was overrun by a tick may cost the next ones.
        Duration::from_nanos(3 * self.wanted.period_ns) + self.settling()
    }

    /// Returns how long the kernel still remembers that the thread was under SCHED_DEADLINE.
    fn restore(&self) -> Result<Duration> {
        let settling = match self.thread.state() {
            None => return Ok(Duration::ZERO),
            Some('R') => self.settling(),
            Some(_) => {
                shrink_deadline(self.thread.tid);
                Duration::ZERO
            }
        };
        let tid = self.thread.tid;
        match self.before.set(tid) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                Err(ContentionError::os(format!("restoring the policy of thread {tid}"), error))
            }
            _ => Ok(settling),
        }
    }

    /// Returns the time after which an awake thread that left SCHED_DEADLINE may come back.
    ///
    /// That is its "0-lag time" (task_non_contending): when it would have paid for its overrun, a tick at most, at its own
    /// bandwidth. A thread that comes back before that may find itself throttled without a timer to end it (dl_task_timer
    /// ignores threads of other policies), and never run again. Seen on 6.18: 1 of 14 threads that came back at once, none
    /// of 28 that came back later.
    fn settling(&self) -> Duration {
        Duration::from_nanos(self.wanted.period_ns) + Duration::from_secs_f64(tick_ns() / 1e9 / self.wanted.share())
    }
}

fn tick_ns() -> f64 {
    1e9 / f64::from(hz().unwrap_or(100))
}

/// Returns which of these are still waiting after so long, or an empty list as soon as none is.
fn still_waiting<T>(mut waiting: Vec<T>, limit: Duration, pause: Duration, is_over: impl Fn(&T) -> bool) -> Vec<T> {
    let end = Instant::now() + limit;
    loop {
        waiting.retain(|one| !is_over(one));
        if waiting.is_empty() || Instant::now() >= end {
            return waiting;
        }
        thread::sleep(pause);
    }
}

/// Explains why sched_setattr(2) refused.
fn refusal(thread: &Thread, wanted: SchedAttr, error: io::Error) -> ContentionError {
    let tid = thread.tid;
    match error.raw_os_error() {
        Some(libc::ESRCH) => ContentionError::NoThread { tid },
        Some(libc::EBUSY) => ContentionError::Admission { tid },
        Some(libc::EINVAL) => {
            ContentionError::DeadlineRange { runtime_ns: wanted.runtime_ns, period_ns: wanted.period_ns }
        }
        Some(libc::EPERM) if may_not_run_everywhere(thread) => ContentionError::Affinity { tid },
        Some(libc::EPERM) => ContentionError::NotRoot,
        _ => ContentionError::os(format!("putting thread {tid} under SCHED_DEADLINE"), error),
    }
}

/// kernel/sched/syscalls.c, __sched_setscheduler: a deadline thread's affinity must span its root domain, which is
/// every online CPU unless there are exclusive cpusets.
fn may_not_run_everywhere(thread: &Thread) -> bool {
    cpus_of(thread.tid).is_ok_and(|cpus| cpus.len() < online_cpus())
}

/// What this kernel admits, read from its sysctls.
#[derive(Debug, Clone, Copy)]
struct Limits {
    period_min_ns: u64,
    period_max_ns: u64,
    /// How much longer than its runtime a busy thread may run.
    overrun_ns: f64,
    /// Fraction of every CPU that deadline threads may have together.
    fraction: f64,
    /// Sum of the shares that are admitted already, in CPUs.
    admitted: f64,
    cpus: usize,
}

impl Limits {
    fn read() -> Self {
        let ns = |name, default| sysctl(name).unwrap_or(default).unsigned_abs() * 1_000;
        let reserved = match kernel_is_at_least(6, 12) {
            true => FAIR_SERVER_SHARE,
            false => 0.0,
        };
        Self {
            period_min_ns: ns("sched_deadline_period_min_us", DEFAULT_PERIOD_MIN_US),
            period_max_ns: ns("sched_deadline_period_max_us", DEFAULT_PERIOD_MAX_US),
            overrun_ns: if hrtick_dl() == Some(true) { 0.0 } else { tick_ns() },
            fraction: RealTimeBudget::read().fraction() - reserved,
            admitted: admitted_shares(),
            cpus: online_cpus(),
        }
    }

    fn check(&self, slices: &Slices, threads: usize) -> Result<()> {
        self.check_range(slices.timeslice, slices.period)?;
        self.check_room(slices.share() * threads as f64, threads)
    }

    fn check_range(&self, runtime_ns: u64, period_ns: u64) -> Result<()> {
        if runtime_ns < MIN_RUNTIME_NS {
            return Err(ContentionError::RuntimeTooShort { runtime_ns, min_ns: MIN_RUNTIME_NS });
        }
        if period_ns < self.period_min_ns || period_ns > self.period_max_ns {
            return Err(ContentionError::PeriodOutOfRange {
                period_ns,
                min_ns: self.period_min_ns,
                max_ns: self.period_max_ns,
            });
        }
        let share = runtime_ns as f64 / period_ns as f64;
        let (away_ns, max_ns) = ((self.overrun_ns / share) as u64, MAX_AWAY_NS.max(period_ns));
        match away_ns > max_ns {
            true => Err(ContentionError::AwayTooLong { tick_ns: self.overrun_ns as u64, away_ns, share, max_ns }),
            false => Ok(()),
        }
    }

    /// Refuses threads that want `shares` of a CPU together.
    fn check_room(&self, shares: f64, threads: usize) -> Result<()> {
        let room = (self.fraction * self.cpus as f64 - self.admitted).max(0.0);
        // The kernel rounds each share down to its unit.
        if shares - threads as f64 * BANDWIDTH_UNIT > room {
            let share = shares / threads as f64;
            return Err(ContentionError::NoRoom { threads, share, room, cpus: self.cpus });
        }
        Ok(())
    }
}

/// Returns the shares of a CPU that SCHED_DEADLINE has admitted on this host, summed over its threads.
fn admitted_shares() -> f64 {
    let tasks = numbers_in("/proc").flat_map(|pid| numbers_in(&format!("/proc/{pid}/task")));
    tasks.filter_map(|tid| SchedAttr::of(tid).ok().filter(|attr| is_admitted(tid, attr))).map(|attr| attr.share()).sum()
}

/// The kernel's own threads that set CPU frequencies have the policy by name only (kernel/sched/cpufreq_schedutil.c).
fn is_admitted(tid: Tid, attr: &SchedAttr) -> bool {
    attr.policy == SCHED_DEADLINE && !Stat::read(tid).is_some_and(|stat| stat.is_kernels())
}

fn numbers_in(directory: &str) -> impl Iterator<Item = Tid> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn two_cpus() -> Limits {
        let (period_min_ns, period_max_ns) = (100_000, 4_194_304_000);
        Limits { period_min_ns, period_max_ns, overrun_ns: 4e6, fraction: 0.9, admitted: 0.0, cpus: 2 }
    }

    fn check(limits: &Limits, timeslice_ns: u64, share: f64, threads: usize) -> Result<()> {
        let period_ns = (timeslice_ns as f64 / share).round() as u64;
        limits.check(&slices_of(&Schedule::Slices(Slices::plain(timeslice_ns, period_ns)))?, threads)
    }

    fn refused(timeslice_ns: u64, share: f64, threads: usize) -> String {
        check(&two_cpus(), timeslice_ns, share, threads).unwrap_err().to_string()
    }

    #[test]
    fn the_papers_grid_is_admitted() {
        for timeslice_ms in [1, 5, 10, 20, 50] {
            for share in [0.1, 0.25, 0.5, 0.7, 0.9] {
                check(&two_cpus(), timeslice_ms * MS, share, 1).unwrap();
            }
        }
    }

    #[test]
    fn only_slices_of_constant_length_are_taken() {
        let plain = Slices::plain(10 * MS, 40 * MS);
        slices_of(&Schedule::Slices(plain)).unwrap();
        slices_of(&Schedule::Slices(Slices { phase: Some(5 * MS), ..plain })).unwrap();
        for slices in [
            Slices { phase: None, ..plain },
            Slices { start_jitter: 0.1, ..plain },
            Slices { length_jitter: 0.1, ..plain },
            Slices { stop: Some(1_000 * MS), ..plain },
        ] {
            let error = slices_of(&Schedule::Slices(slices)).unwrap_err();
            assert!(matches!(error, ContentionError::OnlySlices), "{slices:?}");
        }
        assert!(slices_of(&Schedule::Replay { offtimes: vec![(0, MS)] }).is_err());
    }

    #[test]
    fn ranges_are_named_with_their_bounds() {
        assert_eq!(
            refused(1_000, 0.005, 1),
            "timeslice 1 us is shorter than the 1.02 us that SCHED_DEADLINE can count: give a longer timeslice"
        );
        assert!(refused(20_000, 0.5, 1).contains("period 40 us"));
        assert!(refused(20_000, 0.5, 1).contains("between 100 us and 4.19 s"));
        assert!(refused(2_000 * MS, 0.1, 1).contains("period 20 s"));
        assert!(refused(0, 0.5, 1).contains("period of 0 ns"));
    }

    #[test]
    fn a_share_so_small_that_a_tick_keeps_the_thread_away_for_long_is_refused() {
        check(&two_cpus(), 100_000, 0.004, 1).unwrap();
        let text = refused(100_000, 0.001, 1);
        assert!(text.contains("away for 4 s to keep to 0.1 % of a CPU, longer than 1 s"), "{text}");
        check(&two_cpus(), 4 * MS, 0.001, 1).unwrap();
        check(&Limits { overrun_ns: 0.0, ..two_cpus() }, 100_000, 0.001, 1).unwrap();
    }

    #[test]
    fn more_threads_than_the_cpus_have_room_for_are_refused() {
        check(&two_cpus(), 10 * MS, 0.9, 2).unwrap();
        let text = refused(10 * MS, 0.9, 3);
        assert!(text.contains("3 threads at 90 %"), "{text}");
        assert!(text.contains("sched_rt_runtime_us"), "{text}");
    }

    #[test]
    fn threads_that_wait_are_waited_for_in_the_same_time() {
        let looks = std::cell::RefCell::new(Vec::new());
        let (limit, pause) = (Duration::from_millis(5), Duration::from_millis(1));
        let waiting = still_waiting(vec![1, 2, 3], limit, pause, |thread| {
            looks.borrow_mut().push(*thread);
            *thread == 2
        });
        assert_eq!(waiting, [1, 3]);
        // Each once, and then only those that still wait.
        let looks = looks.into_inner();
        assert_eq!(looks[..3], [1, 2, 3]);
        assert!(looks[3..].chunks(2).all(|both| both == [1, 3]), "{looks:?}");
    }

    #[test]
    fn what_others_have_been_admitted_with_is_not_given_twice() {
        let limits = Limits { admitted: 0.9, ..two_cpus() };
        check(&limits, 10 * MS, 0.9, 1).unwrap();
        let text = check(&limits, 10 * MS, 0.9, 2).unwrap_err().to_string();
        assert!(text.contains("0.90 CPUs' worth is left"), "{text}");
    }
}
