//! Checks what a host needs before the kernel is asked, so that each refusal has one plain reason.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use libbpf_rs::libbpf_sys as sys;
use nix::errno::Errno;
use nix::mount::{mount, MsFlags};
use nix::sys::statfs::{statfs, FsType};
use nix::time::{clock_getres, ClockId};
use rustix::thread::{capabilities, CapabilitySet};

use crate::btf::KernelBtf;
use crate::log::with_log;
use crate::objects::Object;
use crate::refusal::without_number;
use crate::{Refusal, Result};

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const BPFFS: &str = "/sys/fs/bpf";
/// include/uapi/linux/magic.h
const BPF_FS_MAGIC: FsType = FsType(0xcafe_4a11);

/// Where modprobe is: after `su` the PATH may be that of an ordinary user, without it.
const TOOLS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

/// Returns the congestion controls that the kernel offers now.
pub fn available() -> Vec<String> {
    let list = fs::read_to_string(AVAILABLE).unwrap_or_default();
    list.split_whitespace().map(str::to_owned).collect()
}

pub fn is_available(name: &str) -> bool {
    available().iter().any(|known| known == name)
}

/// Whether a control has come as a kernel module, which has its name (`brobust cc module` builds ours).
pub fn is_module(name: &str) -> bool {
    Path::new("/sys/module").join(name).exists()
}

/// Refuses a process that lacks a capability, or may not call bpf(2) in spite of them. CAP_BPF alone is not enough:
/// finding kernel functions in module BTF takes CAP_SYS_ADMIN (kernel/bpf/syscall.c).
pub fn require_privilege() -> Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::BPF;
    match capabilities(None) {
        Ok(ours) if ours.effective.contains(needed) => require_bpf(),
        _ => Err(Refusal::Privilege),
    }
}

fn require_bpf() -> Result<()> {
    // Any call will do that takes CAP_SYS_ADMIN. It fails with ENOENT where no map is loaded.
    // SAFETY: libbpf writes the id of the first map.
    let answer = unsafe { sys::bpf_map_get_next_id(0, &mut 0) };
    let refused = [Errno::EPERM, Errno::EACCES, Errno::ENOSYS];
    match refused.into_iter().find(|errno| answer == -(*errno as i32)) {
        None => Ok(()),
        Some(errno) => {
            let [uid_map, status] = ["uid_map", "status"].map(|file| fs::read_to_string(format!("/proc/self/{file}")));
            let by = who_refuses_bpf(&uid_map.unwrap_or_default(), &status.unwrap_or_default());
            Err(Refusal::NoBpf { reason: without_number(&errno.into()), by })
        }
    }
}

/// Says who refuses bpf(2) to a process that has the capabilities, and what helps, from two of its files in /proc.
fn who_refuses_bpf(uid_map: &str, status: &str) -> &'static str {
    let is_root_of_host = uid_map.split_whitespace().eq(["0", "0", "4294967295"]);
    let is_filtered = status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]));
    match (is_root_of_host, is_filtered) {
        (false, _) => {
            "the kernel: root of a user namespace, as in a rootless container, may not load BPF: run this as root of the \
             host"
        }
        (true, true) => {
            "a seccomp filter, as containers and services have: run this outside of it, or allow bpf in it (docker run \
             --security-opt seccomp=FILE, or SystemCallFilter=bpf in a unit of systemd)"
        }
        (true, false) => {
            "a security module (SELinux, AppArmor, lockdown): allow it there; the audit log and `dmesg` have its rule"
        }
    }
}

/// Returns the kernel's BTF, and refuses a kernel that takes no congestion controls from BPF.
pub fn require_struct_ops() -> Result<KernelBtf> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Refusal::NoBtf);
    }
    // What libbpf would say to the terminal, the refusal says.
    let (kernel, _) = with_log(KernelBtf::open);
    let kernel = kernel.ok_or(Refusal::NoBtf)?;
    // The value type of the struct_ops map exists exactly where the kernel can register controls from BPF.
    if !kernel.has_struct("bpf_struct_ops_tcp_congestion_ops") {
        return Err(Refusal::NoStructOps);
    }
    Ok(kernel)
}

