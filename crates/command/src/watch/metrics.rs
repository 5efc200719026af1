//! The latest sweep as Prometheus metrics (`brobust watch --serve`). docs/watch-service.md lists the metrics.
//!
//! Sweeps go on whether anybody scrapes them or not: a cause is found from the samples of a whole window, and sweeping
//! only when Prometheus asks, every 15 s, would leave no samples in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brobust_watch::{Cause, FlowReport, Group, Owner, OwnerReport, SweepReport, TimedSweep};
use nix::time::{clock_gettime, ClockId};

use super::exposition::{self, Family, Kind, Labels};

/// This many congestion controls, those with the most sockets, have their own time series; the others count as OTHER.
const MAX_CONTROLS: usize = 16;
/// This many containers of pods, those with the most sockets, have their own time series; the others count as OTHER.
const MAX_CONTAINERS: usize = 128;
const OTHER: &str = "other";

const BITS_PER_MEGABIT: f64 = 1e6;

/// The latest sweep, and counters over all sweeps since the start. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    per_socket: bool,
    latest: Arc<Mutex<Latest>>,
}

#[derive(Default, Clone)]
struct Latest {
    sweep: Option<Arc<SweepReport>>,
    cpu_s: f64,
    interrupted: usize,
}

impl Metrics {
    /// `per_socket`: also show the sweeps' flows.
    pub fn new(per_socket: bool) -> Metrics {
        Metrics { per_socket, latest: Arc::default() }
    }

    /// Makes this the latest sweep, and adds to the counters.
    pub fn update(&self, sweep: TimedSweep) {
        let mut latest = self.lock();
        latest.cpu_s += sweep.report.cpu_ms / 1e3;
        latest.interrupted += sweep.report.interrupted;
        latest.sweep = Some(Arc::new(sweep.report));
    }

    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer to a scrape.
    pub fn text(&self) -> String {
        exposition::text(&self.families())
    }

    fn families(&self) -> Vec<Family> {
        let Latest { sweep, cpu_s, interrupted } = self.lock().clone();
        let mut build = Family::new("brobust_build_info", Kind::Gauge, "The version of brobust that watches");
        build.add(&vec![("version", env!("CARGO_PKG_VERSION"))], 1.0);
        let counter = |name, help, value| Family::single(name, Kind::Counter, help, value);
        let sweeps = sweep.as_ref().map_or(0.0, |sweep| sweep.sweep as f64);
        let process = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let process_s = process.map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9);
        let mut families = vec![
            build,
            counter("brobust_sweeps_total", "Sweeps over all sockets", sweeps),
            counter("brobust_sweep_cpu_seconds_total", "CPU time of all sweeps, including the kernel's part", cpu_s),
            counter("brobust_process_cpu_seconds_total", "User and system CPU time", process_s),
            counter(
                "brobust_dumps_interrupted_total",
                "Dumps that were inconsistent at every attempt, so that sockets may be missing",
                interrupted as f64,
            ),
        ];
        if let Some(sweep) = sweep {
            families.extend(host(&sweep));
            families.extend(sockets(&sweep));
            families.extend(pods(&sweep.owners));
            if self.per_socket {
                families.extend(top_sockets(&sweep.flows));
            }
        }
        families
    }
}

fn host(sweep: &SweepReport) -> Vec<Family> {
    let unread = sweep.unread_namespaces();
    let load = &sweep.host;
    let gauges = [
        ("brobust_sweep_seconds", "How long the latest sweep took", Some(sweep.took_ms / 1e3)),
        ("brobust_unread_namespaces", "Network namespaces that could not be read", Some(unread as f64)),
        ("brobust_unread_host_files", "Files on CPU load that could not be read", Some(sweep.unread_host as f64)),
        ("brobust_unfollowed_sockets", "TCP sockets for which there is no memory", Some(sweep.unfollowed as f64)),
        (
            "brobust_host_steal_ratio",
            "Part of all CPUs' time since the last sweep in which the hypervisor ran others",
            load.steal_share,
        ),
        (
            "brobust_host_late_wakes_ratio",
            "Part of a high-priority thread's wake-ups that were more than 2 ms late",
            load.late_share,
        ),
        (
            "brobust_host_busiest_cpu_ratio",
            "Part of the busiest CPU's time since the last sweep in which it worked",
            load.busiest_share,
        ),
        (
            "brobust_host_cpu_pressure_ratio",
            "Part of the last 10 s in which some task waited for a CPU (PSI)",
            load.pressure_share,
        ),
    ];
    let known = |(name, help, value): (_, _, Option<f64>)| Some(Family::single(name, Kind::Gauge, help, value?));
    gauges.into_iter().filter_map(known).collect()
}

