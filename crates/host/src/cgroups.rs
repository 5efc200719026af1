//! A quota for single threads: bandwidth control of the CPU controller (Documentation/scheduler/sched-bwc.rst).
//!
//! Each thread gets a group of its own below the one that it is in, and is moved back at the end. The limit is cpu.max
//! where the controller is on cgroup v2, and cpu.cfs_quota_us where it is on v1.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::entries;
use crate::namespaces::unescaped;
use crate::refusal::reason;
use crate::{general, read_proc, Refusal, Result};

// kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period
const MIN_TIMESLICE_NS: u64 = 1_000_000;
const MAX_PERIOD_NS: u64 = 1_000_000_000;

const REMOVE: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 2000 });

/// A group that was made for a thread, and the group that the thread was in before (`home`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub path: PathBuf,
    home: PathBuf,
    is_v2: bool,
    /// Whether brobust enabled the controller for the children of `home`; the last of its groups disables it again.
    enabled_cpu: bool,
}

/// Where the CPU controller has a thread.
struct Place {
    is_v2: bool,
    group: PathBuf,
}

/// Refuses what bandwidth control cannot do.
pub fn check(timeslice_ns: u64, period_ns: u64) -> Result<()> {
    if timeslice_ns >= MIN_TIMESLICE_NS && period_ns <= MAX_PERIOD_NS {
        return Ok(());
    }
    Err(Refusal::bad_input(format!(
        "driver quota: {} ms in every {} ms is not possible; the kernel takes 1 ms and more in at most 1 s; give another \
         timeslice, or driver burner",
        general(timeslice_ns as f64 / 1e6, 6),
        general(period_ns as f64 / 1e6, 6)
    )))
}

/// Returns the group that is to be made for a thread, beside `others` of brobust's; makes nothing yet.
pub fn group_for(thread: i32, others: &[Group]) -> Result<Group> {
    Ok(Group::below(place_of(thread)?, thread, others))
}

impl Group {
    fn below(place: Place, thread: i32, others: &[Group]) -> Self {
        let Place { is_v2, group: home } = place;
        // If another group of brobust's enabled it, this one has to disable it should it be the last.
        let ours = others.iter().any(|other| other.home == home && other.enabled_cpu);
        let enabled_cpu = is_v2 && (ours || !controls_cpu(&home));
        Self { path: home.join(format!("brobust-{thread}")), home, is_v2, enabled_cpu }
    }

    /// Refuses if there is such a group already: it is not ours to remove.
    pub(crate) fn refuse_existing(&self) -> Result<()> {
        if !self.path.exists() {
            return Ok(());
        }
        let path = self.path.display();
        Err(Refusal::missing_support(format!(
            "driver quota: the cgroup {path} is there already: end the other brobust that holds this thread or, if none \
             does, remove it (rmdir {path})"
        )))
    }

    /// Makes the group and puts the thread there: `timeslice_ns` of CPU in every `period_ns`.
    pub(crate) fn hold(&self, thread: i32, timeslice_ns: u64, period_ns: u64) -> Result<()> {
        self.make(thread, timeslice_ns, period_ns).or_else(|(file, error)| {
            self.remove()?;
            Err(Refusal::missing_support(format!(
                "driver quota: {} refused ({}); give another driver, burner or deadline",
                file.display(),
                reason(&error)
            )))
        })
    }

    fn make(&self, thread: i32, timeslice_ns: u64, period_ns: u64) -> std::result::Result<(), (PathBuf, io::Error)> {
        let put = |file: PathBuf, text: &str| write(&file, text).map_err(|error| (file, error));
        let microseconds = |ns: u64| (ns as f64 / 1e3).round();
        let (quota, period) = (microseconds(timeslice_ns), microseconds(period_ns));
        fs::create_dir(&self.path).map_err(|error| (self.path.clone(), error))?;
        if self.is_v2 {
            put(self.path.join("cgroup.type"), "threaded")?;
            if !controls_cpu(&self.home) {
                put(self.home.join("cgroup.subtree_control"), "+cpu")?;
            }
            put(self.path.join("cpu.max"), &format!("{quota} {period}"))?;
        } else {
            put(self.path.join("cpu.cfs_period_us"), &period.to_string())?;
            put(self.path.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
        put(self.path.join(self.members()), &thread.to_string())
    }

    /// Moves the threads back and removes the group. Does nothing if it is gone already.
    pub(crate) fn remove(&self) -> Result<()> {
        let begun = Instant::now();
        while self.path.exists() {
            if let Err(error) = self.empty().and_then(|()| remove(&self.path)) {
                // EBUSY: a thread has begun in it since.
                if self.path.exists() && begun.elapsed() > REMOVE {
                    let text = format!("cgroup {} could not be removed ({})", self.path.display(), reason(&error));
                    return Err(Refusal::missing_support(text));
                }
                sleep(Duration::from_millis(10));
            }
        }
        if !self.has_left_controller_on() {
            return Ok(());
        }
        write(&self.home.join("cgroup.subtree_control"), "-cpu").map_err(|error| {
            let home = self.home.display();
            let text = format!("the CPU controller of {home} could not be switched off ({})", reason(&error));
            Refusal::missing_support(text)
        })
    }

    fn empty(&self) -> io::Result<()> {
        for thread in fs::read_to_string(self.path.join(self.members()))?.split_whitespace() {
            match write(&self.home.join(self.members()), thread) {
                Err(error) if error.raw_os_error() != Some(libc::ESRCH) => return Err(error),
                _ => {} // it has moved, or ended
            }
        }
        Ok(())
    }

    pub(crate) fn remains(&self) -> bool {
        self.path.exists() || self.has_left_controller_on()
    }

    /// Returns whether brobust enabled the controller and nobody needs it: neither another group of brobust's nor one of
    /// somebody else, which would lose its limit.
    fn has_left_controller_on(&self) -> bool {
        self.enabled_cpu && controls_cpu(&self.home) && !entries(&self.home).any(|child| is_limited(&child))
    }

    fn members(&self) -> &'static str {
        match self.is_v2 {
            true => "cgroup.threads",
            false => "tasks",
        }
    }
}

/// Returns whether the controller is enabled for the children of a group of v2; false if that has gone.
fn controls_cpu(home: &Path) -> bool {
    has_word(&home.join("cgroup.subtree_control"), "cpu")
}

fn has_word(file: &Path, wanted: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.split_whitespace().any(|word| word == wanted))
}

