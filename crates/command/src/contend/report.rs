//! What threads got, with the fields of docs/contend.md.

use brobust_contention::{clock, deviation, likely_cause, ContentionRequest, Recording, Summary, Ticks, TOLERANCE};
use brobust_host::printable;
use serde::Serialize;

use super::request::{Driver, Request};
use super::vcpus::Machine;

const BINS: usize = 10;

/// Of the last second, or, at the end, of the whole time.
#[derive(Debug, Serialize)]
pub struct Report {
    pub elapsed_s: f64,
    pub summary: bool,
    pub threads: Vec<Row>,
    #[serde(flatten)]
    pub end: Option<End>,
}

/// What only the last report has.
#[derive(Debug, Serialize)]
pub struct End {
    pub interrupted: bool,
    pub recorded_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Row {
    pub thread: i32,
    pub name: String,
    pub vcpu: Option<u32>,
    pub share: f64,
    pub asleep_share: f64,
    pub timeslice_ms: Option<f64>,
    pub offtime_ms: Option<f64>,
    #[serde(flatten)]
    pub whole: Option<Whole>,
}

/// What is known of a thread at the end of contention.
#[derive(Debug, Serialize)]
pub struct Whole {
    pub timeslices: Option<Histogram>,
    pub offtimes: Option<Histogram>,
    pub lost_events: u64,
    pub unfaithful: Option<String>,
}

/// How lengths are spread: between `edges_ms`, of which there is one more than `counts`.
#[derive(Debug, Serialize)]
pub struct Histogram {
    pub count: usize,
    pub p10_ms: f64,
    pub median_ms: f64,
    pub p90_ms: f64,
    pub edges_ms: Vec<f64>,
    pub counts: Vec<usize>,
}

/// Returns a summary of each recording. `off_ns`: the off-time of each period, where one is promised.
pub fn summaries(recordings: &[Recording], off_ns: Option<u64>) -> Vec<Summary> {
    recordings.iter().map(|one| one.summary(off_ns)).collect()
}

impl Report {
    /// Returns a report of these recordings, one of each thread. `begin_ns`: when the first of them began.
    pub fn of(machine: &Machine, summaries: &[Summary], begin_ns: u64) -> Self {
        let milliseconds = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
        let row = |(vcpu, summary): (&super::vcpus::Vcpu, &Summary)| Row {
            thread: vcpu.thread.pid,
            name: vcpu.name.clone(),
            vcpu: vcpu.number,
            share: summary.effective_share,
            asleep_share: summary.asleep_share,
            timeslice_ms: milliseconds(summary.effective_timeslice_ns),
            offtime_ms: milliseconds(summary.effective_offtime_ns),
            whole: None,
        };
        Self {
            elapsed_s: clock::now().saturating_sub(begin_ns) as f64 / 1e9,
            summary: false,
            threads: machine.vcpus.iter().zip(summaries).map(row).collect(),
            end: None,
        }
    }

