//! The drivers and the recorder on real threads. They need root and are ignored otherwise, which cargo says; `make rust`
//! runs them as root, by `-- --include-ignored`.
//!
//! Other programs may run at the same time: an exact result has to come out exactly in one of a few attempts only, and a
//! test that cannot judge because of them says so on stderr, past the capture of tests that pass.
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brobust_contention::{
    deviation, drivers, hrtick_dl, hz, ContentionError, ContentionRequest, Driver, Interval, Promise, Recorder,
    Recording, Result, State, Summary, Target, Ticks, Tid,
};
use brobust_host::sched_attr::{SchedAttr, SCHED_DEADLINE};
use brobust_host::threads::{cpus_of, pin};
use brobust_host::Stat;
use brobust_timeline::{Schedule, Slices};

const MS: u64 = 1_000_000;
const ATTEMPTS: usize = 4;
const DEADLINE: &str = "deadline";
const BURNER: &str = "burner";

/// Returns slices that leave a thread `share` of a CPU.
fn slices(timeslice_ns: u64, share: f64) -> Slices {
    Slices::plain(timeslice_ns, (timeslice_ns as f64 / share).round() as u64)
}

/// Returns what a driver is held to that was given these slices.
fn request(driver: &str, slices: &Slices) -> ContentionRequest {
    let promise = if driver == DEADLINE { Promise::TimeslicesAtTicks } else { Promise::Timeslices };
    ContentionRequest { promise, timeslice_ns: slices.timeslice, share: slices.share() }
}

/// Puts threads under contention.
fn started(driver: &str, targets: Vec<Target>, start_ns: Option<u64>) -> Result<Box<dyn Driver>> {
    let mut held = drivers::prepare(driver, targets, start_ns)?;
    loop {
        held.start()?;
        if held.settle()? {
            return Ok(held);
        }
    }
}

/// Puts one thread under contention.
fn held(driver: &str, tid: Tid, cpu: usize, slices: Slices) -> Result<Box<dyn Driver>> {
    started(driver, vec![Target { tid, cpu: Some(cpu), schedule: Schedule::Slices(slices) }], None)
}

/// A thread that works and sleeps in turns until it is dropped, as a vCPU does.
struct Worker {
    tid: Tid,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Never sleeps.
    fn spinning() -> Self {
        Self::start(Duration::from_secs(3600), Duration::ZERO)
    }

    /// Sleeps almost always.
    fn idle() -> Self {
        Self::start(Duration::ZERO, Duration::from_secs(3600))
    }

