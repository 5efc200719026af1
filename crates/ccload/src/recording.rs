//! What a control that was loaded to record its calls has kept of them (cc/call.h).

use libbpf_rs::RingBufferBuilder;

use crate::programs::map_of;
use crate::registry::CALLS_MAP;
use crate::{Refusal, Result};

/// Hands each record on, oldest first, and forgets it. Records that found no room are missing.
pub fn recorded_calls(name: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    let map = map_of(name, CALLS_MAP)?;
    let cannot = |error: libbpf_rs::Error| Refusal::NoMap { name: name.to_owned(), map: error.to_string() };
    let mut builder = RingBufferBuilder::new();
    let take = |record: &[u8]| {
        each(record);
        0
    };
    builder.add(&map, take).map_err(cannot)?;
    builder.build().and_then(|ring| ring.consume()).map_err(cannot)
}
