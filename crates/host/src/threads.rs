//! A thread's scheduling before contention, saved so that it can be restored even after brobust was killed.

use std::io;

use nix::errno::Errno;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::owner::start_time;
use crate::refusal::reason;
use crate::sched_attr::{chosen_slice, SchedAttr, SCHED_DEADLINE};
use crate::{Refusal, Result, Stat};

/// Policy, priority, nice value, slice and CPUs of a thread; `started` tells it from a later one with the same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedThread {
    pub tid: i32,
    pub started: u64,
    pub cpus: Vec<usize>,
    policy: u32,
    /// Absent in what 0.2.0 has written.
    #[serde(default)]
    flags: u64,
    priority: u32,
    nice: i32,
    /// ns; 0: nobody has chosen one. Absent in what 0.2.0 has written.
    #[serde(default)]
    slice_ns: u64,
}

impl SavedThread {
    pub fn of(tid: i32) -> Result<Self> {
        let gone = || unread(tid, &io::Error::from_raw_os_error(libc::ESRCH));
        let started = start_time(tid).ok_or_else(gone)?;
        let SchedAttr { policy, flags, priority, nice, .. } =
            SchedAttr::of(tid).map_err(|error| unread(tid, &error))?;
        let slice_ns = chosen_slice(tid).map_err(|error| unread(tid, &error))?;
        let cpus = cpus_of(tid).map_err(|error| unread(tid, &error))?;
        Ok(Self { tid, started, cpus, policy, flags, priority, nice, slice_ns })
    }

    pub fn is_under_deadline(&self) -> bool {
        self.policy == SCHED_DEADLINE
    }

    /// Returns whether the id still belongs to this thread.
    pub(crate) fn is_same(&self) -> bool {
        start_time(self.tid) == Some(self.started)
    }

    /// Refuses to go on if the thread has ended, whoever has its id now.
    pub fn refuse_another(&self) -> Result<()> {
        if self.is_same() {
            return Ok(());
        }
        Err(Refusal::bad_input(format!("thread {} has ended: is the VM still running?", self.tid)))
    }

    /// Returns whether the thread still lives and differs from what was saved.
    pub(crate) fn is_altered(&self) -> bool {
        self.is_same() && Self::of(self.tid).is_ok_and(|now| now != *self)
    }

    /// Restores the thread; one that has ended needs nothing.
    pub fn restore(&self) -> Result<()> {
        if !self.is_altered() {
            return Ok(());
        }
        match self.set() {
            Err(error) if self.is_same() => {
                let text = format!("thread {} could not be restored: {}", self.tid, reason(&error));
                Err(Refusal::missing_support(text))
            }
            _ => Ok(()),
        }
    }

    fn set(&self) -> io::Result<()> {
        let Self { policy, flags, priority, nice, slice_ns, .. } = *self;
        let leaves_deadline = SchedAttr::of(self.tid)?.policy == SCHED_DEADLINE && policy != SCHED_DEADLINE;
        // A killed process may have left it there in its sleep.
        if leaves_deadline && !is_awake(self.tid) {
            shrink_deadline(self.tid);
        }
        SchedAttr { policy, flags, priority, nice, runtime_ns: slice_ns, ..SchedAttr::default() }.set(self.tid)?;
        // A thread of SCHED_IDLE has a nice value, too, which sched_setattr(2) does not set.
        if SchedAttr::of(self.tid)?.nice != nice {
            set_nice(self.tid, nice)?;
        }
        if cpus_of(self.tid)? == self.cpus {
            return Ok(());
        }
        // Since 6.2 the kernel remembers which CPUs somebody has chosen for a thread, and keeps it from those that its
        // cpuset or the host gets later. So none are chosen if those of its cpuset are the ones that it had.
        set_cpus(self.tid, &(0..CpuSet::count()).collect::<Vec<_>>())?;
        match cpus_of(self.tid)? == self.cpus {
            true => Ok(()),
            false => set_cpus(self.tid, &self.cpus),
        }
    }
}

fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    // SAFETY: plain numbers.
    Ok(Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, tid as libc::id_t, nice) }).map(drop)?)
}

/// Returns why a thread's scheduling is not known. EINVAL: the host may have more CPUs than a set of ours has room for.
fn unread(tid: i32, error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        Some(libc::ESRCH) => {
            Refusal::bad_input(format!("there is no thread {tid} (any more): is the VM still running?"))
        }
        Some(libc::EINVAL) => Refusal::missing_support(format!(
            "the CPUs of thread {tid} cannot be read: this host may have more than the {} that brobust knows",
            CpuSet::count()
        )),
        _ => Refusal::missing_support(format!("the scheduling of thread {tid} cannot be read ({})", reason(error))),
    }
}

/// kernel/sched/deadline.c, __checkparam_dl: DL_SCALE is 10, so below 1024 ns the bandwidth would round to nothing.
pub const MIN_RUNTIME_NS: u64 = 1 << 10;

/// The smallest runtime in a period of this length is a bandwidth of 0, since bandwidths are counted in units of 2^-20
/// (kernel/sched/core.c, to_ratio).
const PERIOD_OF_NO_BANDWIDTH_NS: u64 = 1_100_000_000;
const _: () = assert!((MIN_RUNTIME_NS << 20) / PERIOD_OF_NO_BANDWIDTH_NS == 0);

