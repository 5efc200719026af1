//! Records everything that a command changes on the host, and undoes it, whichever process dies.
//!
//! A *session* is a directory /run/brobust/PID-START for one brobust process. Its `session.json` records what the process
//! creates (a network namespace, QEMU processes, cgroups) and what it changes (a sysctl, threads of somebody's VM, with
//! their previous state), before it does so. When the process is killed, its guardian, a separate process, undoes all of
//! it; if both are killed, the next start or `brobust doctor --clean` does. Contention of our own guests need not be
//! recorded: the burner, the competitors and the recorder's BPF programs end with brobust, and a DEADLINE policy with its
//! QEMU.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroups::{self, Group};
use crate::guardian::Guardian;
use crate::journal::Journal;
use crate::leftovers::{clean_locked, scratch_of, undo_locked};
use crate::locks::{self, Lock};
use crate::refusal::{cannot_access, reason};
use crate::steps::Step;
use crate::sysctl::Sysctl;
use crate::threads::{cpus_of, SavedThread};
use crate::{pid_namespace, printable, Owner, Refusal, Result, Runtime};

/// The session of this process. Dropping it undoes everything.
#[derive(Debug)]
pub struct Session {
    pub directory: PathBuf,
    runtime: Runtime,
    owner: Owner,
    journal: Journal,
    guardian: Option<Guardian>,
    /// While a sysctl is held.
    sysctl_lock: Option<Lock>,
    has_ended: bool,
}

impl Session {
    /// Begins a session of this process with a guardian: `program`, which is brobust-host. If `silence` is given, the
    /// guardian takes the process for stuck, and kills it, when it has not called `say_alive` for this long. Another
    /// process's session is refused, unless this one may be `beside_others`.
    pub fn start(runtime: Runtime, program: &Path, beside_others: bool, silence: Option<Duration>) -> Result<Self> {
        let silence = silence.unwrap_or_default().as_secs_f64().to_string();
        Self::begin(runtime, beside_others, |directory| {
            Guardian::start(program, &["guard", "session", &directory.display().to_string(), &silence]).map(Some)
        })
    }

    /// `guarded` starts the guardian of a session in this directory.
    fn begin(
        runtime: Runtime,
        beside_others: bool,
        guarded: impl FnOnce(&Path) -> Result<Option<Guardian>>,
    ) -> Result<Self> {
        locks::private_directory(&runtime.directory)?;
        let lock = runtime.lock()?;
        // What a killed command left could disturb this one.
        for problem in clean_locked(&runtime)? {
            // Not eprintln!, which panics where the terminal is gone.
            let _ =
                writeln!(io::stderr(), "brobust: left behind by a command that was killed: {}", printable(&problem));
        }
        for (owner, _) in runtime.sessions()? {
            if owner.lives() && !beside_others {
                return Err(Refusal::missing_support(format!(
                    "another brobust (process {}) is at work on this host, and two would disturb each other's \
                     measurements; wait until it has ended",
                    owner.pid
                )));
            }
        }
        let owner = Owner::current();
        let directory = runtime.directory.join(owner.to_string());
        // First, so that a process that is killed at any moment does not even leave its directory.
        let guardian = guarded(&directory)?;
        let session = Self {
            directory,
            runtime,
            owner,
            journal: Journal { pid_namespace: pid_namespace(), ..Journal::default() },
            guardian,
            sysctl_lock: None,
            has_ended: false,
        };
        let appeared = session.appear();
        drop(lock); // which the end of a session takes
        appeared.map(|()| session)
    }

    /// Makes the session's directory appear with its content: one without session.json would look abandoned.
    fn appear(&self) -> Result<()> {
        let scratch = scratch_of(&self.directory);
        let made = DirBuilder::new().mode(0o700).create(&scratch);
        made.map_err(|error| cannot_access(&scratch, &error))?;
        self.journal.write(&scratch)?;
        fs::rename(&scratch, &self.directory).map_err(|error| cannot_access(&self.directory, &error))
    }

    /// Changes the journal. What cannot be written down is not in it: it must not be taken for recorded later.
    fn record(&mut self, change: impl FnOnce(&mut Journal)) -> Result<()> {
        let mut journal = self.journal.clone();
        change(&mut journal);
        journal.write(&self.directory)?;
        self.journal = journal;
        Ok(())
    }

