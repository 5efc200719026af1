//! How threads are named.

/// A thread id as the kernel counts them (gettid(2)); for a QEMU vCPU, `thread-id` of `query-cpus-fast`.
pub type Tid = libc::pid_t;