/// Returns the number of sockets by control and cause, and the distributions of their rates and of in flight / BDP.
fn sockets(sweep: &SweepReport) -> Vec<Family> {
    let mut number = Family::new("brobust_sockets", Kind::Gauge, "TCP sockets");
    // These are gauge histograms, not histograms: a bucket holds the sockets that exist now and may become empty again;
    // counters would count a socket once per sweep. So histogram_quantile() takes them directly, without rate().
    let histogram = |name, help| Family::new(name, Kind::GaugeHistogram, help);
    let mut rate = histogram("brobust_socket_rate_bits_per_second", "Rate of acknowledged data over the window");
    let mut inflight = histogram(
        "brobust_socket_inflight_bdp",
        "Data in flight divided by the bandwidth-delay product, for sockets with an estimate",
    );
    let rate_bounds: Vec<f64> = sweep.bounds.rate_mbps.iter().map(|bound| bound * BITS_PER_MEGABIT).collect();
    let by_control = largest(&sweep.counts, |one| &*one.congestion_control, |one| one.sockets, MAX_CONTROLS, OTHER);
    for (cc, lines) in by_control {
        // A control that has sockets gets every cause, so that a time series does not end with its last socket.
        for cause in Cause::ALL {
            let of: Vec<&Group> = lines.iter().copied().filter(|line| line.cause == cause).collect();
            let labels: Labels = vec![("cc", cc), ("cause", cause.name())];
            number.add(&labels, of.iter().map(|line| line.sockets).sum::<usize>() as f64);
            let (counts, sum) = total(of.iter().map(|line| &line.rate_mbps), rate_bounds.len());
            rate.add_distribution(&labels, &rate_bounds, &counts, sum * BITS_PER_MEGABIT);
            let bounds = sweep.bounds.inflight_bdp;
            let (counts, sum) = total(of.iter().map(|line| &line.inflight_bdp), bounds.len());
            inflight.add_distribution(&labels, bounds, &counts, sum);
        }
    }
    vec![number, rate, inflight]
}

/// Returns all of these by their keys: those of the `count` keys with the most sockets, and all the rest by the key
/// `other`.
fn largest<'a, One, Key: Ord + Copy>(
    all: impl IntoIterator<Item = &'a One>,
    key: impl Fn(&'a One) -> Key,
    sockets: impl Fn(&One) -> usize,
    count: usize,
    other: Key,
) -> BTreeMap<Key, Vec<&'a One>> {
    let mut by_key: BTreeMap<Key, Vec<&One>> = BTreeMap::new();
    all.into_iter().for_each(|one| by_key.entry(key(one)).or_default().push(one));
    let mut sorted: Vec<_> = by_key.into_iter().collect();
    sorted.sort_by_key(|(_, these)| Reverse(these.iter().map(|one| sockets(one)).sum::<usize>()));
    let mut shown = BTreeMap::new();
    for (place, (key, these)) in sorted.into_iter().enumerate() {
        shown.entry(if place < count { key } else { other }).or_insert_with(Vec::new).extend(these);
    }
    shown
}

/// Returns the counts of the buckets of several distributions together, and the sum of all values.
fn total<'a>(spreads: impl Iterator<Item = &'a brobust_watch::Distribution>, bounds: usize) -> (Vec<usize>, f64) {
    let mut all = (vec![0; bounds + 1], 0.0);
    for spread in spreads {
        all.0.iter_mut().zip(&spread.counts).for_each(|(total, count)| *total += count);
        all.1 += spread.sum;
    }
    all
}

/// Namespace, pod, container. All are empty for the sockets of no pod.
type PodKey<'a> = [&'a str; 3];