    fn lock(&mut self) -> Result<Lock> {
        self.runtime.lock_while(waiting(&mut self.guardian))
    }

    pub fn say_alive(&mut self) -> Result<()> {
        self.guardian.as_mut().map_or(Ok(()), Guardian::say_alive)
    }

    /// Records that this session has a network namespace, and returns the name that it must get.
    pub fn record_namespace(&mut self) -> Result<String> {
        let namespace = format!("{}{}", self.runtime.namespace_prefix(), self.owner);
        self.record(|journal| journal.namespace.clone_from(&namespace))?;
        Ok(namespace)
    }

    /// Returns the name of this session's network namespace; empty without one.
    pub fn namespace(&self) -> &str {
        &self.journal.namespace
    }

    /// Records a process that must end with this session.
    pub fn record_process(&mut self, pid: i32) -> Result<()> {
        self.record(|journal| journal.processes.push(Owner::of(pid).to_string()))
    }

    /// Records a change that a command undoes, before it is made. One that is recorded already is not undone twice.
    pub fn record_step(&mut self, step: Step) -> Result<()> {
        if self.journal.steps.contains(&step) {
            return Ok(());
        }
        self.record(|journal| journal.steps.push(step))
    }

    /// Records the state of somebody else's threads before they are changed; the end of the session restores it. Refuses
    /// a state that they no longer have: it may be that of another command's contention, which has ended since.
    pub fn hold_threads(&mut self, threads: &[SavedThread]) -> Result<()> {
        let _lock = self.lock()?;
        for thread in threads {
            refuse_held(&self.runtime, thread.tid)?;
            thread.refuse_another()?;
            if thread.is_altered() {
                let text = format!(
                    "the policy, nice value or CPUs of thread {} have just been changed; repeat the command",
                    thread.tid
                );
                return Err(Refusal::missing_support(text));
            }
        }
        self.record(|journal| journal.threads.extend_from_slice(threads))
    }

    /// Records which CPUs our contention may keep busy, and how many more (`roaming`) that the scheduler chooses. Refuses
    /// it if another session keeps one of them busy, or no CPU would be left for the host, unless `force`.
    pub fn hold_cpus(&mut self, cpus: &[usize], roaming: usize, force: bool) -> Result<()> {
        let _lock = self.lock()?;
        if !force {
            refuse_busy(&self.runtime, self.owner, cpus)?;
            refuse_without_spare(&self.runtime, cpus, roaming)?;
        }
        self.record(|journal| {
            journal.cpus.extend_from_slice(cpus);
            journal.cpus.sort_unstable();
            journal.cpus.dedup();
            journal.roaming += roaming;
        })
    }

    /// Puts each thread into a new cgroup with this quota, and returns the cgroups.
    pub fn hold_groups(&mut self, threads: &[i32], timeslice_ns: u64, period_ns: u64) -> Result<Vec<Group>> {
        let mut made = Vec::new();
        for thread in threads {
            match self.hold_group(*thread, timeslice_ns, period_ns) {
                Ok(group) => made.push(group),
                Err(refusal) => {
                    self.release_groups(&made)?;
                    return Err(refusal);
                }
            }
        }
        Ok(made)
    }

    fn hold_group(&mut self, thread: i32, timeslice_ns: u64, period_ns: u64) -> Result<Group> {
        let _lock = self.lock()?;
        let mut others = Vec::new();
        for (_, directory) in self.runtime.sessions()? {
            others.extend(Journal::find(&directory)?.groups);
        }
        let group = cgroups::group_for(thread, &others)?;
        // What is recorded is removed at the end.
        group.refuse_existing()?;
        self.record(|journal| journal.groups.push(group.clone()))?;
        group.hold(thread, timeslice_ns, period_ns)?;
        Ok(group)
    }

