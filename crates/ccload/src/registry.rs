//! Loads, finds and removes controls.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::{MapCore, MapHandle, MapType, ObjectBuilder, OpenObject};

use crate::btf::KernelBtf;
use crate::host;
use crate::log::with_log;
use crate::objects::{names, Object};
use crate::refusal::without_number;
use crate::{Refusal, Result};

/// Our directory in the BPF file system.
const PINS: &str = "/sys/fs/bpf/brobust";
/// Name of the socket storage maps in which controls export their state (struct cc_report in cc/cc.h).
const STATE_MAP: &str = "cc_state";
/// The kernel's struct of a control's callbacks (include/net/tcp.h), and the callback that only some kernels have.
pub(crate) const OPERATIONS: &str = "tcp_congestion_ops";
const TX_START: &str = "cwnd_event_tx_start";
/// The constant by which a control in BPF records its calls.
const RECORDS_CALLS: &str = "records_calls";
/// The map into which it records them.
pub(crate) const CALLS_MAP: &str = "cc_calls";
/// Size of that map: it holds some 80,000 calls.
const CALLS_BYTES: u32 = 64 << 20;

/// Returns where a control is pinned.
pub fn pin_path(name: &str) -> PathBuf {
    Path::new(PINS).join(name)
}

/// How a control is to be loaded.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Parameters by name, with the numbers that the C keeps. Others keep their defaults.
    pub params: Vec<(String, u32)>,
    /// Whether it records what it is given and what it decides at every call, for [`crate::recorded_calls`]. This costs
    /// time and memory.
    pub records_calls: bool,
}

/// Refuses a control that could not be loaded now, as far as this can be told without changing anything.
pub fn check(name: &str, settings: &Settings) -> Result<()> {
    prerequisites(name, settings).map(drop)
}

fn prerequisites(name: &str, settings: &Settings) -> Result<(Object, KernelBtf)> {
    let object = Object::find(name)?;
    check_settings(&object, settings)?;
    host::require_privilege()?;
    let kernel = host::require_struct_ops()?;
    if host::is_available(object.name) {
        return Err(Refusal::NameTaken { name: name.to_owned() });
    }
    Ok((object, kernel))
}

/// Loads a control under its name, and pins it at [`pin_path`]. It stays until [`unload`], whichever process calls that.
pub fn load(name: &str, settings: &Settings) -> Result<()> {
    let (object, mut kernel) = prerequisites(name, settings)?;
    host::require_bbr(&object, &mut kernel)?;
    let pin = pin_path(name);
    prepare_pin(name, &pin)?;
    register(&object, &kernel, settings, &pin).inspect_err(|_| remove_our_directory())
}

/// Removes a control. Sockets that use it keep it until they close; new sockets can no longer choose it.
pub fn unload(name: &str) -> Result<()> {
    let object = Object::find(name)?;
    host::require_privilege()?;
    let pin = pin_path(name);
    let Some(map) = registered_map(object.name, &pin) else {
        let name = name.to_owned();
        return Err(if host::is_available(&name) { Refusal::NotOurs { name } } else { Refusal::NotLoaded { name } });
    };
    let deleted = map.delete(&0_u32.to_ne_bytes());
    // The kernel frees the map with its last reference. A pin that stays would be a name without a control.
    let _ = fs::remove_file(&pin);
    remove_our_directory();
    if host::is_available(name) {
        let reason = deleted.err().map_or_else(|| "no error".to_owned(), |error| error.to_string());
        return Err(Refusal::StillThere { name: name.to_owned(), reason });
    }
    Ok(())
}

/// Returns those controls that brobust brings and the kernel has now; modules of the same names are none of its own.
pub fn loaded() -> Vec<String> {
    let available = host::available();
    let is_loaded = |name: &&str| available.iter().any(|known| known == name) && !host::is_module(name);
    names().filter(is_loaded).map(str::to_owned).collect()
}

/// The maps in which our controls export their state (struct cc_report in cc/cc.h), for brobust-sockdiag, found again and
/// again: others of the host, of which there may be a thousand, are opened once only.
#[derive(Debug, Default)]
pub struct StateMaps {
    /// The ids of those others that there were the last time. The kernel gives ids in turn, so they are still theirs.
    others: BTreeSet<u32>,
}

impl StateMaps {
    /// Opens those of ours that there are now. Without privilege there are none.
    pub fn open(&mut self) -> Vec<OwnedFd> {
        let (mut ours, mut others) = (Vec::new(), BTreeSet::new());
        let mut id = 0;
        // SAFETY: libbpf writes the id of the next map.
        while unsafe { sys::bpf_map_get_next_id(id, &mut id) } == 0 {
            if self.others.contains(&id) {
                others.insert(id);
                continue;
            }
            let Ok(map) = MapHandle::from_map_id(id) else { continue }; // it has gone
            if map.map_type() == MapType::SkStorage && map.name() == STATE_MAP {
                ours.extend(map.as_fd().try_clone_to_owned().ok());
            } else {
                others.insert(id);
            }
        }
        self.others = others;
        ours
    }
}

fn prepare_pin(name: &str, pin: &Path) -> Result<()> {
    host::require_bpffs()
        .map_err(|error| Refusal::NoBpffs { name: name.to_owned(), reason: without_number(&error) })?;
    let cannot =
        |error: io::Error| Refusal::Pin { name: name.into(), path: pin.into(), reason: without_number(&error) };
    if let Some(directory) = pin.parent() {
        fs::create_dir_all(directory).map_err(cannot)?;
    }
    // The name is free, so a pin that exists holds a map that is no longer registered.
    match fs::remove_file(pin) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot(error)),
        _ => Ok(()),
    }
}

