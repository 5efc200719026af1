//! Queueing disciplines of the bottleneck's kernel, the loopback of a kernel with programs, and the IPv6 address of a
//! kernel that has one, as the rtnetlink messages that set them up (include/uapi/linux/pkt_sched.h, rtnetlink.h,
//! if_addr.h).
use std::net::Ipv6Addr;

use serde::Deserialize;

/// The only device beside the loopback.
const INTERFACE: i32 = 2;
const LOOPBACK: i32 = 1;
const IFF_UP: u32 = 1;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWQDISC: u16 = 36;
/// NLM_F_REQUEST | NLM_F_ACK
const CHANGE: u16 = 0x005;
/// NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE
const REPLACE: u16 = 0x505;
const AF_INET6: u8 = 10;
const IFA_LOCAL: u16 = 2;
/// IFA_F_NODAD: no other node is asked whether it has the address.
const WITHOUT_ASKING: u8 = 2;
/// Bits of an address that all nodes have.
const IPV6_PREFIX_BITS: u8 = 64;
const ROOT: u32 = u32::MAX;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;

/// A queueing discipline. Sizes are bytes, times us.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Aqm {
    Red { limit: u32, min: u32, max: u32, probability: f64, rate: u64, ecn: bool },
    Codel { limit_packets: u32, target: u32, interval: u32, ecn: bool },
    FqCodel { limit_packets: u32, target: u32, interval: u32, ecn: bool },
}

impl Aqm {
    pub fn ecn(&self) -> bool {
        match self {
            Self::Red { ecn, .. } | Self::Codel { ecn, .. } | Self::FqCodel { ecn, .. } => *ecn,
        }
    }
}

/// Returns the message that makes the discipline the device's root.
pub fn commands(aqm: &Aqm) -> Vec<u8> {
    let (kind, options) = match aqm {
        Aqm::Red { limit, min, max, probability, rate, ecn } => {
            ("red", red(*limit, *min, *max, *probability, *rate, *ecn))
        }
        Aqm::Codel { limit_packets, target, interval, ecn } => {
            ("codel", codel(*limit_packets, *target, *interval, *ecn))
        }
        Aqm::FqCodel { limit_packets, target, interval, ecn } => {
            ("fq_codel", codel(*limit_packets, *target, *interval, *ecn))
        }
    };
    let mut body = Vec::new();
    body.extend([0u8; 4]); // tcm_family and padding
    body.extend(INTERFACE.to_le_bytes());
    body.extend(0u32.to_le_bytes()); // handle: chosen by the kernel
    body.extend(ROOT.to_le_bytes());
    body.extend(0u32.to_le_bytes());
    attribute(&mut body, TCA_KIND, format!("{kind}\0").as_bytes());
    attribute(&mut body, TCA_OPTIONS, &options);
    message(RTM_NEWQDISC, REPLACE, &body)
}

/// Returns the message that brings the loopback up: programs expect it, and some look on it for what the kernel can do
/// (quinn whether UDP has GSO).
pub fn loopback_up() -> Vec<u8> {
    up(LOOPBACK)
}

/// Returns the messages that bring the device up and give it an IPv6 address; the route to the others comes with it.
pub fn ipv6(address: Ipv6Addr) -> Vec<u8> {
    let mut body = vec![AF_INET6, IPV6_PREFIX_BITS, WITHOUT_ASKING, 0];
    body.extend(INTERFACE.to_le_bytes());
    attribute(&mut body, IFA_LOCAL, &address.octets());
    [up(INTERFACE), message(RTM_NEWADDR, CHANGE, &body)].concat()
}

