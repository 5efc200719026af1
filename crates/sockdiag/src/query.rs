//! Asks the kernel for its TCP sockets.
//!
//! A dump is no snapshot. The kernel walks its hash table of connections in parts, one datagram each, and continues in
//! the same bucket after as many sockets as it had reported of it (inet_diag_dump_icsk). If a socket of that bucket was
//! closed in between, another is left out; if one was opened, another is reported twice. Sockets that are alone in
//! their bucket are reported once. Measured on Linux 6.18 with 3000 sockets that stayed open, beside two processes that
//! opened and closed others all the time: in 300 dumps of a table with 262,144 buckets none was missed or reported
//! twice, and of a table with 16 buckets 0.4 % were missed and 0.4 % reported twice.
//!
//! The kernel has a flag for this, NLM_F_DUMP_INTR, but inet_diag does not keep the generation by which it could be set
//! (cb->seq, nl_dump_check_consistent), and it was set in none of these dumps. It is handled in case a later kernel
//! sets it.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddr};
use nix::errno::Errno;
use nix::time::{clock_gettime, ClockId};

use crate::inet_diag::{read_end, read_socket, request, LISTENING, OPENING, SENDING, SOCK_DIAG_BY_FAMILY};
use crate::netlink::{
    attribute, message, Link, Messages, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST,
};
use crate::{Error, Result, Socket, SocketKey};

/// Size of our buffer in bytes. The kernel puts at most 32 KiB into a datagram of a dump (NLMSG_GOODSIZE and our
/// buffer).
const DATAGRAM: usize = 64 * 1024;
/// How often a request is sent whose answers are interrupted or lost.
pub const TRIES: usize = 4;
/// include/uapi/linux/inet_diag.h and sock_diag.h
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;

/// The sockets that a dump reports. The kernel selects them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// None: IPv4 and IPv6.
    pub ipv6: Option<bool>,
    pub local_port: Option<u16>,
    pub remote_port: Option<u16>,
    /// Whether also sockets that listen are reported, besides those that may have data to send.
    pub listening: bool,
    /// Whether also sockets are reported whose connection is only being opened ([`Socket::is_opening`]).
    pub opening: bool,
}

impl Filter {
    fn states(&self) -> u32 {
        SENDING | if self.listening { LISTENING } else { 0 } | if self.opening { OPENING } else { 0 }
    }

    /// Returns the filter as the kernel takes it: one key without addresses for each family.
    fn keys(&self) -> impl Iterator<Item = SocketKey> + '_ {
        let families = [(false, Ipv4Addr::UNSPECIFIED.into()), (true, Ipv6Addr::UNSPECIFIED.into())];
        families.into_iter().filter(|(ipv6, _)| self.ipv6.is_none_or(|only| only == *ipv6)).map(|(_, any)| SocketKey {
            local: SocketAddr::new(any, self.local_port.unwrap_or(0)),
            remote: SocketAddr::new(any, self.remote_port.unwrap_or(0)),
            interface: 0,
            cookie: [0; 8],
        })
    }
}

pub struct SockDiag {
    link: Box<dyn Link>,
    buffer: Vec<u8>,
    sequence: u32,
    /// Socket storage maps of BPF controls, which each dump reports.
    state_maps: Arc<[OwnedFd]>,
}

impl SockDiag {
    pub fn open() -> Result<SockDiag> {
        let mut netlink = Netlink::new(NETLINK_SOCK_DIAG).map_err(Error::Netlink)?;
        netlink.bind_auto().map_err(Error::Netlink)?;
        netlink.connect(&NetlinkAddr::new(0, 0)).map_err(Error::Netlink)?;
        Ok(SockDiag::over(netlink))
    }

    fn over(link: impl Link + 'static) -> SockDiag {
        SockDiag { link: Box::new(link), buffer: vec![0; DATAGRAM], sequence: 0, state_maps: Arc::new([]) }
    }

    /// Also reads the state that BPF controls export in these maps. Only dumps report it: the kernel's answer to a
    /// lookup has no room for it.
    pub fn with_state_maps(mut self, maps: Vec<OwnedFd>) -> SockDiag {
        self.set_state_maps(maps.into());
        self
    }

