//! The rules of the kept pacing schedule (cc/steady.h), beside BBR 1 and 3.

mod common;

use brobust_cc::{Connection, Control, Sample, Socket};
use common::Path;

const MS: u64 = 1_000_000; // ns

/// A paced sender with its CPU: half a BDP of 200 packets in flight, so that the window has room; 1 MB waits.
fn steady(control: &str) -> Path {
    steady_after(control, 0)
}

/// The same with a control that begins when so many packets have been delivered: an application has changed it.
fn steady_after(control: &str, delivered: u32) -> Path {
    let mut path = Path::new(control, 10, 20_000);
    path.conn.delivered = delivered;
    path.socket = Socket::new(Control::find(control).unwrap(), &mut path.conn);
    path.conn.receiver_room = 1 << 20;
    path.until("drain", 2000);
    path.in_flight = Some(path.bdp() / 2);
    path.ack();
    send(&mut path, 1, 0);
    path
}

/// Makes a pass of the write loop after `later_ms` that sends `packets` and puts the next departure 1 ms ahead.
fn send(path: &mut Path, packets: u32, later_ms: u64) -> u64 {
    path.conn.clock_ns += later_ms * MS;
    path.conn.now_us = path.conn.clock_ns / 1000;
    path.conn.in_flight = path.in_flight.unwrap_or(path.conn.cwnd);
    path.socket.on_send(&mut path.conn);
    let rate = path.conn.pacing_rate;
    path.conn.snd_nxt += packets * path.conn.mss;
    path.conn.departure_ns = path.conn.clock_ns + MS;
    rate
}

fn stalls(path: &Path) -> u64 {
    path.socket.report(&path.conn).deficit_acks
}

#[test]
fn a_late_departure_raises_the_rate_until_it_is_made_up_for() {
    for control in ["brb_bbr1_steady", "brb_bbr3_steady"] {
        let mut path = steady(control);
        let own = send(&mut path, 1, 1);
        send(&mut path, 1, 21); // the first stall ends a long slot; the second one of 5 ms
        for _ in 0..5 {
            send(&mut path, 20, 1);
        }
        let raised = send(&mut path, 1, 21);
        assert!(raised > 2 * own && raised <= 20 * own, "{control}: {raised} after {own}");
        assert_eq!(stalls(&path), 2);
        // What 20 ms at the flow's rate would have sent is still to be sent, less half a burst's gap that Linux makes
        // up for.
        let owed = (own * 40 / 1000 / u64::from(path.conn.mss)) as u32;
        assert!(send(&mut path, owed / 2, 1) > own, "{control}");
        send(&mut path, owed, 1);
        assert_eq!(send(&mut path, 1, 1), own, "{control}");
        assert_eq!(stalls(&path), 2);
    }
}

#[test]
fn what_linux_makes_up_for_is_no_stall() {
    let mut path = steady("brb_bbr1_steady");
    let own = send(&mut path, 1, 1);
    path.conn.departure_ns -= MS / 5; // a timer that fires late
    assert_eq!(send(&mut path, 1, 1), own);
    assert_eq!(stalls(&path), 0);
}

#[test]
fn a_late_departure_that_something_else_kept_is_no_stall() {
    type Other = fn(&mut Connection);
    let others: [(&str, Other); 3] = [
        ("no data waited", |conn| conn.unsent_bytes = 0),
        ("the window was full", |conn| conn.cwnd = conn.in_flight),
        ("the receiver had no room", |conn| conn.receiver_room = conn.mss - 1),
    ];
    for (why, other) in others {
        let mut path = steady("brb_bbr1_steady");
        other(&mut path.conn);
        let own = send(&mut path, 0, 1);
        assert_eq!(send(&mut path, 1, 21), own, "{why}");
        assert_eq!(stalls(&path), 0, "{why}");
    }
}

#[test]
fn a_pass_that_ended_for_another_reason_than_pacing_is_no_stall() {
    let mut path = steady("brb_bbr1_steady");
    send(&mut path, 1, 1);
    path.conn.departure_ns = path.conn.clock_ns - MS; // it might have sent, and did not
    send(&mut path, 0, 0);
    path.conn.departure_ns = path.conn.clock_ns - MS;
    send(&mut path, 1, 20);
    assert_eq!(stalls(&path), 0);
}

