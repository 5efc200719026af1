//! For tests: answers as the kernel sends them, and damaged ones, with what the decoder has to keep whatever it reads.
//! `PROPTEST_CASES=1000000 cargo test --release -p brobust-sockdiag damaged` gives it more of them.

use proptest::prelude::*;
use proptest::sample::{select, Index};

use crate::inet_diag::{
    read_end, read_socket, AF_INET, AF_INET6, INET_DIAG_BBRINFO, INET_DIAG_CGROUP_ID, INET_DIAG_CONG, INET_DIAG_INFO,
    INET_DIAG_SK_BPF_STORAGES, SK_DIAG_BPF_STORAGE, SK_DIAG_BPF_STORAGE_MAP_VALUE, SOCK_DIAG_BY_FAMILY,
};
use crate::netlink::{attribute, attributes, message, Messages, NLMSG_DONE};

/// The parts of an answer. Lengths are bytes; 0: the attribute is missing.
#[derive(Debug, Clone)]
pub struct Parts {
    pub ipv6: bool,
    pub cookie: u8,
    pub tcp_info: usize,
    pub bbr_info: usize,
    pub storage: usize,
    pub control: &'static str,
}

impl Default for Parts {
    fn default() -> Parts {
        Parts { ipv6: false, cookie: 9, tcp_info: 232, bbr_info: 20, storage: 40, control: "bbr_robust" }
    }
}

/// Returns the kernel's answer for a connection from port 40000 of this host to its port 5201. Word n of tcp_info is n.
pub fn answer(sequence: u32, parts: &Parts) -> Vec<u8> {
    let mut body = vec![if parts.ipv6 { AF_INET6 } else { AF_INET }, 1, 0, 0];
    body.extend_from_slice(&40_000_u16.to_be_bytes());
    body.extend_from_slice(&5201_u16.to_be_bytes());
    for _ in 0..2 {
        body.extend_from_slice(&[127, 0, 0, 1]);
        body.extend_from_slice(&[0; 12]);
    }
    body.extend_from_slice(&0_u32.to_ne_bytes());
    body.extend_from_slice(&[parts.cookie; 8]);
    for word in [0_u32, 0, 0, 1000, 77] {
        body.extend_from_slice(&word.to_ne_bytes());
    }
    let bytes = |words: &[u32], length: usize| -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(std::iter::repeat(0)).take(length).collect()
    };
    let tcp_info = bytes(&(0..58).collect::<Vec<u32>>(), parts.tcp_info);
    let model = |length| bytes(&[1_000_000, 0, 5000, 739, 512, 2, 7, 0, 5, 0], length);
    let storage = attribute(SK_DIAG_BPF_STORAGE_MAP_VALUE, &model(parts.storage));
    let storages = attribute(SK_DIAG_BPF_STORAGE, &storage);
    let control = [parts.control.as_bytes(), b"\0"].concat();
    for (kind, value, is_there) in [
        (INET_DIAG_CONG, control, !parts.control.is_empty()),
        (INET_DIAG_INFO, tcp_info, parts.tcp_info > 0),
        (INET_DIAG_BBRINFO, model(parts.bbr_info), parts.bbr_info > 0),
        (INET_DIAG_SK_BPF_STORAGES, storages, parts.storage > 0),
        (INET_DIAG_CGROUP_ID, 0x1_0000_0007_u64.to_ne_bytes().to_vec(), true),
    ] {
        if is_there {
            body.extend(attribute(kind, &value));
        }
    }
    message(SOCK_DIAG_BY_FAMILY, 2, sequence, &body)
}

/// Returns datagrams without damage, each with the number of its sockets.
fn whole_datagrams() -> Vec<(Vec<u8>, usize)> {
    let usual = Parts::default();
    let parts = [
        usual.clone(),
        Parts { ipv6: true, ..usual.clone() },
        Parts { tcp_info: 84, bbr_info: 0, storage: 0, control: "cubic", ..usual.clone() },
        Parts { tcp_info: 400, bbr_info: 64, storage: 128, ..usual.clone() },
        Parts { tcp_info: 0, bbr_info: 0, storage: 0, control: "", ..usual },
    ];
    let end = || message(NLMSG_DONE, 2, 1, &0_i32.to_ne_bytes());
    let mut datagrams: Vec<_> = parts.iter().map(|one| (answer(1, one), 1)).collect();
    datagrams.push((end(), 0));
    for three in parts.windows(3) {
        let mut datagram: Vec<u8> = three.iter().flat_map(|one| answer(1, one)).collect();
        datagram.extend(end());
        datagrams.push((datagram, 3));
    }
    datagrams
}

