//! The cgroups of this host: their paths by id, and how long each was throttled by its CPU limit.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::statfs::{statfs, CGROUP2_SUPER_MAGIC, CGROUP_SUPER_MAGIC};

/// The kernel's period of a CPU limit, if it cannot be read.
const DEFAULT_PERIOD_US: u64 = 100_000;

/// Where the hierarchies of cgroups are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// The one of version 2. Sockets have the ids of its cgroups, which are the inodes of its directories.
    unified: Option<PathBuf>,
    /// The one that limits CPU time.
    cpu: Option<Cpu>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Cpu {
    V2(PathBuf),
    V1(PathBuf),
}

/// Counters of a cgroup that has a CPU limit, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttling {
    /// Sum over its CPUs of the time in which it was throttled.
    pub throttled_us: u64,
    /// Number of periods in which it was throttled, and their length.
    pub periods: u64,
    pub period_us: u64,
}

impl Cgroups {
    /// Finds them below the host's root directory, as systemd mounts them: all in version 2; or, hybrid, controllers in
    /// version 1 and version 2 beside them, without controllers.
    pub fn find(root: &Path) -> Cgroups {
        let top = root.join("sys/fs/cgroup");
        let is = |path: &Path, magic| statfs(path).is_ok_and(|found| found.filesystem_type() == magic);
        if is(&top, CGROUP2_SUPER_MAGIC) {
            return Cgroups { unified: Some(top.clone()), cpu: Some(Cpu::V2(top)) };
        }
        let unified = Some(top.join("unified")).filter(|path| is(path, CGROUP2_SUPER_MAGIC));
        let v1 = ["cpu", "cpu,cpuacct"].map(|name| top.join(name));
        let cpu = v1.into_iter().find(|path| is(path, CGROUP_SUPER_MAGIC)).map(Cpu::V1);
        Cgroups { unified, cpu }
    }

    /// Returns the paths of all cgroups by id: `/` for the root's.
    pub fn paths(&self) -> HashMap<u64, String> {
        let mut paths = HashMap::new();
        let Some(top) = &self.unified else { return paths };
        if let Ok(root) = fs::metadata(top) {
            paths.insert(root.ino(), "/".into());
        }
        let mut waiting = vec![(top.clone(), String::new())];
        while let Some((directory, path)) = waiting.pop() {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    let inner = format!("{path}/{}", entry.file_name().to_string_lossy());
                    paths.insert(entry.ino(), inner.clone());
                    waiting.push((entry.path(), inner));
                }
            }
        }
        paths
    }

    /// Reads how much a cgroup has been throttled. None: it has no CPU limit, or is gone.
    pub fn throttling(&self, path: &str) -> Option<Throttling> {
        // Where CPU time is limited in version 1, runtimes give a container the same path in both hierarchies.
        let inner = path.trim_start_matches('/');
        match self.cpu.as_ref()? {
            Cpu::V2(top) => of_v2(&top.join(inner)),
            Cpu::V1(top) => of_v1(&top.join(inner)),
        }
    }
}

fn of_v2(directory: &Path) -> Option<Throttling> {
    let limit = fs::read_to_string(directory.join("cpu.max")).ok()?;
    let (quota, period) = limit.trim().split_once(' ')?;
    if quota == "max" {
        return None; // without reading cpu.stat, for which the kernel adds up the counters of all CPUs
    }
    let stat = fs::read_to_string(directory.join("cpu.stat")).ok()?;
    Some(Throttling {
        throttled_us: number(&stat, "throttled_usec")?,
        periods: number(&stat, "nr_throttled")?,
        period_us: period.parse().unwrap_or(DEFAULT_PERIOD_US),
    })
}

fn of_v1(directory: &Path) -> Option<Throttling> {
    let file = |name: &str| fs::read_to_string(directory.join(name)).ok();
    if file("cpu.cfs_quota_us")?.trim() == "-1" {
        return None;
    }
    let stat = file("cpu.stat")?;
    Some(Throttling {
        throttled_us: number(&stat, "throttled_time")? / 1000,
        periods: number(&stat, "nr_throttled")?,
        period_us: file("cpu.cfs_period_us").and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_PERIOD_US),
    })
}

/// Returns the number in the line of that name.
fn number(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Returns a directory with these files.
    fn directory(files: &[(&str, &str)]) -> TempDir {
        let place = tempfile::tempdir().unwrap();
        files.iter().for_each(|(file, text)| fs::write(place.path().join(file), text).unwrap());
        place
    }

    #[test]
    fn counters_of_both_versions_are_read() {
        let v2 = "usage_usec 5\nuser_usec 4\nsystem_usec 1\nnr_periods 30\nnr_throttled 20\nthrottled_usec 1500000\n\
                  nr_bursts 0\nburst_usec 0\n";
        let place = directory(&[("cpu.max", "20000 50000\n"), ("cpu.stat", v2)]);
        let read = Throttling { throttled_us: 1_500_000, periods: 20, period_us: 50_000 };
        assert_eq!(of_v2(place.path()), Some(read));
        let unlimited = directory(&[("cpu.max", "max 100000\n"), ("cpu.stat", v2)]);
        assert_eq!(of_v2(unlimited.path()), None);
        assert_eq!(of_v2(&place.path().join("gone")), None);

        let v1 = "nr_periods 30\nnr_throttled 20\nthrottled_time 1500000999\n";
        let limit = [("cpu.cfs_quota_us", "20000\n"), ("cpu.cfs_period_us", "50000\n"), ("cpu.stat", v1)];
        assert_eq!(of_v1(directory(&limit).path()), Some(read));
        let without = [("cpu.cfs_quota_us", "-1\n"), ("cpu.stat", v1)];
        let unlimited_v1 = directory(&without);
        assert_eq!(of_v1(unlimited_v1.path()), None);
    }

    #[test]
    fn the_ids_of_cgroups_are_the_inodes_of_their_directories() {
        let place = directory(&[]);
        fs::create_dir_all(place.path().join("a.slice/b.scope")).unwrap();
        let paths = Cgroups { unified: Some(place.path().into()), cpu: None }.paths();
        for inner in ["/", "/a.slice", "/a.slice/b.scope"] {
            let id = fs::metadata(place.path().join(inner.trim_start_matches('/'))).unwrap().ino();
            assert_eq!(paths.get(&id).map(String::as_str), Some(inner));
        }
    }
}
