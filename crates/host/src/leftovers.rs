//! What sessions have left on the host, and how it is undone.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroups::Group;
use crate::journal::Journal;
use crate::processes::{self, Process};
use crate::refusal::reason;
use crate::runtime::{pid_namespace, pid_namespace_of};
use crate::steps::{run, Step};
use crate::sysctl::Sysctl;
use crate::threads::SavedThread;
use crate::{locks, names, Owner, Refusal, Result, Runtime};

/// One thing of a session that is still on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub kind: &'static str,
    pub name: String,
    thing: Thing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    Process(Owner),
    Thread(SavedThread),
    Group(Group),
    Sysctl(Sysctl),
    /// Of the session in this directory.
    Step(Step, PathBuf),
    /// Its taps, bridge and qdiscs disappear with it.
    Namespace,
    /// Of a session. It is removed last, when nothing that it records is left.
    Directory,
}

impl Leftover {
    fn new(kind: &'static str, name: impl ToString, thing: Thing) -> Self {
        Self { kind, name: name.to_string(), thing }
    }

    fn process(owner: Owner) -> Self {
        Self::new("process", owner.pid, Thing::Process(owner))
    }

    fn namespace(name: String) -> Self {
        Self::new("namespace", name, Thing::Namespace)
    }

    fn remove(&self, runtime: &Runtime) -> Result<()> {
        match &self.thing {
            Thing::Process(owner) => owner.kill(),
            Thing::Thread(thread) => thread.restore(),
            Thing::Group(group) => group.remove(),
            Thing::Sysctl(sysctl) => sysctl.restore(&runtime.sysctls),
            Thing::Step(step, directory) => Journal::undo(directory, step),
            Thing::Namespace => match run(&["ip", "netns", "delete", &self.name]) {
                Err(why) if runtime.namespaces().contains(&self.name) => {
                    Err(Refusal::missing_support(format!("{self} could not be removed ({why})")))
                }
                _ => Ok(()),
            },
            Thing::Directory => Ok(()),
        }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.name)
    }
}

/// Returns what sessions whose process is gone have left on the host. This needs no privilege; without it, the records
/// of root's sessions cannot be read, and their directories are all that is seen.
pub fn leftovers(runtime: &Runtime) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for (owner, directory) in runtime.sessions()? {
        if !owner.lives() {
            found.extend(of_session(runtime, &directory).unwrap_or_default());
            found.push(Leftover::new("directory", directory.display(), Thing::Directory));
        }
    }
    // Of processes that were killed, with their guardians, before their sessions had begun.
    let unfinished = names(&runtime.directory).filter(|name| {
        let owner = name.strip_prefix('.').and_then(|name| name.strip_suffix(".new")).map(str::parse::<Owner>);
        owner.is_some_and(|owner| owner.is_ok_and(|owner| !owner.lives()))
    });
    let directory = |name| Leftover::new("directory", runtime.directory.join(name).display(), Thing::Directory);
    found.extend(unfinished.map(directory));
    // If somebody has removed /run/brobust by hand, our namespaces and QEMUs have no session.
    // Those of a container are of a session there, whose owner has another id here.
    let is_here = |owner: &Owner| pid_namespace_of(owner.pid) == pid_namespace();
    let processes = processes::all();
    let orphans = orphans(&processes, &runtime.directory, Owner::lives).filter(is_here);
    found.extend(orphans.map(Leftover::process));
    let prefix = runtime.namespace_prefix();
    let owner_of = |name: &str| name.strip_prefix(&prefix)?.parse::<Owner>().ok();
    let namespaces = runtime.namespaces().into_iter();
    found.extend(namespaces.filter(|name| owner_of(name).is_some_and(|owner| !owner.lives())).map(Leftover::namespace));
    let mut seen = HashSet::new();
    found.retain(|one| seen.insert((one.kind, one.name.clone())));
    Ok(found)
}

