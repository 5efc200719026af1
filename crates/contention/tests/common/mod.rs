//! Threads to put under contention.
#![allow(dead_code, reason = "every user takes what it needs")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brobust_contention::Tid;

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
