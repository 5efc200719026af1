//! `brobust doctor --clean`: undoes what killed commands left on this host. Python's `brobust doctor` also says what the
//! host can do for measurements.

use std::path::PathBuf;

use brobust_host::{printable, Refusal, Runtime};
use clap::Args;
use serde_json::json;

use crate::{cc, files, output, Outcome, Stop};

#[derive(Args)]
pub struct Options {
    /// Remove what killed commands left on this host
    #[arg(long)]
    clean: bool,
    /// Only list what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Of the Python package: what this machine can do, as a file
    #[arg(long, hide = true, value_name = "FILE", conflicts_with = "clean")]
    report: Option<PathBuf>,
}

pub fn run(options: &Options) -> Outcome {
    if !options.clean {
        let what = match &options.report {
            Some(_) => "--report",
            None => "doctor without --clean",
        };
        let text = format!(
            "{what} says what this machine can do, for which it takes the Python package (pip install brobust-*.whl, of \
             the same release); --clean removes what killed commands left, --clean --dry-run lists it"
        );
        return Err(Refusal::missing_support(text).into());
    }
    files::allow_open()?;
    let runtime = Runtime::of_environment();
    let found = leftovers(&runtime)?;
    let (mut problems, mut left) = (Vec::new(), Vec::new());
    if !options.dry_run && !found.is_empty() {
        if !nix::unistd::geteuid().is_root() {
            let names = found.iter().map(|(kind, name)| format!("{kind} {name}")).collect::<Vec<_>>().join(", ");
            let text = format!("--clean needs root to remove {names}; run it with sudo");
            return Err(Refusal::missing_support(text).into());
        }
        problems = clean(&runtime)?;
        if !problems.is_empty() {
            left = leftovers(&runtime)?;
        }
    }
    for (kind, name) in found.iter().filter(|one| !left.contains(one)) {
        if options.json {
            output::record(&json!({"kind": kind, "name": name, "removed": !options.dry_run}))?;
        } else {
            let done = if options.dry_run { "would remove" } else { "removed" };
            output::line(&format!("{done} {kind} {}", printable(name)))?;
        }
    }
    if !problems.is_empty() {
        let text = format!("these could not be removed: {}", problems.join("; "));
        return Err(Refusal::missing_support(text).into());
    }
    if found.is_empty() && !options.json {
        output::line("nothing left behind")?;
    }
    Ok(())
}

/// Returns the kind and the name of each thing that a killed command has left.
fn leftovers(runtime: &Runtime) -> Result<Vec<(&'static str, String)>, Stop> {
    let trials = cc::abandoned().into_iter().map(|journal| ("congestion control", journal.name));
    let of_sessions = brobust_host::leftovers(runtime)?.into_iter().map(|leftover| (leftover.kind, leftover.name));
    Ok(trials.chain(of_sessions).collect())
}

/// Removes everything. Returns what could not be removed, with the reason.
fn clean(runtime: &Runtime) -> Result<Vec<String>, Stop> {
    let (_, trials) = cc::clean();
    let of_sessions = brobust_host::clean(runtime)?;
    Ok(trials.into_iter().chain(of_sessions).collect())
}
