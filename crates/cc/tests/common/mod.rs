//! A path that a test moves on by hand. It calls the control as a stack would, but is not a TCP.

// Not every test file uses all of this.
#![allow(dead_code)]

use brobust_cc::{Connection, Control, Sample, Socket, MODES};

/// One that begins, with much data to send.
pub fn connection() -> Connection {
    Connection {
        now_us: 1_000_000,
        delivered_us: 1_000_000,
        max_pacing_rate: u64::MAX,
        tick_hz: 1000,
        now_ticks: 1000,
        mss: 1448,
        cwnd: 10,
        cwnd_clamp: u32::MAX,
        ssthresh: 0x7fff_ffff,
        gso_max_size: 65536,
        tso_max_bytes: 65215,
        gso_limit: 65536,
        pacing_shift: 10,
        is_cwnd_limited: 1,
        cwnd_was_full: 1,
        unsent_bytes: 1 << 20,
        ..Connection::default()
    }
}

/// A path with one ACK per millisecond, each for what the path delivers in that time.
pub struct Path {
    pub conn: Connection,
    pub socket: Socket,
    pub rtt_us: u64,
    /// Rate of the path, packets per ms.
    pub rate: u32,
    /// Packets in flight at each ACK. None: as many as cwnd allows.
    pub in_flight: Option<u32>,
}

impl Path {
    pub fn new(control: &str, rate: u32, rtt_us: u64) -> Path {
        let mut conn = Connection { min_rtt_us: rtt_us as u32, srtt_us_8: rtt_us as u32 * 8, ..connection() };
        let socket = Socket::new(Control::find(control).unwrap(), &mut conn);
        Path { conn, socket, rtt_us, rate, in_flight: None }
    }

    pub fn bdp(&self) -> u32 {
        (u64::from(self.rate) * self.rtt_us / 1000) as u32
    }

    pub fn mode(&self) -> &'static str {
        MODES[self.socket.report(&self.conn).mode as usize]
    }

    /// Returns the control's bandwidth estimate in packets per ms.
    pub fn estimate(&self) -> f64 {
        self.socket.report(&self.conn).bandwidth as f64 / 1448.0 / 1000.0
    }

    pub fn pacing_gain(&self) -> f64 {
        f64::from(self.socket.report(&self.conn).pacing_gain) / 256.0
    }

    pub fn ack(&mut self) {
        self.ack_with(|_| {});
    }

    /// Gives the control an ACK whose sample the test changes first.
    pub fn ack_with(&mut self, change: impl FnOnce(&mut Sample)) {
        let conn = &mut self.conn;
        conn.now_us += 1000;
        conn.delivered_us = conn.now_us;
        conn.clock_ns = conn.now_us * 1000;
        conn.departure_ns = conn.clock_ns;
        conn.now_ticks += 1;
        conn.delivered += self.rate;
        conn.in_flight = self.in_flight.unwrap_or(conn.cwnd);
        let delivered = (self.rate * (self.rtt_us / 1000) as u32).min(conn.delivered);
        let mut sample = Sample {
            interval_us: self.rtt_us as i64,
            rtt_us: self.rtt_us as i64,
            prior_delivered: conn.delivered - delivered,
            delivered: delivered as i32,
            acked_sacked: self.rate,
            prior_in_flight: conn.in_flight + self.rate,
            ..Sample::default()
        };
        change(&mut sample);
        if sample.losses > 0 {
            conn.lost += sample.losses as u32;
        }
        self.socket.on_ack(conn, &sample);
    }

    /// Gives the control the ACKs of so many RTTs.
    pub fn acks(&mut self, rounds: u32) {
        self.acks_with(rounds, |_| {});
    }

    pub fn acks_with(&mut self, rounds: u32, change: impl Fn(&mut Sample)) {
        for _ in 0..self.rounds(rounds) {
            self.ack_with(&change);
        }
    }

    /// Gives the control ACKs until it is in that mode, and returns how many ms this took.
    pub fn until(&mut self, mode: &str, at_most_ms: u32) -> u32 {
        for ms in 0..at_most_ms {
            if self.mode() == mode {
                return ms;
            }
            self.ack();
        }
        panic!("still in {} after {at_most_ms} ms, and not in {mode}", self.mode());
    }

    pub fn rounds(&self, count: u32) -> u32 {
        count * (self.rtt_us / 1000) as u32
    }
}
