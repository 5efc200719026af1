//! Which senders of this host are short of CPU: every TCP socket at intervals, what limits each over a window of these,
//! and whether the host's CPU is taken away meanwhile.
//!
//! A sweep is one dump of each network namespace ([`Watch::sweep`]); what one sample shows is in sample.rs, what a
//! window of them means in cause.rs, and what the host says of its CPUs in host.rs.

mod cause;
mod distribution;
mod flows;
mod groups;
mod history;
mod host;
mod namespaces;
mod probe;
mod report;
mod sample;
mod watch;

pub use cause::{judge, Cause, Evidence, Verdict};
pub use distribution::Distribution;
pub use flows::Flow;
pub use groups::Group;
pub use history::History;
pub use host::{Host, HostLoad};
pub use namespaces::Namespaces;
pub use report::{FlowReport, SweepReport};
pub use sample::{BdpSource, Sample};
pub use watch::{Settings, Sweep, Watch};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Sockets(#[from] brobust_sockdiag::Error),

    #[error("network namespace {name}: {reason}")]
    Namespace { name: String, reason: String },

    #[error("{file}: {reason}")]
    Host { file: &'static str, reason: String },

    #[error("network namespaces of {processes} processes are hidden from us: to look takes CAP_SYS_PTRACE")]
    Hidden { processes: usize },
}

pub type Result<T> = std::result::Result<T, Error>;
