//! One kernel: a process that runs when it is told to, until it may go no further.
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::unistd::pipe2;

use crate::error::{io, Error, Result};
use crate::programs;
use crate::shared::{reason, text_of, Memory, Shared};

/// Descriptors that the command line names. They are the same for every kernel, because kernels draw random numbers
/// from their command line.
const MEMORY_FD: i32 = 3;
const TURNS_FD: i32 = 4;
const INITRD_FD: i32 = 5;
const CALLS_FD: i32 = 6;
const STOPS_FD: i32 = 7;
const PROGRAM_CALLS_FD: i32 = 8;
/// Virtual memory of a kernel, which touches some 30 MB of it and what its sockets hold.
const MEMORY: &str = "mem=1024M";
/// Time after which a kernel that does not answer is given up. A kernel answers within milliseconds unless it hangs.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How often `stop` is looked at while a kernel runs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const POLL_MS: u16 = POLL_INTERVAL.as_millis() as u16;
/// Characters of a kernel's console that an error quotes.
const CONSOLE_TAIL: usize = 600;

/// What a kernel says when it gets SIGBUS: the host has no page for what it touches (arch/um/kernel/trap.c).
const NO_MEMORY: &str = "Kernel mode signal 7";

static FORKING: Mutex<()> = Mutex::new(());

/// A kernel that waits for the controller.
pub struct Kernel {
    name: String,
    child: Child,
    /// The controller writes a byte here to let the kernel run,
    turns: File,
    /// and the kernel writes one here when it stops. With pipes that costs half of what it does with a socket.
    stops: File,
    console: File,
    memory: Memory,
    /// Whether it may take as long as it likes: somebody looks at it.
    debugged: bool,
}

/// What a kernel is booted with.
pub struct Boot<'a> {
    /// The node's name in messages to users.
    pub name: &'a str,
    pub image: &'a Path,
    pub initrd: Option<&'a Path>,
    /// Words for the command line: CONTROL.PARAMETER=NUMBER for a congestion control, or sysctl.NAME=NUMBER.
    pub parameters: &'a [String],
    /// If set, a file to be made, with every call to our congestion controls (cc/call.h).
    pub calls: Option<&'a Path>,
    /// If set, a file to be written with every call of programs.
    pub program_calls: Option<&'a Path>,
}

impl Kernel {
    /// Boots a kernel. `describe` writes into the shared memory what the kernel is to be.
    pub fn boot(boot: &Boot, describe: impl FnOnce(&mut Shared), stop: &AtomicBool) -> Result<Self> {
        let mut memory = Memory::create().map_err(io("memory for a kernel"))?;
        describe(memory.shared());
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from).map_err(io("a pipe to a kernel"));
        let ((its_turns, turns), (stops, its_stops)) = (pipe()?, pipe()?);
        let console: File = memfd_create("brobust-console", MFdFlags::MFD_CLOEXEC)
            .map_err(io::Error::from)
            .map_err(io("memory for a kernel's console"))?
            .into();
        let output = || console.try_clone().map(Stdio::from).map_err(io("a kernel's console"));

