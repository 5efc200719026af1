//! The controller with peers that follow a script: what it does with frames, and with kernels that misbehave.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brobust_virtual::{run, Column, Error, Outcome, Scenario, Table};
use serde_json::json;

const MS: u64 = 1_000_000;

fn scenario(script: &str, schedule: serde_json::Value) -> Scenario {
    let scenario = json!({
        "kernel": env!("CARGO_BIN_EXE_scripted_kernel"),
        "seed": 1,
        "duration": 100 * MS,
        "interval": 50 * MS,
        "tcp_memory": 1 << 20,
        "path": {"rate": [[0, 100_000_000]], "buffer": {"bytes": 100_000}, "loss": 0.0, "seed": 1},
        "aqm": null,
        "senders": [{"schedule": schedule}],
        "flows": [{"cc": script, "sender": 0, "start": 0, "stop": null, "rtt": [[0, 10 * MS]],
                   "pattern": {"kind": "bulk"}}],
        "tx_completion": 0,
        "coalesce": 0,
        "tso_max_size": 65536,
        "qdisc": "",
        "record": {"samples": 0, "packets": true},
    });
    serde_json::from_value(scenario).unwrap()
}

fn script(name: &str) -> Result<Outcome, Error> {
    run(&scenario(name, json!({"kind": "always"})), &AtomicBool::new(false))
}

fn refusal(name: &str) -> String {
    script(name).unwrap_err().to_string()
}

