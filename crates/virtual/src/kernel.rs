//! One kernel: a process that runs when it is told to, until it can go no further.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::memfd::{memfd_create, MFdFlags};

use crate::error::{io, Error, Result};
use crate::iperf3;
use crate::shared::{reason, words, Memory, Shared};

/// What the command line names; the same for every kernel, since kernels draw random numbers from it.
const MEMORY_FD: i32 = 3;
const SOCKET_FD: i32 = 4;
const INITRD_FD: i32 = 5;
const CALLS_FD: i32 = 6;
/// Of virtual memory; a kernel touches some 20 MB of it, and what its sockets hold.
const MEMORY: &str = "mem=1024M";
/// A kernel answers within milliseconds. One that loops for ever is given up after this.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AROUND: Duration = Duration::from_millis(200);
const LAST_WORDS: usize = 600;

/// A kernel that waits for us.
pub struct Kernel {
    name: String,
    child: Child,
    socket: UnixStream,
    console: File,
    memory: Memory,
}

/// What a kernel is booted with.
pub struct Boot<'a> {
    /// Of the node, for people.
    pub name: &'a str,
    pub image: &'a Path,
    pub initrd: Option<&'a Path>,
    /// Of the congestion controls: CONTROL.PARAMETER=NUMBER
    pub parameters: &'a [String],
    /// A new file for every call of our congestion controls (cc/call.h).
    pub calls: Option<&'a Path>,
}

impl Kernel {
    /// Boots a kernel. `describe` says what it is to be.
    pub fn boot(boot: &Boot, describe: impl FnOnce(&mut Shared), stop: &AtomicBool) -> Result<Self> {
        let mut memory = Memory::create().map_err(io("memory for a kernel"))?;
        describe(memory.shared());
        let (socket, theirs) = UnixStream::pair().map_err(io("a socket to a kernel"))?;
        socket.set_read_timeout(Some(LOOK_AROUND)).map_err(io("a socket to a kernel"))?;
        let console: File = memfd_create("brobust-console", MFdFlags::MFD_CLOEXEC)
            .map_err(io::Error::from)
            .map_err(io("memory for a kernel's console"))?
            .into();
        let output = || console.try_clone().map(Stdio::from).map_err(io("a kernel's console"));

        let mut command = Command::new(boot.image);
        command
            .args(["time-travel=inf-cpu", "time-travel-start=0", MEMORY, "stderr=1", "con=null", "panic=-1"])
            .arg(format!("brobust={MEMORY_FD},{SOCKET_FD}"))
            .args(boot.parameters)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?);
        let initrd = boot.initrd.map(|file| File::open(file).map_err(io(file.display().to_string()))).transpose()?;
        if initrd.is_some() {
            command.arg(format!("initrd=/proc/self/fd/{INITRD_FD}"));
            // User space runs in copies of the kernel's process from which the C library's memory is gone. Had the
            // library registered its rseq area there, the host would kill them at their first page fault.
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        }
        let calls =
            boot.calls.map(|file| File::create_new(file).map_err(io(file.display().to_string()))).transpose()?;
        if calls.is_some() {
            command.arg(format!("brobust_calls={CALLS_FD}"));
        }
        let mut files = vec![(memory.file().as_raw_fd(), MEMORY_FD), (theirs.as_raw_fd(), SOCKET_FD)];
        files.extend(initrd.iter().map(|file| (file.as_raw_fd(), INITRD_FD)));
        files.extend(calls.iter().map(|file| (file.as_raw_fd(), CALLS_FD)));
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe { command.pre_exec(move || become_kernel(&mut files)) };
        let child = command.spawn().map_err(io(format!("starting {}", boot.image.display())))?;
        drop(theirs);
        let mut this = Self { name: boot.name.to_string(), child, socket, console, memory };
        this.wait(stop)?;
        match this.shared().reason {
            reason::READY => Ok(this),
            other => Err(this.nonsense(format!("stop reason {other} instead of being ready"))),
        }
    }

    pub fn shared(&mut self) -> &mut Shared {
        self.memory.shared()
    }

    /// Lets it run until it stops again.
    pub fn go(&mut self, stop: &AtomicBool) -> Result<()> {
        if self.socket.write_all(&[0]).is_err() {
            return Err(self.died());
        }
        self.wait(stop)?;
        match self.shared().reason {
            reason::HORIZON | reason::DRAIN => Ok(()),
            reason::REFUSED => {
                let words = words(&self.shared().words);
                Err(Error::Refused(format!("the {} kernel refused its {words}", self.name)))
            }
            other => Err(self.nonsense(format!("stop reason {other}"))),
        }
    }

    /// What it printed so far.
    pub fn console(&self) -> Result<Vec<u8>> {
        let size = self.console.metadata().map_err(io("a kernel's console"))?.len();
        let mut text = vec![0; size as usize];
        // Without moving the place at which it goes on to print.
        self.console.read_exact_at(&mut text, 0).map_err(io("a kernel's console"))?;
        Ok(text)
    }

    pub fn nonsense(&self, what: String) -> Error {
        Error::Nonsense { node: self.name.clone(), what }
    }

    fn wait(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut byte = [0];
        let begun = Instant::now();
        loop {
            match self.socket.read(&mut byte) {
                Ok(1) => return Ok(()),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                _ => return Err(self.died()),
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if begun.elapsed() > PATIENCE {
                let words = self.last_words();
                return Err(Error::Hung { node: self.name.clone(), seconds: PATIENCE.as_secs(), words });
            }
        }
    }

    fn died(&mut self) -> Error {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        Error::Died { node: self.name.clone(), words: format!("{} ({status})", self.last_words()) }
    }

    fn last_words(&self) -> String {
        last_words(&self.console().map(|console| iperf3::printed(&console, 0).1).unwrap_or_default())
    }
}

/// The end of what a kernel printed, on one line; of one that panicked from there on, since traces follow.
pub fn last_words(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(panic) = lines.iter().position(|line| line.contains("Kernel panic")) {
        return lines[panic..].join("; ").chars().take(LAST_WORDS).collect();
    }
    let text = lines.join("; ");
    let from = text.char_indices().rev().nth(LAST_WORDS - 1).map_or(0, |(at, _)| at);
    if text.is_empty() {
        "it said nothing".into()
    } else {
        text[from..].into()
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the child, before exec: descriptors (number, the number it is to have) in their places, the same addresses in every
/// run, and no life without the controller (which closes the socket too: this is for a kernel that does not look).
fn become_kernel(files: &mut [(i32, i32)]) -> io::Result<()> {
    let checked = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: plain system calls on descriptors that are open.
    unsafe {
        // Out of the way first, should one be where another has to go. Not closed on exec, as dup'ed.
        for (file, _) in files.iter_mut() {
            *file = checked(libc::fcntl(*file, libc::F_DUPFD_CLOEXEC, 10))?;
        }
        for (file, place) in files {
            checked(libc::dup2(*file, *place))?;
        }
        checked(libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong))?;
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::last_words;

    #[test]
    fn a_panic_is_told_from_its_beginning_and_anything_else_by_its_end() {
        let trace = "[<60012345>] something+0x1/0x2\n".repeat(100);
        assert!(last_words(&format!("boots\nKernel panic - not syncing: why\n{trace}"))
            .starts_with("Kernel panic - not syncing: why; ["));
        assert!(last_words(&format!("{trace}\nset fp regs failed, errno = 14\n")).ends_with("failed, errno = 14"));
        assert!(last_words(&trace).chars().count() <= super::LAST_WORDS);
        assert_eq!(last_words("\n \n"), "it said nothing");
    }
}
