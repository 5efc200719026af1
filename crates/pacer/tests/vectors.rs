//! Replays vectors.txt, as tests/vectors.c does for pacer.h.

use brobust_pacer::{Config, Detector, Pacer, Rule, Sample, Sent};

fn number(word: &str) -> u64 {
    match word.strip_suffix("ms") {
        Some(ms) => ms.parse::<u64>().unwrap() * 1_000_000,
        None => word.parse().unwrap(),
    }
}

fn how(word: &str) -> Sent {
    match word {
        "on-time" => Sent::OnTime,
        "ahead" => Sent::Ahead,
        "far-ahead" => Sent::FarAhead,
        _ => panic!("{word}"),
    }
}

fn share(permille: Option<u32>) -> String {
    permille.map_or("unknown".to_owned(), |share| share.to_string())
}

#[test]
fn it_does_what_the_vectors_say() {
    let config = Config { rule: Rule::None, packet_bytes: 0, burst_ns: 0, max_lag_ns: 0 };
    let mut pacer = Pacer::new(config);
    let mut detector = Detector::new(1, 0);
    let mut checked = 0;
    for (line, text) in include_str!("../vectors.txt").lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        let same = |got: u64, want: &str| assert_eq!(got, number(want), "line {}: {text}", line + 1);
        match words[..] {
            [] | ["#" | "case", ..] => continue,
            ["pacer", rule, packet, burst, most] => {
                pacer = Pacer::new(Config {
                    rule: Rule::named(rule).unwrap(),
                    packet_bytes: number(packet) as u32,
                    burst_ns: number(burst),
                    max_lag_ns: number(most),
                });
            }
            ["detector", window, tolerance] => detector = Detector::new(number(window), number(tolerance)),
            ["next", now, rate, "=", at] => same(pacer.next(number(now), number(rate)), at),
            ["sent", now, bytes, rate, "=", want] => {
                let got = pacer.sent(number(now), number(bytes) as u32, number(rate));
                assert_eq!(got, how(want), "line {}: {text}", line + 1);
            }
            ["window", now, bytes, rtt] => pacer.window_full(number(now), number(bytes), number(rtt)),
            ["idle"] => pacer.idle(),
            ["timeout"] => pacer.timeout(),
            ["lost", sent, bytes] => pacer.lost(how(sent), number(bytes) as u32),
            ["lag", "=", want] => same(pacer.lag_ns(), want),
            ["bound", "=", want] => same(pacer.bound_bytes(), want),
            ["departure", now, due] => detector.departure(number(now), number(due)),
            ["sample", now, in_flight, bdp, could] => detector.sample(
                number(now),
                Sample { in_flight_bytes: number(in_flight), bdp_bytes: number(bdp), could_send: could == "yes" },
            ),
            ["late", now, "=", want] => assert_eq!(share(detector.verdict(number(now)).late_permille), want, "{text}"),
            ["deficit", now, "=", want] => {
                assert_eq!(share(detector.verdict(number(now)).deficit_permille), want, "{text}");
            }
            _ => panic!("line {}: {text}", line + 1),
        }
        checked += usize::from(words.contains(&"="));
    }
    assert!(checked > 90, "{checked}");
}

/// The sum of what leaves is what the schedule says, whatever the absences, as long as none is longer than the maximum.
#[test]
fn absences_do_not_change_the_mean_rate() {
    for away_ms in [0, 3, 10, 30, 90] {
        let config = Config { rule: Rule::Kept, packet_bytes: 1200, burst_ns: 1_000_000, max_lag_ns: 100_000_000 };
        let (mut pacer, mut now, mut sent) = (Pacer::new(config), 1, 0);
        while now < 10_000_000_000 {
            let at = pacer.next(now, 1_200_000);
            if at > now {
                // 10 ms on the CPU, then away
                let period = 10_000_000 + away_ms * 1_000_000;
                now = if at % period < 10_000_000 { at } else { (at / period + 1) * period };
            } else {
                pacer.sent(now, 1200, 1_200_000);
                sent += 1200;
            }
        }
        assert!((11_800_000..12_120_000).contains(&sent), "{away_ms} ms away: {sent} bytes");
    }
}

#[test]
fn extreme_inputs_do_not_overflow() {
    for rule in ["none", "half-gap", "quantum", "intervals", "loop", "kept"].map(|name| Rule::named(name).unwrap()) {
        let config = Config { rule, packet_bytes: u32::MAX, burst_ns: 1 << 40, max_lag_ns: u64::MAX };
        let mut pacer = Pacer::new(config);
        for rate in [1, 1_000_000_000_000, u64::MAX, 0, 7] {
            for now in [1, 1 << 40, 1 << 61] {
                pacer.next(now, rate);
                let how = pacer.sent(now, u32::MAX, rate);
                pacer.window_full(now, u64::MAX, 1 << 40);
                pacer.next(now + (1 << 50), rate);
                for how in [how, Sent::Ahead, Sent::FarAhead] {
                    pacer.lost(how, u32::MAX);
                }
            }
        }
    }
    assert_eq!(Rule::named("all"), None);
}
