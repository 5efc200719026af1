//! Records without privilege what threads really got, by what the kernel counts for each (/proc/TID/schedstat).
//!
//! The kernel adds each wait for a CPU to a thread's count when the thread gets its CPU (kernel/sched/stats.h,
//! sched_info_arrive), throttling included. Polling often enough thus shows every off-time in its exact length, and its
//! time to one poll interval. Running and sleeping between the waits are distinguished by the CPU time used, which the
//! kernel updates at its ticks: how long the thread ran is right over a few of them.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use brobust_host::Stat;

use crate::clock;
use crate::error::{ContentionError, Result};
use crate::intervals::{Interval, State};
use crate::recording::Recording;
use crate::tid::Tid;

/// The time between two polls: of two waits within it only the sum is known.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The counts of a thread (Documentation/scheduler/sched-stats.rst), ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    run_ns: u64,
    wait_ns: u64,
}

impl Counts {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(str::parse);
        Some(Self { run_ns: numbers.next()?.ok()?, wait_ns: numbers.next()?.ok()? })
    }
}

/// Polls one thread.
#[derive(Debug)]
pub(crate) struct Poller {
    tid: Tid,
    file: File,
    track: Track,
}

impl Poller {
    pub fn open(tid: Tid) -> Result<Self> {
        let file = File::open(format!("/proc/{tid}/schedstat")).map_err(|_| ContentionError::NoThread { tid })?;
        let counts = read(&file).ok_or(ContentionError::NoThread { tid })?;
        Ok(Self { tid, file, track: Track::new(clock::now(), counts) })
    }

    /// Reads the counts. The recording of a thread that has ended ends there.
    pub fn poll(&mut self) {
        if let Some(counts) = read(&self.file) {
            self.track.see(clock::now(), counts);
        }
    }

    /// Returns what is certain of the time since the previous call.
    pub fn part(&mut self) -> Recording {
        let start_ns = self.track.start_ns;
        // A thread that sleeps now has not waited since the previous poll: the wait would have been counted.
        if Stat::read(self.tid).is_some_and(|stat| stat.state != 'R') {
            self.track.certain_ns = self.track.now_ns;
        }
        let intervals = self.track.take_certain();
        Recording { tid: self.tid, start_ns, end_ns: self.track.start_ns, intervals, lost: 0 }
    }
}

fn read(file: &File) -> Option<Counts> {
    let mut text = [0; 96];
    let length = file.read_at(&mut text, 0).ok()?;
    Counts::parse(&text[..length])
}

/// From counts at moments to intervals.
#[derive(Debug)]
struct Track {
    start_ns: u64,
    now_ns: u64,
    counts: Counts,
    /// They leave no gap from `start_ns` to `now_ns`.
    intervals: Vec<Interval>,
    /// What is seen later changes nothing before this time. After it, a thread that is not seen to run may wait or sleep.
    certain_ns: u64,
}

impl Track {
    fn new(now_ns: u64, counts: Counts) -> Self {
        Self { start_ns: now_ns, now_ns, counts, intervals: Vec::new(), certain_ns: now_ns }
    }

    fn see(&mut self, now_ns: u64, counts: Counts) {
        let ran_ns = counts.run_ns.saturating_sub(self.counts.run_ns);
        let waited_ns = counts.wait_ns.saturating_sub(self.counts.wait_ns);
        let (before_ns, now_ns) = (self.now_ns, now_ns.max(self.now_ns));
        (self.counts, self.now_ns) = (counts, now_ns);
        self.push(before_ns, now_ns, State::Asleep);
        if waited_ns > 0 {
            // The kernel counts how long it ran, not when: after the wait as far as the wait, whose length is known, leaves
            // room for that. This poll may be late itself.
            let ran_from_ns = (now_ns - ran_ns.min(now_ns - before_ns)).max(self.certain_ns + waited_ns).min(now_ns);
            let waited_from_ns = self.cut(ran_from_ns.saturating_sub(waited_ns).max(self.certain_ns));
            self.push(waited_from_ns, ran_from_ns, State::Waiting);
            self.push(ran_from_ns, now_ns, State::Running);
            self.certain_ns = ran_from_ns;
        } else if ran_ns > 0 {
            let ran_from_ns = self.cut(now_ns.saturating_sub(ran_ns).max(self.last_wait_end()));
            self.push(ran_from_ns, now_ns, State::Running);
            // It may have lost its CPU right after the previous poll.
            self.certain_ns = before_ns;
        }
    }

    fn last_wait_end(&self) -> u64 {
        self.intervals.iter().rev().find(|interval| interval.state == State::Waiting).map_or(0, end)
    }

    /// Forgets the intervals since then, and returns the time from which on there are none.
    fn cut(&mut self, from_ns: u64) -> u64 {
        let from_ns = from_ns.max(self.start_ns);
        while self.intervals.last().is_some_and(|last| last.start_ns >= from_ns) {
            self.intervals.pop();
        }
        if let Some(last) = self.intervals.last_mut() {
            last.duration_ns = last.duration_ns.min(from_ns - last.start_ns);
        }
        from_ns
    }