fn times(table: &Table, name: &str) -> Vec<u64> {
    match &table.iter().find(|(column, _)| *column == name).unwrap().1 {
        Column::F64(values) => values.iter().map(|seconds| (seconds * 1e9).round() as u64).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn a_frame_takes_its_transmission_and_half_of_the_round_trip() {
    let outcome = script("pings").unwrap();
    let (sent, arrived) = (times(&outcome.packets, "time_s"), times(&outcome.packets, "arrived_s"));
    // 1514 bytes at 100 Mbit/s take 121120 ns. The answers come between the pings.
    let data: Vec<_> = sent.iter().zip(&arrived).filter(|(sent, _)| *sent % MS == 0).collect();
    assert_eq!(data.len(), 10);
    assert!(data.iter().all(|(sent, arrived)| **arrived == **sent + 121_120 + 5 * MS), "{data:?}");
    let answers: Vec<_> = sent.iter().zip(&arrived).filter(|(sent, _)| *sent % MS != 0).collect();
    assert_eq!(answers.len(), 10);
    assert_eq!(*answers[0].0, 5_121_120);
    assert!(answers.iter().all(|(sent, arrived)| **arrived == **sent + 5 * MS), "{answers:?}");
}

#[test]
fn behind_a_second_bottleneck_it_takes_the_transmission_there_too() {
    let with_second = |rate: u64, buffer: u64| {
        let mut scenario = scenario("pings", json!({"kind": "always"}));
        scenario.path.second = serde_json::from_value(json!({"rate": rate, "buffer": {"bytes": buffer}})).unwrap();
        run(&scenario, &AtomicBool::new(false)).unwrap()
    };
    // 1514 bytes at 50 Mbit/s take 242240 ns.
    let outcome = with_second(50_000_000, 0);
    let (sent, arrived) = (times(&outcome.packets, "time_s"), times(&outcome.packets, "arrived_s"));
    let data: Vec<_> = sent.iter().zip(&arrived).filter(|(sent, _)| *sent % MS == 0).collect();
    assert_eq!(data.len(), 10);
    assert!(data.iter().all(|(sent, arrived)| **arrived == **sent + 121_120 + 242_240 + 5 * MS), "{data:?}");
    assert_eq!(outcome.flows[0].drops, 0);
    // At 6 Mbit/s one takes 2 ms, and they come every millisecond: every second one finds the queue empty.
    let outcome = with_second(6_056_000, 0);
    assert_eq!(outcome.flows[0].drops, 5);
    let outcome = with_second(6_056_000, 1514 * 5);
    assert_eq!((outcome.flows[0].drops, outcome.flows[0].queue_mean_ms), (0, Some(4.5)));
}

#[test]
fn a_sender_whose_cpu_is_away_sends_when_the_cpu_is_back() {
    let slices =
        json!({"kind": "slices", "timeslice": MS, "period": 10 * MS, "phase": 500_000, "start_jitter": 0.0, "seed": 1});
    let outcome = run(&scenario("pings", slices), &AtomicBool::new(false)).unwrap();
    let sent = times(&outcome.packets, "time_s");
    let data: Vec<_> = sent.into_iter().filter(|sent| *sent < 9 * MS).collect();
    // What should have been sent at 0 is sent at 0.5 ms, where the slice begins; the ping of 1 ms is still within it.
    assert_eq!(data[..2], [500_000, MS]);
    assert_eq!(
        outcome.time_slices[0][..2].iter().map(|w| (w.begin, w.end)).collect::<Vec<_>>(),
        [(500_000, 1_500_000), (10_500_000, 11_500_000)]
    );
}

#[test]
fn the_same_run_has_the_same_hash_and_another_has_not() {
    let hash = |name| script(name).unwrap().hash;
    assert_eq!(hash("pings"), hash("pings"));
    assert_ne!(hash("pings"), hash("drains"));
}

#[test]
fn a_full_buffer_is_emptied_in_between() {
    assert_eq!(script("drains").unwrap().work.frames, 4);
}

#[test]
fn the_end_of_a_dying_kernels_console_is_quoted() {
    let words = refusal("die");
    assert!(words.starts_with("the sender 1 kernel died: ") && words.contains("these are my last words"), "{words}");
}

#[test]
fn a_kernel_that_warns_has_measured_nothing() {
    assert_eq!(refusal("warn"), "the sender 1 kernel reported: WARNING: CPU: 0 PID: 1 at f.c:1");
}

#[test]
fn what_the_protocol_does_not_allow_is_refused_and_named() {
    for (name, what) in [
        ("garbage", "a frame of impossible size"),
        ("too_much", "4294967295 bytes of frames"),
        ("past", "ns, after"),
        ("before_the_run", "6000 ns, after 1000000000 ns"),
        ("reason", "it stopped for reason 99"),
        ("bad_flow", "port 60000, which is no flow's"),
        ("bad_sample", "flow 500"),
    ] {
        let words = refusal(name);
        assert!(words.contains("the sender 1 kernel broke the protocol") && words.contains(what), "{name}: {words}");
    }
}

#[test]
fn a_kernel_may_count_as_it_likes() {
    let mut scenario = scenario("pings", json!({"kind": "always"}));
    scenario.interval = 5 * MS;
    scenario.parameters = vec!["miscounts.by=1".into()];
    assert_eq!(run(&scenario, &AtomicBool::new(false)).unwrap().flows[0].received, u64::MAX - 9);
}

#[test]
fn a_kernel_can_refuse_what_it_is_to_be() {
    assert_eq!(refusal("refuse"), "the sender 1 kernel refused its device: x");
}

#[test]
fn a_run_can_be_stopped_while_a_kernel_hangs() {
    let stop = AtomicBool::new(false);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        let error = run(&scenario("hang", json!({"kind": "always"})), &stop).unwrap_err();
        assert!(matches!(error, Error::Interrupted), "{error}");
    });
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn an_executable_that_is_no_kernel_is_refused() {
    let mut scenario = scenario("pings", json!({"kind": "always"}));
    scenario.kernel = "/bin/true".into();
    let words = run(&scenario, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(words.contains("died: it printed nothing (exit status: 0)"), "{words}");
    scenario.kernel = "/nowhere/linux".into();
    let words = run(&scenario, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(words.contains("starting /nowhere/linux"), "{words}");
}

#[test]
fn impossible_scenarios_are_refused_in_one_line() {
    let mut bad = scenario("pings", json!({"kind": "always"}));
    bad.flows[0].sender = 3;
    assert_eq!(run(&bad, &AtomicBool::new(false)).unwrap_err().to_string(), "flows.sender: there is no sender 4");
}

#[test]
fn nothing_is_left_of_the_kernels() {
    script("pings").unwrap();
    let mine = std::process::id().to_string();
    let children = std::fs::read_to_string(format!("/proc/{mine}/task/{mine}/children")).unwrap_or_default();
    assert!(children.trim().is_empty(), "{children}");
}