/// If the object builds on the kernel's BBR, loads BBR and refuses one with another layout than we know.
pub fn require_bbr(object: &Object, kernel: &mut KernelBtf) -> Result<()> {
    let fields = object.fields_used("bbr");
    if fields.is_empty() {
        return Ok(());
    }
    let built_in = kernel.has_function("bbr_main");
    if !built_in {
        load_tcp_bbr()?;
        if !kernel.add_module("tcp_bbr") || !kernel.has_function("bbr_main") {
            return Err(Refusal::NoBbr { reason: "the module tcp_bbr has no BTF".into() });
        }
    }
    match fields.into_iter().find(|field| !kernel.struct_has_field("bbr", field)) {
        None => Ok(()),
        Some(field) => Err(Refusal::OtherLayout { name: object.name.into(), structure: "bbr".into(), field }),
    }
}

/// Returns the version of one of the kernel's own BBR controls, `bbr` or `bbr2`, from the fields of its state. None if
/// the control is another one, or the kernel has no BTF of it.
pub fn bbr_version(control: &str) -> Option<u32> {
    if !matches!(control, "bbr" | "bbr2") {
        return None;
    }
    let (kernel, _) = with_log(KernelBtf::open);
    let mut kernel = kernel?;
    if Path::new(&format!("/sys/module/tcp_{control}")).exists() {
        with_log(|| kernel.add_module(&format!("tcp_{control}")));
    }
    let has = |field: &str| kernel.struct_has_field("bbr", field);
    match (has("lt_use_bw"), has("full_bw_now"), has("bw_lo")) {
        (true, _, _) => Some(1), // the policer detector, which later versions dropped
        (_, true, _) => Some(3),
        (_, _, true) => Some(2),
        _ => None,
    }
}

fn load_tcp_bbr() -> Result<()> {
    if Path::new("/sys/module/tcp_bbr").exists() {
        return Ok(());
    }
    let no_bbr = |reason: String| Refusal::NoBbr { reason };
    let output = Command::new("modprobe")
        .arg("tcp_bbr")
        .env("PATH", TOOLS)
        .output()
        .map_err(|error| no_bbr(format!("it is not built in, and modprobe cannot be started: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(no_bbr(message.lines().last().unwrap_or("modprobe tcp_bbr failed").trim().to_owned()))
}

/// Returns the jiffies per second. A coarse clock advances once per jiffy, and reports this as its resolution.
pub fn tick_hz() -> io::Result<u32> {
    let jiffy = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)?;
    let nanoseconds = u32::try_from(jiffy.tv_nsec()).unwrap_or(u32::MAX).max(1);
    Ok((NANOSECONDS_PER_SECOND + nanoseconds / 2) / nanoseconds)
}

/// Mounts the BPF file system where systemd would, if it is not mounted.
pub fn require_bpffs() -> io::Result<()> {
    if statfs(BPFFS).map_err(io::Error::from)?.filesystem_type() == BPF_FS_MAGIC {
        return Ok(());
    }
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("bpf"), BPFFS, Some("bpf"), flags, Some("mode=700")).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::who_refuses_bpf;

    #[test]
    fn who_refuses_bpf_is_said_with_what_helps() {
        let (host, rootless) = ("         0          0 4294967295\n", "         0       1000          1\n");
        let said = |uid_map, seccomp| who_refuses_bpf(uid_map, &format!("Name:\tbrobust\nSeccomp:\t{seccomp}\n"));
        assert!(said(host, 2).contains("SystemCallFilter=bpf"));
        assert!(said(host, 0).contains("SELinux"));
        assert!(said(rootless, 2).ends_with("run this as root of the host"));
    }
}
