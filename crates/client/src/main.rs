//! `brobust-client`: runs in the user space of a virtual kernel, beside the user's own programs or in place of one.
mod answer;
mod get;
mod listens;
mod pool;

use std::iter::once;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Asks servers in virtual time.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ask an HTTP server for a page at random times, whether it has answered before or not (an open loop)
    Get(get::Options),
    /// Wait until there are sockets that listen
    Listens {
        /// Ports of TCP or UDP, all of which have to listen; by default, any has to
        ports: Vec<u16>,
    },
    /// Refuse the words after it if the client would, and do nothing: brobust asks this before it begins a series
    #[command(hide = true)]
    Check {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Get(options) => get::run(&options),
        Command::Listens { ports } => listens::wait_for(&ports),
        Command::Check { words } => match Arguments::parse_from(once("brobust-client".into()).chain(words)).command {
            Command::Get(options) => get::checked(&options).map(drop),
            _ => Ok(()),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("brobust-client: {error:#}");
            ExitCode::FAILURE
        }
    }
}
