//! What brobust runs where a sender or a receiver is: in its test VMs as `brobust-guest`, and on the hosts of backend lab
//! as a part of brobust-host.
//!
//! What is measured is the CPU of that machine. So every part sleeps in the kernel (read, epoll, waitpid, an absolute
//! timer) while it has nothing to do, and no part polls.

pub mod agent;
pub mod cc;
pub mod sample;
pub mod spin;
