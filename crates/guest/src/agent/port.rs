//! The line to the host: a virtio-serial port, a tty, a listening unix socket, or standard input and output.
//!
//! While no host is connected, a virtio port (drivers/char/virtio_console.c) answers read with 0 and poll with POLLHUP
//! at once, so a loop of either would use up the guest's CPU. When the host opens the port, the port's wait queue is
//! woken. An edge-triggered epoll reports a state only then, so that is what we sleep in.
//!
//! Data arrive by interrupt; that a host has opened or closed the port is reported by a work queue. So the first
//! request of a new host may be readable while the port still says that no host is connected. Only if it says so for
//! `HOST_GONE_AFTER`, the host is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::termios::{cfmakeraw, tcgetattr, tcsetattr, SetArg};
use serde::Serialize;

/// Time that a port may need to appear: the driver probes it after boot, and the init script may start us before that.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a connected host after which the host is gone: far longer than a work queue takes, also in an emulated
/// guest, and shorter than any host takes to start again.
const HOST_GONE_AFTER: Duration = Duration::from_millis(100);
/// Longest line in bytes. A longer one is no request (the longest script that we send is far shorter), and would fill
/// the guest's memory.
const MAX_LINE: usize = 64 << 20;

pub struct Port {
    origin: Origin,
    stream: Option<Arc<Stream>>,
    unread: Vec<u8>,
}

/// Where the next host connects.
enum Origin {
    Device(PathBuf),
    Socket(UnixListener),
    /// Standard input and output, and the longest silence on the former.
    Standard(Duration),
}

/// An open line. A virtio port stays open from host to host, since we can wait for the next one only while it is open.
struct Stream {
    file: File,
    /// What is written to, where that is another file.
    out: Option<File>,
    /// Who says nothing for so long has gone.
    silence: Option<Duration>,
    readable: Epoll,
    stays_open: bool,
    write: Mutex<()>,
}

/// The time during which one host is connected.
pub struct Session {
    stream: Arc<Stream>,
    connected: AtomicBool,
}

impl Port {
    pub fn open(path: &Path) -> Result<Port> {
        // A path below /dev that does not exist yet will be a device.
        let is_device = fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device());
        let origin = if is_device || path.starts_with("/dev") {
            Origin::Device(path.to_owned())
        } else {
            Origin::Socket(listen(path)?)
        };
        Ok(Port { origin, stream: None, unread: Vec::new() })
    }

    /// Our standard input and output. There is one session; it ends after `silence`, too.
    pub fn standard(silence: Duration) -> Result<Port> {
        Ok(Port { origin: Origin::Standard(silence), stream: None, unread: Vec::new() })
    }

    /// Blocks until a host is connected. A device counts as connected until it says otherwise.
    pub fn next_session(&mut self) -> Result<Arc<Session>> {
        self.unread.clear();
        let stream = match (&self.stream, &self.origin) {
            (Some(stream), _) => {
                stream.sleep(None)?;
                Arc::clone(stream)
            }
            (None, Origin::Socket(listener)) => {
                let (stream, _) = listener.accept().context("cannot accept a host connection")?;
                Arc::new(Stream::new(File::from(std::os::fd::OwnedFd::from(stream)), false)?)
            }
            (None, Origin::Device(path)) => Arc::new(open_device(path)?),
            (None, Origin::Standard(silence)) => Arc::new(open_standard(*silence)?),
        };
        self.stream = Some(Arc::clone(&stream));
        Ok(Arc::new(Session { stream, connected: AtomicBool::new(true) }))
    }

    /// Returns the next line without its newline. None when the host has gone.
    pub fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(stream) = self.stream.clone() else { return Ok(None) };
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=searched + end).collect();
                line.pop();
                return Ok(Some(line));
            }
            searched = self.unread.len();
            if searched > MAX_LINE {
                // The rest of the line will be answered as a bad request.
                self.unread.clear();
                searched = 0;
            }
            if !stream.read_more(&mut self.unread) {
                if !stream.stays_open {
                    self.stream = None;
                }
                return Ok(None);
            }
        }
    }
}

impl Stream {
    fn new(file: File, stays_open: bool) -> Result<Stream> {
        nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
        let readable = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        readable
            .add(&file, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))
            .context("cannot wait for the port")?;
        Ok(Stream { file, out: None, silence: None, readable, stays_open, write: Mutex::new(()) })
    }

    /// Blocks until something has been appended to `into`. Returns false if the host has gone.
    fn read_more(&self, into: &mut Vec<u8>) -> bool {
        let mut chunk = [0; 32 * 1024];
        let mut away_since = None;
        let silent_since = Instant::now();
        loop {
            match (&self.file).read(&mut chunk) {
                Ok(0) if self.stays_open => {
                    let left = HOST_GONE_AFTER.checked_sub(away_since.get_or_insert_with(Instant::now).elapsed());
                    if left.is_none_or(|left| self.sleep(Some(left)).is_err()) {
                        return false;
                    }
                }
                Ok(0) => return false,
                Ok(n) => {
                    into.extend_from_slice(&chunk[..n]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    away_since = None;
                    let left = self.silence.map(|silence| silence.saturating_sub(silent_since.elapsed()));
                    if left.is_some_and(|left| left.is_zero()) || self.sleep(left).is_err() {
                        return false;
                    }
                }
                // A tty that was hung up returns EIO, a socket that was reset ECONNRESET.
                Err(_) => return false,
            }
        }
    }

    /// Sleeps until the state of the port changes. An earlier event is not lost, and costs one more read at worst.
    fn sleep(&self, limit: Option<Duration>) -> Result<()> {
        let mut events = [EpollEvent::empty()];
        let limit = limit.map_or(EpollTimeout::NONE, |limit| {
            EpollTimeout::try_from(limit + Duration::from_micros(999)).unwrap_or(EpollTimeout::MAX)
        });
        match self.readable.wait(&mut events, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for the port"),
        }
    }

    fn out(&self) -> &File {
        self.out.as_ref().unwrap_or(&self.file)
    }

    /// Waits until the port takes more, or says that no host is connected.
    fn wait_writable(&self) -> Writable {
        let mut fds = [PollFd::new(self.out().as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => match fds[0].revents() {
                Some(now) if !now.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) => {
                    Writable::Perhaps
                }
                _ => Writable::NoHost,
            },
            Err(_) => Writable::Perhaps,
        }
    }
}

