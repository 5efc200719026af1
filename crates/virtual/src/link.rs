//! The link: one bottleneck that all senders share, perhaps a second one behind it, and the delays.
//!
//! Data meets random loss, then a FIFO queue with tail drop (pfifo/bfifo), then the bottleneck's rate, then half of the
//! flow's round-trip time. ACKs take the other half. The rate is a wire's, or that of a token bucket with a burst: a
//! shaper, or with no queue a policer. When a packet arrives is computed as soon as it is sent, since
//! nothing that is sent later can change it; that is why kernels can run alone between two hand-overs.
//!
//! Times are ns, rates bit/s, sizes bytes of Ethernet frames.
//!
//! [`Queue`] is the bottleneck, [`Propagation`] a delay. The result depends on the packets, the path and its seed, and on
//! nothing else.
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
    /// Depth of the bottleneck's token bucket, bytes. 0: the bottleneck has none, it is a wire.
    #[serde(default)]
    pub burst: u64,
    /// Fraction of data packets that are lost before the queue.
    pub loss: f64,
    pub seed: u64,
    /// A second bottleneck, which packets reach as soon as they have left the first.
    #[serde(default)]
    pub second: Option<Second>,
}

/// A bottleneck behind another: a wire with a queue.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Second {
    /// bit/s
    pub rate: u64,
    pub buffer: Buffer,
}

impl Second {
    /// Returns it as a path of its own.
    pub fn path(self) -> Path {
        let rate = StepFunction(vec![(0, self.rate)]);
        Path { rate, buffer: self.buffer, burst: 0, loss: 0.0, seed: 0, second: None }
    }
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
}

/// A packet in the queue.
struct Waiting {
    /// When its transmission begins; with a token bucket, when it leaves.
    begins: u64,
    length: u64,
    flow: usize,
    /// Whether it is the last packet of its super-packet so far.
    ends: bool,
}

/// A token is a bit for a ns of a bit/s, so that nothing is rounded.
const TOKENS_PER_BIT: u128 = 1_000_000_000;

/// A token bucket as in tc-tbf(8): it fills at the path's rate, and a packet that leaves takes its length.
struct Bucket {
    depth: u128,
    tokens: u128,
    /// When it had so many.
    at: u64,
}

/// The bottleneck's queue.
pub struct Queue {
    path: Path,
    /// None: the bottleneck is a wire.
    bucket: Option<Bucket>,
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
    /// When the packet that is being sent, or is the last in the queue of a token bucket, has left.
    free_at: u64,
    /// When the latest packet was offered.
    last: u64,
}

