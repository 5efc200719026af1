//! Holds threads under contention, or only records what they do, with a report every second.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use brobust_contention::{clock, ContentionError, Held, Recorder, Recording, Target};
use brobust_host::guardian::THIS_PROGRAM;
use brobust_host::sched_attr::SchedAttr;
use brobust_host::threads::{pin, SavedThread};
use brobust_host::{busy_cpus, refuse_held, refuse_without_spare, Refusal, Result, Runtime, Session};

use super::recordings;
use super::report::{summaries, End, Report};
use super::request::{Driver, Request};
use super::screen::Screen;
use super::vcpus::Machine;
use crate::output::remark;
use crate::{interrupt, Stop};

/// A thread, and the CPU that it is pinned to where the driver needs one of the thread's own.
pub type Place = (i32, Option<usize>);

/// Ordinary threads, the kernel's among them, still get a thousandth of a CPU beside 64 of these (kernel/sched/core.c,
/// sched_prio_to_weight: 9548 to 1024).
const MIN_NICE: i32 = -10;

/// A command that has said nothing for this time, and longer than it may have to wait, counts as stuck.
const STUCK: Duration = Duration::from_secs(15);

/// Refuses what is not possible here, or would take the host away from its owner (`force`: even that is done). Returns the
/// threads, each with its CPU where the driver needs one.
pub fn check(request: &Request, machine: &Machine, force: bool) -> Result<Vec<Place>> {
    let runtime = Runtime::of_environment();
    let tids = machine.tids();
    tids.iter().try_for_each(|tid| refuse_held(&runtime, *tid))?;
    request.check(&tids)?;
    let threads: Vec<SavedThread> = tids.iter().map(|tid| SavedThread::of(*tid)).collect::<Result<_>>()?;
    if let Some(thread) = threads.iter().find(|thread| thread.is_under_deadline()) {
        let text = format!("thread {} is under SCHED_DEADLINE already: give it an ordinary policy first", thread.tid);
        return Err(Refusal::bad_input(text));
    }
    let places = match request.driver.needs_own_cpus() {
        true => {
            let allowed: Vec<_> = threads.into_iter().map(|thread| (thread.tid, thread.cpus)).collect();
            own_cpus(&allowed, &busy_cpus(&runtime)?)?
        }
        false => tids.iter().map(|tid| (*tid, None)).collect(),
    };
    if !force {
        if request.options.nice < MIN_NICE {
            return Err(Refusal::bad_input(format!(
                "--nice: {} starves the kernel's own threads on these CPUs; give {MIN_NICE} or more, or --force with --for",
                request.options.nice
            )));
        }
        let (cpus, roaming) = kept_busy(request, &places);
        refuse_without_spare(&runtime, &cpus, roaming)?;
    }
    Ok(places)
}

/// Returns a CPU of its own for each thread, of those that it may use: the highest first, the lowest serve interrupts.
/// One that another command keeps `busy` is not taken: two burners on a CPU would take more than either was asked for.
fn own_cpus(allowed: &[(i32, Vec<usize>)], busy: &[usize]) -> Result<Vec<Place>> {
    let mut choosing: Vec<usize> = (0..allowed.len()).collect();
    choosing.sort_by_key(|number| allowed[*number].1.len());
    let mut owners = BTreeMap::new();
    for number in choosing {
        if !give_cpu(number, allowed, busy, &mut BTreeSet::new(), &mut owners) {
            return Err(Refusal::bad_input(format!(
                "each of the {} threads needs a CPU for itself, and no CPU is left for {}{}; give fewer with --threads, \
                 or --driver quota or deadline",
                allowed.len(),
                allowed[number].0,
                if busy.is_empty() { "" } else { " beside the contention of another brobust" }
            )));
        }
    }
    let chosen: BTreeMap<usize, usize> = owners.into_iter().map(|(cpu, number)| (number, cpu)).collect();
    Ok(allowed.iter().enumerate().map(|(number, (tid, _))| (*tid, chosen.get(&number).copied())).collect())
}

/// Gives one of the threads a CPU, if need be that of another thread, which gets another one. `tried`: CPUs whose threads
/// have been asked already; `owners`: the thread that has a CPU. Returns whether there is one.
fn give_cpu(
    number: usize,
    allowed: &[(i32, Vec<usize>)],
    busy: &[usize],
    tried: &mut BTreeSet<usize>,
    owners: &mut BTreeMap<usize, usize>,
) -> bool {
    let cpus: Vec<usize> = allowed[number].1.iter().rev().filter(|cpu| !busy.contains(cpu)).copied().collect();
    let free = cpus.iter().find(|cpu| !owners.contains_key(cpu)).copied();
    let got = free.or_else(|| {
        cpus.into_iter().find(|cpu| tried.insert(*cpu) && give_cpu(owners[cpu], allowed, busy, tried, owners))
    });
    got.map(|cpu| owners.insert(cpu, number)).is_some()
}