/// Removes our directory in the BPF file system if it is empty.
fn remove_our_directory() {
    let _ = fs::remove_dir(PINS);
}

fn register(object: &Object, kernel: &KernelBtf, settings: &Settings, pin: &Path) -> Result<()> {
    let (result, log) = with_log(|| try_register(object, kernel, settings, pin));
    result.map_err(|error| Refusal::rejected(object.name, error.to_string(), log))
}

fn try_register(object: &Object, kernel: &KernelBtf, settings: &Settings, pin: &Path) -> libbpf_rs::Result<()> {
    let prepare = |may_write_app_limited| prepare(object, kernel, settings, may_write_app_limited);
    // Linux 6.1 refuses a program that writes tcp_sock.app_limited, which its BTF does not show.
    let mut loaded = prepare(true)?.load().or_else(|_| prepare(false)?.load())?;
    let mut map = loaded.maps_mut().find(|map| map.map_type() == MapType::StructOps).ok_or_else(no_struct_ops_map)?;
    // It is pinned before it is registered: a control that cannot be pinned must not stay registered.
    map.pin(pin)?;
    let mut link = map.attach_struct_ops().inspect_err(|_| {
        let _ = fs::remove_file(pin);
    })?;
    // Dropping the link would unregister the control.
    link.disconnect();
    Ok(())
}

/// Refuses settings that the object does not have. A parameter is a constant of the object with four bytes. Only
/// kernels for virtual time have a pacing stride.
fn check_settings(object: &Object, settings: &Settings) -> Result<()> {
    if settings.records_calls && object.constant(RECORDS_CALLS).is_none() {
        return Err(Refusal::NoRecording { name: object.name.to_owned() });
    }
    for (param, value) in &settings.params {
        let name = object.name.to_owned();
        if object.constant(param).is_none_or(|constant| constant.size != size_of::<u32>()) {
            return Err(Refusal::NoParam { name, param: param.clone() });
        }
        if param == "master_stride" && *value > 1 {
            return Err(Refusal::NoStride { name });
        }
    }
    Ok(())
}

/// Opens the object and sets the constants that depend on the kernel and on the settings.
fn prepare(
    object: &Object,
    kernel: &KernelBtf,
    settings: &Settings,
    may_write_app_limited: bool,
) -> libbpf_rs::Result<OpenObject> {
    let mut open = ObjectBuilder::default().name(object.name)?.open_memory(object.bytes)?;
    // Since Linux 6.10 cong_control has the parameters `ack` and `flag` as well; see cong_control.h.
    let has_ack = kernel.callback_parameters(OPERATIONS, "cong_control") == Some(4);
    set_constant(&mut open, object, "cong_control_has_ack", &[u8::from(has_ack)]);
    // Since Linux 7.1 one event has a callback of its own; see cc/hosts/bpf/kernel.h.
    let tx_start_is_separate = kernel.struct_has_field(OPERATIONS, TX_START);
    set_constant(&mut open, object, "tx_start_is_separate", &[u8::from(tx_start_is_separate)]);
    set_constant(&mut open, object, "may_write_app_limited", &[u8::from(may_write_app_limited)]);
    set_constant(&mut open, object, "tick_hz", &host::tick_hz()?.to_ne_bytes());
    if !tx_start_is_separate {
        leave_out(&mut open, object, TX_START);
    }
    for (name, value) in &settings.params {
        set_constant(&mut open, object, name, &value.to_ne_bytes());
    }
    set_constant(&mut open, object, RECORDS_CALLS, &[u8::from(settings.records_calls)]);
    if let Some(mut calls) = open.maps_mut().find(|map| map.name() == CALLS_MAP) {
        if settings.records_calls {
            calls.set_max_entries(CALLS_BYTES)?;
        } else {
            calls.set_autocreate(false)?;
        }
    }
    Ok(open)
}

/// Takes a callback that the kernel does not have out of the operations: libbpf then does not load its program either.
fn leave_out(open: &mut OpenObject, object: &Object, callback: &str) {
    let Some(offset) = object.offset_of(OPERATIONS, callback) else { return };
    let mut operations = open.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
    if let Some(data) = operations.next().as_mut().and_then(|map| map.initial_value_mut()) {
        if let Some(pointer) = data.get_mut(offset..offset + size_of::<usize>()) {
            pointer.fill(0);
        }
    }
}

fn no_struct_ops_map() -> libbpf_rs::Error {
    libbpf_rs::Error::from(io::Error::new(io::ErrorKind::InvalidData, "the object has no struct_ops map"))
}

/// Sets a constant of the object, if the object has it, before the verifier sees it.
fn set_constant(open: &mut OpenObject, object: &Object, name: &str, value: &[u8]) {
    let Some(constant) = object.constant(name) else { return };
    let mut rodata = open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".rodata"));
    if let Some(image) = rodata.next().as_mut().and_then(|map| map.initial_value_mut()) {
        if let Some(place) = image.get_mut(constant.offset..constant.offset + constant.size) {
            place.copy_from_slice(value);
        }
    }
}

/// Finds the registered map by its pin, or by its name if the pin is gone or was never made. A pin of something else is
/// not followed: where others may write to the BPF file system, they may put a link there.
pub(crate) fn registered_map(name: &str, pin: &Path) -> Option<MapHandle> {
    let is_it = |map: &MapHandle| map.map_type() == MapType::StructOps && map.name() == OsStr::new(name);
    if let Some(map) = MapHandle::from_pinned_path(pin).ok().filter(is_it) {
        return Some(map);
    }
    MapInfoIter::default()
        .filter(|map| map.ty == MapType::StructOps && map.name.to_str() == Some(name))
        .find_map(|map| MapHandle::from_map_id(map.id).ok())
}