/// Removes all leftovers. Returns what could not be removed, with the reason.
pub fn clean(runtime: &Runtime) -> Result<Vec<String>> {
    if !runtime.directory.is_dir() && leftovers(runtime)?.is_empty() {
        return Ok(Vec::new());
    }
    locks::private_directory(&runtime.directory)?;
    let _lock = runtime.lock()?;
    clean_locked(runtime)
}

pub(crate) fn clean_locked(runtime: &Runtime) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (owner, directory) in runtime.sessions()? {
        if !owner.lives() {
            problems.extend(undo_locked(runtime, &directory));
        }
    }
    problems.extend(remove_all(runtime, &leftovers(runtime)?));
    // Left by a process that was killed at its start, with its guardian; no other starts now.
    for name in names(&runtime.directory).filter(|name| name.starts_with('.') && name.ends_with(".new")) {
        let _ = fs::remove_dir_all(runtime.directory.join(name));
    }
    let mut seen = HashSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    Ok(problems)
}

/// Returns the directory that becomes this directory of a session when its content is complete.
pub(crate) fn scratch_of(directory: &Path) -> PathBuf {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    directory.with_file_name(format!(".{name}.new"))
}

/// Undoes a session. Returns what could not be undone, with the reason; then the session stays recorded.
pub fn undo(runtime: &Runtime, directory: &Path) -> Result<Vec<String>> {
    let _lock = runtime.lock()?;
    Ok(undo_locked(runtime, directory))
}

pub(crate) fn undo_locked(runtime: &Runtime, directory: &Path) -> Vec<String> {
    let _ = fs::remove_dir_all(scratch_of(directory));
    let mut problems = undo_recorded(runtime, directory).unwrap_or_else(|refusal| vec![refusal.text]);
    if problems.is_empty() {
        if let Err(error) = fs::remove_dir_all(directory) {
            if error.kind() != io::ErrorKind::NotFound {
                problems.push(format!("directory {} ({})", directory.display(), reason(&error)));
            }
        }
    }
    problems
}

/// Undoes what a session has recorded. Returns what could not be undone, with the reason.
fn undo_recorded(runtime: &Runtime, directory: &Path) -> Result<Vec<String>> {
    let problems = remove_all(runtime, &of_session(runtime, directory)?);
    if !problems.is_empty() {
        return Ok(problems);
    }
    Ok(of_session(runtime, directory)?.iter().map(|left| format!("{left} (it is still there)")).collect())
}

/// Removes each of these even if others cannot be removed. Returns what could not be removed, with the reason.
fn remove_all(runtime: &Runtime, leftovers: &[Leftover]) -> Vec<String> {
    leftovers.iter().filter_map(|leftover| leftover.remove(runtime).err()).map(|refusal| refusal.text).collect()
}

/// Returns what a session has left, in the order in which it must be undone, without its directory. Changes that commands
/// undo come in reverse order. Threads come before sysctls, because the kernel refuses to limit real-time threads again
/// while more DEADLINE bandwidth is admitted than the limit allows.
fn of_session(runtime: &Runtime, directory: &Path) -> Result<Vec<Leftover>> {
    let Journal { namespace, processes, sysctls, threads, groups, steps, .. } = Journal::find(directory)?;
    let processes = processes.iter().filter_map(|process| process.parse().ok());
    let mut found: Vec<Leftover> = processes.filter(Owner::lives).map(Leftover::process).collect();
    for step in steps.into_iter().rev() {
        found.push(Leftover::new("change of", step.what.clone(), Thing::Step(step, directory.into())));
    }
    for thread in threads.into_iter().filter(SavedThread::is_altered) {
        found.push(Leftover::new("contention of thread", thread.tid, Thing::Thread(thread)));
    }
    for group in groups.into_iter().filter(Group::remains) {
        found.push(Leftover::new("cgroup", group.path.display().to_string(), Thing::Group(group)));
    }
    for sysctl in sysctls.into_iter().filter(|sysctl| sysctl.is_held(&runtime.sysctls)) {
        let name = format!("{}={}", sysctl.name, sysctl.previous);
        found.push(Leftover::new("sysctl", name, Thing::Sysctl(sysctl)));
    }
    if runtime.namespaces().contains(&namespace) {
        found.push(Leftover::namespace(namespace));
    }
    Ok(found)
}

