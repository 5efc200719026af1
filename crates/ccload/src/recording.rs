//! The calls that a control has recorded, if it was loaded to record them (cc/call.h).

use libbpf_rs::RingBufferBuilder;

use crate::programs::map_of;
use crate::registry::CALLS_MAP;
use crate::{Refusal, Result};

/// Calls `each` with each record, oldest first, and removes the records. Those for which there was no room are missing.
pub fn recorded_calls(name: &str, mut each: impl FnMut(&[u8])) -> Result<()> {
    let map = map_of(name, CALLS_MAP)?;
    let cannot = |error: libbpf_rs::Error| Refusal::Unread { name: name.to_owned(), reason: error.to_string() };
    let mut builder = RingBufferBuilder::new();
    let take = |record: &[u8]| {
        each(record);
        0
    };
    builder.add(&map, take).map_err(cannot)?;
    builder.build().and_then(|ring| ring.consume()).map_err(cannot)
}
