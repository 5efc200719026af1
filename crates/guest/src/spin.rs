//! `spin`: keeps every vCPU busy while the guest has nothing else to do.
//!
//! The host thread of an idle vCPU sleeps, and a thread that sleeps does not use the timeslice that it is given: the
//! guest would not get what the contention driver applies. At SCHED_IDLE the loop gives way to everything else.

use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::thread;

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Runs until SIGTERM, which it also gets when its parent dies. It returns only if it cannot begin.
pub fn run() -> Result<()> {
    let parent = parent_id();
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot tie the loop to its parent")?;
    if parent_id() != parent {
        bail!("the parent has ended already");
    }
    let here = Pid::from_raw(0);
    let allowed = sched_getaffinity(here).context("cannot read the CPUs allowed to us")?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect();
    be_idle().context("cannot change to SCHED_IDLE")?;
    thread::scope(|scope| {
        // Threads inherit SCHED_IDLE.
        for cpu in cpus {
            scope.spawn(move || {
                let mut only = CpuSet::new();
                if only.set(cpu).and_then(|()| sched_setaffinity(here, &only)).is_ok() {
                    spin();
                }
            });
        }
    });
    bail!("no CPU to spin on")
}

fn be_idle() -> nix::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: a plain system call on ourselves.
    Errno::result(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) }).map(drop)
}

/// Counts for ever. It does not use the PAUSE instruction of std::hint::spin_loop: hypervisors take a loop of PAUSE for
/// a thread that waits for a lock, and deschedule it.
fn spin() -> ! {
    let mut count = 0_u64;
    loop {
        count = black_box(count.wrapping_add(1));
    }
}
