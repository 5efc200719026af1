//! `brobust contend`: takes the CPU away from the vCPU threads of any VM on this host, and says what they got.

mod hold;
mod recordings;
mod report;
mod request;
mod screen;
mod vcpus;

use std::path::{Path, PathBuf};
use std::time::Duration;

use brobust_host::{Refusal, Result};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::{end, files, numbers, output, Outcome};
use hold::Place;
use request::Request;
use screen::Screen;
use vcpus::Machine;

const EXAMPLES: &str = "Examples:
  brobust contend --qemu web-1 --share 25% --timeslice 10ms --dry-run
  brobust contend --libvirt web-1 --share 50% --driver quota --for 60s
  brobust contend --pid 4711 --driver competitor --competitors 3 --for 60s
  brobust contend --qemu test-1 --replay recording.parquet";

/// Take the CPU away from the vCPU threads of any VM on this host, and say what they really got
///
/// Knows the vCPU threads of QEMU, libvirt, VirtualBox, VMware, Firecracker and cloud-hypervisor by their names (tested: QEMU
/// and libvirt against the programs themselves; the others against the names that they give their threads). Every thread is
/// given its policy, nice value, CPUs and cgroup back at the end, on Ctrl-C, and by `brobust doctor --clean` after kill -9.
/// Exit status 1 if the threads did not get what was asked for.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    vm: vcpus::VmOptions,
    #[command(flatten)]
    options: request::Options,
    /// End after this time [default: at Ctrl-C, or when the recording of --replay ends]
    #[arg(long = "for", value_name = "TIME", value_parser = numbers::duration)]
    duration: Option<Duration>,
    /// Write what the threads got to this Parquet file, as `record` does
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Also do what leaves the host no CPU, or takes a --nice below -10; needs --for
    #[arg(long)]
    force: bool,
    /// Print what was found and what would be done
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a second, and one at the end
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Record(Record),
}

/// Record when threads run, sleep and wait for a CPU, for `contend --replay` and `run --replay`
///
/// Changes nothing. As root by a BPF program, every switch exactly; without privilege by what the kernel counts in /proc,
/// off-times exact in length and to a millisecond in when they were.
#[derive(Args)]
#[command(after_help = "Examples:\n  brobust contend record --pid 4711 --for 60s -o recording.parquet")]
struct Record {
    /// Parquet file; `--replay` takes it
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    vm: vcpus::VmOptions,
    /// Record for this time
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = numbers::duration)]
    duration: Duration,
    /// One JSON object a second, and one at the end
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Some(Command::Record(record)) => self::record(record),
        None => contend(arguments),
    }
}

fn contend(arguments: &Arguments) -> Outcome {
    let Arguments { duration, force, dry_run, json, ref out, .. } = *arguments;
    let request = arguments.options.request()?;
    let seconds = duration.map(|duration| duration.as_secs_f64());
    let has_end = seconds.is_some() || arguments.options.replay.is_some();
    if force && !has_end {
        let text = "--force needs --for, since nobody may get a CPU to end the contention; give for example --for 10s";
        return Err(Refusal::bad_input(text).into());
    }
    out.as_deref().map_or(Ok(()), check_out)?;
    files::allow_open()?;
    let machine = arguments.vm.find()?;
    let places = hold::check(&request, &machine, force)?;
    print_found(&machine, &request, &places, json)?;
    if dry_run {
        return Ok(());
    }
    if !nix::unistd::geteuid().is_root() {
        let text = "contend needs root, to change how threads are scheduled; run it with sudo, or --dry-run";
        return Err(Refusal::missing_support(text).into());
    }
    // Not after an hour of contention.
    out.as_deref().map_or(Ok(()), files::refuse_unwritable)?;
    let mut screen = Screen::new(json);
    let task =
        hold::Task { machine: &machine, request: &request, places: &places, seconds, out: out.as_deref(), force };
    let report = hold::contend(&task, &mut screen)?;
    screen.finish(&report)?;
    // Where there is no other end, Ctrl-C is how to end it.
    if report.end.is_some_and(|end| end.interrupted) && has_end {
        return end(130);
    }
    let is_unfaithful = |row: &report::Row| row.whole.as_ref().is_some_and(|whole| whole.unfaithful.is_some());
    end(u8::from(report.threads.iter().any(is_unfaithful)))
}

fn record(arguments: &Record) -> Outcome {
    check_out(&arguments.out)?;
    files::allow_open()?;
    let machine = arguments.vm.find()?;
    let mut screen = Screen::new(arguments.json);
    let report = hold::record(&machine, arguments.duration.as_secs_f64(), &arguments.out, &mut screen)?;
    screen.finish(&report)?;
    end(if report.end.is_some_and(|end| end.interrupted) { 130 } else { 0 })
}

/// Refuses a file that could not be written, and one that is there, as `watch --record` does: an hour's recording would be
/// lost. What is no regular file is refused later, with another reason.
fn check_out(out: &Path) -> Result<()> {
    let name = out.display();
    if out.extension().is_none_or(|extension| extension != "parquet") || !files::directory_of(out).is_dir() {
        return Err(Refusal::bad_input(format!(
            "--out: {name} is not a .parquet file in a directory that exists; give for example trace.parquet"
        )));
    }
    if out.symlink_metadata().is_ok_and(|found| found.is_file()) {
        return Err(Refusal::bad_input(format!("--out: {name} is there already; give another name")));
    }
    Ok(())
}

fn print_found(machine: &Machine, request: &Request, places: &[Place], as_json: bool) -> Outcome {
    let Machine { pid, program, name, vcpus, is_known } = machine;
    let asked = request.describe();
    let placed = || vcpus.iter().zip(places).map(|(vcpu, (_, cpu))| (vcpu, cpu));
    if as_json {
        let threads: Vec<_> = placed()
            .map(|(vcpu, cpu)| json!({"thread": vcpu.thread.pid, "name": vcpu.name, "vcpu": vcpu.number, "cpu": cpu}))
            .collect();
        let found = json!({"pid": pid, "program": program, "name": name, "asked": asked, "threads": threads});
        return output::record(&json!({ "found": found }));
    }
    let called = if name.is_empty() { String::new() } else { format!(" {name}") };
    output::line(&format!("{program}{called} (process {pid}): {asked}"))?;
    for (vcpu, cpu) in placed() {
        let pinned = cpu.map_or(String::new(), |cpu| format!(", pinned to CPU {cpu}"));
        output::line(&format!("  thread {} {}{pinned}", vcpu.thread.pid, vcpu.name))?;
    }
    if !is_known {
        output::remark(&format!(
            "{program} is not a known VM: its own threads are held up, but not the timers and softirqs of this host's TCP"
        ));
    }
    Ok(())
}
