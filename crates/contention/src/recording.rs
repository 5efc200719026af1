//! The recording of one thread, in one piece or in parts that follow each other.
use crate::intervals::Interval;
use crate::summary::{summarize, Summary};
use crate::tid::Tid;

/// What one thread did from `start_ns` to `end_ns`.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    pub tid: Tid,
    /// CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub end_ns: u64,
    /// They leave no gap from start to end, or to the thread's exit.
    pub intervals: Vec<Interval>,
    /// Events of this thread that found the ring buffer full; their times are `State::Unknown`.
    pub lost: u64,
}

impl Recording {
    /// Sums up. `requested_off_ns`, the off-time that was asked for, if any, decides what counts as noise.
    pub fn summary(&self, requested_off_ns: Option<u64>) -> Summary {
        summarize(&self.intervals, self.lost, requested_off_ns)
    }

    /// Appends the recording that follows right after.
    pub fn append(&mut self, next: &Recording) {
        let mut rest = next.intervals.iter().copied().peekable();
        if let (Some(last), Some(first)) = (self.intervals.last_mut(), rest.peek()) {
            if last.state == first.state {
                last.duration_ns += first.duration_ns;
                rest.next();
            }
        }
        self.intervals.extend(rest);
        self.end_ns = next.end_ns;
        self.lost += next.lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intervals::State;

    #[test]
    fn parts_of_a_recording_join_without_a_gap() {
        let interval = |start_ns, duration_ns, state| Interval { start_ns, duration_ns, state };
        let part = |start_ns, end_ns, intervals, lost| Recording { tid: 1, start_ns, end_ns, intervals, lost };
        let waiting = State::Waiting;
        let mut all = part(0, 10, vec![interval(0, 4, State::Running), interval(4, 6, waiting)], 1);
        all.append(&part(10, 20, vec![interval(10, 3, waiting), interval(13, 7, State::Asleep)], 2));
        all.append(&part(20, 30, vec![], 0));
        let whole = vec![interval(0, 4, State::Running), interval(4, 9, waiting), interval(13, 7, State::Asleep)];
        assert_eq!(all, part(0, 30, whole, 3));
    }
}
