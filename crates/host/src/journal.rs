//! What a session.json holds.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroups::Group;
use crate::refusal::cannot_write;
use crate::steps::Step;
use crate::sysctl::Sysctl;
use crate::threads::SavedThread;
use crate::{Owner, Result};

/// What a session has changed on the host, or is about to.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    /// Name of a network namespace; empty without one.
    pub namespace: String,
    #[serde(with = "as_text")]
    pub processes: Vec<Owner>,
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
}

/// Owners as texts; what is no owner is left out.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::Owner;

    pub fn serialize<S: Serializer>(owners: &[Owner], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(owners.iter().map(Owner::to_string))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Owner>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
    }
}
