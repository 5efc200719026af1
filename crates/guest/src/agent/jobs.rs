//! Keeps the commands that the agent has started: which of them still run, how the others ended, and who waits for
//! them.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::child::Child;
use super::collect::collect;
use super::port::lock;
use super::protocol::{Command, Outcome};

pub struct Jobs {
    table: Mutex<Table>,
    changed: Condvar,
    /// Whether the kernel kills every command when the agent ends, however that ends.
    end_with_us: bool,
}

#[derive(Default)]
struct Table {
    jobs: HashMap<i32, Job>,
    /// Number of commands started, by which the reaper tells whether one was started since it last looked.
    started: u64,
    /// Whether no command will follow: from then on our children are not ours to reap.
    is_closed: bool,
}

#[derive(Default)]
struct Job {
    /// Exit status, set by the reaper. From then on the process id belongs to nobody.
    status: Option<i32>,
    /// Outcome of a background command, set when all its output has been read.
    outcome: Option<Outcome>,
}

impl Jobs {
    pub fn start(end_with_us: bool) -> Arc<Jobs> {
        let jobs = Arc::new(Jobs { table: Mutex::default(), changed: Condvar::new(), end_with_us });
        let reaper = Arc::clone(&jobs);
        thread::spawn(move || reaper.reap());
        jobs
    }

    /// Starts a command and enters it in the table.
    pub fn spawn(&self, command: &Command) -> Result<Child, String> {
        // Started under the lock: the reaper must not see the end of a command that is not in the table yet.
        let mut table = self.lock();
        if table.is_closed {
            return Err("the agent is ending".to_owned());
        }
        let child = Child::start(command, self.end_with_us)?;
        table.jobs.insert(child.pid(), Job::default());
        table.started += 1;
        self.changed.notify_all();
        Ok(child)
    }

    /// Reads the command's output until the command ends, and forgets the command.
    pub fn collect(&self, child: Child, command: &Command) -> Outcome {
        let pid = child.pid();
        let (outcome, mut table) = self.collect_until_reaped(child, command);
        table.jobs.remove(&pid);
        outcome
    }

    /// Reads the command's output until the command ends, and keeps the outcome until somebody waits for it.
    pub fn collect_in_background(&self, child: Child, command: Command) {
        let pid = child.pid();
        let (outcome, mut table) = self.collect_until_reaped(child, &command);
        if let Some(job) = table.jobs.get_mut(&pid) {
            job.outcome = Some(outcome);
            self.changed.notify_all();
        }
    }

    fn collect_until_reaped(&self, child: Child, command: &Command) -> (Outcome, MutexGuard<'_, Table>) {
        let pid = child.pid();
        let output = collect(child, command.timeout, |signal| {
            // An error means that the command has just ended by itself.
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

    /// Waits for a background command and returns its outcome, once.
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

    /// Signals a command and its children. Returns false if the command has ended already.
    pub fn kill(&self, pid: i32, signal: i32) -> Result<bool, String> {
        let table = self.lock();
        match table.jobs.get(&pid) {
            None => Err(format!("no command with pid {pid}")),
            Some(Job { status: Some(_), .. }) => Ok(false),
            // Nobody has reaped it, so the process id is still its own, and stays so while we hold the lock.
            Some(Job { status: None, .. }) => match unsafe { libc::kill(-pid, signal) } {
                0 => Ok(true),
                _ => Err(format!("cannot signal pid {pid}: {}", io::Error::last_os_error())),
            },
        }
    }

    /// Kills every command with its children, and waits up to a second until they have been reaped. Then no child is
    /// reaped any more, so that whoever starts one can wait for it.
    pub fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut table = self.lock();
        let running = |table: &Table| -> Vec<i32> {
            table.jobs.iter().filter(|(_, job)| job.status.is_none()).map(|(pid, _)| *pid).collect()
        };
        for pid in running(&table) {
            // SAFETY: a plain system call. Nobody has reaped the command, so its group is still its own.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
        while !running(&table).is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (table, _) = self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner);
        }
        table.is_closed = true;
    }

    /// Reaps every child for as long as the agent lives: our commands and, where we are pid 1, orphans of other
    /// processes.
    fn reap(&self) {
        loop {
            let seen = self.lock().started;
            match ended() {
                Ok(pid) if self.take(pid) => {}
                Ok(_) => return,
                Err(Errno::ECHILD) => self.sleep_until_start_after(seen),
                Err(_) => {} // EINTR
            }
        }
    }

    /// Reaps a child. Returns false if that is no longer ours to do.
    fn take(&self, pid: i32) -> bool {
        let mut table = self.lock();
        if table.is_closed {
            return false;
        }
        let mut how = 0;
        // SAFETY: a plain system call, which writes one number.
        if unsafe { libc::waitpid(pid, &mut how, libc::WNOHANG) } != pid {
            return true;
        }
        let status = if libc::WIFEXITED(how) { libc::WEXITSTATUS(how) } else { -libc::WTERMSIG(how) };
        if let Some(job) = table.jobs.get_mut(&pid) {
            job.status = Some(status);
            self.changed.notify_all();
        }
        true
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

/// Waits until a child has ended, and only looks: it is reaped while we hold the table, so that `kill` never hits a reused
/// pid. Not nix's waitid, which takes the end by a real-time signal for an error, and so would never see any other.
fn ended() -> nix::Result<i32> {
    // SAFETY: plain numbers, which the call writes.
    unsafe {
        let mut info: libc::siginfo_t = mem::zeroed();
        Errno::result(libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOWAIT))?;
        Ok(info.si_pid())
    }
}
