//! Threads under contention, by whichever driver.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use brobust_contention::{drivers, ContentionError, Target};
use brobust_host::cgroups::Group;
use brobust_host::threads::{cpus_of, set_cpus};
use brobust_host::{reason, Refusal, Result, Session};

use super::request::{Driver, Request};
use crate::random::drawn;

/// A thread, and the CPU that it is pinned to where the driver needs one of the thread's own.
pub type Place = (i32, Option<usize>);

const RUNTIME: &str = "kernel/sched_rt_runtime_us";

/// What has been begun for one request. If it is dropped without `stop`, competitors and real-time threads end
/// nevertheless, and the session removes the cgroups.
#[derive(Default)]
pub struct Contention {
    threads: Option<Box<dyn brobust_contention::Driver>>,
    groups: Vec<Group>,
    competitors: Vec<Child>,
}

impl Contention {
    /// Begins. What remains when this process is killed is written down in the session. `begin_ns` (CLOCK_MONOTONIC): when
    /// the first period begins.
    pub fn start(request: &Request, places: &[Place], session: &mut Session, begin_ns: u64) -> Result<Self> {
        let mut begun = Self::default();
        let tids: Vec<i32> = places.iter().map(|(tid, _)| *tid).collect();
        match request.driver {
            Driver::Deadline => begun.threads = Some(deadline(request, &tids, session)?),
            Driver::Burner | Driver::Replay => begun.threads = Some(burner(request, places, begin_ns).map_err(failed)?),
            Driver::Quota => begun.groups = session.hold_groups(&tids, request.timeslice_ns, request.period_ns())?,
            Driver::Competitor => {
                for cpu in places.iter().filter_map(|(_, cpu)| *cpu) {
                    for _ in 0..request.competitors {
                        begun.competitors.push(competitor(cpu, request.nice)?);
                    }
                }
            }
        }
        Ok(begun)
    }

    /// Ends it, and gives each thread back what it had.
    pub fn stop(mut self, session: &mut Session) -> Result<()> {
        if let Some(mut threads) = self.threads.take() {
            threads.stop().map_err(failed)?;
        }
        match self.groups.is_empty() {
            true => Ok(()),
            false => session.release_groups(&self.groups),
        }
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        for process in &mut self.competitors {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

pub fn failed(error: ContentionError) -> Refusal {
    Refusal::failed(error.to_string())
}

fn deadline(request: &Request, tids: &[i32], session: &mut Session) -> Result<Box<dyn brobust_contention::Driver>> {
    let target = |tid: &i32| Target { tid: *tid, cpu: None, schedule: request.schedule(0, 0) };
    let mut held = drivers::prepare("deadline", tids.iter().map(target).collect(), None).map_err(failed)?;
    // The kernel takes a thread that is confined to some CPUs only while its bandwidth control is off
    // (dl_task_check_affinity), which is for the moment of the call; `start` counts what the host has admitted already.
    // A thread that may run anywhere is pulled to whichever CPU is about to schedule, which may be any guest's.
    // SAFETY: sysconf takes a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } as usize;
    let is_confined = tids.iter().any(|tid| cpus_of(*tid).is_ok_and(|cpus| cpus.len() < online));
    loop {
        if is_confined {
            session.hold_sysctl(RUNTIME, "-1")?;
        }
        let started = held.start().map_err(failed);
        let released = if is_confined { session.release_sysctl(RUNTIME) } else { Ok(()) };
        started.and(released)?;
        if held.settle().map_err(failed)? {
            return Ok(held);
        }
    }
}

fn burner(
    request: &Request,
    places: &[Place],
    begin_ns: u64,
) -> brobust_contention::Result<Box<dyn brobust_contention::Driver>> {
    // One seed for all threads: those that go together stay together, whatever is drawn.
    let seed = drawn();
    let phases = request.phases_ns(places.len(), drawn);
    let target =
        |((tid, cpu), phase): (&Place, u64)| Target { tid: *tid, cpu: *cpu, schedule: request.schedule(phase, seed) };
    let targets = places.iter().zip(phases).map(target).collect();
    let mut held = drivers::prepare("burner", targets, Some(begin_ns))?;
    held.start()?;
    Ok(held)
}

/// Starts a process that is always busy, on that CPU, with that weight. It dies with brobust.
fn competitor(cpu: usize, nice: i32) -> Result<Child> {
    let parent = std::process::id();
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
    let prepare = move || {
        nix::unistd::setsid()?;
        // SAFETY: system calls with plain numbers, which may be made between fork and exec.
        unsafe {
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
