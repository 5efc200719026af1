//! Changes that are undone by a command: of a host that backend lab measures on, whose agent is told what to do.

use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::process::{ChildStderr, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use serde::{Deserialize, Serialize};

use crate::{reason, Refusal, Result};

/// A command that undoes something has ended long before, or hangs.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);
/// What is kept of what a command says: the last bytes, in which its reason is.
const SAID: usize = 4096;
/// Where a host's tools are, whatever the environment of who undoes says.
const TOOLS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A change, and the command that undoes it. It is given again if it was not known to have succeeded, so it must succeed
/// where nothing is left to undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What was changed, for people.
    pub what: String,
    pub undo: Vec<String>,
}

impl Step {
    pub(crate) fn undo(&self) -> Result<()> {
        run(&self.undo).map_err(|why| Refusal::missing_support(format!("{} ({why})", self.what)))
    }
}

/// Runs a command, which must succeed. The error says why it has not.
pub(crate) fn run(command: &[impl AsRef<OsStr> + fmt::Display]) -> std::result::Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no command is known that undoes it")?;
    let mut started = Command::new(program);
    started.args(arguments).env("PATH", TOOLS).current_dir("/");
    started.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = started.spawn().map_err(|error| format!("{program}: {}", reason(&error)))?;
    let (mut stderr, mut said) = (child.stderr.take(), Vec::new());
    // Its end is not waited for: what the command has left running holds it open.
    let _ = stderr.as_ref().map(|stderr| fcntl(stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)));
    let begun = Instant::now();
    let status = loop {
        let ended = child.try_wait();
        listen(&mut stderr, &mut said);
        match ended {
            Ok(Some(status)) => break status,
            Ok(None) if begun.elapsed() < PATIENCE => sleep(POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{program} has not ended within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(format!("{program}: {}", reason(&error))),
        }
    };
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.trim().lines().last().unwrap_or("no reason given");
    Err(format!("{program}: {last}"))
}

/// Reads what a command has said since, so that the pipe does not become full, and keeps the end of it.
fn listen(stderr: &mut Option<ChildStderr>, said: &mut Vec<u8>) {
    let Some(stderr) = stderr else { return };
    let mut part = [0; SAID];
    // Enough to empty a pipe; a command that never stops must not keep us here.
    for _ in 0..64 {
        let Ok(length @ 1..) = stderr.read(&mut part) else { return };
        said.extend_from_slice(&part[..length]);
        said.drain(..said.len().saturating_sub(SAID));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_not_waited_for_by_what_it_has_left_running() {
        let begun = Instant::now();
        let failed = run(&["sh", "-c", "sleep 20 & echo first >&2; echo busy >&2; exit 1"]).unwrap_err();
        assert_eq!(failed, "sh: busy");
        assert!(begun.elapsed() < PATIENCE);
        assert_eq!(run(&["false"]).unwrap_err(), "false: no reason given");
    }

    #[test]
    fn a_command_that_says_more_than_a_pipe_holds_ends_and_its_last_line_is_kept() {
        let begun = Instant::now();
        let says_much = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo >&2; echo busy >&2; exit 1";
        assert_eq!(run(&["sh", "-c", says_much]).unwrap_err(), "sh: busy");
        assert!(begun.elapsed() < PATIENCE);
    }
}
