//! Finds the senders of this host that lack CPU. It reads every TCP socket at intervals, names what limits each over a
//! window of samples, and observes whether the host's CPU is taken away.
//!
//! A sweep is one dump of each network namespace that may have sockets ([`Watch::sweep`], reader.rs). sample.rs has what
//! one sample shows, cause.rs what a window of samples means, host.rs what the host reports about its CPUs, and owners/
//! whose the sockets are.

mod cause;
mod distribution;
mod flows;
mod groups;
mod history;
mod host;
mod ids;
mod memory;
mod namespaces;
mod owners;
mod probe;
mod reader;
mod report;
mod sample;
mod sweeps;
mod watch;
mod why;

pub use cause::{Cause, Evidence};
pub use distribution::Distribution;
pub use groups::Group;
pub use host::{Host, HostLoad};
pub use namespaces::Namespaces;
pub use owners::{Owner, OwnerReport};
pub use report::{Bounds, FlowReport, SweepReport};
pub use sample::BdpSource;
pub use sweeps::{Sweeps, TimedSweep};
pub use watch::{Settings, Watch};
