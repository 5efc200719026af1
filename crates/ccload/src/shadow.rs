//! What a shadow control has found (bpf/shadow.h): whether ours decides as the kernel's own does.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use crate::programs::map_of;
use crate::{Refusal, Result};

const MAP: &str = "shadow";
/// enum shadow_call
const CALLS: [&str; 9] =
    ["init", "on_ack", "on_rtt", "set_state", "on_event", "ssthresh", "undo_cwnd", "min_tso_segs", "sndbuf_expand"];
const SIDE: [&str; 5] = ["cwnd", "cwnd_count", "ssthresh", "app_limited", "result"];
const MODEL: usize = 11;
/// Bytes of struct shadow_side.
const SIDE_BYTES: usize = 8 + 4 * (SIDE.len() + MODEL);
/// struct shadow_side.model, by control.
const MODELS: [(&str, [&str; MODEL]); 2] = [
    (
        "bbr_shadow",
        [
            "mode",
            "pacing_gain",
            "cwnd_gain",
            "max_bw",
            "min_rtt_us",
            "cycle",
            "prior_cwnd",
            "full_bw",
            "policer_bw",
            "min_rtt_ticks",
            "probe_rtt_ticks",
        ],
    ),
    (
        "cubic_shadow",
        [
            "per_packet",
            "max",
            "last_cwnd",
            "origin",
            "k",
            "min_rtt_us",
            "epoch_ticks",
            "reno_cwnd",
            "found",
            "last_ticks",
            "",
        ],
    ),
];

/// Calls in which both decided, and the first in which they did not decide alike.
#[derive(Debug, Serialize)]
pub struct Shadow {
    pub calls: u64,
    pub acks: u64,
    pub differences: u64,
    pub first: Option<Difference>,
}

#[derive(Debug, Serialize)]
pub struct Difference {
    /// Of all calls.
    pub number: u64,
    pub call: &'static str,
    /// (kernel's, ours) of what differs.
    pub values: BTreeMap<&'static str, (u64, u64)>,
}

/// What a loaded shadow control has found so far.
pub fn shadow(name: &str) -> Result<Shadow> {
    let unknown = || Refusal::NotLoaded { name: name.to_owned() };
    let (_, model) = MODELS.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
    let found = map_of(name, MAP)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    parse(&found.ok_or_else(unknown)?, model).ok_or_else(unknown)
}

fn parse(value: &[u8], model: &[&'static str; MODEL]) -> Option<Shadow> {
    let u64_at = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
    let differences = u64_at(16)?;
    let first = if differences == 0 {
        None
    } else {
        let kind = u32_at(32)? as usize;
        // pacing_rate, SIDE, the model
        let (kernel, ours) = (40, 40 + SIDE_BYTES);
        let mut values = BTreeMap::new();
        values.insert("pacing_rate", (u64_at(kernel)?, u64_at(ours)?));
        for (number, name) in SIDE.iter().chain(model).enumerate() {
            let at = 8 + 4 * number;
            values.insert(*name, (u32_at(kernel + at)?.into(), u32_at(ours + at)?.into()));
        }
        values.retain(|_, (kernel, ours)| kernel != ours);
        Some(Difference { number: u64_at(24)?, call: CALLS.get(kind).copied().unwrap_or("unknown"), values })
    };
    Some(Shadow { calls: u64_at(0)?, acks: u64_at(8)?, differences, first })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Object;

    #[test]
    fn fields_are_found_where_the_bpf_program_has_them() {
        let object = Object::find("bbr_shadow").unwrap();
        let (shadow, side) = (object.offsets("shadow"), object.offsets("shadow_side"));
        let mut value = vec![0_u8; shadow["ours"] + SIDE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| value[at..at + bytes.len()].copy_from_slice(bytes);
        for (number, field) in (1_u64..).zip(["calls", "acks", "differences", "first_call"]) {
            put(shadow[field], &number.to_ne_bytes());
        }
        put(shadow["first_kind"], &5_u32.to_ne_bytes());
        let fields = SIDE.iter().map(|field| side[*field]).chain((0..MODEL).map(|at| side["model"] + 4 * at));
        for (number, at) in (10_u32..).zip(fields) {
            put(shadow["kernel"] + at, &number.to_ne_bytes());
            put(shadow["ours"] + at, &(number + 100).to_ne_bytes());
        }
        put(shadow["ours"] + side["pacing_rate"], &9_u64.to_ne_bytes());

        let names = MODELS[0].1;
        let read = parse(&value, &names).unwrap();
        let first = read.first.unwrap();
        assert_eq!((read.calls, read.acks, read.differences, first.number, first.call), (1, 2, 3, 4, CALLS[5]));
        let expected = (10_u64..).zip(SIDE.iter().chain(&names)).map(|(number, name)| (*name, (number, number + 100)));
        assert_eq!(first.values, expected.chain([("pacing_rate", (0, 9))]).collect());
    }

    #[test]
    fn the_first_difference_names_what_differs_on_both_sides() {
        let mut value = vec![0_u8; 40 + 2 * SIDE_BYTES];
        value[0..8].copy_from_slice(&7_u64.to_ne_bytes());
        value[8..16].copy_from_slice(&5_u64.to_ne_bytes());
        value[16..24].copy_from_slice(&2_u64.to_ne_bytes());
        value[24..32].copy_from_slice(&3_u64.to_ne_bytes());
        value[32..36].copy_from_slice(&1_u32.to_ne_bytes());
        value[48..52].copy_from_slice(&10_u32.to_ne_bytes()); // the kernel's cwnd
        value[40 + SIDE_BYTES + 8..][..4].copy_from_slice(&12_u32.to_ne_bytes()); // ours
        let shadow = parse(&value, &MODELS[0].1).unwrap();
        let first = shadow.first.unwrap();
        assert_eq!((shadow.calls, shadow.acks, shadow.differences, first.number, first.call), (7, 5, 2, 3, "on_ack"));
        assert_eq!(first.values, BTreeMap::from([("cwnd", (10, 12))]));
        assert!(parse(&value[..20], &MODELS[0].1).is_none());
    }
}
