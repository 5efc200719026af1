//! What a run is asked to do, as Python's backend `virtual` writes it in JSON. Times are ns since the run's start,
//! rates are bit/s, costs are ps of CPU time.
use std::ops::RangeInclusive;
use std::path::PathBuf;

use brobust_timeline::Schedule;
use serde::Deserialize;

use crate::link::{Path, StepFunction};
use crate::qdisc::Aqm;
use crate::shared::{FLOWS, PROGRAMS};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub kernel: PathBuf,
    pub seed: u64,
    pub duration: u64,
    /// Interval of the throughput over time.
    pub interval: u64,
    /// Upper limit of a socket's buffers, bytes.
    pub tcp_memory: u32,
    pub path: Path,
    /// Queueing discipline of a kernel, in place of the link's own FIFO.
    pub aqm: Option<Aqm>,
    pub senders: Vec<Sender>,
    /// When the receiver's CPU may run.
    #[serde(default)]
    pub receiver: Schedule,
    pub flows: Vec<Flow>,
    /// The version of IP that all packets have.
    #[serde(default = "four")]
    pub ip_version: u8,
    /// Cross traffic. None: there is none.
    #[serde(default)]
    pub transfers: Option<Transfers>,
    /// Words for the kernels' command line: CONTROL.PARAMETER=NUMBER for a congestion control, or sysctl.NAME=NUMBER.
    #[serde(default)]
    pub parameters: Vec<String>,
    pub tx_completion: u64,
    pub coalesce: u64,
    /// Largest super-packet that the senders' network devices take, bytes with headers.
    pub tso_max_size: u32,
    /// Whether the kernels' lib/dim chooses how long interrupts wait, instead of `coalesce`.
    #[serde(default)]
    pub adaptive_rx: bool,
    /// Whether the packets of an interrupt are merged.
    #[serde(default = "yes")]
    pub gro: bool,
    /// Packets that wait in a network device for its kernel; more are lost. 0: any number may wait.
    #[serde(default)]
    pub rx_ring: u32,
    /// How much of what departures were late the senders make up for, us (net.ipv4.tcp_pacing_lag_us of kernel/patches/kept).
    #[serde(default)]
    pub pacing_lag_us: u32,
    /// Queueing discipline of the senders. Empty: the kernel's default, over which TCP paces by itself.
    pub qdisc: String,
    pub record: Record,
    /// Programs that send and receive. None: the source and sink in the kernel do.
    #[serde(default)]
    pub programs: Option<Programs>,
    /// Where virtual time waits for a debugger.
    #[serde(default)]
    pub debugger: Option<Debugger>,
}

fn yes() -> bool {
    true
}

fn four() -> u8 {
    4
}

/// A kernel to which a debugger is to attach, and when.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debugger {
    /// The node, by its name in messages.
    pub node: String,
    pub time: u64,
}

/// Programs in the kernels' user space. Each flow has one at its sender and one at the receiver.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Programs {
    /// The initial RAM disk that they are on.
    pub initrd: PathBuf,
    /// Path and arguments of the program at the sender, with placeholders (programs.rs).
    pub sender: Vec<String>,
    /// The same of the program at the receiver.
    pub receiver: Vec<String>,
    /// Which end's programs wait to be asked. None: the receiver's, and nobody looks whether they listen.
    pub waits: Option<Waits>,
    /// Variables of their environment, NAME=VALUE.
    pub environment: Vec<String>,
    /// Longest time after the run's duration for which programs may go on, ns.
    pub linger: u64,
    /// CPU time of a system call, ns.
    pub call: u64,
    /// CPU time of a call of a program that polls, ns.
    pub poll: u64,
    /// If set, a directory in which each node that has programs writes one file, named after it, with their calls
    /// (struct brobust_program_call).
    #[serde(default)]
    pub calls: Option<PathBuf>,
}

/// The end whose programs wait: the run begins when they listen.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    pub at_sender: bool,
    /// The program that ends when the ports listen that are its last arguments, or any port if there are none.
    pub watcher: Vec<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    pub schedule: Schedule,
    #[serde(default)]
    pub cpu: CpuCost,
    #[serde(default)]
    pub vcpus: VcpuOf,
}