#[derive(Clone, Copy)]
enum Writable {
    Perhaps,
    NoHost,
}

impl Session {
    /// Writes a reply as one line. If the host has gone, the reply is dropped.
    pub fn send(&self, reply: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(reply) else { return };
        line.push(b'\n');
        let _one_at_a_time = lock(&self.stream.write);
        write(&line, self.stream.out(), &self.connected, || self.stream.wait_writable());
    }

    pub fn end(&self) {
        self.connected.store(false, Ordering::Relaxed);
    }
}

/// Writes a line while a host is connected.
fn write(line: &[u8], mut out: impl Write, connected: &AtomicBool, wait_writable: impl Fn() -> Writable) {
    let mut rest = line;
    while !rest.is_empty() && connected.load(Ordering::Relaxed) {
        match out.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => match wait_writable() {
                Writable::Perhaps => {}
                // The reader ends the session after `HOST_GONE_AFTER`. Until then the host may be about to connect.
                Writable::NoHost if rest.len() == line.len() => thread::sleep(HOST_GONE_AFTER / 20),
                // The host has gone in the middle of the line. The next one must not get the rest.
                Writable::NoHost => return,
            },
            Err(_) => return,
        }
    }
}

/// Locks a mutex, also after a panic of another thread: the data behind our locks are valid even then.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(path: &Path) -> Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path).with_context(|| format!("cannot replace the socket {}", path.display()))?;
    }
    UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))
}

fn open_standard(silence: Duration) -> Result<Stream> {
    let file =
        |fd: BorrowedFd| fd.try_clone_to_owned().map(File::from).context("cannot open standard input and output");
    let mut stream = Stream::new(file(io::stdin().as_fd())?, false)?;
    stream.silence = Some(silence);
    stream.out = Some(file(io::stdout().as_fd())?);
    Ok(stream)
}

fn open_device(path: &Path) -> Result<Stream> {
    let started = Instant::now();
    let file = loop {
        match OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY | libc::O_NONBLOCK).open(path) {
            Ok(file) => break file,
            Err(error) if may_come_later(&error) && started.elapsed() < DEVICE_TIMEOUT => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => return Err(error).with_context(|| format!("cannot open the port {}", path.display())),
        }
    };
    // If a tty is not raw, it echoes our replies and cuts lines at 4096 bytes (N_TTY's buffer).
    let is_tty = match tcgetattr(&file) {
        Ok(mut settings) => {
            cfmakeraw(&mut settings);
            tcsetattr(&file, SetArg::TCSANOW, &settings).context("cannot make the tty raw")?;
            true
        }
        Err(_) => false,
    };
    Stream::new(file, !is_tty)
}

/// Whether opening the port may succeed later. ENOENT: it has not been probed yet. EIO: a tty whose other end is
/// closed. EBUSY, ENXIO: a virtio port that is being set up or freed.
fn may_come_later(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EIO | libc::EBUSY | libc::ENXIO | libc::ENODEV))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Takes a few bytes each time that it has been waited for.
    struct Slow<'a> {
        has_room: &'a Cell<bool>,
        taken: &'a RefCell<Vec<u8>>,
    }

    impl Write for Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.has_room.replace(false) {
                true => self.taken.borrow_mut().write(&bytes[..bytes.len().min(4)]),
                false => Err(ErrorKind::WouldBlock.into()),
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns what is written of a line to a slow port of which this is said whenever it is waited for.
    fn written(line: &str, said: &[Writable]) -> String {
        let (has_room, taken, said) = (Cell::new(false), RefCell::default(), RefCell::new(said.iter()));
        let wait = || {
            has_room.set(true);
            said.borrow_mut().next().copied().unwrap_or(Writable::Perhaps)
        };
        write(line.as_bytes(), Slow { has_room: &has_room, taken: &taken }, &AtomicBool::new(true), wait);
        String::from_utf8(taken.into_inner()).unwrap()
    }

    #[test]
    fn a_host_that_is_about_to_connect_gets_a_reply_whole() {
        assert_eq!(written("a reply\n", &[Writable::NoHost, Writable::Perhaps]), "a reply\n");
    }

    #[test]
    fn the_next_host_does_not_get_the_rest_of_a_reply_in_which_the_last_one_left() {
        assert_eq!(written("a reply\n", &[Writable::Perhaps, Writable::NoHost]), "a re");
    }
}