/// Returns the CPUs that nobody else gets for a while, and how many more, wherever the threads happen to be.
fn kept_busy(request: &Request, places: &[Place]) -> (Vec<usize>, usize) {
    match request.driver {
        Driver::Deadline => (Vec::new(), places.len()),
        _ => (places.iter().filter_map(|(_, cpu)| *cpu).collect(), 0),
    }
}

/// What one more second may add to a recording: a hundred threads that are switched 10,000 times each.
const MAX_ROWS_OF_A_SECOND: usize = 2_000_000;

/// What one `contend` does to whom.
pub struct Task<'a> {
    pub machine: &'a Machine,
    pub request: &'a Request,
    /// Each thread and its CPU, from `check`.
    pub places: &'a [Place],
    /// How long, s. None: until Ctrl-C, or the end of a recording.
    pub seconds: Option<f64>,
    /// Where to keep what the threads got, as `record` does.
    pub out: Option<&'a Path>,
    pub force: bool,
}

/// Applies the contention. Shows one report per second, and returns the one for the whole time. All threads are then
/// restored.
pub fn contend(task: &Task<'_>, screen: &mut Screen) -> std::result::Result<Report, Stop> {
    let Task { request, .. } = task;
    let end_of_recording = request.offtimes.last().map(|(start, length)| (start + length) as f64 / 1e9);
    let task = Task { seconds: task.seconds.or(end_of_recording), ..*task };
    // Longer than starting and ending may take; while it lasts, something is said every second.
    let silence = STUCK + Duration::from_nanos(10 * request.period_ns());
    interrupt::catch();
    let mut session = Session::start(Runtime::of_environment(), Path::new(THIS_PROGRAM), true, Some(silence))?;
    let held = hold(&mut session, &task, screen);
    let ended = session.end();
    // Only now is the recording written: a long one takes a while, and on a disk that hangs it takes for ever.
    match (held.and_then(|held| report(&task, held, screen)), ended) {
        (outcome, Ok(())) => outcome,
        // The user must see both.
        (Err(Stop::Refused(first)), Err(other)) => {
            Err(Refusal::missing_support(format!("{}; {}", first.text, other.text)).into())
        }
        (_, Err(problem)) => Err(problem.into()),
    }
}

struct Seen {
    recorded: Recorded,
    begin: u64,
    elapsed_s: f64,
    /// Whether Ctrl-C ended it.
    watched: std::result::Result<bool, Stop>,
    stopped: Result<()>,
}

fn hold(session: &mut Session, task: &Task<'_>, screen: &mut Screen) -> std::result::Result<Seen, Stop> {
    let Task { machine, request, places, force, .. } = *task;
    let saved: Vec<SavedThread> = places.iter().map(|(tid, _)| SavedThread::of(*tid)).collect::<Result<_>>()?;
    if let Some(ended) = machine.vcpus.iter().find(|vcpu| !vcpu.thread.lives()) {
        let text = format!("thread {} has ended: is the VM still running?", ended.thread.pid);
        return Err(Refusal::bad_input(text).into());
    }
    session.hold_threads(&saved)?;
    let (cpus, roaming) = kept_busy(request, places);
    session.hold_cpus(&cpus, roaming, force)?;
    // Whoever has the id of a thread that has ended is left alone: between a look at the threads and what is done to them
    // no ordinary process of this CPU runs, so none ends and none begins.
    let priority = AheadOfGuests::get();
    saved.iter().try_for_each(SavedThread::refuse_another)?;
    for (tid, cpu) in places {
        // One that has ended needs no CPU.
        let _ = cpu.map(|cpu| pin(*tid, cpu));
    }
    // The recorder first: loading its programs takes long on a busy machine, and what was recorded for replay would be
    // over before all of the time that is judged.
    let mut recorded = Recorded::start(machine).map_err(failed)?;
    // Busy processes that compete must not inherit the priority; starting them does nothing to a thread.
    let priority = (request.driver != Driver::Competitor).then_some(priority);
    // Loading took a while, in which the recorder may have slept.
    saved.iter().try_for_each(SavedThread::refuse_another)?;
    let begin = clock::now();
    // One seed for all threads: those that go together stay together, whatever is drawn.
    let (seed, phases) = (fastrand::u64(..), request.phases_ns(places.len(), || fastrand::u64(..)));
    let target =
        |((tid, cpu), phase): (&Place, u64)| Target { tid: *tid, cpu: *cpu, schedule: request.schedule(phase, seed) };
    let targets = places.iter().zip(phases).map(target).collect();
    let held =
        Held::start(&request.driver.carried_out_by(), targets, begin, request.options.nice, session).map_err(failed)?;
    drop(priority);
    let watched = watch(session, task, screen, begin, &mut recorded);
    let elapsed_s = (clock::now() - begin) as f64 / 1e9;
    let stopped = held.stop(session).map_err(failed);
    Ok(Seen { recorded, begin, elapsed_s, watched, stopped })
}