    /// Changes the maps whose state is read from now on. Readers of several network namespaces share them.
    pub fn set_state_maps(&mut self, maps: Arc<[OwnedFd]>) {
        self.state_maps = maps;
    }

    /// Returns the sockets that pass the filter, each once. Of an interrupted dump
    /// it returns what was read: the next dump will have what is missing.
    pub fn dump(&mut self, filter: &Filter) -> Result<Vec<Socket>> {
        let (mut sockets, mut seen) = (Vec::new(), HashSet::new());
        let found = |socket: Socket| {
            if seen.insert(socket.key.cookie) {
                sockets.push(socket);
            }
        };
        match self.dump_each(filter, found) {
            Ok(()) | Err(Error::Interrupted) => Ok(sockets),
            Err(error) => Err(error),
        }
    }

    /// Like `dump`, but calls `found` for each socket as it is read; a socket may be reported twice. On
    /// [`Error::Interrupted`], every socket that could be read has been reported.
    pub fn dump_each(&mut self, filter: &Filter, mut found: impl FnMut(Socket)) -> Result<()> {
        let mut interrupted = false;
        for key in filter.keys() {
            match self.ask(&key, filter.states(), NLM_F_REQUEST | NLM_F_DUMP, &mut found) {
                Err(Error::Interrupted) => interrupted = true,
                // The module for TCP is not loaded, and the kernel could not load it.
                Err(Error::Refused(error)) if errno(&error) == Errno::ENOENT => return Err(Error::NoTcpDiag),
                other => other?,
            }
        }
        if interrupted {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Returns one socket as it is now. None if it is gone (in TIME_WAIT it has no congestion control any more).
    pub fn get(&mut self, key: &SocketKey) -> Result<Option<Socket>> {
        let mut found = None;
        match self.ask(key, SENDING, NLM_F_REQUEST, &mut |socket| found = Some(socket)) {
            Ok(()) => Ok(found.filter(|socket| socket.tcp.state.is_some())),
            // ESTALE: the cookie belongs to another socket.
            Err(Error::Refused(error)) if matches!(errno(&error), Errno::ENOENT | Errno::ESTALE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a request and calls `found` for the sockets of the answer. Repeats this if the answer was interrupted or
    /// lost.
    fn ask(&mut self, key: &SocketKey, states: u32, flags: u16, found: &mut impl FnMut(Socket)) -> Result<()> {
        let mut answer = self.ask_once(key, states, flags, found);
        for _ in 1..TRIES {
            match &answer {
                Err(Error::Interrupted) => {}
                Err(Error::Lost) => self.drain(),
                // An earlier dump that stopped half way is still pending; receiving this refusal has made it continue.
                Err(Error::Refused(error)) if errno(error) == Errno::EBUSY => self.drain(),
                _ => break,
            }
            answer = self.ask_once(key, states, flags, found);
        }
        answer
    }

    fn ask_once(&mut self, key: &SocketKey, states: u32, flags: u16, found: &mut impl FnMut(Socket)) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let is_dump = flags & NLM_F_DUMP != 0;
        let mut body = request(key, states);
        if is_dump && !self.state_maps.is_empty() {
            body.extend(self.storage_request());
        }
        self.link.send(&message(SOCK_DIAG_BY_FAMILY, flags, self.sequence, &body)).map_err(lost_or_failed)?;
        self.receive(is_dump, found)
    }

    fn storage_request(&self) -> Vec<u8> {
        let fds: Vec<u8> = self
            .state_maps
            .iter()
            .flat_map(|map| attribute(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, &map.as_raw_fd().to_ne_bytes()))
            .collect();
        attribute(INET_DIAG_REQ_SK_BPF_STORAGES, &fds)
    }

    /// Receives the answer to the latest request, which is one message or a dump.
    fn receive(&mut self, is_dump: bool, found: &mut impl FnMut(Socket)) -> Result<()> {
        let mut interrupted = false;
        loop {
            let length = self.link.receive(&mut self.buffer).map_err(lost_or_failed)?;
            let now = monotonic_ns();
            let too_long = || Error::Malformed(format!("a datagram of {length} bytes"));
            let mut messages = Messages { rest: self.buffer.get(..length).ok_or_else(too_long)? };
            for message in messages.by_ref() {
                // This belongs to an earlier answer that was given up after an error.
                if message.sequence != self.sequence {
                    continue;
                }
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                let cut_off = || Error::Malformed(format!("{} bytes of kind {}", message.body.len(), message.kind));
                match message.kind {
                    SOCK_DIAG_BY_FAMILY => {
                        found(read_socket(message.body, now).ok_or_else(cut_off)?);
                        if !is_dump {
                            return Ok(());
                        }
                    }
                    NLMSG_DONE | NLMSG_ERROR => {
                        return match read_end(message.body).ok_or_else(cut_off)? {
                            0 if interrupted => Err(Error::Interrupted),
                            0 => Ok(()),
                            error => Err(Error::Refused(io::Error::from_raw_os_error(error))),
                        };
                    }
                    // The kernel had no room for a part of its answer.
                    NLMSG_OVERRUN => return Err(Error::Lost),
                    _ => {}
                }
            }
            if !messages.rest.is_empty() {
                return Err(Error::Malformed(format!("{} bytes that are no message", messages.rest.len())));
            }
        }
    }

    /// Receives, and forgets, what is left of earlier answers.
    fn drain(&mut self) {
        while self.link.receive(&mut self.buffer).is_ok() {}
    }
}

/// Converts an error of the socket. ENOBUFS: the kernel had no memory for a message. EAGAIN: nothing more comes,
/// although the end of the answer was not seen.
fn lost_or_failed(error: io::Error) -> Error {
    match errno(&error) {
        Errno::ENOBUFS | Errno::EAGAIN => Error::Lost,
        _ => Error::Netlink(error),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn monotonic_ns() -> u64 {
    // Reading CLOCK_MONOTONIC cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| std::time::Duration::from(now).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::answers::{answer, Parts};

    type Datagram = std::result::Result<Vec<u8>, Errno>;

    /// A kernel that has one answer for each request, in order, and none after the last.
    struct Kernel {
        answers: VecDeque<Vec<Datagram>>,
        queue: VecDeque<Datagram>,
    }

    impl Link for Kernel {
        fn send(&mut self, _: &[u8]) -> io::Result<()> {
            self.queue.extend(self.answers.pop_front().unwrap_or_default());
            Ok(())
        }

        fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let datagram = self.queue.pop_front().unwrap_or(Err(Errno::EAGAIN))?;
            buffer.iter_mut().zip(&datagram).for_each(|(place, byte)| *place = *byte);
            Ok(datagram.len())
        }
    }

    fn kernel(answers: impl IntoIterator<Item = Vec<Datagram>>) -> SockDiag {
        SockDiag::over(Kernel { answers: answers.into_iter().collect(), queue: VecDeque::new() })
    }

    fn socket(sequence: u32, cookie: u8) -> Datagram {
        Ok(answer(sequence, &Parts { cookie, ..Parts::default() }))
    }

    fn end(sequence: u32, flags: u16) -> Datagram {
        Ok(message(NLMSG_DONE, flags, sequence, &0_i32.to_ne_bytes()))
    }

    fn refusal(sequence: u32, errno: Errno) -> Datagram {
        Ok(message(NLMSG_ERROR, 0, sequence, &(-(errno as i32)).to_ne_bytes()))
    }

    const IPV4: Filter =
        Filter { ipv6: Some(false), local_port: None, remote_port: None, listening: false, opening: false };

    /// Returns the cookies in the order in which they are reported, and how the dump ended.
    fn reported(diag: &mut SockDiag, filter: &Filter) -> (Vec<u8>, Result<()>) {
        let mut cookies = Vec::new();
        let result = diag.dump_each(filter, |socket| cookies.push(socket.key.cookie[0]));
        (cookies, result)
    }

    #[test]
    fn an_interrupted_dump_is_repeated() {
        let interrupted = vec![socket(1, 1), end(1, NLM_F_DUMP_INTR)];
        let (cookies, result) =
            reported(&mut kernel([interrupted, vec![socket(2, 1), socket(2, 2), end(2, 0)]]), &IPV4);
        assert_eq!(cookies, [1, 1, 2]);
        result.unwrap();
    }

    #[test]
    fn a_dump_that_stays_interrupted_is_reported_after_all_families_were_read() {
        let answers = (1..=4).map(|n| vec![socket(n, 1), end(n, NLM_F_DUMP_INTR)]);
        let mut diag = kernel(answers.chain([vec![socket(5, 6), end(5, 0)]]));
        let (cookies, result) = reported(&mut diag, &Filter::default());
        assert_eq!(cookies, [1, 1, 1, 1, 6]);
        assert!(matches!(result, Err(Error::Interrupted)));
    }

    #[test]
    fn a_socket_that_is_reported_twice_is_returned_once() {
        let mut diag = kernel([vec![socket(1, 1), socket(1, 2), socket(1, 1), end(1, 0)]]);
        assert_eq!(diag.dump(&IPV4).unwrap().len(), 2);
    }

    #[test]
    fn a_request_is_repeated_after_lost_messages() {
        let overrun = || Ok(message(NLMSG_OVERRUN, 0, 1, &[]));
        for loss in [vec![Err(Errno::ENOBUFS)], vec![overrun()], vec![]] {
            let lost = [vec![socket(1, 1)], loss].concat();
            let (cookies, result) = reported(&mut kernel([lost, vec![socket(2, 1), socket(2, 2), end(2, 0)]]), &IPV4);
            assert_eq!(cookies, [1, 1, 2]);
            result.unwrap();
        }
        assert!(matches!(reported(&mut kernel([]), &IPV4).1, Err(Error::Lost)));
    }

    #[test]
    fn a_dump_that_stopped_half_way_is_received_to_its_end_before_another() {
        let mut diag = kernel([
            vec![socket(1, 1), Err(Errno::ENOBUFS)],
            // The old dump continues when the refusal has been received.
            vec![refusal(2, Errno::EBUSY), socket(1, 8), end(1, 0)],
            vec![socket(3, 1), socket(3, 2), end(3, 0)],
        ]);
        let (cookies, result) = reported(&mut diag, &IPV4);
        assert_eq!(cookies, [1, 1, 2]);
        result.unwrap();
    }

    #[test]
    fn a_lookup_is_repeated_too_and_a_socket_that_is_gone_is_none() {
        let mut diag = kernel([vec![Err(Errno::ENOBUFS)], vec![socket(2, 9)], vec![refusal(3, Errno::ENOENT)]]);
        let key = SocketKey { cookie: [9; 8], ..IPV4.keys().next().unwrap() };
        assert_eq!(diag.get(&key).unwrap().unwrap().key.cookie, [9; 8]);
        assert_eq!(diag.get(&key).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let cut = |datagram: Datagram| datagram.map(|bytes| bytes[..bytes.len() - 4].to_vec());
        let (cookies, result) = reported(&mut kernel([vec![socket(1, 1), cut(socket(1, 2))]]), &IPV4);
        assert_eq!(cookies, [1]);
        assert!(matches!(result, Err(Error::Malformed(_))));
        let (_, result) = reported(&mut kernel([vec![Ok(message(NLMSG_ERROR, 0, 1, &[0; 3]))]]), &IPV4);
        assert!(matches!(result, Err(Error::Malformed(_))));
        let (_, result) = reported(&mut kernel([vec![Ok(vec![0; DATAGRAM + 1])]]), &IPV4);
        assert!(matches!(result, Err(Error::Malformed(_))));
        assert!(matches!(reported(&mut kernel([vec![refusal(1, Errno::ENOENT)]]), &IPV4).1, Err(Error::NoTcpDiag)));
        assert!(matches!(reported(&mut kernel([vec![refusal(1, Errno::EPERM)]]), &IPV4).1, Err(Error::Refused(_))));
    }
}
