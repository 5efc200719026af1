//! Contention by a burner: a real-time thread on the vCPU thread's CPU that occupies it in the off-times.
//!
//! The vCPU thread is pinned to that CPU, so while the burner spins it has nowhere to run. Edges are those of a
//! high-resolution timer, a few microseconds at any HZ. It costs the off-time of one CPU.
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brobust_host::sched_attr::{SchedAttr, SCHED_DEADLINE, SCHED_FIFO, SCHED_RR};
use brobust_host::threads::SavedThread;
use brobust_timeline::{OffTime, OffTimes, Schedule};
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::unistd::{geteuid, gettid};

use crate::budget;
use crate::clock;
use crate::driver::{Driver, Target};
use crate::error::{ContentionError, Result};
use crate::thread::Thread;
use crate::tid::Tid;

/// Above every ordinary thread, just below threaded interrupts (kernel/sched/syscalls.c, sched_set_fifo: 50), which
/// would otherwise stand still in the off-times; they need microseconds and give the CPU back to the burner.
const PRIORITY: u32 = 49;

pub(super) fn check(schedule: &Schedule, _threads: usize) -> Result<()> {
    budget::check(schedule)
}

pub(super) fn prepare(targets: Vec<(Thread, Target)>, start_ns: Option<u64>) -> Result<Box<dyn Driver>> {
    Ok(Box::new(Burner { targets, start_ns, burning: Vec::new() }))
}

/// vCPU threads whose CPUs are taken away, each by a burning thread.
#[derive(Debug)]
struct Burner {
    targets: Vec<(Thread, Target)>,
    start_ns: Option<u64>,
    burning: Vec<Burning>,
}

impl Driver for Burner {
    fn start(&mut self) -> Result<()> {
        if !self.burning.is_empty() {
            return Ok(());
        }
        let origin_ns = self.start_ns.unwrap_or_else(clock::now);
        for (thread, target) in &self.targets {
            match Burning::start(thread, target, origin_ns) {
                Ok(burning) => self.burning.push(burning),
                Err(error) => {
                    // The error is worth more than one of undoing.
                    let _ = self.stop();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        let outcomes: Vec<_> = self.burning.drain(..).map(|mut burning| burning.stop()).collect();
        outcomes.into_iter().collect()
    }
}

/// One vCPU thread under contention. When dropped, ends it and restores the thread's affinity and nice value.
#[derive(Debug)]
struct Burning {
    stop: Arc<StopFlag>,
    thread: Option<JoinHandle<()>>,
    placed: Option<SavedThread>,
}

impl Burning {
    /// Pins the target to its CPU and takes that CPU away from it on its schedule, which begins at `origin_ns`
    /// (CLOCK_MONOTONIC). After the last off-time, if there is one, the thread is left alone.
    fn start(thread: &Thread, target: &Target, origin_ns: u64) -> Result<Self> {
        let cpu = target.cpu.ok_or(ContentionError::NoCpu { tid: target.tid })?;
        let placed = place(thread, cpu)?;
        let mut this = Self { stop: Arc::default(), thread: None, placed: Some(placed) };
        this.thread = Some(start_burning(cpu, target.schedule.off_times(origin_ns), Arc::clone(&this.stop))?);
        Ok(this)
    }

    fn stop(&mut self) -> Result<()> {
        self.stop.raise();
        if let Some(thread) = self.thread.take() {
            // The burning thread cannot panic: it only reads the clock and waits.
            let _ = thread.join();
        }
        Ok(self.placed.take().map_or(Ok(()), |placed| placed.restore())?)
    }
}

impl Drop for Burning {
    fn drop(&mut self) {
        // Nobody is left to hear of an error here; whoever wants to know calls stop().
        let _ = self.stop();
    }
}

/// Pins the thread and raises its weight, so that no ordinary neighbour of its group gets its timeslices. (Weighing is by
/// group: a nice value does not hold off processes of another session or cgroup.) Returns the thread as it was.
fn place(thread: &Thread, cpu: usize) -> Result<SavedThread> {
    let attr = preemptible_attr(thread.tid)?;
    let saved = SavedThread::of(thread.tid)?;
    thread.refuse_another()?;
    thread.pin(cpu)?;
    match attr.favoured().set(thread.tid) {
        Ok(()) => Ok(saved),
        Err(error) => {
            // The error is worth more than one of undoing.
            let _ = saved.restore();
            Err(match error.raw_os_error() {
                Some(libc::EPERM) => ContentionError::NotRoot,
                _ => ContentionError::os("lowering the vCPU thread's nice value", error),
            })
        }
    }
}

/// Returns the thread's attributes, or refuses a thread that outranks the burner: it would run through every off-time.
fn preemptible_attr(tid: Tid) -> Result<SchedAttr> {
    let attr = SchedAttr::of(tid)
        .map_err(|error| ContentionError::os(format!("reading the policy of thread {tid}"), error))?;
    let policy = match attr.policy {
        SCHED_DEADLINE => "SCHED_DEADLINE",
        SCHED_FIFO if attr.priority >= PRIORITY => "SCHED_FIFO",
        SCHED_RR if attr.priority >= PRIORITY => "SCHED_RR",
        _ => return Ok(attr),
    };
    Err(ContentionError::NotPreemptible { tid, policy, priority: PRIORITY })
}

/// Starts the burning thread and returns when it has its CPU and priority, or the reason why it has not.
fn start_burning(cpu: usize, off_times: OffTimes, stop: Arc<StopFlag>) -> Result<JoinHandle<()>> {
    let (ready, wait_ready) = mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name(format!("burner/{cpu}"))
        .spawn(move || {
            let prepared = get_ready(cpu);
            let failed = prepared.is_err();
            // The receiver waits below until it has this, so sending cannot fail.
            let _ = ready.send(prepared);
            if !failed {
                burn(off_times, &stop);
            }
        })
        .map_err(|error| ContentionError::os("starting the burner thread", error))?;
    wait_ready.recv().expect("the burner thread always says how its start went")?;
    Ok(thread)
}

/// Makes the calling thread the one that can take `cpu` away.
fn get_ready(cpu: usize) -> Result<()> {
    let tid = gettid().as_raw();
    Thread::find(tid)?.pin(cpu)?;
    // No timer slack. clock_nanosleep(2) ignores slack for real-time threads, but futex(2) only does since 6.12
    // (kernel/sched/syscalls.c sets it to 0 with the policy); before, a wait may be 50 us late. This cannot fail.
    let _ = prctl::set_timerslack(1);
    SchedAttr::fifo(PRIORITY).set(tid).map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) if geteuid().is_root() => ContentionError::NoRealTimeBudget,
        Some(libc::EPERM) => ContentionError::NotRoot,
        _ => ContentionError::os("giving the burner SCHED_FIFO", error),
    })
}

