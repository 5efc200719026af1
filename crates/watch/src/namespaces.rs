//! Network namespaces, and a netlink socket in each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use brobust_sockdiag::SockDiag;
use nix::sched::{setns, CloneFlags};

use crate::{Error, Result};

/// Where ip-netns(8) names them.
const NAMED: &str = "/run/netns";
const OURS: &str = "/proc/self/ns/net";

/// Which to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The one that this process is in.
    Own,
    /// Of ip-netns(8).
    Named(String),
    /// Of every process, and every named one.
    All,
}

/// A namespace by its inode, and how people call it.
pub struct Found {
    pub inode: u64,
    pub name: String,
    path: PathBuf,
}

impl Namespaces {
    /// Those that are there now. A process that ends meanwhile takes its own with it: that is no error.
    pub fn find(&self) -> Result<Vec<Found>> {
        let found = match self {
            Namespaces::Own => found(Path::new(OURS), "").into_iter().collect(),
            Namespaces::Named(name) => {
                let path = Path::new(NAMED).join(name);
                let refuse = || Error::Namespace {
                    name: name.clone(),
                    reason: format!("there is no {}; `ip netns list` shows those that are named", path.display()),
                };
                vec![found(&path, name).ok_or_else(refuse)?]
            }
            Namespaces::All => every(),
        };
        Ok(found)
    }
}

fn found(path: &Path, name: &str) -> Option<Found> {
    Some(Found { inode: fs::metadata(path).ok()?.ino(), name: name.to_owned(), path: path.to_owned() })
}

/// Each once: our own under no name, then those with a name, then those that only processes have.
fn every() -> Vec<Found> {
    let mut by_inode: BTreeMap<u64, Found> = BTreeMap::new();
    let mut add = |one: Option<Found>| {
        if let Some(one) = one {
            by_inode.entry(one.inode).or_insert(one);
        }
    };
    add(found(Path::new(OURS), ""));
    for entry in fs::read_dir(NAMED).into_iter().flatten().flatten() {
        add(found(&entry.path(), &entry.file_name().to_string_lossy()));
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|c| c.is_ascii_digit()) {
            add(found(&entry.path().join("ns/net"), &format!("pid {name}")));
        }
    }
    by_inode.into_values().collect()
}

impl Found {
    /// A socket keeps the namespace that it was opened in, so a thread goes there, opens one, and ends.
    pub fn open(&self) -> Result<SockDiag> {
        if self.path == Path::new(OURS) {
            return Ok(SockDiag::open()?);
        }
        let refuse = |reason: String| Error::Namespace { name: self.name.clone(), reason };
        let path = self.path.clone();
        let there = thread::spawn(move || {
            let namespace = File::open(&path).map_err(|error| error.to_string())?;
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("{error}; to look into others takes CAP_SYS_ADMIN"))?;
            Ok(SockDiag::open())
        });
        match there.join() {
            Ok(Ok(socket)) => Ok(socket?),
            Ok(Err(reason)) => Err(refuse(reason)),
            Err(_) => Err(refuse("the thread that looked into it died".into())),
        }
    }
}
