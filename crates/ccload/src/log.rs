//! What libbpf and the kernel's verifier say while something is loaded.

use std::sync::Mutex;

use libbpf_rs::{set_print, PrintLevel};

/// Lines that are kept: enough to show the refused instruction and its registers.
const LINES: usize = 20;

/// The messages of libbpf, which has one callback for them per process; hence only one control is loaded at a time.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Does the work, and returns the last lines that libbpf and the verifier wrote during it.
pub(crate) fn with_log<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    fn keep(_: PrintLevel, text: String) {
        if let Ok(mut log) = LOG.lock() {
            log.extend(text.lines().map(str::to_owned));
            let surplus = log.len().saturating_sub(LINES);
            log.drain(..surplus);
        }
    }
    let _guard = ONE_AT_A_TIME.lock();
    let before = set_print(Some((PrintLevel::Warn, keep)));
    let result = work();
    set_print(before);
    let log = LOG.lock().map(|mut log| std::mem::take(&mut *log)).unwrap_or_default();
    (result, log)
}