/// What is done to some bytes of a datagram, from a place on.
#[derive(Debug, Clone)]
enum Damage {
    CutOff,
    Flip(u8),
    /// Lengths and other numbers are 2 or 4 bytes long.
    Number(i32, usize),
    /// The same with what is left of the datagram, or a little more or less.
    Left(i32, usize),
    Random(Vec<u8>),
    Remove(usize),
    /// Writes another piece over it, so that attributes nest that should not.
    Piece(Index, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let size = || select(vec![2_usize, 4]);
    prop_oneof![
        Just(Damage::CutOff),
        (0..8_u8).prop_map(|bit| Damage::Flip(1 << bit)),
        (select(vec![0, 1, 3, 4, 5, 15, 16, 17, 0x7fff, 0xffff, i32::MAX, -1]), size())
            .prop_map(|(number, size)| Damage::Number(number, size)),
        (-4..=4_i32, size()).prop_map(|(more, size)| Damage::Left(more, size)),
        prop::collection::vec(any::<u8>(), 1..64).prop_map(Damage::Random),
        (1..64_usize).prop_map(Damage::Remove),
        (any::<Index>(), 1..64_usize).prop_map(|(from, size)| Damage::Piece(from, size)),
    ]
}

impl Damage {
    fn apply(&self, datagram: &mut Vec<u8>, at: usize) {
        let left = datagram.len() - at;
        let new = match self {
            Self::CutOff => return datagram.truncate(at),
            Self::Remove(size) => return drop(datagram.drain(at..at + left.min(*size))),
            Self::Flip(bit) => vec![datagram[at] ^ bit],
            Self::Number(number, size) => number.to_ne_bytes()[..*size].to_vec(),
            Self::Left(more, size) => (left as i32 + more).to_ne_bytes()[..*size].to_vec(),
            Self::Random(bytes) => bytes.clone(),
            Self::Piece(from, size) => {
                let from = from.index(datagram.len());
                datagram[from..(from + size).min(datagram.len())].to_vec()
            }
        };
        datagram.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = new);
    }
}

/// Reads a datagram, and checks the promises. Returns how many sockets it had, and whether all of it was messages.
fn check(datagram: &[u8]) -> (usize, bool) {
    let (mut messages, mut covered, mut sockets) = (Messages { rest: datagram }, 0, 0);
    while let Some(message) = messages.next() {
        covered += 16 + message.body.len();
        assert!(covered + messages.rest.len() <= datagram.len(), "bytes were read twice: {datagram:?}");
        let values: usize = attributes(message.body).map(|(_, value)| 4 + value.len()).sum();
        assert!(values <= message.body.len(), "attributes overlap: {message:?}");

        let Some(socket) = read_socket(message.body, 7).filter(|_| message.kind == SOCK_DIAG_BY_FAMILY) else {
            read_end(message.body);
            continue;
        };
        let share = socket.inflight_bdp();
        assert!(share.is_none_or(|share| share.is_finite() && share >= 0.0), "{share:?}: {message:?}");
        sockets += 1;
    }
    (sockets, messages.rest.is_empty())
}

fn many_cases() -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { cases: asked.cases.max(10_000), failure_persistence: None, ..asked }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn no_damaged_answer_breaks_a_promise(
        (mut datagram, _) in select(whole_datagrams()),
        // Most fields and all lengths begin at a multiple of four.
        damages in prop::collection::vec((any::<Index>(), prop::bool::weighted(0.75), damage()), 1..6),
    ) {
        for (at, aligned, damage) in damages {
            if !datagram.is_empty() {
                let at = at.index(datagram.len());
                damage.apply(&mut datagram, if aligned { at / 4 * 4 } else { at });
            }
        }
        check(&datagram);
    }

    #[test]
    fn no_bytes_at_all_break_a_promise(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes);
    }
}

#[test]
fn a_whole_datagram_is_read_completely() {
    for (datagram, sockets) in whole_datagrams() {
        assert_eq!(check(&datagram), (sockets, true), "{datagram:?}");
    }
}

#[test]
fn no_single_cut_or_byte_breaks_a_promise() {
    let whole = answer(1, &Parts::default());
    for at in 0..whole.len() {
        check(&whole[..at]);
        for value in 0..=u8::MAX {
            let mut bad = whole.clone();
            bad[at] = value;
            check(&bad);
        }
    }
}