/// Returns the sockets of each container of a pod; nothing on a host that has none.
fn pods(owners: &[OwnerReport]) -> Vec<Family> {
    let (of_pods, others): (Vec<_>, Vec<_>) = owners.iter().partition(|one| one.owner.pod.is_some());
    if of_pods.is_empty() {
        return vec![];
    }
    let sockets_of = |one: &OwnerReport| one.causes.values().sum::<usize>();
    let mut by_pod = largest(of_pods, |one| names(&one.owner), sockets_of, MAX_CONTAINERS, [OTHER; 3]);
    if !others.is_empty() {
        by_pod.insert([""; 3], others);
    }
    let family = |name, help| Family::new(name, Kind::Gauge, help);
    let mut sockets = family("brobust_pod_sockets", "TCP sockets by the container that opened them");
    let mut rate = family("brobust_pod_rate_bits_per_second", "Sum of the rates of a container's sockets");
    let mut throttled = family(
        "brobust_pod_throttled_ratio",
        "Part of the window in which a CPU limit throttled the container; of several, the maximum",
    );
    for ([namespace, pod, container], of) in by_pod {
        let labels: Labels = vec![("namespace", namespace), ("pod", pod), ("container", container)];
        rate.add(&labels, of.iter().map(|one| one.rate_mbps).sum::<f64>() * BITS_PER_MEGABIT);
        // Other cgroups than those of pods have too little in common.
        let share = of.iter().filter(|_| !pod.is_empty()).filter_map(|one| one.throttled_share).reduce(f64::max);
        if let Some(share) = share {
            throttled.add(&labels, share);
        }
        for cause in Cause::ALL.map(Cause::name) {
            let number = of.iter().filter_map(|one| one.causes.get(cause)).sum::<usize>();
            sockets.add(&[labels.clone(), vec![("cause", cause)]].concat(), number as f64);
        }
    }
    vec![sockets, rate, throttled]
}

/// Returns namespace, pod and container; empty where there is none.
fn names(owner: &Owner) -> PodKey<'_> {
    [&owner.namespace, &owner.pod, &owner.container].map(|name| name.as_deref().unwrap_or_default())
}

fn top_sockets(flows: &[FlowReport]) -> Vec<Family> {
    let family = |name, help| Family::new(name, Kind::Gauge, help);
    let mut families = [
        family(
            "brobust_top_socket_rate_bits_per_second",
            "Rate of acknowledged data over the window; for the --top sockets",
        ),
        family(
            "brobust_top_socket_inflight_bdp",
            "Data in flight divided by the BDP, median of the window; for the --top sockets",
        ),
        family(
            "brobust_top_socket_deficit_ratio",
            "Part of the samples able to send with less than 1 BDP in flight; for the --top sockets",
        ),
    ];
    for flow in flows {
        let [namespace, pod, container] = names(&flow.owner);
        let interface = if flow.interface == 0 { String::new() } else { flow.interface.to_string() };
        let labels: Labels = vec![
            ("local", &flow.local),
            ("remote", &flow.remote),
            ("interface", &interface),
            ("netns", &flow.netns),
            ("namespace", namespace),
            ("pod", pod),
            ("container", container),
            ("cc", &flow.cc),
            ("cause", flow.cause),
        ];
        let values = [Some(flow.rate_mbps * BITS_PER_MEGABIT), flow.evidence.inflight_bdp, flow.evidence.deficit_share];
        for (family, value) in families.iter_mut().zip(values) {
            if let Some(value) = value {
                family.add(&labels, value);
            }
        }
    }
    families.into()
}

/// Sweeps for tests.
#[cfg(test)]
pub mod made_up {
    use brobust_watch::{BdpSource, Bounds, Distribution, Evidence, HostLoad};

    use super::*;

    pub const RATES: &[f64] = &[0.1, 1.0, 10.0];
    pub const INFLIGHTS: &[f64] = &[0.5, 1.0];

    /// That many sockets of 4 Mbit/s with 0.75 BDP in flight.
    pub fn count(cc: &str, cause: &'static str, sockets: usize) -> Group {
        let spread = |bounds, value| {
            let mut spread = Distribution::new(bounds);
            (0..sockets).for_each(|_| spread.add(value));
            spread
        };
        let (rate_mbps, inflight_bdp) = (spread(RATES, 4.0), spread(INFLIGHTS, 0.75));
        let cause = Cause::ALL.into_iter().find(|known| known.name() == cause).expect("a cause");
        Group { congestion_control: cc.into(), cause, sockets, rate_mbps, inflight_bdp }
    }

