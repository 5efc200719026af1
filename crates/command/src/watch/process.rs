//! What this process costs, named as Prometheus' client libraries name it.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{getrlimit, Resource};
use nix::time::{clock_gettime, ClockId};
use nix::unistd::{sysconf, SysconfVar};

use super::exposition::{Family, Kind};

/// Returns the metrics of this process that can be read.
pub fn families() -> Vec<Family> {
    let mut families = Vec::new();
    let mut add = |name: &'static str, kind: Kind, help: &'static str, value: Option<f64>| {
        if let Some(value) = value {
            families.push(Family::single(name, kind, help, value));
        }
    };
    let stat = Stat::read();
    let from_stat = |value: fn(&Stat) -> f64| stat.as_ref().map(value);
    add(
        "brobust_process_virtual_memory_bytes",
        Kind::Gauge,
        "Virtual memory size",
        from_stat(|stat| stat.virtual_bytes),
    );
    add("brobust_process_resident_memory_bytes", Kind::Gauge, "Resident memory size", from_stat(|s| s.resident_bytes));
    let start = "Start time since the Unix epoch";
    add("brobust_process_start_time_seconds", Kind::Gauge, start, from_stat(|stat| stat.start_unix_s));
    let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).ok();
    let cpu_s = cpu.map(|time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9);
    add("brobust_process_cpu_seconds", Kind::Counter, "User and system CPU time", cpu_s);
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64);
    add("brobust_process_open_fds", Kind::Gauge, "Open file descriptors", open);
    let max = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft as f64);
    add("brobust_process_max_fds", Kind::Gauge, "Maximum number of open file descriptors", max);
    families
}

struct Stat {
    virtual_bytes: f64,
    resident_bytes: f64,
    start_unix_s: f64,
}

impl Stat {
    fn read() -> Option<Stat> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // Field 2, the name, is in parentheses and may hold anything; the words after it are the fields 3, 4, ...
        let (_, rest) = text.rsplit_once(')')?;
        let field = |number: usize| rest.split_whitespace().nth(number - 3)?.parse::<f64>().ok();
        let page = sysconf(SysconfVar::PAGE_SIZE).ok()?? as f64;
        let ticks = sysconf(SysconfVar::CLK_TCK).ok()?? as f64;
        let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        let boot = now - since_boot.tv_sec() as f64 - since_boot.tv_nsec() as f64 / 1e9;
        Some(Stat {
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page,
            // In hundredths: the two clocks are not read at the same moment.
            start_unix_s: ((boot + field(22)? / ticks) * 100.0).round() / 100.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        assert_eq!(families().len(), 6);
        let stat = Stat::read().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(stat.start_unix_s <= now + 1.0 && stat.start_unix_s > now - 3600.0);
        assert!(stat.resident_bytes > 1e5 && stat.virtual_bytes >= stat.resident_bytes);
    }
}
