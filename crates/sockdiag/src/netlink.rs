//! Messages and attributes of netlink (include/uapi/linux/netlink.h), and the socket over which they are exchanged.
//! Nothing here trusts a length that it has not checked.

use std::io;

use netlink_sys::Socket;
use nix::libc;

use crate::bytes::Bytes;

/// Kinds of messages.
pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSG_OVERRUN: u16 = 4;

/// Flags of a request, and a flag of an answer (INTR).
pub const NLM_F_REQUEST: u16 = 1;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_DUMP_INTR: u16 = 0x10;

/// The bits of an attribute's type without its flags.
const NLA_TYPE_MASK: u16 = 0x3fff;

const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// A netlink socket, or a test's replacement for one.
pub trait Link: Send {
    fn send(&mut self, request: &[u8]) -> io::Result<()>;

    /// Receives the next datagram and returns its length, which is more than the buffer's if it did not fit. It never
    /// waits: the kernel has its answer ready when a request has been sent, and the next part of a dump when one part
    /// has been received.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Link for Socket {
    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        Socket::send(self, request, 0).map(drop)
    }

    fn receive(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
        self.recv(&mut buffer, libc::MSG_DONTWAIT | libc::MSG_TRUNC)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    /// Sequence number of the request that it answers.
    pub sequence: u32,
    pub body: &'a [u8],
}

/// The messages of one datagram.
pub struct Messages<'a> {
    /// What has not been read yet; at the end, what is no whole message.
    pub rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = Bytes(self.rest);
        let length = usize::try_from(header.u32(0)?).ok()?;
        let message = Message {
            kind: header.u16(4)?,
            flags: header.u16(6)?,
            sequence: header.u32(8)?,
            body: self.rest.get(MESSAGE_HEADER..length)?,
        };
        self.rest = self.rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Returns the kind and the value of each attribute, up to the first that is cut off.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = Bytes(rest);
        let (length, kind) = (usize::from(header.u16(0)?), header.u16(2)? & NLA_TYPE_MASK);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(MESSAGE_HEADER + body.len());
    message.extend_from_slice(&((MESSAGE_HEADER + body.len()) as u32).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(body);
    message
}

pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut attribute = Vec::new();
    attribute.extend_from_slice(&((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes());
    attribute.extend_from_slice(&kind.to_ne_bytes());
    attribute.extend_from_slice(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_datagram_are_separated() {
        let two = [message(20, 2, 7, b"abcd"), message(NLMSG_DONE, 2, 7, b"xy")].concat();
        let mut messages = Messages { rest: &two };
        assert_eq!(messages.next(), Some(Message { kind: 20, flags: 2, sequence: 7, body: b"abcd" }));
        assert_eq!(messages.next().map(|message| message.body), Some(&b"xy"[..]));
        assert_eq!((messages.next(), messages.rest.len()), (None, 0));

        let mut cut = Messages { rest: &two[..two.len() - 1] };
        assert_eq!((cut.by_ref().count(), cut.rest.len()), (1, 17));
        assert_eq!(Messages { rest: &[0; 64] }.count(), 0);
    }

    #[test]
    fn attributes_are_read_as_far_as_they_are_whole() {
        let two = [attribute(0x8001, b"abcde"), attribute(2, b"")].concat();
        assert_eq!(attributes(&two).collect::<Vec<_>>(), [(1, &b"abcde"[..]), (2, &b""[..])]);
        assert_eq!(attributes(&two[..two.len() - 1]).count(), 1);
        // Lengths below the header's.
        for length in 0..4 {
            assert_eq!(attributes(&[length, 0, 1, 0, 9, 9]).count(), 0);
        }
    }
}
