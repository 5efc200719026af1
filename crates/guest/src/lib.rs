//! What brobust runs on the machine of a sender or a receiver, as `brobust-host lab`: in test VMs, and on the hosts of
//! backend lab.
//!
//! What is measured is the CPU of that machine. So every part sleeps in the kernel (read, epoll, waitpid, an absolute
//! timer) while it has nothing to do, and no part polls.

pub mod agent;
pub mod cc;
pub mod sample;
pub mod spin;
pub mod watch;
