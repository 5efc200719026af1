//! The commands that the agent has started: their states, their ends, and who waits for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{waitid, waitpid, Id, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use super::collect::collect;
use super::port::lock;
use super::protocol::{Command, Outcome};

pub struct Jobs {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    jobs: HashMap<i32, Job>,
    /// Counts starts, so that the reaper can tell whether one came since it last looked.
    started: u64,
}

#[derive(Default)]
struct Job {
    /// Set by the reaper: the pid belongs to nobody from then on.
    status: Option<i32>,
    /// Set when all output of a background command is read.
    outcome: Option<Outcome>,
}

/// A running command and our ends of its pipes.
pub struct Child {
    pid: i32,
    /// Readable once the command has ended.
    pub pidfd: OwnedFd,
    pub stdin: Option<ChildStdin>,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl Child {
    pub fn pid(&self) -> i32 {
        self.pid
    }
}

impl Jobs {
    pub fn start() -> Arc<Jobs> {
        let jobs = Arc::new(Jobs { table: Mutex::default(), changed: Condvar::new() });
        let reaper = Arc::clone(&jobs);
        thread::spawn(move || reaper.reap());
        jobs
    }

    /// Starts a command in a process group of its own, so that its children can be signalled with it.
    pub fn spawn(&self, command: &Command) -> Result<Child, String> {
        let program = &command.argv[0];
        let mut table = self.lock();
        // Under the lock: the reaper must not see the end of a command that is not in the table yet.
        let mut child = std::process::Command::new(program)
            .args(&command.argv[1..])
            .stdin(if command.stdin.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let pid = child.id() as i32;
        // Still under the lock: once reaped, a process id has no pidfd any more.
        let pidfd = pidfd_open(pid).map_err(|error| format!("cannot watch {program}: {error}"))?;
        table.jobs.insert(pid, Job::default());
        table.started += 1;
        self.changed.notify_all();
        drop(table);
        let piped = "a pipe that was asked for";
        Ok(Child {
            pid,
            pidfd,
            stdin: child.stdin.take(),
            stdout: child.stdout.take().expect(piped),
            stderr: child.stderr.take().expect(piped),
        })
    }

    /// Reads the command's output until it ends, and forgets the command.
    pub fn collect(&self, child: Child, command: &Command) -> Outcome {
        let pid = child.pid;
        let (outcome, mut table) = self.collect_until_reaped(child, command);
        table.jobs.remove(&pid);
        outcome
    }

    /// As `collect`, but keeps the outcome until somebody waits for it.
    pub fn collect_in_background(&self, child: Child, command: Command) {
        let pid = child.pid;
        let (outcome, mut table) = self.collect_until_reaped(child, &command);
        if let Some(job) = table.jobs.get_mut(&pid) {
            job.outcome = Some(outcome);
            self.changed.notify_all();
        }
    }

    fn collect_until_reaped(&self, child: Child, command: &Command) -> (Outcome, MutexGuard<'_, Table>) {
        let pid = child.pid;
        let output = collect(child, &command.stdin, command.timeout, |signal| {
            // An error means that it has ended by itself meanwhile.
            let _ = self.kill(pid, signal);
        });
        let mut table = self.lock();
        loop {
            if let Some(status) = table.jobs.get(&pid).and_then(|job| job.status) {
                return (output.into_outcome(status), table);
            }
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the outcome of a background command.
    pub fn wait(&self, pid: i32, timeout: Duration) -> Result<Outcome, String> {
        let deadline = Instant::now() + timeout;
        let mut table = self.lock();
        loop {
            let Some(job) = table.jobs.get_mut(&pid) else {
                return Err(format!("no command with pid {pid}: never spawned, or waited for already"));
            };
            if let Some(outcome) = job.outcome.take() {
                table.jobs.remove(&pid);
                return Ok(outcome);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("pid {pid} is still running after {} s", timeout.as_secs_f64()));
            }
            (table, _) = self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Signals a command and its children; false if it has ended already.
    pub fn kill(&self, pid: i32, signal: i32) -> Result<bool, String> {
        let table = self.lock();
        match table.jobs.get(&pid) {
            None => Err(format!("no command with pid {pid}")),
            Some(Job { status: Some(_), .. }) => Ok(false),
            // Not reaped, so the pid is still its own; the lock keeps it so.
            Some(Job { status: None, .. }) => match unsafe { libc::kill(-pid, signal) } {
                0 => Ok(true),
                _ => Err(format!("cannot signal pid {pid}: {}", io::Error::last_os_error())),
            },
        }
    }

    /// Reaps every child for as long as the agent lives: commands, and as pid 1 also the orphans of others.
    fn reap(&self) {
        loop {
            let seen = self.lock().started;
            // WNOWAIT: look first, and take it only with the table in hand, so that `kill` never hits a reused pid.
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => self.take(pid),
                Err(Errno::ECHILD) => self.sleep_until_start_after(seen),
                _ => {}
            }
        }
    }

    fn take(&self, pid: Pid) {
        let mut table = self.lock();
        let status = match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, status)) => status,
            Ok(WaitStatus::Signaled(_, signal, _)) => -(signal as i32),
            _ => return,
        };
        if let Some(job) = table.jobs.get_mut(&pid.as_raw()) {
            job.status = Some(status);
            self.changed.notify_all();
        }
    }

    fn sleep_until_start_after(&self, seen: u64) {
        let mut table = self.lock();
        while table.started == seen {
            table = self.changed.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }
}

/// pidfd_open(2), since Linux 5.3; close-on-exec by itself.
fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
