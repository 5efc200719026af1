//! Controlled CPU contention for the vCPU threads of a VM, and a record of what they really got.
mod burner;
pub mod clock;
mod deadline;
mod error;
mod faithful;
mod host;
mod intervals;
mod recorder;
mod recording;
mod sched_attr;
mod schedstat;
mod schedule;
mod summary;
mod text;
mod thread;

pub use burner::Burner;
pub use deadline::{check as check_deadline, release as release_deadline, Deadline};
pub use error::{ContentionError, Result};
pub use faithful::{unfaithful, Asked, Driver, Ticks};
pub use host::{hrtick_dl, hz};
pub use intervals::{Event, EventKind, Interval, Observed, State};
pub use recorder::Recorder;
pub use recording::Recording;
pub use schedule::{check_recorded, period_ns, OffWindow, Schedule, Windows};
pub use summary::{noise_limit_ns, summarize, Distribution, Summary};
pub use thread::Tid;
