//! What this host's scheduler can do: tick rate, high-resolution ticks, real-time budget.
use std::fs;
use std::mem;

/// The scheduler's tick rate in Hz; None if the kernel does not tell.
///
/// The resolution of the coarse clocks is one tick (kernel/time/posix-timers.c, posix_get_coarse_res), which needs
/// neither /proc/config.gz nor /boot and is right in containers too.
pub fn hz() -> Option<u32> {
    // SAFETY: all zeros is a valid timespec, and the kernel writes only into it.
    let mut resolution: libc::timespec = unsafe { mem::zeroed() };
    let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut resolution) };
    let tick_ns = resolution.tv_nsec as f64;
    (result == 0 && tick_ns > 0.0).then(|| (1e9 / tick_ns).round() as u32)
}

/// Whether SCHED_DEADLINE ends slices by a high-resolution timer (the scheduler feature HRTICK_DL) rather than at
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

/// How much of the CPU real-time and deadline threads may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RealTimeBudget {
    /// None: no limit.
    pub runtime_ns: Option<u64>,
    pub period_ns: u64,
}

impl RealTimeBudget {
    /// The sysctls' values, or the kernel's defaults where they cannot be read.
    pub fn read() -> Self {
        let runtime_us = sysctl("sched_rt_runtime_us").unwrap_or(950_000);
        let period_us = sysctl("sched_rt_period_us").unwrap_or(1_000_000);
        Self {
            // -1 means without limit.
            runtime_ns: u64::try_from(runtime_us).ok().map(|us| us * 1_000),
            period_ns: u64::try_from(period_us).unwrap_or(1_000_000) * 1_000,
        }
    }

    /// The largest fraction of a CPU; None if there is no limit.
    pub fn fraction(&self) -> Option<f64> {
        Some(self.runtime_ns? as f64 / self.period_ns as f64)
    }
}

/// /proc/sys/kernel/<name> as a number.
pub(crate) fn sysctl(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok()?;
    text.trim().parse().ok()
}

/// Whether the running kernel is at least `major.minor`; a release that cannot be read counts as new.
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
    // SAFETY: sysconf has no memory arguments.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
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
