//! Calls every control at random, and checks what it has to keep whatever it is given: `cargo run -p brobust-cc --example
//! fuzz [CALLS] [SEED]` for as long as you like, `cargo test` briefly. In debug builds the C traps on undefined behaviour.
//! Prints the number of calls of each control, and the calls per second. A control's name is there before its first call,
//! so that it stands last where a call ends the process (SIGILL is a trap), and a call that takes a second is named.
//!
//! Half of the connections change a little from call to call, as real ones do, so that all modes are reached; the
//! others jump to any values. What the kernel guarantees holds for both: a segment has at least a byte, a window at
//! least a packet, HZ is not 0, and no more than 2^30 packets are in flight.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brobust_cc::{ca_state, Connection, Control, Sample, Socket, MODES};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("CALLS and SEED are numbers"));
    let calls = arguments.next().unwrap_or(10_000_000);
    let seed = arguments.next().unwrap_or(1);
    let each = calls.div_ceil(Control::all().len() as u64);
    let begun = Instant::now();
    std::thread::spawn(|| loop {
        let number = stuck_at(&CALLS, || std::thread::sleep(Duration::from_secs(1)));
        eprintln!("call {number} takes longer than a second: a control has only loops with a bound (cc/cc.h)");
        while CALLS.load(Ordering::Relaxed) == number {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    for control in Control::all() {
        print!("{}: ", control.name());
        std::io::stdout().flush().expect("standard output is open");
        CALLS.store(0, Ordering::Relaxed);
        run(*control, each, seed);
        println!("{each} calls kept every promise");
    }
    let total = each * Control::all().len() as u64;
    println!("{total} calls, {:.0} a second", total as f64 / begun.elapsed().as_secs_f64());
}

/// The calls of the control that is being called, with the one under way.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Waits until a number has stayed the same for as long as `wait` takes. Returns it.
fn stuck_at(calls: &AtomicU64, mut wait: impl FnMut()) -> u64 {
    let mut last = calls.load(Ordering::Relaxed);
    loop {
        wait();
        let now = calls.load(Ordering::Relaxed);
        if now == last {
            return now;
        }
        last = now;
    }
}

/// A generator of random numbers (xorshift64*) that are the same on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit.max(1)
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Draws small numbers and the limits of the type often, and any others sometimes.
    fn any32(&mut self) -> u32 {
        let bits = self.below(33) as u32;
        match bits {
            0 => [0, 1, u32::MAX, u32::MAX - 1, 1 << 31][self.below(5) as usize],
            bits => (self.draw() >> (64 - bits)) as u32,
        }
    }

    /// Draws a number of packets that can be in flight: a sequence space has no more than 2^32 bytes.
    fn packets(&mut self) -> u32 {
        self.any32() >> 2
    }

    fn any64(&mut self) -> u64 {
        u64::from(self.any32()) << self.below(33)
    }
}

/// Calls the control `calls` times, on sockets that live for a while. Panics with the call that breaks a promise.
fn run(control: Control, calls: u64, seed: u64) {
    let mut random = Random::new(seed);
    let mut done = 0;
    while done < calls {
        let length = (1 + random.below(2000)).min(calls - done);
        live(control, length, &mut random);
        done += length;
    }
}

fn live(control: Control, length: u64, random: &mut Random) {
    let wild = random.chance(2);
    let mut conn = begin(random, wild);
    let mut socket = Socket::new(control, &mut conn);
    kept(control, "init", &conn, &conn, None);
    for _ in 0..length {
        if wild {
            jump(&mut conn, random);
        } else {
            advance(&mut conn, random);
        }
        let before = conn;
        CALLS.fetch_add(1, Ordering::Relaxed);
        let result = call(control, &mut socket, &mut conn, random, wild);
        kept(control, result.0, &before, &conn, result.1);
        let report = socket.report(&conn);
        assert!((report.mode as usize) < MODES.len(), "{control:?}: mode {} has no name", report.mode);
    }
}

fn call(
    control: Control,
    socket: &mut Socket,
    conn: &mut Connection,
    random: &mut Random,
    wild: bool,
) -> (&'static str, Option<u32>) {
    match random.below(40) {
        0 => {
            let state = random.below(5) as u8;
            socket.set_state(conn, state);
            conn.ca_state = state;
            ("set_state", None)
        }
        1 => {
            socket.on_event(conn, random.below(8) as u32);
            ("on_event", None)
        }
        2 => ("ssthresh", Some(socket.ssthresh(conn))),
        4..8 => {
            socket.on_send(conn);
            let burst = socket.burst(conn, conn.mss);
            assert!(burst != Some(0), "a burst of nothing: {conn:?}");
            ("on_send", None)
        }
        8 => {
            let told = Sample { tells_losses: 1, ..sample(conn, random, wild) };
            socket.on_lost(conn, &told);
            ("on_lost", None)
        }
        3 if control.is_window_based() || conn.prior_cwnd > 0 => ("undo_cwnd", Some(socket.undo_cwnd(conn))),
        _ if control.is_window_based() => {
            socket.on_rtt(conn, if wild { random.any32() >> 1 } else { conn.srtt_us_8 >> 3 });
            let acked = if wild { random.any32() >> 4 } else { 1 + random.below(3) as u32 };
            socket.on_acked(conn, acked);
            ("on_acked", None)
        }
        _ => {
            let sample = sample(conn, random, wild);
            socket.on_ack(conn, &sample);
            ("on_ack", None)
        }
    }
}

fn kept(control: Control, call: &str, before: &Connection, after: &Connection, result: Option<u32>) {
    let say = || format!("{control:?}.{call}\nbefore {before:?}\nafter {after:?}\nresult {result:?}");
    assert!(after.cwnd >= 1, "no window is left: {}", say());
    assert!(result != Some(0), "a window of nothing: {}", say());
    if control.is_window_based() {
        assert!(call != "ssthresh" || result >= Some(2), "RFC 5681 (4): {}", say());
        assert_eq!(after.pacing_rate, before.pacing_rate, "the rate is the stack's: {}", say());
    } else {
        let allowed = after.max_pacing_rate.max(before.pacing_rate);
        assert!(after.pacing_rate <= allowed, "more than SO_MAX_PACING_RATE: {}", say());
        assert!(call != "on_ack" || after.cwnd <= after.cwnd_clamp, "more than the clamp: {}", say());
    }
    let given =
        |conn: &Connection| (conn.now_us, conn.delivered, conn.in_flight, conn.mss, conn.snd_una, conn.prior_cwnd);
    assert_eq!(given(before), given(after), "a control wrote what is not its own: {}", say());
}

fn begin(random: &mut Random, wild: bool) -> Connection {
    let mut conn = Connection {
        now_us: random.any64() >> 20,
        max_pacing_rate: u64::MAX,
        now_ticks: random.any32(),
        tick_hz: [100, 250, 300, 1000][random.below(4) as usize],
        mss: 1448,
        min_rtt_us: u32::MAX,
        cwnd_clamp: u32::MAX,
        gso_max_size: 65536,
        tso_max_bytes: 65215,
        gso_limit: 65536,
        pacing_shift: 10,
        is_cwnd_limited: 1,
        cwnd: 10,
        ssthresh: 0x7fff_ffff,
        delivered: random.any32(),
        unsent_bytes: 1 << 20,
        ..Connection::default()
    };
    conn.delivered_us = conn.now_us;
    if wild {
        jump(&mut conn, random);
    }
    conn
}

/// Moves a connection on by one step, as on a real path.
fn advance(conn: &mut Connection, random: &mut Random) {
    let step = random.below(4000);
    conn.now_us += step;
    conn.delivered_us = conn.now_us;
    conn.now_ticks =
        conn.now_ticks.wrapping_add((step * u64::from(conn.tick_hz) / 1_000_000) as u32 + random.below(2) as u32);
    conn.clock_ns = conn.now_us * 1000;
    conn.departure_ns = (conn.clock_ns + random.below(2_000_000)).saturating_sub(1_000_000);
    conn.delivered = conn.delivered.wrapping_add(1 + random.below(3) as u32);
    if random.chance(50) {
        conn.lost = conn.lost.wrapping_add(random.below(4) as u32);
    }
    conn.in_flight = (conn.cwnd.min(1 << 24) / 4 * (1 + random.below(4) as u32)).max(1);
    conn.unsent_bytes = if random.chance(100) { 0 } else { 1 << 20 };
    conn.srtt_us_8 = (10_000 + random.below(20_000) as u32) * 8;
    conn.min_rtt_us = conn.min_rtt_us.min(conn.srtt_us_8 / 8);
    conn.prior_cwnd = conn.cwnd;
    conn.random = std::array::from_fn(|_| random.draw() as u32);
    conn.random_draws = 0;
    conn.is_cwnd_limited = u8::from(!random.chance(3));
    conn.cwnd_was_full = conn.is_cwnd_limited;
    if random.chance(300) {
        conn.app_limited = conn.delivered;
    } else if random.chance(10) {
        conn.app_limited = 0;
    }
    if random.chance(2000) {
        // Silence that is longer than every time window of a control.
        conn.now_us += 20_000_000;
        conn.now_ticks = conn.now_ticks.wrapping_add(20 * conn.tick_hz);
    }
}

/// Gives the connection any values.
fn jump(conn: &mut Connection, random: &mut Random) {
    conn.now_us = random.any64();
    conn.delivered_us = random.any64();
    conn.clock_ns = random.any64();
    conn.departure_ns = random.any64();
    conn.max_pacing_rate = if random.chance(2) { u64::MAX } else { random.any64().max(1) };
    conn.now_ticks = random.any32();
    conn.last_sent_ticks = random.any32();
    conn.delivered = random.any32();
    conn.lost = random.any32();
    conn.in_flight = random.packets();
    conn.unsent_bytes = random.any32();
    conn.mss = 1 + random.below(65_495) as u32;
    conn.srtt_us_8 = random.any32();
    conn.min_rtt_us = random.any32();
    conn.snd_una = random.any32();
    conn.snd_nxt = random.any32();
    conn.receiver_room = random.any32();
    conn.cwnd_clamp = random.any32().max(1);
    conn.prior_cwnd = random.any32().max(1);
    conn.pacing_shift = random.below(21) as u8;
    conn.ca_state = random.below(u64::from(ca_state::LOSS) + 1) as u8;
    conn.is_cwnd_limited = random.below(2) as u8;
    conn.cwnd_was_full = random.below(2) as u8;
    conn.is_paced = random.below(2) as u8;
    conn.random = std::array::from_fn(|_| random.draw() as u32);
    conn.random_draws = 0;
    conn.pacing_rate = random.any64();
    conn.cwnd = random.any32().max(1) >> random.below(12);
    conn.cwnd = conn.cwnd.clamp(1, 1 << 30);
    conn.cwnd_count = random.any32();
    conn.ssthresh = random.any32().max(1);
    conn.app_limited = random.any32();
}

fn sample(conn: &Connection, random: &mut Random, wild: bool) -> Sample {
    if wild {
        return Sample {
            interval_us: (random.any64() as i64) >> random.below(40),
            rtt_us: i64::from(random.any32()) - i64::from(random.chance(4)) * (1 << 33),
            prior_delivered: random.any32(),
            delivered: random.packets() as i32 - 1,
            losses: random.packets() as i32,
            acked_sacked: random.packets(),
            prior_in_flight: random.packets(),
            is_app_limited: random.below(2) as u8,
            is_retrans: random.below(2) as u8,
            is_ack_delayed: random.below(2) as u8,
            lost: random.packets() as i32,
            tx_in_flight: random.packets(),
            tells_losses: random.below(2) as u8,
            is_acking_probe: random.below(2) as u8,
        };
    }
    let delivered = 1 + random.below(60) as i32;
    Sample {
        interval_us: 5_000 + random.below(20_000) as i64,
        rtt_us: i64::from(conn.srtt_us_8 / 8),
        prior_delivered: conn.delivered.wrapping_sub(delivered as u32),
        delivered,
        losses: i32::from(random.chance(30)) * (1 + random.below(3) as i32),
        acked_sacked: 1 + random.below(3) as u32,
        prior_in_flight: conn.in_flight + 2,
        is_app_limited: u8::from(conn.app_limited != 0),
        ..Sample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_stand_still_are_found_and_those_that_go_on_are_not() {
        // Without a clock: a host that stalls makes no difference.
        let (calls, mut left) = (AtomicU64::new(7), 20);
        let wait = || {
            if left > 0 {
                left -= 1;
                calls.fetch_add(1, Ordering::Relaxed);
            }
        };
        assert_eq!(stuck_at(&calls, wait), 27);
    }

    #[test]
    fn every_control_keeps_its_promises_whatever_it_is_given() {
        for (number, control) in Control::all().iter().enumerate() {
            run(*control, 60_000, 1 + number as u64);
        }
    }

    #[test]
    fn calls_that_are_like_a_real_path_reach_every_mode_of_bbr() {
        for (name, modes) in [("brb_bbr1", 0b1111), ("brb_bbr3", 0b1111_1011)] {
            let mut seen = 0_u32;
            let mut random = Random::new(7);
            for _ in 0..150 {
                let mut conn = begin(&mut random, false);
                let mut socket = Socket::new(Control::find(name).unwrap(), &mut conn);
                for _ in 0..6_000 {
                    advance(&mut conn, &mut random);
                    let sample = sample(&conn, &mut random, false);
                    socket.on_ack(&mut conn, &sample);
                    seen |= 1 << socket.report(&conn).mode;
                }
            }
            assert_eq!(seen, modes, "{name}: modes seen {seen:#b}");
        }
    }
}
