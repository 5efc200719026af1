//! Asking the kernel.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{Emitable, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SOCK_DIAG_BY_FAMILY};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket as Netlink, SocketAddr as NetlinkAddr};
use nix::errno::Errno;
use nix::time::{clock_gettime, ClockId};

use crate::reply::{messages, parse, sequence_of, Answer, HEADER};
use crate::{Error, Result, Socket, SocketKey};

/// The kernel fills at most 32 KiB per datagram of a dump (NLMSG_GOODSIZE and the buffer we offer).
const DATAGRAM: usize = 64 * 1024;
/// include/uapi/linux/inet_diag.h and sock_diag.h
const INET_DIAG_REQ_SK_BPF_STORAGES: u16 = 2;
const SK_DIAG_BPF_STORAGE_REQ_MAP_FD: u16 = 1;

/// Which sockets a dump reports; the kernel does the choosing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    /// None: IPv4 and IPv6.
    pub ipv6: Option<bool>,
    pub local_port: Option<u16>,
    pub remote_port: Option<u16>,
}

pub struct SockDiag {
    netlink: Netlink,
    buffer: Vec<u8>,
    sequence: u32,
    /// Socket storage maps of BPF controls, to be reported with each dump.
    state_maps: Vec<OwnedFd>,
}

impl SockDiag {
    pub fn open() -> Result<SockDiag> {
        let mut netlink = Netlink::new(NETLINK_SOCK_DIAG).map_err(Error::Netlink)?;
        netlink.bind_auto().map_err(Error::Netlink)?;
        netlink.connect(&NetlinkAddr::new(0, 0)).map_err(Error::Netlink)?;
        Ok(SockDiag { netlink, buffer: vec![0; DATAGRAM], sequence: 0, state_maps: Vec::new() })
    }

    /// Reads the state that BPF controls export as well. Only dumps report it: the kernel's answer to a lookup has no
    /// room.
    pub fn with_state_maps(mut self, maps: Vec<OwnedFd>) -> SockDiag {
        self.set_state_maps(maps);
        self
    }

    /// The same from now on.
    pub fn set_state_maps(&mut self, maps: Vec<OwnedFd>) {
        self.state_maps = maps;
    }

    /// Connections that pass the filter and may still have data to send.
    pub fn dump(&mut self, filter: &Filter) -> Result<Vec<Socket>> {
        let mut sockets = Vec::new();
        self.dump_each(filter, |socket| sockets.push(socket))?;
        Ok(sockets)
    }

    /// The same, one after the other as the kernel tells them.
    pub fn dump_each(&mut self, filter: &Filter, mut found: impl FnMut(Socket)) -> Result<()> {
        let families: &[u8] = match filter.ipv6 {
            None => &[AF_INET, AF_INET6],
            Some(false) => &[AF_INET],
            Some(true) => &[AF_INET6],
        };
        for family in families {
            let mut id = if *family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
            id.source_port = filter.local_port.unwrap_or(0);
            id.destination_port = filter.remote_port.unwrap_or(0);
            self.send(*family, id, NLM_F_REQUEST | NLM_F_DUMP)?;
            self.receive(true, &mut found).map_err(|error| match error {
                // Neither the module for TCP was there nor could the kernel load it.
                Error::Refused(error) if errno(&error) == Errno::ENOENT => Error::NoTcpDiag,
                other => other,
            })?;
        }
        Ok(())
    }

    /// One socket as it is now; None if it is gone (what is left in TIME_WAIT has no congestion control any more).
    pub fn get(&mut self, key: &SocketKey) -> Result<Option<Socket>> {
        let id = SocketId {
            source_port: key.local.port(),
            destination_port: key.remote.port(),
            source_address: key.local.ip(),
            destination_address: key.remote.ip(),
            interface_id: key.interface,
            cookie: key.cookie,
        };
        let family = if key.local.is_ipv4() { AF_INET } else { AF_INET6 };
        self.send(family, id, NLM_F_REQUEST)?;
        let mut found = None;
        match self.receive(false, |socket| found = Some(socket)) {
            Ok(()) => Ok(found.filter(|socket: &Socket| socket.tcp.state.is_some())),
            // ESTALE: the cookie belongs to another socket.
            Err(Error::Refused(error)) if matches!(errno(&error), Errno::ENOENT | Errno::ESTALE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn send(&mut self, family: u8, socket_id: SocketId, flags: u16) -> Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::INFO | ExtensionFlags::CONG | ExtensionFlags::VEGASINFO,
            states: StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT | StateFlags::FIN_WAIT1,
            socket_id,
        };
        let mut body = vec![0; request.buffer_len()];
        request.emit(&mut body);
        if flags & NLM_F_DUMP == NLM_F_DUMP && !self.state_maps.is_empty() {
            body.extend(self.storage_request());
        }
        let message = message(SOCK_DIAG_BY_FAMILY, flags, self.sequence, &body);
        self.netlink.send(&message, 0).map_err(Error::Netlink)?;
        Ok(())
    }

    /// The attribute that asks for the storages; the crate's request has no room for attributes.
    fn storage_request(&self) -> Vec<u8> {
        let fds: Vec<u8> = self
            .state_maps
            .iter()
            .flat_map(|map| attribute(SK_DIAG_BPF_STORAGE_REQ_MAP_FD, &map.as_raw_fd().to_ne_bytes()))
            .collect();
        attribute(INET_DIAG_REQ_SK_BPF_STORAGES, &fds)
    }

    /// Receives the answer to the last request, of one message or of many, and hands out its sockets.
    fn receive(&mut self, many: bool, mut found: impl FnMut(Socket)) -> Result<()> {
        loop {
            let length = self.netlink.recv(&mut &mut self.buffer[..], 0).map_err(Error::Netlink)?;
            let now = monotonic_ns();
            for message in messages(self.buffer.get(..length).unwrap_or_default()) {
                // The rest of an answer that was given up after an error.
                if sequence_of(message) != self.sequence {
                    continue;
                }
                match parse(message, now)? {
                    Answer::Socket(socket) => {
                        found(*socket);
                        if !many {
                            return Ok(());
                        }
                    }
                    Answer::End(0) => return Ok(()),
                    Answer::End(error) => return Err(Error::Refused(io::Error::from_raw_os_error(error))),
                    Answer::Other => {}
                }
            }
        }
    }
}

/// A netlink message: the header of include/uapi/linux/netlink.h and a body.
fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    attribute.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    attribute.extend_from_slice(&kind.to_ne_bytes());
    attribute.extend_from_slice(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

fn monotonic_ns() -> u64 {
    // CLOCK_MONOTONIC cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| std::time::Duration::from(now).as_nanos() as u64)
}
