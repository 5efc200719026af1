//! `brobust-guest`: everything brobust needs inside a test VM, in one binary.

mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use brobust_guest::{agent, cc, sample, spin};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "brobust-guest", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve requests (JSON lines) from a virtio-serial port, a tty, or a unix socket
    Agent {
        /// Port such as /dev/virtio-ports/brobust or /dev/vport0p1; a path that is no device becomes a listening unix
        /// socket
        port: PathBuf,
    },
    /// Load, unload and list congestion controls
    #[command(subcommand)]
    Cc(cc::Command),
    /// Record the state of TCP sockets at fixed intervals, as JSON lines
    Sample(sample::Options),
    /// Follow TCP sockets and name what limits each, as JSON lines
    Watch(watch::Options),
    /// Keep every CPU busy at idle priority until SIGTERM
    Spin,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Agent { port } => agent::serve(&port),
        Command::Cc(command) => cc::run(command),
        Command::Sample(options) => sample::run(&options),
        Command::Watch(options) => watch::run(&options),
        Command::Spin => spin::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brobust-guest: {error:#}");
            ExitCode::from(2)
        }
    }
}