fn burn(off_times: OffTimes, stop: &StopFlag) {
    for off in off_times {
        if clock::now() >= off.end {
            // Missed altogether, say while the machine was suspended: do not burn the backlog.
            continue;
        }
        if !stop.sleep_until(off.begin) || !spin_through(off, stop) {
            return;
        }
    }
}

/// Occupies the CPU until the off-time ends. Returns false when told to stop.
fn spin_through(off: OffTime, stop: &StopFlag) -> bool {
    while clock::now() < off.end {
        if stop.is_raised() {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Tells the burning thread to stop, also while it sleeps.
///
/// It is a futex, because FUTEX_WAIT_BITSET sleeps until an absolute time as clock_nanosleep(2) does and yet wakes at once
/// when the flag is raised. The alternatives are worse: sleeping in short pieces would take the CPU in the timeslice, and a
/// signal would need a handler in somebody else's process (Python).
#[derive(Debug, Default)]
struct StopFlag {
    raised: AtomicU32,
}

impl StopFlag {
    fn raise(&self) {
        self.raised.store(1, Ordering::Release);
        // SAFETY: the futex word lives as long as `self`.
        unsafe {
            libc::syscall(libc::SYS_futex, self.raised.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }

    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Acquire) != 0
    }

    /// Sleeps until CLOCK_MONOTONIC time `until_ns`. Returns false when told to stop.
    fn sleep_until(&self, until_ns: u64) -> bool {
        while !self.is_raised() {
            match self.wait(until_ns) {
                Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => return true,
                // Woken, interrupted by a signal, or the flag changed before the wait: look again.
                _ => continue,
            }
        }
        false
    }

    fn wait(&self, until_ns: u64) -> io::Result<()> {
        let until = TimeSpec::from_duration(Duration::from_nanos(until_ns));
        // SAFETY: the futex word lives as long as `self`, and the kernel only reads `until`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.raised.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                0,
                until.as_ref(),
                ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_sleeping_burner_wakes_at_once_when_told_to_stop() {
        let stop = Arc::new(StopFlag::default());
        let sleeper = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || stop.sleep_until(clock::now() + 60_000_000_000))
        };
        let begun = Instant::now();
        thread::sleep(Duration::from_millis(20));
        stop.raise();
        assert!(!sleeper.join().unwrap());
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_sleep_ends_at_its_time_and_not_before() {
        let until_ns = clock::now() + 5_000_000;
        assert!(StopFlag::default().sleep_until(until_ns));
        assert!(clock::now() >= until_ns);
    }
}