fn up(interface: i32) -> Vec<u8> {
    let mut body = vec![0u8; 4]; // ifi_family, padding, ifi_type
    body.extend(interface.to_le_bytes());
    body.extend(IFF_UP.to_le_bytes());
    body.extend(IFF_UP.to_le_bytes()); // which flags to change
    message(RTM_NEWLINK, CHANGE, &body)
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend((16 + body.len() as u32).to_le_bytes());
    message.extend(kind.to_le_bytes());
    message.extend(flags.to_le_bytes());
    message.extend([0u8; 8]); // sequence number, port
    message.extend(body);
    message
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    to.extend((4 + value.len() as u16).to_le_bytes());
    to.extend(kind.to_le_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

/// Returns the options of CoDel and of FQ-CoDel: the first four of TCA_CODEL_* and TCA_FQ_CODEL_* have the same
/// numbers.
fn codel(limit_packets: u32, target: u32, interval: u32, ecn: bool) -> Vec<u8> {
    let mut options = Vec::new();
    for (kind, value) in [(1, target), (2, limit_packets), (3, interval), (4, u32::from(ecn))] {
        attribute(&mut options, kind, &value.to_le_bytes());
    }
    options
}

/// Average packet that RED assumes, bytes (tc-red(8)).
const AVERAGE_PACKET: f64 = 1000.0;
const TC_RED_ECN: u8 = 1;

fn red(limit: u32, min: u32, max: u32, probability: f64, rate: u64, ecn: bool) -> Vec<u8> {
    // As tc-red(8) does, the average follows so slowly that a burst of (2 min + max) / 3 passes.
    let burst = (2.0 * f64::from(min) + f64::from(max)) / (3.0 * AVERAGE_PACKET);
    let weight_log = ewma_log(f64::from(min), burst);
    let (cell_log, damping) = idle_damping(weight_log, rate);
    let mut parameters = Vec::new();
    for value in [limit, min, max] {
        parameters.extend(value.to_le_bytes());
    }
    parameters.extend([weight_log, slope_log(max.saturating_sub(min), probability), cell_log]);
    parameters.push(if ecn { TC_RED_ECN } else { 0 });
    let mut options = Vec::new();
    attribute(&mut options, 1, &parameters);
    attribute(&mut options, 2, &damping);
    attribute(&mut options, 3, &((probability * f64::from(u32::MAX)) as u32).to_le_bytes());
    options
}

/// Returns the log of the largest weight W = 2^-log with which the average stays below `min` when `burst` packets enter
/// an empty queue (Floyd and Jacobson 1993, section 4: burst + 1 + ((1 - W)^(burst + 1) - 1) / W < min).
fn ewma_log(min: f64, burst: f64) -> u8 {
    let threshold = burst + 1.0 - min / AVERAGE_PACKET;
    let reached = |log: u8| {
        let weight = 0.5f64.powi(i32::from(log));
        (1.0 - (1.0 - weight).powf(burst)) / weight
    };
    (1..31).find(|log| threshold <= reached(*log)).unwrap_or(31)
}

/// Returns the log of how much the drop probability rises per byte, from the probability at `max`.
fn slope_log(range: u32, probability: f64) -> u8 {
    let slope = probability / f64::from(range.max(1));
    (-slope.log2()).ceil().clamp(0.0, 31.0) as u8
}

/// Returns the log of a cell in us, and a table of how far the average has decayed, in powers of two, when the queue
/// has been idle for n cells: as far as if small packets had left at the link's rate (Floyd and Jacobson 1993, section
/// 4).
fn idle_damping(weight_log: u8, rate: u64) -> (u8, [u8; 256]) {
    let packet_us = AVERAGE_PACKET * 8e6 / rate as f64;
    let decay = -(1.0 - 0.5f64.powi(i32::from(weight_log))).log2() / packet_us;
    let cell_log = (0..31).find(|log| 31.0 / decay / f64::from(1u32 << log) < 512.0).unwrap_or(31);
    let mut damping = [31; 256];
    for (cell, value) in damping.iter_mut().enumerate().take(255) {
        *value = (((cell as u64) << cell_log) as f64 * decay).min(31.0) as u8;
    }
    (cell_log, damping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_its_length_and_fits() {
        let codel = Aqm::Codel { limit_packets: 100, target: 5000, interval: 100_000, ecn: true };
        let red = Aqm::Red { limit: 60_000, min: 5000, max: 15_000, probability: 0.02, rate: 20_000_000, ecn: false };
        let address = ipv6(Ipv6Addr::LOCALHOST);
        for aqm in [codel, red] {
            let message = commands(&aqm);
            assert_eq!(u32::from_le_bytes(message[..4].try_into().unwrap()) as usize, message.len());
            assert!(address.len() + message.len() < 2048 && message.len() % 4 == 0, "{}", message.len());
        }
        let ends = u32::from_le_bytes(address[..4].try_into().unwrap()) as usize;
        assert_eq!(u32::from_le_bytes(address[ends..][..4].try_into().unwrap()) as usize, address.len() - ends);
    }

    /// The expected values are what `tc qdisc add dev lo root red ...` of iproute2 6.1 sent, as strace shows.
    #[test]
    fn red_has_the_parameters_that_tc_computes() {
        // limit 60000 min 5000 max 15000 avpkt 1000 burst 8 probability 0.02
        assert_eq!((ewma_log(5000.0, 8.0), slope_log(10_000, 0.02)), (3, 19));
        // limit 300000 min 25000 max 75000 avpkt 1000 burst 41 probability 0.1
        assert_eq!((ewma_log(25_000.0, 41.0), slope_log(50_000, 0.1)), (5, 19));
    }

    /// The kernel looks up the idle time in microseconds (include/net/red.h, red_calc_qavg_from_idle_time). tc fills
    /// the table in ticks of 64 ns, and so the average decays 15 times slower than Floyd and Jacobson meant.
    #[test]
    fn an_idle_queue_is_forgotten_as_fast_as_small_packets_would_empty_it() {
        let (cell_log, damping) = idle_damping(3, 20_000_000);
        // 400 us per small packet, each of which takes an eighth of the average: 7/8 ^ 10 = 0.26 = 2^-1.9
        let cell = 4000 >> cell_log;
        assert_eq!(damping[cell], 1);
        assert_eq!((damping[0], damping[255]), (0, 31));
    }
}
