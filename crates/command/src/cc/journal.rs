//! The record of what loading a control changes, written before the change.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brobust_host::locks::{self, Lock};
use brobust_host::{as_root, names, reason, sees_processes_of, Owner, Refusal, Result};
use nix::unistd::{access, geteuid, AccessFlags};
use serde::{Deserialize, Serialize};

/// How long a command waits for another one's turn to end.
const TURN: Duration = Duration::from_secs(60);
/// How the name of a journal ends that is not whole yet.
const UNFINISHED: &str = ".new";

/// What one command has loaded and made a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    pub name: String,
    pub pinned: bool,
    /// The process that loaded it, as [`Owner`] is written.
    pub owner: String,
    /// The previous default of each namespace, by the namespace's inode.
    pub defaults: BTreeMap<String, String>,
    /// The inode of the namespace from which new ones inherit their default, or else of the one in which this was
    /// loaded.
    #[serde(default)]
    pub first: String,
    /// The PID namespace of that process. Journals of brobust 0.2 lack it.
    #[serde(default)]
    pub pid_namespace: String,
}

impl Journal {
    /// Whether one command wrote both. What others have undone since may have changed the defaults.
    pub fn is_of_same_command(&self, other: &Self) -> bool {
        (&self.name, self.pinned, &self.owner) == (&other.name, other.pinned, &other.owner)
    }

    /// Replaces a control that is undone, where it is a previous default, by its own previous default: of the same
    /// namespace, or else the one that was inherited. Returns whether it was one.
    pub fn forget(
        &mut self,
        undone: &str,
        its_previous: &BTreeMap<String, String>,
        inherited: Option<&String>,
    ) -> bool {
        let mut found = false;
        for (namespace, default) in &mut self.defaults {
            if let Some(before) = its_previous.get(namespace).or(inherited).filter(|_| default == undone) {
                default.clone_from(before);
                found = true;
            }
        }
        found
    }

    /// Whether this is a trial whose command is gone. From another PID namespace that is not seen.
    pub fn is_abandoned(&self) -> bool {
        !self.pinned
            && sees_processes_of(&self.pid_namespace)
            && !self.owner.parse().is_ok_and(|owner: Owner| owner.lives())
    }
}

pub struct Journals {
    directory: PathBuf,
}

impl Journals {
    /// Root acts on what is written here, so nothing that a user sets may name another directory.
    pub fn of_host() -> Self {
        Self { directory: "/run/brobust-cc".into() }
    }

    /// Whether this user may undo abandoned trials. Everybody may see them.
    pub fn may_be_written(&self) -> bool {
        access(&self.directory, AccessFlags::W_OK).is_ok()
    }

    /// Refuses a user who may not write down what is undone: the directory is root's.
    pub fn require_privilege(&self) -> Result<()> {
        if self.may_be_written() || geteuid().is_root() {
            return Ok(()); // one that is missing, root makes
        }
        Err(Refusal::missing_support("unloading a congestion control takes root: run this with sudo"))
    }

    /// Makes other commands wait until this is dropped, because looking and then changing must be one step. Nobody writes
    /// at its beginning: an unfinished journal is that of a command that was killed before it changed anything.
    pub fn turn(&self) -> Result<Lock> {
        locks::private_directory(&self.directory)?;
        let turn = locks::lock(&self.directory.join("lock"), TURN)?;
        for unfinished in names(&self.directory).filter(|name| name.ends_with(UNFINISHED)) {
            let _ = fs::remove_file(self.directory.join(unfinished));
        }
        Ok(turn)
    }

    /// Returns the journals of all loaded controls, sorted by name, as far as they can be read.
    pub fn all(&self) -> Vec<Journal> {
        let mut files: Vec<String> = names(&self.directory).collect();
        files.sort();
        files.iter().filter_map(|file| self.read(file.strip_suffix(".json")?).ok()?).collect()
    }

    /// Returns the journal of a control; None if it has none. That it cannot be read, or is damaged, is an error: it says
    /// what is to be restored.
    pub fn read(&self, name: &str) -> Result<Option<Journal>> {
        let file = self.file(name);
        match fs::read(&file) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|_| {
                Refusal::missing_support(format!(
                    "{} is damaged, and only it says which default {name} has replaced; `brobust cc unload {name}` as root \
                     unloads it and makes cubic, or reno, the default",
                    file.display()
                ))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot(&file, "read", &error)),
        }
    }

    /// Whether a control has a journal, be it damaged.
    pub fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Removes the journal of a control if it is damaged, and returns the name of its file then.
    pub fn remove_damaged(&self, name: &str) -> Result<Option<PathBuf>> {
        let file = self.file(name);
        match fs::read(&file) {
            Ok(text) if serde_json::from_slice::<Journal>(&text).is_err() => self.remove(name).map(|()| Some(file)),
            _ => Ok(None),
        }
    }

    /// Writes a journal, replacing the previous one of its control.
    pub fn write(&self, journal: &Journal) -> Result<()> {
        let (file, scratch) = (self.file(&journal.name), self.directory.join(journal.name.clone() + UNFINISHED));
        let text = serde_json::to_string(journal).unwrap_or_default();
        // Root acts on what stands there, so nobody else may write it, whatever the umask is.
        let mut options = OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o644).open(&scratch);
        opened
            .and_then(|mut scratch| scratch.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&scratch, &file))
            .map_err(|error| cannot(&file, "written", &error))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let file = self.file(name);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(cannot(&file, "removed", &error)),
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }
}