    pub fn flow(local: &str, interface: u32) -> FlowReport {
        FlowReport {
            local: local.to_owned(),
            remote: "[2001:db8::1]:5000".to_owned(),
            interface,
            cc: "bbr".to_owned(),
            cause: "cpu-limited",
            rate_mbps: 4.0,
            evidence: Evidence { inflight_bdp: Some(0.75), bdp_source: Some(BdpSource::Bbr), ..Evidence::default() },
            ..FlowReport::default()
        }
    }

    pub fn report(counts: Vec<Group>) -> SweepReport {
        let host = HostLoad {
            steal_share: Some(0.25),
            late_share: Some(0.5),
            busiest_share: Some(0.75),
            pressure_share: Some(0.125),
        };
        SweepReport {
            sweep: 1,
            sockets: counts.iter().map(|line| line.sockets).sum(),
            host,
            counts,
            bounds: Bounds { rate_mbps: RATES, inflight_bdp: INFLIGHTS },
            namespaces: 1,
            took_ms: 20.0,
            cpu_ms: 10.0,
            flows: vec![flow("192.0.2.1:443", 0)],
            ..SweepReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::made_up::{count, flow, report};
    use super::*;

    /// What a scrape gets after these sweeps.
    fn shown(reports: Vec<SweepReport>, per_socket: bool) -> String {
        let metrics = Metrics::new(per_socket);
        for report in reports {
            metrics.update(TimedSweep { time_unix_s: 0.0, interval_s: 1.0, report });
        }
        metrics.text()
    }

    /// Whether the text has each of these lines.
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|its| its == *line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn sockets_are_counted_by_control_and_cause() {
        let text =
            shown(vec![report(vec![count("bbr", "cpu-limited", 3), count("cubic", "network-limited", 2)])], false);
        has(
            &text,
            &[
                "brobust_sockets{cc=\"bbr\",cause=\"cpu-limited\"} 3.0",
                "brobust_sockets{cc=\"cubic\",cause=\"network-limited\"} 2.0",
                "brobust_sockets{cc=\"cubic\",cause=\"cpu-limited\"} 0.0",
                "brobust_socket_rate_bits_per_second_gcount{cc=\"cubic\",cause=\"cpu-limited\"} 0.0",
            ],
        );
        let named = text.lines().filter(|line| line.starts_with("brobust_sockets{")).count();
        assert_eq!(named, 2 * Cause::ALL.len());
    }

    #[test]
    fn distributions_are_in_base_units() {
        let text = shown(vec![report(vec![count("bbr", "cpu-limited", 3)])], false);
        let rate = "brobust_socket_rate_bits_per_second";
        let of = "cc=\"bbr\",cause=\"cpu-limited\"";
        has(
            &text,
            &[
                &format!("{rate}_bucket{{{of},le=\"100000.0\"}} 0.0"),
                &format!("{rate}_bucket{{{of},le=\"1e+06\"}} 0.0"),
                &format!("{rate}_bucket{{{of},le=\"1e+07\"}} 3.0"),
                &format!("{rate}_gsum{{{of}}} 1.2e+07"),
                &format!("brobust_socket_inflight_bdp_bucket{{{of},le=\"1.0\"}} 3.0"),
                &format!("brobust_socket_inflight_bdp_gsum{{{of}}} 2.25"),
                &format!("# TYPE {rate} histogram"),
            ],
        );
    }

    #[test]
    fn controls_beyond_the_maximum_count_as_other() {
        let counts = (0..MAX_CONTROLS + 4).map(|number| count(&format!("cc{number:02}"), "undecided", number + 1));
        let text = shown(vec![report(counts.collect())], false);
        let shown = |cc: &str| format!("brobust_sockets{{cc=\"{cc}\",cause=\"undecided\"}}");
        has(&text, &[&format!("{} 10.0", shown(OTHER)), &format!("{} 5.0", shown("cc04"))]);
        assert!(!text.contains(&shown("cc03")), "{text}");
    }

    fn owned(namespace: &str, pod: &str, container: &str, sockets: usize) -> OwnerReport {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        let owner = Owner { cgroup: None, namespace: name(namespace), pod: name(pod), container: name(container) };
        OwnerReport {
            owner,
            throttled_share: Some(0.5),
            rate_mbps: 2.0,
            causes: BTreeMap::from([("throttled", sockets)]),
            ..OwnerReport::default()
        }
    }

    #[test]
    fn sockets_are_counted_by_container_where_there_are_pods() {
        let services = vec![owned("", "", "", 3), owned("", "", "4e5b", 1)];
        let without = SweepReport { owners: services.clone(), ..report(vec![]) };
        assert!(!shown(vec![without], false).contains("brobust_pod"));
        let owners = [services, vec![owned("web", "shop-1", "app", 2), owned("web", "shop-1", "proxy", 1)]].concat();
        let text = shown(vec![SweepReport { owners, ..report(vec![]) }], false);
        let of = "namespace=\"web\",pod=\"shop-1\",container=\"app\"";
        let none = "namespace=\"\",pod=\"\",container=\"\"";
        has(
            &text,
            &[
                &format!("brobust_pod_sockets{{{of},cause=\"throttled\"}} 2.0"),
                &format!("brobust_pod_sockets{{{of},cause=\"cpu-limited\"}} 0.0"),
                &format!("brobust_pod_rate_bits_per_second{{{of}}} 2e+06"),
                &format!("brobust_pod_throttled_ratio{{{of}}} 0.5"),
                &format!("brobust_pod_sockets{{{none},cause=\"throttled\"}} 4.0"),
                &format!("brobust_pod_rate_bits_per_second{{{none}}} 4e+06"),
            ],
        );
        assert!(!text.contains(&format!("brobust_pod_throttled_ratio{{{none}}}")));
    }

    #[test]
    fn containers_beyond_the_maximum_count_as_other() {
        let owners = (0..MAX_CONTAINERS + 2).map(|number| owned("web", &format!("pod{number:03}"), "app", number + 1));
        let text = shown(vec![SweepReport { owners: owners.collect(), ..report(vec![]) }], false);
        let other = "namespace=\"other\",pod=\"other\",container=\"other\"";
        has(&text, &[&format!("brobust_pod_sockets{{{other},cause=\"throttled\"}} 3.0")]);
        assert!(!text.contains("pod001") && text.contains("pod002"));
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let mut unknown = report(vec![]);
        (unknown.host.late_share, unknown.host.pressure_share) = (None, None);
        let text = shown(vec![unknown], false);
        assert!(text.contains("brobust_host_steal_ratio 0.25\n") && text.contains("brobust_host_busiest_cpu_ratio"));
        assert!(!text.contains("late_wakes") && !text.contains("pressure"));
    }

    #[test]
    fn the_latest_sweep_shows_and_counters_add_up() {
        let none = shown(vec![], false);
        assert!(none.contains("brobust_sweeps_total 0.0\n") && !none.contains("brobust_sweep_seconds"));
        let first = SweepReport { interrupted: 1, unread: vec!["a dump".into()], ..report(vec![]) };
        let second = SweepReport {
            sweep: 2,
            unread: ["/proc/stat", "netns a", "a dump", "a dump", "7 sockets"].map(str::to_owned).into(),
            unread_host: 1,
            interrupted: 2,
            unfollowed: 7,
            took_ms: 30.0,
            ..report(vec![count("cubic", "undecided", 1)])
        };
        let text = shown(vec![first, second], false);
        has(
            &text,
            &[
                "brobust_sweeps_total 2.0",
                "brobust_sweep_seconds 0.03",
                "brobust_sweep_cpu_seconds_total 0.02",
                "brobust_dumps_interrupted_total 3.0",
                "brobust_unread_namespaces 1.0",
                "brobust_unread_host_files 1.0",
                "brobust_unfollowed_sockets 7.0",
            ],
        );
    }

    #[test]
    fn sockets_have_series_of_their_own_only_on_request_and_one_per_device() {
        let sweep = SweepReport { flows: vec![flow("192.0.2.1:443", 3), flow("192.0.2.1:443", 4)], ..report(vec![]) };
        assert!(!shown(vec![sweep.clone()], false).contains("brobust_top_socket"));
        let text = shown(vec![sweep], true);
        for device in [3, 4] {
            let labels = format!(
                "{{local=\"192.0.2.1:443\",remote=\"[2001:db8::1]:5000\",interface=\"{device}\",netns=\"\",namespace=\"\",\
                 pod=\"\",container=\"\",cc=\"bbr\",cause=\"cpu-limited\"}}"
            );
            has(&text, &[&format!("brobust_top_socket_rate_bits_per_second{labels} 4e+06")]);
            has(&text, &[&format!("brobust_top_socket_inflight_bdp{labels} 0.75")]);
        }
        assert!(!text.contains("brobust_top_socket_deficit_ratio{"), "it is unknown");
    }
}
