//! struct tcp_info (include/uapi/linux/tcp.h): what the stack reports about every TCP socket.

use crate::bytes::Bytes;

/// The fields of tcp_info that concern congestion control, in the kernel's order. None: the kernel is too old to report
/// it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// TCP_ESTABLISHED is 1 (include/net/tcp_states.h).
    pub state: Option<u8>,
    /// State of loss recovery: 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.
    pub ca_state: Option<u8>,
    /// Whether the application limited the sample that gave `delivery_rate`, rather than whether it is the limit now.
    pub delivery_rate_app_limited: Option<bool>,
    pub snd_mss_bytes: Option<u32>,
    pub unacked_packets: Option<u32>,
    pub sacked_packets: Option<u32>,
    pub lost_packets: Option<u32>,
    /// Packets retransmitted and not acknowledged yet.
    pub retrans_packets: Option<u32>,
    pub rtt_us: Option<u32>,
    pub ssthresh_packets: Option<u32>,
    pub cwnd_packets: Option<u32>,
    /// Retransmissions since the connection began.
    pub total_retrans_packets: Option<u32>,
    /// None also if the socket is not paced.
    pub pacing_rate_bytes_per_s: Option<u64>,
    pub bytes_acked: Option<u64>,
    pub notsent_bytes: Option<u32>,
    /// The stack's minimum (tcp_min_rtt, over 5 minutes); BBR keeps another one.
    pub min_rtt_us: Option<u32>,
    pub delivery_rate_bytes_per_s: Option<u64>,
    pub busy_us: Option<u64>,
    pub rwnd_limited_us: Option<u64>,
    pub sndbuf_limited_us: Option<u64>,
    pub delivered_packets: Option<u32>,
    /// Bytes sent, retransmissions included.
    pub bytes_sent: Option<u64>,
    pub bytes_retrans: Option<u64>,
}

impl TcpInfo {
    /// Reads the structure as far as it is there.
    pub fn parse(payload: &[u8]) -> TcpInfo {
        let info = Bytes(payload);
        TcpInfo {
            state: info.u8(0),
            ca_state: info.u8(1),
            delivery_rate_app_limited: info.u8(7).map(|bits| bits & 1 != 0),
            snd_mss_bytes: info.u32(16),
            unacked_packets: info.u32(24),
            sacked_packets: info.u32(28),
            lost_packets: info.u32(32),
            retrans_packets: info.u32(36),
            rtt_us: info.u32(68),
            ssthresh_packets: info.u32(76),
            cwnd_packets: info.u32(80),
            total_retrans_packets: info.u32(100),
            // All ones: no limit.
            pacing_rate_bytes_per_s: info.u64(104).filter(|rate| *rate != u64::MAX),
            bytes_acked: info.u64(120),
            notsent_bytes: info.u32(144),
            // All ones: no sample yet.
            min_rtt_us: info.u32(148).filter(|rtt| *rtt != u32::MAX),
            delivery_rate_bytes_per_s: info.u64(160),
            busy_us: info.u64(168),
            rwnd_limited_us: info.u64(176),
            sndbuf_limited_us: info.u64(184),
            delivered_packets: info.u32(192),
            bytes_sent: info.u64(200),
            bytes_retrans: info.u64(208),
        }
    }

    /// Returns the packets in flight, as the kernel's tcp_packets_in_flight counts them. `bytes_sent - bytes_acked`
    /// would count every retransmission ever made.
    pub fn inflight_packets(&self) -> Option<u32> {
        let left = self.sacked_packets?.saturating_add(self.lost_packets?);
        Some(self.unacked_packets?.saturating_sub(left).saturating_add(self.retrans_packets?))
    }
}

#[cfg(test)]
mod tests {
    use brobust_layout::headers;

    use super::*;

    /// A tcp_info in which each 32-bit word holds its own index.
    fn numbered(words: u32) -> Vec<u8> {
        (0..words).flat_map(u32::to_ne_bytes).collect()
    }

    #[test]
    fn fields_are_found_at_the_offsets_of_the_uapi_header() {
        let fields = [
            "tcpi_state",
            "tcpi_ca_state",
            "tcpi_snd_mss",
            "tcpi_unacked",
            "tcpi_sacked",
            "tcpi_lost",
            "tcpi_retrans",
            "tcpi_rtt",
            "tcpi_snd_ssthresh",
            "tcpi_snd_cwnd",
            "tcpi_total_retrans",
            "tcpi_pacing_rate",
            "tcpi_bytes_acked",
            "tcpi_notsent_bytes",
            "tcpi_min_rtt",
            "tcpi_delivery_rate",
            "tcpi_busy_time",
            "tcpi_rwnd_limited",
            "tcpi_sndbuf_limited",
            "tcpi_delivered",
            "tcpi_bytes_sent",
            "tcpi_bytes_retrans",
        ];
        let expected = TcpInfo {
            state: Some(1),
            ca_state: Some(2),
            delivery_rate_app_limited: Some(false), // a bit-field, which has no offset
            snd_mss_bytes: Some(3),
            unacked_packets: Some(4),
            sacked_packets: Some(5),
            lost_packets: Some(6),
            retrans_packets: Some(7),
            rtt_us: Some(8),
            ssthresh_packets: Some(9),
            cwnd_packets: Some(10),
            total_retrans_packets: Some(11),
            pacing_rate_bytes_per_s: Some(12),
            bytes_acked: Some(13),
            notsent_bytes: Some(14),
            min_rtt_us: Some(15),
            delivery_rate_bytes_per_s: Some(16),
            busy_us: Some(17),
            rwnd_limited_us: Some(18),
            sndbuf_limited_us: Some(19),
            delivered_packets: Some(20),
            bytes_sent: Some(21),
            bytes_retrans: Some(22),
        };
        assert_eq!(TcpInfo::parse(&headers::TCP.numbered("tcp_info", &fields)), expected);
    }

    #[test]
    fn a_kernel_of_any_age_is_understood() {
        let newest = numbered(80);
        for length in 0..newest.len() {
            let info = TcpInfo::parse(&newest[..length]);
            assert_eq!(info.cwnd_packets.is_some(), length >= 84);
            assert_eq!(info.bytes_retrans.is_some(), length >= 216);
        }
    }

    #[test]
    fn inflight_is_what_the_kernel_counts() {
        let info = TcpInfo {
            unacked_packets: Some(100),
            sacked_packets: Some(30),
            lost_packets: Some(20),
            retrans_packets: Some(5),
            ..TcpInfo::default()
        };
        assert_eq!(info.inflight_packets(), Some(55));
        // Some kernels read the counters without the socket's lock, so they may not match. The difference must not wrap
        // around.
        let torn = TcpInfo { sacked_packets: Some(90), ..info };
        assert_eq!(torn.inflight_packets(), Some(5));
        assert_eq!(TcpInfo::default().inflight_packets(), None);
    }
}
