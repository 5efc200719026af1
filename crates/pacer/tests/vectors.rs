//! Replays vectors.txt, as tests/vectors.c does for pacer.h, and drawn flows, as tests/programs/repair_vectors.c does for
//! pacer.h and cc/repair.h.

use std::process::Command;

use brobust_pacer::{Config, Detector, Pacer, Rule, Sample};

fn number(word: &str) -> u64 {
    match word.strip_suffix("ms") {
        Some(ms) => ms.parse::<u64>().unwrap() * 1_000_000,
        None => word.parse().unwrap(),
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
            ["sent", now, bytes, in_flight, rate] => {
                pacer.sent(number(now), number(bytes) as u32, number(in_flight), number(rate));
            }
            ["window", now, bytes, rtt] => pacer.window_full(number(now), number(bytes), number(rtt)),
            ["idle"] => pacer.idle(),
            ["timeout"] => pacer.timeout(),
            ["lost", bytes] => pacer.lost(number(bytes) as u32),
            ["acked", bytes] => pacer.acked(number(bytes) as u32),
            ["cwnd", bw, bdp, own, "=", want] => same(pacer.window(number(bw), number(bdp), number(own)), want),
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
    assert_eq!(Rule::named("all"), None);
}

/// A flow of packets of one byte, as repair-vectors.txt draws them. It begins just after a stall of 10 ms.
struct Flow {
    pacer: Pacer,
    now: u64,
    in_flight: u32,
}

impl Flow {
    fn new(in_flight: u32) -> Flow {
        const MS: u64 = 1_000_000;
        let config = Config { rule: Rule::Kept, packet_bytes: 1, burst_ns: MS, max_lag_ns: 100 * MS };
        let (mut pacer, now) = (Pacer::new(config), 1000 * MS);
        pacer.sent(now - 13 * MS, 3, u64::from(in_flight) - 3, 1000);
        pacer.next(now - 13 * MS, 1000);
        pacer.next(now, 1000);
        pacer.idle();
        Flow { pacer, now, in_flight }
    }
}

/// Replays flows, and returns how many decisions were compared.
fn replay(text: &str) -> usize {
    let mut flow = Flow::new(3);
    let mut compared = 0;
    for (line, text) in text.lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.is_empty() || words[0] == "#" {
            continue;
        }
        let amounts: Vec<u64> = words[1..].iter().filter(|word| **word != "=").map(|word| number(word)).collect();
        match (words[0], &amounts[..]) {
            ("flow", [in_flight]) => flow = Flow::new(*in_flight as u32),
            ("send", [packets]) => {
                flow.pacer.sent(flow.now, *packets as u32, flow.in_flight.into(), 0);
                flow.in_flight += *packets as u32;
            }
            ("timeout", [lost]) => {
                flow.pacer.lost(*lost as u32);
                flow.pacer.timeout();
                flow.in_flight -= *lost as u32;
            }
            ("pass", [ms]) => {
                flow.now += ms * 1_000_000;
                flow.pacer.next(flow.now, 0);
            }
            ("ack" | "round", [lost, delivered, _, cap]) => {
                flow.pacer.lost(*lost as u32);
                flow.pacer.acked(*delivered as u32);
                flow.in_flight -= (lost + delivered) as u32;
                assert_eq!(flow.pacer.bound_bytes(), *cap, "line {}: {text}", line + 1);
                compared += 1;
            }
            ("window", [bdp, ahead, window]) => {
                // Of a stall of 10 ms the window holds 12.5.
                assert_eq!(flow.pacer.window(80 * ahead, *bdp, 0), *window, "line {}: {text}", line + 1);
            }
            _ => panic!("line {}: {text}", line + 1),
        }
    }
    compared
}

#[test]
fn it_decides_what_the_header_decides_in_the_flows_that_are_kept() {
    assert_eq!(replay(include_str!("../repair-vectors.txt")), 230);
}

#[test]
#[cfg_attr(miri, ignore)]
fn it_decides_what_the_header_decides_in_fresh_flows() {
    let (root, program) = (env!("CARGO_MANIFEST_DIR"), concat!(env!("CARGO_TARGET_TMPDIR"), "/repair_vectors"));
    let source = format!("{root}/../../tests/programs/repair_vectors.c");
    if !std::path::Path::new(&source).exists() {
        return; // this is the crate as a package: what draws flows is not in it
    }
    let traps = ["-std=c11", "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error", "-O1", "-o", program];
    let mut compile = Command::new("cc");
    assert!(compile.args(traps).args([format!("-I{root}"), source]).status().unwrap().success());
    for seed in 100..110 {
        let drawn = Command::new(program).args(["draw", &seed.to_string(), "40"]).output().unwrap();
        assert!(drawn.status.success(), "{drawn:?}");
        assert_eq!(replay(&String::from_utf8(drawn.stdout).unwrap()), 4030, "seed {seed}");
    }
}

/// Returns how much leaves in 10 s at 1.2 MB/s, where a call that is due at a time comes when this says.
fn sent_in_10_s(comes: impl Fn(u64) -> u64) -> u64 {
    let config = Config { rule: Rule::Kept, packet_bytes: 1200, burst_ns: 1_000_000, max_lag_ns: 100_000_000 };
    let (mut pacer, mut now, mut sent) = (Pacer::new(config), 1, 0);
    while now < 10_000_000_000 {
        let due = pacer.next(now, 1_200_000);
        if due > now {
            now = comes(due);
        } else {
            pacer.sent(now, 1200, 0, 1_200_000);
            sent += 1200;
        }
    }
    sent
}

/// Each absence is made up for one and a half times, within a window: the mean rate is the schedule's or more.
#[test]
fn absences_do_not_lower_the_mean_rate() {
    for away_ms in [0, 3, 10, 30, 60] {
        // 10 ms on the CPU, then away
        let period = 10_000_000 + away_ms * 1_000_000;
        let sent = sent_in_10_s(|due| if due % period < 10_000_000 { due } else { (due / period + 1) * period });
        let most = 12_120_000 + 6_000_000 * away_ms / (10 + away_ms);
        assert!((11_800_000..most).contains(&sent), "{away_ms} ms away: {sent} bytes");
    }
}

/// What is late by less than the burst, as timers of programs always are, is made up for once: the rate is kept.
#[test]
fn late_timers_change_no_rate() {
    for late_us in [0, 100, 500, 900] {
        let sent = sent_in_10_s(|due| due + late_us * 1000);
        assert!((11_980_000..12_020_000).contains(&sent), "{late_us} us late: {sent} bytes");
    }
}