fn cannot(file: &Path, what: &str, error: &std::io::Error) -> Refusal {
    Refusal::missing_support(format!("{} cannot be {what} ({}){}", file.display(), reason(error), as_root(error)))
}

#[cfg(test)]
mod tests {
    use super::{Journal, Journals};
    use brobust_host::{pid_namespace, Owner};
    use nix::sys::stat::{umask, Mode};
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    fn journal(name: &str, pinned: bool, owner: &str) -> Journal {
        let defaults = BTreeMap::from([("4026531840".to_owned(), "reno".to_owned())]);
        let (name, owner, first) = (name.into(), owner.into(), "4026531840".into());
        Journal { name, pinned, owner, defaults, first, pid_namespace: pid_namespace() }
    }

    #[test]
    fn a_trial_is_abandoned_when_its_command_is_gone() {
        let own = Owner::current().to_string();
        assert!(!journal("brb_reno", false, &own).is_abandoned());
        assert!(journal("brb_reno", false, "1-1").is_abandoned() && journal("brb_reno", false, "?").is_abandoned());
        assert!(!journal("brb_reno", true, "1-1").is_abandoned(), "a pinned control outlives its command");
        let elsewhere = Journal { pid_namespace: "pid:[1]".into(), ..journal("brb_reno", false, "1-1") };
        assert!(!elsewhere.is_abandoned());
    }

    #[test]
    fn a_control_that_is_undone_first_is_no_previous_default_any_more() {
        let mut later = journal("bbr_steady", true, "1-1");
        assert!(!later.forget("brb_reno", &BTreeMap::new(), Some(&"cubic".to_owned())));
        let before = later.clone();
        let previous = BTreeMap::from([("4026531840".to_owned(), "bbr".to_owned())]);
        assert!(later.forget("reno", &previous, None));
        assert_eq!(later.defaults, previous);
        assert!(later.is_of_same_command(&before), "the trial is still its own");
    }

    #[test]
    fn a_journal_that_was_not_finished_goes_with_the_next_turn() {
        let scratch = tempfile::tempdir().expect("made");
        let journals = Journals { directory: scratch.path().join("journals") };
        drop(journals.turn().expect("the directory is ours"));
        journals.write(&journal("a", true, "1-1")).expect("written");
        let unfinished = journals.directory.join("b.new");
        std::fs::write(&unfinished, "{").expect("written");
        drop(journals.turn().expect("nobody has it"));
        assert!(!unfinished.exists() && journals.has("a"));
    }

    #[test]
    fn journals_are_read_as_they_were_written() {
        let scratch = tempfile::tempdir().expect("made");
        let directory = scratch.path().join("journals");
        let journals = Journals { directory: directory.clone() };
        assert!(journals.all().is_empty(), "without a directory there is none");
        let _turn = journals.turn().expect("the directory is ours");
        let (first, second) = (journal("a", true, "1-1"), journal("b", false, "1-1"));
        let before = umask(Mode::empty());
        journals.write(&second).expect("written");
        umask(before);
        let mode = std::fs::metadata(directory.join("b.json")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "root acts on it, and others could write it");
        journals.write(&first).expect("written");
        std::fs::write(directory.join("c.json"), "{").expect("written");
        assert_eq!(journals.all(), [first, second]);
        let refused = journals.read("c").unwrap_err().text;
        assert!(refused.contains("c.json is damaged") && refused.contains("`brobust cc unload c`"), "{refused}");
        assert!(journals.has("c") && !journals.has("e"));
        assert_eq!(journals.remove_damaged("c"), Ok(Some(directory.join("c.json"))));
        assert_eq!(
            (journals.has("c"), journals.remove_damaged("c"), journals.remove_damaged("a")),
            (false, Ok(None), Ok(None))
        );
        journals.remove("a").expect("it is there");
        journals.remove("a").expect("that it is gone is what was wanted");
        assert_eq!(journals.read("a"), Ok(None));
        std::fs::create_dir(directory.join("d.json")).expect("made");
        let refused = journals.read("d").unwrap_err().text;
        assert!(refused.ends_with("d.json cannot be read (is a directory)"), "it may say what to restore: {refused}");
    }
}