    /// Waits until it is this test's turn.
    fn start(busy: Duration, asleep: Duration) -> Self {
        HELD.with(|_| ());
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

    fn wait_until_asleep(&self) {
        while Stat::read(self.tid).is_none_or(|stat| stat.state != 'S') {
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

/// One test at a time has threads: they would take the CPU from one another.
static ALONE: Mutex<()> = Mutex::new(());

thread_local! {
    /// Held by the thread of a test until that ends. Another one that failed says nothing about this.
    static HELD: MutexGuard<'static, ()> = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
}

/// Says that the test of this thread ends without a judgement. Not by eprintln!, which is captured.
fn skipped(why: &str) {
    let test = thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "{test}: skipped, {why}");
}

fn record(tid: Tid, time: Duration) -> Recording {
    let recorder = Recorder::start(&[tid]).unwrap();
    thread::sleep(time);
    recorder.stop().unwrap().remove(0)
}

/// Slices of these lengths, again and again.
fn on_off(on_ns: u64, off_ns: u64) -> Schedule {
    Schedule::Slices(Slices::plain(on_ns, on_ns + off_ns))
}

fn deadline(tids: &[Tid], timeslice_ns: u64, period_ns: u64) -> Result<Box<dyn Driver>> {
    let schedule = Schedule::Slices(Slices::plain(timeslice_ns, period_ns));
    started(DEADLINE, tids.iter().map(|&tid| Target { tid, cpu: None, schedule: schedule.clone() }).collect(), None)
}

fn burner(tid: Tid, cpu: usize, schedule: Schedule) -> Result<Box<dyn Driver>> {
    started(BURNER, vec![Target { tid, cpu: Some(cpu), schedule }], None)
}

/// Puts `worker` under contention and sums up what it got in a second.
fn measure(worker: &Worker, driver: &str, slices: Slices) -> Summary {
    let _held = held(driver, worker.tid, last_cpu(), slices).unwrap();
    let recording = record(worker.tid, Duration::from_secs(1));
    recording.summary(Some(slices.off_time()))
}

/// How the worker's second differs from what was asked for, if it does.
fn measured_deviation(worker: &Worker, driver: &str, slices: Slices) -> Option<String> {
    deviation(&request(driver, &slices), &measure(worker, driver, slices), Ticks::of_this_host())
}

/// Why not one of a few attempts was faithful; None if one was.
fn all_unfaithful(worker: &Worker, driver: &str, slices: Slices) -> Option<Vec<String>> {
    let reasons: Vec<String> = (0..ATTEMPTS).map_while(|_| measured_deviation(worker, driver, slices)).collect();
    (reasons.len() == ATTEMPTS).then_some(reasons)
}

fn assert_faithful(driver: &str, timeslice_ns: u64, share: f64) {
    judge(all_unfaithful(&Worker::spinning(), driver, slices(timeslice_ns, share)));
}

/// Unfaithful is a failure, unless the machine is so busy that not even an undisturbed thread has its CPU to itself. What
/// keeps it busy may come and go, as a compiler does, so it is looked for during ten seconds. Busy is also a machine whose
/// own hypervisor takes its CPUs away, which no thread's account shows.
fn judge(reasons: Option<Vec<String>>) {
    let Some(reasons) = reasons else { return };
    let worker = Worker::spinning();
    pin(worker.tid, last_cpu()).unwrap();
    let half_second = || {
        let before = stolen(last_cpu());
        let share = record(worker.tid, Duration::from_millis(500)).summary(None).effective_share;
        share - (stolen(last_cpu()) - before).as_secs_f64() / 0.5
    };
    let busy = (0..20).map(|_| half_second()).find(|&free| free < 0.95);
    let free = 100.0 * busy.unwrap_or_else(|| panic!("{reasons:#?}"));
    let cpu = last_cpu();
    skipped(&format!("CPU {cpu} is busy with other things, {free:.0} % of it is free"));
}

/// How long a CPU was given to others by this machine's hypervisor since boot (proc_stat(5)).
fn stolen(cpu: usize) -> Duration {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    let line = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))).unwrap();
    let ticks: u64 = line.split_whitespace().nth(7).unwrap().parse().unwrap();
    Duration::from_millis(10 * ticks)
}

fn affinity(tid: Tid) -> Vec<usize> {
    cpus_of(tid).unwrap()
}

fn last_cpu() -> usize {
    *affinity(0).last().unwrap()
}

/// Returns policy and nice value.
fn scheduling(tid: Tid) -> (i32, i32) {
    let SchedAttr { policy, nice, .. } = SchedAttr::of(tid).unwrap();
    (policy as i32, nice)
}

fn set_nice(tid: Tid, nice: i32) {
    SchedAttr { nice, ..SchedAttr::of(tid).unwrap() }.set(tid).unwrap();
}

/// Lets a thread, and those that it starts, run before all ordinary threads, but not before a burner.
fn set_real_time(tid: Tid) {
    SchedAttr::fifo(20).set(tid).unwrap();
}

fn no_such_thread() -> Tid {
    let worker = Worker::idle();
    let tid = worker.tid;
    drop(worker);
    // A joined thread may take a moment to leave /proc.
    while Path::new(&format!("/proc/{tid}")).exists() {
        thread::yield_now();
    }
    tid
}

#[test]
#[ignore = "needs root"]
fn a_burner_keeps_one_millisecond_slices_at_any_tick_rate() {
    assert_faithful(BURNER, MS, 0.25);
}

#[test]
#[ignore = "needs root"]
fn a_burner_keeps_long_slices() {
    assert_faithful(BURNER, 10 * MS, 0.25);
}

#[test]
#[ignore = "needs root"]
fn deadline_keeps_ten_millisecond_slices_on_average() {
    assert_faithful(DEADLINE, 10 * MS, 0.25);
    assert_faithful(DEADLINE, 10 * MS, 0.5);
}

