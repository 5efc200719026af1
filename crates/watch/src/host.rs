//! What the host reports about its CPUs: whether they are taken away (steal, late wake-ups) or overloaded (pressure, a
//! CPU that is busy all the time).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};

use brobust_host::reason;
use nix::libc;
use serde::Serialize;

use crate::probe::Probe;

const STAT: &str = "/proc/stat";
const PRESSURE: &str = "/proc/pressure/cpu";

/// The counters of each line of /proc/stat, by its name: cpu for all CPUs, cpu0, cpu1, ... for those that are online.
type TicksOf = BTreeMap<String, Ticks>;

const ALL_CPUS: &str = "cpu";

/// Counters of /proc/stat for one CPU or for all, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    steal: u64,
    all: u64,
}

/// The host's load between two readings. None: it could not be read, or the kernel does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HostLoad {
    /// Share of all CPUs' time that another guest or the hypervisor had (proc(5)). 0 also where the hypervisor does not
    /// report it.
    pub steal_share: Option<f64>,
    /// Share of the wake-ups of a thread with priority that were late (probe.rs). None without the privilege.
    pub late_share: Option<f64>,
    /// Share of the time in which the busiest CPU worked.
    pub busiest_share: Option<f64>,
    /// Share of the last 10 s in which some task waited for a CPU (PSI, Documentation/accounting/psi.rst). None without
    /// PSI.
    pub pressure_share: Option<f64>,
}

impl HostLoad {
    /// Returns the share of the time in which the CPU was taken away. None: neither steal nor late wake-ups are known.
    pub fn away_share(&self) -> Option<f64> {
        [self.steal_share, self.late_share].into_iter().flatten().reduce(f64::max)
    }
}

/// Reads the host's load, and keeps the counters of the previous reading.
pub struct Host {
    /// Counters of the latest reading that succeeded; empty before the first.
    before: TicksOf,
    probe: Option<Probe>,
}

impl Host {
    /// Takes the first reading, from which the next one counts.
    pub fn begin() -> Host {
        let before = fs::read_to_string(STAT).map(|text| parse_ticks(&text)).unwrap_or_default();
        Host { before, probe: Probe::start() }
    }

    /// Reads the load since the previous reading. Also says what could not be read, and why.
    pub fn read(&mut self) -> (HostLoad, Vec<String>) {
        self.evaluate(fs::read_to_string(STAT), fs::read_to_string(PRESSURE))
    }

    fn evaluate(&mut self, stat: io::Result<String>, pressure: io::Result<String>) -> (HostLoad, Vec<String>) {
        let mut unread = Vec::new();
        let mut noted = |file: &str, text: io::Result<String>| {
            text.map_err(|error| unread.push(format!("{file}: {}", reason(&error)))).ok()
        };
        let now = noted(STAT, stat).map(|text| parse_ticks(&text));
        // That a kernel has no PSI, or has it switched off, is no error.
        let has_psi =
            |error: &io::Error| error.kind() != ErrorKind::NotFound && error.raw_os_error() != Some(libc::EOPNOTSUPP);
        let pressure = match pressure {
            Err(error) if !has_psi(&error) => None,
            other => noted(PRESSURE, other),
        };
        let (steal_share, busiest_share) = now.as_ref().map_or((None, None), |now| shares(&self.before, now));
        self.before = now.unwrap_or_else(|| std::mem::take(&mut self.before));
        let load = HostLoad {
            steal_share,
            late_share: self.probe.as_mut().and_then(Probe::late_share),
            busiest_share,
            pressure_share: pressure.as_deref().and_then(some_avg10),
        };
        (load, unread)
    }
}

/// Returns the steal of all CPUs and the load of the busiest. None if no time has passed, or there was no reading
/// before. A CPU that was offline meanwhile does not count.
fn shares(before: &TicksOf, now: &TicksOf) -> (Option<f64>, Option<f64>) {
    let share = |name: &str, chosen: fn(&Ticks) -> u64| {
        let (before, now) = (before.get(name)?, now.get(name)?);
        let all = now.all.saturating_sub(before.all);
        // The kernel's iowait may go back, and with it the whole.
        (all > 0).then(|| (chosen(now).saturating_sub(chosen(before)) as f64 / all as f64).min(1.0))
    };
    let each = now.keys().filter(|name| *name != ALL_CPUS);
    (share(ALL_CPUS, |ticks| ticks.steal), each.filter_map(|name| share(name, |ticks| ticks.busy)).reduce(f64::max))
}

