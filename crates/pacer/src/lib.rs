//! A pacer that keeps its schedule when the CPU was away, and a detector of such absences. The same rules as `pacer.h`;
//! README.md states them. Times are nanoseconds of any clock that does not go back, below 2^62; rates are bytes per
//! second, at most 10^12. Nothing here reads a clock, allocates, or fails.

#![no_std]
#![forbid(unsafe_code)]

mod detector;
mod repair;
mod rules;

pub use detector::{Detector, Sample, Verdict};
pub use rules::{Config, Pacer, Rule};
