//! The link: one bottleneck that all senders share, and the delays.
//!
//! Data meets random loss, then a FIFO queue with tail drop (pfifo/bfifo), then the bottleneck's rate, then half of the
//! flow's round-trip time. ACKs take the other half. When a packet arrives is computed as soon as it is sent, since
//! nothing that is sent later can change it; that is why kernels can run alone between two hand-overs.
//!
//! Times are ns, rates bit/s, sizes bytes of Ethernet frames.
//!
//! [`Queue`] is the bottleneck, [`Propagation`] a delay:
//!
//! - in: packets in the order in which they are sent, each with its time, length and flow ([`Queue::offer`])
//! - out, at once: when the packet's last bit leaves, how long it waited, how much was queued before it; or that it is
//!   dropped
//! - in: packets in the order in which they leave ([`Propagation::arrives`])
//! - out, at once: when the packet arrives; packets of a flow never overtake each other
//! - a packet is dropped at random before the queue (`loss`), or because the buffer is full when it is offered
//! - the result depends on the packets, the path and its seed, and on nothing else
use std::collections::VecDeque;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Deserialize;

/// A value that changes at known times: pairs of (time from which it holds, value), the first of them from 0 on.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct StepFunction(pub Vec<(u64, u64)>);

impl StepFunction {
    pub fn at(&self, time: u64) -> u64 {
        let after = self.0.partition_point(|(from, _)| *from <= time);
        self.0[after.max(1) - 1].1
    }

    pub fn min(&self) -> u64 {
        self.0.iter().map(|(_, value)| *value).min().unwrap_or(0)
    }

    pub fn max(&self) -> u64 {
        self.0.iter().map(|(_, value)| *value).max().unwrap_or(0)
    }

    pub fn next_change(&self, time: u64) -> Option<u64> {
        self.0.iter().map(|(from, _)| *from).find(|from| *from > time)
    }

    pub fn check(&self, what: &str) -> Result<(), String> {
        let in_order = self.0.windows(2).all(|pair| pair[0].0 < pair[1].0);
        match self.0.first() {
            Some((0, _)) if in_order => Ok(()),
            _ => Err(format!("{what}: its times must begin at 0 and rise, not {:?}", self.0)),
        }
    }

    /// Returns the same function with its times counted from another zero, `origin` earlier.
    pub fn shifted(&self, origin: u64) -> Self {
        Self(self.0.iter().map(|(from, value)| (if *from == 0 { 0 } else { from + origin }, *value)).collect())
    }
}

/// How much a queue holds. The packet that is being sent is not in the queue.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    Bytes(u64),
    Packets(u64),
    /// Super-packets, as an emulator with segmentation offload counts: what a sender gave its NIC as one packet is one.
    SuperPackets(u64),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// Rate of the bottleneck over time, bit/s.
    pub rate: StepFunction,
    pub buffer: Buffer,
    /// Fraction of data packets that are lost before the queue.
    pub loss: f64,
    pub seed: u64,
}

/// What became of a data packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueVerdict {
    /// When its last bit leaves the bottleneck. None: it was dropped.
    pub left: Option<u64>,
    /// How long it waits until its first bit is sent.
    pub waited: u64,
    /// Bytes of all flows that were queued before it.
    pub backlog: u64,
    /// Bytes of its own flow that were queued before it.
    pub own_backlog: u64,
}

/// A packet in the queue.
struct Waiting {
    /// When its transmission begins.
    begins: u64,
    length: u64,
    flow: usize,
    /// Whether it is the last packet of its super-packet so far.
    ends: bool,
}

/// The bottleneck's queue.
pub struct Queue {
    path: Path,
    random: Pcg64Mcg,
    waiting: VecDeque<Waiting>,
    /// Bytes that wait.
    backlog: u64,
    /// Number of super-packets of which at least one packet waits.
    super_packets: u64,
    /// Whether the latest super-packet was let in.
    latest_fits: bool,
    /// Bytes that wait, by flow.
    per_flow: Vec<u64>,
    /// When the packet that is being sent has left.
    free_at: u64,
    /// When the latest packet was offered.
    last: u64,
}

impl Queue {
    pub fn new(path: Path, flows: usize) -> Self {
        let random = Pcg64Mcg::seed_from_u64(path.seed);
        Self {
            path,
            random,
            waiting: VecDeque::new(),
            backlog: 0,
            super_packets: 0,
            latest_fits: true,
            per_flow: vec![0; flows],
            free_at: 0,
            last: 0,
        }
    }

