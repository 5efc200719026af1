//! `brobust doctor --clean`: undoes what killed commands left on this host. Python's `brobust doctor` also says what the
//! host can do for measurements.

use std::process::ExitCode;

use brobust_host::{printable, Refusal, Runtime};
use clap::Args;
use serde::Serialize;

use crate::{cc, output, Outcome, Stop};

#[derive(Args)]
pub struct Options {
    /// Remove what killed commands left on this host
    #[arg(long, required = true)]
    clean: bool,
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Something that a killed command has left.
#[derive(Debug, Serialize)]
struct Leftover {
    kind: &'static str,
    name: String,
    removed: bool,
}

impl Leftover {
    fn text(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

pub fn run(options: &Options) -> Outcome {
    let runtime = Runtime::of_environment();
    let mut found = leftovers(&runtime)?;
    if !options.dry_run && !found.is_empty() {
        if !nix::unistd::geteuid().is_root() {
            let names = found.iter().map(Leftover::text).collect::<Vec<_>>().join(", ");
            let text = format!("--clean needs root to remove {names}; run it with sudo");
            return Err(Refusal::missing_support(text).into());
        }
        clean(&runtime)?;
        found.iter_mut().for_each(|leftover| leftover.removed = true);
    }
    for leftover in &found {
        if options.json {
            output::record(leftover)?;
        } else {
            let done = if leftover.removed { "removed" } else { "would remove" };
            output::line(&format!("{done} {}", printable(&leftover.text())))?;
        }
    }
    if found.is_empty() && !options.json {
        output::line("nothing left behind")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn leftovers(runtime: &Runtime) -> Result<Vec<Leftover>, Stop> {
    let trials = cc::abandoned().into_iter().map(|name| ("congestion control", name));
    let of_sessions = brobust_host::leftovers(runtime)?.into_iter().map(|leftover| (leftover.kind, leftover.name));
    Ok(trials.chain(of_sessions).map(|(kind, name)| Leftover { kind, name, removed: false }).collect())
}

/// Removes everything, and refuses if something could not be removed.
fn clean(runtime: &Runtime) -> Result<(), Stop> {
    let trials = cc::clean().err().map(|refusal| refusal.text);
    let (_, of_sessions) = brobust_host::clean(runtime)?;
    let problems: Vec<String> = trials.into_iter().chain(of_sessions).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Refusal::missing_support(format!("these could not be removed: {}", problems.join("; "))).into())
}
