//! A sweep as people and programs read it: one JSON object. docs/watch.md has the fields.

use serde::Serialize;

use crate::cause::Cause;
use crate::host::HostLoad;
use crate::sample::BdpSource;
use crate::watch::{Flow, Sweep};

#[derive(Debug, Clone, Serialize)]
pub struct SweepReport {
    pub sweep: u64,
    pub sockets: usize,
    pub host: HostLoad,
    /// Sockets by congestion control and cause.
    pub counts: Vec<Count>,
    /// What could not be read, and why.
    pub unread: Vec<String>,
    pub flows: Vec<FlowReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Count {
    pub cc: String,
    pub cause: &'static str,
    pub sockets: usize,
}

/// A socket. Rates in Mbit/s of payload (pacing rate: as the stack has it); shares are of the window.
#[derive(Debug, Clone, Serialize)]
pub struct FlowReport {
    pub local: String,
    pub remote: String,
    /// Network namespace; empty: our own.
    pub netns: String,
    pub uid: u32,
    pub cc: String,
    pub cause: &'static str,
    pub rate_mbps: f64,
    pub pacing_rate_mbps: Option<f64>,
    /// Acknowledged, over what pacing would have sent.
    pub paced_share: Option<f64>,
    pub delivery_rate_mbps: f64,
    pub bdp_bytes: Option<u64>,
    /// bbr: by BBR's own estimates; delivery-rate: delivery rate x min RTT.
    pub bdp_source: Option<&'static str>,
    /// Median over the window.
    pub inflight_bdp: Option<f64>,
    /// Of the samples in which data, cwnd and phase would have let it send: less than 1 BDP in flight.
    pub deficit_share: Option<f64>,
    /// Those samples, and all.
    pub could_send: usize,
    pub samples: usize,
    pub seconds: f64,
    pub busy_share: Option<f64>,
    pub rwnd_limited_share: Option<f64>,
    pub sndbuf_limited_share: Option<f64>,
    pub data_share: f64,
    pub retransmit_share: Option<f64>,
    pub min_rtt_ms: Option<f64>,
}

impl SweepReport {
    pub fn new(sweep: &Sweep, flows: &[&Flow]) -> SweepReport {
        SweepReport {
            sweep: sweep.number,
            sockets: sweep.sockets,
            host: sweep.host,
            counts: sweep
                .counts
                .iter()
                .map(|((cc, cause), sockets)| Count { cc: cc.clone(), cause: cause.name(), sockets: *sockets })
                .collect(),
            unread: sweep.unread.clone(),
            flows: flows.iter().map(|flow| FlowReport::new(flow)).collect(),
        }
    }

    pub fn count(&self, cause: Cause) -> usize {
        self.counts.iter().filter(|count| count.cause == cause.name()).map(|count| count.sockets).sum()
    }
}

impl FlowReport {
    fn new(flow: &Flow) -> FlowReport {
        let (last, evidence) = (flow.samples.back(), &flow.verdict.evidence);
        let mbps = |bytes: f64| bytes * 8e-6;
        FlowReport {
            local: flow.key.local.to_string(),
            remote: flow.key.remote.to_string(),
            netns: flow.namespace.clone(),
            uid: flow.uid,
            cc: flow.congestion_control.clone(),
            cause: flow.verdict.cause.name(),
            rate_mbps: mbps(evidence.rate_bytes_per_s),
            pacing_rate_mbps: last.and_then(|last| last.pacing_rate_bytes_per_s).map(|rate| mbps(rate as f64)),
            paced_share: evidence.paced_share,
            delivery_rate_mbps: mbps(last.map_or(0.0, |last| last.delivery_rate_bytes_per_s as f64)),
            bdp_bytes: last.and_then(|last| last.bdp).map(|(bytes, _)| bytes),
            bdp_source: evidence.bdp_source.map(BdpSource::name),
            inflight_bdp: evidence.inflight_bdp,
            deficit_share: evidence.deficit_share,
            could_send: evidence.could_send,
            samples: evidence.samples,
            seconds: evidence.seconds,
            busy_share: evidence.busy_share,
            rwnd_limited_share: evidence.rwnd_limited_share,
            sndbuf_limited_share: evidence.sndbuf_limited_share,
            data_share: evidence.data_share,
            retransmit_share: evidence.retransmit_share,
            min_rtt_ms: last.and_then(|last| last.min_rtt_us).map(|us| f64::from(us) / 1e3),
        }
    }
}
