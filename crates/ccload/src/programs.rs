//! The BPF programs and maps of a loaded control, whichever process loaded it.

use std::collections::BTreeMap;
use std::path::Path;

use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::btf::KernelBtf;
use crate::objects::Object;
use crate::registry::{pin_path, registered_map, OPERATIONS};
use crate::{host, Refusal, Result};

/// The kernel's type for registered operations: the operations behind a head of the kernel's.
const REGISTERED: &str = "bpf_struct_ops_tcp_congestion_ops";

/// The program of one callback, and the kernel's figures of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Program {
    /// Field of struct tcp_congestion_ops (include/net/tcp.h).
    pub callback: String,
    /// Instructions that the verifier processed, counted once for each path to them; its limit is a million.
    pub verified_instructions: u32,
    /// BPF instructions after verification, without those that cannot be reached.
    pub instructions: u32,
    /// Number of calls while the sysctl kernel.bpf_stats_enabled was on.
    pub runs: u64,
    /// Time of these calls, ns.
    pub run_time_ns: u64,
}

/// Returns the programs of a loaded control in the order of the kernel's callbacks.
pub fn programs(name: &str) -> Result<Vec<Program>> {
    let show = |(callback, info): (String, ProgramInfo)| Program {
        callback,
        verified_instructions: info.verified_insns,
        instructions: u32::try_from(info.xlated_prog_insns.len() / 8).unwrap_or(u32::MAX),
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
    };
    Ok(infos(name)?.into_iter().map(show).collect())
}

/// Returns a map that the control's programs use.
pub(crate) fn map_of(control: &str, map: &str) -> Result<MapHandle> {
    let used: Vec<u32> = infos(control)?.into_iter().flat_map(|(_, info)| info.map_ids).collect();
    MapInfoIter::default()
        .find(|info| used.contains(&info.id) && info.name.to_str() == Some(map))
        .and_then(|info| MapHandle::from_map_id(info.id).ok())
        .ok_or_else(|| Refusal::NoMap { name: control.to_owned(), map: map.to_owned() })
}

fn infos(name: &str) -> Result<Vec<(String, ProgramInfo)>> {
    let object = Object::find(name)?;
    host::require_privilege()?;
    let kernel = host::require_struct_ops()?;
    let ids = program_ids(&kernel, object.name, &pin_path(name)).unwrap_or_default();
    let options = ProgInfoQueryOptions::default().include_map_ids(true).include_xlated_prog_insns(true);
    let all = ProgInfoIter::with_query_opts(options).map(|info| (u64::from(info.id), info));
    let mut ours: BTreeMap<u64, ProgramInfo> = all.filter(|(id, _)| ids.iter().any(|(_, its)| its == id)).collect();
    if ours.is_empty() {
        return Err(Refusal::NotLoaded { name: name.to_owned() });
    }
    Ok(ids.into_iter().filter_map(|(callback, id)| Some((callback, ours.remove(&id)?))).collect())
}

/// Returns the callbacks and the ids of their programs, which the kernel shows in place of its function pointers
/// (kernel/bpf/bpf_struct_ops.c).
fn program_ids(kernel: &KernelBtf, name: &str, pin: &Path) -> Option<Vec<(String, u64)>> {
    let value = registered_map(name, pin)?.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    let head = kernel.offset_of(REGISTERED, "data")?;
    let word = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
    let callbacks = kernel.callbacks(OPERATIONS)?;
    Some(callbacks.into_iter().filter_map(|(field, offset)| Some((field, word(head + offset)?))).collect())
}
