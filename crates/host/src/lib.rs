//! What brobust changes on a host, and how it is undone whichever process dies.
//!
//! Undoing comes first: a change is recorded before it is made, the record names its owner ([`Owner`]), commands that
//! look and then change take turns ([`locks`]), and a guardian, a separate process, undoes what its process has left
//! ([`guardian`]).

pub mod guardian;
pub mod locks;
pub mod namespaces;
mod owner;
mod refusal;
mod text;
pub mod units;

pub use owner::{start_time, Owner};
pub use refusal::{Kind, Refusal, Result};
pub use text::printable;