#[test]
fn the_next_answer_of_an_application_makes_up_for_a_stall_as_long_as_that_is_remembered() {
    for (pause_ms, is_faster) in [(10, true), (2500, false)] {
        let mut path = steady("brb_bbr1_steady");
        let own = send(&mut path, 1, 1);
        assert!(send(&mut path, 1, 21) > own);
        (path.conn.unsent_bytes, path.in_flight) = (0, Some(0));
        path.ack();
        path.conn.unsent_bytes = 1 << 20;
        assert_eq!(send(&mut path, 1, pause_ms) > own, is_faster, "{pause_ms} ms");
    }
}

/// In PROBE_BW after a stall of some 20 ms, with a BDP of 200 packets.
fn stalled() -> Path {
    stalled_after(0)
}

fn stalled_after(delivered: u32) -> Path {
    let mut path = steady_after("brb_bbr1_steady", delivered);
    path.until("probe_bw", 100);
    send(&mut path, 1, 1);
    send(&mut path, 1, 21);
    path.ack();
    path
}

#[test]
fn the_window_holds_a_bdp_and_a_little_more_than_what_a_stall_holds_back() {
    // At 10 packets per ms.
    assert!((400..=480).contains(&stalled().conn.cwnd), "{}", stalled().conn.cwnd);
}

#[test]
fn losses_next_to_each_other_bound_what_is_in_flight_and_a_bound_that_is_reached_rises_again() {
    let mut path = stalled();
    let before = path.conn.cwnd;
    path.in_flight = None;
    path.acks_with(3, |sample| sample.losses = 5); // of 10
    let cut = path.conn.cwnd;
    assert!((before * 6 / 10..before * 8 / 10).contains(&cut), "{cut} of {before}");
    path.acks(5);
    assert!((before * 8 / 10..before).contains(&path.conn.cwnd), "{} after {cut} of {before}", path.conn.cwnd);
}

/// Numbers of packets are compared by their difference, which is negative from 2^31 on.
#[test]
fn losses_are_learnt_from_by_a_control_that_begins_after_three_thousand_million_packets() {
    let mut path = stalled_after(3_000_000_000);
    let before = path.conn.cwnd;
    path.in_flight = None;
    path.acks_with(3, |sample| sample.losses = 5); // of 10
    assert!(path.conn.cwnd < before * 8 / 10, "{} after {before}", path.conn.cwnd);
}

#[test]
fn losses_far_apart_bound_nothing() {
    let mut path = stalled();
    let before = path.conn.cwnd;
    for ack in 0..path.rounds(10) {
        // One of 20: 5 %.
        path.ack_with(|sample: &mut Sample| sample.losses = i32::from(ack % 2 == 0));
    }
    assert_eq!(path.conn.cwnd, before);
}

#[test]
fn after_a_timeout_losses_teach_nothing() {
    let mut path = stalled();
    path.conn.ca_state = 4; // CC_CA_LOSS
    path.acks_with(2, |sample| sample.losses = 10);
    path.conn.ca_state = 0;
    path.ack();
    assert!(path.conn.cwnd >= 400, "{}", path.conn.cwnd);
}

/// The timer takes all for lost; the first ACK tells that nothing was, and the stack has left the state when it tells of
/// that ACK.
#[test]
fn a_timeout_that_is_undone_teaches_nothing() {
    let mut path = stalled();
    path.acks(2); // of what is in flight now, not in STARTUP
    path.conn.lost += 100;
    path.socket.set_state(&mut path.conn, 4); // CC_CA_LOSS, from CC_CA_OPEN
    path.conn.ca_state = 4;
    path.socket.undo_cwnd(&mut path.conn);
    path.socket.set_state(&mut path.conn, 0); // CC_CA_OPEN
    path.conn.ca_state = 0;
    path.acks(3);
    assert!(path.conn.cwnd >= 400, "{}", path.conn.cwnd);
}

#[test]
fn two_seconds_after_the_last_stall_everything_is_bbrs() {
    let end = |control| {
        let mut path = steady(control);
        send(&mut path, 1, 1);
        send(&mut path, 1, 21);
        path.acks_with(2, |sample| sample.losses = 1);
        let disturbed = path.conn.cwnd;
        path.in_flight = Some(path.bdp());
        for _ in 0..3000 {
            path.ack();
        }
        (disturbed, path.conn.cwnd, path.conn.pacing_rate)
    };
    let (plain, repaired) = (end("brb_bbr1"), end("brb_bbr1_steady"));
    assert_ne!(plain.0, repaired.0);
    assert_eq!((plain.1, plain.2), (repaired.1, repaired.2));
}