    /// Returns the last report of contention, with the verdict on each thread.
    pub fn at_end(machine: &Machine, request: &Request, recordings: &[Recording], begin_ns: u64, end: End) -> Self {
        let summaries = summaries(recordings, request.off_ns());
        let mut report = Self { summary: true, end: Some(end), ..Self::of(machine, &summaries, begin_ns) };
        for (row, summary) in report.threads.iter_mut().zip(&summaries) {
            let unfaithful = unfaithful(request, summary, begin_ns);
            row.whole = Some(Whole {
                timeslices: Histogram::of(&summary.timeslices_ns),
                offtimes: Histogram::of(&summary.offtimes_ns),
                lost_events: summary.lost_events,
                unfaithful: if row.vcpu.is_some() { unfaithful } else { unfaithful.map(|why| of_a_thread(&why)) },
            });
        }
        report
    }
}

/// Judges a thread by what its driver has promised: None if that was kept. `begin_ns`: when its recorded off-times began.
/// python/brobust/contention/verdict.py does the same for runs.
fn unfaithful(request: &Request, got: &Summary, begin_ns: u64) -> Option<String> {
    if let Some(promise) = request.driver.promise() {
        let asked = ContentionRequest { promise, timeslice_ns: request.timeslice_ns, share: request.share };
        return deviation(&asked, got, Ticks::of_this_host());
    }
    if request.driver != Driver::Replay {
        return None;
    }
    let (Some(first), Some(last)) = (got.timeslice_starts_ns.first(), got.timeslice_starts_ns.last()) else {
        return Some("not one whole timeslice was seen".into());
    };
    // Between its first whole timeslice and its last.
    let seen = got.offtime_starts_ns.iter().copied().zip(got.offtimes_ns.iter().copied());
    let wanted = request.offtimes.iter().map(|(start, length)| (begin_ns + start, *length));
    let (seen, wanted) = (total(seen, *first, *last), total(wanted, *first, *last));
    if wanted == 0 || (seen as f64 / wanted as f64 - 1.0).abs() <= TOLERANCE {
        return None;
    }
    let percent = 100.0 * seen as f64 / wanted as f64;
    Some(format!(
        "the vCPU was off its CPU for {percent:.0}% of the time that {} says: {}",
        printable(request.recording()),
        likely_cause(got, seen < wanted)
    ))
}

/// Says of a thread that was given by its id what is said of a vCPU.
fn of_a_thread(why: &str) -> String {
    let why = why.replace("the vCPU thread", "the thread").replace("the vCPU", "the thread");
    why.replace("keep the guest busy", "keep it busy")
}

/// Returns how long those together are that begin within the two times.
fn total(off: impl Iterator<Item = (u64, u64)>, first: u64, last: u64) -> u64 {
    off.filter(|(start, _)| (first..last).contains(start)).map(|(_, length)| length).sum()
}

impl Histogram {
    /// Returns bins of equal width, or of equal ratio where the lengths span more than one order of magnitude. None for no
    /// lengths.
    fn of(lengths_ns: &[u64]) -> Option<Self> {
        let spread = brobust_contention::Distribution::of(lengths_ns)?;
        let lengths: Vec<f64> = lengths_ns.iter().map(|ns| *ns as f64 / 1e6).collect();
        let low = lengths.iter().copied().fold(f64::INFINITY, f64::min);
        let high = lengths.iter().copied().fold(0.0, f64::max);
        let edge = |number: usize| {
            let part = number as f64 / BINS as f64;
            if high > 10.0 * low && low > 0.0 {
                low * (high / low).powf(part)
            } else {
                low + (high - low) * part
            }
        };
        let edges: Vec<f64> = match low == high {
            true => vec![low, high],
            // The first and the last as they are, since powers are rounded.
            false => [low].into_iter().chain((1..BINS).map(edge)).chain([high]).collect(),
        };
        let mut counts = vec![0; edges.len() - 1];
        for length in &lengths {
            let below = edges.partition_point(|edge| edge <= length);
            counts[below.clamp(1, edges.len() - 1) - 1] += 1;
        }
        Some(Self {
            count: lengths.len(),
            p10_ms: spread.p10_ns / 1e6,
            median_ms: spread.median_ns / 1e6,
            p90_ms: spread.p90_ns / 1e6,
            edges_ms: edges,
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{of_a_thread, Histogram};

    #[test]
    fn a_thread_that_is_no_vcpu_is_called_a_thread() {
        assert_eq!(of_a_thread("no driver held the vCPU thread"), "no driver held the thread");
        assert_eq!(of_a_thread("the vCPU slept; keep the guest busy"), "the thread slept; keep it busy");
    }

    #[test]
    fn histograms_hold_every_length() {
        assert!(Histogram::of(&[]).is_none());
        for lengths in [&[5_000_000][..], &[1_000_000, 2_000_000, 4_000_000], &[10_000, 500_000, 400_000_000]] {
            let spread = Histogram::of(lengths).expect("there are some");
            assert_eq!((spread.counts.iter().sum::<usize>(), spread.count), (lengths.len(), lengths.len()));
            assert_eq!(spread.edges_ms.last().copied(), lengths.iter().max().map(|ns| *ns as f64 / 1e6));
        }
        assert_eq!(Histogram::of(&[1_000_000, 2_000_000, 11_000_000]).expect("some").counts[..2], [1, 0]);
    }
}
