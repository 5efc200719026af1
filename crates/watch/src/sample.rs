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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
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
    use brobust_sockdiag::SocketKey;

    use super::*;

    type Change = fn(&mut TcpInfo, &mut BbrInfo);

    #[test]
    fn draining_modes_have_the_numbers_of_c() {
        let names = ["CC_MODE_DRAIN", "CC_MODE_PROBE_RTT", "CC_MODE_PROBE_BW_DOWN"];
        assert_eq!(brobust_layout::headers::CC.values(&names), DRAINING_MODES.map(u64::from));
    }

    /// A sample of a socket of BBR with room for 4 of 24 packets of 1000 bytes, 1 MB/s and a minimum RTT of 10 ms; the
    /// stack's own are 500 kB/s and 40 ms.
    fn sample(change: impl Fn(&mut TcpInfo, &mut BbrInfo)) -> Sample {
        Sample::of(&socket(change)).expect("a sample")
    }

    fn socket(change: impl Fn(&mut TcpInfo, &mut BbrInfo)) -> Socket {
        let end = "127.0.0.1:1".parse().unwrap();
        let mut tcp = TcpInfo {
            snd_mss_bytes: Some(1_000),
            unacked_packets: Some(20),
            sacked_packets: Some(0),
            lost_packets: Some(0),
            retrans_packets: Some(0),
            cwnd_packets: Some(24),
            bytes_acked: Some(1),
            notsent_bytes: Some(1),
            delivery_rate_bytes_per_s: Some(500_000),
            min_rtt_us: Some(40_000),
            ..TcpInfo::default()
        };
        let mut bbr = BbrInfo {
            bandwidth_bytes_per_s: 1_000_000,
            min_rtt_us: Some(10_000),
            pacing_gain_x256: 256,
            cwnd_gain_x256: 512,
            ..BbrInfo::default()
        };
        change(&mut tcp, &mut bbr);
        Socket {
            key: SocketKey { local: end, remote: end, interface: 0, cookie: [1; 8] },
            time_ns: 0,
            uid: 0,
            cgroup_id: None,
            congestion_control: None,
            tcp,
            bbr: Some(bbr),
        }
    }

    #[test]
    fn what_is_in_flight_is_compared_with_bbrs_own_bdp_or_else_with_the_stacks() {
        let own = sample(|_, _| ());
        assert_eq!((own.inflight_bytes, own.cwnd_bytes, own.min_rtt_us), (20_000, 24_000, Some(10_000)));
        assert_eq!((own.bdp, own.inflight_bdp()), (Some((10_000, BdpSource::Bbr)), Some(2.0)));
        let stacks = Some((20_000, BdpSource::DeliveryRate));
        let without = Sample::of(&Socket { bbr: None, ..socket(|_, _| ()) }).expect("a sample");
        assert_eq!((without.bdp, without.min_rtt_us), (stacks, Some(40_000)));
        assert_eq!(sample(|_, bbr| bbr.bandwidth_bytes_per_s = 0).bdp, stacks, "BBR has no estimate yet");
        let nothing = |tcp: &mut TcpInfo, bbr: &mut BbrInfo| {
            (tcp.delivery_rate_bytes_per_s, bbr.bandwidth_bytes_per_s) = (Some(0), 0);
        };
        assert_eq!((sample(nothing).bdp, sample(nothing).inflight_bdp()), (None, None));
        assert_eq!(Sample::of(&socket(|tcp, _| tcp.snd_mss_bytes = None)), None);
    }

    #[test]
    fn a_deficit_means_something_where_data_waits_and_only_the_sender_could_be_why() {
        let changes: [(&str, bool, Change); 13] = [
            ("nothing else", true, |_, _| ()),
            ("no data", false, |tcp, _| tcp.notsent_bytes = Some(0)),
            ("seven eighths of cwnd", false, |tcp, _| tcp.unacked_packets = Some(21)),
            ("recovery", false, |tcp, _| tcp.ca_state = Some(3)),
            ("CWR", true, |tcp, _| tcp.ca_state = Some(2)),
            ("the application", false, |tcp, _| tcp.delivery_rate_app_limited = Some(true)),
            ("a gain below 1", false, |_, bbr| bbr.pacing_gain_x256 = 255),
            ("PROBE_RTT of the kernel's own", false, |_, bbr| bbr.cwnd_gain_x256 = 256),
            ("a cwnd gain of 1 in PROBE_BW", true, |_, bbr| (bbr.mode, bbr.cwnd_gain_x256) = (Some(2), 256)),
            ("DRAIN", false, |_, bbr| bbr.mode = Some(1)),
            ("PROBE_RTT", false, |_, bbr| bbr.mode = Some(3)),
            ("PROBE_BW_DOWN", false, |_, bbr| bbr.mode = Some(5)),
            ("a mode that drains, by its gain", false, |_, bbr| (bbr.mode, bbr.pacing_gain_x256) = (Some(2), 255)),
        ];
        for (what, could_send, change) in changes {
            assert_eq!(sample(change).could_send(), could_send, "{what}");
        }
        assert!(sample(|tcp, _| (tcp.notsent_bytes, tcp.unacked_packets) = (Some(0), Some(21))).has_data());
        assert!(!sample(|tcp, _| (tcp.notsent_bytes, tcp.unacked_packets) = (Some(0), Some(20))).has_data());
    }

    #[test]
    fn bbr_starts_while_it_paces_faster_than_it_ever_probes() {
        assert!(!sample(|_, bbr| bbr.pacing_gain_x256 = 320).is_starting);
        assert!(sample(|_, bbr| bbr.pacing_gain_x256 = 321).is_starting);
    }
}
