//! The controller of virtual time. It owns the clock of every kernel, the link between them, and the times at which a
//! sender's CPU may run. What happens at those times is up to the kernels. docs/virtual-time.md explains how it works.
//!
//! - `simulation`: how far each kernel may run, and what follows from what it did
//! - `node`, `describe`: a kernel in the simulation, with what is on its way to it; what it is told to be
//! - `topology`, `ports`: the nodes and flows, by number
//! - `network`, `link`: where frames go; the bottleneck and the delays
//! - crates/timeline: the timeslices of a CPU
//! - `kernel`, `shared`: a kernel's process, and the memory that it shares with the controller
//! - `programs`: the programs that send and receive in place of the kernel's own source and sink
//! - `frame`, `qdisc`: frames and queueing disciplines as the kernels write and read them
//! - `scenario`, `record`, `outcome`: what a run is asked to do, what is recorded of it, and what it returns
mod describe;
mod error;
mod frame;
mod kernel;
mod link;
mod network;
mod node;
mod outcome;
mod ports;
mod programs;
mod qdisc;
mod record;
mod scenario;
pub mod shared;
mod simulation;
mod topology;

pub use error::{Error, Result};
pub use outcome::{Column, FlowResult, Outcome, ProgramResult, Table, Work};
pub use scenario::Scenario;
pub use simulation::{carry_frames, run, run_on};

/// Decodes the frames that a kernel left, whatever the bytes are, and returns how many there are. For tests.
pub fn decode_frames(bytes: &[u8]) -> std::result::Result<usize, String> {
    let mut count = 0;
    frame::decode(bytes, |_| count += 1).map(|()| count)
}
