//! Records what threads really got of the CPU, by a BPF program at the scheduler's tracepoints (recorder.bpf.c).
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use crate::clock;
use crate::error::{ContentionError, Result};
use crate::intervals::{Event, EventKind, Interval, Observed, State};
use crate::summary::{summarize, Summary};
use crate::thread::{Stat, Tid};

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/recorder.skel.rs"));
}
use skeleton::{RecorderSkel, RecorderSkelBuilder};

/// How often the ring buffer is emptied. Rarely, because each visit takes a CPU from somebody; recorder.bpf.c has the
/// reckoning that the ring does not overflow meanwhile.
const VISIT: Duration = Duration::from_millis(50);

/// include/linux/proc_ns.h, PROC_PID_INIT_INO: the inode of the PID namespace that the kernel itself counts in.
const INIT_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What one thread got.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub tid: Tid,
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub end_ns: u64,
    /// Without gaps from start to end, or to the thread's exit.
    pub intervals: Vec<Interval>,
    /// Events of this thread that found the ring buffer full; their times are `State::Unknown`.
    pub lost: u64,
}

impl Recording {
    /// `asked_off_ns`: the off-time that was asked for, if any; it decides what counts as noise.
    pub fn summary(&self, asked_off_ns: Option<u64>) -> Summary {
        summarize(&self.intervals, self.lost, asked_off_ns)
    }
}

/// A recording under way. Dropping it ends it and throws it away.
#[derive(Debug)]
pub struct Recorder {
    stop: Arc<AtomicBool>,
    collector: Option<JoinHandle<Result<Vec<Recording>>>>,
}

impl Recorder {
    /// Starts to record these threads; when it returns, recording is on.
    pub fn start(tids: &[Tid]) -> Result<Self> {
        check_support()?;
        // Our error is the one sentence that a user gets; libbpf would print several more to stderr.
        libbpf_rs::set_print(None);
        let watched = watch(tids)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, wait_ready) = mpsc::sync_channel(1);
        let collector = {
            let stop = Arc::clone(&stop);
            // The skeleton borrows from itself, so it lives and dies on one thread's stack.
            thread::Builder::new()
                .name("recorder".into())
                .spawn(move || collect(watched, &ready, &stop))
                .map_err(|error| ContentionError::os("starting the recorder thread", error))?
        };
        // No message means that it failed and its result says why.
        match wait_ready.recv() {
            Ok(()) => Ok(Self { stop, collector: Some(collector) }),
            Err(_) => Err(join(collector).expect_err("only a failed start sends no message")),
        }
    }

    /// Ends the recording: one per thread, in the order given to `start`.
    pub fn stop(mut self) -> Result<Vec<Recording>> {
        let collector = self.halt().expect("only stop and drop take the collector");
        join(collector)
    }

    fn halt(&mut self) -> Option<JoinHandle<Result<Vec<Recording>>>> {
        let collector = self.collector.take()?;
        self.stop.store(true, Ordering::Release);
        collector.thread().unpark();
        Some(collector)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(collector) = self.halt() {
            // Thrown away with everything else.
            let _ = join(collector);
        }
    }
}

fn join(collector: JoinHandle<Result<Vec<Recording>>>) -> Result<Vec<Recording>> {
    collector.join().expect("the recorder thread panicked")
}

fn check_support() -> Result<()> {
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(ContentionError::NoBtf);
    }
    match pid_namespace() {
        Some(inode) if inode != INIT_PID_NAMESPACE => Err(ContentionError::PidNamespace),
        _ => Ok(()),
    }
}

fn pid_namespace() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// A thread to be recorded, as it was before the recording.
struct Watched {
    tid: Tid,
    before: Stat,
}

fn watch(tids: &[Tid]) -> Result<Vec<Watched>> {
    if tids.is_empty() {
        return Err(ContentionError::NoThreads);
    }
    let mut watched: Vec<Watched> = Vec::new();
    for &tid in tids {
        if watched.iter().all(|other| other.tid != tid) {
            let before = Stat::read(tid)?;
            watched.push(Watched { tid, before });
        }
    }
    Ok(watched)
}

type Events = HashMap<Tid, Vec<Event>>;

/// The recorder thread: loads the program, gathers events until told to stop, makes recordings of them.
fn collect(watched: Vec<Watched>, ready: &mpsc::SyncSender<()>, stop: &AtomicBool) -> Result<Vec<Recording>> {
    let mut storage = MaybeUninit::uninit();
    let mut skeleton = load(&mut storage, &watched).map_err(ContentionError::bpf)?;
    let events = Mutex::new(Events::new());
    let ring = gather_into(&events, &skeleton).map_err(ContentionError::bpf)?;
    attach(&mut skeleton).map_err(ContentionError::bpf)?;

    let start_ns = clock::now();
    // Recorder::start waits for this, so sending cannot fail.
    let _ = ready.send(());
    while !stop.load(Ordering::Acquire) {
        thread::park_timeout(VISIT);
        ring.consume().map_err(ContentionError::bpf)?;
    }
    let end_ns = clock::now();

    detach(&mut skeleton);
    ring.consume().map_err(ContentionError::bpf)?;
    drop(ring);
    let events = events.into_inner().expect("no holder of the lock panics");
    watched
        .iter()
        .map(|thread| {
            let lost = lost_events(&skeleton, thread.tid).map_err(ContentionError::bpf)?;
            Ok(recording(thread, start_ns, end_ns, &events, lost))
        })
        .collect()
}

