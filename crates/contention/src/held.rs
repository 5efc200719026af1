//! Threads under contention on behalf of a session, by whichever driver: for runs and for `brobust contend`.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use brobust_host::cgroups::{self, Group};
use brobust_host::threads::{cpus_of, set_cpus};
use brobust_host::{reason, Refusal, Session};
use brobust_timeline::Schedule;

use crate::driver::{Driver, Target};
use crate::drivers;
use crate::error::{ContentionError, Result};
use crate::host::online_cpus;
use crate::tid::Tid;

const RUNTIME: &str = "kernel/sched_rt_runtime_us";

/// Refuses, before anything is started, what a driver could not do on this host for `count` threads, of which some may
/// exist already.
pub fn check(driver: &str, schedule: &Schedule, threads: &[Tid], count: usize) -> Result<()> {
    match driver {
        // Whoever may start processes may do this.
        "competitor" => Ok(()),
        "quota" => {
            let slices = drivers::constant_slices(schedule)?;
            cgroups::check(slices.timeslice, slices.period)?;
            threads.iter().try_for_each(|thread| cgroups::group_for(*thread, &[]).map(drop)).map_err(Into::into)
        }
        _ => drivers::check(driver, schedule, count),
    }
}

/// What has been begun for some threads. If it is dropped without `stop`, competitors and real-time threads end
/// nevertheless, and the session removes the cgroups.
#[derive(Debug)]
pub enum Held {
    Threads(Box<dyn Driver>),
    Groups(Vec<Group>),
    Competitors(Competitors),
}

impl Held {
    /// Begins. What remains when this process is killed is written down in the session. `begin_ns` (CLOCK_MONOTONIC): when
    /// the first period begins. `nice`: that of competitors, of which as many run beside a thread as give it its share.
    pub fn start(driver: &str, targets: Vec<Target>, begin_ns: u64, nice: i32, session: &mut Session) -> Result<Self> {
        let slices =
            || targets.first().map_or(Err(ContentionError::NoThreads), |one| drivers::constant_slices(&one.schedule));
        match driver {
            "quota" => {
                let tids: Vec<Tid> = targets.iter().map(|target| target.tid).collect();
                let slices = slices()?;
                Ok(Self::Groups(session.hold_groups(&tids, slices.timeslice, slices.period)?))
            }
            "competitor" => {
                let count = (1.0 / slices()?.share()).round() as usize - 1;
                let mut begun = Competitors(Vec::new());
                for cpu in targets.iter().filter_map(|target| target.cpu) {
                    for _ in 0..count {
                        begun.0.push(competitor(cpu, nice)?);
                    }
                }
                Ok(Self::Competitors(begun))
            }
            "deadline" => deadline(targets, session).map(Self::Threads),
            _ => {
                let mut held = drivers::prepare(driver, targets, Some(begin_ns))?;
                held.start()?;
                Ok(Self::Threads(held))
            }
        }
    }

    /// Ends it, and gives each thread back what it had.
    pub fn stop(self, session: &mut Session) -> Result<()> {
        match self {
            Self::Threads(mut threads) => threads.stop(),
            Self::Groups(groups) => Ok(session.release_groups(&groups)?),
            Self::Competitors(_) => Ok(()),
        }
    }
}

fn deadline(targets: Vec<Target>, session: &mut Session) -> Result<Box<dyn Driver>> {
    // The kernel pulls a DEADLINE thread that may run anywhere to whichever CPU is about to schedule: seen half the time on
    // that of a run's path guest, which it froze (Cubic at 50 %: 13 instead of 18.7 Mbit/s). It takes a thread that is
    // confined to some CPUs only while its bandwidth control is off (dl_task_check_affinity), which is for the moment of the
    // call; `start` counts what the host has admitted already.
    let is_confined = targets.iter().any(|target| cpus_of(target.tid).is_ok_and(|cpus| cpus.len() < online_cpus()));
    let mut held = drivers::prepare("deadline", targets, None)?;
    loop {
        // Until a thread that the kernel keeps from running does run, several periods of seconds may pass.
        session.say_alive()?;
        if is_confined {
            session.hold_sysctl(RUNTIME, "-1")?;
        }
        let started = held.start();
        let released = if is_confined { session.release_sysctl(RUNTIME) } else { Ok(()) };
        started.and(released.map_err(Into::into))?;
        if held.settle()? {
            return Ok(held);
        }
    }
}

/// Busy processes, which end when it is dropped.
#[derive(Debug)]
pub struct Competitors(Vec<Child>);

impl Drop for Competitors {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Starts a process that is always busy, on that CPU, with that weight. It dies with brobust.
fn competitor(cpu: usize, nice: i32) -> Result<Child> {
    let parent = std::process::id();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    let prepare = move || {
        // SAFETY: system calls with plain numbers, which may be made between fork and exec.
        unsafe {
            libc::setsid();
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // If the parent was killed before that, no signal comes.
            if libc::getppid() as u32 != parent || libc::setpriority(libc::PRIO_PROCESS, 0, nice) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        set_cpus(0, &[cpu])
    };
    // SAFETY: as said there.
    unsafe { command.pre_exec(prepare) };
    let process = command
        .spawn()
        .map_err(|error| Refusal::failed(format!("a busy process could not be started: {}", reason(&error))))?;
    // If the scheduler groups threads by session (autogroup), a thread's own nice value counts only within its group. A
    // kernel that does not group them has no such file.
    let _ = fs::write(format!("/proc/{}/autogroup", process.id()), nice.to_string());
    Ok(process)
}
