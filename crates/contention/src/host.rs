//! Abilities of this host's scheduler: tick rate, high-resolution ticks, real-time budget.
use std::fs;

use nix::time::{clock_getres, ClockId};
use nix::unistd::{sysconf, SysconfVar};

/// Returns the scheduler's tick rate in Hz; None if the kernel does not tell.
///
/// The resolution of the coarse clocks is one tick (kernel/time/posix-timers.c, posix_get_coarse_res), which needs
/// neither /proc/config.gz nor /boot and is right in containers too.
pub fn hz() -> Option<u32> {
    let tick_ns = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).ok()?.tv_nsec() as f64;
    (tick_ns > 0.0).then(|| (1e9 / tick_ns).round() as u32)
}

/// Returns whether SCHED_DEADLINE ends timeslices by a high-resolution timer (the scheduler feature HRTICK_DL) rather than at
/// ticks; None if debugfs is not mounted or not readable. Never mounts it.
pub fn hrtick_dl() -> Option<bool> {
    let features = fs::read_to_string("/sys/kernel/debug/sched/features").ok()?;
    feature(&features, "HRTICK_DL")
}

/// A feature that is off is listed with the prefix `NO_` (kernel/sched/debug.c).
fn feature(features: &str, name: &str) -> Option<bool> {
    features.split_whitespace().find_map(|word| match word.strip_prefix("NO_").unwrap_or(word) {
        found if found == name => Some(word == name),
        _ => None,
    })
}

/// Part of a CPU that we let real-time and deadline threads use at most, whatever a host's sysctls would allow: the kernel's
/// own default. Without any limit nobody else could run there, not even to end them.
const MAX_FRACTION: f64 = 0.95;

/// The longest stretch of time in which that part may be used at once.
const MAX_STRETCH_NS: u64 = 1_000_000_000;

/// Time that real-time and deadline threads may use: as the kernel says, and no more than `MAX_FRACTION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RealTimeBudget {
    pub runtime_ns: u64,
    pub period_ns: u64,
}

impl RealTimeBudget {
    /// Reads the sysctls, or takes the kernel's defaults where they cannot be read.
    pub fn read() -> Self {
        Self::of(sysctl("sched_rt_runtime_us").unwrap_or(950_000), sysctl("sched_rt_period_us").unwrap_or(1_000_000))
    }

    fn of(runtime_us: i64, period_us: i64) -> Self {
        let period_ns = u64::try_from(period_us).unwrap_or(1_000_000).max(1) * 1_000;
        // -1 means without limit.
        let allowed = u64::try_from(runtime_us).map_or(1.0, |us| (us * 1_000) as f64 / period_ns as f64);
        let period_ns = period_ns.min(MAX_STRETCH_NS);
        Self { runtime_ns: (allowed.min(MAX_FRACTION) * period_ns as f64).round() as u64, period_ns }
    }

    /// Returns the largest fraction of a CPU.
    pub fn fraction(&self) -> f64 {
        self.runtime_ns as f64 / self.period_ns as f64
    }
}

/// Reads /proc/sys/kernel/<name> as a number.
pub(crate) fn sysctl(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Returns whether the running kernel is at least `major.minor`; a release that cannot be read counts as new.
pub(crate) fn kernel_is_at_least(major: u32, minor: u32) -> bool {
    fs::read_to_string("/proc/sys/kernel/osrelease")
        .ok()
        .and_then(|release| version(&release))
        .is_none_or(|version| version >= (major, minor))
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(crate) fn online_cpus() -> usize {
    let count = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_rate_is_one_that_linux_offers() {
        let hz = hz().unwrap();
        assert!([100, 250, 300, 1000].contains(&hz), "{hz}");
    }

    #[test]
    fn whatever_the_sysctls_allow_a_part_of_every_second_stays_free() {
        let second = |runtime_ns| RealTimeBudget { runtime_ns, period_ns: 1_000_000_000 };
        assert_eq!(RealTimeBudget::of(950_000, 1_000_000), second(950_000_000));
        assert_eq!(RealTimeBudget::of(400_000, 1_000_000), second(400_000_000));
        for runtime_us in [-1, 1_000_000, 990_000] {
            assert_eq!(RealTimeBudget::of(runtime_us, 1_000_000), second(950_000_000), "{runtime_us}");
        }
        // 28.5 s at a time, which is within 95 % of half a minute.
        assert_eq!(RealTimeBudget::of(28_500_000, 30_000_000), second(950_000_000));
        assert_eq!(RealTimeBudget::of(-1, 100_000), RealTimeBudget { runtime_ns: 95_000_000, period_ns: 100_000_000 });
    }

    #[test]
    fn a_feature_that_is_off_is_told_from_one_that_is_missing() {
        let features = "PLACE_LAG NO_HRTICK NO_HRTICK_DL NONTASK_CAPACITY\n";
        assert_eq!(feature(features, "HRTICK_DL"), Some(false));
        assert_eq!(feature(features, "PLACE_LAG"), Some(true));
        assert_eq!(feature(features, "HRTICK_FAIR"), None);
    }

    #[test]
    fn distribution_kernels_have_a_version_too() {
        assert_eq!(version("6.1.0-18-cloud-amd64\n"), Some((6, 1)));
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("unknown"), None);
    }
}
