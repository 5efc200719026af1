//! The samples of a flow in the last window.

use std::collections::VecDeque;

use crate::sample::Sample;

/// Samples in the order of time. Equal samples in a row, such as those of an idle flow, are kept once: nearly all flows
/// of a host with many flows are idle, and a sweep costs as much as the memory that it has to read.
#[derive(Debug, Clone)]
pub struct History {
    times_ns: VecDeque<u64>,
    /// Each sample with the number of sweeps in a row that saw it.
    samples: VecDeque<(Sample, usize)>,
}

impl Default for History {
    fn default() -> History {
        History { times_ns: VecDeque::new(), samples: VecDeque::with_capacity(1) }
    }
}

impl History {
    /// Adds a sample; `time_ns` is CLOCK_MONOTONIC.
    pub fn add(&mut self, time_ns: u64, sample: Sample) {
        self.times_ns.push_back(time_ns);
        match self.samples.back_mut() {
            Some((last, times)) if *last == sample => *times += 1,
            _ => self.samples.push_back((sample, 1)),
        }
    }

    /// Forgets the samples before a time, but keeps the last `min` samples.
    pub fn forget_before(&mut self, time_ns: u64, min: usize) {
        while self.count() > min && self.times_ns.front().is_some_and(|first| *first < time_ns) {
            self.times_ns.pop_front();
            if let Some((_, times)) = self.samples.front_mut() {
                *times -= 1;
                if *times == 0 {
                    self.samples.pop_front();
                }
            }
        }
    }

    pub fn clear(&mut self) {
        self.times_ns.clear();
        self.samples.clear();
    }

    /// Returns how much memory it takes beside itself.
    pub fn bytes(&self) -> usize {
        self.times_ns.capacity() * size_of::<u64>() + self.samples.capacity() * size_of::<(Sample, usize)>()
    }

    pub fn count(&self) -> usize {
        self.times_ns.len()
    }

    /// Returns the time from the first sample to the last, in s.
    pub fn seconds(&self) -> f64 {
        let (first, last) = (self.times_ns.front(), self.times_ns.back());
        first.zip(last).map_or(0.0, |(first, last)| last.saturating_sub(*first) as f64 / 1e9)
    }

    pub fn first(&self) -> Option<&Sample> {
        self.samples.front().map(|(sample, _)| sample)
    }

    pub fn last(&self) -> Option<&Sample> {
        self.samples.back().map(|(sample, _)| sample)
    }

    /// Returns each sample with the number of sweeps in a row that saw it.
    pub fn iter(&self) -> impl Iterator<Item = (&Sample, usize)> {
        self.samples.iter().map(|(sample, times)| (sample, *times))
    }
}
