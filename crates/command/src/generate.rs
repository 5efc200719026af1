//! `brobust generate`: what a package brings beside the program, made from its command line: man pages and completion.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use brobust_host::{reason, Refusal};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::{generate_to, Shell};
use clap_mangen::roff::{bold, italic, roman, Roff};
use clap_mangen::Man;

use crate::{cc, Outcome};

/// How a command may end; main.rs has the numbers.
const STATUSES: &[(&str, &str)] = &[
    ("0", "The command did its work and found nothing wrong."),
    ("1", "It found something wrong, or what it found cannot be written: a full disk, for example."),
    ("2", "A value cannot be used, or this machine lacks something. One line on standard error says what, and what to do."),
    ("130", "It was interrupted by Ctrl-C, SIGTERM or the end of its terminal, and has undone what it had changed."),
];

/// The files of commands whose pages begin with this name.
const FILES: &[(&str, &str, &str)] = &[
    ("brobust-cc", "/run/brobust-cc", "What is changed, written down before it is changed, until it is undone."),
    ("brobust-cc", "/sys/fs/bpf/brobust", "The controls that are loaded."),
    ("brobust-contend", "/run/brobust", "What is changed, written down before it is changed, until it is undone."),
    ("brobust-doctor", "/run/brobust, /run/brobust-cc", "What commands have changed and not undone."),
];

#[derive(Args)]
pub struct Arguments {
    /// Directory that gets man1/ and completions/; it is created if it is missing
    directory: PathBuf,
}

/// Writes man1/NAME.1 for every command that users see, and completions/ with brobust.bash, _brobust (zsh) and
/// brobust.fish.
pub fn run(arguments: &Arguments, program: Command) -> Outcome {
    let root = &arguments.directory;
    write_all(root, program).map_err(|error| {
        Refusal::missing_support(format!("{} cannot be written: {}", root.display(), reason(&error))).into()
    })
}

fn write_all(root: &Path, mut program: Command) -> io::Result<()> {
    let (pages, completions) = (root.join("man1"), root.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut without_hidden(program.clone()), "brobust", &completions)?;
    }
    // This sets the names of the commands below: brobust-cc-load.
    program.build();
    let all = shown(&program);
    all.iter().try_for_each(|(name, command)| fs::write(pages.join(format!("{name}.1")), page(command, name, &all)?))
}

/// Returns the program without the commands that users do not call, and the options that only refuse: completion would
/// offer them.
fn without_hidden(program: Command) -> Command {
    let shown: Vec<Command> =
        program.get_subcommands().filter(|command| !command.is_hide_set()).cloned().map(without_hidden).collect();
    let named = Command::new(program.get_name().to_owned()).about(program.get_about().cloned().unwrap_or_default());
    let named = match program.get_version() {
        Some(version) => named.version(version.to_owned()),
        None => named,
    };
    let arguments = program.get_arguments().filter(|arg| !arg.is_hide_set()).cloned().map(with_values);
    named.args(arguments).subcommands(shown).disable_help_subcommand(true)
}

/// Lets completion offer our controls where the argument is one of them.
fn with_values(arg: Arg) -> Arg {
    let is_control = arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == cc::CONTROL));
    if is_control {
        arg.value_parser(PossibleValuesParser::new(brobust_ccload::names()))
    } else {
        arg
    }
}

/// Returns this command, and those below it that users see, each with the name of its page.
fn shown(command: &Command) -> Vec<(&str, &Command)> {
    let own = (command.get_display_name().unwrap_or_else(|| command.get_name()), command);
    let below = command.get_subcommands().filter(|sub| !sub.is_hide_set()).flat_map(shown);
    std::iter::once(own).chain(below).collect()
}

fn page(command: &Command, name: &str, all: &[(&str, &Command)]) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone().disable_help_subcommand(true).subcommand_help_heading("COMMANDS"))
        .title(name.to_uppercase())
        .source(concat!("brobust ", env!("CARGO_PKG_VERSION")))
        .manual("brobust");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    // Neither hyphens in the names of commands nor wide gaps between words.
    text.write_all(Roff::new().control("nh", []).control("ad", ["l"]).render().as_bytes())?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut text)?;
    }
    write_examples(command, &mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        roff.control("TP", []).text([bold(*status)]).text([roman(*meaning)]);
    }
    let files: Vec<_> = FILES.iter().filter(|(page, ..)| name.starts_with(page)).collect();
    if !files.is_empty() {
        roff.control("SH", ["FILES"]);
    }
    for (_, path, meaning) in files {
        roff.control("TP", []).text([italic(*path)]).text([roman(*meaning)]);
    }
    roff.control("SH", ["SEE ALSO"]);
    let others = all.iter().map(|(other, _)| *other).filter(|other| *other != name);
    let others: Vec<String> = others.map(|other| format!("{other}(1)")).collect();
    roff.text([roman(others.join(", "))]);
    roff.to_writer(&mut text)?;
    Ok(text)
}

/// Writes the examples at the end of a command's help as they are there: `Examples:`, then indented lines.
fn write_examples(command: &Command, text: &mut Vec<u8>) -> io::Result<()> {
    let Some(help) = command.get_after_help() else { return Ok(()) };
    let help = help.to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in help.lines().skip_while(|line| line.trim_end() != "Examples:").skip(1) {
        roff.text([roman(line.trim())]);
    }
    roff.control("fi", []);
    text.write_all(roff.render().as_bytes())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::page;

    #[test]
    fn a_page_names_options_statuses_and_the_other_pages() {
        let mut program = crate::Cli::command();
        program.build();
        let all = super::shown(&program);
        assert!(!all.iter().any(|(name, _)| name.contains("guard")), "hidden commands have no page");
        let (_, cc) = all.iter().find(|(name, _)| *name == "brobust-cc-list").expect("it is there");
        let text = String::from_utf8(page(cc, "brobust-cc-list", &all).expect("written")).expect("text");
        for part in ["\\-\\-json", ".SH \"EXIT STATUS\"", ".SH \"SEE ALSO\"", "brobust\\-cc(1)", "cannot be written"] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
    }
}
