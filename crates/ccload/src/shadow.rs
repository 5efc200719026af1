//! Reads what a shadow control has found (cc/hosts/bpf/shadow.h): whether ours decides as the kernel's own does.
//!
//! The object's BTF tells where each field is and what it is called, so no layout is written down here.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use crate::objects::{Field, Object};
use crate::programs::map_of;
use crate::{Refusal, Result};

/// The map, and the struct in it.
const SHADOW: &str = "shadow";
/// The field of struct shadow that has the kernel's decisions, and the field that has ours.
const SIDES: [&str; 2] = ["kernel", "ours"];
/// The enum of calls, and how its names begin.
const CALLS: (&str, &str) = ("shadow_call", "SHADOW_");

/// How many calls were decided on both sides, and the first call in which the two sides differed.
#[derive(Debug, Serialize)]
pub struct Shadow {
    pub calls: u64,
    pub acks: u64,
    pub differences: u64,
    pub first: Option<Difference>,
}

#[derive(Debug, Serialize)]
pub struct Difference {
    /// Number of the call, counted from 0 over all sockets.
    pub number: u64,
    pub call: String,
    /// Each value that differs: (the kernel's, ours).
    pub values: BTreeMap<String, (u64, u64)>,
}

/// Returns what a loaded shadow control has found so far.
pub fn shadow(name: &str) -> Result<Shadow> {
    let unknown = || Refusal::NotLoaded { name: name.to_owned() };
    let object = Object::find(name)?;
    if object.fields(SHADOW).is_empty() {
        return Err(unknown());
    }
    let found = map_of(name, SHADOW)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    read(&object, &found.ok_or_else(unknown)?).ok_or_else(unknown)
}

fn read(object: &Object, value: &[u8]) -> Option<Shadow> {
    let fields = object.fields(SHADOW);
    let number = |name: &str| number_at(value, fields.iter().find(|field| field.name == name)?);
    let differences = number("differences")?;
    let first = if differences == 0 {
        None
    } else {
        let calls = object.enumerators(CALLS.0);
        let kind = number("first_kind")?;
        let call = calls.iter().find(|(_, known)| *known == kind).and_then(|(name, _)| name.strip_prefix(CALLS.1));
        Some(Difference {
            number: number("first_call")?,
            call: call.unwrap_or("unknown").to_lowercase(),
            values: differing(value, &fields)?,
        })
    };
    Some(Shadow { calls: number("calls")?, acks: number("acks")?, differences, first })
}

/// Returns what differs between the two sides, by the name of the innermost field: `kernel.model.mode` is `mode`.
fn differing(value: &[u8], fields: &[Field]) -> Option<BTreeMap<String, (u64, u64)>> {
    let mut values = BTreeMap::new();
    for field in fields {
        let Some(path) = field.name.strip_prefix(SIDES[0]).and_then(|rest| rest.strip_prefix('.')) else { continue };
        let ours = fields.iter().find(|other| other.name == format!("{}.{path}", SIDES[1]))?;
        let both = (number_at(value, field)?, number_at(value, ours)?);
        if both.0 != both.1 {
            values.insert(path.rsplit('.').next()?.to_owned(), both);
        }
    }
    Some(values)
}

fn number_at(value: &[u8], field: &Field) -> Option<u64> {
    let bytes = value.get(field.offset..field.offset + field.size)?;
    match bytes.len() {
        8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHADOWS: [&str; 2] = ["bbr_shadow", "cubic_shadow"];

    /// A struct shadow in which each field holds its place in the list, counted from 1, but for the call's kind.
    fn numbered(object: &Object) -> Vec<u8> {
        let fields = object.fields(SHADOW);
        let mut value = vec![0; fields.iter().map(|field| field.offset + field.size).max().unwrap()];
        for (number, field) in (1_u64..).zip(&fields) {
            let number = if field.name == "first_kind" { 5 } else { number };
            value[field.offset..field.offset + field.size].copy_from_slice(&number.to_ne_bytes()[..field.size]);
        }
        value
    }

    #[test]
    fn every_field_of_both_sides_is_read_by_its_name() {
        for name in SHADOWS {
            let object = Object::find(name).unwrap();
            let fields = object.fields(SHADOW);
            let read = read(&object, &numbered(&object)).unwrap();
            let place = |name: &str| 1 + fields.iter().position(|field| field.name == name).expect(name) as u64;
            let first = read.first.unwrap();
            assert_eq!((read.calls, read.acks), (place("calls"), place("acks")));
            assert_eq!((read.differences, first.number), (place("differences"), place("first_call")));
            assert_eq!(first.call, "ssthresh");
            for (path, name) in
                [("pacing_rate", "pacing_rate"), ("result", "result"), ("model.min_rtt_us", "min_rtt_us")]
            {
                let both = (place(&format!("kernel.{path}")), place(&format!("ours.{path}")));
                assert_eq!(first.values[name], both, "{name}");
            }
            let sides = fields.iter().filter(|field| field.name.starts_with("kernel.")).count();
            assert_eq!(first.values.len(), sides, "two fields of one name: {fields:?}");
            assert!(sides > 12, "the model is missing: {fields:?}");
        }
    }

    #[test]
    fn what_is_the_same_on_both_sides_is_left_out() {
        let object = Object::find("bbr_shadow").unwrap();
        let fields = object.fields(SHADOW);
        let at = |name: &str| fields.iter().find(|field| field.name == name).expect(name).offset;
        let mut value = vec![0_u8; numbered(&object).len()];
        assert!(read(&object, &value).unwrap().first.is_none());
        value[at("differences")] = 2;
        value[at("kernel.cwnd")] = 10;
        value[at("ours.cwnd")] = 12;
        let first = read(&object, &value).unwrap().first.unwrap();
        assert_eq!(first.values, BTreeMap::from([("cwnd".to_owned(), (10, 12))]));
        assert!(read(&object, &value[..20]).is_none());
    }

    #[test]
    fn a_control_that_is_no_shadow_is_refused() {
        assert!(matches!(shadow("bbr_robust"), Err(Refusal::NotLoaded { .. })));
    }
}
