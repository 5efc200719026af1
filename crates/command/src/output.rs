//! Lines on standard output. Each is written whole and at once, so that the reader of a pipe gets it.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use brobust_host::{printable, printable_json, reason, without_numbers, Refusal};
use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::unistd;
use serde::Serialize;

use crate::{interrupt, Stop};

/// Columns of a table have this much between them.
const GAP: &str = "  ";
/// So long is waited for a reader before interruptions are looked for.
const WAIT_MS: u16 = 100;
/// The last column of a table is wrapped at the terminal's edge, but never to less than this.
const MIN_WIDTH: usize = 20;

pub fn line(text: &str) -> Result<(), Stop> {
    whole(&format!("{text}\n"))
}

/// Writes a text as it is.
pub fn whole(text: &str) -> Result<(), Stop> {
    write(&mut io::stdout().lock(), text).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => Stop::Interrupted,
        _ => stop(&error),
    })
}

/// Writes a text whole. Where its reader does not read, Ctrl-C ends the waiting: a write that waits in the kernel goes on
/// after a signal. The error is then of the kind `Interrupted`.
fn write(out: &mut (impl Write + AsFd), text: &str) -> io::Result<()> {
    out.flush()?; // what others have written before
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let mut polled = [PollFd::new(out.as_fd(), PollFlags::POLLOUT)];
        let answered = poll(&mut polled, WAIT_MS);
        let is_ready = answered.is_ok_and(|ready| ready > 0);
        if !is_ready && interrupt::is_interrupted() {
            return Err(ErrorKind::Interrupted.into());
        }
        if is_ready {
            // A pipe or a terminal that is ready takes as much as this without waiting.
            let part = rest.get(..PIPE_BUF).unwrap_or(rest);
            match unistd::write(out.as_fd(), part) {
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Returns how a command ends that cannot write to standard output.
pub fn stop(error: &io::Error) -> Stop {
    match error.kind() {
        ErrorKind::BrokenPipe => Stop::OutputClosed,
        // The terminal is gone, and its SIGHUP may not have come yet.
        _ if is_closed() => Stop::Interrupted,
        _ => Stop::Refused(Refusal::not_written(format!(
            "standard output cannot be written: {}; make room, then repeat the command",
            reason(error)
        ))),
    }
}

/// Whether the reader of our output has closed it, or its terminal is gone.
pub fn is_closed() -> bool {
    let out = io::stdout();
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0].revents().is_some_and(|seen| seen.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
}

/// Writes a record as one line of JSON. It may go to a terminal, and name what others have named.
pub fn record(record: &impl Serialize) -> Result<(), Stop> {
    line(&printable_json(&serde_json::to_string(record).unwrap_or_default()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Writes a table: names of the columns, then the rows. On a terminal its last column is wrapped.
pub fn table<const N: usize>(
    names: [&str; N],
    align: [Align; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> Result<(), Stop> {
    let rows: Vec<[String; N]> =
        std::iter::once(names.map(str::to_owned)).chain(rows).map(|row| row.map(|cell| printable(&cell))).collect();
    laid_out(&align, &rows, terminal_width()).iter().try_for_each(|text| line(text))
}

/// Returns the lines of a table. `limit`: the width at which its last column is wrapped.
pub fn laid_out<const N: usize>(align: &[Align; N], rows: &[[String; N]], limit: Option<usize>) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let before: usize = widths[..N - 1].iter().map(|width| width + GAP.len()).sum();
    let last = limit.map_or(usize::MAX, |limit| limit.saturating_sub(before).max(MIN_WIDTH));
    let mut lines = Vec::new();
    for row in rows {
        let mut text = String::new();
        for ((cell, width), align) in row[..N - 1].iter().zip(widths).zip(align) {
            text += &match align {
                Align::Left => format!("{cell:width$}{GAP}"),
                Align::Right => format!("{cell:>width$}{GAP}"),
            };
        }
        for part in wrapped(&row[N - 1], last) {
            let width = if align[N - 1] == Align::Right { widths[N - 1] } else { 0 };
            text += &format!("{part:>width$}");
            lines.push(text.trim_end().to_owned());
            text = " ".repeat(before);
        }
    }
    lines
}

/// Breaks a text between words into lines of at most this many characters; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last += " ";
            *last += word;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Returns the number of columns of the terminal that our output goes to, if it goes to one.
pub fn terminal_width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Says something to the user that is no result.
pub fn remark(text: &str) {
    // Not eprintln!, which panics where the terminal is gone.
    let _ = write(&mut io::stderr().lock(), &format!("brobust: {}\n", printable(&without_numbers(text))));
}

#[cfg(test)]
mod tests {
    use super::{laid_out, Align};

    #[test]
    fn columns_are_aligned_and_the_last_one_is_wrapped() {
        let rows = [["name", "runs", "meaning"], ["a", "10", "one two three four five six seven"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        let align = [Align::Left, Align::Right, Align::Left];
        assert_eq!(laid_out(&align, &rows, None)[1], "a       10  one two three four five six seven");
        let narrow = laid_out(&align, &rows, Some(34));
        assert_eq!(narrow[1..], ["a       10  one two three four", "            five six seven"]);
        assert_eq!(narrow[0], "name  runs  meaning");
    }
}