    /// Takes a packet at its time, and returns what becomes of it. The caller offers packets in the order of their
    /// times. `continues`: the packet belongs to the same super-packet as the one before it.
    pub fn offer(&mut self, now: u64, length: u64, flow: usize, continues: bool) -> QueueVerdict {
        debug_assert!(now >= self.last, "a packet in the past: {now} after {}", self.last);
        self.last = now;
        self.forget_until(now);
        let found = QueueVerdict { left: None, waited: 0, backlog: self.backlog, own_backlog: self.per_flow[flow] };
        if self.is_lost() {
            return found;
        }
        let fits = match self.path.buffer {
            Buffer::Bytes(max) => self.backlog + length <= max,
            Buffer::Packets(max) => (self.waiting.len() as u64) < max,
            Buffer::SuperPackets(_) if continues => self.latest_fits,
            Buffer::SuperPackets(max) => self.super_packets < max,
        };
        let begins = self.free_at.max(now);
        self.latest_fits = fits || begins == now;
        if begins > now {
            if !fits {
                return found;
            }
            match self.waiting.back_mut().filter(|_| continues) {
                Some(before) => before.ends = false,
                None => self.super_packets += 1,
            }
            self.waiting.push_back(Waiting { begins, length, flow, ends: true });
            self.backlog += length;
            self.per_flow[flow] += length;
        }
        self.free_at = self.sent_by(begins, length * 8);
        QueueVerdict { left: Some(self.free_at), waited: begins - now, ..found }
    }

    /// Returns how many bytes of a flow wait.
    pub fn own_backlog(&mut self, now: u64, flow: usize) -> u64 {
        self.forget_until(now);
        self.per_flow[flow]
    }

    fn is_lost(&mut self) -> bool {
        self.path.loss > 0.0 && self.random.random::<f64>() < self.path.loss
    }

    fn forget_until(&mut self, now: u64) {
        while self.waiting.front().is_some_and(|first| first.begins <= now) {
            let Some(first) = self.waiting.pop_front() else { break };
            self.backlog -= first.length;
            self.per_flow[first.flow] -= first.length;
            self.super_packets -= u64::from(first.ends);
        }
    }

    /// Returns when `bits` have been sent whose first bit is sent at `at`.
    fn sent_by(&self, mut at: u64, bits: u64) -> u64 {
        const NS: u128 = 1_000_000_000;
        // Computed in bits times ns, so that nothing is rounded before the end.
        let mut left = u128::from(bits) * NS;
        loop {
            let rate = u128::from(self.path.rate.at(at));
            let ends = at + left.div_ceil(rate) as u64;
            match self.path.rate.next_change(at) {
                Some(change) if change < ends => {
                    left -= u128::from(change - at) * rate;
                    at = change;
                }
                _ => return ends,
            }
        }
    }
}

/// The delay of one flow on a part of its path. No packet overtakes another.
#[derive(Debug, Clone)]
pub struct Propagation {
    rtt: StepFunction,
    /// How many quarters of the RTT this part of the path takes.
    quarters: u64,
    last: u64,
}

impl Propagation {
    pub fn new(rtt: StepFunction, quarters: u64) -> Self {
        Self { rtt, quarters, last: 0 }
    }

    /// Returns when a packet arrives that is sent at `sent`.
    pub fn arrives(&mut self, sent: u64) -> u64 {
        self.last = self.last.max(sent + self.delay(self.rtt.at(sent)));
        self.last
    }

    /// Returns the shortest delay that any packet has.
    pub fn min(&self) -> u64 {
        self.delay(self.rtt.min())
    }

