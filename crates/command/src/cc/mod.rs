//! `brobust cc`: lists congestion controls, loads ours into the running kernel, and unloads them.
//!
//! Undoing comes first. Every change is recorded before it is made (journal.rs), and a control is unregistered only
//! when no network namespace has it as its default any more (changes.rs). A trial (`cc load` without --pin) has a
//! guardian, a process that undoes everything when the command dies; if both die, the next `brobust cc` or `brobust
//! doctor --clean` undoes it. Commands that run at the same time take turns, and each undoes only its own changes.

mod changes;
mod defaults;
mod journal;
mod list;
mod load;
mod params;
mod programs;
mod unload;

pub use changes::{abandoned, clean, guard};

use brobust_ccload as ccload;
use brobust_host::namespaces::what_helps;
use brobust_host::{printable, Refusal};
use clap::{Args, Subcommand};
use nix::unistd::geteuid;
use serde_json::Value;

use crate::output::{self, remark};
use crate::Outcome;

/// What help calls an argument that is the name of a control. Completion offers ours there.
pub const CONTROL: &str = "CONTROL";
/// A name that is at least so like another one (1: equal) is taken for a slip of the pen: bbr_stedy, 0.97, not brb_mars.
const MIN_LIKENESS: f64 = 0.9;

#[derive(Subcommand)]
pub enum Command {
    /// List the kernel's congestion controls and ours: whether each is loaded, where it is the default, and how many
    /// sockets use it
    #[command(after_help = "Examples:\n  brobust cc list   # without root: only the sockets of this namespace")]
    List(ListOptions),
    /// List the parameters of one of our congestion controls: default, range and meaning
    #[command(after_help = "Examples:\n  brobust cc params bbr_steady")]
    Params(params::Options),
    /// List the BPF programs of a loaded congestion control: size, number of runs and time per run
    ///
    /// The kernel counts runs and time only while the sysctl kernel.bpf_stats_enabled is 1.
    #[command(after_help = "Examples:\n  brobust cc programs bbr_robust")]
    Programs(programs::Options),
    /// Load one of our congestion controls into the running kernel
    ///
    /// Without --pin this is a trial: the control is loaded only while this command runs. Everything is undone when the
    /// command ends: after the time of --for, on Ctrl-C, and also if the command is killed.
    #[command(after_help = load::EXAMPLES)]
    Load(load::Options),
    /// Unload a congestion control
    ///
    /// First every network namespace in which it is the default gets its previous default back, then the control is
    /// unregistered. Sockets that use it keep it until they close.
    #[command(after_help = "Examples:\n  brobust cc unload bbr_robust\n  brobust cc unload --all --dry-run")]
    Unload(unload::Options),
}

#[derive(Args)]
pub struct ListOptions {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(command: Command) -> Outcome {
    match command {
        Command::List(options) => list::run(&options),
        Command::Params(options) => params::run(&options),
        Command::Programs(options) => programs::run(&options),
        Command::Load(options) => load::run(&options),
        Command::Unload(options) => unload::run(&options),
    }
}

/// Undoes the trials whose commands are gone and says so; a user who may not do that, or asks what would happen, is told
/// what would do it. One that cannot be undone keeps nobody from other work.
fn clean_up(dry_run: bool) {
    if journal::Journals::of_host().may_be_written() && !dry_run {
        let (cleaned, problems) = clean();
        for name in cleaned {
            remark(&format!("unloaded {name}, left by a trial whose command was killed"));
        }
        for problem in problems {
            remark(&format!("left by a trial whose command was killed, and not undone: {problem}"));
        }
    } else {
        for journal in abandoned() {
            let left = "is still loaded from a trial whose command was killed";
            remark(&format!("{} {left}; `sudo brobust cc list` unloads it", journal.name));
        }
    }
}

/// Prints a result: one JSON object, or lines of text.
fn print(json: bool, record: &Value, text: &str) -> Outcome {
    match json {
        true => output::record(record),
        false => text.lines().try_for_each(|line| output::line(&printable(line))),
    }
}

/// Refuses a name that none of our controls has: with the one that may have been meant, or in other words.
fn not_known(name: &str, otherwise: impl FnOnce() -> String) -> Refusal {
    let likeness = |control: &str| strsim::jaro(name, control);
    let nearest = ccload::names().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    Refusal::bad_input(match nearest.filter(|control| likeness(control) > MIN_LIKENESS) {
        Some(meant) => format!("there is no control named {name}; did you mean {meant}? `brobust cc list` lists all"),
        None => otherwise(),
    })
}

fn refused(refusal: ccload::Refusal) -> Refusal {
    match refusal {
        ccload::Refusal::Privilege => not_privileged("loading a congestion control"),
        other => Refusal::missing_support(other.to_string()),
    }
}

/// Refuses what takes a privilege, and says what helps: not sudo, where root has not got it either.
fn not_privileged(what: &str) -> Refusal {
    let user = geteuid();
    let (root, helps) = if user.is_root() { ("", what_helps(user)) } else { ("root, or ", ": run this with sudo") };
    Refusal::missing_support(format!("{what} takes {root}CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF{helps}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn every_control_that_is_offered_can_be_loaded_and_the_other_way_round() {
        let offered: BTreeSet<&str> = brobust_cc::Offered::all().map(|offered| offered.name).collect();
        assert_eq!(offered, brobust_ccload::names().collect());
    }
}
