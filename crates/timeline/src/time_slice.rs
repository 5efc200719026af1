//! One timeslice.

/// The end of a timeslice that has no end.
pub const NEVER: u64 = u64::MAX;

/// The CPU may run from `begin` until `end`, ns. Laid out as in C, since kernels in virtual time read it from the memory
/// that they share with the simulation.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSlice {
    pub begin: u64,
    pub end: u64,
}

pub(crate) fn on_clock(time: i128) -> u64 {
    time.clamp(0, NEVER.into()) as u64
}