/// Returns the QEMUs, and the kernels that run without QEMU, of sessions whose brobust is gone. They should have ended with
/// it, but have not.
fn orphans<'a>(
    processes: &'a [Process],
    directory: &Path,
    lives: impl Fn(&Owner) -> bool + 'a,
) -> impl Iterator<Item = Owner> + 'a {
    let within = format!("{}/", directory.display());
    let owner_of = move |process: &Process| {
        let path = process.command.iter().find_map(|word| Some(word.split_once(&within)?.1))?;
        path.split('/').next()?.parse::<Owner>().ok()
    };
    // A User-Mode Linux is executed by /proc/self/exe, and then by its own choice again.
    let is_kernel = |process: &Process| process.command.iter().any(|word| word.starts_with("brobust_wire="));
    let is_guest = move |process: &&Process| process.name.starts_with("qemu-system") || is_kernel(process);
    processes.iter().filter(is_guest).filter_map(move |process| {
        let owner = owner_of(process)?;
        // Not whoever has its id by now: it may have ended since all processes were listed.
        let found = Owner { pid: process.pid, started: process.started };
        (!lives(&owner) && process.parent != owner.pid).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    #[test]
    fn only_the_qemu_of_a_session_that_is_gone_is_an_orphan() {
        let process = |pid, parent, name: &str, word: &str| Process {
            pid,
            started: 7,
            parent,
            name: name.into(),
            command: vec!["-qmp".into(), word.into()],
        };
        let qemu = "qemu-system-x86";
        let of = |owner: &str| format!("unix:/run/there/{owner}/sender.qmp,server=on");
        let processes = [
            process(11, 1, qemu, &of("4194305-1")),
            process(12, 1, qemu, &of("7-7")),               // its session lives
            process(13, 4_194_305, qemu, &of("4194305-1")), // its parent lives, elsewhere
            process(14, 1, "tail", &of("4194305-1")),
            process(15, 1, qemu, "unix:/run/there-other/4194305-1/sender.qmp"),
            process(16, 1, qemu, "web"),
            Process {
                command: vec!["brobust_wire=5".into(), "session=/run/there/4194305-1/path".into()],
                ..process(17, 1, "exe", "")
            },
        ];
        let found: Vec<_> = orphans(&processes, Path::new("/run/there"), |owner| owner.pid == 7).collect();
        let known = |text: &str| text.parse::<Owner>().expect("an owner");
        assert_eq!(found, [known("11-7"), known("17-7")], "not whoever has these ids now");
    }

    #[test]
    #[ignore = "needs root"]
    fn the_qemu_of_a_container_is_no_orphan_of_this_host() {
        let made = tempfile::tempdir().expect("made");
        // A process is called after the link through which it is executed.
        let qemu = made.path().join("qemu-system-x86");
        symlink("/bin/sh", &qemu).expect("linked");
        let runtime = Runtime::at(&made.path().join("run"));
        let socket = format!("unix:{}/4194305-1/sender.qmp", runtime.directory.display());
        let found_with = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(["-c", "echo begun; read end; true", &socket]);
            let mut started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let begun = io::Read::read_exact(started.stdout.as_mut().expect("piped"), &mut [0; 6]);
            let found = leftovers(&runtime).expect("they can be listed");
            drop(started.stdin.take());
            started.wait().expect("it ends");
            begun.expect("it began");
            found.iter().map(|one| one.kind).collect::<Vec<_>>()
        };
        let program = qemu.display().to_string();
        assert_eq!(found_with(&[&program]), ["process"]);
        assert!(found_with(&["unshare", "--pid", "--fork", &program]).is_empty());
    }
}
