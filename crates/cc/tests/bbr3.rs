//! The rules of BBR, version 3 and 2, by which it moves from phase to phase. Sections are draft-ietf-ccwg-bbr's.

mod common;

use brobust_cc::{ca_state, Sample, EVENT_TLP_RECOVERY, EVENT_TX_START};
use common::Path;

fn startup_over(control: &str) -> Path {
    let mut path = Path::new(control, 10, 20_000);
    path.until("drain", 2000);
    path
}

fn cruising(control: &str) -> Path {
    let mut path = startup_over(control);
    path.in_flight = Some(path.bdp() / 2);
    path.until("probe_bw_cruise", 100);
    path
}

fn probing(control: &str) -> Path {
    let mut path = cruising(control);
    path.until("probe_bw_up", 4000);
    path
}

#[test]
fn startup_paces_at_four_ln_two_and_ends_after_three_rounds_without_growth_5_3_1_2() {
    let mut path = Path::new("brb_bbr3", 10, 20_000);
    path.ack();
    assert!((path.pacing_gain() - 2.773).abs() < 0.01);
    let ms = path.until("drain", 2000);
    assert!((path.rounds(3)..=path.rounds(6)).contains(&ms), "{ms}");
    assert!((path.estimate() - 10.0).abs() < 0.1, "{}", path.estimate());
}

#[test]
fn startup_goes_on_while_bandwidth_grows_by_a_quarter() {
    let mut path = Path::new("brb_bbr3", 10, 20_000);
    for _ in 0..8 {
        path.acks(2);
        path.rate = path.rate * 3 / 2;
    }
    assert_eq!(path.mode(), "startup");
}

#[test]
fn startup_ends_in_a_round_of_recovery_with_six_lossy_acks_and_more_than_two_percent_5_3_1_3() {
    let lossy = |control: &str, acks: u32| {
        let mut path = Path::new(control, 10, 20_000);
        path.conn.ca_state = ca_state::RECOVERY;
        for ms in 0..path.rounds(3) {
            let losses = i32::from(ms % 20 < acks) * 2;
            path.ack_with(|sample| sample.losses = losses);
            if path.mode() != "startup" {
                return true;
            }
        }
        false
    };
    let least = |control: &str| (1..20).find(|acks| lossy(control, *acks)).unwrap();
    assert!((4..=6).contains(&least("brb_bbr3")), "a round that began with a loss is counted whole");
    assert!(least("brb_bbr2") > least("brb_bbr3"), "version 2 waits for eight");
}

#[test]
fn drain_ends_with_one_bdp_in_flight_5_3_2() {
    let mut path = startup_over("brb_bbr3");
    path.in_flight = Some(path.bdp() * 2);
    path.acks(10);
    assert_eq!(path.mode(), "drain");
    assert!(path.pacing_gain() < 0.36);
    path.in_flight = Some(path.bdp());
    path.ack();
    assert_eq!(path.mode(), "probe_bw_down");
}

#[test]
fn the_drafts_drain_ends_after_three_rounds_and_paces_at_a_half() {
    let mut path = startup_over("brb_bbr3_draft");
    path.in_flight = Some(path.bdp() * 2);
    path.ack();
    assert!((path.pacing_gain() - 0.5).abs() < 0.01);
    let ms = path.until("probe_bw_down", path.rounds(5));
    assert!(ms >= path.rounds(2), "{ms}");
}

#[test]
fn down_becomes_cruise_when_in_flight_is_below_the_bdp_5_3_3_1() {
    let mut path = startup_over("brb_bbr3");
    path.in_flight = Some(path.bdp());
    path.until("probe_bw_down", 100);
    path.in_flight = Some(path.bdp() * 2);
    path.acks(3);
    assert_eq!(path.mode(), "probe_bw_down");
    path.in_flight = Some(path.bdp() / 2);
    path.until("probe_bw_cruise", 5);
    path.ack();
    assert!((path.pacing_gain() - 1.0).abs() < 0.001);
}

#[test]
fn it_probes_two_to_three_seconds_after_the_last_time_5_3_3_5_1() {
    let mut path = cruising("brb_bbr3");
    path.rtt_us = 200_000; // 63 rounds would be longer
    path.conn.min_rtt_us = 200_000;
    let ms = path.until("probe_bw_refill", 4000);
    assert!((1800..=3100).contains(&ms), "{ms}");
}

#[test]
fn it_probes_sooner_where_a_reno_flow_would_5_3_3_5_2() {
    let mut path = cruising("brb_bbr3");
    let ms = path.until("probe_bw_refill", 4000);
    assert!(ms <= path.rounds(64), "{ms}");
}

#[test]
fn refill_lasts_one_round_and_is_followed_by_up_5_3_3_2() {
    let mut path = cruising("brb_bbr3");
    path.until("probe_bw_refill", 4000);
    let ms = path.until("probe_bw_up", 200);
    assert!((path.rounds(1) - 1..=path.rounds(1) + 2).contains(&ms), "{ms}");
    path.ack();
    assert!((path.pacing_gain() - 1.25).abs() < 0.001);
}

