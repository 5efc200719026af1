//! From the bytes of an answer to sockets. Nothing here trusts a length that it has not checked.

use std::net::SocketAddr;

use netlink_packet_core::{DefaultNla, NetlinkMessage, NetlinkPayload, Nla as _, NlasIterator};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{InetResponse, SocketId};
use netlink_packet_sock_diag::SockDiagMessage;

use crate::bytes::Bytes;
use crate::{BbrInfo, Error, Result, Socket, SocketKey, TcpInfo};

/// Attributes that netlink-packet-sock-diag has no name for (include/uapi/linux/inet_diag.h).
const INET_DIAG_BBRINFO: u16 = 16;
const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
/// Within it (include/uapi/linux/sock_diag.h).
const SK_DIAG_BPF_STORAGE: u16 = 1;
const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;
/// Flags of an attribute, not part of its kind (include/uapi/linux/netlink.h).
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Length of a netlink header, and where in it the sequence number lies (include/uapi/linux/netlink.h).
pub const HEADER: usize = 16;
const SEQUENCE: usize = 8;

#[derive(Debug)]
pub enum Answer {
    Socket(Box<Socket>),
    /// The end of a dump, or the refusal of a request: 0 or the number of the error.
    End(i32),
    Other,
}

/// The messages of one datagram; ends at the first that is not whole.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let message = rest.get(..length).filter(|message| message.len() >= HEADER)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The number of the request that a message answers.
pub fn sequence_of(message: &[u8]) -> u32 {
    Bytes(message).u32(SEQUENCE).unwrap_or(0)
}

/// Reads one message that was received at `time_ns`.
pub fn parse(message: &[u8], time_ns: u64) -> Result<Answer> {
    let malformed = |error: &dyn std::fmt::Display| Error::Malformed(error.to_string());
    let message = NetlinkMessage::<SockDiagMessage>::deserialize(message).map_err(|error| malformed(&error))?;
    Ok(match message.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
            Answer::Socket(Box::new(socket(*response, time_ns)))
        }
        NetlinkPayload::Done(done) => Answer::End(done.code.saturating_neg()),
        NetlinkPayload::Error(error) => Answer::End(error.code.map_or(0, |code| code.get().saturating_neg())),
        _ => Answer::Other,
    })
}

fn socket(response: InetResponse, time_ns: u64) -> Socket {
    let InetResponse { header, nlas } = response;
    let mut socket = Socket {
        key: key(&header.socket_id),
        time_ns,
        uid: header.uid,
        inode: header.inode,
        congestion_control: None,
        tcp: TcpInfo::default(),
        bbr: None,
    };
    for nla in nlas {
        match nla {
            Nla::TcpInfo(payload) => socket.tcp = TcpInfo::parse(&payload),
            Nla::Congestion(name) => socket.congestion_control = Some(name),
            Nla::Other(other) => match other.kind() & NLA_TYPE_MASK {
                INET_DIAG_BBRINFO => socket.bbr = BbrInfo::parse(&value(&other)),
                INET_DIAG_SK_BPF_STORAGES => socket.bbr = exported(&value(&other)).or(socket.bbr),
                _ => {}
            },
            _ => {}
        }
    }
    socket
}

fn key(id: &SocketId) -> SocketKey {
    SocketKey {
        local: SocketAddr::new(id.source_address, id.source_port),
        remote: SocketAddr::new(id.destination_address, id.destination_port),
        interface: id.interface_id,
        cookie: id.cookie,
    }
}

/// The first value in the list of BPF storages: we ask for our own maps only, and a socket has one control.
fn exported(storages: &[u8]) -> Option<BbrInfo> {
    let storage = attribute(storages, SK_DIAG_BPF_STORAGE)?;
    BbrInfo::parse_export(&attribute(&storage, SK_DIAG_BPF_STORAGE_MAP_VALUE)?)
}

fn attribute(attributes: &[u8], kind: u16) -> Option<Vec<u8>> {
    NlasIterator::new(attributes)
        .map_while(std::result::Result::ok)
        .find(|nla| nla.kind() & NLA_TYPE_MASK == kind)
        .map(|nla| nla.value().to_vec())
}