fn failed(error: ContentionError) -> Refusal {
    match error {
        ContentionError::Refused(refusal) => refusal,
        error => Refusal::failed(error.to_string()),
    }
}

fn watch(
    session: &mut Session,
    task: &Task<'_>,
    screen: &mut Screen,
    begin: u64,
    recorded: &mut Recorded,
) -> std::result::Result<bool, Stop> {
    let Task { machine, request, seconds, .. } = *task;
    let _priority = AheadOfGuests::get();
    if interrupt::is_interrupted() {
        return Err(Stop::Interrupted);
    }
    recorded.recorder.take().map_err(failed)?; // what was until now does not count
    let watched = each_second(seconds, machine, || {
        session.say_alive()?;
        let parts = recorded.take().map_err(failed)?;
        screen.show(&Report::of(machine, &summaries(&parts, request.off_ns()), begin))?;
        Ok(recorded.is_full())
    });
    recorded.take().map_err(failed)?;
    watched
}

/// Writes what the threads got, and returns the report of it. The first trouble is the one to tell.
fn report(task: &Task<'_>, seen: Seen, screen: &mut Screen) -> std::result::Result<Report, Stop> {
    let Task { machine, request, out, .. } = *task;
    let Seen { recorded, begin, elapsed_s, watched, stopped } = seen;
    // Also if nobody reads the reports any more; but if nothing was recorded, what is there is kept.
    let out = out.filter(|_| !recorded.whole.is_empty());
    let written = out.map_or(Ok(()), |out| recordings::write(out, &recorded.whole, &machine.vcpus, begin));
    let kept = out.filter(|_| written.is_ok()).map(|out| out.display().to_string());
    let report = watched.map(|interrupted| {
        let end = End { interrupted, recorded_by: recorded.by, out: kept };
        Report { elapsed_s, ..Report::at_end(machine, request, &recorded.whole, begin, end) }
    });
    if let Err(refusal) = written {
        if let Ok(report) = &report {
            screen.finish(report)?; // what the threads got is known all the same
        }
        return Err(refusal.into());
    }
    let report = report?;
    stopped?;
    Ok(report)
}

/// Records what the threads do into a Parquet file, and changes nothing. Shows reports as `contend` does. The file is
/// written from time to time, so that a recording that is interrupted is kept up to there.
pub fn record(machine: &Machine, seconds: f64, out: &Path, screen: &mut Screen) -> std::result::Result<Report, Stop> {
    interrupt::catch();
    let unsupported = |error: ContentionError| Refusal::missing_support(error.to_string());
    let mut recorded = Recorded::start(machine).map_err(unsupported)?;
    let begin = clock::now();
    let write = |whole: &[Recording]| recordings::write(out, whole, &machine.vcpus, begin);
    // A file that cannot be written is refused now.
    write(&recorded.whole)?;
    let mut next_write_s = 10.0;
    let watched = each_second(Some(seconds), machine, || {
        let parts = recorded.take().map_err(failed)?;
        let report = Report::of(machine, &summaries(&parts, None), begin);
        if report.elapsed_s >= next_write_s {
            write(&recorded.whole)?;
            // Each writes everything: together they cost at most a few times the last.
            next_write_s *= 2.0;
        }
        screen.show(&report)?;
        Ok(recorded.is_full())
    });
    // Also if nobody reads the reports any more.
    recorded.take().map_err(failed)?;
    write(&recorded.whole)?;
    let end = End { interrupted: watched?, recorded_by: recorded.by, out: Some(out.display().to_string()) };
    Ok(Report { summary: true, end: Some(end), ..Report::of(machine, &summaries(&recorded.whole, None), begin) })
}

/// Calls on each second, until the time is over, every thread has ended, or it returns that nothing more can be kept.
/// Returns whether Ctrl-C ended it.
fn each_second(
    seconds: Option<f64>,
    machine: &Machine,
    mut report: impl FnMut() -> std::result::Result<bool, Stop>,
) -> std::result::Result<bool, Stop> {
    let begin = Instant::now();
    let mut number = 0.0;
    while seconds.is_none_or(|seconds| number < seconds) {
        number += 1.0;
        let due = seconds.map_or(number, |seconds| seconds.min(number));
        match interrupt::sleep_until(begin + Duration::from_secs_f64(due)) {
            Err(Stop::Interrupted) => return Ok(true),
            waited => waited?,
        }
        // Seconds that were missed, while this process or its machine stood still, have no report: nothing happened in them
        // that is not in this one.
        number = begin.elapsed().as_secs_f64().floor().max(number);
        if report()? {
            remark(&format!(
                "the recording has nearly {} rows, and a longer one could not be read again, so this ends",
                recordings::MAX_ROWS
            ));
            break;
        }
        if !machine.vcpus.iter().any(|vcpu| vcpu.thread.lives()) {
            if seconds.is_none_or(|seconds| number < seconds) {
                remark("every thread has ended, so this ends, too");
            }
            break;
        }
    }
    Ok(false)
}

