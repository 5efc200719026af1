//! How much memory the flows may take. Whoever opens sockets decides how many there are, and a service that follows them
//! all would be killed where its memory is limited (packaging/kubernetes/daemonset.yaml).

use std::fs;
use std::path::Path;

use nix::unistd::{sysconf, SysconfVar};

/// Returns the memory for flows: three quarters of what this process may have.
pub fn for_flows() -> usize {
    let known = |variable| sysconf(variable).ok().flatten().and_then(|number| u64::try_from(number).ok());
    let pages = known(SysconfVar::_PHYS_PAGES).zip(known(SysconfVar::PAGE_SIZE));
    let of_machine = pages.map_or(u64::MAX, |(number, size)| number.saturating_mul(size));
    let of_cgroup = limit(Path::new("/sys/fs/cgroup"), &fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    usize::try_from(of_machine.min(of_cgroup.unwrap_or(u64::MAX)) / 4 * 3).unwrap_or(usize::MAX)
}

/// Returns the smallest memory limit of a process's cgroup and of those above it, as far as they are mounted at `top`: in
/// version 2, or in version 1 as a container sees its own. `cgroups` is its /proc/PID/cgroup.
fn limit(top: &Path, cgroups: &str) -> Option<u64> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let own = top.join(own);
    let of_v2 = own.ancestors().map(|group| group.join("memory.max"));
    let files = of_v2.chain([top.join("memory/memory.limit_in_bytes")]);
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{for_flows, limit};

    #[test]
    fn the_smallest_limit_of_a_cgroup_and_those_above_it_counts() {
        let scratch = tempfile::tempdir().expect("made");
        let top = scratch.path();
        fs::create_dir_all(top.join("kubepods/pod1")).expect("made");
        assert_eq!(limit(top, "0::/kubepods/pod1\n"), None);
        fs::write(top.join("kubepods/pod1/memory.max"), "max\n").expect("written");
        fs::write(top.join("kubepods/memory.max"), "268435456\n").expect("written");
        assert_eq!(limit(top, "1:name=systemd:/\n0::/kubepods/pod1\n"), Some(268_435_456));
        fs::write(top.join("kubepods/pod1/memory.max"), "4096\n").expect("written");
        assert_eq!(limit(top, "0::/kubepods/pod1\n"), Some(4096));
        assert_eq!(limit(top, "0::/\n"), None);
        fs::create_dir(top.join("memory")).expect("made");
        fs::write(top.join("memory/memory.limit_in_bytes"), "8192\n").expect("written");
        assert_eq!(limit(top, "4:memory:/\n"), Some(8192));
        assert!(for_flows() > 1 << 20, "this process has some memory");
    }
}
