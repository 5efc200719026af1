//! `brobust cc unload`.

use std::collections::BTreeMap;

use brobust_ccload as ccload;
use brobust_host::Refusal;
use clap::Args;
use nix::unistd::geteuid;
use serde_json::json;

use super::changes::{self, Holders};
use super::defaults::{self, Having};
use super::{clean_up, not_known, print, CONTROL};
use crate::{files, interrupt, Outcome};

#[derive(Args)]
pub struct Options {
    /// The congestion control
    #[arg(value_name = CONTROL)]
    name: Option<String>,
    /// Unload all congestion controls that brobust has loaded
    #[arg(long)]
    all: bool,
    /// Only say what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Outcome {
    if options.all == options.name.is_some() {
        return Err(Refusal::bad_input("give the name of one congestion control, or --all").into());
    }
    if let Some(name) = options.name.as_ref().filter(|name| !ccload::names().any(|known| known == name.as_str())) {
        let otherwise = || {
            format!(
                "'{name}' is not loaded by brobust, which has no such congestion control; `brobust cc list` lists them"
            )
        };
        return Err(not_known(name, otherwise).into());
    }
    files::allow_open()?;
    // A signal in the middle must not leave half of it.
    interrupt::catch();
    clean_up(options.dry_run);
    let names = options.name.clone().map_or_else(ccload::loaded, |name| vec![name]);
    let (mut said, mut problems) = (Ok(()), Vec::new());
    for name in &names {
        if options.dry_run {
            print_plan(options.json, name)?;
            continue;
        }
        match changes::unload(name) {
            // Whoever reads no more of what is said, as `head -1`, still wants all of them unloaded.
            Ok(holders) => said = said.and_then(|()| print_holders(options.json, name, Some(&holders))),
            // One that cannot be unloaded keeps no other one loaded.
            Err(refusal) => problems.push(refusal.text),
        }
    }
    problems.dedup(); // what keeps all of them loaded is said once
    if !problems.is_empty() {
        return Err(Refusal::missing_support(problems.join("; ")).into());
    }
    said?;
    if names.is_empty() {
        let done = if options.dry_run { "would_unload" } else { "unloaded" };
        return print(options.json, &json!({ done: null }), "no congestion control of brobust is loaded");
    }
    Ok(())
}

fn print_plan(json: bool, name: &str) -> Outcome {
    changes::require_loaded(name)?;
    let Having { namespaces, is_complete } = defaults::having(name);
    let places: Vec<String> = namespaces.iter().map(|namespace| namespace.name.to_string()).collect();
    let mut text = format!("would unload {name}");
    if !places.is_empty() {
        text += &format!(", after restoring the default of {}", places.join(", "));
    }
    // What root may not see either, as the namespace of a process behind a security module, is not restored.
    if !is_complete && !geteuid().is_root() {
        text += "; it may be the default of other network namespaces, too, which only root sees";
    }
    print(json, &json!({"would_unload": name, "default_of": places, "sees_all_namespaces": is_complete}), &text)
}

/// Says that a control is unloaded, and which sockets still use it. None: another command has unloaded it.
pub fn print_holders(json: bool, name: &str, holders: Option<&Holders>) -> Outcome {
    let Some(holders) = holders else {
        let text = format!("another command has already unloaded {name}");
        return print(json, &json!({"unloaded": null}), &text);
    };
    let held_by: BTreeMap<&str, usize> = holders.iter().map(|(place, count)| (place.as_str(), *count)).collect();
    let text = if holders.is_empty() {
        format!("unloaded {name}; nothing of it is left")
    } else {
        let held: Vec<String> = holders.iter().map(|(place, count)| format!("{count} ({place})")).collect();
        format!("unloaded {name}; sockets that use it until they close: {}", held.join(", "))
    };
    print(json, &json!({"unloaded": name, "held_by": held_by}), &text)
}