fn value(nla: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; nla.value_len()];
    nla.emit_value(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_bytes(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// An answer for 127.0.0.1:40000 -> 127.0.0.1:5201 with every attribute that we read.
    fn answer() -> Vec<u8> {
        let mut body = vec![2, 1, 0, 0];
        body.extend_from_slice(&40_000_u16.to_be_bytes());
        body.extend_from_slice(&5201_u16.to_be_bytes());
        for _ in 0..2 {
            body.extend_from_slice(&[127, 0, 0, 1]);
            body.extend_from_slice(&[0; 12]);
        }
        body.extend_from_slice(&0_u32.to_ne_bytes());
        body.extend_from_slice(&[9; 8]);
        for word in [0_u32, 0, 0, 1000, 77] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        let words: Vec<u8> = (0..58_u32).flat_map(u32::to_ne_bytes).collect();
        let model: Vec<u8> =
            [1_000_000_u32, 0, 5000, 739, 512, 2, 7, 0, 5, 0].iter().flat_map(|w| w.to_ne_bytes()).collect();
        body.extend(attribute_bytes(2, &words));
        body.extend(attribute_bytes(4, b"bbr_robust\0"));
        let storage = attribute_bytes(SK_DIAG_BPF_STORAGE_MAP_VALUE, &model);
        let storage = attribute_bytes(SK_DIAG_BPF_STORAGE, &storage);
        body.extend(attribute_bytes(INET_DIAG_SK_BPF_STORAGES, &storage));
        body.extend(attribute_bytes(INET_DIAG_BBRINFO, &model[..20]));

        let mut message = Vec::new();
        message.extend_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&20_u16.to_ne_bytes());
        message.extend_from_slice(&0_u16.to_ne_bytes());
        message.extend_from_slice(&1_u32.to_ne_bytes());
        message.extend_from_slice(&0_u32.to_ne_bytes());
        message.extend(body);
        message
    }

    #[test]
    fn a_whole_answer_is_read() {
        let Answer::Socket(socket) = parse(&answer(), 42).unwrap() else { panic!("no socket") };
        assert_eq!(socket.key.local.to_string(), "127.0.0.1:40000");
        assert_eq!(socket.key.remote.port(), 5201);
        assert_eq!((socket.time_ns, socket.uid, socket.inode), (42, 1000, 77));
        assert_eq!(socket.congestion_control.as_deref(), Some("bbr_robust"));
        assert_eq!(socket.tcp.cwnd_packets, Some(20));
        assert_eq!(socket.bbr.as_ref().unwrap().bdp_bytes(), Some(5000));
        // 6 unacked - 7 sacked - 8 lost + 9 retransmitted packets of 4 bytes
        assert_eq!(socket.inflight_bdp(), Some(36.0 / 5000.0));
    }

    #[test]
    fn no_cut_makes_the_reader_panic() {
        let whole = answer();
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            assert_eq!(messages(&cut).count(), 0, "a message that is not whole was taken for one");
            let _ = parse(&cut, 0);
            // The same with a header that claims to be whole.
            if length >= 4 {
                cut[..4].copy_from_slice(&(length as u32).to_ne_bytes());
                let _ = parse(&cut, 0);
            }
        }
    }

    #[test]
    fn no_flipped_byte_makes_the_reader_panic() {
        let whole = answer();
        for at in 0..whole.len() {
            for value in [0, 1, 3, 0x7f, 0xff] {
                let mut bad = whole.clone();
                bad[at] = value;
                messages(&bad).for_each(|message| drop(parse(message, 0)));
                let _ = parse(&bad, 0);
            }
        }
    }

    #[test]
    fn messages_of_a_datagram_are_told_apart() {
        let two = [answer(), answer()].concat();
        assert_eq!(messages(&two).count(), 2);
        assert_eq!(messages(&two[..two.len() - 1]).count(), 1);
        assert_eq!(messages(&[0; 64]).count(), 0);
    }
}
