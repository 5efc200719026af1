//! Reports as text: a table that is drawn again every second on a terminal, lines into a pipe, or JSON.

use std::io::{self, IsTerminal};

use brobust_host::{printable, units};

use super::report::{Histogram, Report, Row};
use crate::output::{self, Align};
use crate::Stop;

const HEADINGS: [&str; 5] = ["thread", "share", "timeslice", "off-time", "asleep"];

pub struct Screen {
    as_json: bool,
    is_terminal: bool,
    /// Lines of the table that is on the terminal now.
    drawn: usize,
}

impl Screen {
    pub fn new(as_json: bool) -> Self {
        Self { as_json, is_terminal: !as_json && io::stdout().is_terminal(), drawn: 0 }
    }

    /// Shows what the threads got in the last second.
    pub fn show(&mut self, report: &Report) -> Result<(), Stop> {
        if self.as_json {
            return output::record(report);
        }
        if self.is_terminal {
            return self.draw(table(report));
        }
        report.threads.iter().try_for_each(|row| output::line(&line(row)))
    }

    /// Shows the last report, of the whole time.
    pub fn finish(&mut self, report: &Report) -> Result<(), Stop> {
        if self.as_json {
            return output::record(report);
        }
        self.draw(Vec::new())?;
        let Some(end) = &report.end else { return Ok(()) };
        output::line(&format!("in {:.1} s, seen by {}:", report.elapsed_s, end.recorded_by))?;
        for row in &report.threads {
            output::line(&line(row))?;
            let Some(whole) = &row.whole else { continue };
            for (what, spread) in [("timeslices", &whole.timeslices), ("offtimes", &whole.offtimes)] {
                spread.iter().flat_map(|spread| bars(what, spread)).try_for_each(|bar| output::line(&bar))?;
            }
            if let Some(why) = &whole.unfaithful {
                output::line(&format!("  not what was asked for: {why}"))?;
            }
        }
        let Some(out) = &end.out else { return Ok(()) };
        let (out, elapsed) = (printable(out), report.elapsed_s);
        let threads = units::show_count(report.threads.len(), "thread", "threads");
        output::line(&format!("{out}: {threads}, {elapsed:.1} s, by {}", end.recorded_by))
    }

    /// Puts these lines in the place of those that were drawn before.
    fn draw(&mut self, lines: Vec<String>) -> Result<(), Stop> {
        if self.drawn == 0 && lines.is_empty() {
            return Ok(());
        }
        let mut text = String::new();
        if self.drawn > 0 {
            // To the first of them, and everything from there is erased.
            text += &format!("\x1b[{}A\r\x1b[J", self.drawn);
        }
        // A line that is broken by the terminal would count twice.
        let width = output::terminal_width().unwrap_or(80);
        for line in &lines {
            text.extend(line.chars().take(width));
            text.push('\n');
        }
        self.drawn = lines.len();
        output::whole(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The table of the last second is not left beside a refusal.
        let _ = self.draw(Vec::new());
    }
}

fn cells(row: &Row) -> [String; 5] {
    let length = |ms: Option<f64>| ms.map_or("-".into(), |ms| format!("{ms:.2} ms"));
    let percent = |share: f64, decimals| format!("{:.decimals$}%", 100.0 * share);
    let (timeslice, offtime) = (length(row.timeslice_ms), length(row.offtime_ms));
    [row.name.clone(), percent(row.share, 1), timeslice, offtime, percent(row.asleep_share, 0)]
}

fn line(row: &Row) -> String {
    let [name, share, timeslice, offtime, asleep] = cells(row);
    let thread = row.thread;
    format!("{name} (thread {thread}): {share} of its CPU, timeslice {timeslice}, off {offtime}, asleep {asleep}")
}

fn table(report: &Report) -> Vec<String> {
    let rows: Vec<[String; 5]> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(report.threads.iter().map(cells)).collect();
    let numbers = Align::Right;
    let mut lines = vec![format!("{:.0} s; the last second", report.elapsed_s)];
    lines.extend(output::laid_out(&[Align::Left, numbers, numbers, numbers, numbers], &rows, None));
    lines.push("Ctrl-C ends".into());
    lines
}

fn bars(what: &str, spread: &Histogram) -> Vec<String> {
    let Histogram { count, p10_ms, median_ms, p90_ms, edges_ms, counts } = spread;
    let largest = counts.iter().copied().max().unwrap_or(1) as f64;
    let mut lines = vec![format!(
        "  {count} {what}: median {median_ms:.2} ms, a tenth below {p10_ms:.2}, a tenth above {p90_ms:.2}"
    )];
    for (edges, count) in edges_ms.windows(2).zip(counts).filter(|(_, count)| **count > 0) {
        let length = (40.0 * *count as f64 / largest).round().max(1.0) as usize;
        lines.push(format!("  {:9.2} - {:9.2} ms {:40} {count}", edges[0], edges[1], "#".repeat(length)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, share: f64) -> Row {
        Row { thread: 7, name: name.into(), share, timeslice_ms: Some(10.033), ..Row::default() }
    }

    #[test]
    fn a_line_and_a_table_have_the_same_numbers() {
        let rows = vec![row("CPU 0/KVM", 0.2494), row("é", 1.0)];
        assert_eq!(line(&rows[0]), "CPU 0/KVM (thread 7): 24.9% of its CPU, timeslice 10.03 ms, off -, asleep 0%");
        let report = Report { elapsed_s: 3.2, summary: false, threads: rows, end: None };
        let lines = table(&report);
        assert_eq!(lines[1], "thread      share  timeslice  off-time  asleep");
        assert_eq!(lines[2], "CPU 0/KVM   24.9%   10.03 ms         -      0%");
        assert_eq!(lines[3], "é          100.0%   10.03 ms         -      0%");
    }
}
