//! `brobust guard`: the guardian of another brobust command. Users do not call it.

use std::process::ExitCode;
use std::time::Duration;

use brobust_host::guardian::{self, End};
use clap::Subcommand;

use crate::Found;

#[derive(Subcommand)]
pub enum Command {
    /// Wait for the end of the process that started this, and undo nothing (a trial of the guardian itself)
    Nothing {
        /// Silence after which the process counts as stuck, s
        #[arg(long)]
        silence: Option<f64>,
    },
}

pub fn run(command: &Command) -> Found {
    match command {
        Command::Nothing { silence } => {
            let end = guardian::wait_for_end(silence.map(Duration::from_secs_f64));
            Ok(ExitCode::from(u8::from(end != End::Dismissed)))
        }
    }
}
