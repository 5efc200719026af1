//! One thread of the host: whether it still lives, where it may run, how much CPU time it has used.
use std::fs;

use brobust_host::threads::pin;
use brobust_host::Stat;

use crate::error::{ContentionError, Result};
use crate::tid::Tid;

/// A thread id together with its start time: ids are reused, the pair is not. What is undone later is undone on the same
/// thread or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    pub tid: Tid,
    started: u64,
}

impl Thread {
    pub fn find(tid: Tid) -> Result<Self> {
        let Stat { started, .. } = Stat::read(tid).ok_or(ContentionError::NoThread { tid })?;
        Ok(Self { tid, started })
    }

    /// Refuses to go on if the thread has ended, whoever has its id now.
    pub fn refuse_another(&self) -> Result<()> {
        self.state().map(drop).ok_or(ContentionError::NoThread { tid: self.tid })
    }

    /// Returns `R` if it runs or wants to, another letter if it sleeps, None if it has ended.
    pub fn state(&self) -> Option<char> {
        let stat = Stat::of_living(self.tid)?;
        (stat.started == self.started).then_some(stat.state)
    }

    /// Returns the CPU time used so far, ns (Documentation/scheduler/sched-stats.rst); None if it has ended or the kernel does not
    /// count.
    pub fn run_ns(&self) -> Option<u64> {
        let schedstat = fs::read_to_string(format!("/proc/{}/schedstat", self.tid)).ok()?;
        schedstat.split(' ').next()?.parse().ok()
    }

    /// Pins the thread to one CPU.
    pub fn pin(&self, cpu: usize) -> Result<()> {
        pin(self.tid, cpu).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => ContentionError::Cpu { cpu, tid: self.tid },
            Some(libc::ESRCH) => ContentionError::NoThread { tid: self.tid },
            _ => ContentionError::os(format!("setting the CPU affinity of thread {}", self.tid), error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_a_name_that_is_no_utf8_lives() {
        let renamed = || {
            let tid = nix::unistd::gettid().as_raw();
            let thread = Thread::find(tid).unwrap();
            fs::write(format!("/proc/self/task/{tid}/comm"), b"\xff").unwrap();
            assert!(thread.refuse_another().is_ok());
        };
        std::thread::spawn(renamed).join().unwrap();
    }

    #[test]
    fn a_thread_that_never_was_is_named_in_the_error() {
        let error = Thread::find(Tid::MAX).unwrap_err();
        assert!(error.to_string().contains(&Tid::MAX.to_string()));
    }

    #[test]
    fn the_calling_thread_is_alive_and_a_reused_id_is_not_mistaken_for_it() {
        let thread = Thread::find(nix::unistd::gettid().as_raw()).unwrap();
        assert!(thread.refuse_another().is_ok());
        let earlier = Thread { started: thread.started + 1, ..thread };
        assert!(earlier.refuse_another().is_err());
    }

    #[test]
    fn a_cpu_beyond_every_kernel_is_refused() {
        let thread = Thread::find(nix::unistd::gettid().as_raw()).unwrap();
        assert!(matches!(thread.pin(1_000_000), Err(ContentionError::Cpu { cpu: 1_000_000, .. })));
    }
}
