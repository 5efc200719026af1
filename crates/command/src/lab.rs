//! `brobust lab`: what backends run on the machines that they measure on: lab by ssh on hosts, vm in its guests. Users do
//! not call it.

use std::cell::RefCell;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use brobust_guest::agent::{self, Change};
use brobust_guest::{cc, sample, spin, watch};
use brobust_host::guardian::THIS_PROGRAM;
use brobust_host::{reason, Refusal, Runtime, Session, Step};
use brobust_watch::Host;
use clap::{Args, Subcommand};
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

use crate::{output, Outcome};

/// A year. The guardian's is twice as long, and must fit.
const MAX_SILENCE_S: f64 = 366.0 * 86_400.0;

#[derive(Subcommand)]
pub enum Command {
    /// Serve requests (JSON lines) from standard input, and undo every change when that ends; or those from a guest's port
    Agent(Agent),
    /// Record the state of TCP sockets at fixed intervals, as JSON lines
    Sample(sample::Options),
    /// Load and unload congestion controls, and read what they have recorded
    #[command(subcommand)]
    Cc(cc::Command),
    /// Follow TCP sockets and name what limits each, as JSON lines
    Watch(watch::Options),
    /// Report at SIGTERM whether the CPUs were there when timers were due, as JSON
    Load,
    /// Keep every CPU busy at idle priority until SIGTERM
    Spin,
}

#[derive(Args)]
pub struct Agent {
    /// In a guest, which is thrown away: serve this port, such as /dev/vport0p1, for ever; a path that is no device
    /// becomes a listening unix socket
    port: Option<PathBuf>,
    /// Time without a request after which whoever asked has gone, s
    #[arg(long, default_value = "60", value_parser = silence, conflicts_with = "port")]
    silence: Duration,
    /// Do not refuse a host on which another brobust is at work
    #[arg(long, conflicts_with = "port")]
    beside_others: bool,
    /// The directory into which this program was copied: the copy is removed at once, and the directory if nothing else is
    /// in it
    #[arg(long, conflicts_with = "port")]
    remove: Option<PathBuf>,
}

fn silence(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=MAX_SILENCE_S).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("give a number from 0 to {MAX_SILENCE_S}"))
}

pub fn run(command: Command) -> Outcome {
    let done = match command {
        Command::Agent(Agent { port: Some(port), .. }) => agent::serve(&port),
        Command::Agent(options) => return serve(&options),
        Command::Sample(options) => sample::run(&options),
        Command::Cc(command) => cc::run(command),
        Command::Watch(options) => watch::run(&options),
        Command::Load => return load(),
        Command::Spin => spin::run(),
    };
    done.map_err(|error| Refusal::failed(format!("{error:#}")).into())
}

fn serve(options: &Agent) -> Outcome {
    if let Some(directory) = options.remove.as_deref() {
        remove_copy(directory);
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Refusal::missing_support(
            "measuring here needs root; log in as root, or let sudo need no password",
        )
        .into());
    }
    refuse_without_threads()?;
    // Twice as long, since it is for an agent that is stuck itself.
    let (runtime, silent) = (Runtime::of_environment(), Some(2 * options.silence));
    let session = RefCell::new(Session::start(runtime, Path::new(THIS_PROGRAM), options.beside_others, silent)?);
    // Without a guardian nothing more is changed here: who asks is refused, and ends.
    let record = |Change { what, undo }| {
        let mut session = session.borrow_mut();
        let recorded = session.say_alive().and_then(|()| session.record_step(Step { what, undo }));
        recorded.map_err(|refusal| refusal.text)
    };
    let alive = || {
        if let Err(refusal) = session.borrow_mut().say_alive() {
            output::remark(&refusal.text);
        }
    };
    output::record(&json!({"ready": format!("/proc/{}/exe", std::process::id())}))?;
    let served = agent::serve_standard(options.silence, &record, &alive);
    session.borrow_mut().end()?;
    served.map_err(|error| Refusal::failed(format!("{error:#}")).into())
}

/// Refuses where not even one thread can be started (ulimit -v, -u): the agent starts one for each request.
fn refuse_without_threads() -> brobust_host::Result<()> {
    let started = thread::Builder::new().spawn(|| ()).map(|thread| drop(thread.join()));
    started.map_err(|error| Refusal::missing_support(format!("no thread can be started here ({})", reason(&error))))
}

/// Reports what `brobust watch` says of a host's CPUs, from now until SIGTERM.
fn load() -> Outcome {
    let end: SigSet = [Signal::SIGTERM].into_iter().collect();
    let failed = |error| Refusal::failed(format!("cannot wait for SIGTERM: {error}"));
    end.thread_block().map_err(failed)?; // in the observing thread, too
    let mut host = Host::begin();
    end.wait().map_err(failed)?;
    let (load, _unread) = host.read();
    output::record(&load)
}

/// Removes the file that this program runs from, if it is in that directory, which then goes, too, if it is empty.
fn remove_copy(directory: &Path) {
    if let Some(program) = env::current_exe().ok().filter(|program| program.parent() == Some(directory)) {
        let _ = fs::remove_file(program).and_then(|()| fs::remove_dir(directory));
    }
}