    /// Removes these cgroups; the threads return to their previous ones.
    pub fn release_groups(&mut self, groups: &[Group]) -> Result<()> {
        let _lock = self.lock()?;
        let (mut removed, mut problems) = (Vec::new(), Vec::new());
        for group in groups {
            match group.remove() {
                Ok(()) => removed.push(group),
                Err(refusal) => problems.push(refusal.text),
            }
        }
        self.record(|journal| journal.groups.retain(|held| !removed.contains(&held)))?;
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Refusal::failed(problems.join("; "))),
        }
    }

    /// Holds a sysctl (a path below /proc/sys) at a value until `release_sysctl`. Only one process of the host can do so at
    /// a time, and a process one sysctl, because a second one would take the first one's value for the previous value.
    pub fn hold_sysctl(&mut self, name: &str, value: &str) -> Result<()> {
        let lock = self.runtime.lock_sysctls(waiting(&mut self.guardian))?;
        let file = self.runtime.sysctls.join(name);
        let now = fs::read_to_string(&file).map_err(|error| cannot_access(&file, &error))?;
        // If it could not be restored the last time, the session has its true previous value, not the file.
        let recorded = self.journal.sysctls.iter().find(|sysctl| sysctl.name == name);
        let previous = recorded.map_or(now.trim().to_owned(), |sysctl| sysctl.previous.clone());
        self.sysctl_lock = Some(lock);
        if previous == value {
            return Ok(());
        }
        let held = Sysctl { name: name.into(), previous, held: value.into() };
        let recorded = self.record(|journal| {
            journal.sysctls.retain(|sysctl| sysctl.name != name);
            journal.sysctls.push(held.clone());
        });
        let outcome = recorded.and_then(|()| held.write(&self.runtime.sysctls, value));
        if outcome.is_err() {
            self.release_sysctl(name)?;
        }
        outcome
    }

    /// Gives a sysctl its previous value. If that cannot be done, it stays recorded.
    pub fn release_sysctl(&mut self, name: &str) -> Result<()> {
        let Some(_lock) = self.sysctl_lock.take() else { return Ok(()) };
        let Some(held) = self.journal.sysctls.iter().find(|sysctl| sysctl.name == name) else { return Ok(()) };
        held.restore(&self.runtime.sysctls).map_err(|refusal| Refusal::failed(refusal.text))?;
        self.record(|journal| journal.sysctls.retain(|sysctl| sysctl.name != name))
    }

    /// Undoes everything; a second call does nothing. If something cannot be undone, it stays recorded, and the refusal
    /// names it.
    pub fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        // If it could not even be tried, the guardian tries when this process ends.
        let lock = self.lock()?;
        let problems = undo_locked(&self.runtime, &self.directory);
        drop(lock);
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
        if problems.is_empty() {
            return Ok(());
        }
        let text = format!("not undone: {}; `brobust doctor --clean` tries again", problems.join("; "));
        Err(Refusal::missing_support(text))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Not in a process that was forked from ours. Whoever wants to know of problems calls end().
        if self.owner == Owner::current() {
            let _ = self.end();
        }
    }
}

/// Returns what is called again and again while another process has a lock: who waits for that is not stuck, however long
/// the wait is, and the guardian is told so. That the guardian is gone is said the next time.
fn waiting(guardian: &mut Option<Guardian>) -> impl FnMut() + '_ {
    move || {
        let _ = guardian.as_mut().map(Guardian::say_alive);
    }
}

/// Returns the journals of running brobusts. One that this user may not read counts as empty.
fn of_the_living(runtime: &Runtime) -> Result<Vec<(Owner, Journal)>> {
    let living = runtime.sessions()?.into_iter().filter(|(owner, _)| owner.lives());
    let read = |(owner, directory): (_, PathBuf)| match Journal::read(&directory) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok((owner, Journal::default())),
        Err(error) => Err(cannot_access(&directory, &error)),
        Ok(journal) => Ok((owner, journal)),
    };
    living.map(read).collect()
}

/// Refuses a thread that another running brobust has changed, since its state now is not its own. A thread that has ended
/// may have left its id to another one, which nobody has changed.
pub fn refuse_held(runtime: &Runtime, thread: i32) -> Result<()> {
    let journals = of_the_living(runtime)?;
    let is_held = |saved: &SavedThread| saved.tid == thread && saved.is_same();
    match journals.iter().find(|(_, journal)| journal.threads.iter().any(is_held)) {
        None => Ok(()),
        Some((owner, _)) => {
            let text = format!("thread {thread} is already under contention by process {}", owner.pid);
            Err(Refusal::missing_support(text))
        }
    }
}