    fn push(&mut self, from_ns: u64, until_ns: u64, state: State) {
        let duration_ns = until_ns.saturating_sub(from_ns);
        match self.intervals.last_mut() {
            _ if duration_ns == 0 => {}
            Some(last) if last.state == state => last.duration_ns += duration_ns,
            _ => self.intervals.push(Interval { start_ns: from_ns, duration_ns, state }),
        }
    }

    fn take_certain(&mut self) -> Vec<Interval> {
        let whole = self.intervals.partition_point(|interval| end(interval) <= self.certain_ns);
        let mut rest = self.intervals.split_off(whole);
        if let Some(first) = rest.first_mut().filter(|first| first.start_ns < self.certain_ns) {
            let (start_ns, duration_ns) = (first.start_ns, self.certain_ns - first.start_ns);
            self.intervals.push(Interval { start_ns, duration_ns, state: first.state });
            (first.start_ns, first.duration_ns) = (self.certain_ns, first.duration_ns - duration_ns);
        }
        self.start_ns = self.certain_ns;
        std::mem::replace(&mut self.intervals, rest)
    }
}

fn end(interval: &Interval) -> u64 {
    interval.start_ns + interval.duration_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The track of one poll every millisecond, each of (CPU time used, waits counted) since the previous one in ms.
    fn track(seen: &[(u64, u64)]) -> Track {
        let mut track = Track::new(100 * MS, Counts::default());
        let mut counts = Counts::default();
        for (number, (ran, waited)) in (1..).zip(seen) {
            counts = Counts { run_ns: counts.run_ns + ran * MS, wait_ns: counts.wait_ns + waited * MS };
            track.see((100 + number) * MS, counts);
        }
        track
    }

    fn in_ms(intervals: &[Interval]) -> Vec<(u64, State)> {
        intervals.iter().map(|i| (i.duration_ns / MS, i.state)).collect()
    }

    #[test]
    fn a_wait_is_as_long_as_the_kernel_says_and_ends_where_the_thread_runs() {
        let track = track(&[(1, 0), (1, 0), (0, 0), (0, 0), (0, 0), (1, 3), (1, 0)]);
        assert_eq!(in_ms(&track.intervals), [(2, State::Running), (3, State::Waiting), (2, State::Running)]);
    }

    #[test]
    fn a_wait_keeps_its_length_where_a_poll_is_late() {
        let mut track = track(&[(1, 0), (1, 0)]);
        // 8 ms more of running, 30 of waiting, 1 of running, without a poll in between.
        track.see(141 * MS, Counts { run_ns: 11 * MS, wait_ns: 30 * MS });
        let waits: Vec<_> = in_ms(&track.intervals).into_iter().filter(|(_, state)| *state == State::Waiting).collect();
        assert_eq!(waits, [(30, State::Waiting)]);
        // It lost its CPU just after a poll, and the next poll saw that it had run.
        let mut track = Track::new(100 * MS, Counts::default());
        track.see(101 * MS, Counts { run_ns: MS / 10, wait_ns: 0 });
        track.see(104 * MS, Counts { run_ns: MS / 10, wait_ns: 39 * MS / 10 });
        assert_eq!(
            track.intervals.last().map(|last| (last.duration_ns, last.state)),
            Some((39 * MS / 10, State::Waiting))
        );
    }

    #[test]
    fn cpu_time_that_is_counted_late_was_used_before() {
        assert_eq!(in_ms(&track(&[(0, 0), (0, 0), (0, 0), (4, 0)]).intervals), [(4, State::Running)]);
        let asleep_first = track(&[(0, 0), (0, 0), (0, 0), (1, 0)]);
        assert_eq!(in_ms(&asleep_first.intervals), [(3, State::Asleep), (1, State::Running)]);
    }

    #[test]
    fn what_may_still_turn_out_a_wait_is_kept_for_the_next_part() {
        let mut track = track(&[(1, 0), (0, 0), (0, 0)]);
        assert_eq!(track.take_certain(), []);
        track.see(104 * MS, Counts { run_ns: 2 * MS, wait_ns: 2 * MS });
        assert_eq!(in_ms(&track.take_certain()), [(1, State::Running), (2, State::Waiting)]);
        assert_eq!((track.start_ns, in_ms(&track.intervals)), (103 * MS, vec![(1, State::Running)]));
        track.see(105 * MS, Counts { run_ns: 3 * MS, wait_ns: 2 * MS });
        assert_eq!(in_ms(&track.take_certain()), [(1, State::Running)]);
    }

    #[test]
    fn counts_that_make_no_sense_leave_a_timeline_without_gaps() {
        let track = track(&[(50, 0), (0, 90), (3, 3), (0, 0), (0, 1)]);
        let starts: Vec<u64> = track.intervals.iter().skip(1).map(|i| i.start_ns).collect();
        let ends: Vec<u64> = track.intervals.iter().map(end).collect();
        assert_eq!(starts, ends[..ends.len() - 1]);
        assert_eq!((track.intervals[0].start_ns, ends[ends.len() - 1]), (100 * MS, 105 * MS));
        assert_eq!(Counts::parse(b"1 2"), Some(Counts { run_ns: 1, wait_ns: 2 }));
        assert_eq!(Counts::parse(b"1 x 3"), None);
    }
}
