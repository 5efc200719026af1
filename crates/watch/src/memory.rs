//! How much memory the flows may take. Whoever opens sockets decides how many there are, and a service that follows them
//! all would be killed where its memory is limited (packaging/kubernetes/daemonset.yaml).

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use nix::unistd::{sysconf, SysconfVar};

/// Returns the memory for flows: three quarters of what this process may have.
pub fn for_flows() -> usize {
    let known = |variable| sysconf(variable).ok().flatten().and_then(|number| u64::try_from(number).ok());
    let pages = known(SysconfVar::_PHYS_PAGES).zip(known(SysconfVar::PAGE_SIZE));
    let of_machine = pages.map_or(u64::MAX, |(number, size)| number.saturating_mul(size));
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_cgroup = limit(Path::new("/sys/fs/cgroup"), &cgroups, process::id());
    usize::try_from(of_machine.min(of_cgroup.unwrap_or(u64::MAX)) / 4 * 3).unwrap_or(usize::MAX)
}

/// Returns the smallest memory limit of a process's cgroup and of those above it, as far as they are mounted at `top`: in
/// version 2, or in version 1. `cgroups` is its /proc/PID/cgroup.
fn limit(top: &Path, cgroups: &str, pid: u32) -> Option<u64> {
    // A line is HIERARCHY:CONTROLLERS:PATH; that of version 2 names no controllers.
    let told = |is_meant: fn(&str) -> bool| {
        cgroups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            is_meant(controllers).then(|| path.trim_start_matches('/'))
        })
    };
    let v2 = group_of(top, told(str::is_empty).unwrap_or_default(), pid);
    let has_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
    let v1 = group_of(&top.join("memory"), told(has_memory).unwrap_or_default(), pid);
    let of_v2 = v2.ancestors().map(|group| group.join("memory.max"));
    let of_v1 = v1.ancestors().map(|group| group.join("memory.limit_in_bytes"));
    of_v2.chain(of_v1).filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// Returns the directory of a process's cgroup in the hierarchy at `root`; `told` is its path as the process is told. In a
/// cgroup namespace of its own it is told that it is in the root, also where the host's hierarchy is mounted, as in the
/// DaemonSet: then the group that lists the process is looked for.
fn group_of(root: &Path, told: &str, pid: u32) -> PathBuf {
    let own = root.join(told);
    if !told.is_empty() {
        return own;
    }
    let (mut waiting, listed) = (vec![own.clone()], pid.to_string());
    while let Some(group) = waiting.pop() {
        if fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| pids.lines().any(|one| one == listed)) {
            return group;
        }
        let inner = fs::read_dir(group).into_iter().flatten().flatten();
        waiting.extend(inner.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir())).map(|one| one.path()));
    }
    own
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{for_flows, limit};

    #[test]
    fn the_smallest_limit_of_a_cgroup_and_those_above_it_counts() {
        let scratch = tempfile::tempdir().expect("made");
        let top = scratch.path();
        let limit = |cgroups| limit(top, cgroups, 7);
        fs::create_dir_all(top.join("kubepods/pod1")).expect("made");
        assert_eq!(limit("0::/kubepods/pod1\n"), None);
        fs::write(top.join("kubepods/pod1/memory.max"), "max\n").expect("written");
        fs::write(top.join("kubepods/memory.max"), "268435456\n").expect("written");
        assert_eq!(limit("1:name=systemd:/\n0::/kubepods/pod1\n"), Some(268_435_456));
        fs::write(top.join("kubepods/pod1/memory.max"), "4096\n").expect("written");
        assert_eq!(limit("0::/kubepods/pod1\n"), Some(4096));
        assert_eq!(limit("0::/\n"), None);
        fs::create_dir(top.join("memory")).expect("made");
        fs::write(top.join("memory/memory.limit_in_bytes"), "8192\n").expect("written");
        assert_eq!(limit("4:memory:/\n"), Some(8192));
        assert!(for_flows() > 1 << 20, "this process has some memory");
    }

    #[test]
    fn the_limit_of_a_container_counts_although_the_hosts_cgroups_are_mounted_in_it() {
        let scratch = tempfile::tempdir().expect("made");
        let top = scratch.path();
        for (group, pids, max) in [("", "1\n", ""), ("pod1", "", "4096\n"), ("pod1/a", "70\n7\n", "max\n")] {
            fs::create_dir_all(top.join(group)).expect("made");
            fs::write(top.join(group).join("cgroup.procs"), pids).expect("written");
            fs::write(top.join(group).join("memory.max"), max).expect("written");
        }
        assert_eq!(limit(top, "0::/\n", 7), Some(4096));
        assert_eq!(limit(top, "0::/\n", 1), None);
        assert_eq!(limit(top, "0::/\n", 8), None, "it is in none of them");
    }

    #[test]
    fn a_service_has_its_own_limit_in_version_1_too() {
        let scratch = tempfile::tempdir().expect("made");
        let group = scratch.path().join("memory/system.slice/watch.service");
        fs::create_dir_all(&group).expect("made");
        fs::write(group.join("memory.limit_in_bytes"), "1073741824\n").expect("written");
        let told = "9:cpu,cpuacct:/\n4:memory:/system.slice/watch.service\n0::/\n";
        assert_eq!(limit(scratch.path(), told, 7), Some(1 << 30));
    }
}
