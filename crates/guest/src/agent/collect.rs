//! Reads a command's output until the command has ended. A command whose time is up is told to end.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::child::Child;
use super::protocol::Outcome;

/// Bytes kept of stdout and of stderr: a guest's memory is small.
const MAX_OUTPUT: usize = 64 << 20;
/// Time that a command has between SIGTERM and SIGKILL to write its results.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Output {
    stdout: Pipe,
    stderr: Pipe,
    timed_out: bool,
}

#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    ended: bool,
    truncated: bool,
}

impl Output {
    pub fn into_outcome(self, status: i32) -> Outcome {
        Outcome {
            status,
            stdout: text(self.stdout.bytes),
            stderr: text(self.stderr.bytes),
            timed_out: self.timed_out,
            truncated: self.stdout.truncated || self.stderr.truncated,
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Reads both pipes until the command has ended. The end of the pipes is not waited for: a daemon that the command
/// leaves behind holds them open for good.
pub fn collect(mut child: Child, timeout: Option<Duration>, kill: impl Fn(i32)) -> Output {
    let mut output = Output::default();
    let mut deadline = timeout.map(|limit| Instant::now() + limit);
    for pipe in [child.stdout.as_fd(), child.stderr.as_fd()] {
        set_nonblocking(pipe);
    }
    while !wait_for_any(&child, &output, deadline) {
        output.stdout.read_from(&mut child.stdout);
        output.stderr.read_from(&mut child.stderr);
        if deadline.is_some_and(|at| at <= Instant::now()) {
            kill(if output.timed_out { libc::SIGKILL } else { libc::SIGTERM });
            output.timed_out = true;
            deadline = Some(Instant::now() + GRACE);
        }
    }
    output.stdout.read_from(&mut child.stdout);
    output.stderr.read_from(&mut child.stderr);
    output
}

/// Sleeps until a pipe is ready or the time is up. Returns whether the command has ended.
fn wait_for_any(child: &Child, output: &Output, deadline: Option<Instant>) -> bool {
    let mut fds = vec![PollFd::new(child.pidfd.as_fd(), PollFlags::POLLIN)];
    if !output.stdout.ended {
        fds.push(PollFd::new(child.stdout.as_fd(), PollFlags::POLLIN));
    }
    if !output.stderr.ended {
        fds.push(PollFd::new(child.stderr.as_fd(), PollFlags::POLLIN));
    }
    let timeout = deadline.map_or(PollTimeout::NONE, |at| {
        // Rounded up, since waking before the deadline would only mean to sleep again. Clamped, since the caller loops.
        let left = at.saturating_duration_since(Instant::now()) + Duration::from_micros(999);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut fds, timeout) {
        Ok(_) => fds[0].any() == Some(true),
        Err(Errno::EINTR) => false,
        // The kernel is out of memory, at worst. The deadline still ends the loop.
        Err(_) => false,
    }
}

impl Pipe {
    /// Reads everything that is there now.
    fn read_from(&mut self, from: &mut impl Read) {
        let mut chunk = [0; 64 * 1024];
        while !self.ended {
            match from.read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    let room = MAX_OUTPUT - self.bytes.len();
                    self.truncated |= n > room;
                    self.bytes.extend_from_slice(&chunk[..n.min(room)]);
                    if self.truncated && n < chunk.len() {
                        return; // poll says when there is more: a command that never pauses must not hide its own end
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.ended = true,
            }
        }
    }
}

fn set_nonblocking(fd: BorrowedFd) {
    // This cannot fail on a pipe that we have just made.
    let _ = fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
}
