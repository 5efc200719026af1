//! Lines on standard output. Each is written whole and flushed, so that the reader of a pipe gets it at once.

use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use brobust_host::{printable, printable_json, reason, without_numbers, Refusal};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use serde::Serialize;

use crate::Stop;

/// Columns of a table have this much between them.
const GAP: &str = "  ";
/// The last column of a table is wrapped at the terminal's edge, but never to less than this.
const MIN_WIDTH: usize = 20;

pub fn line(text: &str) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|error| stop(&error))
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
    let _ = writeln!(io::stderr(), "brobust: {}", printable(&without_numbers(text)));
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
