//! The rules of the controls that decide the window only: CUBIC (sections of RFC 9438), Reno (RFC 5681), Vegas.

mod common;

use brobust_cc::{ca_state, Connection, Control, Socket, EVENT_TX_START};

/// A path that a test moves on round by round; each round carries one window. It is not a TCP.
struct Path {
    conn: Connection,
    socket: Socket,
    rtt_us: u64,
}

impl Path {
    fn new(control: &str, rtt_us: u64) -> Path {
        let mut conn = Connection { snd_una: 1, snd_nxt: 1 + 10 * 1448, ..common::connection() };
        let socket = Socket::new(Control::find(control).unwrap(), &mut conn);
        Path { conn, socket, rtt_us }
    }

    /// Makes a path whose control is in congestion avoidance with this window.
    fn at(control: &str, rtt_us: u64, cwnd: u32) -> Path {
        let mut path = Path::new(control, rtt_us);
        path.conn.cwnd = cwnd;
        path.conn.ssthresh = cwnd;
        path
    }

    /// Gives the control the ACKs for a window, one per two packets, evenly over an RTT (`spread`) or all at its end.
    fn round(&mut self, spread: bool) {
        let window = self.conn.cwnd;
        let gap = if spread { self.rtt_us / u64::from(window.div_ceil(2)) } else { 1 };
        if !spread {
            self.advance(self.rtt_us - u64::from(window.div_ceil(2)) * gap);
        }
        for _ in 0..window.div_ceil(2) {
            self.advance(gap);
            self.conn.snd_una += 2 * 1448;
            self.conn.snd_nxt = self.conn.snd_una + self.conn.cwnd * 1448;
            self.conn.last_sent_ticks = self.conn.now_ticks;
            self.socket.on_rtt(&mut self.conn, self.rtt_us as u32);
            self.socket.on_acked(&mut self.conn, 2);
        }
    }

    fn rounds(&mut self, count: u32) {
        (0..count).for_each(|_| self.round(true));
    }

    fn advance(&mut self, us: u64) {
        self.conn.now_us += us;
        self.conn.now_ticks = (self.conn.now_us / 1000) as u32;
    }

    /// Makes the control go through a loss and its recovery.
    fn loss(&mut self) {
        self.conn.prior_cwnd = self.conn.cwnd;
        self.conn.ssthresh = self.socket.ssthresh(&mut self.conn);
        self.conn.cwnd = self.conn.ssthresh;
    }
}

fn near(value: u32, expected: f64, part: f64) -> bool {
    (f64::from(value) - expected).abs() <= part * expected
}

#[test]
fn a_loss_leaves_seven_tenths_of_the_window_4_6() {
    let mut path = Path::at("brb_cubic", 100_000, 1000);
    path.loss();
    assert!(near(path.conn.cwnd, 700.0, 0.01), "{}", path.conn.cwnd);
}

#[test]
fn the_window_is_back_at_wmax_after_k_and_flat_there_4_2() {
    let mut path = Path::at("brb_cubic", 100_000, 1000);
    path.loss();
    // K = cbrt(Wmax (1 - beta) / C) = cbrt(1000 * 0.3 / 0.4) = 9.09 s
    path.rounds(45);
    let half = path.conn.cwnd;
    path.rounds(45);
    let at_k = path.conn.cwnd;
    assert!(near(at_k, 1000.0, 0.02), "{at_k}");
    assert!(half > 700 + (at_k - 700) * 3 / 4, "concave before K: {half} at half of it");
    path.rounds(10);
    assert!(path.conn.cwnd - at_k < 10, "flat around K");
    path.rounds(80);
    assert!(path.conn.cwnd > at_k + 150, "convex beyond it: {}", path.conn.cwnd);
}

#[test]
fn a_second_loss_below_wmax_makes_room_fast_convergence_4_7() {
    let mut path = Path::at("brb_cubic", 100_000, 1000);
    path.loss();
    path.conn.cwnd = 800;
    path.loss();
    // Wmax = 800 * (1 + beta) / 2 = 680, from 560: K = cbrt(120 / 0.4) = 6.7 s
    path.rounds(67);
    let at_k = path.conn.cwnd;
    assert!(near(at_k, 680.0, 0.02), "{at_k}");
}

#[test]
fn at_a_short_rtt_it_is_as_fast_as_reno_with_its_beta_4_3() {
    let mut path = Path::at("brb_cubic", 5_000, 28);
    path.loss();
    let before = path.conn.cwnd;
    path.rounds(100);
    // alpha = 3 (1 - 0.7) / (1 + 0.7) = 0.53 packets per RTT; the curve alone would not have moved in half a second
    assert!(near(path.conn.cwnd - before, 53.0, 0.15), "{}", path.conn.cwnd - before);
}

