//! Finds the network namespaces of this host, and runs code inside one.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::sched::{setns, CloneFlags};
use nix::unistd::{geteuid, Uid};

use crate::refusal::reason;
use crate::{entries, names, read_proc, Refusal, Result};

/// Directory in which ip-netns(8) names network namespaces.
const NAMED: &str = "/run/netns";
const OURS: &str = "/proc/self/ns/net";
const MOUNTS: &str = "/proc/self/mountinfo";

/// A network namespace. The inode identifies it; the path is the file through which it is entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub inode: u64,
    pub name: Name,
    path: PathBuf,
}

/// What a namespace is called, by what it was found through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    Own,
    /// Its name of ip-netns(8).
    Named(String),
    /// The id of a process in it.
    Process(i32),
    /// Where it is mounted, as container engines do.
    Mounted(PathBuf),
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Own => formatter.write_str("this network namespace"),
            Name::Named(name) => formatter.write_str(name),
            Name::Process(pid) => write!(formatter, "process {pid}"),
            Name::Mounted(path) => write!(formatter, "{}", path.display()),
        }
    }
}

/// Why code did not run inside a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NotEntered {
    #[error("it no longer exists")]
    Gone,
    #[error("{}; entering another network namespace takes CAP_SYS_ADMIN{}", reason(.0), what_helps(geteuid()))]
    NotAllowed(io::Error),
    /// Such as a file in /run/netns that is no namespace.
    #[error("it cannot be entered ({})", reason(.0))]
    Refused(io::Error),
    #[error("no thread can be started to enter it ({}); end other processes, or raise ulimit -u", reason(.0))]
    NoThread(io::Error),
}

impl Namespace {
    pub fn own() -> io::Result<Self> {
        Self::at(OURS.into(), Name::Own)
    }

    pub fn named(name: &str) -> io::Result<Self> {
        Self::at(Path::new(NAMED).join(name), Name::Named(name.to_owned()))
    }

    /// Returns the namespace that a user means: its name in `ip netns`, the id of a process in it, or its path.
    pub fn find(given: &str) -> Result<Self> {
        let found = match given.parse() {
            Ok(pid) => match (Self::named(given), Self::of_process(pid)) {
                (Ok(named), Ok(of_process)) if named.inode != of_process.inode => {
                    return Err(Refusal::bad_input(format!(
                        "'{given}' is a name in `ip netns` and the id of a process, too; give {NAMED}/{given} or \
                         /proc/{given}/ns/net"
                    )));
                }
                (Ok(named), _) => Ok(named),
                (Err(_), of_process) => of_process,
            },
            Err(_) if given.contains('/') => Self::at(given.into(), Name::Mounted(given.into())),
            Err(_) => Self::named(given),
        };
        found.map_err(|error| not_found(given, &error))
    }

    /// Returns the one whose default congestion control new namespaces inherit: the first one, in which process 1 is
    /// (net/ipv4/tcp_ipv4.c, tcp_sk_init).
    pub fn first() -> io::Result<Self> {
        Self::of_process(1)
    }

    fn of_process(pid: i32) -> io::Result<Self> {
        Self::at(format!("/proc/{pid}/ns/net").into(), Name::Process(pid))
    }

    fn at(path: PathBuf, name: Name) -> io::Result<Self> {
        let found = fs::metadata(&path)?;
        if !found.is_file() {
            // Opening a pipe would wait for a writer.
            return Err(io::Error::other("no regular file"));
        }
        Ok(Self { inode: found.ino(), name, path })
    }

    /// Runs a function in the namespace, and returns its result. It runs in a new thread, because a thread, not a
    /// process, enters a namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> std::result::Result<T, NotEntered> {
        // Whatever it was found through: entering even our own takes a privilege.
        if self.name == Name::Own || Self::own().is_ok_and(|own| own.inode == self.inode) {
            return Ok(work());
        }
        let enter_and_work = || self.enter().map(|()| work());
        thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, enter_and_work).map_err(NotEntered::NoThread)?;
            started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn enter(&self) -> std::result::Result<(), NotEntered> {
        let refused = |error: io::Error| match (error.kind(), error.raw_os_error()) {
            // The second: the process has ended.
            (ErrorKind::NotFound, _) | (_, Some(nix::libc::ESRCH)) => NotEntered::Gone,
            (ErrorKind::PermissionDenied, _) => NotEntered::NotAllowed(error),
            _ => NotEntered::Refused(error),
        };
        let file = File::open(&self.path).map_err(refused)?;
        // The process id may belong to another process by now, in another namespace.
        if file.metadata().map_err(refused)?.ino() != self.inode {
            return Err(NotEntered::Gone);
        }
        setns(file, CloneFlags::CLONE_NEWNET).map_err(|error| refused(error.into()))
    }
}

