//! Finds network namespaces, and opens a netlink socket in each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use brobust_sockdiag::SockDiag;
use nix::sched::{setns, CloneFlags};

use crate::{Error, Result};

/// Directory in which ip-netns(8) names network namespaces.
const NAMED: &str = "/run/netns";
const OURS: &str = "/proc/self/ns/net";
const MOUNTS: &str = "/proc/self/mountinfo";

/// The network namespaces to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The namespace that this process is in.
    Own,
    /// A namespace by its name of ip-netns(8).
    Named(String),
    /// Those of all processes, all named ones, and those that are mounted elsewhere, as container engines do.
    All,
}

/// A namespace by its inode, with its name in messages to users.
pub struct Found {
    pub inode: u64,
    pub name: String,
    path: PathBuf,
}

impl Namespaces {
    /// Returns the namespaces that exist now, and an error for each that could not be found. That a process ends in
    /// between, and its namespace with it, is no error.
    pub fn find(&self) -> (Vec<Found>, Vec<Error>) {
        match self {
            Namespaces::Own => one(Path::new(OURS), "", |error| format!("{OURS}: {error}")),
            Namespaces::Named(name) => {
                let path = Path::new(NAMED).join(name);
                one(&path, name, |error| match error.kind() {
                    ErrorKind::NotFound => {
                        format!("there is no {}; `ip netns list` shows those that are named", path.display())
                    }
                    _ => format!("{}: {error}", path.display()),
                })
            }
            Namespaces::All => every(),
        }
    }
}

fn one(path: &Path, name: &str, reason: impl Fn(io::Error) -> String) -> (Vec<Found>, Vec<Error>) {
    match found(path, name) {
        Ok(one) => (vec![one], vec![]),
        Err(error) => (vec![], vec![Error::Namespace { name: name.to_owned(), reason: reason(error) }]),
    }
}

fn found(path: &Path, name: &str) -> io::Result<Found> {
    Ok(Found { inode: fs::metadata(path)?.ino(), name: name.to_owned(), path: path.to_owned() })
}

/// Returns every namespace once: our own without a name, then those with a name, then those of processes, then those
/// that are only mounted somewhere.
fn every() -> (Vec<Found>, Vec<Error>) {
    let mut by_inode: BTreeMap<u64, Found> = BTreeMap::new();
    let mut hidden = 0;
    let mut add = |one: io::Result<Found>| match one {
        Ok(one) => drop(by_inode.entry(one.inode).or_insert(one)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => hidden += 1,
        Err(_) => {}
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
    for path in mounted(&fs::read_to_string(MOUNTS).unwrap_or_default()) {
        add(found(&path, &path.to_string_lossy()));
    }
    let errors = (hidden > 0).then_some(Error::Hidden { processes: hidden });
    (by_inode.into_values().collect(), errors.into_iter().collect())
}

/// Returns where network namespaces are mounted. In a line of proc_pid_mountinfo(5), the fourth word says what is
/// mounted and the fifth where.
fn mounted(mountinfo: &str) -> Vec<PathBuf> {
    let of_line = |line: &str| {
        let mut words = line.split(' ').skip(3);
        let (what, place) = (words.next()?, words.next()?);
        what.starts_with("net:[").then(|| PathBuf::from(unescaped(place)))
    };
    mountinfo.lines().filter_map(of_line).collect()
}

/// Replaces \040 and the like by the spaces, tabs, line ends and backslashes that they stand for.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (code, letter)| path.replace(code, letter))
}

impl Found {
    /// Opens a socket in the namespace. A socket keeps the namespace in which it was opened, so a thread enters the
    /// namespace, opens one, and ends.
    pub fn open(&self) -> Result<SockDiag> {
        if self.path == Path::new(OURS) {
            return Ok(SockDiag::open()?);
        }
        let refuse = |reason: String| Error::Namespace { name: self.name.clone(), reason };
        let (path, inode) = (self.path.clone(), self.inode);
        let there = thread::spawn(move || {
            let namespace = File::open(&path).map_err(|error| error.to_string())?;
            // The process id may belong to another process by now, in another namespace.
            if namespace.metadata().map_err(|error| error.to_string())?.ino() != inode {
                return Err("it no longer exists".into());
            }
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("{error}; entering another namespace takes CAP_SYS_ADMIN"))?;
            SockDiag::open().map_err(|error| error.to_string())
        });
        match there.join() {
            Ok(opened) => opened.map_err(refuse),
            Err(_) => Err(refuse("the thread that entered it panicked".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_to_another_namespace_by_now_is_not_followed() {
        let here = found(Path::new("/proc/thread-self/ns/net"), "pid 7").unwrap();
        let other = Found { inode: here.inode + 1, ..here };
        let refusal = other.open().err().expect("it is another one").to_string();
        assert!(refusal.contains("pid 7: it no longer exists"), "{refusal}");
    }

    #[test]
    fn namespaces_are_found_where_they_are_mounted() {
        let mountinfo = "22 28 0:21 / /proc rw,nosuid shared:13 - proc proc rw\n\
                         99 28 0:4 net:[4026532281] /run/docker/netns/a\\040b rw shared:7 - nsfs nsfs rw\n\
                         98 28 0:4 mnt:[4026532282] /run/snapd/ns/x.mnt rw - nsfs nsfs rw\n";
        assert_eq!(mounted(mountinfo), vec![PathBuf::from("/run/docker/netns/a b")]);
        assert!(mounted("nonsense").is_empty());
    }
}