/// Of a sender with several vCPUs, the one of each that is bound to one. A pacing timer's is the one that set it.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VcpuOf {
    /// The interrupt of packets that arrive.
    pub rx: u32,
    /// The interrupt of packets that have been sent.
    pub tx: u32,
}

/// Costs in ps of CPU time. If all are 0, work takes no time whenever the CPU may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CpuCost {
    pub timer: u64,
    pub rx_packet: u64,
    pub tx_skb: u64,
    pub tx_byte: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub cc: String,
    /// Number of the flow's sender.
    pub sender: usize,
    pub start: u64,
    pub stop: Option<u64>,
    pub rtt: StepFunction,
    pub pattern: Pattern,
}

/// Flows that end, and of which nothing is recorded but when. Their numbers follow those of the other flows.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transfers {
    pub cc: String,
    /// Number of their sender.
    pub sender: usize,
    pub rtt: StepFunction,
    /// Whether they enter the path at its second bottleneck.
    #[serde(default)]
    pub at_second: bool,
    /// Start and size (bytes) of each, in the order of their starts.
    pub each: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    /// As much as there is room for, or `bytes` bytes and no more.
    Bulk {
        #[serde(default)]
        bytes: Option<u64>,
    },
    /// `bytes` bytes every `every` ns.
    Rate {
        bytes: u64,
        every: u64,
    },
    Onoff {
        on: u64,
        off: u64,
    },
    Idle {
        after: u64,
        silence: u64,
    },
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Interval of samples, ns. 0: a sample at every ACK. None: no samples.
    pub samples: Option<u64>,
    pub packets: bool,
    pub pcap: Option<PathBuf>,
    /// If set, a directory in which each sender writes one file, named after it, with every call to our congestion
    /// controls (cc/call.h).
    pub calls: Option<PathBuf>,
}

impl Record {
    /// Returns whether every packet is kept, in the order of the times at which they were sent.
    pub fn has_packets(&self) -> bool {
        self.packets || self.pcap.is_some()
    }
}

/// Longest run, and longest time within it, ns: an hour, as the scenario of Python allows. Sums of a few of them fit.
const MAX_TIME: u64 = 3_600_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// The 64 that a scenario may have, and one for cross traffic.
const MAX_SENDERS: usize = 65;
/// Sizes of a super-packet that are allowed, bytes: from two segments to the kernel's GSO_MAX_SIZE.
const TSO_SIZES: RangeInclusive<u32> = 4096..=524_280;
/// What fits into a packet without BIG TCP, and into a frame that carries payload.
const LARGEST_WITHOUT_BIG_TCP: u32 = 65536;
/// Smallest token bucket, bytes: a full frame.
const MIN_BURST: u64 = 1514;
/// Longest name of a queueing discipline, bytes: IFNAMSIZ less the final zero, as in brobust.h.
const MAX_NAME: usize = 15;

/// Whether a word is NAME.PARAMETER=NUMBER. Nothing else may reach a kernel's command line.
fn is_parameter(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    text.split_once('=')
        .is_some_and(|(name, value)| name.contains('.') && name.split('.').all(is_word) && value.parse::<u32>().is_ok())
}