/// Says, after a capability that is missing, what helps. Being root does not help root.
pub fn what_helps(user: Uid) -> &'static str {
    match user.is_root() {
        false => ": run this as root",
        true => ", which a container or a security module keeps even from root: run this outside of it",
    }
}

fn not_found(given: &str, error: &io::Error) -> Refusal {
    if error.kind() == ErrorKind::PermissionDenied {
        return Refusal::missing_support(format!(
            "this user may not see the network namespace '{given}'; that of another's process takes CAP_SYS_PTRACE{}, or \
             give another process of that namespace",
            what_helps(geteuid())
        ));
    }
    let names: Vec<String> = named().iter().map(|path| last(path)).collect();
    let names = if names.is_empty() { "there are none".to_owned() } else { names.join(", ") };
    let reason = reason(error);
    Refusal::bad_input(format!(
        "'{given}' is not a network namespace ({reason}); give a process id, a path, or a name in `ip netns`: {names}"
    ))
}

pub struct Found {
    pub namespaces: Vec<Namespace>,
    /// The number of processes whose namespaces are hidden from us.
    pub hidden: usize,
}

/// Returns every namespace once: our own, then those with a name, then those of processes, then those that are only
/// mounted somewhere. One that only an open file keeps alive has no path, so it is not found. That a process ends in
/// between, and its namespace with it, is no error.
pub fn every() -> Found {
    let mut found = Found { namespaces: Vec::new(), hidden: 0 };
    let mut inodes = BTreeSet::new();
    let mut add = |one: io::Result<Namespace>| match one {
        Ok(one) if inodes.insert(one.inode) => found.namespaces.push(one),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => found.hidden += 1,
        Ok(_) | Err(_) => {}
    };
    add(Namespace::own());
    for path in named() {
        let name = last(&path);
        add(Namespace::at(path, Name::Named(name)));
    }
    for pid in names("/proc").filter_map(|name| name.parse().ok()) {
        add(Namespace::of_process(pid));
    }
    for path in mounted(&read_proc(MOUNTS).unwrap_or_default()) {
        add(Namespace::at(path.clone(), Name::Mounted(path)));
    }
    found
}

/// Returns where the namespaces with names of ip-netns(8) are, sorted.
fn named() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = entries(Path::new(NAMED)).collect();
    paths.sort();
    paths
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
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

/// Replaces \040 and the like in a mount point of /proc by the spaces, tabs, line ends and backslashes that they stand
/// for.
pub(crate) fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (code, letter)| path.replace(code, letter))
}

#[cfg(test)]
mod tests {
    use super::{every, mounted, Name, Namespace, NotEntered};
    use std::path::PathBuf;

    #[test]
    fn a_path_that_leads_to_another_namespace_by_now_is_not_followed() {
        let here = Namespace::of_process(std::process::id() as i32).expect("our own");
        let other = Namespace { inode: here.inode + 1, ..here };
        assert!(matches!(other.inside(|| panic!("inside another one")), Err(NotEntered::Gone)));
        let ended = Namespace { path: "/proc/999999999/ns/net".into(), ..other };
        assert!(matches!(ended.inside(|| panic!("inside none")), Err(NotEntered::Gone)));
    }

    #[test]
    fn our_own_namespace_is_found_first_and_needs_no_entering() {
        let first = every().namespaces.swap_remove(0);
        assert_eq!((&first, &first.name), (&Namespace::own().expect("it is there"), &Name::Own));
        assert_eq!(first.inside(|| 7).expect("we are there"), 7);
        let by_process = Namespace::find(&std::process::id().to_string()).expect("found");
        assert_eq!(by_process.inode, first.inode);
        let here = std::thread::current().id();
        assert_eq!(by_process.inside(|| std::thread::current().id()).expect("we are there"), here);
    }

    #[test]
    fn a_namespace_that_is_not_there_is_refused() {
        for given in ["999999999", "no-such-namespace", "/no/such/path"] {
            let refusal = Namespace::find(given).unwrap_err().text;
            assert!(refusal.contains(&format!("'{given}' is not a network namespace (no such file")), "{refusal}");
        }
    }

    #[test]
    fn a_namespace_that_this_user_may_not_see_is_one() {
        let refusal = super::not_found("1", &std::io::ErrorKind::PermissionDenied.into()).text;
        assert!(refusal.contains("may not see") && refusal.contains(super::what_helps(super::geteuid())), "{refusal}");
    }

    #[test]
    fn root_is_not_told_to_be_root() {
        assert_eq!(super::what_helps(65534.into()), ": run this as root");
        let root = super::what_helps(0.into());
        assert!(!root.contains("as root") && root.contains("security module"), "{root}");
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