/// Reads the lines cpu, cpu0, cpu1, ...: user nice system idle iowait irq softirq steal guest guest_nice.
fn parse_ticks(stat: &str) -> TicksOf {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        // The time of guests is part of user time.
        let busy = number(0) + number(1) + number(2) + number(5) + number(6);
        let steal = number(7);
        (name, Ticks { busy, steal, all: busy + steal + number(3) + number(4) })
    };
    stat.lines().take_while(|line| line.starts_with("cpu")).map(of_line).collect()
}

/// Reads the share in a line such as "some avg10=1.23 avg60=...", which is in percent.
fn some_avg10(pressure: &str) -> Option<f64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let percent: f64 = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    Some(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "cpu  100 0 50 800 10 0 20 20 0 0\ncpu0 50 0 25 400 5 0 10 10 0 0\ncpu1 50 0 25 400 5 0 10 10 0 0\nintr 5";
    const AFTER: &str =
        "cpu  200 0 100 850 10 0 20 120 0 0\ncpu0 150 0 75 400 5 0 10 10 0 0\ncpu1 50 0 25 450 5 0 10 110 0 0\nintr 6";

    #[test]
    fn steal_is_for_all_cpus_and_the_load_is_the_busiest_ones() {
        let pressure =
            "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let (load, unread) = quiet(BEFORE).evaluate(Ok(AFTER.into()), Ok(pressure.into()));
        assert_eq!(load.steal_share, Some(100.0 / 300.0));
        assert_eq!(load.busiest_share, Some(1.0));
        assert_eq!(load.pressure_share, Some(0.125));
        assert!(unread.is_empty());
    }

    /// A host without the thread that wakes up.
    fn quiet(before: &str) -> Host {
        Host { before: parse_ticks(before), probe: None }
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_reported_and_not_zero() {
        let full = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let mut host = quiet(BEFORE);
        let (load, unread) = host.evaluate(full(), full());
        assert_eq!((load, load.away_share()), (HostLoad::default(), None));
        assert!(unread.len() == 2 && unread[0].starts_with("/proc/stat: too many open files"), "{unread:?}");
        // The time that has passed counts in the next reading.
        let (load, _) = host.evaluate(Ok(AFTER.into()), full());
        assert_eq!((load.steal_share, load.away_share()), (Some(100.0 / 300.0), Some(100.0 / 300.0)));
    }

    #[test]
    fn a_host_that_reports_nothing_is_no_error() {
        for error in [libc::ENOENT, libc::EOPNOTSUPP] {
            let (load, unread) = quiet("").evaluate(Ok(String::new()), Err(io::Error::from_raw_os_error(error)));
            assert!(load == HostLoad::default() && unread.is_empty(), "{unread:?}");
        }
        assert_eq!(parse_ticks("nonsense"), TicksOf::new());
        assert_eq!(some_avg10("full avg10=1"), None);
        assert_eq!(parse_ticks("cpu x y"), TicksOf::from([("cpu".to_owned(), Ticks::default())]));
    }

    #[test]
    fn no_cpu_is_busier_than_all_of_it_where_iowait_goes_back() {
        let back = AFTER.replace("cpu0 150 0 75 400 5", "cpu0 150 0 75 400 0");
        let (load, _) = quiet(BEFORE).evaluate(Ok(back), Ok(String::new()));
        assert_eq!(load.busiest_share, Some(1.0));
    }

    #[test]
    fn a_cpu_that_goes_offline_takes_no_other_ones_counters() {
        let without_the_first = AFTER.replace("cpu0 150 0 75 400 5 0 10 10 0 0\n", "");
        let (load, _) = quiet(BEFORE).evaluate(Ok(without_the_first.clone()), Ok(String::new()));
        assert_eq!((load.steal_share, load.busiest_share), (Some(100.0 / 300.0), Some(0.0)));
        // Nor does one that comes back, whose counters went on where they had been.
        let (load, _) = quiet(&without_the_first).evaluate(Ok(AFTER.into()), Ok(String::new()));
        assert_eq!(load.busiest_share, None);
    }

    #[test]
    fn the_load_of_this_host_can_be_read() {
        let mut host = Host::begin();
        let (mut load, mut unread) = host.read();
        brobust_host::eventually(std::time::Duration::from_secs(10), || {
            (load, unread) = host.read();
            load.steal_share.is_some() // the counters of all CPUs have moved
        });
        let is_share = |share: Option<f64>| share.is_some_and(|share| (0.0..=1.0).contains(&share));
        assert!(is_share(load.steal_share) && unread.is_empty(), "{load:?} {unread:?}");
    }
}
