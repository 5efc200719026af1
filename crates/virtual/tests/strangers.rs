//! Whatever others leave for the controller is taken or refused, and never a panic: frames that a kernel left, and a
//! scenario. Seeds are good ones (tests/seeds); bytes of them are changed, cut off or repeated.
//! `PROPTEST_CASES=1000000 cargo test --release -p brobust-virtual --test strangers` gives it more.
use std::path::Path;
use std::sync::LazyLock;

use brobust_virtual::{carry_frames, decode_frames, Scenario};
use proptest::prelude::*;
use proptest::sample::{select, Index};
use serde_json::{json, Value};

fn seeds(of: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds").join(of);
    let mut files: Vec<_> = directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Every seed, with the kernels' own flows and with programs.
static SCENARIOS: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let with_programs = |mut scenario: Value| {
        scenario["programs"] = json!({"initrd": "i", "sender": ["/bin/a"], "receiver": ["/bin/b"], "environment": [],
                                      "linger": 1_000_000_000, "call": 1000, "poll": 20000});
        scenario["record"]["packets"] = true.into();
        scenario
    };
    let read = |scenario: Value| serde_json::from_value(scenario).unwrap();
    let all = seeds("scenario").into_iter().map(|seed| serde_json::from_slice::<Value>(&seed).unwrap());
    all.flat_map(|scenario| [read(scenario.clone()), read(with_programs(scenario))]).collect()
});

/// A change: at this place so many bytes become these.
fn change() -> impl Strategy<Value = (Index, usize, Vec<u8>)> {
    (any::<Index>(), 0..9_usize, prop_oneof![prop::collection::vec(any::<u8>(), 0..9), Just(vec![0xff; 4])])
}

fn damaged(of: &str, separator: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::collection::vec(select(seeds(of)), 1..4).prop_map(move |seeds| seeds.join(separator));
    (whole, prop::collection::vec(change(), 0..5)).prop_map(|(mut bytes, changes)| {
        for (place, length, new) in changes {
            let at = place.index(bytes.len().max(1)).min(bytes.len());
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, new);
        }
        bytes
    })
}

#[test]
fn seeds_are_taken() {
    for seed in seeds("scenario") {
        assert_eq!(serde_json::from_slice::<Scenario>(&seed).unwrap().check(), Ok(()));
    }
    // One is a datagram that is longer than IP allows.
    assert_eq!(seeds("frames").iter().filter(|seed| decode_frames(seed).is_err()).count(), 1);
}

proptest! {
    #[test]
    fn whatever_a_kernel_leaves_is_carried_or_refused(
        bytes in damaged("frames", b""), which in any::<Index>(), from in 0..8_usize
    ) {
        let decoded = decode_frames(&bytes);
        let carried = carry_frames(which.get(&SCENARIOS[..]), from, &bytes);
        prop_assert!(decoded.is_ok() || carried.is_err());
    }

    #[test]
    fn whatever_is_given_as_a_scenario_is_read_or_refused_in_one_line(bytes in damaged("scenario", b" ")) {
        if let Ok(Err(why)) = serde_json::from_slice::<Scenario>(&bytes).map(|scenario| scenario.check()) {
            prop_assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
        }
    }
}
