//! `brobust cc`: lists congestion controls, loads ours into the running kernel, and unloads them.

use std::process::ExitCode;

use brobust_ccload as ccload;
use clap::Subcommand;

use crate::{output, Found};

#[derive(Subcommand)]
pub enum Command {
    /// List the kernel's congestion controls and ours
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: Command) -> Found {
    match command {
        Command::List { json } => list(json),
    }
}

fn list(_json: bool) -> Found {
    for control in ccload::list() {
        output::line(&serde_json::json!(control).to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}