/// Refuses CPUs that the contention of another brobust than `own` keeps busy: whoever chose them may have done so at the
/// same time.
fn refuse_busy(runtime: &Runtime, own: Owner, cpus: &[usize]) -> Result<()> {
    for (owner, journal) in of_the_living(runtime)? {
        if let Some(cpu) = cpus.iter().find(|cpu| journal.cpus.contains(cpu)).filter(|_| owner != own) {
            let text = format!("process {} has just taken CPU {cpu} for its contention; repeat the command", owner.pid);
            return Err(Refusal::missing_support(text));
        }
    }
    Ok(())
}

/// Returns the CPUs that the contention of running brobusts keeps busy.
pub fn busy_cpus(runtime: &Runtime) -> Result<Vec<usize>> {
    Ok(of_the_living(runtime)?.into_iter().flat_map(|(_, journal)| journal.cpus).collect())
}

/// Refuses contention on these CPUs, and on `roaming` more that the scheduler chooses, if it and other brobusts would leave
/// no CPU for the host's other work.
pub fn refuse_without_spare(runtime: &Runtime, cpus: &[usize], roaming: usize) -> Result<()> {
    // The CPUs of ordinary processes; isolated CPUs are not among them.
    let host =
        cpus_of(1).map_err(|error| Refusal::missing_support(format!("the CPUs of process 1: {}", reason(&error))))?;
    let journals: Vec<Journal> = of_the_living(runtime)?.into_iter().map(|(_, journal)| journal).collect();
    refuse_without_spare_of(&host, &journals, cpus, roaming)
}

