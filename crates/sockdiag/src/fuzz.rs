//! Gives the decoder answers as the kernel sends them, and damaged ones, and checks what it has to keep whatever it
//! reads. `cargo test` does so briefly, `cargo run --release -p brobust-sockdiag --example fuzz` for as long as you
//! like.
//!
//! Answers are damaged in these ways: bits are flipped, bytes and lengths replaced, pieces cut out or written over
//! others (so that attributes nest that should not), ends cut off; and some are random bytes from the beginning.

use crate::inet_diag::{
    read, Answer, AF_INET, AF_INET6, INET_DIAG_BBRINFO, INET_DIAG_CGROUP_ID, INET_DIAG_CONG, INET_DIAG_INFO,
    INET_DIAG_SK_BPF_STORAGES, SK_DIAG_BPF_STORAGE, SK_DIAG_BPF_STORAGE_MAP_VALUE, SOCK_DIAG_BY_FAMILY,
};
use crate::netlink::{attribute, attributes, message, Messages, NLMSG_DONE};
use crate::Socket;

/// The parts of an answer. Lengths are bytes; 0: the attribute is missing.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
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
pub(crate) fn answer(sequence: u32, parts: &Parts) -> Vec<u8> {
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

/// A generator of random numbers (xorshift64*) that are the same on every machine.
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Draws a number below the limit; 0 for a limit of 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.draw() >> 32) as usize % limit.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}

/// What became of the inputs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub inputs: u64,
    pub sockets: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Datagrams whose end was no message.
    pub cut_off: u64,
}

/// Reads `inputs` datagrams. Panics if a promise is broken.
pub fn run(inputs: u64, seed: u64) -> Outcome {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (whole, mut datagram) = (whole_datagrams(), Vec::new());
    let (mut outcome, mut used) = (Outcome { inputs, ..Outcome::default() }, Socket::none());
    for _ in 0..inputs {
        let (original, sockets) = &whole[random.below(whole.len())];
        datagram.clone_from(original);
        let changes = random.below(6);
        (0..changes).for_each(|_| damage(&mut datagram, &mut random));
        let before = outcome;
        check(&datagram, &mut used, &mut outcome);
        if changes == 0 {
            let expected = Outcome { sockets: before.sockets + sockets, ..before };
            assert_eq!(outcome, expected, "a whole datagram was not read completely: {datagram:?}");
        }
    }
    outcome
}

/// Returns datagrams without damage, each with the number of its sockets.
fn whole_datagrams() -> Vec<(Vec<u8>, u64)> {
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

fn damage(datagram: &mut Vec<u8>, random: &mut Random) {
    let length = datagram.len();
    // Most fields and all lengths begin at a multiple of four.
    let at = if random.one_in(4) { random.below(length) } else { random.below(length / 4) * 4 };
    let some = 1 + random.below(64);
    match random.below(8) {
        0 => datagram.truncate(at),
        1 | 2 => datagram.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        3 => datagram.iter_mut().skip(at).take(some).for_each(|byte| *byte = random.draw() as u8),
        4 | 5 => {
            let near = length as i32 - at as i32 + random.below(9) as i32 - 4;
            let number = [0, 1, 3, 4, 5, 15, 16, 17, 0x7fff, 0xffff, i32::MAX, -1, near][random.below(13)];
            let bytes = &number.to_ne_bytes()[..if random.one_in(2) { 2 } else { 4 }];
            datagram.iter_mut().skip(at).zip(bytes).for_each(|(byte, new)| *byte = *new);
        }
        6 => drop(datagram.drain(at..(at + some).min(length))),
        _ if random.one_in(16) => {
            *datagram = (0..random.below(600)).map(|_| random.draw() as u8).collect();
        }
        _ => {
            let from = random.below(length);
            let piece = datagram[from..(from + some).min(length)].to_vec();
            datagram.iter_mut().skip(at).zip(piece).for_each(|(byte, new)| *byte = new);
        }
    }
}

fn check(datagram: &[u8], used: &mut Socket, outcome: &mut Outcome) {
    let (mut messages, mut covered) = (Messages { rest: datagram }, 0);
    while let Some(message) = messages.next() {
        covered += 16 + message.body.len();
        assert!(covered + messages.rest.len() <= datagram.len(), "bytes were read twice: {datagram:?}");
        let values: usize = attributes(message.body).map(|(_, value)| 4 + value.len()).sum();
        assert!(values <= message.body.len(), "attributes overlap: {message:?}");

        let mut fresh = Socket::none();
        let (one, other) = (read(&message, 7, used).ok(), read(&message, 7, &mut fresh).ok());
        assert_eq!(one, other, "the result depends on what was read before: {message:?}");
        match one {
            Some(Answer::Socket) => {
                assert_eq!(*used, fresh, "the result depends on what was read before: {message:?}");
                let share = fresh.inflight_bdp();
                assert!(share.is_none_or(|share| share.is_finite() && share >= 0.0), "{share:?}: {message:?}");
                outcome.sockets += 1;
            }
            Some(Answer::End(_) | Answer::Lost | Answer::Other) => {}
            None => outcome.refused += 1,
        }
    }
    outcome.cut_off += u64::from(!messages.rest.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_damaged_answer_breaks_a_promise() {
        let outcome = run(100_000, 1);
        assert_eq!(outcome, run(100_000, 1), "the same seed gives another outcome");
        // The damage is neither so small that everything is read nor so large that nothing is.
        assert!(outcome.sockets > 50_000 && outcome.refused > 1_000 && outcome.cut_off > 10_000, "{outcome:?}");
    }

    #[test]
    fn no_single_cut_or_byte_breaks_a_promise() {
        let whole = answer(1, &Parts::default());
        let (mut used, mut outcome) = (Socket::none(), Outcome::default());
        for at in 0..whole.len() {
            check(&whole[..at], &mut used, &mut outcome);
            for value in 0..=u8::MAX {
                let mut bad = whole.clone();
                bad[at] = value;
                check(&bad, &mut used, &mut outcome);
            }
        }
    }
}
