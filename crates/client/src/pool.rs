//! Connections to one server, each with at most one request under way.
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::answer::Answer;

/// A request that is under way, or has ended.
#[derive(Debug)]
pub struct Request {
    /// When it was to be sent, whether a connection was free or not.
    pub due: Instant,
    pub first_byte: Option<Instant>,
    pub ended: Option<Instant>,
    pub answer: Answer,
    /// Why there is no whole answer.
    pub failed: Option<String>,
}

impl Request {
    pub fn new(due: Instant) -> Self {
        Self { due, first_byte: None, ended: None, answer: Answer::default(), failed: None }
    }
}

/// A connection, or one that is being made.
pub struct Connection {
    stream: TcpStream,
    /// What is still to be written.
    unsent: Vec<u8>,
    request: Option<Request>,
    open: bool,
    /// Whether one request is all that it is for.
    once: bool,
}

impl Connection {
    /// Begins to connect, and returns at once.
    pub fn begin(server: SocketAddr, once: bool) -> io::Result<Self> {
        let domain = if server.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: a new descriptor, which nobody else has; an address that lives as long as the call.
        let stream = unsafe {
            let socket =
                checked(libc::socket(domain, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0))?;
            let socket = OwnedFd::from_raw_fd(socket);
            let (address, size) = raw(server);
            match checked(libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size)) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                _ => TcpStream::from(socket),
            }
        };
        stream.set_nodelay(true)?;
        Ok(Self { stream, unsent: Vec::new(), request: None, open: true, once })
    }

    pub fn is_free(&self) -> bool {
        self.open && self.request.is_none()
    }

    /// Whether nothing more comes of it.
    pub fn is_over(&self) -> bool {
        !self.open && self.request.is_none()
    }

    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    pub fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub fn send(&mut self, request: Request, text: &[u8]) {
        self.request = Some(request);
        self.unsent = text.to_vec();
    }

    /// Reads and writes what can be. Returns the request if it has ended.
    pub fn go_on(&mut self, buffer: &mut [u8]) -> Option<Request> {
        match self.transfer(buffer) {
            Ok(()) => {}
            Err(error) => {
                self.open = false;
                return self.end(Some(error.to_string()));
            }
        }
        let request = self.request.as_ref()?;
        let whole = if self.open { request.answer.is_whole() } else { request.answer.is_whole_at_the_end() };
        match whole {
            true => {
                // A server may keep the connection although it was asked not to.
                self.open &= !self.once && request.answer.head().is_some_and(|head| head.keeps);
                self.end(None)
            }
            false if self.open => None,
            false => self.end(Some("the server closed the connection before the answer was whole".into())),
        }
    }

    /// Ends the request, and returns it as it is.
    pub fn give_up(&mut self) -> Option<Request> {
        self.request.take()
    }

    fn end(&mut self, failed: Option<String>) -> Option<Request> {
        let mut request = self.request.take()?;
        (request.failed, request.ended) = (failed, Some(Instant::now()));
        Some(request)
    }

    fn transfer(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                // ENOTCONN: it is not connected yet.
                Err(error) if is_later(&error) || error.kind() == ErrorKind::NotConnected => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        while self.open {
            match self.stream.read(buffer) {
                Ok(0) => self.open = false,
                Ok(size) => {
                    let Some(request) = &mut self.request else {
                        self.open = false; // an answer that nobody asked for
                        return Ok(());
                    };
                    request.first_byte.get_or_insert_with(Instant::now);
                    request.answer.add(&buffer[..size]).map_err(io::Error::other)?;
                    if size < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Returns an address as the kernel takes it, and its size.
fn raw(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: plain integers, of which zero is one.
    let mut to: libc::sockaddr_in6 = unsafe { mem::zeroed() };
    match address {
        SocketAddr::V6(address) => {
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = address.port().to_be();
            to.sin6_addr.s6_addr = address.ip().octets();
            (to, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
        SocketAddr::V4(address) => {
            // The fields of IPv4 are where those of IPv6 begin: family, port, and in place of the flow label the address.
            to.sin6_family = libc::AF_INET as libc::sa_family_t;
            to.sin6_port = address.port().to_be();
            to.sin6_flowinfo = u32::from_ne_bytes(address.ip().octets());
            (to, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
    }
}

/// Asks for room for so many connections, which is more than a process has at first.
pub fn make_room(connections: usize) -> io::Result<()> {
    let others = 64;
    let files = connections as libc::rlim_t + others;
    // SAFETY: a structure of plain integers, which lives as long as the calls.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        checked(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
        if limit.rlim_cur < files {
            (limit.rlim_cur, limit.rlim_max) = (files, limit.rlim_max.max(files));
            checked(libc::setrlimit(libc::RLIMIT_NOFILE, &limit))?;
        }
    }
    Ok(())
}

/// Waits until one of the connections can go on, or for as long as that; returns which can.
pub fn wait(connections: &[Connection], longest: Duration) -> io::Result<Vec<bool>> {
    let events = |connection: &Connection| match connection.wants_to_write() {
        true => libc::POLLIN | libc::POLLOUT,
        false => libc::POLLIN,
    };
    let waiting = connections.iter().map(|one| libc::pollfd { fd: one.descriptor(), events: events(one), revents: 0 });
    let mut waiting: Vec<_> = waiting.collect();
    let time = libc::timespec { tv_sec: longest.as_secs() as libc::time_t, tv_nsec: longest.subsec_nanos().into() };
    // SAFETY: the array is as long as we say.
    let result = unsafe { libc::ppoll(waiting.as_mut_ptr(), waiting.len() as libc::nfds_t, &time, std::ptr::null()) };
    match checked(result) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error),
        _ => Ok(waiting.iter().map(|one| one.revents != 0).collect()),
    }
}
