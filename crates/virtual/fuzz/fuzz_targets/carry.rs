//! Whatever a kernel leaves is put on the link, with the flows of kernels and of programs, or refused. The first byte says
//! which scenario, the second which node left it.
#![no_main]
use std::sync::LazyLock;

use brobust_virtual::{carry_frames, Scenario};
use libfuzzer_sys::fuzz_target;
use serde_json::{from_str, json, Value};

const SCENARIOS: [&str; 5] = [
    include_str!("../seeds/scenario/plain.json"),
    include_str!("../seeds/scenario/codel.json"),
    include_str!("../seeds/scenario/second.json"),
    include_str!("../seeds/scenario/policer.json"),
    include_str!("../seeds/scenario/ipv6.json"),
];

static READ: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
    let read = |scenario: Value| serde_json::from_value(scenario).unwrap();
    let with_programs = |mut scenario: Value| {
        scenario["programs"] = json!({"initrd": "i", "sender": ["/bin/a"], "receiver": ["/bin/b"], "environment": [],
                                      "linger": 1_000_000_000, "call": 1000, "poll": 20000});
        scenario["record"]["packets"] = true.into();
        scenario
    };
    let all = SCENARIOS.iter().map(|text| from_str::<Value>(text).unwrap());
    all.flat_map(|scenario| [read(scenario.clone()), read(with_programs(scenario))]).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let [which, from, frames @ ..] = bytes else { return };
    let _ = carry_frames(&READ[usize::from(*which) % READ.len()], (*from).into(), frames);
});