fn load<'obj>(
    storage: &'obj mut MaybeUninit<libbpf_rs::OpenObject>,
    watched: &[Watched],
) -> libbpf_rs::Result<RecorderSkel<'obj>> {
    let mut open = RecorderSkelBuilder::default().open(storage)?;
    open.maps.watched_tids.set_max_entries(watched.len() as u32)?;
    let skeleton = open.load()?;
    for thread in watched {
        let none_lost = 0u64.to_ne_bytes();
        skeleton.maps.watched_tids.update(&key(thread.tid), &none_lost, MapFlags::ANY)?;
    }
    Ok(skeleton)
}

fn key(tid: Tid) -> [u8; 4] {
    tid.to_ne_bytes()
}

fn gather_into<'a>(events: &'a Mutex<Events>, skeleton: &RecorderSkel) -> libbpf_rs::Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(&skeleton.maps.events, |bytes| {
        if let Some((tid, event)) = parse(bytes) {
            let mut events = events.lock().expect("no holder of the lock panics");
            events.entry(tid).or_default().push(event);
        }
        0
    })?;
    builder.build()
}

/// The wakeups first: were a wakeup missed after a switch-out was seen, a waiting thread would count as asleep.
fn attach(skeleton: &mut RecorderSkel) -> libbpf_rs::Result<()> {
    skeleton.links.on_wakeup = Some(skeleton.progs.on_wakeup.attach()?);
    skeleton.links.on_switch = Some(skeleton.progs.on_switch.attach()?);
    Ok(())
}

fn detach(skeleton: &mut RecorderSkel) {
    skeleton.links.on_switch = None;
    skeleton.links.on_wakeup = None;
}

fn lost_events(skeleton: &RecorderSkel, tid: Tid) -> libbpf_rs::Result<u64> {
    let value = skeleton.maps.watched_tids.lookup(&key(tid), MapFlags::ANY)?;
    Ok(value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes))
}

/// `struct event` of recorder.bpf.h.
fn parse(bytes: &[u8]) -> Option<(Tid, Event)> {
    let (ns, rest) = bytes.split_first_chunk()?;
    let (lost, rest) = rest.split_first_chunk()?;
    let (tid, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let event = Event {
        ns: u64::from_ne_bytes(*ns),
        lost: u64::from_ne_bytes(*lost),
        kind: event_kind(u32::from_ne_bytes(*kind))?,
    };
    Some((Tid::from_ne_bytes(*tid), event))
}

/// `enum event_kind` of recorder.bpf.h.
fn event_kind(number: u32) -> Option<EventKind> {
    match number {
        0 => Some(EventKind::SwitchedIn),
        1 => Some(EventKind::SwitchedOutRunnable),
        2 => Some(EventKind::SwitchedOutAsleep),
        3 => Some(EventKind::Woken),
        4 => Some(EventKind::Exited),
        _ => None,
    }
}

fn recording(thread: &Watched, start_ns: u64, end_ns: u64, events: &Events, lost: u64) -> Recording {
    let none = Vec::new();
    let observed = Observed {
        start_ns,
        end_ns,
        events: events.get(&thread.tid).unwrap_or(&none),
        if_silent: state_if_silent(&thread.before, Stat::read(thread.tid).ok().as_ref()),
        lost,
    };
    Recording { tid: thread.tid, start_ns, end_ns, intervals: observed.intervals(), lost }
}

/// The state of a thread that was never switched in or out: the kernel shows running and waiting alike (`R`), but only
/// a running thread uses CPU time.
fn state_if_silent(before: &Stat, after: Option<&Stat>) -> State {
    let used = after.map_or(0, |after| after.cpu_ticks.saturating_sub(before.cpu_ticks));
    match before.state {
        'R' if used > 0 => State::Running,
        'R' => State::Waiting,
        _ => State::Asleep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(state: char, cpu_ticks: u64) -> Stat {
        Stat { state, cpu_ticks, started: 1 }
    }

    #[test]
    fn a_silent_thread_ran_if_it_used_the_cpu_and_waited_if_it_only_wanted_to() {
        assert_eq!(state_if_silent(&stat('R', 5), Some(&stat('R', 9))), State::Running);
        assert_eq!(state_if_silent(&stat('R', 5), Some(&stat('R', 5))), State::Waiting);
        assert_eq!(state_if_silent(&stat('S', 5), Some(&stat('S', 5))), State::Asleep);
    }

    #[test]
    fn an_event_is_read_as_the_c_struct_is_laid_out() {
        let mut bytes = Vec::new();
        bytes.extend(123_456u64.to_ne_bytes());
        bytes.extend(7u64.to_ne_bytes());
        bytes.extend(4242u32.to_ne_bytes());
        bytes.extend(3u32.to_ne_bytes());
        let event = Event { ns: 123_456, lost: 7, kind: EventKind::Woken };
        assert_eq!(parse(&bytes), Some((4242, event)));
        assert_eq!(parse(&bytes[..20]), None);
    }

    #[test]
    fn the_same_thread_twice_is_recorded_once() {
        let tid = crate::thread::current_tid();
        assert_eq!(watch(&[tid, tid]).unwrap().len(), 1);
        assert!(matches!(watch(&[]), Err(ContentionError::NoThreads)));
    }
}
