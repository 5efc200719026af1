//! The request for sockets, and one socket's answer (include/uapi/linux/inet_diag.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::bytes::Bytes;
use crate::netlink::attributes;
use crate::{BbrInfo, Socket, SocketKey, TcpInfo};

pub const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub const AF_INET: u8 = 2;
pub const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;

/// Attributes of an answer. A request asks for one by the bit 1 << (attribute - 1).
pub const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_VEGASINFO: u16 = 3;
pub const INET_DIAG_CONG: u16 = 4;
pub const INET_DIAG_BBRINFO: u16 = 16;
pub const INET_DIAG_SK_BPF_STORAGES: u16 = 20;
/// Sent without being asked for, by kernels from 5.9 on with CONFIG_SOCK_CGROUP_DATA.
pub const INET_DIAG_CGROUP_ID: u16 = 21;
/// Attributes within INET_DIAG_SK_BPF_STORAGES (include/uapi/linux/sock_diag.h).
pub const SK_DIAG_BPF_STORAGE: u16 = 1;
pub const SK_DIAG_BPF_STORAGE_MAP_VALUE: u16 = 3;
/// The extensions that we ask for. Asked for VEGASINFO, a control reports whatever it has: BBR reports BBRINFO, whose
/// own bit does not fit into the byte.
const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_VEGASINFO - 1) | 1 << (INET_DIAG_CONG - 1);

/// The states in which a socket may have data to send: TCP_ESTABLISHED, TCP_FIN_WAIT1, TCP_CLOSE_WAIT, TCP_LAST_ACK,
/// TCP_CLOSING (include/net/tcp_states.h). In the last two both ends have closed it, and what was written before is sent.
pub const SENDING: u32 = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11;

/// TCP_SYN_SENT and TCP_SYN_RECV.
pub const OPENING: u32 = 1 << 2 | 1 << 3;

/// TCP_LISTEN.
pub const LISTENING: u32 = 1 << 10;

/// Returns a struct inet_diag_req_v2 for sockets in some of these states. The key is one socket's, or a filter by its ports
/// (0: any).
pub fn request(key: &SocketKey, states: u32) -> Vec<u8> {
    let family = if key.local.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut request = vec![family, IPPROTO_TCP, EXTENSIONS, 0];
    request.extend_from_slice(&states.to_ne_bytes());
    for end in [key.local, key.remote] {
        request.extend_from_slice(&end.port().to_be_bytes());
    }
    for end in [key.local, key.remote] {
        match end.ip() {
            IpAddr::V4(address) => request.extend_from_slice(&[address.octets(), [0; 4], [0; 4], [0; 4]].concat()),
            IpAddr::V6(address) => request.extend_from_slice(&address.octets()),
        }
    }
    request.extend_from_slice(&key.interface.to_ne_bytes());
    request.extend_from_slice(&key.cookie);
    request
}

/// Reads the end of a dump (0), or the refusal of a request (the error's number).
pub fn read_end(body: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(Bytes(body).array(0)?).saturating_neg())
}

/// Reads a struct inet_diag_msg and its attributes, which were received at `time_ns`.
pub fn read_socket(body: &[u8], time_ns: u64) -> Option<Socket> {
    const LENGTH: usize = 72;
    let head = Bytes(body.get(..LENGTH)?);
    let mut socket = Socket {
        key: key(head)?,
        time_ns,
        uid: head.u32(64)?,
        cgroup_id: None,
        congestion_control: None,
        tcp: TcpInfo::default(),
        bbr: None,
    };
    let (mut shown, mut exported) = (None, None);
    for (kind, value) in attributes(body.get(LENGTH..)?) {
        match kind {
            INET_DIAG_INFO => socket.tcp = TcpInfo::parse(value),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion_control = Some(String::from_utf8_lossy(name).into_owned());
            }
            INET_DIAG_BBRINFO => shown = BbrInfo::parse(value),
            INET_DIAG_SK_BPF_STORAGES => exported = read_storages(value),
            INET_DIAG_CGROUP_ID => socket.cgroup_id = Bytes(value).u64(0),
            _ => {}
        }
    }
    socket.bbr = exported.or(shown);
    Some(socket)
}

fn key(head: Bytes) -> Option<SocketKey> {
    let family = head.u8(0)?;
    let address = |offset| match family {
        AF_INET => Some(IpAddr::from(Ipv4Addr::from(head.array::<4>(offset)?))),
        AF_INET6 => Some(IpAddr::from(Ipv6Addr::from(head.array::<16>(offset)?))),
        _ => None,
    };
    Some(SocketKey {
        local: SocketAddr::new(address(8)?, u16::from_be_bytes(head.array(4)?)),
        remote: SocketAddr::new(address(24)?, u16::from_be_bytes(head.array(6)?)),
        interface: head.u32(40)?,
        cookie: head.array(44)?,
    })
}

/// Reads the first value in the list of BPF storages: we ask for our own maps only, and a socket has one control.
fn read_storages(storages: &[u8]) -> Option<BbrInfo> {
    let first = |list, kind| attributes(list).find(|(its, _)| *its == kind).map(|(_, value)| value);
    BbrInfo::parse_export(first(first(storages, SK_DIAG_BPF_STORAGE)?, SK_DIAG_BPF_STORAGE_MAP_VALUE)?)
}

