//! Loads, lists and removes the TCP congestion controls that brobust brings as BPF.
//!
//! A control is registered with the kernel by its struct_ops map. The kernel keeps a registered map, so a control
//! outlives the process that loaded it. By its pin in bpffs the control is found again and distinguished from those of
//! others; Linux 6.1 has no struct_ops links that could be pinned instead.
//!
//! Every refusal is one sentence that ends with what to do ([`Refusal`]).

mod btf;
mod host;
mod log;
mod objects;
mod programs;
mod recording;
mod refusal;
mod registry;
mod shadow;

pub use host::{available, bbr_version, is_module};
pub use objects::{find, names};
pub use programs::{programs, Program};
pub use recording::recorded_calls;
pub use refusal::Refusal;
pub use registry::{check, load, loaded, pin_path, unload, Settings, StateMaps};
pub use shadow::{shadow, Difference, Shadow};

pub type Result<T> = std::result::Result<T, Refusal>;
