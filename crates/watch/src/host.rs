//! What the host says of its CPUs: whether they are taken away (steal, a timer that fires late), or short (pressure, one
//! that is busy all the time).

use std::fs;

use serde::Serialize;

use crate::probe::Probe;

/// Counters of /proc/stat in ticks, of one CPU or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    steal: u64,
    all: u64,
}

/// Between two looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct HostLoad {
    /// Of all CPUs' time: another guest, or the hypervisor, had it (proc(5)). 0 also where the hypervisor does not tell.
    pub steal_share: f64,
    /// Of the wakes of a thread with priority: late (probe.rs). None without the privilege.
    pub late_share: Option<f64>,
    /// Of the busiest CPU's time: it worked.
    pub busiest_share: f64,
    /// Of the last 10 s: some task waited for a CPU (PSI, Documentation/accounting/psi.rst). None without PSI.
    pub pressure_share: Option<f64>,
}

impl HostLoad {
    /// The CPU was taken away for so much of the time.
    pub fn away_share(&self) -> f64 {
        self.steal_share.max(self.late_share.unwrap_or(0.0))
    }
}

/// Remembers the counters of the last look.
#[derive(Debug)]
pub struct Host {
    before: Vec<Ticks>,
    probe: Option<Probe>,
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

impl Host {
    pub fn new() -> Host {
        Host { before: read_ticks(), probe: Probe::start() }
    }

    pub fn look(&mut self) -> HostLoad {
        let now = read_ticks();
        let before = std::mem::replace(&mut self.before, now.clone());
        let late_share = self.probe.as_mut().and_then(Probe::look);
        HostLoad { late_share, ..load(&before, &now, fs::read_to_string("/proc/pressure/cpu").ok().as_deref()) }
    }
}

fn load(before: &[Ticks], now: &[Ticks], pressure: Option<&str>) -> HostLoad {
    let part = |chosen: u64, all: u64| if all > 0 { chosen as f64 / all as f64 } else { 0.0 };
    let mut each = before.iter().zip(now).map(|(before, now)| {
        let all = now.all.saturating_sub(before.all);
        (part(now.steal.saturating_sub(before.steal), all), part(now.busy.saturating_sub(before.busy), all))
    });
    // The first line is of all CPUs together.
    let steal_share = each.next().map_or(0.0, |(steal, _)| steal);
    HostLoad {
        steal_share,
        late_share: None,
        busiest_share: each.map(|(_, busy)| busy).fold(0.0, f64::max),
        pressure_share: pressure.and_then(some_avg10),
    }
}

fn read_ticks() -> Vec<Ticks> {
    parse_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// The lines cpu, cpu0, cpu1, ...: user nice system idle iowait irq softirq steal guest guest_nice.
fn parse_ticks(stat: &str) -> Vec<Ticks> {
    let of_line = |line: &str| {
        let numbers: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
        // guest time is part of user time
        let busy = number(0) + number(1) + number(2) + number(5) + number(6);
        let steal = number(7);
        Ticks { busy, steal, all: busy + steal + number(3) + number(4) }
    };
    stat.lines().take_while(|line| line.starts_with("cpu")).map(of_line).collect()
}

/// "some avg10=1.23 avg60=..." in percent
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
    fn steal_is_of_all_cpus_and_busy_of_the_busiest() {
        let pressure =
            "some avg10=12.50 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        let load = load(&parse_ticks(BEFORE), &parse_ticks(AFTER), Some(pressure));
        assert_eq!(load.steal_share, 100.0 / 300.0);
        assert_eq!(load.busiest_share, 1.0);
        assert_eq!(load.pressure_share, Some(0.125));
    }

    #[test]
    fn a_host_that_says_nothing_is_no_error() {
        assert_eq!(load(&[], &[], None), HostLoad::default());
        assert_eq!(parse_ticks("nonsense"), vec![]);
        assert_eq!(some_avg10("full avg10=1"), None);
        assert_eq!(parse_ticks("cpu x y"), vec![Ticks::default()]);
    }

    #[test]
    fn this_host_can_be_looked_at() {
        let mut host = Host::new();
        let load = host.look();
        assert!((0.0..=1.0).contains(&load.steal_share) && (0.0..=1.0).contains(&load.busiest_share));
    }
}
