//! `brobust` for operators, in one program without Python. The Debian package installs it as /usr/bin/brobust; the Python
//! package brings it as brobust-host and runs it for the same commands, so there is one command line.
//!
//! Exit statuses are those of python/brobust/cli: 0 the command did its work and found nothing wrong; 1 it found
//! something, or what it found cannot be written; 2 bad input or missing support; 130 interrupted.

mod cc;
mod contend;
mod doctor;
mod files;
mod generate;
mod guard;
mod interrupt;
mod lab;
mod numbers;
mod output;
mod watch;

use std::io::{self, Write};
use std::process::ExitCode;

use brobust_host::{Kind, Refusal};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};
use nix::sys::signal::{signal, SigHandler, Signal};

/// Watch the TCP sockets of this host, put VMs under CPU contention, and load congestion controls.
#[derive(Parser)]
#[command(name = "brobust", bin_name = "brobust", version, long_version = long_version(), subcommand_required = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100, subcommand_value_name = "COMMAND")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List congestion controls, load ours into the running kernel, and unload them
    #[command(subcommand)]
    Cc(cc::Command),
    /// Follow all TCP sockets of this host and say what limits each: CPU, network, windows or application
    ///
    /// The command reads the kernel's socket diagnosis, as `ss` does, and changes nothing. Sockets of its own network
    /// namespace need no privilege. A BBR flow is judged by its own estimate of the path's bandwidth-delay product, any
    /// other flow by delivery rate x min RTT.
    Watch(watch::Options),
    Contend(Box<contend::Arguments>),
    /// Undo what killed commands left on this host
    Doctor(doctor::Options),
    /// Undo what the process that started this has left on the host
    #[command(subcommand, hide = true)]
    Guard(guard::Command),
    /// Serve a backend on a machine that it measures on
    #[command(subcommand, hide = true)]
    Lab(lab::Command),
    /// Write man pages and shell completion
    #[command(hide = true)]
    Generate(generate::Arguments),
}

/// What --version prints after the name of the program. Python's prints other things too.
fn long_version() -> String {
    let controls: Vec<&str> = brobust_cc::Offered::all().map(|offered| offered.name).collect();
    format!("{}\nBPF controls: {}", env!("CARGO_PKG_VERSION"), controls.join(", "))
}

/// How a command ended that has not done its work.
pub enum Stop {
    Refused(Refusal),
    /// By Ctrl-C, SIGTERM or the end of the terminal.
    Interrupted,
    /// The reader of our output has closed it, as `head` does.
    OutputClosed,
    /// With this exit status, and everything has been said: what it found wrong, or how far it came.
    Status(u8),
}

/// Whether the command did its work and found nothing wrong.
pub type Outcome = std::result::Result<(), Stop>;

/// Ends a command that has said everything with this exit status.
pub fn end(status: u8) -> Outcome {
    match status {
        0 => Ok(()),
        _ => Err(Stop::Status(status)),
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn main() -> ExitCode {
    interrupt::unblock();
    // A file that may not become so large (ulimit -f) is an error of the call, as for Python, not the process's end.
    // SAFETY: the signal is ignored; no handler runs.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
    match parse().and_then(|cli| run(cli.command)) {
        Ok(()) | Err(Stop::OutputClosed) => ExitCode::SUCCESS,
        Err(Stop::Status(status)) => ExitCode::from(status),
        Err(Stop::Refused(refusal)) => refuse(&refusal.text, if refusal.kind == Kind::NotWritten { 1 } else { 2 }),
        Err(Stop::Interrupted) => refuse("interrupted", 130),
    }
}

fn run(command: Command) -> Outcome {
    match command {
        Command::Cc(command) => cc::run(command),
        Command::Watch(options) => watch::run(&options),
        Command::Contend(arguments) => contend::run(&arguments),
        Command::Doctor(options) => doctor::run(&options),
        Command::Guard(command) => guard::run(&command),
        Command::Lab(command) => lab::run(command),
        Command::Generate(arguments) => generate::run(&arguments, Cli::command()),
    }
}

/// What help calls numbers and times. `-5s` is a value of their options, which refuse it in their own words: clap would call
/// it an unexpected argument `-5`.
const NUMBERS: &[&str] = &["TIME", "DURATION", "NUMBER", "N", "SHARE", "PART", "PID", "IDS"];

/// Lets options that take numbers have negative ones, in this command and those below it.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let is_number = |arg: &Arg| {
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| NUMBERS.contains(&name.as_str())))
    };
    command
        .mut_args(|arg| if is_number(&arg) { arg.allow_hyphen_values(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// Commands that only the Python package has. tests/test_cli.py compares them with its own list.
const OF_PYTHON: &str = "run sweep reproduce validate demo plot trace explain explore compare report docs kernel quic \
                         module replay shadow";

/// Returns the refusal of what clap refuses.
fn refusal(error: &clap::Error) -> Refusal {
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => name,
        _ => "",
    };
    if OF_PYTHON.split_whitespace().any(|name| name == unknown) {
        return Refusal::missing_support(format!(
            "'{unknown}' is a command of the Python package; install its wheel of the same release (pip install brobust-*.whl)"
        ));
    }
    Refusal::bad_input(sentence(&error.to_string()))
}

fn parse() -> std::result::Result<Cli, Stop> {
    let parsed =
        with_negative_numbers(Cli::command()).try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.map_err(|error| {
        if !error.use_stderr() {
            let printed = error.print().and_then(|()| io::stdout().flush()); // the help, or the version
            return printed.map_or_else(|error| output::stop(&error), |()| Stop::Status(0));
        }
        if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            let _ = error.print();
            return Stop::Status(2);
        }
        refusal(&error).into()
    })
}

/// Returns what clap says about a mistake as one line: without its prefix, and without what it says about help below it.
/// Nor with its tip to put what begins with a hyphen after `--`: no argument of ours may begin so.
fn sentence(text: &str) -> String {
    let paragraph = text.split("\n\nUsage:").next().unwrap_or_default();
    let paragraph = paragraph.split("\n\nFor more information").next().unwrap_or_default();
    let paragraph = paragraph.trim_start_matches("error: ");
    let lines = paragraph.lines().filter(|line| !line.contains("as a value, use '-- "));
    let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    words.replace(" tip: ", "; tip: ")
}

fn refuse(sentence: &str, status: u8) -> ExitCode {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    output::remark(&line);
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_mistake_is_one_line() {
        let text = "error: unexpected argument '--x' found\n\n  tip: try '--y'\n\nUsage: brobust cc list\n";
        assert_eq!(super::sentence(text), "unexpected argument '--x' found; tip: try '--y'");
        let text =
            "error: unexpected argument '--x' found\n\n  tip: to pass '--x' as a value, use '-- --x'\n\nUsage: b\n";
        assert_eq!(super::sentence(text), "unexpected argument '--x' found");
        let text = "error: invalid value 'x' for '--top <N>': no digit\n\nFor more information, try '--help'.\n";
        assert_eq!(super::sentence(text), "invalid value 'x' for '--top <N>': no digit");
    }
}
