//! `brobust guard`: the guardian of another brobust command. Users do not call it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use brobust_host::guardian::{self, End};
use brobust_host::{undo, Runtime};
use clap::Subcommand;

use crate::{cc, output, Outcome};

#[derive(Subcommand)]
pub enum Command {
    /// Undo a session if its process does not
    Session {
        directory: PathBuf,
        /// Silence after which the process counts as stuck, s; 0: never
        silence: f64,
    },
    /// Unload a congestion control that was loaded for a trial if the command that did so does not
    Trial {
        /// The control
        name: String,
        /// The command's process, as crates/host writes owners
        owner: String,
        /// Silence after which the process counts as stuck, s; 0: never
        silence: f64,
    },
}

pub fn run(command: &Command) -> Outcome {
    match command {
        Command::Session { directory, silence } => session(directory, *silence),
        Command::Trial { name, owner, silence } => cc::guard(name, owner, limit(*silence))?,
    }
    Ok(())
}

/// Returns the silence after which a process is killed. None: never.
fn limit(silence_s: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(silence_s).ok().filter(|limit| !limit.is_zero())
}

fn session(directory: &Path, silence: f64) {
    let end = guardian::wait_for_end(limit(silence));
    if end == End::Dismissed {
        return;
    }
    let runtime = Runtime::at(directory.parent().unwrap_or(directory));
    let problems = undo(&runtime, directory).unwrap_or_else(|refusal| vec![refusal.text]);
    if end == End::Stuck {
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        let pid = name.split('-').next().unwrap_or_default();
        let undone = if problems.is_empty() { ", and what it had changed is undone" } else { "" };
        output::remark(&format!("process {pid} was stopped or stuck for {silence} s; it was killed{undone}"));
    }
    if !problems.is_empty() {
        output::remark(&format!("not undone: {}; `brobust doctor --clean` tries again", problems.join("; ")));
    }
}
