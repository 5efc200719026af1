//! struct tcp_info (include/uapi/linux/tcp.h): what the stack reports about every TCP socket.

use crate::bytes::Bytes;

/// Declares the struct and its reader by the type of each field, its name in C and its offset there. `except` a number:
/// with that one C says that there is none.
macro_rules! tcp_info {
    ($($(#[$about:meta])* $field:ident: $type:ident = $in_c:literal at $offset:literal $(except $none:path)?;)*) => {
        /// The fields of tcp_info that concern congestion control. None: the kernel is too old to report it.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct TcpInfo {
            $($(#[$about])*
            pub $field: Option<$type>,)*
            /// Whether the application limited the sample that gave `delivery_rate`, not whether it is the limit now.
            pub delivery_rate_app_limited: Option<bool>,
        }

        impl TcpInfo {
            /// Reads the structure as far as it is there.
            pub fn parse(payload: &[u8]) -> TcpInfo {
                let info = Bytes(payload);
                TcpInfo {
                    $($field: info.$type($offset)$(.filter(|number| *number != $none))?,)*
                    // C has it as a bit-field, which has no offset.
                    delivery_rate_app_limited: info.u8(7).map(|bits| bits & 1 != 0),
                }
            }

            /// Returns C's name and the value of each field.
            #[cfg(test)]
            fn in_c(&self) -> Vec<(&'static str, Option<u64>)> {
                vec![$(($in_c, self.$field.map(u64::from))),*]
            }
        }
    };
}

const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff; // include/net/tcp.h

tcp_info! {
    /// TCP_ESTABLISHED is 1 (include/net/tcp_states.h).
    state: u8 = "tcpi_state" at 0;
    /// State of loss recovery: 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss.
    ca_state: u8 = "tcpi_ca_state" at 1;
    snd_mss_bytes: u32 = "tcpi_snd_mss" at 16;
    unacked_packets: u32 = "tcpi_unacked" at 24;
    sacked_packets: u32 = "tcpi_sacked" at 28;
    lost_packets: u32 = "tcpi_lost" at 32;
    /// Packets retransmitted and not acknowledged yet.
    retrans_packets: u32 = "tcpi_retrans" at 36;
    rtt_us: u32 = "tcpi_rtt" at 68;
    /// None also as long as no loss has set one.
    ssthresh_packets: u32 = "tcpi_snd_ssthresh" at 76 except TCP_INFINITE_SSTHRESH;
    cwnd_packets: u32 = "tcpi_snd_cwnd" at 80;
    /// Retransmissions since the connection began.
    total_retrans_packets: u32 = "tcpi_total_retrans" at 100;
    /// None also if the socket is not paced.
    pacing_rate_bytes_per_s: u64 = "tcpi_pacing_rate" at 104 except u64::MAX;
    bytes_acked: u64 = "tcpi_bytes_acked" at 120;
    notsent_bytes: u32 = "tcpi_notsent_bytes" at 144;
    /// The stack's minimum (tcp_min_rtt, over 5 minutes); BBR keeps another one. None also before the first sample.
    min_rtt_us: u32 = "tcpi_min_rtt" at 148 except u32::MAX;
    delivery_rate_bytes_per_s: u64 = "tcpi_delivery_rate" at 160;
    busy_us: u64 = "tcpi_busy_time" at 168;
    rwnd_limited_us: u64 = "tcpi_rwnd_limited" at 176;
    sndbuf_limited_us: u64 = "tcpi_sndbuf_limited" at 184;
    delivered_packets: u32 = "tcpi_delivered" at 192;
    /// Bytes sent, retransmissions included.
    bytes_sent: u64 = "tcpi_bytes_sent" at 200;
    bytes_retrans: u64 = "tcpi_bytes_retrans" at 208;
}

impl TcpInfo {
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
        let names: Vec<&str> = TcpInfo::default().in_c().into_iter().map(|(name, _)| name).collect();
        let info = TcpInfo::parse(&headers::TCP.numbered("tcp_info", &names));
        let numbered: Vec<_> = names.into_iter().zip((1..).map(Some)).collect();
        assert_eq!((info.in_c(), info.delivery_rate_app_limited), (numbered, Some(false)));
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
