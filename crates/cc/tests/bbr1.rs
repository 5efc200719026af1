//! The rules of BBR, version 1, of BBQ, and of the repair beside them.

mod common;

use brobust_cc::{ca_state, Connection, Control, Socket};
use common::{connection, Path};

fn in_probe_bw(control: &str) -> Path {
    let mut path = Path::new(control, 10, 20_000);
    path.until("drain", 2000);
    path.in_flight = Some(path.bdp());
    path.until("probe_bw", 100);
    path
}

/// Returns the length in ms of the next phase that paces at 1.25, with every RTT sample `rtt_us`.
fn probe_length(path: &mut Path, rtt_us: i64) -> u32 {
    path.in_flight = Some(path.bdp() * 2);
    let mut length = 0;
    for _ in 0..2000 {
        path.ack_with(|sample| sample.rtt_us = rtt_us);
        if path.pacing_gain() > 1.2 {
            length += 1;
        } else if length > 0 {
            return length;
        }
    }
    panic!("it never probed");
}

#[test]
fn startup_ends_after_three_rounds_without_a_quarter_more_bandwidth() {
    let mut path = Path::new("brb_bbr1", 10, 20_000);
    path.ack();
    assert!((path.pacing_gain() - 2.887).abs() < 0.01);
    let ms = path.until("drain", 2000);
    assert!((path.rounds(3)..=path.rounds(6)).contains(&ms), "{ms}");
}

#[test]
fn a_probe_lasts_for_one_minimum_rtt_and_that_of_bbq_for_alpha_while_there_is_a_queue_section_v_b() {
    for (control, rtt_us, expected_ms) in
        [("brb_bbr1", 30_000, 20..=22), ("brb_bbq", 30_000, 3..=5), ("brb_bbq", 20_000, 20..=22)]
    {
        let ms = probe_length(&mut in_probe_bw(control), rtt_us);
        assert!(expected_ms.contains(&ms), "{control}, RTT {rtt_us} us: {ms} ms");
    }
}

#[test]
fn a_probe_without_room_for_its_surplus_ends_with_a_loss() {
    let mut path = in_probe_bw("brb_bbr1");
    path.in_flight = Some(path.bdp() / 2);
    while path.pacing_gain() < 1.2 {
        path.ack();
    }
    path.acks(3);
    assert!(path.pacing_gain() > 1.2, "less than 1.25 BDP is in flight, so it goes on");
    path.ack_with(|sample| sample.losses = 1);
    assert!(path.pacing_gain() < 0.8);
}

#[test]
fn a_minimum_rtt_of_ten_seconds_is_refreshed_with_four_packets() {
    let mut path = in_probe_bw("brb_bbr1");
    path.rtt_us += 1000;
    path.in_flight = None;
    let ms = path.until("probe_rtt", 11_000);
    assert!(ms > 9000, "{ms}");
    path.ack();
    assert_eq!(path.conn.cwnd, 4);
    let ms = path.until("probe_bw", 1000);
    assert!((200..=260).contains(&ms), "{ms}");
    assert!(path.conn.cwnd > path.bdp());
}

#[test]
fn recovery_begins_with_packet_conservation_and_ends_with_the_window_before() {
    let mut path = in_probe_bw("brb_bbr1");
    let before = path.conn.cwnd;
    path.socket.ssthresh(&mut path.conn);
    path.conn.ca_state = ca_state::RECOVERY;
    path.in_flight = Some(50);
    path.ack_with(|sample| sample.losses = 1);
    assert_eq!(path.conn.cwnd, 60, "what is in flight, and what this ACK makes room for");
    path.conn.ca_state = ca_state::OPEN;
    path.ack();
    assert!(path.conn.cwnd >= before);
}

#[test]
fn a_deficit_raises_the_rate_until_it_is_over() {
    let mut path = in_probe_bw("brb_bbr1_robust");
    path.in_flight = Some(path.bdp() / 2);
    path.ack();
    assert!((path.pacing_gain() - 2.887).abs() < 0.01, "{}", path.pacing_gain());
    let raised = path.conn.pacing_rate;
    path.in_flight = Some(path.bdp() * 2);
    path.ack();
    assert!(path.conn.pacing_rate < raised / 2 + 1);
    assert_eq!(path.socket.report(&path.conn).deficit_acks, 1);
}

