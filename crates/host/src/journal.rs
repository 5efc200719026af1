//! What a session.json holds.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroups::Group;
use crate::refusal::cannot_access;
use crate::steps::Step;
use crate::sysctl::Sysctl;
use crate::threads::SavedThread;
use crate::Result;

const FILE: &str = "session.json";

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
    /// Reads the journal of a session's directory; an empty one if there is none, or it is damaged. That it cannot be
    /// read is an error: it may say what is still to be undone.
    pub fn read(directory: &Path) -> io::Result<Self> {
        match fs::read(directory.join(FILE)) {
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Reads it in order to act on what it says.
    pub fn find(directory: &Path) -> Result<Self> {
        Self::read(directory).map_err(|error| cannot_access(&directory.join(FILE), &error))
    }

    /// Writes the journal of a session's directory. A reader sees the previous one or this one, whole.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let (scratch, file) = (directory.join("session.json.new"), directory.join(FILE));
        let text = serde_json::to_string(self).map_err(io::Error::from);
        text.and_then(|text| fs::write(&scratch, text))
            .and_then(|()| fs::rename(&scratch, &file))
            .map_err(|error| cannot_access(&file, &error))
    }

    /// Undoes a change that a session's directory has in its journal, and strikes it out there.
    pub fn undo(directory: &Path, step: &Step) -> Result<()> {
        step.undo()?;
        let mut journal = Self::find(directory)?;
        journal.steps.retain(|one| one != step);
        journal.write(directory)
    }
}
