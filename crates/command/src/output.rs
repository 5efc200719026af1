//! Lines on standard output. Each is written whole and flushed, so that the reader of a pipe gets it at once.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use brobust_host::Refusal;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use crate::Stop;

pub fn line(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Stop::OutputClosed,
        _ => Stop::Refused(Refusal::failed(format!("standard output cannot be written: {error}"))),
    })
}

/// Whether the reader of our output has closed it, or its terminal is gone.
pub fn is_closed() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0].revents().is_some_and(|seen| seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

/// Says something to the user that is no result.
#[allow(dead_code)]
pub fn remark(text: &str) {
    eprintln!("brobust: {}", brobust_host::printable(text));
}
