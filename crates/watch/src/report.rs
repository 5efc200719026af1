//! A sweep as one JSON object. docs/watch.md lists its fields.

use serde::Serialize;

use crate::cause::{gather, Cause, Evidence};
use crate::flows::Flow;
use crate::groups::{mbps, Group};
use crate::host::HostLoad;
use crate::owners::{Owner, OwnerReport};

#[derive(Debug, Clone, Default, Serialize)]
pub struct SweepReport {
    pub sweep: u64,
    pub sockets: usize,
    pub host: HostLoad,
    /// Why sockets are CPU-limited, as far as the host's CPUs explain it. None if no socket is.
    pub why: Option<String>,
    /// Number of sockets by congestion control and cause.
    pub counts: Vec<Group>,
    pub bounds: Bounds,
    /// The sockets by the cgroups in which they were opened.
    pub owners: Vec<OwnerReport>,
    /// Number of network namespaces that were read.
    #[serde(skip)]
    pub namespaces: usize,
    /// What could not be read, and why.
    pub unread: Vec<String>,
    /// How many of these are about the host's CPUs.
    pub unread_host: usize,
    /// Number of dumps that the kernel called inconsistent each time they were asked for: sockets may be missing from
    /// them.
    pub interrupted: usize,
    /// Number of sockets that were not followed, or not over the whole window, for lack of memory.
    pub unfollowed: usize,
    /// Wall time of the sweep.
    pub took_ms: f64,
    /// CPU time of the thread that made the sweep, the kernel's part included.
    pub cpu_ms: f64,
    pub flows: Vec<FlowReport>,
}

/// The largest value in each bucket of the distributions. The last bucket has no bound.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Bounds {
    pub rate_mbps: &'static [f64],
    pub inflight_bdp: &'static [f64],
}

/// A socket. Rates are Mbit/s of payload (the pacing rate is the stack's), shares are of the window.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FlowReport {
    pub local: String,
    pub remote: String,
    /// Index of the network device to which it is bound; 0: none. Two sockets may differ in nothing else.
    pub interface: u32,
    /// Network namespace; empty: our own.
    pub netns: String,
    pub uid: u32,
    /// Id of its cgroup (v2); null if the kernel does not report it.
    pub cgroup_id: Option<u64>,
    #[serde(flatten)]
    pub owner: Owner,
    /// Share of the window in which a CPU limit throttled its cgroup; null if it has none.
    pub throttled_share: Option<f64>,
    pub cc: String,
    pub cause: &'static str,
    pub rate_mbps: f64,
    pub pacing_rate_mbps: Option<f64>,
    pub delivery_rate_mbps: f64,
    /// Latest values, in whole packets of the current MSS.
    pub cwnd_bytes: Option<u64>,
    pub inflight_bytes: Option<u64>,
    pub bdp_bytes: Option<u64>,
    #[serde(flatten)]
    pub evidence: Evidence,
    pub srtt_ms: Option<f64>,
    pub min_rtt_ms: Option<f64>,
}

impl SweepReport {
    /// Returns how many sockets have this cause.
    pub fn count(&self, cause: Cause) -> usize {
        self.counts.iter().filter(|line| line.cause == cause).map(|line| line.sockets).sum()
    }

    /// Returns how many of what could not be read are network namespaces, those that are hidden from us as one. A dump
    /// that was interrupted has been read, though sockets may be missing from it, and so may those that are not followed,
    /// of which there is one sentence.
    pub fn unread_namespaces(&self) -> usize {
        self.unread.len() - self.interrupted - self.unread_host - usize::from(self.unfollowed > 0)
    }
}

impl FlowReport {
    /// Makes the report of a flow in the namespace of that name. `owned`: whose it is, None where the kernel reports no
    /// cgroups.
    pub(crate) fn new(namespace: &str, flow: &Flow, owned: Option<&OwnerReport>) -> FlowReport {
        let (last, evidence) = (flow.history.last(), gather(&flow.history));
        FlowReport {
            local: flow.key.local.to_string(),
            remote: flow.key.remote.to_string(),
            interface: flow.key.interface,
            netns: namespace.to_owned(),
            uid: flow.uid,
            cgroup_id: flow.cgroup_id,
            owner: owned.map(|owned| owned.owner.clone()).unwrap_or_default(),
            throttled_share: owned.and_then(|owned| owned.throttled_share),
            cc: flow.congestion_control.to_string(),
            cause: flow.cause.name(),
            rate_mbps: mbps(evidence.rate_bytes_per_s),
            pacing_rate_mbps: last.and_then(|last| last.pacing_rate_bytes_per_s).map(|rate| mbps(rate as f64)),
            delivery_rate_mbps: mbps(last.map_or(0.0, |last| last.delivery_rate_bytes_per_s as f64)),
            cwnd_bytes: last.map(|last| last.cwnd_bytes),
            inflight_bytes: last.map(|last| last.inflight_bytes),
            bdp_bytes: last.and_then(|last| last.bdp).map(|(bytes, _)| bytes),
            evidence,
            srtt_ms: last.and_then(|last| last.srtt_us).map(|us| f64::from(us) / 1e3),
            min_rtt_ms: last.and_then(|last| last.min_rtt_us).map(|us| f64::from(us) / 1e3),
        }
    }
}
