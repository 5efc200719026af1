//! Ctrl-C, SIGTERM and the end of the terminal: they end a command's waiting, and the command undoes what it changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};

use crate::Stop;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// Lets these signals come. The Python package keeps those of the moment in which its process becomes this program
/// (python/brobust/interrupts.py), and they end it now.
pub fn unblock() {
    let _ = SIGNALS.into_iter().collect::<SigSet>().thread_unblock();
}

/// From now on these signals do not end the process, but its next wait. One that is ignored stays so: nohup ignores
/// SIGHUP, and a shell ignores SIGINT for what it starts in the background.
pub fn catch() {
    let caught = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for number in SIGNALS {
        // SAFETY: the handler only writes an atomic.
        if let Ok(before) = unsafe { sigaction(number, &caught) } {
            if before.handler() == SigHandler::SigIgn {
                // SAFETY: this restores what was there.
                let _ = unsafe { sigaction(number, &before) };
            }
        }
    }
}

pub fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Sleeps until then, or until one of the signals comes.
pub fn sleep_until(end: Instant) -> Result<(), Stop> {
    loop {
        if is_interrupted() {
            return Err(Stop::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // thread::sleep goes on sleeping after a signal, hence in steps.
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}