#[test]
fn a_deficit_is_no_proof_while_the_application_is_the_limit() {
    let signs: [fn(&mut Path); 2] =
        [|path| path.conn.app_limited = 1, |path| path.conn.unsent_bytes = path.conn.mss - 1];
    for sign in signs {
        let mut path = in_probe_bw("brb_bbr1_robust");
        path.in_flight = Some(1);
        sign(&mut path);
        path.ack();
        assert!(path.pacing_gain() < 1.3);
    }
    let mut path = in_probe_bw("brb_bbr1_robust");
    path.in_flight = Some(1);
    path.ack_with(|sample| sample.is_app_limited = 1);
    assert!(path.pacing_gain() < 1.3);
}

#[test]
fn a_deficit_outside_of_probe_bw_is_wanted() {
    let mut path = in_probe_bw("brb_bbr1_robust");
    path.rtt_us += 1000;
    path.until("probe_rtt", 11_000);
    path.in_flight = Some(1);
    path.ack();
    assert!((path.pacing_gain() - 1.0).abs() < 0.01);
}

#[test]
fn the_papers_patch_has_no_guard_counts_retransmissions_and_writes_the_gain() {
    let deficit = |path: &mut Path, lost: u32| {
        path.conn.unsent_bytes = 0;
        path.conn.app_limited = 1;
        path.conn.lost = lost;
        path.in_flight = Some(path.bdp() / 2);
        path.conn.snd_una = 0;
        path.conn.snd_nxt = path.bdp() / 2 * path.conn.mss;
        path.ack();
        path.pacing_gain()
    };
    let mut path = in_probe_bw("brb_bbr1_paper");
    assert!((deficit(&mut path, 0) - 2.887).abs() < 0.01);
    // BBR leaves a phase with so high a gain only with as many BDPs in flight: the gain cycle stands still.
    for _ in 0..path.rounds(20) {
        assert!((deficit(&mut path, 0) - 2.887).abs() < 0.01);
    }
    let half = path.bdp() / 2;
    assert!(deficit(&mut path, half + 2) < 1.3, "what was sent again hides the deficit for good");
    let mut path = in_probe_bw("brb_bbr1_paper");
    path.rtt_us += 1000;
    path.until("probe_rtt", 11_000);
    assert!((deficit(&mut path, 0) - 2.887).abs() < 0.01, "in every mode");
}

#[test]
fn nothing_overflows_at_a_terabit_and_ten_seconds() {
    for control in Control::all().iter().filter(|control| !control.is_window_based()) {
        let mut conn = Connection {
            tick_hz: 250,
            min_rtt_us: 10_000_000,
            srtt_us_8: 80_000_000,
            cwnd: 1 << 30,
            in_flight: 800_000_000,
            ..connection()
        };
        let mut socket = Socket::new(*control, &mut conn);
        let per_us = 1e12 / 8.0 / 1448.0 / 1e6; // packets
        for ack in 0..200_u32 {
            conn.now_us += 100_000;
            conn.delivered_us = conn.now_us;
            conn.now_ticks += 25;
            conn.delivered = conn.delivered.wrapping_add((per_us * 1e5) as u32);
            let sample = brobust_cc::Sample {
                interval_us: 10_000_000,
                rtt_us: 10_000_000,
                prior_delivered: conn.delivered.wrapping_sub((per_us * 1e7) as u32),
                delivered: (per_us * 1e7) as i32,
                acked_sacked: (per_us * 1e5) as u32,
                prior_in_flight: 800_000_000 + ack,
                ..Default::default()
            };
            socket.on_ack(&mut conn, &sample);
            assert!(conn.cwnd >= 4, "{control:?}");
        }
        let rate = conn.pacing_rate as f64 * 8.0;
        assert!((3e11..4e12).contains(&rate), "{control:?} paces at {rate:e} bit/s");
    }
}