impl Scenario {
    /// Refuses what cannot be measured, in one sentence that names the field, its value and what is allowed.
    pub fn check(&self) -> Result<(), String> {
        let mut problems = self.flows.iter().map(|flow| self.check_flow(flow));
        if let Some(problem) = problems.find_map(Result::err) {
            return Err(problem);
        }
        if self.flows.is_empty() || self.connections() > FLOWS {
            let (flows, all) = (self.flows.len(), self.connections());
            return Err(format!("flows: {flows}, with cross traffic {all} of them; a run has 1 to {FLOWS}"));
        }
        if let Some(transfers) = &self.transfers {
            self.check_transfers(transfers)?;
        }
        for (what, time) in [("duration", self.duration), ("interval", self.interval)] {
            if !(1..=MAX_TIME).contains(&time) {
                return Err(format!("{what}: {time} ns is not between 1 ns and an hour"));
            }
        }
        for (what, time) in [("nic.tx_completion", self.tx_completion), ("nic.coalesce", self.coalesce)] {
            if time > MAX_TIME {
                return Err(format!("{what}: {time} ns is more than an hour"));
            }
        }
        if !TSO_SIZES.contains(&self.tso_max_size) {
            let (min, max) = (TSO_SIZES.start(), TSO_SIZES.end());
            return Err(format!("nic.tso_max_size: {} is not between {min} and {max} bytes", self.tso_max_size));
        }
        if self.tso_max_size > LARGEST_WITHOUT_BIG_TCP && self.programs.is_some() {
            let max = LARGEST_WITHOUT_BIG_TCP;
            return Err(format!("nic.tso_max_size: {} with programs, which have up to {max} bytes", self.tso_max_size));
        }
        if ![4, 6].contains(&self.ip_version) {
            return Err(format!("path.ip_version: {} is not 4 or 6", self.ip_version));
        }
        if self.adaptive_rx && self.coalesce > 0 {
            return Err("nic.coalesce: adaptive_rx chooses the time by itself".into());
        }
        if self.senders.is_empty() || self.senders.len() > MAX_SENDERS {
            return Err(format!("senders: {} of them; a run has 1 to {MAX_SENDERS}", self.senders.len()));
        }
        if self.qdisc.len() > MAX_NAME {
            return Err(format!("qdisc: {:?} is not a name of at most {MAX_NAME} characters", self.qdisc));
        }
        if let Some(other) = self.parameters.iter().find(|parameter| !is_parameter(parameter)) {
            return Err(format!("parameters: {other:?} is not NAME.PARAMETER=NUMBER"));
        }
        if !(0.0..1.0).contains(&self.path.loss) {
            return Err(format!("path.loss: {} is not a fraction below 1", self.path.loss));
        }
        if (1..MIN_BURST).contains(&self.path.burst) {
            return Err(format!("path.burst: {} bytes let no full frame pass; give 0 or {MIN_BURST}", self.path.burst));
        }
        if self.path.second.is_some_and(|second| second.rate == 0) {
            return Err("path.second_bandwidth: a rate of 0 delivers nothing".into());
        }
        if self.path.second.is_some() && self.aqm.is_some() {
            return Err(
                "path.second_bandwidth: with path.aqm the bottleneck is a kernel, and there is no second".into()
            );
        }
        self.path.rate.check("path.bandwidth")?;
        if self.path.rate.min() == 0 {
            return Err("path.bandwidth: a rate of 0 delivers nothing".into());
        }
        let mut schedules = self.senders.iter().map(|sender| &sender.schedule).chain([&self.receiver]);
        schedules.try_for_each(Schedule::check).map_err(|error| error.to_string())?;
        for Sender { schedule, vcpus: VcpuOf { rx, tx }, .. } in &self.senders {
            let count = schedule.cpus();
            if let Some(other) = [rx, tx].into_iter().find(|vcpu| **vcpu as usize >= count) {
                return Err(format!("senders.vcpus: there is no vCPU {other}, only {count} of them, from 0 on"));
            }
        }
        match &self.programs {
            // The watcher is one more.
            Some(programs) if self.flows.len() + usize::from(programs.waits.is_some()) > PROGRAMS => Err(format!(
                "flows: {} of them; a run with programs has at most {PROGRAMS}, with programs.waits one less",
                self.flows.len()
            )),
            Some(programs) => programs.check(),
            None => Ok(()),
        }
    }

    /// Returns how many flows and transfers there are.
    pub fn connections(&self) -> usize {
        self.flows.len() + self.transfers.as_ref().map_or(0, |transfers| transfers.each.len())
    }

    /// Returns the sender and the RTT of every flow, and last those that all transfers have.
    pub fn routes(&self) -> impl Iterator<Item = (usize, &StepFunction)> {
        let of_transfers = self.transfers.iter().map(|transfers| (transfers.sender, &transfers.rtt));
        self.flows.iter().map(|flow| (flow.sender, &flow.rtt)).chain(of_transfers)
    }

