//! What a run is to be: python/brobust/backends/virtual.py writes it as JSON. Times in ns since the run's start, rates in
//! bit/s, costs in ps of CPU time.
use std::ops::RangeInclusive;
use std::path::PathBuf;

use brobust_timeline::Schedule;
use serde::Deserialize;

use crate::iperf3;
use crate::link::{Changing, Path};
use crate::qdisc::Aqm;
use crate::shared::FLOWS;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub kernel: PathBuf,
    pub seed: u64,
    pub duration: u64,
    /// Of the throughput over time.
    pub interval: u64,
    /// Upper limit of a socket's buffers, bytes.
    pub tcp_memory: u32,
    pub path: Path,
    /// A queueing discipline of the kernel in place of the link's own FIFO.
    pub aqm: Option<Aqm>,
    pub senders: Vec<Sender>,
    /// When the receiver's CPU may run.
    #[serde(default)]
    pub receiver: Schedule,
    pub flows: Vec<Flow>,
    /// For the kernels' command line: CONTROL.PARAMETER=NUMBER of the congestion controls, or sysctl.NAME=NUMBER
    #[serde(default)]
    pub parameters: Vec<String>,
    pub tx_completion: u64,
    pub coalesce: u64,
    /// What the senders' network devices take at once, bytes with headers.
    pub tso_max_size: u32,
    /// Of the senders; empty: the kernel's default, over which TCP paces by itself.
    pub qdisc: String,
    pub record: Record,
    /// An initial RAM disk with iperf3, which then sends and receives; none: source and sink in the kernel.
    pub iperf3: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sender {
    pub schedule: Schedule,
    #[serde(default)]
    pub cpu: CpuCost,
}

/// ps of CPU time; all 0: a CPU that is there is infinitely fast.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
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
    /// Index of its sender.
    pub sender: usize,
    pub start: u64,
    pub stop: Option<u64>,
    pub rtt: Changing,
    pub pattern: Pattern,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Pattern {
    Bulk,
    /// `bytes` every `every` ns
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
    /// Interval of samples, ns; 0: every ACK; none: no samples.
    pub samples: Option<u64>,
    pub packets: bool,
    pub pcap: Option<PathBuf>,
    /// A directory for a file of each sender, of its name: every call of our congestion controls (cc/call.h).
    pub calls: Option<PathBuf>,
}

/// Of a run and of any time within it: an hour, as python/brobust/scenario/model.py allows. Sums of them fit.
const LONGEST: u64 = 3_600_000_000_000;
const MOST_SENDERS: usize = 16;
/// Of two segments, to the kernel's GSO_LEGACY_MAX_SIZE.
const TSO_SIZES: RangeInclusive<u32> = 4096..=65536;
/// Of a queueing discipline's name (IFNAMSIZ) in brobust.h.
const LONGEST_NAME: usize = 15;

/// Nothing else may reach a kernel's command line.
fn is_parameter(text: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    text.split_once('=')
        .is_some_and(|(name, value)| name.contains('.') && name.split('.').all(is_word) && value.parse::<u32>().is_ok())
}

impl Scenario {
    pub fn check(&self) -> Result<(), String> {
        let mut problems = self.flows.iter().map(|flow| self.check_flow(flow));
        if let Some(problem) = problems.find_map(Result::err) {
            return Err(problem);
        }
        if self.flows.is_empty() || self.flows.len() > FLOWS {
            return Err(format!("flows: {} of them; a run has 1 to {FLOWS}", self.flows.len()));
        }
        for (what, time) in [("duration", self.duration), ("interval", self.interval)] {
            if !(1..=LONGEST).contains(&time) {
                return Err(format!("{what}: {time} ns is not between 1 ns and an hour"));
            }
        }
        for (what, time) in [("nic.tx_completion", self.tx_completion), ("nic.coalesce", self.coalesce)] {
            if time > LONGEST {
                return Err(format!("{what}: {time} ns is more than an hour"));
            }
        }
        if !TSO_SIZES.contains(&self.tso_max_size) {
            let (least, most) = (TSO_SIZES.start(), TSO_SIZES.end());
            return Err(format!("nic.tso_max_size: {} is not between {least} and {most} bytes", self.tso_max_size));
        }
        if self.senders.is_empty() || self.senders.len() > MOST_SENDERS {
            return Err(format!("senders: {} of them; a run has 1 to {MOST_SENDERS}", self.senders.len()));
        }
        if self.qdisc.len() > LONGEST_NAME {
            return Err(format!("qdisc: {:?} is not a name of at most {LONGEST_NAME} characters", self.qdisc));
        }
        if let Some(other) = self.parameters.iter().find(|parameter| !is_parameter(parameter)) {
            return Err(format!("parameters: {other:?} is not NAME.PARAMETER=NUMBER"));
        }
        if !(0.0..1.0).contains(&self.path.loss) {
            return Err(format!("path.loss: {} is not a fraction below 1", self.path.loss));
        }
        self.path.rate.check("path.bandwidth")?;
        if self.path.rate.least() == 0 {
            return Err("path.bandwidth: a rate of 0 delivers nothing".into());
        }
        let mut schedules = self.senders.iter().map(|sender| &sender.schedule).chain([&self.receiver]);
        schedules.try_for_each(Schedule::check).map_err(|error| error.to_string())?;
        if self.iperf3.is_some() {
            self.flows.iter().try_for_each(|flow| iperf3::check(flow, self.duration))?;
        }
        Ok(())
    }

    fn check_flow(&self, flow: &Flow) -> Result<(), String> {
        flow.rtt.check("rtt")?;
        if flow.rtt.least() < 8 {
            return Err(format!("rtt: {} ns leaves no time between a sender and its receiver", flow.rtt.least()));
        }
        if flow.rtt.greatest() > LONGEST || flow.start > LONGEST || flow.stop.is_some_and(|stop| stop > LONGEST) {
            return Err("flows: a time of more than an hour".into());
        }
        if flow.sender >= self.senders.len() {
            return Err(format!("flows.sender: there is no sender {}", flow.sender + 1));
        }
        if flow.cc.is_empty() || flow.cc.len() > 15 {
            return Err(format!("cc: {:?} is not a name of 1 to 15 characters", flow.cc));
        }
        if matches!(flow.pattern, Pattern::Rate { every: 0, .. } | Pattern::Onoff { on: 0, off: 0 }) {
            return Err("flows.pattern: an interval of 0 never ends".into());
        }
        Ok(())
    }
}