#[test]
#[ignore = "needs root"]
fn deadline_slices_far_below_the_tick_are_found_out() {
    if hz().is_none_or(|hz| hz > 250) || hrtick_dl() == Some(true) {
        skipped("this kernel's ticks are fine enough");
        return;
    }
    let worker = Worker::spinning();
    // If the period happens to begin 1 ms before a tick, the slice is right: one phase in forty.
    let reason = (0..ATTEMPTS)
        .find_map(|_| measured_deviation(&worker, DEADLINE, slices(MS, 0.25)))
        .expect("1 ms slices at HZ=250 should be found out");
    assert!(reason.contains("use the burner driver"), "{reason}");
}

#[test]
#[ignore = "needs root"]
fn a_mostly_busy_thread_is_measured_as_well_as_a_busy_one() {
    let worker = Worker::start(Duration::from_micros(1000), Duration::from_micros(100));
    judge(all_unfaithful(&worker, BURNER, slices(10 * MS, 0.25)));
}

#[test]
#[ignore = "needs root"]
fn deadline_gives_policy_and_nice_value_back() {
    let worker = Worker::spinning();
    set_nice(worker.tid, 5);
    let mut held = deadline(&[worker.tid], 10 * MS, 20 * MS).unwrap();
    // The thread may start others, which are not held.
    let now = SchedAttr::of(worker.tid).unwrap();
    assert_eq!((now.policy, now.flags), (SCHED_DEADLINE, libc::SCHED_FLAG_RESET_ON_FORK as u64));
    held.stop().unwrap();
    assert_eq!(scheduling(worker.tid), (libc::SCHED_OTHER, 5));
    held.stop().unwrap();

    drop(deadline(&[worker.tid], 10 * MS, 20 * MS).unwrap());
    assert_eq!(scheduling(worker.tid), (libc::SCHED_OTHER, 5));
}

#[test]
#[ignore = "needs root"]
fn deadline_does_not_mind_a_thread_that_has_ended() {
    let (ended, alive) = (Worker::spinning(), Worker::spinning());
    let mut held = deadline(&[ended.tid, alive.tid], 2 * MS, 20 * MS).unwrap();
    drop(ended);
    held.stop().unwrap();
    assert_eq!(scheduling(alive.tid).0, libc::SCHED_OTHER);
}

#[test]
#[ignore = "needs root"]
fn deadline_changes_no_thread_if_one_is_refused() {
    let worker = Worker::spinning();
    let error = deadline(&[worker.tid, no_such_thread()], 2 * MS, 20 * MS).unwrap_err();
    assert!(matches!(error, ContentionError::NoThread { .. }), "{error:?}");
    assert_eq!(scheduling(worker.tid).0, libc::SCHED_OTHER);
}

/// Fails on a kernel that loses the bandwidth of sleepers, if `Driver::stop` does not take care.
#[test]
#[ignore = "needs root"]
fn restoring_sleeping_threads_uses_up_no_bandwidth() {
    let worker = Worker::idle();
    let cpus = affinity(0).len();
    for _ in 0..15 * cpus {
        worker.wait_until_asleep();
        let held = deadline(&[worker.tid], MS, 10 * MS);
        thread::sleep(Duration::from_millis(11));
        held.unwrap().stop().unwrap();
    }
}

/// Fails in every other try on a kernel that loses count when one thread leaves and the host's sysctls are read, if
/// `Driver::start` does not ask again.
#[test]
#[ignore = "needs root"]
fn threads_that_come_and_go_elsewhere_are_no_reason_to_refuse() {
    let (worker, elsewhere) = (Worker::idle(), Worker::spinning());
    let before = SchedAttr::of(elsewhere.tid).unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                // This may be refused itself, which is not what is tested.
                let _ = SchedAttr::deadline(6 * MS, 20 * MS).set(elsewhere.tid);
                thread::sleep(Duration::from_millis(9));
                before.set(elsewhere.tid).unwrap();
                thread::sleep(Duration::from_millis(12));
            }
        });
        while Instant::now() < end {
            deadline(&[worker.tid], MS, 10 * MS).unwrap().stop().unwrap();
        }
    });
}

