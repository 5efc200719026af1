//! What a session.json holds.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroups::Group;
use crate::refusal::cannot_write;
use crate::steps::Step;
use crate::sysctl::Sysctl;
use crate::threads::SavedThread;
use crate::Result;

/// What a session has changed on the host, or is about to.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Name of a network namespace; empty without one.
    pub namespace: String,
    /// Each as [`Owner`](crate::Owner) is written.
    pub processes: Vec<String>,
    pub sysctls: Vec<Sysctl>,
    pub threads: Vec<SavedThread>,
    pub groups: Vec<Group>,
    /// CPUs that our contention may keep busy.
    pub cpus: Vec<usize>,
    /// How many more CPUs it may keep busy, chosen by the scheduler.
    pub roaming: usize,
    /// Changes that a command undoes, in the order in which they were made. Journals of brobust 0.2 lack them.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// That of the session's process. Journals of brobust 0.2 lack it.
    #[serde(default)]
    pub pid_namespace: String,
}

impl Journal {
    /// Reads the journal of a session's directory; an empty one if there is none, or it is damaged.
    pub fn read(directory: &Path) -> Self {
        let text = fs::read_to_string(directory.join("session.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes the journal of a session's directory. A reader sees the previous one or this one, whole.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let (scratch, file) = (directory.join("session.json.new"), directory.join("session.json"));
        let text = serde_json::to_string(self).unwrap_or_default();
        fs::write(&scratch, text)
            .and_then(|()| fs::rename(&scratch, &file))
            .map_err(|error| cannot_write(&file, &error))
    }

    /// Undoes a change that a session's directory has in its journal, and strikes it out there.
    pub fn undo(directory: &Path, step: &Step) -> Result<()> {
        step.undo()?;
        let mut journal = Self::read(directory);
        journal.steps.retain(|one| one != step);
        journal.write(directory)
    }
}
