//! Contention by a burner: a real-time thread on the vCPU thread's CPU that occupies it in the off-windows.
//!
//! The vCPU thread is pinned to that CPU, so while the burner spins it has nowhere to run. Edges are those of a
//! high-resolution timer, a few microseconds at any HZ. Costs the off-time of one CPU.
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};

use crate::clock;
use crate::error::{ContentionError, Result};
use crate::sched_attr::{SchedAttr, SCHED_DEADLINE, SCHED_FIFO, SCHED_RR};
use crate::schedule::{check_recorded, OffWindow, Schedule};
use crate::thread::{current_tid, CpuSet, Thread, Tid};

/// Above every ordinary thread, just below threaded interrupts (kernel/sched/syscalls.c, sched_set_fifo: 50), which
/// would else stand still in the off-windows; they need microseconds and give the CPU back to the burner.
const PRIORITY: u32 = 49;

/// One vCPU thread under contention. When dropped, ends it and restores the thread's affinity and nice value.
#[derive(Debug)]
pub struct Burner {
    stop: Arc<StopFlag>,
    burning: Option<JoinHandle<()>>,
    placed: Option<Placed>,
}

impl Burner {
    /// Pins `vcpu_tid` to `cpu` and takes that CPU away from it on `schedule`.
    pub fn start(vcpu_tid: Tid, cpu: usize, schedule: Schedule) -> Result<Self> {
        schedule.check()?;
        Self::take_away(vcpu_tid, cpu, schedule.windows(clock::now()))
    }

    /// Pins `vcpu_tid` to `cpu` and takes that CPU away from it in these windows, which count from `start_ns`
    /// (CLOCK_MONOTONIC). After the last it is left alone.
    pub fn replay(vcpu_tid: Tid, cpu: usize, recorded: &[OffWindow], start_ns: u64) -> Result<Self> {
        check_recorded(recorded)?;
        let from_start = |window: &OffWindow| OffWindow {
            begin_ns: start_ns.saturating_add(window.begin_ns),
            end_ns: start_ns.saturating_add(window.end_ns),
        };
        Self::take_away(vcpu_tid, cpu, recorded.iter().map(from_start).collect::<Vec<_>>().into_iter())
    }

    fn take_away(vcpu_tid: Tid, cpu: usize, windows: impl Iterator<Item = OffWindow> + Send + 'static) -> Result<Self> {
        let vcpu = Thread::find(vcpu_tid)?;
        let mut this = Self { stop: Arc::default(), burning: None, placed: Some(Placed::place(vcpu, cpu)?) };
        this.burning = Some(start_burning(cpu, windows, Arc::clone(&this.stop))?);
        Ok(this)
    }

    /// Ends the contention and makes the vCPU thread what it was before. Once is enough; again does nothing.
    pub fn stop(&mut self) -> Result<()> {
        self.stop.raise();
        if let Some(burning) = self.burning.take() {
            // The burning thread cannot panic: it only reads the clock and waits.
            let _ = burning.join();
        }
        match self.placed.take() {
            Some(placed) => placed.restore(),
            None => Ok(()),
        }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        // Nobody is left to hear of an error here; who wants to know calls stop().
        let _ = self.stop();
    }
}

/// A vCPU thread in its place, and what it was before.
#[derive(Debug)]
struct Placed {
    thread: Thread,
    cpus_before: CpuSet,
    attr_before: SchedAttr,
}

impl Placed {
    /// Pins the thread and lets no ordinary neighbour of its group have the on-windows: they are the vCPU's. (Weighing
    /// is by group: processes of another session or cgroup are not held off by a nice value.)
    fn place(thread: Thread, cpu: usize) -> Result<Self> {
        let attr_before = preemptible_attr(thread.tid)?;
        let this = Self { thread, cpus_before: thread.affinity()?, attr_before };
        thread.pin(cpu)?;
        match attr_before.favoured().set(thread.tid) {
            Ok(()) => Ok(this),
            Err(error) => {
                // The error is worth more than one of undoing.
                let _ = this.restore();
                Err(match error.raw_os_error() {
                    Some(libc::EPERM) => ContentionError::NotRoot,
                    _ => ContentionError::os("lowering the vCPU thread's nice value", error),
                })
            }
        }
    }

