//! Contention by SCHED_DEADLINE: a thread gets `runtime` of CPU in every `period`, then none until the next.
//!
//! Needs no CPU of its own and no pinning, and lasts as long as the thread. But the kernel charges the budget at
//! scheduler ticks (kernel/sched/deadline.c, update_curr_dl), so a slice ends at the first tick after the budget is
//! spent and the overrun is taken from the next slice: right on average, and only if a slice is a few ticks long. For
//! shorter slices there is `burner`.
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{ContentionError, Result};
use crate::host::{hz, kernel_is_at_least, online_cpus, sysctl, RealTimeBudget};
use crate::sched_attr::{SchedAttr, SCHED_DEADLINE};
use crate::schedule::period_ns;
use crate::thread::{Stat, Thread, Tid};

/// kernel/sched/deadline.c, __checkparam_dl: DL_SCALE is 10, so below 1024 ns the bandwidth would round to nothing.
const LEAST_RUNTIME_NS: u64 = 1 << 10;

/// The least runtime in so long a period is a bandwidth of 0: kernel/sched/core.c, to_ratio, counts in units of 2^-20.
const PERIOD_OF_NO_BANDWIDTH_NS: u64 = 1_100_000_000;

/// Defaults of kernel.sched_deadline_period_{min,max}_us (kernel/sched/deadline.c).
const DEFAULT_PERIOD_MIN_US: i64 = 100;
const DEFAULT_PERIOD_MAX_US: i64 = 1 << 22;

/// kernel/sched/deadline.c, sched_init_dl_servers: since 6.12 every CPU keeps 50 ms in 1 s for ordinary threads in
/// case real-time threads starve them, and this counts as admitted bandwidth.
const FAIR_SERVER_SHARE: f64 = 0.05;

/// How often to put a thread under SCHED_DEADLINE that does not run there.
const ATTEMPTS: usize = 5;

/// Threads held under SCHED_DEADLINE. Gives each its former policy back when dropped.
#[derive(Debug)]
pub struct Deadline {
    held: Vec<Held>,
    wanted: SchedAttr,
    attempts: usize,
}

/// A thread and what it was before.
#[derive(Debug)]
struct Held {
    thread: Thread,
    before: SchedAttr,
    wanted: SchedAttr,
    /// Whether it is under SCHED_DEADLINE now.
    is_admitted: bool,
}

impl Deadline {
    /// Remembers what the threads are, to let each run `runtime_ns` in every `period_ns` from `admit` on.
    pub fn new(tids: &[Tid], runtime_ns: u64, period_ns: u64) -> Result<Self> {
        if tids.is_empty() {
            return Err(ContentionError::NoThreads);
        }
        Limits::read().check_range(runtime_ns, period_ns)?;
        let wanted = SchedAttr::deadline(runtime_ns, period_ns);
        let held: Result<_> = tids.iter().map(|&tid| Held::find(tid, wanted)).collect();
        Ok(Self { held: held?, wanted, attempts: 0 })
    }

    /// `new`, `admit` and `get_going`, for threads that may run on every CPU.
    pub fn apply(tids: &[Tid], runtime_ns: u64, period_ns: u64) -> Result<Self> {
        let mut this = Self::new(tids, runtime_ns, period_ns)?;
        loop {
            this.admit()?;
            if this.get_going()? {
                return Ok(this);
            }
        }
    }

    /// Puts the threads under SCHED_DEADLINE that are not. If one is refused, none stays there.
    ///
    /// Counts what the host has admitted to others itself: this is called while the kernel does not, to admit threads
    /// that are confined to some CPUs.
    pub fn admit(&mut self) -> Result<()> {
        let share = self.wanted.share();
        let missing = self.held.iter().filter(|held| !held.is_admitted).count();
        let outcome = Limits::read()
            .check_room(share, missing)
            .and_then(|()| self.held.iter_mut().filter(|held| !held.is_admitted).try_for_each(Held::admit));
        if outcome.is_err() {
            // The error is worth more than one of undoing.
            let _ = self.release();
        }
        outcome
    }

    /// Returns true when each thread has been seen to run in its second period. False if the kernel keeps one from
    /// running: it is not under SCHED_DEADLINE any more, and has to be admitted again.
    pub fn get_going(&mut self) -> Result<bool> {
        self.attempts += 1;
        thread::sleep(Duration::from_nanos(self.wanted.period_ns));
        let mut stuck = None;
        for held in self.held.iter_mut().filter(|held| held.is_admitted) {
            if !held.runs_again() {
                held.leave()?;
                stuck = Some(held.thread.tid);
            }
        }
        match stuck {
            Some(tid) if self.attempts >= ATTEMPTS => Err(ContentionError::Stuck { tid }),
            stuck => Ok(stuck.is_none()),
        }
    }