        let mut command = Command::new(boot.image);
        command
            .args(["time-travel=inf-cpu", "time-travel-start=0", MEMORY, "stderr=1", "con=null", "panic=-1"])
            .arg(format!("brobust={MEMORY_FD},{TURNS_FD},{STOPS_FD}"))
            .args(boot.parameters)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?);
        let initrd = boot.initrd.map(|file| File::open(file).map_err(io(file.display().to_string()))).transpose()?;
        if initrd.is_some() {
            command.arg(format!("initrd=/proc/self/fd/{INITRD_FD}"));
            // Unlike the default, it has a limit, half of the kernel's memory: programs may write files.
            command.arg("rootfstype=tmpfs");
            // Programs run in copies of the kernel's process that do not have the C library's memory. If the library
            // had registered its rseq area there, the host would kill them at their first page fault.
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        }
        // A kernel that is booted again, since its programs did not listen yet, begins these files again.
        let recording = |file: Option<&Path>| {
            file.map(|file| File::create(file).map_err(io(file.display().to_string()))).transpose()
        };
        let (calls, program_calls) = (recording(boot.calls)?, recording(boot.program_calls)?);
        if calls.is_some() {
            command.arg(format!("brobust_calls={CALLS_FD}"));
        }
        if program_calls.is_some() {
            command.arg(format!("brobust_program_calls={PROGRAM_CALLS_FD}"));
        }
        let mut files = vec![
            (memory.file().as_raw_fd(), MEMORY_FD),
            (its_turns.as_raw_fd(), TURNS_FD),
            (its_stops.as_raw_fd(), STOPS_FD),
        ];
        files.extend(initrd.iter().map(|file| (file.as_raw_fd(), INITRD_FD)));
        files.extend(calls.iter().map(|file| (file.as_raw_fd(), CALLS_FD)));
        files.extend(program_calls.iter().map(|file| (file.as_raw_fd(), PROGRAM_CALLS_FD)));
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe { command.pre_exec(move || become_kernel(&mut files)) };
        // Libraries of the same process, such as OpenBLAS, act before a fork, and hang if two threads fork at a time.
        let forking = FORKING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn().map_err(io(format!("starting {}", boot.image.display())))?;
        drop(forking);
        drop((its_turns, its_stops));
        let mut this = Self {
            name: boot.name.to_string(),
            child,
            turns: turns.into(),
            stops: stops.into(),
            console,
            memory,
            debugged: false,
        };
        this.wait(stop)?;
        match this.shared().reason {
            reason::READY => Ok(this),
            other => Err(this.protocol_violation(format!("it stopped for reason {other} before it was ready"))),
        }
    }

    pub fn shared(&mut self) -> &mut Shared {
        self.memory.shared()
    }

    /// Lets the kernel run until it stops again.
    pub fn go(&mut self, stop: &AtomicBool) -> Result<()> {
        if self.turns.write_all(&[0]).is_err() {
            return Err(self.died());
        }
        self.wait(stop)?;
        match self.shared().reason {
            reason::HORIZON | reason::DRAIN => Ok(()),
            reason::REFUSED => {
                let what = text_of(&self.shared().words);
                Err(Error::Refused(format!("the {} kernel refused its {what}", self.name)))
            }
            reason::STOPPED => {
                let what = text_of(&self.shared().words);
                Err(Error::Refused(format!("a program of {} was stopped: {what}", self.name)))
            }
            other => Err(self.protocol_violation(format!("it stopped for reason {other}"))),
        }
    }

    /// Returns the node's name in messages to users.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of the kernel's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a debugger has attached to the kernel, which waits for the controller meanwhile.
    pub fn wait_for_debugger(&mut self, stop: &AtomicBool) -> Result<()> {
        self.debugged = true;
        let status = format!("/proc/{}/status", self.process());
        loop {
            let text = std::fs::read_to_string(&status).map_err(io("a kernel's process"))?;
            if text.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Refuses what a kernel measured that reported a mistake of its own.
    pub fn check_console(&self) -> Result<()> {
        match report(&programs::split_console(&self.console()?, 0).1) {
            Some(report) => Err(Error::Reported { node: self.name.clone(), report }),
            None => Ok(()),
        }
    }

    /// Returns what the kernel has printed so far.
    pub fn console(&self) -> Result<Vec<u8>> {
        let size = self.console.metadata().map_err(io("a kernel's console"))?.len();
        let mut text = vec![0; size as usize];
        // The kernel goes on printing at the file's position, so that must not move.
        self.console.read_exact_at(&mut text, 0).map_err(io("a kernel's console"))?;
        Ok(text)
    }

    /// Makes the error of a kernel that left something that the protocol does not allow.
    pub fn protocol_violation(&self, what: String) -> Error {
        Error::Protocol { node: self.name.clone(), what }
    }

    /// Waits until the kernel stops.
    fn wait(&mut self, stop: &AtomicBool) -> Result<()> {
        let mut byte = [0];
        let begun = Instant::now();
        loop {
            // A kernel that dies closes its end, which is readable then.
            let mut stops = [PollFd::new(self.stops.as_fd(), PollFlags::POLLIN)];
            match poll(&mut stops, PollTimeout::from(POLL_MS)) {
                Ok(1) if matches!(self.stops.read(&mut byte), Ok(1)) => return Ok(()),
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                _ => return Err(self.died()),
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if begun.elapsed() > TIMEOUT && !self.debugged {
                let console = self.console_tail();
                return Err(Error::Hung { node: self.name.clone(), seconds: TIMEOUT.as_secs(), console });
            }
        }
    }

    fn died(&mut self) -> Error {
        let _ = self.child.kill();
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        if self.console().is_ok_and(|console| String::from_utf8_lossy(&console).contains(NO_MEMORY)) {
            return io(format!("memory for the {} kernel", self.name))(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Error::Died { node: self.name.clone(), console: format!("{} ({status})", self.console_tail()) }
    }

    fn console_tail(&self) -> String {
        console_tail(&self.console().map(|console| programs::split_console(&console, 0).1).unwrap_or_default())
    }
}

/// Returns the end of what a kernel printed, on one line. If the kernel reported a mistake, the text begins there: what
/// follows would fill all the room.
pub fn console_tail(text: &str) -> String {
    if let Some(report) = report(text) {
        return report;
    }
    let text = lines_of(text).join("; ");
    let from = text.char_indices().rev().nth(CONSOLE_TAIL - 1).map_or(0, |(at, _)| at);
    if text.is_empty() {
        "it printed nothing".into()
    } else {
        text[from..].into()
    }
}

/// Returns the beginning of the first mistake that a kernel reported, on one line: a warning, a panic, or what one of its
/// sanitizers found. Of its stack only the names of functions are quoted.
pub fn report(text: &str) -> Option<String> {
    let lines = lines_of(text);
    let first = lines.iter().position(|line| begins_report(line))?;
    let is_quoted = |line: &&str| !line.contains(CUT_HERE) && !is_raw_stack(line) && !line.starts_with("Stack:");
    let lines = lines[first..].iter().copied().filter(is_quoted).map(function_of);
    Some(lines.collect::<Vec<_>>().join("; ").chars().take(CONSOLE_TAIL).collect())
}

/// Whether a line has nothing but words of memory.
fn is_raw_stack(line: &str) -> bool {
    line.split(' ').all(|word| word.len() >= 8 && word.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Returns the function that a line of a call trace names, such as `[<60827f08>] ? check_flags+0xb8/0x250`; another line
/// as it is.
fn function_of(line: &str) -> &str {
    let named = line.strip_prefix("[<").and_then(|rest| rest.split_once(">] ")).map(|(_, named)| named);
    let name = named.map(|named| named.trim_start_matches("? ").split('+').next().unwrap_or_default());
    name.unwrap_or(line)
}

/// The line before a warning's message (include/asm-generic/bug.h).
const CUT_HERE: &str = "--[ cut here ]--";
/// The beginnings of reports: lib/bug.c and kernel/panic.c, mm/kasan/report.c, lib/ubsan.c, kernel/locking/lockdep.c, and
/// others that follow them.
const REPORTS: [&str; 7] = ["BUG: ", "WARNING: ", "INFO: ", "UBSAN: ", "kernel BUG at ", "Kernel panic", "Oops"];

fn begins_report(line: &str) -> bool {
    // With CONFIG_PRINTK_TIME, a time in brackets comes first.
    let line = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(line, |(_, line)| line);
    line.contains(CUT_HERE) || REPORTS.iter().any(|beginning| line.starts_with(beginning))
}

fn lines_of(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prepares the child before exec. Each file, (its number, the number that it is to have), gets its number; addresses
/// are the same in every run; the child dies with the controller, also where it does not look at its pipes; and it has no
/// other file of ours, gets no privilege by executing something, and leaves no core of a gigabyte.
fn become_kernel(files: &mut [(i32, i32)]) -> io::Result<()> {
    let checked = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: plain system calls on descriptors that are open.
    unsafe {
        // A file may have the number that another is to have, so all get other numbers first. What dup2 makes is not
        // closed on exec.
        for (file, _) in files.iter_mut() {
            *file = checked(libc::fcntl(*file, libc::F_DUPFD_CLOEXEC, 10))?;
        }
        // Whoever started us may have left files open for all its descendants. A host before 5.11 refuses this.
        let _ = libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        for (file, number) in files {
            checked(libc::dup2(*file, *number))?;
        }
        checked(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        checked(libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }))?;
        // Containers often forbid it. The kernel then asks for it once more by itself, and does without.
        let _ = libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{console_tail, report};

    #[test]
    fn a_panic_is_quoted_from_its_beginning_and_anything_else_by_its_end() {
        let trace = "[<60012345>] something+0x1/0x2\n".repeat(100);
        assert!(console_tail(&format!("boots\nKernel panic - not syncing: why\n{trace}"))
            .starts_with("Kernel panic - not syncing: why; something; "));
        assert!(console_tail(&format!("{trace}\nset fp regs failed, errno = 14\n")).ends_with("failed, errno = 14"));
        assert!(console_tail(&trace).chars().count() <= super::CONSOLE_TAIL);
        assert_eq!(console_tail("\n \n"), "it printed nothing");
    }

    #[test]
    fn a_report_is_found_wherever_it_begins_and_other_messages_are_none() {
        for (text, words) in [
            (
                "TCP: ok\n====\nBUG: KASAN: use-after-free in f+0x1/0x2\nRead of size 8",
                "BUG: KASAN: use-after-free in f+0x1/0x2; Read of size 8",
            ),
            (
                "[    1.250000] WARNING: possible recursive locking detected",
                "[    1.250000] WARNING: possible recursive locking detected",
            ),
            (
                "------------[ cut here ]------------\nrefcount_t: underflow\nWARNING: CPU: 0",
                "refcount_t: underflow; WARNING: CPU: 0",
            ),
            ("INFO: trying to register non-static key.", "INFO: trying to register non-static key."),
            ("UBSAN: shift-out-of-bounds in f.c:1:2", "UBSAN: shift-out-of-bounds in f.c:1:2"),
        ] {
            assert_eq!(report(text).as_deref(), Some(words));
        }
        let trace = "Call Trace:\n[<60827f08>] ? check_flags+0xb8/0x250\n[<60000001>] 0x60000001\n";
        let warning = format!("WARNING: at f.c:1\nStack:\n41b58ab3 60a6c980\n{trace}");
        assert_eq!(report(&warning).as_deref(), Some("WARNING: at f.c:1; Call Trace:; check_flags; 0x60000001"));
        assert_eq!(report("Linux version 6.12\n[    0.0] TCP: bbr registered\nno BUG: here\n"), None);
    }
}
