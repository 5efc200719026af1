//! CLOCK_MONOTONIC in ns: the clock of the burner, of the recorder's BPF program and of Python's time.monotonic_ns.
use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

pub fn now() -> u64 {
    // Reading CLOCK_MONOTONIC cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}