#[test]
fn up_ends_when_bandwidth_grows_no_more_5_3_3_3() {
    let mut path = probing("brb_bbr3");
    path.in_flight = Some(path.bdp() * 2); // version 2 would be done by now
    let ms = path.until("probe_bw_down", 400);
    assert!((path.rounds(2)..=path.rounds(5)).contains(&ms), "{ms}");
}

#[test]
fn version_2_ends_up_with_a_quarter_above_the_bdp_in_flight() {
    let mut path = probing("brb_bbr2");
    path.acks(10);
    assert_eq!(path.mode(), "probe_bw_up", "not below it, however long");
    path.in_flight = Some(path.bdp() * 2);
    path.ack();
    assert_eq!(path.mode(), "probe_bw_down");
}

#[test]
fn up_ends_when_more_than_two_percent_is_lost_and_the_window_remembers_5_3_3_6() {
    let mut path = probing("brb_bbr3");
    path.acks(1); // now samples are those of the probe
    let before = path.conn.cwnd;
    path.in_flight = Some(path.bdp() * 2);
    path.ack_with(|sample| sample.losses = 30);
    assert_eq!(path.mode(), "probe_bw_down");
    path.acks(2);
    assert!(path.conn.cwnd < before && path.conn.cwnd >= path.bdp() / 2, "{} of {before}", path.conn.cwnd);
}

#[test]
fn losses_below_two_percent_do_not_end_up() {
    let mut path = probing("brb_bbr3");
    path.acks(1);
    path.ack_with(|sample| sample.losses = 1);
    assert_eq!(path.mode(), "probe_bw_up");
}

#[test]
fn losses_outside_of_probing_cut_the_estimate_no_lower_than_what_was_delivered_5_3_3_4() {
    let mut path = cruising("brb_bbr3");
    let estimate = path.estimate();
    path.acks_with(3, |sample| sample.losses = 1);
    assert!((path.estimate() - estimate).abs() < 0.2, "the path still delivers all of it");
    path.rate /= 2;
    path.acks_with(8, |sample| sample.losses = 1);
    assert!(path.estimate() < estimate * 0.75, "{} of {estimate}", path.estimate());
    assert!(path.estimate() >= estimate * 0.49);
    path.until("probe_bw_refill", 4000);
    path.ack();
    assert!((path.estimate() - estimate).abs() < 0.2, "a probe starts without the short-term bound");
}

#[test]
fn probe_rtt_comes_after_five_seconds_with_half_a_bdp_for_200_ms_5_3_4() {
    let mut path = cruising("brb_bbr3");
    path.in_flight = None;
    path.rtt_us += 1000; // the minimum is not seen again
    let ms = path.until("probe_rtt", 6000);
    assert!(ms > 4000, "{ms}");
    path.ack();
    assert!(path.conn.cwnd <= path.bdp() * 6 / 10, "{} of {}", path.conn.cwnd, path.bdp());
    assert!(path.conn.app_limited != 0, "samples are not the path's");
    let ms = path.until("probe_bw_cruise", 1000);
    assert!((200..=300).contains(&ms), "{ms}");
    assert!(path.conn.cwnd >= path.bdp());
}

#[test]
fn samples_that_the_application_limits_lower_nothing() {
    let mut path = cruising("brb_bbr3");
    let estimate = path.estimate();
    path.rate = 1;
    path.conn.app_limited = 1;
    for _ in 0..200 {
        path.ack_with(|sample| sample.is_app_limited = 1);
    }
    assert!((path.estimate() - estimate).abs() < 0.01);
}

#[test]
fn after_silence_it_paces_at_the_bandwidth() {
    let mut path = probing("brb_bbr3");
    path.ack();
    let probing = path.conn.pacing_rate;
    path.conn.app_limited = 1;
    path.socket.on_event(&mut path.conn, EVENT_TX_START);
    assert!(path.conn.pacing_rate < probing * 9 / 10);
}

#[test]
fn a_loss_that_was_none_gives_back_window_and_bounds_5_5_12() {
    let mut path = cruising("brb_bbr3");
    let (cwnd, estimate) = (path.conn.cwnd, path.estimate());
    path.socket.ssthresh(&mut path.conn);
    path.rate /= 2;
    path.acks_with(4, |sample| sample.losses = 3);
    assert!(path.estimate() < estimate * 0.9);
    assert_eq!(path.socket.undo_cwnd(&mut path.conn), cwnd);
    assert!((path.estimate() - estimate).abs() < 0.01);
}

/// A packet of which google's stack says that it is lost.
fn lost(lost: i32, tx_in_flight: u32) -> Sample {
    Sample { losses: 1, lost, tx_in_flight, tells_losses: 1, ..Sample::default() }
}