/// Returns whether a group of v2 has a setting of the CPU controller that it would lose with the controller.
fn is_limited(child: &Path) -> bool {
    let settings = [("cpu.max", "max"), ("cpu.weight", "100"), ("cpu.idle", "0")];
    settings.iter().any(|(name, without)| {
        let text = fs::read_to_string(child.join(name)).unwrap_or_default();
        text.split_whitespace().next().is_some_and(|word| word != *without)
    })
}

fn place_of(thread: i32) -> Result<Place> {
    let file = format!("/proc/{thread}/cgroup");
    let text = read_proc(&file).map_err(|error| Refusal::missing_support(format!("{file}: {}", reason(&error))))?;
    place_in(&text, &read_proc("/proc/mounts").unwrap_or_default())
}

/// `cgroups`: a thread's /proc/TID/cgroup.
fn place_in(cgroups: &str, mounts: &str) -> Result<Place> {
    let mut of_hierarchy = BTreeMap::new();
    for line in cgroups.lines() {
        if let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) {
            of_hierarchy.extend(controllers.split(',').map(|controller| (controller, path)));
        }
    }
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, mount, kind, options, ..] = fields[..] else { continue };
        let mount = PathBuf::from(unescaped(mount));
        // A thread outside of our cgroup namespace has a path such as /../theirs, which would lead out of the mount.
        let within = |path: &str| {
            if path.split('/').any(|part| part == "..") {
                return Err(Refusal::missing_support(format!(
                    "driver quota: the cgroup {path} is outside of our cgroup namespace; run this on the host, outside of \
                     any container, or give driver burner"
                )));
            }
            Ok(mount.join(path.trim_start_matches('/')))
        };
        match (kind, of_hierarchy.get("cpu"), of_hierarchy.get("")) {
            ("cgroup", Some(path), _) if options.split(',').any(|option| option == "cpu") => {
                return Ok(Place { is_v2: false, group: within(path)? });
            }
            ("cgroup2", _, Some(path)) if has_word(&mount.join("cgroup.controllers"), "cpu") => {
                return Ok(Place { is_v2: true, group: within(path)? });
            }
            _ => {}
        }
    }
    Err(Refusal::missing_support(
        "driver quota: no CPU controller is mounted; mount one (`mount -t cgroup2 none /sys/fs/cgroup`), or give driver \
         burner",
    ))
}

#[cfg(not(test))]
fn write(file: &Path, text: &str) -> io::Result<()> {
    fs::write(file, text)
}

#[cfg(not(test))]
fn remove(group: &Path) -> io::Result<()> {
    fs::remove_dir(group)
}

