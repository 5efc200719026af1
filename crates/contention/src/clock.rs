//! CLOCK_MONOTONIC in ns: the clock of the burner, of the recorder's BPF program and of Python's time.monotonic_ns.
use std::mem;

const NS_PER_S: u64 = 1_000_000_000;

pub fn now() -> u64 {
    // SAFETY: all zeros is a valid timespec; the clock exists on every Linux, so the call cannot fail.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time
    };
    time.tv_sec as u64 * NS_PER_S + time.tv_nsec as u64
}

pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / NS_PER_S) as libc::time_t, tv_nsec: (ns % NS_PER_S) as libc::c_long }
}
