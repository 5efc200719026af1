//! The structs of cc/cc.h and of the host for programs in Rust, with C's names of all fields. The test at the end
//! compares them with C, field by field.

use std::ffi::{c_char, c_void};

/// struct cc_connection
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connection {
    pub now_us: u64,
    pub delivered_us: u64,
    pub clock_ns: u64,
    pub departure_ns: u64,
    pub max_pacing_rate: u64,
    pub now_ticks: u32,
    pub tick_hz: u32,
    pub last_sent_ticks: u32,
    pub delivered: u32,
    pub lost: u32,
    pub in_flight: u32,
    pub unsent_bytes: u32,
    pub mss: u32,
    pub srtt_us_8: u32,
    pub min_rtt_us: u32,
    pub snd_una: u32,
    pub snd_nxt: u32,
    pub receiver_room: u32,
    pub cwnd_clamp: u32,
    pub prior_cwnd: u32,
    pub gso_max_size: u32,
    pub tso_max_bytes: u32,
    pub gso_limit: u32,
    pub pacing_shift: u8,
    pub ca_state: u8,
    pub is_cwnd_limited: u8,
    pub is_paced: u8,
    pub cwnd_was_full: u8,
    pub wants_pacing: u8,
    pub pacing_stride: u8,
    pub random_draws: u8,
    pub pacing_rate: u64,
    pub cwnd: u32,
    pub cwnd_count: u32,
    pub ssthresh: u32,
    pub app_limited: u32,
    pub random: [u32; 4],
}

/// struct cc_sample
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    pub interval_us: i64,
    pub rtt_us: i64,
    pub prior_delivered: u32,
    pub delivered: i32,
    pub losses: i32,
    pub acked_sacked: u32,
    pub prior_in_flight: u32,
    pub lost: i32,
    pub tx_in_flight: u32,
    pub is_app_limited: u8,
    pub is_retrans: u8,
    pub is_ack_delayed: u8,
    pub tells_losses: u8,
    pub is_acking_probe: u8,
}

/// struct cc_report
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    pub bandwidth: u64,
    pub min_rtt_us: u32,
    pub pacing_gain: u32,
    pub cwnd_gain: u32,
    pub mode: u32,
    pub acks: u64,
    pub deficit_acks: u64,
}

/// struct cc_param
#[repr(C)]
pub struct Param {
    pub value: *mut u32,
    pub name: *const c_char,
    pub unit: *const c_char,
    pub help: *const c_char,
    pub standard: u32,
    pub least: u32,
    pub most: u32,
}

/// struct cc_operations
#[repr(C)]
pub struct Operations {
    pub name: *const c_char,
    pub control_size: usize,
    pub params: *const Param,
    pub params_end: *const Param,
    pub init: unsafe extern "C" fn(*mut Connection, *mut c_void),
    pub on_ack: Option<unsafe extern "C" fn(*mut Connection, *const Sample, *mut c_void)>,
    pub on_acked: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
    pub on_rtt: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
    pub set_state: Option<unsafe extern "C" fn(*mut Connection, u8, *mut c_void)>,
    pub on_event: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
    pub on_send: Option<unsafe extern "C" fn(*mut Connection, *mut c_void)>,
    pub on_lost: Option<unsafe extern "C" fn(*mut Connection, *const Sample, *mut c_void)>,
    pub ssthresh: unsafe extern "C" fn(*mut Connection, *mut c_void) -> u32,
    pub undo_cwnd: unsafe extern "C" fn(*mut Connection, *mut c_void) -> u32,
    pub min_tso_segs: Option<unsafe extern "C" fn(u64) -> u32>,
    pub burst: Option<unsafe extern "C" fn(*const Connection, u32, *const c_void) -> u32>,
    pub sndbuf_expand: Option<unsafe extern "C" fn() -> u32>,
    pub report: unsafe extern "C" fn(*const Connection, *const c_void, *mut Report),
}

#[cfg(test)]
mod tests {
    use brobust_layout::{assert_same_layout, headers};

    use super::*;

    #[test]
    fn every_field_is_where_c_has_it() {
        assert_same_layout!(
            headers::CC,
            "cc_connection",
            Connection {
                now_us,
                delivered_us,
                clock_ns,
                departure_ns,
                max_pacing_rate,
                now_ticks,
                tick_hz,
                last_sent_ticks,
                delivered,
                lost,
                in_flight,
                unsent_bytes,
                mss,
                srtt_us_8,
                min_rtt_us,
                snd_una,
                snd_nxt,
                receiver_room,
                cwnd_clamp,
                prior_cwnd,
                gso_max_size,
                tso_max_bytes,
                gso_limit,
                pacing_shift,
                ca_state,
                is_cwnd_limited,
                is_paced,
                cwnd_was_full,
                wants_pacing,
                pacing_stride,
                random_draws,
                pacing_rate,
                cwnd,
                cwnd_count,
                ssthresh,
                app_limited,
                random,
            }
        );
        assert_same_layout!(
            headers::CC,
            "cc_sample",
            Sample {
                interval_us,
                rtt_us,
                prior_delivered,
                delivered,
                losses,
                acked_sacked,
                prior_in_flight,
                lost,
                tx_in_flight,
                is_app_limited,
                is_retrans,
                is_ack_delayed,
                tells_losses,
                is_acking_probe,
            }
        );
        assert_same_layout!(
            headers::CC,
            "cc_report",
            Report { bandwidth, min_rtt_us, pacing_gain, cwnd_gain, mode, acks, deficit_acks }
        );
        assert_same_layout!(headers::CONTROL, "cc_param", Param { value, name, unit, help, standard, least, most });
        assert_same_layout!(
            headers::CONTROL,
            "cc_operations",
            Operations {
                name,
                control_size,
                params,
                params_end,
                init,
                on_ack,
                on_acked,
                on_rtt,
                set_state,
                on_event,
                on_send,
                on_lost,
                ssthresh,
                undo_cwnd,
                min_tso_segs,
                burst,
                sndbuf_expand,
                report,
            }
        );
    }
}
