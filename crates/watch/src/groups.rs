//! Counts the sockets of each congestion control and cause, and how fast they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::cause::{Cause, Verdict};
use crate::distribution::{Distribution, INFLIGHT_BDP, RATE_MBPS};

/// Sockets with the same congestion control and cause.
#[derive(Debug, Clone, Serialize)]
pub struct Group {
    #[serde(rename = "cc", serialize_with = "as_text")]
    pub congestion_control: Arc<str>,
    pub cause: Cause,
    pub sockets: usize,
    /// Rates over the window, Mbit/s.
    pub rate_mbps: Distribution,
    /// In flight over the BDP, medians over the window, for the sockets that have an estimate.
    pub inflight_bdp: Distribution,
}

fn as_text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

#[derive(Debug, Default)]
pub struct Groups(BTreeMap<(Arc<str>, Cause), Group>);

impl Groups {
    /// Returns the name of a control in memory that all its flows can share.
    pub fn control(&self, name: &str) -> Arc<str> {
        let known = self.0.keys().map(|(control, _)| control).find(|known| ***known == *name);
        known.map_or_else(|| name.into(), Arc::clone)
    }

    pub fn add(&mut self, control: &Arc<str>, verdict: &Verdict) {
        let (cause, evidence) = (verdict.cause, &verdict.evidence);
        let group = self.0.entry((Arc::clone(control), cause)).or_insert_with(|| Group {
            congestion_control: Arc::clone(control),
            cause,
            sockets: 0,
            rate_mbps: Distribution::new(RATE_MBPS),
            inflight_bdp: Distribution::new(INFLIGHT_BDP),
        });
        group.sockets += 1;
        group.rate_mbps.add(mbps(evidence.rate_bytes_per_s));
        if let Some(inflight) = evidence.inflight_bdp {
            group.inflight_bdp.add(inflight);
        }
    }

    /// Returns the groups sorted by control and cause.
    pub fn sorted(self) -> Vec<Group> {
        self.0.into_values().collect()
    }
}

pub fn mbps(bytes_per_s: f64) -> f64 {
    bytes_per_s * 8e-6
}
