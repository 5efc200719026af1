//! Controlled CPU contention for the vCPU threads of a VM, and a record of what they really got.
//!
//! - `driver`, `drivers`: what every way of taking the CPU away by a thread's policy can do, and those that there are
//! - `held`: all ways, on behalf of a session
//! - `budget`, `host`: what the host allows
//! - `recorder`, `schedstat`: what threads get, by BPF or without privilege
//! - `intervals`, `recording`, `summary`: from events to numbers
//! - `verify`: whether they are the numbers that were asked for
mod budget;
pub mod clock;
mod driver;
pub mod drivers;
mod error;
pub mod held;
mod host;
mod intervals;
mod recorder;
mod recording;
mod schedstat;
mod summary;
mod text;
mod thread;
mod tid;
mod verify;

pub use driver::{Driver, Target};
pub use error::{ContentionError, Result};
pub use held::Held;
pub use host::{hrtick_dl, hz};
pub use intervals::{Interval, State};
pub use recorder::Recorder;
pub use recording::Recording;
pub use summary::{Distribution, Summary, NOISE_NS};
pub use tid::Tid;
pub use verify::{deviation, likely_cause, ContentionRequest, Promise, Ticks, TOLERANCE};