impl Queue {
    pub fn new(path: Path, flows: usize) -> Self {
        let random = Pcg64Mcg::seed_from_u64(path.seed);
        let depth = u128::from(path.burst) * 8 * TOKENS_PER_BIT;
        Self {
            bucket: (depth > 0).then_some(Bucket { depth, tokens: depth, at: 0 }),
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
        let found = QueueVerdict { left: None, waited: 0, backlog: self.backlog };
        if self.is_lost() {
            return found;
        }
        let fits = match self.path.buffer {
            Buffer::Bytes(max) => self.backlog + length <= max,
            Buffer::Packets(max) => (self.waiting.len() as u64) < max,
            Buffer::SuperPackets(_) if continues => self.latest_fits,
            Buffer::SuperPackets(max) => self.super_packets < max,
        };
        let Some((begins, left)) = self.transmission(self.free_at.max(now), length) else {
            return found;
        };
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
        self.take_tokens(begins, length);
        self.free_at = left;
        QueueVerdict { left: Some(left), waited: begins - now, ..found }
    }

    /// Adds a flow; its number is the next one.
    pub fn add_flow(&mut self) {
        self.per_flow.push(0);
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

    /// Returns when the first and when the last bit of a packet leaves that may leave from `at` on. None: it is larger
    /// than the token bucket.
    fn transmission(&self, at: u64, length: u64) -> Option<(u64, u64)> {
        let needed = u128::from(length) * 8 * TOKENS_PER_BIT;
        let Some(bucket) = &self.bucket else {
            return Some((at, self.filled_by(at, needed)));
        };
        let missing = needed.saturating_sub(self.tokens(bucket, at));
        let leaves = if missing > 0 { self.filled_by(at, missing) } else { at };
        (needed <= bucket.depth).then_some((leaves, leaves))
    }

    fn take_tokens(&mut self, at: u64, length: u64) {
        let left = self.bucket.as_ref().map(|bucket| self.tokens(bucket, at));
        if let (Some(bucket), Some(left)) = (&mut self.bucket, left) {
            bucket.tokens = left - u128::from(length) * 8 * TOKENS_PER_BIT;
            bucket.at = at;
        }
    }

    /// Returns how many tokens the bucket has at a time that is not before its own.
    fn tokens(&self, bucket: &Bucket, at: u64) -> u128 {
        bucket.depth.min(bucket.tokens + self.gained(bucket.at, at))
    }

    /// Returns how many tokens come between two times.
    fn gained(&self, mut from: u64, to: u64) -> u128 {
        let mut tokens = 0;
        while from < to {
            let until = self.path.rate.next_change(from).map_or(to, |change| change.min(to));
            tokens += u128::from(until - from) * u128::from(self.path.rate.at(from));
            from = until;
        }
        tokens
    }

    /// Returns when so many tokens have come since `at`; a bit has been sent for every [`TOKENS_PER_BIT`].
    fn filled_by(&self, mut at: u64, mut tokens: u128) -> u64 {
        loop {
            let rate = u128::from(self.path.rate.at(at));
            let ends = at + tokens.div_ceil(rate) as u64;
            match self.path.rate.next_change(at) {
                Some(change) if change < ends => {
                    tokens -= u128::from(change - at) * rate;
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
        bucket(rate, buffer, 0)
    }

    fn bucket(rate: &[(u64, u64)], buffer: Buffer, burst: u64) -> Queue {
        Queue::new(Path { rate: StepFunction(rate.to_vec()), buffer, burst, loss: 0.0, seed: 1, second: None }, 2)
    }

    fn left(queue: &mut Queue, length: u64, times: impl IntoIterator<Item = u64>) -> Vec<Option<u64>> {
        times.into_iter().map(|now| queue.offer(now, length, 0, false).left).collect()
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
    fn a_shaper_lets_a_burst_pass_at_once_and_what_follows_at_the_rate() {
        // 1250 bytes at 100 Mbit/s: 100 us. Two packets are the burst; 300 us of idle time would fill three.
        let mut shaper = bucket(&[(0, 100_000_000)], Buffer::Bytes(10_000), 2500);
        let seen = left(&mut shaper, 1250, [0, 0, 0, 0, 500_000, 500_000, 500_000]);
        assert_eq!(seen, [0, 0, 100_000, 200_000, 500_000, 500_000, 600_000].map(Some));
        // Half a packet's tokens are there.
        assert_eq!(left(&mut shaper, 1250, [650_000]), [Some(700_000)]);
    }

    #[test]
    fn a_shaper_queues_up_to_its_buffer() {
        let mut shaper = bucket(&[(0, 100_000_000)], Buffer::Bytes(2500), 1250);
        let seen: Vec<_> = (0..4).map(|_| shaper.offer(0, 1250, 0, false)).map(|p| (p.left, p.waited)).collect();
        assert_eq!(seen, [(Some(0), 0), (Some(100_000), 100_000), (Some(200_000), 200_000), (None, 0)]);
        assert_eq!((shaper.own_backlog(0, 0), shaper.own_backlog(100_000, 0)), (2500, 1250));
    }

    #[test]
    fn a_policer_drops_what_finds_no_token() {
        let mut policer = bucket(&[(0, 100_000_000)], Buffer::Bytes(0), 2500);
        // Two are the burst. A token short at 99,999 ns; what was dropped has taken none.
        let seen = left(&mut policer, 1250, [0, 0, 0, 99_999, 100_000, 100_000, 1_000_000, 1_000_000, 1_000_000]);
        let passed = [true, true, false, false, true, false, true, true, false];
        assert_eq!(seen.iter().map(Option::is_some).collect::<Vec<_>>(), passed);
        assert_eq!(seen.iter().flatten().collect::<Vec<_>>(), [&0, &0, &100_000, &1_000_000, &1_000_000]);
    }

    #[test]
    fn a_bucket_fills_at_the_rate_that_holds() {
        // 1250 bytes: 50 us at 100 Mbit/s are half of it, the rest takes 500 us at 10 Mbit/s.
        let mut shaper = bucket(&[(0, 100_000_000), (50_000, 10_000_000)], Buffer::Bytes(10_000), 1250);
        assert_eq!(left(&mut shaper, 1250, [0, 0]), [Some(0), Some(550_000)]);
        // It was empty at 20 us, and has 375 bytes more by 50 us: what is left takes 700 us.
        let mut policer = bucket(&[(0, 100_000_000), (50_000, 10_000_000)], Buffer::Bytes(0), 1250);
        assert_eq!(left(&mut policer, 1250, [20_000, 749_999, 750_000]), [Some(20_000), None, Some(750_000)]);
    }

    #[test]
    fn a_bucket_rounds_no_token_away() {
        // 1000 bytes at 3 Mbit/s: 2,666,666 2/3 ns. 999 are missing for the second packet: 2,664,000 ns.
        let mut shaper = bucket(&[(0, 3_000_000)], Buffer::Bytes(10_000), 1001);
        let seen = left(&mut shaper, 1000, [0; 5]);
        assert_eq!(seen, [0, 2_664_000, 5_330_667, 7_997_334, 10_664_000].map(Some));
    }

    #[test]
    fn a_packet_larger_than_the_bucket_never_passes() {
        let mut shaper = bucket(&[(0, 100_000_000)], Buffer::Bytes(10_000), 1249);
        assert_eq!(left(&mut shaper, 1250, [0, 1_000_000]), [None, None]);
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
            let (rate, buffer) = (StepFunction(vec![(0, 1 << 40)]), Buffer::Bytes(1 << 40));
            let path = Path { rate, buffer, burst: 0, loss: 0.1, seed: 3, second: None };
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
            burst in prop_oneof![Just(0), 1514u64..20_000],
        ) {
            let rate: Vec<_> = rates.iter().enumerate().map(|(n, rate)| (n as u64 * 3_000_000, *rate)).collect();
            let mut queue = bucket(&rate, Buffer::Bytes(limit), burst);
            let (mut now, mut last, mut accepted) = (0, 0, Vec::new());
            for (gap, length, flow) in packets {
                now += gap;
                let verdict = queue.offer(now, length, flow, false);
                prop_assert!(verdict.backlog <= limit);
                if let Some(left) = verdict.left {
                    // Not before its bits fit, not before another that came first.
                    let fastest = rates.iter().max().unwrap();
                    let takes = if burst > 0 { 0 } else { length * 8 * 1_000_000_000 / fastest };
                    prop_assert!(left >= now + takes);
                    prop_assert!(left >= last);
                    last = left;
                    accepted.push((left, length));
                }
            }
            // Never more in any time than the burst and what the rate gives meanwhile.
            for (first, (from, _)) in accepted.iter().enumerate() {
                let mut sent = 0;
                for (until, length) in &accepted[first..] {
                    sent += length;
                    let filled = queue.gained(*from, *until) / TOKENS_PER_BIT / 8;
                    prop_assert!(burst == 0 || u128::from(sent) <= u128::from(burst) + filled + 1);
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