fn refuse_without_spare_of(host: &[usize], journals: &[Journal], cpus: &[usize], roaming: usize) -> Result<()> {
    let is_taken = |cpu: &usize| cpus.contains(cpu) || journals.iter().any(|journal| journal.cpus.contains(cpu));
    let roaming = roaming + journals.iter().map(|journal| journal.roaming).sum::<usize>();
    if host.iter().filter(|cpu| !is_taken(cpu)).count() > roaming {
        return Ok(());
    }
    let others = journals.iter().any(|journal| !journal.cpus.is_empty() || journal.roaming > 0);
    Err(Refusal::bad_input(format!(
        "this contention{1} may keep {0} of the host's {0} CPUs busy at a time, so that none is left to end it; name fewer \
         --threads, give --driver quota, or --force with --for",
        host.len(),
        if others { " and that of another brobust" } else { "" }
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leftovers::{clean, leftovers};
    use crate::{entries, eventually};
    use std::time::Instant;
    use tempfile::TempDir;

    /// Paths in a directory, which goes when that is dropped.
    fn runtime() -> (Runtime, TempDir) {
        let made = tempfile::tempdir().expect("made");
        let [directory, host, namespaces] = ["run", "host", "netns"].map(|name| made.path().join(name));
        (Runtime { directory, host, sysctls: made.path().into(), namespaces }, made)
    }

    fn begin(runtime: &Runtime) -> Session {
        Session::begin(runtime.clone(), false, |_| Ok(None)).expect("it begins")
    }

    /// An owner whose id no process has.
    fn nobody() -> Owner {
        "4194305-1".parse().expect("an owner")
    }

    /// Makes a session's directory as a killed process leaves it whose guardian was killed, too.
    fn left_by(runtime: &Runtime, owner: Owner, journal: &Journal) -> PathBuf {
        let directory = runtime.directory.join(owner.to_string());
        fs::create_dir_all(&directory).expect("made");
        journal.write(&directory).expect("written");
        directory
    }

    fn read(session: &Session) -> Journal {
        Journal::read(&session.directory).expect("it can be read")
    }

    fn names(runtime: &Runtime) -> Vec<String> {
        leftovers(runtime).expect("they can be listed").iter().map(ToString::to_string).collect()
    }

    /// Makes a file that serves as a sysctl.
    fn knob(runtime: &Runtime, value: &str) -> PathBuf {
        let knob = runtime.sysctls.join("knob");
        fs::write(&knob, value).expect("written");
        knob
    }

    fn held_knob() -> Journal {
        let sysctl = Sysctl { name: "knob".into(), previous: "950000".into(), held: "-1".into() };
        Journal { sysctls: vec![sysctl], ..Journal::default() }
    }

    /// A change that this command of the shell undoes.
    fn step(what: &str, undo: &str) -> Step {
        Step { what: what.into(), undo: ["sh", "-c", undo].map(str::to_owned).into() }
    }

    fn content(file: &Path) -> String {
        fs::read_to_string(file).expect("it is there")
    }

    #[test]
    fn changes_are_undone_by_their_commands_the_last_one_first() {
        let (runtime, _made) = runtime();
        let log = runtime.sysctls.join("log");
        let mut session = begin(&runtime);
        for what in ["first", "second", "first"] {
            session.record_step(step(what, &format!("echo {what} >>{}", log.display()))).expect("recorded");
        }
        session.end().expect("undone");
        assert_eq!(content(&log), "second\nfirst\n");
        assert!(!session.directory.exists());
    }

    #[test]
    fn a_change_that_cannot_be_undone_stays_recorded_and_the_others_do_not() {
        let (runtime, _made) = runtime();
        let flag = runtime.sysctls.join("flag");
        let waits = step("eth1", &format!("test -e {} || {{ echo busy >&2; exit 1; }}", flag.display()));
        left_by(&runtime, nobody(), &Journal { steps: vec![waits, step("eth2", "true")], ..Journal::default() });
        assert_eq!(names(&runtime)[..2], ["change of eth2", "change of eth1"]);
        let problems = clean(&runtime).expect("it tries");
        assert_eq!(problems, ["eth1 (sh: busy)"]);
        assert_eq!(names(&runtime)[..1], ["change of eth1"]);
        fs::write(&flag, "").expect("written");
        assert!(clean(&runtime).expect("it tries again").is_empty());
        assert!(names(&runtime).is_empty());
    }

    #[test]
    fn a_sysctl_is_held_and_put_back_also_after_a_kill() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "950000\n");
        let mut session = begin(&runtime);
        session.hold_sysctl("knob", "-1").expect("held");
        assert_eq!(content(&knob), "-1");
        let journal = read(&session);
        assert_eq!(journal.sysctls, held_knob().sysctls);
        session.release_sysctl("knob").expect("released");
        assert_eq!(content(&knob), "950000");
        assert!(read(&session).sysctls.is_empty());
        assert!(session.hold_sysctl("absent", "1").unwrap_err().text.contains("no such file"));

        let dead = left_by(&runtime, nobody(), &journal);
        fs::write(&knob, "-1").expect("written");
        assert_eq!(names(&runtime), ["sysctl knob=950000".to_owned(), format!("directory {}", dead.display())]);
        let problems = clean(&runtime).expect("cleaned");
        assert_eq!((content(&knob).as_str(), problems, dead.exists()), ("950000", vec![], false));
    }

    #[test]
    fn a_sysctl_that_somebody_has_set_since_is_left_alone() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "900000");
        left_by(&runtime, nobody(), &held_knob());
        clean(&runtime).expect("cleaned");
        assert_eq!(content(&knob), "900000");
    }

    #[test]
    fn a_sysctl_that_cannot_be_put_back_stays_in_the_journal_until_it_can() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "950000\n");
        fs::write(knob.with_extension("busy"), "").expect("written");
        let mut session = begin(&runtime);
        for _ in 0..2 {
            // The next run does not take -1 for the previous value.
            session.hold_sysctl("knob", "-1").expect("held");
            let refused = session.release_sysctl("knob").unwrap_err().text;
            assert!(refused.ends_with("knob could not be set to 950000 (device or resource busy)"), "{refused}");
        }
        let refused = session.end().unwrap_err().text;
        assert!(
            refused.starts_with("not undone: ") && refused.contains("knob could not be set to 950000"),
            "{refused}"
        );
        assert_eq!((content(&knob).as_str(), read(&session).sysctls), ("-1", held_knob().sysctls));
        let dead = runtime.directory.join(nobody().to_string());
        fs::rename(&session.directory, &dead).expect("renamed");
        assert!(clean(&runtime).expect("tried")[0].contains("device or resource busy"));
        fs::remove_file(knob.with_extension("busy")).expect("removed");
        assert!(clean(&runtime).expect("cleaned").is_empty());
        assert_eq!((content(&knob).as_str(), dead.exists()), ("950000", false));
    }

    #[test]
    fn one_thing_that_cannot_be_undone_does_not_keep_the_rest_from_it() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "-1");
        let stuck = runtime.sysctls.join("brobust-7");
        fs::create_dir(&stuck).expect("made");
        for file in ["tasks", "busy"] {
            fs::write(stuck.join(file), "").expect("written");
        }
        let text = format!(
            r#"{{"namespace": "", "processes": [], "sysctls": [["knob", "950000", "-1"]], "threads": [], "groups": [{{"path":
            {stuck:?}, "home": {:?}, "is_v2": false, "enabled_cpu": false}}], "cpus": [], "roaming": 0}}"#,
            runtime.sysctls
        );
        let dead = left_by(&runtime, nobody(), &Journal::default());
        fs::write(dead.join("session.json"), text).expect("written");
        // This does not keep another command from its work.
        drop(begin(&runtime));
        assert_eq!(content(&knob), "950000");
        assert_eq!(names(&runtime).len(), 2);
        let problems = clean(&runtime).expect("tried");
        assert!(problems[0].starts_with(&format!("cgroup {}", stuck.display())), "{problems:?}");
        fs::remove_dir_all(&stuck).expect("removed");
        assert!(clean(&runtime).expect("cleaned").is_empty() && !dead.exists());
    }

    #[test]
    fn what_was_killed_before_its_session_began_is_found_and_removed() {
        let (runtime, _made) = runtime();
        locks::private_directory(&runtime.directory).expect("made");
        let [dead, alive] =
            [nobody(), Owner::current()].map(|owner| scratch_of(&runtime.directory.join(owner.to_string())));
        fs::create_dir(&dead).expect("made");
        assert_eq!(names(&runtime), [format!("directory {}", dead.display())]);
        assert_eq!(clean(&runtime), Ok(Vec::new()));
        assert!(!dead.exists());
        fs::create_dir(&alive).expect("made");
        assert!(names(&runtime).is_empty(), "it is about to begin");
    }

    #[test]
    fn a_reused_process_id_is_not_mistaken_for_the_owner() {
        let (runtime, _made) = runtime();
        let own = Owner::current().to_string();
        let (pid, started) = own.split_once('-').expect("an owner");
        let earlier: Owner = format!("{pid}-{}", started.parse::<u64>().expect("ticks") - 1).parse().expect("an owner");
        // Process 1 lives, but is not the recorded one: only the directory is a leftover.
        let journal = Journal { processes: vec!["1-4711".into()], ..Journal::default() };
        let directory = left_by(&runtime, earlier, &journal);
        assert_eq!(names(&runtime), [format!("directory {}", directory.display())]);
    }

    #[test]
    fn a_session_of_another_pid_namespace_is_left_alone() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "-1");
        let session = begin(&runtime);
        assert_eq!(read(&session).pid_namespace, pid_namespace());
        drop(session);
        let journal = Journal { pid_namespace: "pid:[1]".into(), ..held_knob() };
        let elsewhere = left_by(&runtime, nobody(), &journal);
        assert!(names(&runtime).is_empty(), "{:?}", names(&runtime));
        assert!(clean(&runtime).expect("nothing to do").is_empty());
        assert_eq!((content(&knob).as_str(), elsewhere.exists()), ("-1", true));
    }

    #[test]
    fn namespaces_of_another_runtime_directory_and_of_the_living_are_left_alone() {
        let (runtime, _made) = runtime();
        fs::create_dir(&runtime.namespaces).expect("made");
        let (ours, nobody, alive) = (runtime.namespace_prefix(), nobody(), Owner::current());
        let dead = format!("{ours}{nobody}");
        for name in [&dead, &format!("{ours}{alive}"), &format!("brobust-0123abcd-{nobody}"), "brobust-12", "web"] {
            fs::write(runtime.namespaces.join(name), "").expect("written");
        }
        assert_eq!(names(&runtime), [format!("namespace {dead}")]);
    }

    #[test]
    fn a_damaged_journal_is_an_empty_one() {
        let (runtime, _made) = runtime();
        let dead = left_by(&runtime, nobody(), &Journal::default());
        fs::write(dead.join("session.json"), "{\"namespace\": 3").expect("written");
        assert_eq!(names(&runtime), [format!("directory {}", dead.display())]);
        clean(&runtime).expect("cleaned");
        assert!(!dead.exists());
    }

    #[test]
    fn a_journal_that_cannot_be_read_is_no_empty_one() {
        let (runtime, _made) = runtime();
        let knob = knob(&runtime, "-1");
        let dead = left_by(&runtime, nobody(), &held_knob());
        let (file, kept) = (dead.join("session.json"), dead.join("kept"));
        fs::rename(&file, &kept).expect("renamed");
        fs::create_dir(&file).expect("made");
        let problems = clean(&runtime).expect("it tries");
        assert!(problems[0].ends_with("session.json: is a directory"), "{problems:?}");
        assert!(Journal::undo(&dead, &step("eth1", "true")).unwrap_err().text.contains("is a directory"));
        fs::remove_dir(&file).and_then(|()| fs::rename(&kept, &file)).expect("as it was");
        assert!(clean(&runtime).expect("cleaned").is_empty());
        assert_eq!((content(&knob).as_str(), dead.exists()), ("950000", false));
    }

    #[test]
    fn a_change_that_could_not_be_recorded_is_not_taken_for_recorded_the_next_time() {
        let (runtime, _made) = runtime();
        let log = runtime.sysctls.join("log");
        let step = step("eth1", &format!("echo undone >>{}", log.display()));
        let mut session = begin(&runtime);
        let full = session.directory.join("session.json.new");
        fs::create_dir(&full).expect("made");
        session.record_step(step.clone()).unwrap_err();
        fs::remove_dir(&full).expect("removed");
        session.record_step(step).expect("there is room again");
        session.end().expect("undone");
        assert_eq!(content(&log), "undone\n");
    }

    #[test]
    fn a_cpu_is_left_to_the_host_also_by_several_commands_together() {
        let host = [0, 1, 2];
        let check =
            |journals: &[Journal], cpus: &[usize], roaming| refuse_without_spare_of(&host, journals, cpus, roaming);
        check(&[], &[1, 2], 0).expect("one is left");
        assert!(check(&[], &host, 0).unwrap_err().text.contains("3 of the host's 3 CPUs"));
        check(&[], &[], 3).unwrap_err();
        let other = Journal { cpus: vec![2], ..Journal::default() };
        check(std::slice::from_ref(&other), &[1, 2], 0).expect("the same CPU twice is one");
        check(std::slice::from_ref(&other), &[0, 1], 0).unwrap_err();
        check(&[other], &[1], 1).unwrap_err();
        let roaming = Journal { roaming: 1, ..Journal::default() };
        check(&[roaming], &[0, 1], 0).unwrap_err();
    }

    #[test]
    fn a_cpu_that_another_command_took_meanwhile_is_not_taken_twice() {
        let (runtime, _made) = runtime();
        let mut session = begin(&runtime);
        session.hold_cpus(&[1_000_000], 0, false).expect("nobody has it");
        session.hold_cpus(&[1_000_000], 0, false).expect("it is its own");
        // Process 1 lives.
        let other = left_by(&runtime, Owner::of(1), &Journal { cpus: vec![1_000_001], ..Journal::default() });
        let refused = session.hold_cpus(&[1_000_001], 0, false).unwrap_err().text;
        assert!(refused.contains("process 1 has just taken CPU 1000001"), "{refused}");
        session.hold_cpus(&[1_000_001], 0, true).expect("forced");
        fs::remove_dir_all(other).expect("removed");
    }

    #[test]
    fn a_thread_that_was_changed_after_it_was_looked_at_is_not_held() {
        let (runtime, _made) = runtime();
        let mut session = begin(&runtime);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let saved = SavedThread::of(child.id() as i32).expect("it lives");
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, child.id(), 7) }, 0);
        let refused = session.hold_threads(std::slice::from_ref(&saved)).map_err(|refusal| refusal.text);
        let held = read(&session).threads;
        child.kill().and_then(|()| child.wait()).expect("it has ended");
        assert!(refused.unwrap_err().contains("have just been changed"));
        assert!(held.is_empty());
    }

    #[test]
    fn a_thread_that_another_command_holds_is_refused_and_one_that_only_has_its_id_is_not() {
        let (runtime, _made) = runtime();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let held = SavedThread::of(child.id() as i32).expect("it lives");
        let mut earlier = held.clone();
        earlier.started -= 1;
        // Process 1 lives.
        let refused = [held, earlier].map(|thread| {
            let journal = Journal { threads: vec![thread.clone()], ..Journal::default() };
            let other = left_by(&runtime, Owner::of(1), &journal);
            let refused = refuse_held(&runtime, thread.tid);
            fs::remove_dir_all(other).expect("removed");
            refused
        });
        child.kill().and_then(|()| child.wait()).expect("it has ended");
        assert!(refused[0].as_ref().unwrap_err().text.contains("is already under contention by process 1"));
        assert_eq!(refused[1], Ok(()));
    }

    #[test]
    #[ignore = "needs root"]
    fn a_cgroup_that_another_command_has_made_for_the_thread_is_not_removed() {
        let (runtime, _made) = runtime();
        let mut session = begin(&runtime);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let thread = child.id() as i32;
        let Ok(theirs) = cgroups::group_for(thread, &[]) else {
            println!("skipped: no CPU controller is mounted");
            child.kill().and_then(|()| child.wait()).expect("it has ended");
            return;
        };
        fs::create_dir(&theirs.path).expect("made");
        let refused = session.hold_groups(&[thread], 10_000_000, 40_000_000).map_err(|refusal| refusal.text);
        let ended = session.end();
        let is_there = theirs.path.exists();
        let _ = fs::remove_dir(&theirs.path);
        child.kill().and_then(|()| child.wait()).expect("it has ended");
        assert!(refused.as_ref().is_err_and(|text| text.contains("is there already")), "{refused:?}");
        assert!(is_there && ended.is_ok(), "{ended:?}");
    }

    #[test]
    fn a_session_that_has_no_guardian_or_cannot_appear_leaves_nothing() {
        let (runtime, _made) = runtime();
        let begin = |guarded: &dyn Fn(&Path) -> Result<Option<Guardian>>| {
            Session::begin(runtime.clone(), false, guarded).map(drop).unwrap_err().text
        };
        let refused = begin(&|directory| {
            assert!(!directory.exists(), "what is there before the guardian is not undone by it");
            Err(Refusal::failed("no guardian"))
        });
        assert_eq!(refused, "no guardian");
        let begun = Instant::now();
        let refused = begin(&|directory| {
            fs::create_dir(scratch_of(directory)).expect("made");
            Ok(None)
        });
        assert!(refused.ends_with(".new: file exists"), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(30), "its end waited for its own lock");
        assert_eq!(entries(&runtime.directory).count(), 1, "the lock");
    }

    #[test]
    fn who_waits_for_a_lock_tells_its_guardian_that_it_is_not_stuck() {
        let (runtime, _made) = runtime();
        let heard = runtime.sysctls.join("heard");
        let guardian = format!("echo ready; exec cat >{}", heard.display());
        let guarded = |_: &Path| Guardian::start(Path::new("sh"), &["-c", &guardian]).map(Some);
        let mut session = Session::begin(runtime.clone(), false, guarded).expect("it begins");
        let lock = runtime.lock().expect("free");
        let holder = std::thread::spawn({
            let heard = heard.clone();
            move || {
                eventually(Duration::from_secs(30), || fs::read(&heard).is_ok_and(|text| !text.is_empty()));
                drop(lock);
            }
        });
        session.hold_cpus(&[], 0, true).expect("held");
        holder.join().expect("it has ended");
        session.end().expect("undone");
        assert!(content(&heard).starts_with("alive\n"), "{}", content(&heard));
    }

    #[test]
    fn a_session_leaves_no_directory() {
        let (runtime, _made) = runtime();
        let session = begin(&runtime);
        assert!(session.directory.join("session.json").is_file());
        assert!(names(&runtime).is_empty(), "its owner lives");
        let another = Session::begin(runtime.clone(), false, |_| Ok(None)).unwrap_err().text;
        assert!(another.contains(&format!("process {}) is at work", std::process::id())), "{another}");
        drop(session);
        assert_eq!(entries(&runtime.directory).collect::<Vec<_>>(), [runtime.directory.join("lock")]);
    }

    #[test]
    fn a_lock_is_waited_for_by_those_who_start() {
        let (runtime, _made) = runtime();
        locks::private_directory(&runtime.directory).expect("made");
        let lock = runtime.lock().expect("free");
        let begun = Instant::now();
        let other = std::thread::spawn({
            let runtime = Runtime::clone(&runtime);
            move || drop(Session::begin(runtime, true, |_| Ok(None)).expect("it begins"))
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(lock);
        other.join().expect("it has ended");
        assert!(begun.elapsed() >= Duration::from_millis(50));
    }
}
