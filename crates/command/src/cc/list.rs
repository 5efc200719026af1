//! `brobust cc list`: the kernel's congestion controls and ours.

use std::collections::BTreeMap;

use brobust_ccload as ccload;
use brobust_host::namespaces;
use serde::Serialize;

use super::journal::{Journal, Journals};
use super::{clean_up, defaults, ListOptions};
use crate::output::{self, Align};
use crate::Outcome;

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    from: &'static str,
    /// The version of BBR that one of the kernel's own controls is; None for others, and where the kernel does not tell.
    bbr_version: Option<u32>,
    state: &'static str,
    default_of: Vec<String>,
    /// The number of sockets that use it, by namespace.
    sockets: BTreeMap<String, usize>,
}

pub fn run(options: &ListOptions) -> Outcome {
    clean_up(false);
    let rows = rows();
    if options.json {
        return rows.iter().try_for_each(output::record);
    }
    let cells = rows.into_iter().map(|row| {
        let sockets: Vec<String> = row.sockets.iter().map(|(place, count)| format!("{count} ({place})")).collect();
        // Version 1 is what the name says; google's kernels have another one under it.
        let from = match row.bbr_version {
            Some(version) if version > 1 => format!("{}, BBR version {version}", row.from),
            _ => row.from.into(),
        };
        [row.name, from, row.state.into(), row.default_of.join(", "), sockets.join(", ")]
    });
    output::table(["name", "from", "state", "default of", "sockets"], [Align::Left; 5], cells)
}

fn rows() -> Vec<Row> {
    let (available, journals) = (ccload::available(), Journals::of_host().all());
    let ours: Vec<String> = ccload::names().map(str::to_owned).collect();
    let missing = ours.iter().filter(|name| !available.contains(name));
    let row = |name: &String| {
        let is_ours = ours.contains(name);
        let journal = journals.iter().find(|journal| journal.name == *name);
        Row {
            name: name.clone(),
            from: if is_ours { "brobust" } else { "kernel" },
            bbr_version: if is_ours { None } else { ccload::bbr_version(name) },
            state: state(name, is_ours, available.contains(name), journal),
            default_of: Vec::new(),
            sockets: BTreeMap::new(),
        }
    };
    let mut rows: Vec<Row> = available.iter().chain(missing).map(row).collect();
    for namespace in namespaces::every().namespaces {
        let (default, sockets) = (defaults::of(&namespace).unwrap_or_default(), defaults::sockets(&namespace));
        for row in &mut rows {
            if row.name == default {
                row.default_of.push(namespace.name.to_string());
            }
            if let Some(count) = sockets.get(&row.name) {
                row.sockets.insert(namespace.name.to_string(), *count);
            }
        }
    }
    rows
}

/// `journal` is the one of this control, if it has one.
fn state(name: &str, is_ours: bool, is_available: bool, journal: Option<&Journal>) -> &'static str {
    match (is_available, is_ours) {
        (false, _) => "not loaded",
        (true, false) => "available",
        (true, true) if ccload::is_module(name) => "module",
        (true, true) if journal.is_some_and(|journal| !journal.pinned) => "trial",
        (true, true) => "pinned",
    }
}
