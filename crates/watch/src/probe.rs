//! Finds out whether the CPU is taken away: a thread wakes up at fixed times, ahead of all ordinary tasks, and counts
//! how often it is late.
//!
//! Where the hypervisor reports steal, this says the same; under TCG and in many containers nothing else says it.
//! Because of its priority the thread does not wait for the host's own work, for which TCP's timers do not wait either.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use brobust_host::sched_attr::SchedAttr;
use nix::libc;
use nix::sys::prctl;
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_nanosleep, ClockId, ClockNanosleepFlags};

/// Mean time between two wake-ups. The time varies: with a fixed one, a period that divides it would always be met at
/// the same phase.
const MEAN_INTERVAL: Duration = Duration::from_millis(20);
/// The golden ratio, whose multiples have fractional parts that are evenly distributed.
const GOLDEN_RATIO: f64 = 0.618_033_988_75;
/// A wake-up that is later than this was not delayed by the host's own work: softirqs, the network's among them, hand
/// over to a thread after this long (MAX_SOFTIRQ_TIME, kernel/softirq.c).
const LATE: Duration = Duration::from_millis(2);

#[derive(Debug, Default)]
struct Counts {
    wake_ups: AtomicU64,
    late: AtomicU64,
}

pub struct Probe(Arc<Counts>);

impl Probe {
    /// Starts the thread, which ends with the probe. None without the privilege (CAP_SYS_NICE).
    pub fn start() -> Option<Probe> {
        let counts = Arc::new(Counts::default());
        let (theirs, (sender, granted)) = (Arc::downgrade(&counts), std::sync::mpsc::channel());
        thread::Builder::new()
            .name("brobust-probe".into())
            .spawn(move || {
                let granted = take_priority();
                if sender.send(granted).is_ok() && granted {
                    keep_waking_up(&theirs);
                }
            })
            .ok()?;
        granted.recv().ok()?.then_some(Probe(counts))
    }

    /// Returns the share of the wake-ups since the previous call that were late. None if there were no wake-ups.
    pub fn late_share(&mut self) -> Option<f64> {
        let [wake_ups, late] = [&self.0.wake_ups, &self.0.late].map(|count| count.swap(0, Ordering::Relaxed));
        (wake_ups > 0).then(|| late as f64 / wake_ups as f64)
    }
}

/// Puts this thread ahead of all ordinary tasks (SCHED_FIFO), with exact timers. Returns whether the kernel allowed it.
fn take_priority() -> bool {
    let _ = prctl::set_timerslack(1);
    let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    SchedAttr { flags, ..SchedAttr::fifo(1) }.set(0).is_ok()
}

fn keep_waking_up(counts: &Weak<Counts>) {
    let (mut grid, mut number) = (now(), 0.0_f64);
    while let Some(counts) = counts.upgrade() {
        (grid, number) = (grid + MEAN_INTERVAL, number + 1.0);
        let due = grid + MEAN_INTERVAL.mul_f64((number * GOLDEN_RATIO).fract());
        let _ = clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &TimeSpec::from(due));
        let late = now().saturating_sub(due);
        counts.wake_ups.fetch_add(1, Ordering::Relaxed);
        if late > LATE {
            counts.late.fetch_add(1, Ordering::Relaxed);
        }
        // Wake-ups that were missed are left out: one whose time is past would be late because of us.
        grid += MEAN_INTERVAL * u32::try_from(late.as_nanos() / MEAN_INTERVAL.as_nanos()).unwrap_or(0);
    }
}

fn now() -> Duration {
    // Reading CLOCK_MONOTONIC cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
