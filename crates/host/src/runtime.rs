//! Where the records of sessions are on this host, and what must not be changed by two processes at once.

use std::collections::BTreeSet;
use std::env;
use std::fmt;
use std::fs;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::journal::Journal;
use crate::locks::{self, Lock};
use crate::{names, Owner, Result};

/// The directory of sessions, and of locks for what exists only once per host. BROBUST_RUNTIME names another one for
/// sessions alone.
const HOST: &str = "/run/brobust";

const PATIENCE: Duration = Duration::from_secs(60);

/// The directory in which each session has a directory of its own. The other paths differ only in tests.
#[derive(Debug, Clone)]
pub struct Runtime {
    pub(crate) directory: PathBuf,
    pub(crate) host: PathBuf,
    pub(crate) sysctls: PathBuf,
    pub(crate) namespaces: PathBuf,
}

impl Runtime {
    /// Returns the directory that BROBUST_RUNTIME names; /run/brobust without it.
    pub fn of_environment() -> Self {
        let named = env::var_os("BROBUST_RUNTIME").filter(|named| !named.is_empty());
        let directory = named.map_or_else(|| HOST.into(), PathBuf::from);
        // The guardian has another current directory.
        Self::at(&path::absolute(&directory).unwrap_or(directory))
    }

    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.into(),
            host: HOST.into(),
            sysctls: "/proc/sys".into(),
            namespaces: "/run/netns".into(),
        }
    }

    /// Takes the lock without which no process changes sessions.
    pub(crate) fn lock(&self) -> Result<Lock> {
        self.lock_while(|| ())
    }

    /// Takes the same, and calls `waiting` again and again while another process has it.
    pub(crate) fn lock_while(&self, waiting: impl FnMut()) -> Result<Lock> {
        locks::lock_while(&self.directory.join("lock"), PATIENCE, waiting)
    }

    /// Takes the lock without which no process of this host holds a sysctl. `waiting`: as above.
    pub(crate) fn lock_sysctls(&self, waiting: impl FnMut()) -> Result<Lock> {
        locks::private_directory(&self.host)?;
        locks::lock_while(&self.host.join("sysctl.lock"), PATIENCE, waiting)
    }

    /// Returns every session, of the living and of the dead, with its owner; but none of another PID namespace, which may
    /// have this directory, too: whether their owners live is not seen from here.
    pub(crate) fn sessions(&self) -> Result<Vec<(Owner, PathBuf)>> {
        if !self.directory.is_dir() {
            return Ok(Vec::new());
        }
        locks::refuse_foreign(&self.directory)?;
        let named =
            names(&self.directory).filter_map(|name| Some((name.parse::<Owner>().ok()?, self.directory.join(name))));
        let mut found: Vec<_> = named
            .filter(|(_, path)| Journal::read(path).map_or(true, |journal| sees_processes_of(&journal.pid_namespace)))
            .collect();
        found.sort();
        Ok(found)
    }

    /// Returns the prefix of the names of our sessions' network namespaces. It differs for another directory and for
    /// another PID namespace, whose processes we cannot see.
    pub(crate) fn namespace_prefix(&self) -> String {
        let hash = Sha256::digest(format!("{} {}", self.directory.display(), pid_namespace()));
        let digits: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        format!("brobust-{digits}-")
    }

    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        names(&self.namespaces).collect()
    }
}

/// Returns what identifies the PID namespace of this process; empty if it cannot be read.
pub fn pid_namespace() -> String {
    pid_namespace_of("self")
}

/// Returns the same of a process of /proc.
pub(crate) fn pid_namespace_of(process: impl fmt::Display) -> String {
    fs::read_link(format!("/proc/{process}/ns/pid")).unwrap_or_default().display().to_string()
}

/// Whether a process whose record names this PID namespace can be told by its id here. Older records name none.
pub fn sees_processes_of(pid_namespace_of_record: &str) -> bool {
    pid_namespace_of_record.is_empty() || pid_namespace_of_record == pid_namespace()
}
