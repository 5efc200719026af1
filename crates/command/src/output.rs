//! Lines on standard output. Each is written whole and flushed, so that the reader of a pipe gets it at once.

use std::io::{self, ErrorKind, Write};

use brobust_host::Refusal;

use crate::Stop;

pub fn line(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Stop::OutputClosed,
        _ => Stop::Refused(Refusal::failed(format!("standard output cannot be written: {error}"))),
    })
}

/// Says something to the user that is no result.
#[allow(dead_code)]
pub fn remark(text: &str) {
    eprintln!("brobust: {}", brobust_host::printable(text));
}
