//! Every refusal of this crate, as one sentence that names what is wrong and the remedy.
use std::io;

use brobust_host::{units, Refusal};
use brobust_timeline::ScheduleError;

use crate::text::{percent, time};
use crate::tid::Tid;

pub type Result<T> = std::result::Result<T, ContentionError>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContentionError {
    #[error(transparent)]
    Schedule(#[from] ScheduleError),

    #[error(transparent)]
    Refused(#[from] Refusal),

    #[error(
        "the schedule takes no CPU away: give a share of less than 1, or no contention driver for an undisturbed run"
    )]
    NothingTaken,

    #[error("this driver needs timeslices of constant length that go on for ever: give the burner driver, or no jitter, phase, start, stop and alternate")]
    OnlySlices,

    #[error("thread {tid} was given no CPU, and the driver takes one away: name one")]
    NoCpu { tid: Tid },

    #[error("there is no driver {name} here: give one of {known}")]
    NoDriver { name: String, known: String },

    #[error("no thread ids were given: name at least one thread of the VM")]
    NoThreads,

    #[error("timeslice {} is shorter than the {} that SCHED_DEADLINE can count: give a longer timeslice", time(*.runtime_ns), time(*.min_ns))]
    RuntimeTooShort { runtime_ns: u64, min_ns: u64 },

    #[error("period {} (timeslice / share) is not between {} and {}, the range of SCHED_DEADLINE: change timeslice or share, or the sysctls kernel.sched_deadline_period_{{min,max}}_us", time(*.period_ns), time(*.min_ns), time(*.max_ns))]
    PeriodOutOfRange { period_ns: u64, min_ns: u64, max_ns: u64 },

    #[error("SCHED_DEADLINE ends timeslices at ticks, and a thread that has run for a whole one ({}) is then away for {} to keep to {} of a CPU, longer than {}: give a larger share, or a timeslice of a tick or more", time(*.tick_ns), time(*.away_ns), percent(*.share), time(*.max_ns))]
    AwayTooLong { tick_ns: u64, away_ns: u64, share: f64, max_ns: u64 },

    #[error("SCHED_DEADLINE would not admit {} at {} of a CPU each, because {} CPUs' worth is left of {cpus} CPUs: lower share or the number of vCPUs, or end what else is under SCHED_DEADLINE; the limit is kernel.sched_rt_runtime_us, and 95 % at most", units::show_count(*.threads, "thread", "threads"), percent(*.share), two_decimals(*.room))]
    NoRoom { threads: usize, share: f64, room: f64, cpus: usize },

    #[error("the kernel did not admit thread {tid} to SCHED_DEADLINE, because the bandwidths of all such threads would exceed kernel.sched_rt_runtime_us / kernel.sched_rt_period_us: lower share or end the others; if there are none, the kernel has lost count, and rebuilding its cpusets or a reboot repairs that")]
    Admission { tid: Tid },

    #[error("SCHED_DEADLINE and SCHED_FIFO need root (CAP_SYS_NICE): run as root")]
    NotRoot,

    #[error("thread {tid} may not run on every CPU, which SCHED_DEADLINE demands: undo its CPU pinning or leave its cpuset, or use the burner driver")]
    Affinity { tid: Tid },

    #[error("the kernel refused SCHED_FIFO to the burner although it has the right: its cgroup has no real-time budget (cpu.rt_runtime_us is 0), so start brobust in the root cpu cgroup")]
    NoRealTimeBudget,

    #[error("the kernel refused runtime {} and period {} for SCHED_DEADLINE: the period must be between kernel.sched_deadline_period_min_us and _max_us, and the runtime at least 1024 ns", time(*.runtime_ns), time(*.period_ns))]
    DeadlineRange { runtime_ns: u64, period_ns: u64 },

    #[error("the kernel throttled thread {tid} under SCHED_DEADLINE and never let it run again, several times: use the burner driver, or restart the VM")]
    Stuck { tid: Tid },

    #[error("thread {tid} does not exist (any more): is the VM still running?")]
    NoThread { tid: Tid },

    #[error("CPU {cpu} cannot be used: it does not exist, is offline, or is outside the cpuset of thread {tid}")]
    Cpu { cpu: usize, tid: Tid },

    #[error("taking the CPU away for up to {} in every {} is more than real-time threads may use ({} in {}): give a larger share or shorter periods; the limit is kernel.sched_rt_runtime_us, and 95 % at most", time(*.busy_ns), time(*.period_ns), time(*.allowed_ns), time(*.period_ns))]
    RealTimeThrottled { busy_ns: u64, allowed_ns: u64, period_ns: u64 },

    #[error("thread {tid} runs under {policy}, which the burner (SCHED_FIFO priority {priority}) cannot preempt: give the thread an ordinary policy first")]
    NotPreemptible { tid: Tid, policy: &'static str, priority: u32 },

    #[error("the kernel has no BTF (/sys/kernel/btf/vmlinux), which the recorder needs: use a kernel built with CONFIG_DEBUG_INFO_BTF, 6.1 or later")]
    NoBtf,

    #[error("the recorder is in a PID namespace, where thread ids differ from the kernel's: run it on the host, outside containers")]
    PidNamespace,

    #[error("the recorder's BPF program was not accepted ({reason}): run as root (CAP_BPF and CAP_PERFMON) on kernel 6.1 or later")]
    Bpf { reason: String },

    #[error("{doing}: {source}")]
    Os {
        doing: String,
        #[source]
        source: io::Error,
    },
}

impl ContentionError {
    pub(crate) fn os(doing: impl Into<String>, source: io::Error) -> Self {
        Self::Os { doing: doing.into(), source }
    }

    pub(crate) fn bpf(error: libbpf_rs::Error) -> Self {
        Self::Bpf { reason: error.to_string() }
    }
}

fn two_decimals(number: f64) -> String {
    format!("{number:.2}")
}
