//! Whose sockets they are: the cgroup in which a socket was opened, its pod and container, and whether its CPU limit
//! throttles it.
//!
//! The kernel reports a cgroup's id with each socket. Paths are looked up when an id is seen for the first time.

mod cgroups;
mod container;
mod kubelet;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cause::Verdict;
use crate::groups::mbps;
use crate::ids::ById;
use cgroups::{Cgroups, Throttling};
use container::{Container, SHORT_ID_DIGITS};
use kubelet::Kubelet;

/// Whose a socket is. None: unknown, or there is no such thing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Owner {
    /// Path of the cgroup, `/` for the root's.
    pub cgroup: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Name of the pod, or its UID if the name is unknown.
    pub pod: Option<String>,
    /// Name of the container, or the first twelve digits of its id.
    pub container: Option<String>,
}

/// The sockets that were opened in one cgroup.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OwnerReport {
    pub cgroup_id: u64,
    #[serde(flatten)]
    pub owner: Owner,
    pub throttled_share: Option<f64>,
    /// Sum of their rates over the window.
    pub rate_mbps: f64,
    /// Number of sockets by cause; only causes that have any.
    pub causes: BTreeMap<&'static str, usize>,
}

/// An owner that the latest sweeps have seen.
#[derive(Debug, Default)]
struct Known {
    /// What this sweep has seen of it so far.
    report: OwnerReport,
    container: Container,
    /// How often its path was looked up.
    lookups: u32,
    /// Number of the sweep that saw it last.
    seen: u64,
}

/// How often the path of a cgroup is looked up. More than once, since one that was made after the sweep's look at all of
/// them is in the next; but one that has been removed, and whose sockets live on, is in none.
const MAX_LOOKUPS: u32 = 2;

/// Where the names of owners are found.
struct Names {
    cgroups: Cgroups,
    kubelet: Kubelet,
    /// The paths of all cgroups by id, if this sweep has looked them up.
    paths: Option<HashMap<u64, String>>,
}

impl Names {
    /// Finds the names of an owner that are missing and can be known now.
    fn find(&mut self, Known { report, container, lookups, .. }: &mut Known) {
        let owner = &mut report.owner;
        if owner.cgroup.is_none() && *lookups < MAX_LOOKUPS {
            *lookups += 1;
            let paths = self.paths.get_or_insert_with(|| self.cgroups.paths());
            owner.cgroup = paths.get(&report.cgroup_id).cloned();
            *container = owner.cgroup.as_deref().map(Container::of).unwrap_or_default();
        }
        self.kubelet.look_for(container);
        let pod = self.kubelet.pod(container);
        let short = |id: &String| id.chars().take(SHORT_ID_DIGITS).collect();
        owner.namespace = pod.map(|(namespace, _)| namespace.clone());
        owner.pod = pod.map(|(_, name)| name).or(container.pod_uid.as_ref()).cloned();
        owner.container = self.kubelet.container(container).cloned().or_else(|| container.id.as_ref().map(short));
    }
}

pub struct Owners {
    names: Names,
    known: ById<Known>,
    /// Readings of the cgroups that have a CPU limit, by path.
    limited: HashMap<String, VecDeque<(Instant, Throttling)>>,
    sweep: u64,
    window: Duration,
}

impl Owners {
    /// `root`: where the host's root directory is; `window`: how far back throttling is looked at.
    pub fn new(root: &Path, window: Duration) -> Owners {
        Owners {
            names: Names { cgroups: Cgroups::find(root), kubelet: Kubelet::new(root), paths: None },
            known: ById::default(),
            limited: HashMap::new(),
            sweep: 0,
            window,
        }
    }

    /// Begins a sweep: forgets owners without sockets, and reads how much the others were throttled.
    pub fn begin(&mut self, sweep: u64) {
        let (before, now) = (self.sweep, Instant::now());
        self.sweep = sweep;
        self.names.paths = None;
        self.known.retain(|_, known| known.seen == before);
        let mut read: HashMap<String, Option<f64>> = HashMap::new();
        for known in self.known.values_mut() {
            self.names.find(known);
            let report = &mut known.report;
            // The limit of a cgroup holds for all below it.
            let shares = upwards(report.owner.cgroup.as_deref().unwrap_or_default()).map(|path| {
                *read.entry(path.to_owned()).or_insert_with(|| {
                    let readings = self.limited.entry(path.to_owned()).or_default();
                    add(readings, now, self.window, self.names.cgroups.throttling(path))
                })
            });
            report.throttled_share = shares.flatten().reduce(f64::max);
            report.rate_mbps = 0.0;
            report.causes.clear();
        }
        self.limited.retain(|path, readings| read.contains_key(path) && !readings.is_empty());
    }

    /// Returns the share of the window in which the cgroup, or one above it, was throttled. None: it has no CPU limit,
    /// or this is unknown.
    pub fn throttled_share(&mut self, cgroup_id: u64) -> Option<f64> {
        self.find(cgroup_id).report.throttled_share
    }