    fn restore(self) -> Result<()> {
        if !self.thread.is_alive() {
            return Ok(());
        }
        let tid = self.thread.tid;
        let attr =
            self.attr_before.set(tid).map_err(|error| ContentionError::os(format!("restoring thread {tid}"), error));
        match self.thread.set_affinity(&self.cpus_before).and(attr) {
            Err(_) if !self.thread.is_alive() => Ok(()),
            outcome => outcome,
        }
    }
}

/// The thread's attributes, unless it outranks the burner: it would run through every off-window.
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
fn start_burning(
    cpu: usize,
    windows: impl Iterator<Item = OffWindow> + Send + 'static,
    stop: Arc<StopFlag>,
) -> Result<JoinHandle<()>> {
    let (ready, wait_ready) = mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name(format!("burner/{cpu}"))
        .spawn(move || {
            let prepared = prepare(cpu);
            let failed = prepared.is_err();
            // The receiver waits below until it has this, so sending cannot fail.
            let _ = ready.send(prepared);
            if !failed {
                burn(windows, &stop);
            }
        })
        .map_err(|error| ContentionError::os("starting the burner thread", error))?;
    wait_ready.recv().expect("the burner thread always says how its start went")?;
    Ok(thread)
}

/// Makes the calling thread the one that can take `cpu` away.
fn prepare(cpu: usize) -> Result<()> {
    let tid = current_tid();
    Thread::find(tid)?.pin(cpu)?;
    be_punctual();
    SchedAttr::fifo(PRIORITY).set(tid).map_err(|error| match error.raw_os_error() {
        // SAFETY: geteuid has no arguments and cannot fail.
        Some(libc::EPERM) if unsafe { libc::geteuid() } == 0 => ContentionError::NoRealTimeBudget,
        Some(libc::EPERM) => ContentionError::NotRoot,
        _ => ContentionError::os("giving the burner SCHED_FIFO", error),
    })
}

/// No timer slack. clock_nanosleep(2) ignores slack for real-time threads, but futex(2) only does since 6.12
/// (kernel/sched/syscalls.c sets it to 0 with the policy); before, a wait may be 50 us late.
fn be_punctual() {
    // SAFETY: this prctl has no memory arguments.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

fn burn(windows: impl Iterator<Item = OffWindow>, stop: &StopFlag) {
    for window in windows {
        if clock::now() >= window.end_ns {
            // Missed altogether, say while the machine was suspended: do not burn the backlog.
            continue;
        }
        if !stop.sleep_until(window.begin_ns) || !spin_through(window, stop) {
            return;
        }
    }
}

/// Occupies the CPU until the window ends. False when told to stop.
fn spin_through(window: OffWindow, stop: &StopFlag) -> bool {
    while clock::now() < window.end_ns {
        if stop.is_raised() {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}

/// Tells the burning thread to stop, also while it sleeps.
///
/// A futex, because FUTEX_WAIT_BITSET sleeps until an absolute time as clock_nanosleep(2) does and yet wakes
/// at once when the flag is raised. The alternatives are worse: sleeping in short pieces would take the CPU in the
/// on-window, and a signal would need a handler in somebody else's process (Python).
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

    /// Sleeps until CLOCK_MONOTONIC time `until_ns`. False when told to stop.
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
        let until = clock::timespec(until_ns);
        // SAFETY: the futex word lives as long as `self`, and the kernel only reads `until`.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.raised.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                0,
                &until,
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
    use std::time::{Duration, Instant};

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

    #[test]
    fn a_bad_schedule_is_refused_before_the_thread_is_touched() {
        let error = Burner::start(Tid::MAX, 0, Schedule::new(0, 1)).unwrap_err();
        assert!(matches!(error, ContentionError::ZeroDuration { .. }));
    }
}
