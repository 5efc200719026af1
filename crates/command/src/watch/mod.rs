//! `brobust watch`: which sockets of this host are short of CPU.

mod address;
mod exposition;
mod filter;
mod lines;
mod metrics;
mod record;
mod server;
mod unread;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use brobust_ccload as ccload;
use brobust_host::{units, Refusal};
use brobust_sockdiag::Filter;
use brobust_watch::{Cause, Namespaces, Settings, SweepReport, Sweeps, Watch};
use clap::Args;

use crate::{end, files, interrupt, numbers, output, Outcome, Stop};
use lines::Lines;
use metrics::Metrics;
use record::Record;
use unread::Unread;

/// A window spans at most this many sweeps: for each of them, 8 bytes are kept per socket.
const MAX_WINDOW_SWEEPS: u64 = 1000;
/// Fewest intervals in a window: with fewer samples there is no cause.
const MIN_WINDOW_SWEEPS: u64 = 4;
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(3600);
/// As long as the longest interval needs.
const WINDOWS: RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(3600 * MIN_WINDOW_SWEEPS);

const DEFAULT_TOP: usize = 20;

const EXAMPLES: &str = "Examples:
  brobust watch                                        # until Ctrl-C
  brobust watch --once                                 # a verdict for scripts, after ten seconds
  brobust watch --filter 'sport 443' --top 5
  brobust watch --count 60 --record sweeps.jsonl       # then brobust trace sweeps.jsonl
  brobust watch --netns all --serve 127.0.0.1:9775     # for Prometheus";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Time between two sweeps, 50ms to 3600s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = |text: &str| time(text, INTERVALS))]
    interval: Duration,
    /// Find each cause from the samples of this time; 4 intervals or more
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = |text: &str| time(text, WINDOWS))]
    window: Duration,
    /// End after this many sweeps [default: never]
    #[arg(long, value_name = "NUMBER", value_parser = numbers::at_least(1_u64), conflicts_with = "once")]
    count: Option<u64>,
    /// Watch only sockets of these ports: 'dport 443' (the peer's), 'sport 80' (our own), or 'sport 80 and dport 443'
    /// [default: all]
    #[arg(long, default_value = "", hide_default_value = true, value_parser = filter::parse)]
    filter: Filter,
    /// Watch this network namespace (name, path or process id), or all [default: our own]
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Show at most this many sockets, those that are short of CPU first, then by rate [default: 20]
    #[arg(long, value_name = "NUMBER", value_parser = numbers::at_least(0_usize))]
    top: Option<usize>,
    /// Watch for one window, then exit with status 1 if a socket is CPU-limited or throttled, else with 2 if a network
    /// namespace that was asked for could not be read, else with 0
    #[arg(long)]
    once: bool,
    /// Explain what the causes mean and what to do about a lack of CPU, and exit
    #[arg(long, exclusive = true)]
    explain: bool,
    /// Print one JSON object per sweep
    #[arg(long)]
    json: bool,
    /// Also write each sweep, with --top sockets, as a line of JSON to this new file, for `brobust trace` and `explore`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Serve the sweeps to Prometheus at this address, such as 127.0.0.1:9775, until Ctrl-C
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address::parse, conflicts_with_all = ["json", "once"])]
    serve: Option<SocketAddr>,
    /// With --serve: also serve time series for the --top sockets. Prometheus keeps three for every connection that was
    /// ever among them, long after its end, and anyone who can connect sees the addresses
    #[arg(long)]
    per_socket: bool,
    /// Look for cgroups (sys/fs/cgroup) and the kubelet's names of pods (var/log) below this directory: where a container
    /// has its host's directories
    #[arg(long, value_name = "DIR", default_value = "/")]
    host_root: PathBuf,
}

pub fn run(options: &Options) -> Outcome {
    if options.explain {
        return output::line(lines::explanation().trim_end());
    }
    let Options { interval, window, filter, serve: address, .. } = *options;
    check_window(interval, window)?;
    if !options.host_root.is_dir() {
        let given = options.host_root.display();
        return Err(
            Refusal::bad_input(format!("--host-root: {given} is no directory; give where the host's / is")).into()
        );
    }
    if options.per_socket && address.is_none() {
        let what = "--per-socket adds time series to what --serve shows; give --serve, too";
        return Err(Refusal::bad_input(what).into());
    }
    let count = if options.once { Some((window.as_nanos() / interval.as_nanos()) as u64) } else { options.count };
    // Without these nobody would see the sockets.
    let is_metrics_only = address.is_some() && !options.per_socket && options.record.is_none();
    if is_metrics_only && options.top.is_some() {
        let what =
            "--top: --serve counts sockets and shows none; give --per-socket or --record, too, or leave --top out";
        return Err(Refusal::bad_input(what).into());
    }
    let top = if is_metrics_only { 0 } else { options.top.unwrap_or(DEFAULT_TOP) };

    interrupt::catch();
    files::allow_open()?;
    let namespaces = match options.netns.as_deref() {
        None => Namespaces::Own,
        Some("all") => Namespaces::All,
        Some(name) => Namespaces::Of(name.to_owned()),
    };
    let settings = Settings { namespaces, filter, window, host_root: options.host_root.clone() };
    let watch = Watch::new(settings).map_err(|error| Refusal::missing_support(format!("watch: {error}")))?;
    let mut record = options.record.as_deref().map(Record::new).transpose()?;
    let (mut sweeps, mut state_maps) = (Sweeps::new(watch, interval), ccload::StateMaps::default());
    let served = address.map(|address| serve(address, options.per_socket)).transpose()?;
    let (mut unread, mut lines) = (Unread::default(), Lines::default());
    let sleep_until = if served.is_some() { interrupt::sleep_until } else { sleep_while_read };
    loop {
        sleep_until(sweeps.due())?;
        served.as_ref().map_or(Ok(()), |(_, thread)| server::check(thread))?;
        let sweep = sweeps.sweep(state_maps.open(), top);
        record.as_mut().map_or(Ok(()), |record| record.add(&sweep))?;
        let is_last = count.is_some_and(|count| sweep.report.sweep >= count);
        let found = if options.once && is_last { verdict(&sweep.report) } else { Ok(()) };
        match &served {
            Some((metrics, _)) => {
                unread.new_line(&sweep.report.unread, Instant::now()).iter().for_each(|line| output::remark(line));
                metrics.update(sweep);
            }
            None if options.once && !is_last => {}
            None if options.json => output::record(&sweep)?,
            None => output::line(&lines.of(&sweep.report))?,
        }
        if is_last {
            return found;
        }
    }
}