#[cfg(test)]
mod tests {
    use brobust_layout::{headers::INET_DIAG, Field};

    use super::*;
    use crate::answers::{answer, Parts};
    use crate::netlink::Messages;

    fn read_one(bytes: &[u8]) -> Option<Socket> {
        read_socket(Messages { rest: bytes }.next().expect("no message").body, 42)
    }

    #[test]
    fn requests_and_answers_are_laid_out_as_the_uapi_header_has_them() {
        let offsets = |structure: &str, names: &[&str]| -> Vec<usize> {
            let fields = INET_DIAG.fields(structure);
            let find = |name: &&str| fields.iter().find(|Field { name: known, .. }| known == name).expect(name).offset;
            names.iter().map(find).collect()
        };
        let key = ["idiag_sport", "idiag_dport", "idiag_src", "idiag_dst", "idiag_if", "idiag_cookie"];
        assert_eq!(offsets("inet_diag_sockid", &key), [0, 2, 4, 20, 36, 40]);
        let head = ["idiag_family", "idiag_state", "id", "idiag_uid", "idiag_inode"];
        assert_eq!(offsets("inet_diag_msg", &head), [0, 1, 4, 64, 68]);
        assert_eq!(INET_DIAG.size("inet_diag_msg"), 72);
        let asked = ["sdiag_family", "sdiag_protocol", "idiag_ext", "idiag_states", "id"];
        assert_eq!(offsets("inet_diag_req_v2", &asked), [0, 1, 2, 4, 8]);
        assert_eq!(INET_DIAG.size("inet_diag_req_v2"), 56);
        let names = ["INET_DIAG_INFO", "INET_DIAG_VEGASINFO", "INET_DIAG_CONG", "INET_DIAG_BBRINFO"];
        let ours = [INET_DIAG_INFO, INET_DIAG_VEGASINFO, INET_DIAG_CONG, INET_DIAG_BBRINFO].map(u64::from);
        assert_eq!(INET_DIAG.values(&names), ours);
        assert_eq!(INET_DIAG.values(&["INET_DIAG_SK_BPF_STORAGES"]), [INET_DIAG_SK_BPF_STORAGES.into()]);
        assert_eq!(INET_DIAG.values(&["INET_DIAG_CGROUP_ID"]), [INET_DIAG_CGROUP_ID.into()]);
    }

    #[test]
    fn a_whole_answer_is_read() {
        let socket = read_one(&answer(1, &Parts::default())).unwrap();
        assert_eq!(socket.key.local.to_string(), "127.0.0.1:40000");
        assert_eq!(socket.key.remote.port(), 5201);
        assert_eq!((socket.time_ns, socket.uid), (42, 1000));
        assert_eq!(socket.cgroup_id, Some(0x1_0000_0007));
        assert_eq!(socket.congestion_control.as_deref(), Some("bbr_robust"));
        assert_eq!(socket.tcp.cwnd_packets, Some(20));
        let model = socket.bbr.as_ref().unwrap();
        assert_eq!((model.bdp_bytes(), model.mode), (Some(5000), Some(2)));
        // 6 unacked - 7 sacked - 8 lost + 9 retransmitted packets of 4 bytes
        assert_eq!(socket.inflight_bdp(), Some(36.0 / 5000.0));
    }

    #[test]
    fn structures_of_older_and_newer_kernels_are_read_as_far_as_they_are_known() {
        for (tcp_info, bbr_info) in [(0, 0), (83, 19), (84, 20), (232, 20), (400, 99)] {
            let parts = Parts { tcp_info, bbr_info, storage: 0, ..Parts::default() };
            let socket = read_one(&answer(1, &parts)).unwrap();
            assert_eq!(socket.tcp.cwnd_packets, (tcp_info >= 84).then_some(20));
            assert_eq!(socket.tcp.min_rtt_us, (tcp_info >= 232).then_some(37));
            assert_eq!(socket.bbr.is_some(), bbr_info >= 20);
        }
        let old_export = Parts { storage: 24, ..Parts::default() };
        let model = read_one(&answer(1, &old_export)).unwrap().bbr.unwrap();
        assert_eq!((model.mode, model.acks), (Some(2), None));
    }

    #[test]
    fn the_request_has_the_key_as_the_kernel_reports_it() {
        for ipv6 in [false, true] {
            let bytes = answer(1, &Parts { ipv6, ..Parts::default() });
            let request = request(&read_one(&bytes).unwrap().key, SENDING);
            assert_eq!(request.len(), 56);
            assert_eq!(request[8..], bytes[20..68]);
        }
    }

    #[test]
    fn the_end_of_a_dump_and_a_refusal_are_told_apart() {
        assert_eq!(read_end(&0_i32.to_ne_bytes()), Some(0));
        assert_eq!(read_end(&(-2_i32).to_ne_bytes()), Some(2));
        assert_eq!(read_end(&i32::MIN.to_ne_bytes()), Some(i32::MAX));
        assert_eq!(read_end(&[0; 3]), None);
    }

    #[test]
    fn what_is_too_short_or_of_an_unknown_family_is_refused() {
        let whole = answer(1, &Parts::default());
        for length in 0..72 {
            assert_eq!(read_socket(&whole[16..16 + length], 42), None, "{length}");
        }
        let mut unknown = whole;
        unknown[16] = 1;
        assert_eq!(read_one(&unknown), None);
    }
}
