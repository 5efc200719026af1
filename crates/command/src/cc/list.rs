//! `brobust cc list`: the kernel's congestion controls and ours.

use std::collections::BTreeMap;

use brobust_ccload as ccload;
use brobust_host::{namespaces, Result};
use serde::Serialize;

use super::journal::{Journal, Journals};
use super::{clean_up, defaults, ListOptions};
use crate::output::{self, remark, Align};
use crate::{files, Outcome};

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
    files::allow_open()?;
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
    let (available, journals) = (ccload::available(), Journals::of_host());
    let ours: Vec<String> = ccload::names().map(str::to_owned).collect();
    let missing = ours.iter().filter(|name| !available.contains(name));
    let row = |name: &String| {
        let is_ours = ours.contains(name);
        Row {
            name: name.clone(),
            from: if is_ours { "brobust" } else { "kernel" },
            bbr_version: if is_ours { None } else { ccload::bbr_version(name) },
            state: state(name, is_ours, available.contains(name), &journals),
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

fn state(name: &str, is_ours: bool, is_available: bool, journals: &Journals) -> &'static str {
    match (is_available, is_ours) {
        (false, _) => "not loaded",
        (true, false) => "available",
        (true, true) if ccload::is_module(name) => "module",
        (true, true) => state_of_loaded(journals.read(name)),
    }
}

/// Returns how a control was loaded, by its journal. If that cannot be read, says what helps: a trial would end otherwise
/// than one that is pinned.
fn state_of_loaded(journal: Result<Option<Journal>>) -> &'static str {
    match journal {
        Ok(Some(journal)) if !journal.pinned => "trial",
        Ok(_) => "pinned",
        Err(refusal) => {
            remark(&refusal.text);
            "unknown"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brobust_host::Refusal;

    #[test]
    fn what_a_damaged_journal_says_of_a_control_is_unknown() {
        let journal = |pinned| Journal { pinned, ..serde_json::from_str(JOURNAL).expect("a journal") };
        let [trial, pinned] = [false, true].map(|pinned| state_of_loaded(Ok(Some(journal(pinned)))));
        let damaged = state_of_loaded(Err(Refusal::missing_support("brb_reno.json is damaged")));
        assert_eq!([trial, pinned, damaged], ["trial", "pinned", "unknown"]);
        assert_eq!(state_of_loaded(Ok(None)), "pinned", "whoever loaded it, nothing ends it");
    }

    const JOURNAL: &str = r#"{"name": "brb_reno", "pinned": true, "owner": "1-1", "defaults": {}}"#;
}
