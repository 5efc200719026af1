//! A command that runs, and our ends of its pipes.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdout, Stdio};

use nix::sys::prctl;
use nix::sys::signal::Signal;

use super::protocol::Command;

pub struct Child {
    pid: i32,
    /// Readable once the command has ended.
    pub pidfd: OwnedFd,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

impl Child {
    /// Starts a command in a process group of its own, so that its children can be signalled with it.
    ///
    /// The caller keeps others from reaping the command until this returns: a process that is reaped has no pidfd. With
    /// `ends_with_us` the kernel kills it when the calling thread ends.
    pub fn start(command: &Command, ends_with_us: bool) -> Result<Child, String> {
        let program = &command.argv[0];
        let mut starting = std::process::Command::new(program);
        if ends_with_us {
            // SAFETY: prctl is safe to call between fork and exec.
            unsafe { starting.pre_exec(|| Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)) };
        }
        let mut child = starting
            .args(&command.argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start {program}: {error}"))?;
        let pid = child.id() as i32;
        let pidfd = pidfd_open(pid).map_err(|error| {
            // Nobody could end it: it is in no table. It is reaped here, since its id is ours as long as it is not.
            // SAFETY: a plain system call.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
            let _ = child.wait();
            format!("cannot watch {program}, so it was killed: {error}")
        })?;
        let piped = "a pipe that was asked for";
        Ok(Child { pid, pidfd, stdout: child.stdout.take().expect(piped), stderr: child.stderr.take().expect(piped) })
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }
}

/// Calls pidfd_open(2), which Linux has since 5.3. The descriptor is closed on exec.
fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: a plain system call.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