#[test]
fn time_without_data_is_no_time_on_the_curve_5_8() {
    let mut path = Path::at("brb_cubic", 100_000, 1000);
    path.loss();
    path.rounds(30);
    let before = path.conn.cwnd;
    path.advance(20_000_000);
    path.socket.on_event(&mut path.conn, EVENT_TX_START);
    path.round(true);
    assert!(path.conn.cwnd - before < 20, "{} after {before}", path.conn.cwnd);
}

#[test]
fn hystart_ends_slow_start_when_the_rtt_rises_by_an_eighth() {
    let mut path = Path::new("brb_cubic", 80_000);
    path.rounds(2);
    assert_eq!(path.conn.ssthresh, 0x7fff_ffff);
    path.rtt_us = 88_000;
    path.rounds(1);
    assert_eq!(path.conn.ssthresh, 0x7fff_ffff, "not by less");
    path.rtt_us = 95_000;
    path.rounds(2);
    assert!(path.conn.ssthresh <= path.conn.cwnd, "{}", path.conn.ssthresh);
}

#[test]
fn hystart_ends_slow_start_when_a_train_of_acks_is_half_an_rtt_long() {
    let mut path = Path::new("brb_cubic", 40_000);
    let mut rounds = 0;
    while path.conn.ssthresh > path.conn.cwnd && rounds < 10 {
        path.round(true); // once ACKs are less than 2 ms apart they are one train, as long as the RTT
        rounds += 1;
    }
    assert!((2..5).contains(&rounds), "{rounds}");
    let mut bursts = Path::new("brb_cubic", 40_000);
    (0..5).for_each(|_| bursts.round(false));
    assert_eq!(bursts.conn.ssthresh, 0x7fff_ffff, "short trains do not");
}

#[test]
fn a_timeout_forgets_the_path() {
    let mut path = Path::at("brb_cubic", 100_000, 1000);
    path.loss();
    path.socket.set_state(&mut path.conn, ca_state::LOSS);
    path.conn.cwnd = 100;
    path.conn.ssthresh = 100;
    path.rounds(20);
    // Without a Wmax the window grows by a twentieth per RTT, as in Linux, and not on a curve towards the old window.
    assert!(near(path.conn.cwnd, 100.0 * 1.05_f64.powi(20), 0.05), "{}", path.conn.cwnd);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    for control in ["brb_cubic", "brb_reno", "brb_vegas"] {
        let mut path = Path::at(control, 100_000, 100);
        path.conn.is_cwnd_limited = 0;
        path.rounds(20);
        assert_eq!(path.conn.cwnd, 100, "{control}");
    }
}

#[test]
fn reno_grows_by_one_packet_per_rtt_and_halves_on_loss_rfc_5681_3_1() {
    let mut path = Path::at("brb_reno", 20_000, 50);
    path.rounds(10);
    assert!((59..=61).contains(&path.conn.cwnd), "{}", path.conn.cwnd);
    path.loss();
    assert!((29..=30).contains(&path.conn.cwnd), "{}", path.conn.cwnd);
}

#[test]
fn vegas_keeps_between_alpha_and_beta_packets_queued() {
    let mut path = Path::at("brb_vegas", 20_000, 100);
    path.rounds(2);
    path.rtt_us = 20_000 + 20_000 * 3 / 100; // of a hundred packets three wait
    let steady = path.conn.cwnd;
    path.rounds(10);
    assert!(path.conn.cwnd.abs_diff(steady) <= 1, "{} after {steady}", path.conn.cwnd);
    path.rtt_us = 20_000 + 20_000 * 8 / 100;
    path.rounds(10);
    let less = path.conn.cwnd;
    assert!((steady - 11..=steady - 8).contains(&less), "{less}: one less per round");
    path.rtt_us = 20_000;
    path.rounds(10);
    assert!((less + 8..=less + 11).contains(&path.conn.cwnd), "one more per round");
}

#[test]
fn vegas_ends_slow_start_at_the_first_queue() {
    let mut path = Path::new("brb_vegas", 20_000);
    path.rounds(3);
    assert!(path.conn.cwnd >= 70);
    path.rtt_us = 22_000;
    path.rounds(2);
    assert!(path.conn.ssthresh <= path.conn.cwnd, "{}", path.conn.ssthresh);
}
