//! Records what threads really got of the CPU, by a BPF program at the scheduler's tracepoints (recorder.bpf.c).
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{mpsc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use brobust_host::Stat;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, RingBuffer, RingBufferBuilder};

use crate::clock;
use crate::error::{ContentionError, Result};
use crate::intervals::{Event, EventKind, Observed, State, WaitsSince};
use crate::recording::Recording;
use crate::schedstat::{Poller, POLL_INTERVAL};
use crate::tid::Tid;

mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/recorder.skel.rs"));
}
use skeleton::{RecorderSkel, RecorderSkelBuilder};

/// How often the ring buffer is emptied: rarely, because each time takes a CPU from somebody; recorder.bpf.c computes that the
/// ring does not overflow in between.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// include/linux/proc_ns.h, PROC_PID_INIT_INO: the inode of the PID namespace that the kernel itself counts in.
const INIT_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// A recording under way. When dropped, it ends and discards what was not taken.
#[derive(Debug)]
pub struct Recorder {
    requests: Option<mpsc::Sender<Reply>>,
    collector: Option<JoinHandle<()>>,
}

/// Where the collector puts the recordings that were asked for.
type Reply = mpsc::SyncSender<Result<Vec<Recording>>>;

impl Recorder {
    /// Starts to record these threads; recording is on when it returns.
    pub fn start(tids: &[Tid]) -> Result<Self> {
        check_support()?;
        // Our error is the one sentence for the user; libbpf would print several more to stderr.
        libbpf_rs::set_print(None);
        let watched = watch(tids)?;
        // The skeleton borrows from itself, so it lives and dies on one thread's stack.
        Self::run(move |ready, requests| collect(watched, ready, requests))
    }

    /// Starts to record without privilege, by polling what the kernel counts (schedstat.rs): the time of an off-time is exact
    /// to a millisecond, and so is its length unless another off-time lies within a millisecond.
    pub fn start_unprivileged(tids: &[Tid]) -> Result<Self> {
        let pollers = watch(tids)?.iter().map(|thread| Poller::open(thread.tid)).collect::<Result<_>>()?;
        Self::run(move |ready, requests| poll(pollers, ready, requests))
    }

