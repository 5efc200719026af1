//! The distribution of a quantity over sockets, in buckets of fixed bounds, as a histogram of Prometheus has them.

use serde::Serialize;

/// Upper bounds of rates, Mbit/s, from a trickle to the fastest NICs, two per decade.
pub const RATE_MBPS: &[f64] =
    &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0, 100_000.0];
/// Upper bounds of the data in flight, BDP, closest together around 1, below which there is a deficit.
pub const INFLIGHT_BDP: &[f64] = &[0.1, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    #[serde(skip)]
    bounds: &'static [f64],
    /// One count for each bound, of the values up to it and above the bound before; then the count of all larger
    /// values.
    pub counts: Vec<usize>,
    pub sum: f64,
}

impl Distribution {
    pub fn new(bounds: &'static [f64]) -> Distribution {
        Distribution { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub fn add(&mut self, value: f64) {
        if let Some(count) = self.counts.get_mut(self.bounds.partition_point(|bound| *bound < value)) {
            *count += 1;
        }
        self.sum += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_is_not_below_it() {
        for bounds in [RATE_MBPS, INFLIGHT_BDP] {
            assert!(bounds.is_sorted());
            let mut distribution = Distribution::new(bounds);
            for bound in bounds {
                distribution.add(*bound);
            }
            distribution.add(f64::MAX);
            assert_eq!(distribution.counts, vec![1; bounds.len() + 1]);
        }
        let mut distribution = Distribution::new(&[1.0, 2.0]);
        [0.0, 0.5, 1.5, 7.0].into_iter().for_each(|value| distribution.add(value));
        assert_eq!((distribution.counts, distribution.sum), (vec![2, 1, 1], 9.0));
    }
}