/// The better recorder that this process may have, and what it has recorded so far.
struct Recorded {
    recorder: Recorder,
    by: &'static str,
    whole: Vec<Recording>,
}

impl Recorded {
    fn start(machine: &Machine) -> brobust_contention::Result<Self> {
        let tids = machine.tids();
        let (recorder, by) = match Recorder::start(&tids) {
            Ok(recorder) => (recorder, "bpf"),
            Err(_) => (Recorder::start_unprivileged(&tids)?, "schedstat"),
        };
        Ok(Self { recorder, by, whole: Vec::new() })
    }

    /// Whether it has become so long that it would not be read again, and would fill this host's memory.
    fn is_full(&self) -> bool {
        is_longer(&self.whole, recordings::MAX_ROWS - MAX_ROWS_OF_A_SECOND)
    }

    /// Returns what has been recorded since the last call.
    fn take(&mut self) -> brobust_contention::Result<Vec<Recording>> {
        let parts = self.recorder.take()?;
        if self.whole.is_empty() {
            self.whole.clone_from(&parts);
        } else {
            self.whole.iter_mut().zip(&parts).for_each(|(whole, part)| whole.append(part));
        }
        Ok(parts)
    }
}

fn is_longer(recordings: &[Recording], rows: usize) -> bool {
    recordings.iter().map(|one| one.intervals.len()).sum::<usize>() > rows
}

/// While it lives, this thread, and those it starts, run at once: guests that are always busy may have all CPUs, and the
/// contention has to end in time.
struct AheadOfGuests {
    before: io::Result<SchedAttr>,
}

impl AheadOfGuests {
    fn get() -> Self {
        let before = SchedAttr::of(0);
        let _ = SchedAttr::fifo(1).set(0);
        Self { before }
    }
}

impl Drop for AheadOfGuests {
    fn drop(&mut self) {
        if let Ok(before) = self.before {
            let _ = before.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contend::vcpus::Vcpu;
    use brobust_contention::{Interval, State};
    use brobust_host::Owner;

    #[test]
    fn each_thread_gets_a_cpu_of_its_own_or_none_does() {
        let places = own_cpus(&[(7, vec![0, 1, 2]), (8, vec![2])], &[]).expect("there are enough");
        assert_eq!(places, [(7, Some(1)), (8, Some(2))]);
        // The highest CPU of the first is one that the last cannot do without.
        let places = own_cpus(&[(7, vec![1, 2]), (8, vec![2, 3]), (9, vec![2, 3])], &[]).expect("there are enough");
        assert_eq!(places, [(7, Some(1)), (8, Some(2)), (9, Some(3))]);
        let refused = own_cpus(&[(7, vec![0]), (8, vec![0])], &[]).unwrap_err().text;
        assert!(refused.contains("CPU for itself"), "{refused}");
    }

    #[test]
    fn seconds_in_which_it_stood_still_are_in_one_report() {
        let own = Vcpu { thread: Owner::of(nix::unistd::gettid().as_raw()), name: "test".into(), number: None };
        let machine =
            Machine { pid: 0, program: "test".into(), name: String::new(), vcpus: vec![own], is_known: false };
        let mut reports = 0;
        let report = || {
            reports += 1;
            if reports == 1 {
                std::thread::sleep(Duration::from_millis(2200));
            }
            Ok(false)
        };
        assert!(matches!(each_second(Some(3.9), &machine, report), Ok(false)));
        // At 1 s; at 3.2 s, what was since then; at the end.
        assert!(reports <= 3, "{reports}");
    }

    #[test]
    fn a_recording_is_as_long_as_those_of_its_threads_together() {
        let interval = Interval { start_ns: 0, duration_ns: 1, state: State::Running };
        let of = |tid| Recording { tid, start_ns: 0, end_ns: 2, intervals: vec![interval; 2], lost: 0 };
        assert!(is_longer(&[of(7), of(8)], 3) && !is_longer(&[of(7), of(8)], 4));
    }

    #[test]
    fn a_cpu_that_another_command_keeps_busy_is_not_taken() {
        assert_eq!(own_cpus(&[(7, vec![0, 1, 2])], &[2]).expect("two are free"), [(7, Some(1))]);
        let refused = own_cpus(&[(7, vec![2])], &[2]).unwrap_err().text;
        assert!(refused.contains("no CPU is left for 7 beside the contention of another brobust"), "{refused}");
    }
}
