//! A peer that speaks a kernel's protocol without being one. A sender follows the script that is named as its flow's
//! congestion control; a receiver answers each frame at once.
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use brobust_virtual::shared::{reason, role, FrameHead, Shared, ABI, MAGIC, NEVER};
use memmap2::MmapMut;

const LENGTH: u32 = 1514;

fn main() {
    let shared = map();
    assert_eq!((shared.magic, shared.abi, shared.size), (MAGIC, ABI, size_of::<Shared>() as u32));
    // SAFETY: the descriptors that every kernel inherits.
    let (turns, stops) = unsafe { (File::from_raw_fd(4), File::from_raw_fd(7)) };
    let mut peer = Peer { turns, stops, shared, frames: 0 };
    peer.shared.now = 5_000;
    peer.hand_over(reason::READY);
    match peer.shared.role {
        role::SENDER => peer.send(),
        _ => peer.answer(),
    }
}

struct Peer {
    turns: File,
    stops: File,
    shared: &'static mut Shared,
    frames: u32,
}

impl Peer {
    /// Stops for a reason, and runs on when the controller says so.
    fn hand_over(&mut self, why: u32) {
        self.shared.reason = why;
        let mut byte = [0];
        if self.stops.write_all(&byte).is_err() || self.turns.read_exact(&mut byte).is_err() {
            std::process::exit(0);
        }
        (self.shared.tx_bytes, self.shared.acks) = (0, 0);
    }

    fn wait_until(&mut self, next: u64) {
        self.shared.next = next;
        self.hand_over(reason::HORIZON);
    }

    /// Advances to `time` as a kernel does: never past the horizon, always inside a timeslice.
    fn advance_to(&mut self, time: u64) {
        loop {
            let windows = &self.shared.window[..self.shared.windows as usize];
            let at = windows.iter().find(|window| time < window.end).map_or(time, |window| time.max(window.begin));
            if at < self.shared.horizon {
                self.shared.now = at;
                return;
            }
            self.wait_until(at);
        }
    }

    fn send(&mut self) {
        let start = self.shared.flow[0].start;
        let what = self.shared.flow[0].cc;
        let what = std::str::from_utf8(&what).unwrap().trim_end_matches('\0').to_string();
        self.advance_to(start);
        match what.as_str() {
            "die" => panic!("these are my last words"),
            "warn" => println!("booted\n------------[ cut here ]------------\nWARNING: CPU: 0 PID: 1 at f.c:1"),
            "garbage" => self.shared.tx_bytes = 77,
            "too_much" => self.shared.tx_bytes = u32::MAX,
            "past" => self.shared.now = 1,
            "before_the_run" => {
                self.shared.acks = 1;
                self.shared.ack[0].time = 6_000;
            }
            "reason" => self.hand_over(99),
            "refuse" => {
                self.shared.words[..9].copy_from_slice(b"device: x");
                self.hand_over(reason::REFUSED);
            }
            "hang" => std::thread::sleep(std::time::Duration::from_secs(600)),
            "bad_flow" => self.frame(60_000, start),
            "bad_sample" => {
                self.shared.acks = 1;
                self.shared.ack[0].flow = 500;
                self.shared.ack[0].time = self.shared.now;
            }
            "pings" => {
                for n in 0..10 {
                    self.advance_to(start + n * 1_000_000);
                    self.frame(10_000, self.shared.now);
                }
            }
            "drains" => {
                self.frame(10_000, self.shared.now);
                self.hand_over(reason::DRAIN);
                self.frame(10_000, self.shared.now);
            }
            other => panic!("no such script: {other}"),
        }
        loop {
            self.receive();
            self.wait_until(NEVER);
        }
    }

    /// Answers each frame. With a parameter of miscounts, what it counts falls, and wraps around.
    fn answer(&mut self) {
        let miscounts = std::env::args().any(|word| word.starts_with("miscounts"));
        loop {
            for (time, port) in self.receive() {
                self.advance_to(time);
                self.answer_frame(port);
                if miscounts {
                    self.shared.stats[0].received = self.shared.stats[0].received.wrapping_sub(1);
                    (self.shared.stats[0].ended, self.shared.rx_dropped) = (u64::MAX, u64::MAX);
                }
            }
            self.wait_until(NEVER);
        }
    }

    /// Returns the time of arrival and the port of each frame that arrives; none may come too late.
    fn receive(&mut self) -> Vec<(u64, u16)> {
        let (mut at, mut seen) = (0, Vec::new());
        while at < self.shared.rx_bytes as usize {
            // SAFETY: a record that the controller wrote.
            let head: FrameHead = unsafe { std::ptr::read_unaligned(self.shared.rx[at..].as_ptr().cast()) };
            assert!(head.time >= self.shared.now && head.time < self.shared.horizon, "{head:?}");
            let port = &self.shared.rx[at + size_of::<FrameHead>() + 34..];
            seen.push((head.time, u16::from_be_bytes([port[0], port[1]])));
            at += head.record as usize;
        }
        self.shared.rx_bytes = 0;
        seen
    }

    fn frame(&mut self, source_port: u16, time: u64) {
        self.put(source_port, 5201, time, LENGTH);
    }

    fn answer_frame(&mut self, port: u16) {
        self.put(5201, port, self.shared.now, 54);
    }

    fn put(&mut self, source_port: u16, destination_port: u16, time: u64, length: u32) {
        let mut header = [0u8; 54];
        (header[12], header[14], header[23], header[46]) = (8, 0x45, 6, 0x50);
        header[34..36].copy_from_slice(&source_port.to_be_bytes());
        header[36..38].copy_from_slice(&destination_port.to_be_bytes());
        header[38..42].copy_from_slice(&self.frames.to_be_bytes());
        self.frames += 1;
        let head = FrameHead { time, length, record: 88, header: 54, ..FrameHead::default() };
        let at = self.shared.tx_bytes as usize;
        // SAFETY: the buffer has room for a few frames, which is all that a script sends.
        unsafe { std::ptr::write_unaligned(self.shared.tx[at..].as_mut_ptr().cast(), head) };
        self.shared.tx[at + size_of::<FrameHead>()..][..54].copy_from_slice(&header);
        self.shared.tx_bytes += 88;
    }
}

fn map() -> &'static mut Shared {
    // SAFETY: the descriptor that every kernel inherits, of a file as long as Shared. It is mapped until the process ends.
    unsafe {
        let mapped = Box::leak(Box::new(MmapMut::map_mut(3).unwrap()));
        &mut *mapped.as_mut_ptr().cast()
    }
}