    /// Runs `collect` in a thread of its own: it says when it is ready, then answers requests until nobody can send any.
    fn run(
        collect: impl FnOnce(&mpsc::SyncSender<Result<()>>, &mpsc::Receiver<Reply>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (sender, requests) = mpsc::channel();
        let (ready, wait_ready) = mpsc::sync_channel(1);
        let collector = thread::Builder::new()
            .name("recorder".into())
            .spawn(move || {
                if let Err(error) = collect(&ready, &requests) {
                    // Before it was ready somebody waits for that; later it is the answer to the next request.
                    if let Err(mpsc::SendError(Err(error))) = ready.send(Err(error)) {
                        let _ = requests.recv().map(|reply: Reply| reply.send(Err(error)));
                    }
                }
            })
            .map_err(|error| ContentionError::os("starting the recorder thread", error))?;
        wait_ready.recv().expect("the recorder thread always says how its start went")?;
        Ok(Self { requests: Some(sender), collector: Some(collector) })
    }

    /// Returns what was recorded since the start, or since the previous call: one recording per thread, in the order given
    /// to `start`. The parts of a thread join without a gap ([`Recording::append`]).
    pub fn take(&self) -> Result<Vec<Recording>> {
        let (reply, answer) = mpsc::sync_channel(1);
        let requests = self.requests.as_ref().expect("only drop takes it");
        let lost = |_| ContentionError::Bpf { reason: "its collector has ended".into() };
        requests.send(reply).map_err(|_| lost(mpsc::RecvError))?;
        answer.recv().map_err(lost)?
    }

    /// Ends the recording and returns what has not been taken yet.
    pub fn stop(self) -> Result<Vec<Recording>> {
        self.take()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The collector ends when nobody can send requests any more.
        drop(self.requests.take());
        if let Some(collector) = self.collector.take() {
            collector.join().expect("the recorder thread panicked");
        }
    }
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

/// A thread that is being recorded, and how far its recording has come.
struct Watched {
    tid: Tid,
    /// The thread before the part that is being recorded.
    before: Stat,
    /// State at the end of the previous part; None before there is one.
    state: Option<State>,
    waits_since: Option<WaitsSince>,
    lost: u64,
    has_exited: bool,
}

fn watch(tids: &[Tid]) -> Result<Vec<Watched>> {
    if tids.is_empty() {
        return Err(ContentionError::NoThreads);
    }
    let mut watched: Vec<Watched> = Vec::new();
    for &tid in tids {
        if watched.iter().all(|other| other.tid != tid) {
            watched.push(Watched {
                tid,
                before: Stat::read(tid).ok_or(ContentionError::NoThread { tid })?,
                state: None,
                waits_since: None,
                lost: 0,
                has_exited: false,
            });
        }
    }
    Ok(watched)
}

type Events = HashMap<Tid, Vec<Event>>;

/// Is the recorder thread: loads the program, gathers events, and makes recordings of them for each request.
fn collect(
    mut watched: Vec<Watched>,
    ready: &mpsc::SyncSender<Result<()>>,
    requests: &mpsc::Receiver<Reply>,
) -> Result<()> {
    let mut storage = MaybeUninit::uninit();
    let mut skeleton = load(&mut storage, &watched).map_err(ContentionError::bpf)?;
    let events = Mutex::new(Events::new());
    let ring = gather_into(&events, &skeleton).map_err(ContentionError::bpf)?;
    attach(&mut skeleton).map_err(ContentionError::bpf)?;

    let mut start_ns = clock::now();
    // Recorder::start waits for this, so sending cannot fail.
    let _ = ready.send(Ok(()));
    loop {
        let Ok(reply) = request_within(requests, DRAIN_INTERVAL) else { return Ok(()) };
        let end_ns = clock::now();
        ring.consume().map_err(ContentionError::bpf)?;
        let Some(reply) = reply else { continue };
        let recorded = watched
            .iter_mut()
            .map(|thread| {
                let lost = lost_events(&skeleton, thread.tid).map_err(ContentionError::bpf)?;
                let mut events = events.lock().expect("no holder of the lock panics");
                Ok(thread.part(start_ns, end_ns, events.entry(thread.tid).or_default(), lost))
            })
            .collect();
        // Whoever sent the request may have gone; the next one gets what comes from here on.
        let _ = reply.send(recorded);
        start_ns = end_ns;
    }
}

/// Returns the request that comes within that time, if one does; an error when nobody can send any more.
fn request_within(
    requests: &mpsc::Receiver<Reply>,
    time: Duration,
) -> std::result::Result<Option<Reply>, mpsc::RecvTimeoutError> {
    match requests.recv_timeout(time) {
        Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
        answer => answer.map(Some),
    }
}

fn poll(
    mut pollers: Vec<Poller>,
    ready: &mpsc::SyncSender<Result<()>>,
    requests: &mpsc::Receiver<Reply>,
) -> Result<()> {
    let _ = ready.send(Ok(()));
    loop {
        let Ok(reply) = request_within(requests, POLL_INTERVAL) else { return Ok(()) };
        pollers.iter_mut().for_each(Poller::poll);
        if let Some(reply) = reply {
            let _ = reply.send(Ok(pollers.iter_mut().map(Poller::part).collect()));
        }
    }
}

impl Watched {
    /// Makes a recording of the events until `end_ns`, and leaves the later ones for the next part.
    fn part(&mut self, start_ns: u64, end_ns: u64, events: &mut Vec<Event>, lost: u64) -> Recording {
        let later = events.split_off(events.partition_point(|event| event.ns <= end_ns));
        let now = std::mem::replace(events, later);
        let after = Stat::read(self.tid);
        let observed = Observed {
            start_ns,
            end_ns,
            before: self.state,
            waits_since: self.waits_since,
            events: &now,
            if_silent: state_if_silent(&self.before, after.as_ref()),
            lost_before: self.lost,
            lost,
        };
        let (intervals, waits_since) = if self.has_exited { Default::default() } else { observed.intervals() };
        let recording = Recording { tid: self.tid, start_ns, end_ns, lost: lost - self.lost, intervals };
        self.state = recording.intervals.last().map(|last| last.state).or(self.state);
        self.waits_since = waits_since;
        self.has_exited |= now.iter().any(|event| event.kind == EventKind::Exited);
        self.before = after.unwrap_or(self.before);
        self.lost = lost;
        recording
    }
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

/// Attaches the program for wakeups first: if a wakeup were missed after a switch-out was seen, a waiting thread would count
/// as asleep.
fn attach(skeleton: &mut RecorderSkel) -> libbpf_rs::Result<()> {
    skeleton.links.on_wakeup = Some(skeleton.progs.on_wakeup.attach()?);
    skeleton.links.on_switch = Some(skeleton.progs.on_switch.attach()?);
    Ok(())
}

fn lost_events(skeleton: &RecorderSkel, tid: Tid) -> libbpf_rs::Result<u64> {
    let value = skeleton.maps.watched_tids.lookup(&key(tid), MapFlags::ANY)?;
    Ok(value.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes))
}

/// `struct event` of recorder.bpf.h.
fn parse(bytes: &[u8]) -> Option<(Tid, Event)> {
    let (ns, rest) = bytes.split_first_chunk()?;
    let (lost, rest) = rest.split_first_chunk()?;
    let (waited_ns, rest) = rest.split_first_chunk()?;
    let (tid, rest) = rest.split_first_chunk()?;
    let (kind, _) = rest.split_first_chunk()?;
    let event = Event {
        ns: u64::from_ne_bytes(*ns),
        lost: u64::from_ne_bytes(*lost),
        waited_ns: Some(u64::from_ne_bytes(*waited_ns)).filter(|&ns| ns != NOT_COUNTED),
        kind: event_kind(u32::from_ne_bytes(*kind))?,
    };
    Some((Tid::from_ne_bytes(*tid), event))
}

/// `NOT_COUNTED` of recorder.bpf.h: this kernel was built without CONFIG_SCHED_INFO.
const NOT_COUNTED: u64 = u64::MAX;

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

/// Returns the state of a thread that was never switched in or out. The kernel shows both running and waiting as `R`, but
/// only a running thread uses CPU time.
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
    use brobust_layout::headers::RECORDER;

    use super::*;

    fn stat(state: char, cpu_ticks: u64) -> Stat {
        Stat { state, cpu_ticks, started: 1, parent: 1 }
    }

    #[test]
    fn a_silent_thread_ran_if_it_used_the_cpu_and_waited_if_it_only_wanted_to() {
        assert_eq!(state_if_silent(&stat('R', 5), Some(&stat('R', 9))), State::Running);
        assert_eq!(state_if_silent(&stat('R', 5), Some(&stat('R', 5))), State::Waiting);
        assert_eq!(state_if_silent(&stat('S', 5), Some(&stat('S', 5))), State::Asleep);
    }

    #[test]
    fn an_event_is_read_as_the_c_struct_is_laid_out() {
        let bytes = RECORDER.numbered("event", &["ns", "lost", "tid", "kind", "waited_ns"]);
        let event = Event { ns: 1, lost: 2, waited_ns: Some(5), kind: event_kind(4).unwrap() };
        assert_eq!(parse(&bytes), Some((3, event)));
        assert_eq!(parse(&bytes[..28]), None);
        assert_eq!(RECORDER.fields("event").len(), 5);
    }

    #[test]
    fn kinds_of_events_have_the_names_and_numbers_of_c() {
        let kinds = RECORDER.enumerators("event_kind");
        for (name, number) in &kinds {
            let kind = event_kind(u32::try_from(*number).unwrap()).expect(name);
            assert_eq!(format!("{kind:?}").to_uppercase(), name.replace('_', ""));
        }
        assert_eq!(event_kind(kinds.len() as u32), None);
    }

    #[test]
    fn what_comes_after_a_part_is_the_next_ones() {
        let mut thread =
            Watched { tid: 0, before: stat('S', 0), state: None, waits_since: None, lost: 0, has_exited: false };
        let event = |ns, kind| Event { ns, kind, lost: 0, waited_ns: None };
        let mut events =
            vec![event(5, EventKind::Woken), event(8, EventKind::SwitchedIn), event(15, EventKind::Exited)];
        let states = |part: Recording| part.intervals.iter().map(|i| (i.duration_ns, i.state)).collect::<Vec<_>>();
        let first = states(thread.part(0, 10, &mut events, 0));
        assert_eq!(first, [(5, State::Asleep), (3, State::Waiting), (2, State::Running)]);
        assert_eq!(states(thread.part(10, 20, &mut events, 0)), [(5, State::Running)]);
        assert_eq!(states(thread.part(20, 30, &mut events, 0)), []);
    }

    #[test]
    fn the_same_thread_twice_is_recorded_once() {
        let tid = nix::unistd::gettid().as_raw();
        assert_eq!(watch(&[tid, tid]).unwrap().len(), 1);
        assert!(matches!(watch(&[]), Err(ContentionError::NoThreads)));
    }
}
