//! What every way of taking the CPU away from threads can do.
use std::fmt::Debug;

use brobust_timeline::Schedule;

use crate::error::Result;
use crate::tid::Tid;

/// A thread that is to be put under contention.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub tid: Tid,
    /// The CPU that the thread is to be pinned to; None where the driver needs no CPU of the thread's own.
    pub cpu: Option<usize>,
    pub schedule: Schedule,
}

/// Threads under contention. When dropped, it stops.
pub trait Driver: Debug + Send + Sync {
    /// Puts under contention each thread that is not, or releases all of them and says why.
    fn start(&mut self) -> Result<()>;

    /// Returns true when every thread is seen to be under contention; false if `start` has to be called again.
    fn settle(&mut self) -> Result<bool> {
        Ok(true)
    }

    /// Ends the contention and restores every thread; a second call does nothing. A thread that has ended needs nothing; if
    /// one cannot be restored, the others are, and the first error is returned.
    fn stop(&mut self) -> Result<()>;
}