    /// Adds a socket of this sweep.
    pub fn add(&mut self, cgroup_id: u64, verdict: &Verdict) {
        let sweep = self.sweep;
        let known = self.find(cgroup_id);
        known.seen = sweep;
        known.report.rate_mbps += mbps(verdict.evidence.rate_bytes_per_s);
        *known.report.causes.entry(verdict.cause.name()).or_insert(0) += 1;
    }

    pub fn get(&self, cgroup_id: u64) -> Option<&OwnerReport> {
        self.known.get(&cgroup_id).map(|known| &known.report)
    }

    /// Returns the owners that have sockets in this sweep, sorted.
    pub fn seen(&self) -> Vec<OwnerReport> {
        let seen = self.known.values().filter(|known| known.seen == self.sweep);
        let mut all: Vec<OwnerReport> = seen.map(|known| known.report.clone()).collect();
        all.sort_by(|one, other| (&one.owner, one.cgroup_id).cmp(&(&other.owner, other.cgroup_id)));
        all
    }

    fn find(&mut self, id: u64) -> &mut Known {
        self.known.entry(id).or_insert_with(|| {
            let report = OwnerReport { cgroup_id: id, ..OwnerReport::default() };
            let mut known = Known { report, ..Known::default() };
            self.names.find(&mut known);
            known
        })
    }
}

/// Returns the path and those above it. The last, the root, is empty: in a container it is the container's own cgroup,
/// which may have a limit.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |path| path.rsplit_once('/').map(|(above, _)| above))
}

/// Adds a reading, forgets those before the window, and returns the share of the time in which the cgroup was throttled.
fn add(
    readings: &mut VecDeque<(Instant, Throttling)>,
    now: Instant,
    window: Duration,
    reading: Option<Throttling>,
) -> Option<f64> {
    let Some(reading) = reading else {
        readings.clear();
        return None;
    };
    readings.push_back((now, reading));
    // The last one before the window stays: the window begins there.
    while readings.get(1).is_some_and(|(then, _)| now - *then >= window) {
        readings.pop_front();
    }
    let (then, first) = readings.front()?;
    throttled_share(first, &reading, now - *then)
}

/// Returns the share of the time in which a cgroup was throttled. The kernel adds the times of its CPUs up, so many CPUs
/// that are throttled one after the other, or all at once, may have more than the time that has passed. The periods in
/// which any of them was throttled are another upper bound, and the lower of the two is closer.
fn throttled_share(first: &Throttling, last: &Throttling, passed: Duration) -> Option<f64> {
    let passed_us = passed.as_micros() as f64;
    let of_cpus = last.throttled_us.saturating_sub(first.throttled_us) as f64;
    let of_periods = (last.periods.saturating_sub(first.periods) * last.period_us) as f64;
    (passed_us > 0.0).then(|| (of_cpus.min(of_periods) / passed_us).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_throttling_is_that_of_the_time_in_the_window() {
        let (start, window) = (Instant::now(), Duration::from_secs(10));
        let mut readings = VecDeque::new();
        // 60 ms of each period of 100 ms, from the fifth second on.
        let read = |second: u64| {
            let periods = second.saturating_sub(5) * 10;
            Some(Throttling { throttled_us: periods * 60_000, periods, period_us: 100_000 })
        };
        let mut at = |second: u64| add(&mut readings, start + Duration::from_secs(second), window, read(second));
        assert_eq!(at(0), None);
        assert_eq!(at(5), Some(0.0));
        assert_eq!(at(10), Some(0.3));
        assert_eq!(at(15), Some(0.6));
        assert_eq!(at(20), Some(0.6));
        assert_eq!(add(&mut readings, start + Duration::from_secs(21), window, None), None);
        assert!(readings.is_empty());
    }

    #[test]
    fn the_times_of_many_cpus_do_not_add_up_to_more_than_there_was() {
        let none = Throttling { throttled_us: 0, periods: 0, period_us: 100_000 };
        let share = |throttled_us, periods| {
            let last = Throttling { throttled_us, periods, ..none };
            throttled_share(&none, &last, Duration::from_secs(1))
        };
        assert_eq!(share(16_000_000, 10), Some(1.0));
        // 16 CPUs in one period
        assert_eq!(share(1_280_000, 1), Some(0.1));
        assert_eq!(share(50_000, 10), Some(0.05));
    }

    #[test]
    fn limits_are_looked_for_upwards() {
        let all: Vec<&str> = upwards("/a.slice/b.slice/c.scope").collect();
        assert_eq!(all, ["/a.slice/b.slice/c.scope", "/a.slice/b.slice", "/a.slice", ""]);
        assert_eq!(upwards("/").chain(upwards("")).collect::<Vec<_>>(), ["", ""]);
    }
}
