//! A guardian: a process that undoes what another process changed on the host if that one is killed or gets stuck.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{signal, SigHandler, Signal};

use crate::refusal::reason;
use crate::sched_attr::SchedAttr;
use crate::{eventually, Owner, Refusal, Result};

/// The file of the program that runs, whatever has become of its name: it may have been replaced or, as on the hosts of
/// backend lab, removed.
pub const THIS_PROGRAM: &str = "/proc/self/exe";

const READY: &[u8] = b"ready\n";
const ALIVE: &[u8] = b"alive\n";
const DONE: &[u8] = b"done\n";

/// The handle of a guardian in the process that it guards.
#[derive(Debug)]
pub struct Guardian {
    process: Child,
    pipe: ChildStdin,
}

/// How the guarded process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has told its guardian that nothing is left to undo.
    Dismissed,
    /// It has ended without doing so.
    Ended,
    /// It said nothing for too long, and the guardian has killed it.
    Stuck,
}

impl Guardian {
    /// Starts a program as the guardian of this process, and waits until it calls [`wait_for_end`].
    ///
    /// It gets a process session of its own, so a signal to our process group does not reach it.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Self> {
        let failed = |reason: String| {
            Refusal::missing_support(format!("the guardian process did not start ({reason}), so nothing was changed"))
        };
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: setsid is safe to call between fork and exec.
        unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
        let mut process =
            command.spawn().map_err(|error| failed(format!("{}: {}", program.display(), reason(&error))))?;
        let (pipe, said) = (process.stdin.take(), process.stdout.take());
        let mut ready = [0; READY.len()];
        let is_ready = said.is_some_and(|mut said| said.read_exact(&mut ready).is_ok() && ready == *READY);
        match pipe {
            Some(pipe) if is_ready => Ok(Self { process, pipe }),
            _ => {
                let _ = process.kill();
                let _ = process.wait();
                Err(failed("it ended at once".to_owned()))
            }
        }
    }

    /// Tells the guardian that this process is not stuck. Fails if there is no guardian any more.
    pub fn say_alive(&mut self) -> Result<()> {
        let pid = self.process.id();
        self.pipe
            .write_all(ALIVE)
            .map_err(|_| Refusal::failed(format!("the guardian process ({pid}) was killed; repeat the command")))
    }

    /// Tells the guardian that nothing is left to undo, and waits up to 10 s until it has ended.
    pub fn dismiss(mut self) {
        let _ = self.pipe.write_all(DONE);
        drop(self.pipe);
        // If somebody has stopped it, it will read the message later.
        eventually(Duration::from_secs(10), || !matches!(self.process.try_wait(), Ok(None)));
    }
}

/// In the guardian: waits until the guarded process, its parent, has dismissed it, has ended without doing so, or has
/// sent nothing for `silence` (None: for ever) and was killed. Returns which.
///
/// The caller must undo everything before it prints why: the process may have been stuck on a stopped terminal.
pub fn wait_for_end(silence: Option<Duration>) -> End {
    for number in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: no handler runs, the signals are ignored.
        let _ = unsafe { signal(number, SigHandler::SigIgn) };
    }
    let owner = Owner::of(nix::unistd::getppid().as_raw());
    get_priority();
    // If the process was killed before it could read this, its changes are undone as well.
    let _ = io::stdout().write_all(READY).and_then(|()| io::stdout().flush());
    // Silence is counted in short steps: a guardian that could not run itself, because the machine was paused, must not
    // take that time for the process's silence.
    let step = silence.map_or(Duration::from_secs(1), |silence| (silence / 4).min(Duration::from_secs(1)));
    let (mut received, mut silent) = (Vec::new(), Duration::ZERO);
    // Not io::stdin(), whose buffer poll(2) does not see.
    let Ok(mut pipe) = io::stdin().as_fd().try_clone_to_owned().map(File::from) else { return End::Ended };
    while silence.is_none_or(|silence| silent < silence) {
        let timeout = PollTimeout::try_from(step).unwrap_or(PollTimeout::MAX);
        if !poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout).is_ok_and(|ready| ready > 0) {
            silent += step;
            continue;
        }
        silent = Duration::ZERO;
        let mut chunk = [0; 4096];
        match pipe.read(&mut chunk) {
            Ok(0) | Err(_) => return End::Ended,
            Ok(length) => received.extend_from_slice(&chunk[..length]),
        }
        received.drain(..received.len().saturating_sub(DONE.len()));
        if received == DONE {
            return End::Dismissed;
        }
    }
    // Its changes are undone even if it cannot be killed.
    let _ = owner.kill();
    End::Stuck
}

/// Runs before everything that may keep CPUs busy, real-time threads included. The guardian hardly runs itself. Without
/// the right to do so, its process cannot have caused such contention either.
fn get_priority() {
    let flags = libc::SCHED_FLAG_RESET_ON_FORK as u64;
    let _ = SchedAttr { flags, ..SchedAttr::fifo(99) }.set(0);
}
