//! struct tcp_bbr_info (include/uapi/linux/inet_diag.h): BBR's model of the path.

use crate::bytes::Bytes;

/// BBR's model. The kernel reports it for its own BBR only; controls in BPF export the same fields, and more, in their
/// socket storage (struct cc_report in cc/cc.h).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BbrInfo {
    /// Payload per second, without the pacing margin.
    pub bandwidth_bytes_per_s: u64,
    /// None until there is a sample.
    pub min_rtt_us: Option<u32>,
    /// 256 times the gain, as in the kernel.
    pub pacing_gain_x256: u32,
    /// 256 times the gain, as in the kernel.
    pub cwnd_gain_x256: u32,
    /// A number of enum cc_mode (cc/cc.h). Only controls in BPF report this and the fields below.
    pub mode: Option<u32>,
    /// Acknowledgements processed.
    pub acks: Option<u64>,
    /// Acknowledgements that found less than one BDP in flight.
    pub deficit_acks: Option<u64>,
}

impl BbrInfo {
    /// Reads struct tcp_bbr_info. None if even the fields are cut off that every kernel sends.
    pub fn parse(payload: &[u8]) -> Option<BbrInfo> {
        let info = Bytes(payload);
        Some(BbrInfo {
            bandwidth_bytes_per_s: u64::from(info.u32(0)?) | u64::from(info.u32(4)?) << 32,
            min_rtt_us: Some(info.u32(8)?).filter(|rtt| *rtt != u32::MAX),
            pacing_gain_x256: info.u32(12)?,
            cwnd_gain_x256: info.u32(16)?,
            mode: None,
            acks: None,
            deficit_acks: None,
        })
    }

    /// Reads struct cc_report of a BPF control, which begins like tcp_bbr_info. Fields at its end may be cut off.
    pub fn parse_export(payload: &[u8]) -> Option<BbrInfo> {
        let info = Bytes(payload);
        Some(BbrInfo { mode: info.u32(20), acks: info.u64(24), deficit_acks: info.u64(32), ..BbrInfo::parse(payload)? })
    }

    /// Returns the bandwidth-delay product. None until there is an RTT sample.
    pub fn bdp_bytes(&self) -> Option<u64> {
        let product = u128::from(self.bandwidth_bytes_per_s) * u128::from(self.min_rtt_us?);
        u64::try_from(product / 1_000_000).ok()
    }
}

#[cfg(test)]
mod tests {
    use brobust_layout::headers;

    use super::*;

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn fields_are_found_where_c_has_them() {
        let fields = ["bbr_bw_lo", "bbr_bw_hi", "bbr_min_rtt", "bbr_pacing_gain", "bbr_cwnd_gain"];
        let info = BbrInfo::parse(&headers::INET_DIAG.numbered("tcp_bbr_info", &fields)).unwrap();
        assert_eq!(info.bandwidth_bytes_per_s, 1 | 2 << 32);
        assert_eq!((info.min_rtt_us, info.pacing_gain_x256, info.cwnd_gain_x256), (Some(3), 4, 5));

        let fields = ["bandwidth", "min_rtt_us", "pacing_gain", "cwnd_gain", "mode", "acks", "deficit_acks"];
        let info = BbrInfo::parse_export(&headers::CC.numbered("cc_report", &fields)).unwrap();
        let expected = BbrInfo {
            bandwidth_bytes_per_s: 1,
            min_rtt_us: Some(2),
            pacing_gain_x256: 3,
            cwnd_gain_x256: 4,
            mode: Some(5),
            acks: Some(6),
            deficit_acks: Some(7),
        };
        assert_eq!(info, expected);
    }

    #[test]
    fn the_model_and_its_bdp_are_read() {
        let info = BbrInfo::parse(&words(&[12_500_000, 0, 10_000, 320, 512])).unwrap();
        assert_eq!((info.pacing_gain_x256, info.cwnd_gain_x256, info.mode), (320, 512, None));
        assert_eq!(info.bdp_bytes(), Some(125_000));
    }

    #[test]
    fn no_rtt_sample_means_no_bdp() {
        let info = BbrInfo::parse(&words(&[1, 1, u32::MAX, 739, 739])).unwrap();
        assert_eq!(info.bandwidth_bytes_per_s, 1 << 32 | 1);
        assert_eq!(info.bdp_bytes(), None);
    }

    #[test]
    fn a_cut_off_message_is_no_model() {
        let whole = words(&[1, 0, 2, 3, 4, 2, 7, 0, 5, 0]);
        for length in 0..whole.len() {
            assert_eq!(BbrInfo::parse(&whole[..length]).is_some(), length >= 20);
            assert_eq!(BbrInfo::parse_export(&whole[..length]).is_some(), length >= 20);
        }
        let info = BbrInfo::parse_export(&whole).unwrap();
        assert_eq!((info.mode, info.acks, info.deficit_acks), (Some(2), Some(7), Some(5)));
    }
}
