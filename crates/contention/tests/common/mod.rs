//! Threads to put under contention.
#![allow(dead_code, reason = "every user takes what it needs")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brobust_contention::{drivers, ContentionRequest, Driver, Promise, Result, Target, Tid};
use brobust_timeline::{Schedule, Slices};

pub const DEADLINE: &str = "deadline";
pub const BURNER: &str = "burner";

/// Returns slices that leave a thread `share` of a CPU.
pub fn slices(timeslice_ns: u64, share: f64) -> Slices {
    Slices::plain(timeslice_ns, (timeslice_ns as f64 / share).round() as u64)
}

/// Returns what a driver is held to that was given these slices.
pub fn request(driver: &str, slices: &Slices) -> ContentionRequest {
    let promise = if driver == DEADLINE { Promise::TimeslicesAtTicks } else { Promise::Timeslices };
    ContentionRequest { promise, timeslice_ns: slices.timeslice, share: slices.share() }
}

/// Puts threads under contention.
pub fn started(driver: &str, targets: Vec<Target>, start_ns: Option<u64>) -> Result<Box<dyn Driver>> {
    let mut held = drivers::prepare(driver, targets, start_ns)?;
    loop {
        held.start()?;
        if held.settle()? {
            return Ok(held);
        }
    }
}

/// Puts one thread under contention.
pub fn held(driver: &str, tid: Tid, cpu: usize, slices: Slices) -> Result<Box<dyn Driver>> {
    started(driver, vec![Target { tid, cpu: Some(cpu), schedule: Schedule::Slices(slices) }], None)
}

/// A thread that works and sleeps in turns until it is dropped, as a vCPU does.
pub struct Worker {
    pub tid: Tid,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Never sleeps.
    pub fn spinning() -> Self {
        Self::start(Duration::from_secs(3600), Duration::ZERO)
    }

    /// Sleeps almost always.
    pub fn idle() -> Self {
        Self::start(Duration::ZERO, Duration::from_secs(3600))
    }

    pub fn start(busy: Duration, asleep: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = mpsc::channel();
        let thread = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // SAFETY: gettid has no arguments and cannot fail.
                send.send(unsafe { libc::gettid() }).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    spin(busy, &stop);
                    thread::park_timeout(asleep);
                }
            })
        };
        Self { tid: receive.recv().unwrap(), stop, thread: Some(thread) }
    }

    /// The state letter of /proc/<tid>/stat.
    pub fn state(&self) -> char {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.tid)).unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        after_name.trim_start().chars().next().unwrap()
    }

    pub fn wait_until_asleep(&self) {
        while self.state() != 'S' {
            thread::yield_now();
        }
    }
}

fn spin(time: Duration, stop: &AtomicBool) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}
