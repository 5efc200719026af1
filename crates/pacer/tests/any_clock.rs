//! No clock, rate or size makes the pacer overflow: times that stand, jump back, wrap around or are beyond all bounds.
use brobust_pacer::{Config, Detector, Pacer, Rule, Sample};

/// splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Returns a number of any magnitude, and often a least or greatest one.
    fn any(&mut self) -> u64 {
        match self.next() % 6 {
            0 => 0,
            1 => u64::MAX - self.next() % 3,
            2 => (1 << 62) - self.next() % 3,
            _ => self.next() >> (self.next() % 64),
        }
    }
}

#[test]
fn any_clock_any_rate_and_any_size_are_taken() {
    let mut random = Random(1);
    let rules = [Rule::None, Rule::HalfGap, Rule::Quantum, Rule::Intervals, Rule::Loop, Rule::Kept];
    let sequences = if cfg!(miri) { 200 } else { 20_000 };
    for sequence in 0..sequences {
        let (packet_bytes, burst_ns, max_lag_ns) = (random.any() as u32, random.any(), random.any());
        let mut pacer = Pacer::new(Config { rule: rules[sequence % 6], packet_bytes, burst_ns, max_lag_ns });
        let mut detector = Detector::new(random.any(), random.any());
        let mut now = random.any();
        for _ in 0..40 {
            now = match random.next() % 5 {
                0 => now,
                1 => random.any(),
                2 => now.wrapping_sub(random.next() % 1_000_000_000),
                _ => now.wrapping_add(random.next() % 100_000_000),
            };
            match random.next() % 10 {
                0 | 1 => assert!(pacer.next(now, random.any()) >= now),
                2 | 3 => pacer.sent(now, random.any() as u32, random.any(), random.any()),
                4 => pacer.window_full(now, random.any(), random.any()),
                5 => pacer.lost(random.any() as u32),
                6 => pacer.acked(random.any() as u32),
                7 => drop(pacer.window(random.any(), random.any(), random.any())),
                8 => detector.departure(now, random.any()),
                _ => {
                    let (in_flight_bytes, bdp_bytes) = (random.any(), random.any());
                    detector.sample(now, Sample { in_flight_bytes, bdp_bytes, could_send: true });
                    assert!(detector.verdict(now).late_permille.is_none_or(|share| share <= 1000));
                }
            }
            assert!(pacer.lag_ns() <= 1_000_000_000);
        }
    }
}