/// Shrinks the bandwidth of a sleeping thread to nothing while it still is a deadline thread.
///
/// The kernel (6.18 at least) forgets to take a thread off the admitted sum if it leaves SCHED_DEADLINE in its sleep:
/// switched_from_dl leaves that to a timer which is armed only for threads that run. After a few restored idle vCPUs the
/// whole host gets EBUSY until its cpusets are rebuilt. A change of parameters is booked at once (sched_dl_overflow).
/// Threads that are awake are left alone by callers: they are booked correctly, and they would be throttled under the new
/// parameters and take that into their next time under SCHED_DEADLINE.
pub fn shrink_deadline(tid: i32) {
    let nothing = SchedAttr::deadline(MIN_RUNTIME_NS, PERIOD_OF_NO_BANDWIDTH_NS);
    // If this fails the thread is restored nevertheless, which is what matters to it.
    let _ = nothing.set(tid);
}

fn is_awake(tid: i32) -> bool {
    Stat::read(tid).is_some_and(|stat| stat.state == 'R')
}

/// Returns the CPUs that a thread may run on, in order.
pub fn cpus_of(tid: i32) -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(tid))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu) == Ok(true)).collect())
}

/// Confines a thread to one CPU. Nothing is chosen for one that has no other.
pub fn pin(tid: i32, cpu: usize) -> io::Result<()> {
    match cpus_of(tid)? == [cpu] {
        true => Ok(()),
        false => set_cpus(tid, &[cpu]),
    }
}

pub fn set_cpus(tid: i32, cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        let _ = set.set(*cpu); // beyond the end of the set: it is left out
    }
    Ok(sched_setaffinity(Pid::from_raw(tid), &set)?)
}

#[cfg(test)]
mod tests {
    use super::{SavedThread, SchedAttr};
    use std::process::Command;

    #[test]
    fn a_thread_is_what_it_was_after_it_was_pinned_and_niced() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let pid = child.id() as i32;
        let found = SavedThread::of(pid).expect("it lives");
        for (policy, nice) in [(found.policy, 7), (libc::SCHED_IDLE as u32, 9)] {
            SchedAttr { policy, nice: found.nice, ..SchedAttr::default() }.set(pid).expect("our own child");
            let before = SavedThread::of(pid).expect("it lives");
            assert!(!before.is_altered());
            super::set_cpus(pid, &before.cpus[..1]).expect("our own child");
            super::set_nice(pid, nice).expect("our own child");
            assert!(before.is_altered());
            // Only root may lower a nice value again.
            if nix::unistd::geteuid().is_root() {
                before.restore().expect("restored");
                assert_eq!(SavedThread::of(pid), Ok(before));
            }
        }
        child.kill().and_then(|()| child.wait()).expect("it has ended");
        found.restore().expect("one that has ended needs nothing");
        assert!(SavedThread::of(pid).unwrap_err().text.contains(&format!("there is no thread {pid}")));
    }

    #[test]
    fn a_slice_that_somebody_has_chosen_is_given_back() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let pid = child.id() as i32;
        let SchedAttr { nice, .. } = SchedAttr::of(pid).expect("it lives");
        let found = [0, 5_000_000, 0].map(|runtime_ns| {
            SchedAttr { nice, runtime_ns, ..SchedAttr::default() }.set(pid).expect("our own child");
            SavedThread::of(pid).expect("it lives")
        });
        let is_altered = found[1].is_altered();
        found[1].restore().expect("restored");
        let now = SavedThread::of(pid);
        child.kill().and_then(|()| child.wait()).expect("it has ended");
        assert_eq!((found[0].slice_ns, &found[0], now.as_ref()), (0, &found[2], Ok(&found[1])));
        if is_altered {
            assert_eq!(found[1].slice_ns, 5_000_000);
        } else {
            println!("skipped: this kernel takes no slice for a thread, which came with Linux 6.12");
        }
    }

    #[test]
    fn only_a_thread_that_is_not_there_is_said_to_be_gone() {
        let said = |number| super::unread(7, &std::io::Error::from_raw_os_error(number)).text;
        assert!(said(libc::ESRCH).contains("there is no thread 7"));
        assert!(said(libc::EINVAL).contains("more than the 1024"));
        assert!(said(libc::EACCES).ends_with("cannot be read (permission denied)"));
    }

    #[test]
    fn a_thread_that_has_the_id_of_the_saved_one_is_not_it() {
        let own = SavedThread::of(std::process::id() as i32).expect("it lives");
        let earlier = SavedThread { started: 1, nice: 5, ..own };
        assert!(!earlier.is_altered());
        assert!(earlier.refuse_another().unwrap_err().text.contains("has ended"));
    }

    #[test]
    fn a_thread_that_renames_itself_does_not_escape() {
        let renamed = || {
            let tid = nix::unistd::gettid().as_raw();
            let before = SavedThread::of(tid).expect("it lives");
            std::fs::write(format!("/proc/self/task/{tid}/comm"), b"\xff").expect("renamed");
            super::set_cpus(tid, &before.cpus[..1]).expect("our own thread");
            assert!(before.cpus.len() == 1 || before.is_altered());
            before.restore().expect("restored");
            assert_eq!(SavedThread::of(tid), Ok(before));
        };
        std::thread::spawn(renamed).join().expect("as asserted");
    }
}
