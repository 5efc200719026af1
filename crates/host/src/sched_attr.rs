//! sched_setattr(2) and sched_getattr(2), which libc has no functions for.
use std::io;
use std::mem;
use std::thread;

use nix::errno::Errno;

const SCHED_OTHER: u32 = libc::SCHED_OTHER as u32;
const SCHED_BATCH: u32 = libc::SCHED_BATCH as u32;
pub const SCHED_FIFO: u32 = libc::SCHED_FIFO as u32;
pub const SCHED_RR: u32 = libc::SCHED_RR as u32;
pub const SCHED_DEADLINE: u32 = libc::SCHED_DEADLINE as u32;

/// include/linux/sched/prio.h, MIN_NICE: 87 times the weight of nice 0.
const MIN_NICE: i32 = -20;

/// include/uapi/linux/sched/types.h, version 0 (48 bytes): the later fields are the utilization clamps, which the
/// kernel leaves as they are when they are not passed.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SchedAttr {
    /// `set` fills it in.
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime_ns: u64,
    pub deadline_ns: u64,
    pub period_ns: u64,
}

impl SchedAttr {
    /// Gives a thread `runtime_ns` of CPU at the beginning of every period, then none until the next.
    ///
    /// deadline = runtime (not = period), as in the 2BRobust paper, section 4.2: the earliest deadline wins, so the
    /// thread gets its time in one piece and at once. Without SCHED_FLAG_RECLAIM: reclaiming would hand it unused
    /// bandwidth of others, and the share would not be exact (Documentation/scheduler/sched-deadline.rst, 2.3).
    ///
    /// With SCHED_FLAG_RESET_ON_FORK, since the kernel lets no deadline thread fork without it, and a User-Mode Linux
    /// forks for every process of its own.
    pub fn deadline(runtime_ns: u64, period_ns: u64) -> Self {
        let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
        Self { policy: SCHED_DEADLINE, flags, runtime_ns, deadline_ns: runtime_ns, period_ns, ..Self::default() }
    }

    /// Returns the part of a CPU that a deadline thread gets.
    pub fn share(&self) -> f64 {
        // The kernel takes a period of 0 for the deadline.
        let period_ns = if self.period_ns == 0 { self.deadline_ns } else { self.period_ns };
        self.runtime_ns as f64 / period_ns as f64
    }

    pub fn fifo(priority: u32) -> Self {
        Self { policy: SCHED_FIFO, priority, ..Self::default() }
    }

    /// Returns the same with the largest weight, where the policy has nice values.
    pub fn favoured(self) -> Self {
        match self.policy {
            SCHED_OTHER | SCHED_BATCH => Self { nice: MIN_NICE, ..self },
            _ => self,
        }
    }

    /// Returns those of a thread. An ordinary one has no runtime: what the kernel tells as such since 6.12 is its slice,
    /// which would be a choice of ours if it were set ([`chosen_slice`]).
    pub fn of(tid: i32) -> io::Result<Self> {
        let mut attr = Self::as_told(tid)?;
        if attr.policy != SCHED_DEADLINE {
            attr.runtime_ns = 0;
        }
        Ok(attr)
    }

    fn as_told(tid: i32) -> io::Result<Self> {
        let mut attr = Self::default();
        let size = mem::size_of::<Self>();
        // SAFETY: the kernel writes at most `size` bytes into `attr`.
        Errno::result(unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &mut attr, size, 0) })?;
        Ok(attr)
    }

    /// Gives `tid` these attributes; 0 is the calling thread.
    pub fn set(mut self, tid: i32) -> io::Result<()> {
        self.size = mem::size_of::<Self>() as u32;
        // SAFETY: the kernel reads `size` bytes of `self`.
        Errno::result(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &self, 0) })?;
        Ok(())
    }
}

/// Returns the slice that somebody has chosen for an ordinary thread, ns; 0 for none. The kernel tells the slice of each
/// (6.12 and later), and not whether it is a choice: one that nobody has chosen is as long as that of any such thread.
pub(crate) fn chosen_slice(tid: i32) -> io::Result<u64> {
    match SchedAttr::as_told(tid)? {
        SchedAttr { policy: SCHED_OTHER | SCHED_BATCH, runtime_ns: slice_ns @ 1.., .. } => {
            Ok(slice_of_nobodys_choice().filter(|usual_ns| *usual_ns != slice_ns).map_or(0, |_| slice_ns))
        }
        _ => Ok(0),
    }
}

/// Returns the slice of a thread that asks for none: a new one of ours, which would have inherited another. None where that
/// cannot be started, or may not ask.
fn slice_of_nobodys_choice() -> Option<u64> {
    let ask = || {
        let SchedAttr { nice, .. } = SchedAttr::of(0)?;
        SchedAttr { policy: SCHED_OTHER, nice, ..SchedAttr::default() }.set(0)?;
        SchedAttr::as_told(0).map(|attr| attr.runtime_ns)
    };
    thread::Builder::new().spawn(ask).ok()?.join().ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::SchedAttr;

    #[test]
    fn what_is_given_back_to_an_ordinary_thread_is_no_slice_that_it_would_keep() {
        let own = SchedAttr::of(0).expect("it lives");
        assert_eq!((own.runtime_ns, own.deadline_ns, own.period_ns), (0, 0, 0));
    }
}