    fn delay(&self, rtt: u64) -> u64 {
        rtt * self.quarters / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn queue(rate: &[(u64, u64)], buffer: Buffer) -> Queue {
        Queue::new(Path { rate: StepFunction(rate.to_vec()), buffer, loss: 0.0, seed: 1 }, 2)
    }

    #[test]
    fn packets_leave_one_after_the_other_at_the_rate() {
        // 1250 bytes at 100 Mbit/s: 100 us
        let mut queue = queue(&[(0, 100_000_000)], Buffer::Bytes(10_000));
        let left: Vec<_> = [0, 0, 50_000, 500_000].map(|now| queue.offer(now, 1250, 0, false).left.unwrap()).into();
        assert_eq!(left, [100_000, 200_000, 300_000, 600_000]);
    }

    #[test]
    fn a_full_queue_drops_and_the_packet_in_transmission_is_not_in_it() {
        let mut queue = queue(&[(0, 100_000_000)], Buffer::Bytes(2500));
        let seen: Vec<_> =
            (0..5).map(|_| queue.offer(0, 1250, 0, false)).map(|p| (p.left.is_some(), p.backlog)).collect();
        assert_eq!(seen, [(true, 0), (true, 0), (true, 1250), (false, 2500), (false, 2500)]);
        // After 100 us the second is in transmission.
        assert!(queue.offer(100_000, 1250, 0, false).left.is_some());
    }

    #[test]
    fn a_queue_of_packets_counts_packets() {
        let mut queue = queue(&[(0, 1_000_000)], Buffer::Packets(2));
        let seen: Vec<_> = [1500, 60, 60, 60].map(|length| queue.offer(0, length, 0, false).left.is_some()).into();
        assert_eq!(seen, [true, true, true, false]);
    }

    #[test]
    fn a_queue_of_super_packets_takes_all_segments_of_one_or_none() {
        let mut queue = queue(&[(0, 100_000_000)], Buffer::SuperPackets(2));
        // Three super-packets of three segments while another packet is being sent: two fit.
        queue.offer(0, 1250, 0, false);
        let seen: Vec<_> = (0..9).map(|n| queue.offer(0, 1250, 0, n % 3 != 0).left.is_some()).collect();
        assert_eq!(seen, [true, true, true, true, true, true, false, false, false]);
        // One has left the queue when its last segment has.
        assert!(queue.offer(250_000, 1250, 0, false).left.is_none());
        assert!(queue.offer(300_000, 1250, 0, false).left.is_some());
    }

    #[test]
    fn a_rate_that_changes_in_the_middle_of_a_packet() {
        // 1250 bytes: 50 us at 100 Mbit/s are half of it, the rest takes 500 us at 10 Mbit/s.
        let mut queue = queue(&[(0, 100_000_000), (50_000, 10_000_000)], Buffer::Bytes(10_000));
        assert_eq!(queue.offer(0, 1250, 0, false).left, Some(550_000));
    }

    #[test]
    fn each_flow_knows_its_own_bytes() {
        let mut queue = queue(&[(0, 100_000_000)], Buffer::Bytes(100_000));
        for flow in [0, 0, 1, 1, 1] {
            queue.offer(0, 1000, flow, false);
        }
        assert_eq!((queue.own_backlog(0, 0), queue.own_backlog(0, 1)), (1000, 3000));
    }

    #[test]
    fn a_shorter_way_lets_no_packet_pass_another() {
        let mut way = Propagation::new(StepFunction(vec![(0, 40_000), (100, 4_000)]), 2);
        assert_eq!((way.arrives(99), way.arrives(100), way.arrives(20_000)), (20_099, 20_099, 22_000));
    }

    #[test]
    fn loss_is_what_was_asked_for_and_repeats() {
        let lost = || {
            let path =
                Path { rate: StepFunction(vec![(0, 1 << 40)]), buffer: Buffer::Bytes(1 << 40), loss: 0.1, seed: 3 };
            let mut queue = Queue::new(path, 1);
            (0..10_000).filter(|now| queue.offer(*now, 1000, 0, false).left.is_none()).collect::<Vec<_>>()
        };
        assert_eq!(lost(), lost());
        assert!((900..1100).contains(&lost().len()), "{}", lost().len());
    }

    proptest! {
        #[test]
        fn bytes_are_conserved_and_order_is_kept(
            packets in prop::collection::vec((0u64..200_000, 60u64..1515, 0usize..2), 1..300),
            limit in 1514u64..20_000, rates in prop::collection::vec(1_000_000u64..1_000_000_000, 1..4),
        ) {
            let rate: Vec<_> = rates.iter().enumerate().map(|(n, rate)| (n as u64 * 3_000_000, *rate)).collect();
            let mut queue = queue(&rate, Buffer::Bytes(limit));
            let (mut now, mut last, mut accepted) = (0, 0, Vec::new());
            for (gap, length, flow) in packets {
                now += gap;
                let verdict = queue.offer(now, length, flow, false);
                prop_assert!(verdict.own_backlog <= verdict.backlog && verdict.backlog <= limit);
                if let Some(left) = verdict.left {
                    // Not before its bits fit, not before another that came first.
                    let fastest = rates.iter().max().unwrap();
                    prop_assert!(left >= now + length * 8 * 1_000_000_000 / fastest);
                    prop_assert!(left >= last);
                    last = left;
                    accepted.push((left, length));
                }
            }
            // What is still waiting has not left, and nothing else.
            let waiting: u64 = queue.waiting.iter().map(|packet| packet.length).sum();
            prop_assert_eq!(waiting, queue.backlog);
            prop_assert_eq!(queue.per_flow.iter().sum::<u64>(), queue.backlog);
            queue.forget_until(u64::MAX);
            prop_assert_eq!((queue.backlog, queue.super_packets), (0, 0));
        }
    }
}