    /// Gives every thread its former policy back. Once is enough; again does nothing. A thread that has ended is
    /// none to restore; if others fail, the rest is restored nevertheless and the first error is returned.
    ///
    /// Returns when the threads can be put under SCHED_DEADLINE again, a few periods later.
    pub fn restore(&mut self) -> Result<()> {
        let outcome = self.release();
        self.held.clear();
        outcome
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
        // Nobody is left to hear of an error here; who wants to know calls restore().
        let _ = self.restore();
    }
}

impl Held {
    fn find(tid: Tid, wanted: SchedAttr) -> Result<Self> {
        let thread = Thread::find(tid)?;
        let before = SchedAttr::of(tid).map_err(|error| refusal(&thread, wanted, error))?;
        Ok(Self { thread, before, wanted, is_admitted: false })
    }

    fn admit(&mut self) -> Result<()> {
        let tid = self.thread.tid;
        if !self.thread.is_alive() {
            return Err(ContentionError::NoThread { tid });
        }
        self.wanted.set(tid).map_err(|error| refusal(&self.thread, self.wanted, error))?;
        self.is_admitted = true;
        Ok(())
    }

    /// Gives the thread its former policy until it is admitted again.
    ///
    /// A thread that was under SCHED_DEADLINE before may get one slice and then none ever again: throttled, and no timer
    /// armed to end that. `settling` makes it rare and not impossible (6.18: 9 of 300 returns, spinning and sleeping threads). Leaving the
    /// class and coming back sets it going.
    fn leave(&mut self) -> Result<()> {
        let tid = self.thread.tid;
        self.before.set(tid).map_err(|error| refusal(&self.thread, self.before, error))?;
        self.is_admitted = false;
        thread::sleep(self.settling());
        Ok(())
    }

    /// False if the thread wants to run and does not, from its second period on, for longer than it may have to wait.
    fn runs_again(&self) -> bool {
        let period = Duration::from_nanos(self.wanted.period_ns);
        let before = self.thread.run_ns();
        // A slice that was overrun by a tick may cost the next ones.
        let patience = Instant::now() + 3 * period + self.settling();
        while Instant::now() < patience {
            // What sleeps is not throttled, and what has ended or cannot be measured is not for us to set going.
            if self.thread.state() != Some('R') || before.is_none() || self.thread.run_ns() != before {
                return true;
            }
            thread::sleep(period / 8);
        }
        false
    }

    /// Returns how long the kernel still remembers that the thread was under SCHED_DEADLINE.
    fn restore(&self) -> Result<Duration> {
        let settling = match self.thread.state() {
            None => return Ok(Duration::ZERO),
            Some('R') => self.settling(),
            Some(_) => {
                shrink(self.thread.tid);
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

    /// The time after which an awake thread that left SCHED_DEADLINE may come back.
    ///
    /// Until its "0-lag time" (task_non_contending): when it would have paid for its overrun, a tick at most, at its
    /// own bandwidth. A thread that comes back before may find itself throttled without a timer to end that
    /// (dl_task_timer ignores threads of other policies), and never run again. Seen on 6.18: 1 of 14 threads that came
    /// back at once, none of 28 that came back later.
    fn settling(&self) -> Duration {
        let tick_s = 1.0 / f64::from(hz().unwrap_or(100));
        Duration::from_nanos(self.wanted.period_ns) + Duration::from_secs_f64(tick_s / self.wanted.share())
    }
}

/// Shrinks a sleeping thread's bandwidth to nothing while it still is a deadline thread.
///
/// The kernel (6.18 at least) forgets to take a thread off the admitted sum if it leaves SCHED_DEADLINE in its
/// sleep: switched_from_dl leaves that to a timer which is armed only for threads that run. A few restored idle
/// vCPUs and the whole host gets EBUSY until its cpusets are rebuilt. A change of parameters is booked at once
/// (sched_dl_overflow). Not for threads that are awake: those are booked right, and they would be throttled under
/// the new parameters and take that into their next time under SCHED_DEADLINE.
fn shrink(tid: Tid) {
    let nothing = SchedAttr::deadline(LEAST_RUNTIME_NS, PERIOD_OF_NO_BANDWIDTH_NS);
    // If this fails the thread is restored all the same, which is what matters to it.
    let _ = nothing.set(tid);
}

/// Gets a thread that somebody else (killed since) has left under SCHED_DEADLINE ready to be given another policy.
pub fn release(tid: Tid) -> Result<()> {
    let thread = Thread::find(tid)?;
    let is_deadline = SchedAttr::of(tid).is_ok_and(|attr| attr.policy == SCHED_DEADLINE);
    if is_deadline && thread.state() != Some('R') {
        shrink(tid);
    }
    Ok(())
}

/// Says in words why sched_setattr(2) refused.
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
    thread.affinity().is_ok_and(|cpus| cpus.count() < online_cpus())
}

/// Says before anything is started whether SCHED_DEADLINE would admit `threads` threads that each run `timeslice_ns`
/// and get `share` of a CPU, beside those that are there already.
pub fn check(timeslice_ns: u64, share: f64, threads: usize) -> Result<()> {
    Limits::read().check(timeslice_ns, share, threads)
}

/// What this kernel admits, read from its sysctls.
#[derive(Debug, Clone, Copy)]
struct Limits {
    period_min_ns: u64,
    period_max_ns: u64,
    /// The fraction of every CPU that deadline threads may have together.
    fraction: f64,
    /// What those that are there have, in CPUs.
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
            fraction: RealTimeBudget::read().fraction() - reserved,
            admitted: admitted_shares(),
            cpus: online_cpus(),
        }
    }

