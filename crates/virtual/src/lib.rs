//! The controller of virtual time: it owns the clock of every kernel, the link between them, and when a sender's CPU may
//! run. What happens at those times is the kernels' own doing. docs/virtual-time.md tells how it works.
//!
//! - `clock`: who may run how far
//! - `network`, `link`: where frames go; the bottleneck and the delays
//! - `kernel`, `shared`: a kernel's process, and the memory shared with it
//! - `iperf3`: the programs that send and receive instead of the kernel's own source and sink
//! - `frame`, `qdisc`: what is written there
//! - `record`: what is kept of a run
mod clock;
mod error;
mod frame;
mod iperf3;
mod kernel;
mod link;
mod network;
mod qdisc;
mod record;
mod scenario;
pub mod shared;

pub use clock::{run, run_on};
pub use error::{Error, Result};
pub use iperf3::{End, Said};
pub use record::{Column, FlowResult, Outcome, Table, Work};
pub use scenario::Scenario;

/// For the fuzzer: what a kernel may have left, whatever it is.
pub fn decode_frames(bytes: &[u8]) -> std::result::Result<usize, String> {
    let mut count = 0;
    frame::decode(bytes, |_| count += 1).map(|()| count)
}
