//! One sample of a socket: what says something about the flow's limit at one moment.

use brobust_sockdiag::{BbrInfo, Socket, TcpInfo};
use serde::Serialize;

/// A gain of 1: gains are multiplied by 256 (include/uapi/linux/inet_diag.h).
const UNIT: u32 = 256;
/// The maximum gain of PROBE_BW, 1.25, in every version of BBR (net/ipv4/tcp_bbr.c; draft-ietf-ccwg-bbr, section 5.3.3).
const MAX_PROBING_GAIN: u32 = UNIT * 5 / 4;
/// The modes of enum cc_mode (cc/cc.h) in which a BBR of ours has less in flight on purpose: DRAIN, PROBE_RTT,
/// PROBE_BW_DOWN.
const DRAINING_MODES: [u32; 3] = [1, 3, 5];

/// Whose estimate the bandwidth-delay product is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BdpSource {
    /// BBR's own estimates.
    Bbr,
    /// The stack's delivery rate times its min RTT, since the control shows no estimate.
    DeliveryRate,
}

/// The state of a socket. Counters count from the beginning of the connection. None: the kernel is too old to report
/// it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub bytes_acked: u64,
    pub bytes_sent: Option<u64>,
    pub bytes_retrans: Option<u64>,
    pub busy_us: Option<u64>,
    pub rwnd_limited_us: Option<u64>,
    pub sndbuf_limited_us: Option<u64>,
    pub notsent_bytes: u32,
    pub inflight_bytes: u64,
    pub cwnd_bytes: u64,
    pub pacing_rate_bytes_per_s: Option<u64>,
    pub delivery_rate_bytes_per_s: u64,
    pub srtt_us: Option<u32>,
    pub min_rtt_us: Option<u32>,
    /// The BDP in bytes and whose estimate it is. None before there is an estimate.
    pub bdp: Option<(u64, BdpSource)>,
    /// Whether BBR has less in flight on purpose: in DRAIN, in PROBE_RTT, or in the phase that drains what probing
    /// queued.
    pub is_draining: bool,
    /// Whether BBR paces faster than it probes, until its estimate has grown: in STARTUP, and in bbr_robust also while it
    /// has a deficit.
    pub is_starting: bool,
    /// Whether the stack calls its latest delivery rate sample application-limited.
    pub is_app_limited: bool,
    pub is_recovering: bool,
}

impl Sample {
    /// Takes a sample. None if the socket has sent nothing yet, or is no connection any more.
    pub fn of(socket: &Socket) -> Option<Sample> {
        let tcp = &socket.tcp;
        let mss = u64::from(tcp.snd_mss_bytes?);
        let model = socket.bbr.as_ref();
        Some(Sample {
            bytes_acked: tcp.bytes_acked?,
            bytes_sent: tcp.bytes_sent,
            bytes_retrans: tcp.bytes_retrans,
            busy_us: tcp.busy_us,
            rwnd_limited_us: tcp.rwnd_limited_us,
            sndbuf_limited_us: tcp.sndbuf_limited_us,
            notsent_bytes: tcp.notsent_bytes?,
            inflight_bytes: u64::from(tcp.inflight_packets()?) * mss,
            cwnd_bytes: u64::from(tcp.cwnd_packets?) * mss,
            pacing_rate_bytes_per_s: tcp.pacing_rate_bytes_per_s,
            delivery_rate_bytes_per_s: tcp.delivery_rate_bytes_per_s?,
            srtt_us: tcp.rtt_us,
            min_rtt_us: model.and_then(|bbr| bbr.min_rtt_us).or(tcp.min_rtt_us),
            bdp: bdp(model, tcp),
            is_draining: model.is_some_and(is_draining),
            is_starting: model.is_some_and(|bbr| bbr.pacing_gain_x256 > MAX_PROBING_GAIN),
            is_app_limited: tcp.delivery_rate_app_limited.unwrap_or(false),
            is_recovering: tcp.ca_state.is_some_and(|state| state >= 3),
        })
    }

    /// Returns the data in flight over the BDP.
    pub fn inflight_bdp(&self) -> Option<f64> {
        let (bdp, _) = self.bdp?;
        Some(self.inflight_bytes as f64 / bdp as f64)
    }

    /// Whether as much as cwnd allows is in flight, up to a packet or two for which an ACK has just made room.
    pub fn fills_cwnd(&self) -> bool {
        self.inflight_bytes * 8 >= self.cwnd_bytes * 7
    }

    /// Whether there is data to send, or as much as possible is already in flight.
    pub fn has_data(&self) -> bool {
        self.notsent_bytes > 0 || self.fills_cwnd()
    }

    /// Whether a deficit would mean something: data waits, the window has room, and BBR is not draining.
    pub fn could_send(&self) -> bool {
        self.notsent_bytes > 0 && !self.fills_cwnd() && !self.is_draining && !self.is_app_limited && !self.is_recovering
    }
}

fn bdp(model: Option<&BbrInfo>, tcp: &TcpInfo) -> Option<(u64, BdpSource)> {
    let own = model.filter(|bbr| bbr.bandwidth_bytes_per_s > 0).and_then(BbrInfo::bdp_bytes);
    let (bytes, source) = match own {
        Some(bytes) => (bytes, BdpSource::Bbr),
        None => {
            let product = u128::from(tcp.delivery_rate_bytes_per_s?) * u128::from(tcp.min_rtt_us?) / 1_000_000;
            (u64::try_from(product).ok()?, BdpSource::DeliveryRate)
        }
    };
    (bytes > 0).then_some((bytes, source))
}

fn is_draining(bbr: &BbrInfo) -> bool {
    match bbr.mode {
        Some(mode) => DRAINING_MODES.contains(&mode) || bbr.pacing_gain_x256 < UNIT,
        // The kernel's own BBR does not report its mode; in PROBE_RTT the cwnd gain is 1 (net/ipv4/tcp_bbr.c).
        None => bbr.pacing_gain_x256 < UNIT || bbr.cwnd_gain_x256 == UNIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_modes_have_the_numbers_of_c() {
        let names = ["CC_MODE_DRAIN", "CC_MODE_PROBE_RTT", "CC_MODE_PROBE_BW_DOWN"];
        assert_eq!(brobust_layout::headers::CC.values(&names), DRAINING_MODES.map(u64::from));
    }
}