    fn check_transfers(&self, transfers: &Transfers) -> Result<(), String> {
        self.check_route(transfers.sender, &transfers.rtt, &transfers.cc)?;
        if self.programs.is_some() {
            return Err("cross_traffic: programs send and receive, and it is not theirs".into());
        }
        if transfers.at_second && self.path.second.is_none() {
            return Err("cross_traffic.enters: there is no second bottleneck".into());
        }
        let in_order = transfers.each.is_sorted_by_key(|(start, _)| *start);
        if !in_order || transfers.each.iter().any(|(start, bytes)| *start > MAX_TIME || *bytes == 0) {
            return Err("cross_traffic: transfers out of order, later than an hour, or of no bytes".into());
        }
        Ok(())
    }

    fn check_route(&self, sender: usize, rtt: &StepFunction, cc: &str) -> Result<(), String> {
        rtt.check("rtt")?;
        if rtt.min() < 8 {
            return Err(format!("rtt: {} ns leaves no time between a sender and its receiver", rtt.min()));
        }
        if rtt.max() > MAX_TIME {
            return Err("flows: a time of more than an hour".into());
        }
        if sender >= self.senders.len() {
            return Err(format!("flows.sender: there is no sender {}", sender + 1));
        }
        if cc.is_empty() || cc.len() > 15 {
            return Err(format!("cc: {cc:?} is not a name of 1 to 15 characters"));
        }
        Ok(())
    }

    fn check_flow(&self, flow: &Flow) -> Result<(), String> {
        self.check_route(flow.sender, &flow.rtt, &flow.cc)?;
        if flow.start > MAX_TIME || flow.stop.is_some_and(|stop| stop > MAX_TIME) {
            return Err("flows: a time of more than an hour".into());
        }
        if matches!(flow.pattern, Pattern::Bulk { bytes: Some(0) }) {
            return Err("flows.bytes: a flow of no bytes never ends".into());
        }
        if matches!(flow.pattern, Pattern::Rate { every: 0, .. } | Pattern::Onoff { on: 0, off: 0 }) {
            return Err("flows.pattern: an interval of 0 never ends".into());
        }
        Ok(())
    }
}

impl Programs {
    /// Returns whether the senders' programs wait to be asked; else the receiver's do.
    pub fn sender_waits(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.at_sender)
    }

    fn check(&self) -> Result<(), String> {
        let watcher = self.waits.as_ref().map(|waits| ("waits", &waits.watcher));
        for (end, words) in [("sender", &self.sender), ("receiver", &self.receiver)].into_iter().chain(watcher) {
            if words.is_empty() || words.iter().chain(&self.environment).any(|word| word.contains('\0')) {
                return Err(format!("programs.{end}: it has no words, or one with a zero"));
            }
        }
        if self.linger > MAX_TIME || self.call > SECOND || self.poll > SECOND {
            return Err("programs: a call of more than a second, or a linger of more than an hour".into());
        }
        // A program that looks until something happens would look for ever, if that took no time.
        if self.call == 0 || self.poll == 0 {
            return Err("programs: a system call that takes no time".into());
        }
        Ok(())
    }
}

impl Flow {
    /// Returns how long the flow sends, ns. `duration` is the run's.
    pub fn sends_for(&self, duration: u64) -> u64 {
        self.stop.unwrap_or(duration).saturating_sub(self.start)
    }

    /// Returns how much the flow sends. None: as much as it can, or what its pattern says.
    pub fn bytes(&self) -> Option<u64> {
        match self.pattern {
            Pattern::Bulk { bytes } => bytes,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_that_cannot_be_are_refused() {
        let seed = include_str!("../tests/seeds/scenario/transfers.json");
        let with = |change: fn(&mut Transfers)| {
            let mut scenario: Scenario = serde_json::from_str(seed).unwrap();
            change(scenario.transfers.as_mut().unwrap());
            scenario.check()
        };
        assert_eq!(with(|_| ()), Ok(()));
        assert!(with(|transfers| transfers.each.reverse()).unwrap_err().contains("out of order"));
        assert!(with(|transfers| transfers.each[0].1 = 0).unwrap_err().contains("no bytes"));
        assert!(with(|transfers| transfers.at_second = true).unwrap_err().contains("no second bottleneck"));
        assert!(with(|transfers| transfers.sender = 2).unwrap_err().contains("no sender 3"));
        let many = with(|transfers| transfers.each = vec![(0, 1); FLOWS]).unwrap_err();
        assert!(many.contains("with cross traffic 32769"), "{many}");
    }
}
