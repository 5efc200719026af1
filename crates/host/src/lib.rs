//! What brobust changes on a host, and how it is undone whichever process dies.
//!
//! Undoing comes first: a change is recorded before it is made, the record names its owner ([`Owner`]), commands that
//! look and then change take turns ([`locks`]), and a guardian, a separate process, undoes what its process has left
//! ([`guardian`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub mod cgroups;
pub mod guardian;
mod journal;
mod leftovers;
pub mod locks;
pub mod namespaces;
mod owner;
pub mod processes;
mod refusal;
mod runtime;
pub mod sched_attr;
mod session;
mod stat;
mod steps;
mod sysctl;
mod text;
pub mod threads;
pub mod units;

pub use leftovers::{clean, leftovers, undo, Leftover};
pub use owner::Owner;
pub use refusal::{as_root, reason, without_numbers, Kind, Refusal, Result};
pub use runtime::{pid_namespace, sees_processes_of, Runtime};
pub use session::{busy_cpus, refuse_held, refuse_without_spare, Session};
pub use stat::Stat;
pub use steps::Step;
pub use text::{general, printable, printable_json, read_proc};

/// Looks every few milliseconds whether something is so, for at most this time. Returns whether it is.
pub fn eventually(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        match is_so() {
            false if begun.elapsed() < limit => sleep(Duration::from_millis(5)),
            result => return result,
        }
    }
}

/// Returns what a directory holds; nothing if it cannot be read.
pub(crate) fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the names in a directory that are text; none if it cannot be read.
pub fn names(directory: impl AsRef<Path>) -> impl Iterator<Item = String> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok())
}