    fn check(&self, timeslice_ns: u64, share: f64, threads: usize) -> Result<()> {
        let period_ns = period_ns(timeslice_ns, share)?;
        self.check_range(timeslice_ns, period_ns)?;
        self.check_room(share, threads)
    }

    fn check_range(&self, runtime_ns: u64, period_ns: u64) -> Result<()> {
        if runtime_ns < LEAST_RUNTIME_NS {
            return Err(ContentionError::RuntimeTooShort { runtime_ns, least_ns: LEAST_RUNTIME_NS });
        }
        if period_ns < runtime_ns {
            return Err(ContentionError::RuntimeAbovePeriod { runtime_ns, period_ns });
        }
        if period_ns < self.period_min_ns || period_ns > self.period_max_ns {
            return Err(ContentionError::PeriodOutOfRange {
                period_ns,
                min_ns: self.period_min_ns,
                max_ns: self.period_max_ns,
            });
        }
        Ok(())
    }

    fn check_room(&self, share: f64, threads: usize) -> Result<()> {
        let room = (self.fraction * self.cpus as f64 - self.admitted).max(0.0);
        if share * threads as f64 > room {
            return Err(ContentionError::NoRoom { threads, share, room, cpus: self.cpus });
        }
        Ok(())
    }
}

/// The shares of a CPU that SCHED_DEADLINE has admitted on this host, summed over its threads.
fn admitted_shares() -> f64 {
    let tasks = numbers_in("/proc").flat_map(|pid| numbers_in(&format!("/proc/{pid}/task")));
    tasks.filter_map(|tid| SchedAttr::of(tid).ok().filter(|attr| is_admitted(tid, attr))).map(|attr| attr.share()).sum()
}

/// The kernel's own threads that set CPU frequencies have the policy by name only (kernel/sched/cpufreq_schedutil.c).
fn is_admitted(tid: Tid, attr: &SchedAttr) -> bool {
    attr.policy == SCHED_DEADLINE && !Stat::read(tid).is_ok_and(|stat| stat.is_kernels())
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
        Limits { period_min_ns: 100_000, period_max_ns: 4_194_304_000, fraction: 0.9, admitted: 0.0, cpus: 2 }
    }

    fn refused(timeslice_ns: u64, share: f64, threads: usize) -> String {
        two_cpus().check(timeslice_ns, share, threads).unwrap_err().to_string()
    }

    #[test]
    fn the_papers_grid_is_admitted() {
        for timeslice_ms in [1, 5, 10, 20, 50] {
            for share in [0.1, 0.25, 0.5, 0.7, 0.9] {
                two_cpus().check(timeslice_ms * MS, share, 1).unwrap();
            }
        }
    }

    #[test]
    fn a_share_that_is_no_fraction_is_refused() {
        for share in [0.0, 1.0, -0.5, 1.5, f64::NAN, f64::INFINITY] {
            assert!(refused(MS, share, 1).starts_with("share "), "{share}");
        }
    }

    #[test]
    fn the_least_runtime_in_the_period_of_no_bandwidth_rounds_to_nothing() {
        assert_eq!((LEAST_RUNTIME_NS << 20) / PERIOD_OF_NO_BANDWIDTH_NS, 0);
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
        assert!(refused(0, 0.5, 1).contains("timeslice is 0"));
    }

    #[test]
    fn more_threads_than_the_cpus_have_room_for_are_refused() {
        two_cpus().check(10 * MS, 0.9, 2).unwrap();
        let text = refused(10 * MS, 0.9, 3);
        assert!(text.contains("3 thread(s) at 90 %"), "{text}");
        assert!(text.contains("sched_rt_runtime_us"), "{text}");
    }

    #[test]
    fn what_others_have_been_admitted_with_is_not_given_twice() {
        let limits = Limits { admitted: 0.9, ..two_cpus() };
        limits.check(10 * MS, 0.9, 1).unwrap();
        let text = limits.check(10 * MS, 0.9, 2).unwrap_err().to_string();
        assert!(text.contains("0.90 CPUs' worth is left"), "{text}");
    }

    #[test]
    fn no_threads_are_an_error_not_a_silent_success() {
        assert!(matches!(Deadline::apply(&[], MS, 4 * MS), Err(ContentionError::NoThreads)));
    }
}