#[cfg(test)]
use tests::{remove, write};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::ErrorKind;
    use tempfile::TempDir;

    const MS: u64 = 1_000_000;

    /// Writes as the kernel does in a group of v2: a controller is enabled or not, and a thread is in one group only.
    pub(super) fn write(file: &Path, text: &str) -> io::Result<()> {
        let (group, name) = (file.parent().expect("a group"), file.file_name().expect("a file"));
        let switched = match (name.to_str(), text.split_at_checked(1)) {
            (Some("cgroup.subtree_control"), Some((sign, controller))) => {
                let mut enabled = controllers(group);
                match sign {
                    "+" => enabled.insert(controller.into()),
                    _ => enabled.remove(controller),
                };
                enabled.into_iter().collect::<Vec<_>>().join(" ")
            }
            (Some("cpu.max"), _) if !controls_cpu(group.parent().expect("a home")) => {
                return Err(ErrorKind::PermissionDenied.into());
            }
            (Some("cgroup.threads"), _) => {
                let home = if group.join("cgroup.subtree_control").exists() { Some(group) } else { group.parent() };
                for other in entries(home.expect("a home")).map(|child| child.join("cgroup.threads")) {
                    let left = fs::read_to_string(&other).unwrap_or_default();
                    if left.split_whitespace().any(|thread| thread == text) {
                        fs::write(other, "")?;
                    }
                }
                text.into()
            }
            _ => text.into(),
        };
        fs::write(file, switched)
    }

    /// Removes a group with its files, unless a thread is in it, or the test says that there always is one.
    pub(super) fn remove(group: &Path) -> io::Result<()> {
        let threads = fs::read_to_string(group.join("cgroup.threads")).unwrap_or_default();
        match threads.is_empty() && !group.join("busy").exists() {
            true => fs::remove_dir_all(group),
            false => Err(io::Error::from_raw_os_error(libc::EBUSY)),
        }
    }

    /// Makes a group of v2 with the controller `memory`.
    fn home() -> (TempDir, PathBuf) {
        let made = tempfile::tempdir().expect("made");
        fs::write(made.path().join("cgroup.subtree_control"), "memory").expect("written");
        let home = made.path().into();
        (made, home)
    }

    fn controllers(home: &Path) -> BTreeSet<String> {
        let text = fs::read_to_string(home.join("cgroup.subtree_control")).expect("it is there");
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn is_on(home: &Path) -> bool {
        assert!(controllers(home).contains("memory"));
        controllers(home).contains("cpu")
    }

    fn held(home: &Path, thread: i32, others: &[Group]) -> Group {
        let group = Group::below(Place { is_v2: true, group: home.into() }, thread, others);
        group.hold(thread, 10 * MS, 40 * MS).expect("held");
        group
    }

    #[test]
    fn the_controller_is_enabled_for_one_thread_and_then_as_it_was() {
        let (_made, home) = home();
        let group = held(&home, 7, &[]);
        let content = |name: &str| fs::read_to_string(group.path.join(name)).expect("written");
        assert_eq!(
            [content("cgroup.type"), content("cpu.max"), content("cgroup.threads")],
            ["threaded", "10000 40000", "7"]
        );
        assert!(is_on(&home) && group.remains());
        group.remove().expect("removed");
        assert!(!is_on(&home) && !group.remains());
        group.remove().expect("once more does nothing");
    }

    #[test]
    fn of_two_commands_the_last_one_switches_the_controller_off() {
        let (_made, home) = home();
        let first = held(&home, 7, &[]);
        let second = held(&home, 8, std::slice::from_ref(&first));
        first.remove().expect("removed");
        assert!(is_on(&home), "the other one's quota would be gone");
        second.remove().expect("removed");
        assert!(!is_on(&home));
    }

    #[test]
    fn a_limit_that_somebody_else_has_set_in_the_group_is_not_lost() {
        let (_made, home) = home();
        let group = held(&home, 7, &[]);
        fs::create_dir(home.join("web.service")).expect("made");
        fs::write(home.join("web.service/cpu.max"), "50000 100000").expect("written");
        group.remove().expect("removed");
        assert!(is_on(&home));
    }

    #[test]
    fn a_controller_that_was_on_stays_on() {
        let (_made, home) = home();
        write(&home.join("cgroup.subtree_control"), "+cpu").expect("enabled");
        held(&home, 7, &[]).remove().expect("removed");
        assert!(is_on(&home));
    }

    #[test]
    fn a_command_that_was_killed_between_its_two_last_steps_has_left_something() {
        let (_made, home) = home();
        let group = held(&home, 7, &[]);
        fs::remove_dir_all(&group.path).expect("removed");
        assert!(group.remains());
        group.remove().expect("removed");
        assert!(!is_on(&home));
    }

    #[test]
    fn a_group_that_cannot_be_removed_is_said() {
        let (_made, home) = home();
        let group = held(&home, 7, &[]);
        fs::write(group.path.join("busy"), "").expect("written");
        let refused = group.remove().unwrap_err().text;
        assert!(refused.contains("brobust-7 could not be removed ("), "{refused}");
        assert!(group.remains());
    }

    #[test]
    fn a_group_outside_of_our_namespace_is_not_looked_for_elsewhere_on_the_disk() {
        let mounts = "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        let of = |cgroups| place_in(cgroups, mounts).map(|place| place.group).map_err(|refusal| refusal.text);
        assert_eq!(of("4:cpu,cpuacct:/web..1\n0::/..\n"), Ok("/sys/fs/cgroup/cpu/web..1".into()));
        let refused = of("4:cpu,cpuacct:/../../../../tmp/theirs\n0::/\n").unwrap_err();
        assert!(refused.contains("the cgroup /../../../../tmp/theirs is outside of our cgroup namespace"), "{refused}");
    }

    #[test]
    fn what_bandwidth_control_cannot_do_is_refused() {
        check(MS, 1_000 * MS).expect("possible");
        let refused = check(MS / 2, 2 * MS).unwrap_err().text;
        assert!(refused.starts_with("driver quota: 0.5 ms in every 2 ms is not possible"), "{refused}");
        check(MS, 1_001 * MS).unwrap_err();
    }
}