/// Losses of a neighbour keep the bound low, and so within reach, when the CPU has long come back.
#[test]
fn a_bound_that_is_reached_is_forgotten_twelve_seconds_after_the_last_stall() {
    let window_after = |control, seconds| {
        let mut path = steady(control);
        path.until("probe_bw", 100);
        send(&mut path, 1, 1);
        send(&mut path, 1, 21);
        path.in_flight = None;
        for n in 0..seconds * 1000 {
            path.ack_with(|sample: &mut Sample| sample.losses = if n % 200 < 10 { 5 } else { 0 });
        }
        path.conn.cwnd
    };
    let (bounded, plain) = (window_after("brb_bbr1_steady", 9), window_after("brb_bbr1", 9));
    assert!(bounded < plain, "{bounded}, BBR has {plain}");
    let (free, plain) = (window_after("brb_bbr1_steady", 13), window_after("brb_bbr1", 13));
    assert!(free >= plain, "{free}, BBR has {plain}");
}

#[test]
fn a_rate_that_the_application_caps_stays_capped() {
    let mut path = steady("brb_bbr1_steady");
    let own = send(&mut path, 1, 1);
    path.conn.max_pacing_rate = own;
    assert!(send(&mut path, 1, 21) <= own);
}

/// Replays crates/pacer/repair-vectors.txt: the control takes the decisions of cc/repair.h that the crate and pacer.h are
/// checked by. Of its bound the window shows what is below the window that it would have without.
#[test]
fn it_decides_what_the_vectors_say() {
    let (mut path, mut in_flight, mut free, mut began) = (stalled(), 0, 0, 0);
    let mut bounds = 0;
    for (line, text) in include_str!("../../pacer/repair-vectors.txt").lines().enumerate() {
        let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "=").collect();
        let amounts: Vec<u32> = words.iter().skip(1).map_while(|word| word.parse().ok()).collect();
        match (words.first().copied(), &amounts[..]) {
            (Some("flow"), [packets]) => {
                path = stalled();
                path.acks(2); // of what is in flight now, not in STARTUP
                (in_flight, free, began) = (*packets, path.conn.cwnd, path.conn.delivered);
            }
            (Some("send"), [packets]) => in_flight += packets,
            (Some("timeout"), [lost]) => {
                path.conn.ca_state = 4; // CC_CA_LOSS
                ack(&mut path, in_flight, *lost, 0, began - 1);
                path.conn.ca_state = 0;
                in_flight -= lost;
            }
            (Some("pass"), [ms]) => {
                path.conn.now_us += u64::from(*ms) * 1000;
                free = 0; // BBR's own window has changed since
            }
            (Some(kind @ ("ack" | "round")), [lost, delivered, _, cap]) => {
                let prior_delivered = if kind == "round" { path.conn.delivered } else { began - 1 };
                ack(&mut path, in_flight, *lost, *delivered, prior_delivered);
                in_flight -= lost + delivered;
                if kind == "round" {
                    began = path.conn.delivered;
                }
                if free > 0 {
                    let bound = if *cap > 0 { free.min(*cap) } else { free };
                    assert_eq!(path.conn.cwnd, bound, "line {}: {text}", line + 1);
                    bounds += u32::from(bound < free);
                }
            }
            _ => (),
        }
    }
    assert_eq!(bounds, 168);
}

/// Gives the control an ACK of a path of 10 packets per ms, with that in flight before it.
fn ack(path: &mut Path, in_flight: u32, lost: u32, delivered: u32, prior_delivered: u32) {
    path.conn.delivered += delivered;
    path.in_flight = Some(in_flight - lost - delivered);
    path.rate = 0; // what is delivered is counted here
    path.ack_with(|sample: &mut Sample| {
        sample.losses = lost as i32;
        sample.prior_delivered = prior_delivered;
        sample.delivered = 200; // in the 20 ms of the interval
        sample.acked_sacked = delivered;
        sample.prior_in_flight = in_flight;
    });
}

/// As tcp_enter_loss() does it: the stack cuts the window, tells of the state, and only then is in it.
#[test]
fn at_a_timeout_the_window_is_what_the_stack_left() {
    let mut path = stalled();
    path.socket.ssthresh(&mut path.conn);
    (path.conn.in_flight, path.conn.cwnd) = (1, 2);
    path.socket.set_state(&mut path.conn, 4); // CC_CA_LOSS, from CC_CA_OPEN
    assert_eq!(path.conn.cwnd, 2);
}

#[test]
fn what_nobody_acknowledged_after_a_timeout_is_no_stall() {
    let mut path = steady("brb_bbr1_steady");
    let own = send(&mut path, 1, 1);
    path.conn.ca_state = 4; // CC_CA_LOSS
    assert_eq!(send(&mut path, 1, 21), own);
    assert_eq!(stalls(&path), 0);
}