#[test]
fn a_lost_packet_of_which_the_stack_tells_ends_up_at_once_5_5_10_2() {
    let mut path = probing("brb_bbr3");
    path.acks_with(1, |sample| sample.tells_losses = 1);
    path.socket.on_lost(&mut path.conn, &lost(3, 200));
    assert_eq!(path.mode(), "probe_bw_up", "3 of 200 are less than 2 %");
    path.socket.on_lost(&mut path.conn, &Sample { tells_losses: 0, ..lost(9, 200) });
    assert_eq!(path.mode(), "probe_bw_up", "nothing is known of a packet that was delivered once");
    path.socket.on_lost(&mut path.conn, &lost(5, 200));
    assert_eq!(path.mode(), "probe_bw_down");
}

#[test]
fn what_a_tail_loss_probe_repairs_counts_as_a_loss_of_version_3_alone() {
    for (control, mode) in [("brb_bbr3", "probe_bw_down"), ("brb_bbr2", "probe_bw_up")] {
        let mut path = probing(control);
        path.acks_with(1, |sample| {
            sample.tells_losses = 1;
            sample.delivered = 20; // one of 21 is more than 2 %
        });
        path.socket.on_event(&mut path.conn, EVENT_TLP_RECOVERY);
        assert_eq!(path.mode(), mode, "{control}");
    }
}

#[test]
fn growth_that_the_first_ack_of_a_round_does_not_show_counts_but_in_the_draft() {
    for (control, mode) in [("brb_bbr2", "startup"), ("brb_bbr3", "startup"), ("brb_bbr3_draft", "drain")] {
        let mut path = Path::new(control, 10, 20_000);
        for round in 0..10 {
            for ms in 0..path.rounds(1) {
                // All but one ACK of a round show a third of what the path carries, as ACKs in bunches do.
                path.ack_with(|sample| sample.delivered /= if ms == 10 || round == 0 { 1 } else { 3 });
                if path.mode() != "startup" {
                    break;
                }
            }
            path.rate = path.rate * 14 / 10;
        }
        assert_eq!(path.mode() == "startup", mode == "startup", "{control} is in {}", path.mode());
    }
}

#[test]
fn an_rtt_equal_to_the_minimum_refreshes_it_in_version_2_alone() {
    for (control, expected) in [("brb_bbr2", false), ("brb_bbr3", true)] {
        let mut path = cruising(control);
        path.in_flight = None;
        let came = (0..6000).any(|_| {
            path.ack();
            path.mode() == "probe_rtt"
        });
        assert_eq!(came, expected, "{control}");
    }
}

#[test]
fn a_burst_has_two_packets_at_any_rate_in_version_3_and_one_below_1200_kbit_in_version_2() {
    for (control, least) in [("brb_bbr2", 1), ("brb_bbr3", 2)] {
        let mut path = Path::new(control, 10, 20_000);
        path.conn.pacing_rate = 1_000_000 / 8;
        assert_eq!(path.socket.burst(&path.conn, 1448), Some(least), "{control}");
        path.conn.pacing_rate = 100_000_000 / 8;
        assert_eq!(path.socket.burst(&path.conn, 1448), Some(8), "{control}: a millisecond");
    }
    let mut near = Path::new("brb_bbr3", 10, 1_000);
    near.conn.pacing_rate = 100_000_000 / 8;
    let burst = near.socket.burst(&near.conn, 1448);
    assert_eq!(burst, Some((12_207 + 32_768) / 1448), "half of 64 KiB more where the RTT is 1 ms");
}

#[test]
fn an_application_limited_ack_that_shows_nothing_new_changes_nothing_but_in_the_draft() {
    for (control, stays) in [("brb_bbr3", true), ("brb_bbr3_draft", false)] {
        let mut path = cruising(control);
        path.ack();
        let bdp = path.bdp();
        let full = (path.conn.cwnd, path.conn.pacing_rate);
        path.conn.app_limited = 1;
        // Bunches of ACKs, which would raise cwnd.
        for _ in 0..5 {
            path.ack_with(|sample| {
                sample.is_app_limited = 1;
                sample.delivered /= 2;
                sample.acked_sacked = bdp;
            });
        }
        assert_eq!((path.conn.cwnd, path.conn.pacing_rate) == full, stays, "{control}");
    }
}

#[test]
fn the_larger_window_is_kept_over_probe_rtt() {
    let mut path = cruising("brb_bbr3");
    path.socket.ssthresh(&mut path.conn); // a loss: the window then is remembered
    let saved = path.conn.cwnd;
    path.conn.cwnd /= 2;
    path.rtt_us += 1000;
    path.in_flight = Some(4);
    path.until("probe_rtt", 6000);
    path.until("probe_bw_cruise", 1000);
    assert!(path.conn.cwnd >= saved, "{} of {saved}", path.conn.cwnd);
}