/// Fails now and then on a kernel that leaves a thread throttled, if `Driver::stop` returns at once.
#[test]
#[ignore = "needs root"]
fn a_thread_runs_when_it_is_put_under_deadline_again_at_once() {
    let ms = Duration::from_millis;
    for worker in [Worker::spinning(), Worker::start(ms(1), ms(1))] {
        for i in 0..10 {
            let mut first = deadline(&[worker.tid], MS, 4 * MS).unwrap();
            thread::sleep(Duration::from_micros(20_000 + 700 * i));
            first.stop().unwrap();
            let _again = deadline(&[worker.tid], 10 * MS, 40 * MS).unwrap();
            let summary = record(worker.tid, ms(100)).summary(None);
            // One that is left throttled does not run at all; 0.05 was seen while others compiled.
            assert!(summary.effective_share - summary.asleep_share > 0.01, "{summary:?}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn deadline_says_that_a_pinned_thread_is_pinned() {
    if affinity(0).len() < 2 {
        skipped("with one CPU every thread may run everywhere");
        return;
    }
    let worker = Worker::spinning();
    let _pinned = burner(worker.tid, last_cpu(), on_off(20 * MS, MS)).unwrap();
    let error = deadline(&[worker.tid], 10 * MS, 40 * MS).unwrap_err();
    assert!(matches!(error, ContentionError::Affinity { .. }), "{error:?}");
}

/// A neighbour of the same session; without a nice value it takes every other timeslice.
#[test]
#[ignore = "needs root"]
fn a_busy_neighbour_gets_next_to_nothing_of_the_timeslices() {
    let neighbour = Worker::spinning();
    pin(neighbour.tid, last_cpu()).unwrap();
    let worker = Worker::spinning();
    let shares = (0..ATTEMPTS).map(|_| measure(&worker, BURNER, slices(MS, 0.25)).effective_share);
    // Half of the timeslices would be a share of 0.125.
    let low: Vec<f64> = shares.take_while(|share| *share < 0.17).collect();
    drop(neighbour);
    judge((low.len() == ATTEMPTS).then(|| vec![format!("{low:?} of the CPU")]));
}

#[test]
#[ignore = "needs root"]
fn a_burner_pins_its_thread_and_gives_affinity_and_nice_value_back() {
    let worker = Worker::spinning();
    set_nice(worker.tid, 3);
    let before = affinity(worker.tid);
    let mut held = burner(worker.tid, last_cpu(), on_off(MS, MS)).unwrap();
    assert_eq!(affinity(worker.tid), [last_cpu()]);
    held.stop().unwrap();
    assert_eq!((affinity(worker.tid), scheduling(worker.tid).1), (before, 3));
    held.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_burner_does_not_mind_a_thread_that_has_ended() {
    let worker = Worker::spinning();
    let mut held = burner(worker.tid, last_cpu(), on_off(MS, MS)).unwrap();
    drop(worker);
    held.stop().unwrap();
}

#[test]
#[ignore = "needs root"]
fn a_burner_stops_at_once_inside_long_slices_and_off_times() {
    let long_on = on_off(60_000 * MS, MS);
    let long_off = on_off(300 * MS, 600 * MS);
    let worker = Worker::spinning();
    let stopped_in = |schedule: &Schedule| {
        let mut held = burner(worker.tid, last_cpu(), schedule.clone()).unwrap();
        thread::sleep(Duration::from_millis(350));
        // So that it is the burner whose time is measured, not the queue of others for a CPU.
        set_real_time(0);
        let begun = Instant::now();
        held.stop().unwrap();
        begun.elapsed()
    };
    for schedule in [long_on, long_off] {
        // The off-time would last for half a second more.
        let slow = (0..ATTEMPTS).map(|_| stopped_in(&schedule)).take_while(|time| *time >= Duration::from_millis(350));
        let slow: Vec<Duration> = slow.collect();
        assert!(slow.len() < ATTEMPTS, "{slow:?}, {schedule:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn burners_with_the_same_start_go_together() {
    let cpus = affinity(0);
    if cpus.len() < 2 {
        skipped("needs two CPUs");
        return;
    }
    let workers = [Worker::spinning(), Worker::spinning()];
    let attempts = (0..ATTEMPTS).map(|_| {
        let recorder = Recorder::start(&[workers[0].tid, workers[1].tid]).unwrap();
        let start_ns = Some(brobust_contention::clock::now());
        let held = [0, 1].map(|i| {
            let target = Target { tid: workers[i].tid, cpu: Some(cpus[i]), schedule: on_off(30 * MS, 20 * MS) };
            started(BURNER, vec![target], start_ns).unwrap()
        });
        thread::sleep(Duration::from_millis(300));
        let recordings = recorder.stop().unwrap();
        drop(held);
        median_distance(&off_begins(&recordings[0]), &off_begins(&recordings[1]))
    });
    let apart_ns: Vec<u64> = attempts.take_while(|apart_ns| *apart_ns > MS).collect();
    drop(workers);
    judge((apart_ns.len() == ATTEMPTS).then(|| vec![format!("{apart_ns:?} ns apart")]));
}

/// When the thread's long waits began.
fn off_begins(recording: &Recording) -> Vec<u64> {
    let intervals = recording.intervals.iter();
    intervals.filter(|i| i.state == State::Waiting && i.duration_ns > 10 * MS).map(|i| i.start_ns).collect()
}

/// The median over `a` of the distance to the nearest of `b`.
fn median_distance(a: &[u64], b: &[u64]) -> u64 {
    let nearest = |x: &u64| b.iter().map(|y| x.abs_diff(*y)).min();
    let mut distances: Vec<u64> = a.iter().filter_map(nearest).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied().unwrap_or(u64::MAX)
}

#[test]
#[ignore = "needs root"]
fn a_burner_refuses_a_thread_it_cannot_preempt() {
    let worker = Worker::spinning();
    let _held = deadline(&[worker.tid], MS, 20 * MS).unwrap();
    let error = burner(worker.tid, last_cpu(), on_off(MS, MS)).unwrap_err();
    assert!(error.to_string().contains("SCHED_DEADLINE"), "{error}");
}

#[test]
#[ignore = "needs root"]
fn a_burner_refuses_a_cpu_that_does_not_exist() {
    let worker = Worker::idle();
    let before = affinity(worker.tid);
    let error = burner(worker.tid, 1000, on_off(MS, MS)).unwrap_err();
    assert!(matches!(error, ContentionError::Cpu { cpu: 1000, .. }), "{error:?}");
    assert_eq!(affinity(worker.tid), before);
}

#[test]
#[ignore = "needs root"]
fn a_recording_covers_its_time_without_gaps() {
    let worker = Worker::start(Duration::from_millis(3), Duration::from_millis(3));
    // Without a queue of others, which would lengthen its turns at work and not those asleep.
    set_real_time(worker.tid);
    let attempts = (0..ATTEMPTS).map(|_| {
        let recording = record(worker.tid, Duration::from_millis(300));
        let mut now_ns = recording.start_ns;
        for interval in &recording.intervals {
            assert_eq!(interval.start_ns, now_ns);
            now_ns += interval.duration_ns;
        }
        assert_eq!(now_ns, recording.end_ns);
        assert_eq!(recording.lost, 0);
        recording.summary(None).asleep_share
    });
    // A machine whose own hypervisor stops it meanwhile does so while the thread works, or sleeps.
    let shares: Vec<f64> = attempts.take_while(|share| !(0.3..0.7).contains(share)).collect();
    assert!(shares.len() < ATTEMPTS, "asleep {shares:?}");
}

/// Whatever else runs meanwhile: also threads whose switches this kernel reports to nobody (intervals.rs).
#[test]
#[ignore = "needs root"]
fn a_thread_is_recorded_to_wait_as_long_as_the_kernel_counts() {
    let (neighbour, worker) = (Worker::spinning(), Worker::spinning());
    for tid in [neighbour.tid, worker.tid] {
        pin(tid, last_cpu()).unwrap();
    }
    // A wait is counted when it ends: those that are counted from here on have begun after this.
    let (begun, before) = when_a_wait_ends(worker.tid);
    let recorder = Recorder::start(&[worker.tid]).unwrap();
    let (_, within) = when_a_wait_ends(worker.tid);
    while counted_wait(worker.tid) < within + Duration::from_millis(200) {
        thread::sleep(Duration::from_millis(10));
    }
    let recording = recorder.stop().unwrap().remove(0);
    let (_, after) = when_a_wait_ends(worker.tid);
    let counted = after - before;
    let waits = recording.intervals.iter().filter(|i| i.state == State::Waiting);
    let recorded = Duration::from_nanos(waits.map(|i| i.duration_ns).sum());
    // Some may be before the recording or after it.
    let outside = begun.elapsed() - Duration::from_nanos(recording.end_ns - recording.start_ns);
    let room = Duration::from_millis(5);
    assert!(recorded <= counted + room && counted <= recorded + outside + room, "{recorded:?} of {counted:?}");
    assert!(recorded > Duration::from_millis(100), "{recorded:?}");
}

/// Waits until the thread has waited for a CPU once more. Returns a time at which it still did, and how long it has waited
/// in all its life.
fn when_a_wait_ends(tid: Tid) -> (Instant, Duration) {
    let (mut begun, first) = (Instant::now(), counted_wait(tid));
    loop {
        let (next, now) = (Instant::now(), counted_wait(tid));
        if now != first {
            return (begun, now);
        }
        begun = next;
        thread::sleep(Duration::from_millis(1));
    }
}

/// proc(5), schedstat: how long the thread has waited for a CPU in all its life.
fn counted_wait(tid: Tid) -> Duration {
    let schedstat = std::fs::read_to_string(format!("/proc/{tid}/schedstat")).unwrap();
    Duration::from_nanos(schedstat.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[test]
#[ignore = "needs root"]
fn a_thread_that_slept_throughout_is_recorded_asleep() {
    let worker = Worker::idle();
    worker.wait_until_asleep();
    let recording = record(worker.tid, Duration::from_millis(100));
    let states: Vec<State> = recording.intervals.iter().map(|i| i.state).collect();
    assert_eq!(states, [State::Asleep]);
}

#[test]
#[ignore = "needs root"]
fn a_thread_that_ran_throughout_is_recorded_running() {
    let worker = Worker::spinning();
    set_real_time(worker.tid);
    let shares = (0..ATTEMPTS).map(|_| {
        let summary = record(worker.tid, Duration::from_millis(50)).summary(None);
        summary.effective_share - summary.asleep_share
    });
    let best = shares.fold(0.0, f64::max);
    drop(worker);
    if best < 1.0 {
        judge(Some(vec![format!("it ran {best} of the time at best")]));
    }
}

#[test]
#[ignore = "needs root"]
fn a_recording_ends_with_its_thread() {
    let worker = Worker::spinning();
    // So that once it is told to end it has nothing to wait for.
    set_real_time(worker.tid);
    let recorder = Recorder::start(&[worker.tid]).unwrap();
    thread::sleep(Duration::from_millis(50));
    drop(worker);
    let joined_ns = brobust_contention::clock::now();
    thread::sleep(Duration::from_millis(200));
    let stopped_ns = brobust_contention::clock::now();
    let recording = recorder.stop().unwrap().remove(0);
    let seen_ns: u64 = recording.intervals.iter().map(|i| i.duration_ns).sum();
    assert!(seen_ns > 0);
    let middle_ns = joined_ns.midpoint(stopped_ns);
    assert!(recording.start_ns + seen_ns < middle_ns, "{seen_ns} of {recording:?}, joined {joined_ns}");
}

#[test]
#[ignore = "needs root"]
fn two_recorders_do_not_disturb_each_other() {
    let workers = [Worker::spinning(), Worker::idle()];
    let recorders = workers.each_ref().map(|worker| Recorder::start(&[worker.tid]).unwrap());
    thread::sleep(Duration::from_millis(100));
    for (recorder, worker) in recorders.into_iter().zip(&workers) {
        let recordings = recorder.stop().unwrap();
        assert_eq!(recordings.len(), 1);
        assert_eq!(recordings[0].tid, worker.tid);
    }
}

#[test]
#[ignore = "needs root"]
fn a_thread_that_does_not_exist_cannot_be_recorded() {
    let error = Recorder::start(&[no_such_thread()]).unwrap_err();
    assert!(matches!(error, ContentionError::NoThread { .. }), "{error:?}");
}

/// What an ordinary user sees of a thread is what the BPF program sees, but for the noise between two polls.
#[test]
#[ignore = "needs root"]
fn without_privilege_the_same_offtimes_are_seen() {
    let worker = Worker::spinning();
    let held = burner(worker.tid, last_cpu(), on_off(10 * MS, 30 * MS)).unwrap();
    // Polls come in time however busy the machine is: what is tested is what can be read, not who may read when.
    set_real_time(0);
    let reasons: Vec<String> = (0..ATTEMPTS).map_while(|_| seen_differently(worker.tid)).collect();
    drop((held, worker)); // they keep the CPU busy
    judge((reasons.len() == ATTEMPTS).then_some(reasons));
}

/// Records a thread in both ways for a second, and returns what differs, if that is more than noise.
fn seen_differently(tid: Tid) -> Option<String> {
    let exact = Recorder::start(&[tid]).unwrap();
    let polled = Recorder::start_unprivileged(&[tid]).unwrap();
    let mut parts = polled.take().unwrap().remove(0);
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(330));
        parts.append(&polled.take().unwrap().remove(0));
    }
    let mut exact = exact.stop().unwrap().remove(0);
    // Of the time that both have seen: between the two starts a busy machine may do something else.
    exact.intervals.retain(|i| i.start_ns >= parts.start_ns && i.start_ns + i.duration_ns <= parts.end_ns);
    let (exact, polled) = (exact.summary(None), parts.summary(None));
    if (exact.effective_share - polled.effective_share).abs() >= 0.04 {
        return Some(format!("shares: {exact:?}\n{polled:?}"));
    }
    // Only of the off-times that the burner makes. Other threads take the CPU as well, for less than a millisecond each; on
    // a busy machine more often than the burner does, and such short waits are seen differently.
    let (exact, polled) = (long_offtimes(&exact), long_offtimes(&polled));
    let median_ns = |offtimes: &[(u64, u64)]| {
        let mut durations: Vec<_> = offtimes.iter().map(|(_, duration)| *duration).collect();
        durations.sort_unstable();
        durations.get(durations.len() / 2).map_or(f64::NAN, |&duration| duration as f64)
    };
    let seen = |start: u64| polled.iter().any(|(polled, _)| polled.abs_diff(start) < 3 * MS);
    let starts = exact.iter().filter(|(start, _)| seen(*start)).count();
    let same = (median_ns(&polled) / median_ns(&exact) - 1.0).abs() < 0.02 && starts * 10 >= exact.len() * 8;
    (!same).then(|| format!("off-times: {exact:?}\n{polled:?}"))
}

/// Returns when the off-times of at least a millisecond began, and how long they were, ns.
fn long_offtimes(summary: &Summary) -> Vec<(u64, u64)> {
    let each = summary.offtime_starts_ns.iter().copied().zip(summary.offtimes_ns.iter().copied());
    each.filter(|(_, duration)| *duration >= MS).collect()
}

#[test]
#[ignore = "needs root"]
fn a_burner_repeats_recorded_offtimes_and_then_leaves_the_thread_alone() {
    let worker = Worker::spinning();
    let recorded = [(0, 20 * MS), (50 * MS, 40 * MS), (200 * MS, 15 * MS)];
    // A host whose own CPUs are taken away ends a wait some milliseconds late.
    let room_ns = 5 * MS;
    let attempt = || {
        let recorder = Recorder::start(&[worker.tid]).unwrap();
        let start_ns = brobust_contention::clock::now() + 100 * MS;
        let schedule = Schedule::Replay { offtimes: recorded.to_vec() };
        let target = Target { tid: worker.tid, cpu: Some(last_cpu()), schedule };
        let held = started(BURNER, vec![target], Some(start_ns)).unwrap();
        thread::sleep(Duration::from_millis(500));
        let got = recorder.stop().unwrap().remove(0);
        drop(held);
        let long = |i: &&Interval| i.state == State::Waiting && i.duration_ns > 8 * MS;
        let is_repeated = |(begin_ns, length_ns): &(u64, u64), i: &Interval| {
            i.start_ns.abs_diff(start_ns + begin_ns) < room_ns && i.duration_ns.abs_diff(*length_ns) < room_ns
        };
        let seen: Vec<Interval> =
            got.intervals.iter().filter(long).filter(|i| i.start_ns + room_ns > start_ns).cloned().collect();
        let repeated = seen.len() == recorded.len()
            && recorded.iter().zip(&seen).all(|(off, interval)| is_repeated(off, interval));
        (!repeated).then(|| format!("{seen:?} after {start_ns}"))
    };
    let reasons: Vec<String> = (0..ATTEMPTS).map_while(|_| attempt()).collect();
    drop(worker);
    judge((reasons.len() == ATTEMPTS).then_some(reasons));
}
