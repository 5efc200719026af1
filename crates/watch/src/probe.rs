//! Is the CPU taken away? A thread that wakes at fixed times, ahead of all ordinary tasks, and counts how often it is late.
//!
//! Where the hypervisor tells steal this says the same; under TCG and in many containers nothing else tells. Only with the
//! priority is it told from a host that is merely busy with its own work, which TCP's timers do not wait for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_nanosleep, ClockId, ClockNanosleepFlags};

/// On average. Never the same twice in a row: a timeslice's period may divide any fixed one, and would be seen always at the
/// same phase.
const EVERY: Duration = Duration::from_millis(20);
/// Multiples of it, without what is before the point, are spread evenly (the golden ratio).
const SPREAD: f64 = 0.618_033_988_75;
/// Softirqs, the network's among them, hand over to a thread after that long (MAX_SOFTIRQ_TIME, kernel/softirq.c): what is
/// later was not kept by the host's own work.
const LATE: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct Counts {
    wakes: AtomicU64,
    late: AtomicU64,
    stop: AtomicBool,
}

#[derive(Debug)]
pub struct Probe {
    counts: Arc<Counts>,
    before: (u64, u64),
}

impl Probe {
    /// None without the privilege (CAP_SYS_NICE).
    pub fn start() -> Option<Probe> {
        let counts = Arc::new(Counts::default());
        let (theirs, (tell, told)) = (Arc::clone(&counts), std::sync::mpsc::channel());
        thread::Builder::new()
            .name("brobust-probe".into())
            .spawn(move || {
                let granted = ahead_of_all();
                if tell.send(granted).is_ok() && granted {
                    wake(&theirs);
                }
            })
            .ok()?;
        told.recv().ok()?.then_some(Probe { counts, before: (0, 0) })
    }

    /// Of the wakes since the last look, the part that was late. None if there was none.
    pub fn look(&mut self) -> Option<f64> {
        let now = (self.counts.wakes.load(Ordering::Relaxed), self.counts.late.load(Ordering::Relaxed));
        let (wakes, late) = (now.0 - self.before.0, now.1 - self.before.1);
        self.before = now;
        (wakes > 0).then(|| late as f64 / wakes as f64)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
    }
}

/// SCHED_FIFO, and exact timers, for this thread.
fn ahead_of_all() -> bool {
    let _ = prctl::set_timerslack(1);
    let least = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives as long as the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &least) == 0 }
}

fn wake(counts: &Counts) {
    let (mut grid, mut number) = (now(), 0.0_f64);
    while !counts.stop.load(Ordering::Relaxed) {
        (grid, number) = (grid + EVERY, number + 1.0);
        let due = grid + EVERY.mul_f64((number * SPREAD).fract());
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &TimeSpec::from(due));
        let late = now().saturating_sub(due);
        counts.wakes.fetch_add(1, Ordering::Relaxed);
        if late > LATE {
            counts.late.fetch_add(1, Ordering::Relaxed);
        }
        // What was slept over is not made up for: a wake in the past would be late by our own doing.
        grid += EVERY * u32::try_from(late.as_nanos() / EVERY.as_nanos()).unwrap_or(0);
    }
}

fn now() -> Duration {
    // CLOCK_MONOTONIC cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
