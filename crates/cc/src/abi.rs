//! The structs of cc/cc.h and of the host for programs in Rust, with C's names of all fields.

use std::ffi::{c_char, c_void};

use brobust_layout::structs_of_c;

structs_of_c! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Connection = "cc_connection" of CC {
        now_us: u64,
        delivered_us: u64,
        clock_ns: u64,
        departure_ns: u64,
        max_pacing_rate: u64,
        now_ticks: u32,
        tick_hz: u32,
        last_sent_ticks: u32,
        delivered: u32,
        lost: u32,
        in_flight: u32,
        unsent_bytes: u32,
        mss: u32,
        srtt_us_8: u32,
        min_rtt_us: u32,
        snd_una: u32,
        snd_nxt: u32,
        receiver_room: u32,
        cwnd_clamp: u32,
        prior_cwnd: u32,
        gso_max_size: u32,
        tso_max_bytes: u32,
        gso_limit: u32,
        pacing_shift: u8,
        ca_state: u8,
        is_cwnd_limited: u8,
        is_paced: u8,
        cwnd_was_full: u8,
        wants_pacing: u8,
        pacing_stride: u8,
        random_draws: u8,
        pacing_rate: u64,
        cwnd: u32,
        cwnd_count: u32,
        ssthresh: u32,
        app_limited: u32,
        random: [u32; 4],
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Sample = "cc_sample" of CC {
        interval_us: i64,
        rtt_us: i64,
        prior_delivered: u32,
        delivered: i32,
        losses: i32,
        acked_sacked: u32,
        prior_in_flight: u32,
        lost: i32,
        tx_in_flight: u32,
        is_app_limited: u8,
        is_retrans: u8,
        is_ack_delayed: u8,
        tells_losses: u8,
        is_acking_probe: u8,
    }

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    struct Report = "cc_report" of CC {
        bandwidth: u64,
        min_rtt_us: u32,
        pacing_gain: u32,
        cwnd_gain: u32,
        mode: u32,
        acks: u64,
        deficit_acks: u64,
    }

    struct Param = "cc_param" of CONTROL {
        value: *mut u32,
        name: *const c_char,
        unit: *const c_char,
        help: *const c_char,
        standard: u32,
        least: u32,
        most: u32,
    }

    struct Operations = "cc_operations" of CONTROL {
        name: *const c_char,
        control_size: usize,
        params: *const Param,
        params_end: *const Param,
        init: unsafe extern "C" fn(*mut Connection, *mut c_void),
        on_ack: Option<unsafe extern "C" fn(*mut Connection, *const Sample, *mut c_void)>,
        on_acked: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
        on_rtt: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
        set_state: Option<unsafe extern "C" fn(*mut Connection, u8, *mut c_void)>,
        on_event: Option<unsafe extern "C" fn(*mut Connection, u32, *mut c_void)>,
        on_send: Option<unsafe extern "C" fn(*mut Connection, *mut c_void)>,
        on_lost: Option<unsafe extern "C" fn(*mut Connection, *const Sample, *mut c_void)>,
        ssthresh: unsafe extern "C" fn(*mut Connection, *mut c_void) -> u32,
        undo_cwnd: unsafe extern "C" fn(*mut Connection, *mut c_void) -> u32,
        min_tso_segs: Option<unsafe extern "C" fn(u64) -> u32>,
        burst: Option<unsafe extern "C" fn(*const Connection, u32, *const c_void) -> u32>,
        sndbuf_expand: Option<unsafe extern "C" fn() -> u32>,
        report: unsafe extern "C" fn(*const Connection, *const c_void, *mut Report),
    }
}