/// Ends `--once`. A lack that was found is one, whatever was not read; that there is none is said only of all that was
/// asked for.
fn verdict(report: &SweepReport) -> Outcome {
    if report.count(Cause::CpuLimited) + report.count(Cause::Throttled) > 0 {
        return end(1);
    }
    let what = if report.namespaces == 0 {
        "watch: no sockets could be read at the end, so whether one is short of CPU is unknown"
    } else if report.unread_namespaces() > 0 {
        "watch: a network namespace could not be read (the sweep says why), so whether one of its sockets is short of CPU \
         is unknown; --netns NAME asks for one alone"
    } else if report.unfollowed > 0 {
        "watch: sockets were not followed for lack of memory (the sweep says how many), so whether one of them is short of \
         CPU is unknown; --filter asks for fewer"
    } else {
        return Ok(());
    };
    Err(Refusal::missing_support(what).into())
}

/// Begins to serve metrics, and says where. Returns what is served, and the thread that serves it.
fn serve(address: SocketAddr, per_socket: bool) -> Result<(Metrics, JoinHandle<()>), Stop> {
    let metrics = Metrics::new(per_socket);
    let shown = metrics.clone();
    let (served, thread) = server::start(address, move || shown.text())?;
    output::line(&format!("serving metrics on http://{served}/metrics; stop it with Ctrl-C"))?;
    Ok((metrics, thread))
}

/// Sleeps until then, or until nobody reads our output any more: the program that shows our sweeps on a terminal may be
/// killed, and an interval may be an hour.
fn sleep_while_read(until: Instant) -> Outcome {
    while Instant::now() < until {
        if output::is_closed() {
            return Err(Stop::OutputClosed);
        }
        interrupt::sleep_until(until.min(Instant::now() + Duration::from_millis(100)))?;
    }
    Ok(())
}

fn time(text: &str, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = Duration::from_nanos(units::nanoseconds(text)?);
    let (min, max) = (allowed.start(), allowed.end());
    Some(time).filter(|time| allowed.contains(time)).ok_or_else(|| format!("allowed: {min:?} to {max:?}"))
}

fn check_window(interval: Duration, window: Duration) -> Result<(), Refusal> {
    if window.as_nanos() < interval.as_nanos() * u128::from(MIN_WINDOW_SWEEPS) {
        return Err(Refusal::bad_input(format!(
            "--window: {window:?} is less than four intervals of {interval:?}, too few samples to find a cause; give a \
             longer window"
        )));
    }
    if window.as_nanos() > interval.as_nanos() * u128::from(MAX_WINDOW_SWEEPS) {
        return Err(Refusal::bad_input(format!(
            "--window: {window:?} is more than {MAX_WINDOW_SWEEPS} intervals of {interval:?}, and every socket needs \
             memory for each; give a shorter window, or a longer --interval"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::metrics::made_up::{count, report};
    use brobust_host::Kind;

    fn status(report: &SweepReport) -> u8 {
        match verdict(report) {
            Ok(()) => 0,
            Err(Stop::Status(status)) => status,
            Err(Stop::Refused(refusal)) => {
                assert!(refusal.kind == Kind::MissingSupport && refusal.text.contains("unknown"), "{}", refusal.text);
                2
            }
            Err(_) => panic!("neither interrupted nor closed"),
        }
    }

    #[test]
    fn once_finds_nothing_wrong_only_where_all_that_was_asked_for_was_read() {
        let read = SweepReport { namespaces: 1, ..report(vec![count("bbr", "app-limited", 2)]) };
        let hidden = SweepReport { unread: vec!["3 namespaces are hidden".to_owned()], ..read.clone() };
        let host = SweepReport { unread_host: 1, ..hidden.clone() };
        let interrupted = SweepReport { interrupted: 1, ..hidden.clone() };
        let lack = SweepReport { counts: vec![count("bbr", "throttled", 1)], ..hidden.clone() };
        let nothing = SweepReport { namespaces: 0, ..hidden.clone() };
        let unfollowed = SweepReport { unfollowed: 5, ..hidden.clone() };
        let statuses = [&read, &hidden, &host, &interrupted, &lack, &nothing, &unfollowed].map(status);
        assert_eq!(statuses, [0, 2, 0, 0, 1, 2, 2]);
    }

    #[test]
    fn every_interval_that_is_allowed_has_a_window() {
        let (longest, window) = (time("3600s", INTERVALS).expect("it is allowed"), |text| time(text, WINDOWS));
        assert_eq!(check_window(longest, window("14400s").expect("four of them")), Ok(()));
        assert!(check_window(longest, window("14399s").expect("allowed")).is_err());
        assert_eq!(window("14401s"), Err("allowed: 50ms to 14400s".to_owned()));
        assert_eq!(time("3601s", INTERVALS), Err("allowed: 50ms to 3600s".to_owned()));
    }
}
