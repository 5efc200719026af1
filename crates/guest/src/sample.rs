//! `sample`: records the state of TCP sockets at fixed intervals.
//!
//! Ticks lie on an absolute grid, so delays do not add up. Samples stay in memory until the end: writing them earlier
//! would take CPU time from the sender that is observed.
//!
//! The output is a line with the names of the columns, one array per socket and tick, and a line with the sockets.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use brobust_ccload as ccload;
use brobust_sockdiag::{Filter, SockDiag, Socket, SocketKey};
use clap::Args;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{sigaction, SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::sys::time::TimeSpec;
use nix::time::{clock_gettime, clock_nanosleep, ClockId, ClockNanosleepFlags};
use serde_json::{json, Value};

/// Time between two searches for new sockets while known ones are followed one by one.
const REDISCOVER: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Options {
    /// Port of the receivers: record the sockets that are connected to it
    #[arg(long)]
    port: u16,
    /// Time between ticks
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=60_000_000))]
    interval_us: u64,
    /// Length of the recording; SIGTERM ends it earlier
    #[arg(long)]
    duration_s: f64,
}

type Column = (&'static str, fn(&Socket) -> Value);

const COLUMNS: &[Column] = &[
    ("time_ns", |s| json!(s.time_ns)),
    ("cwnd_packets", |s| json!(s.tcp.cwnd_packets)),
    ("ssthresh_packets", |s| json!(s.tcp.ssthresh_packets)),
    ("inflight_packets", |s| json!(s.tcp.inflight_packets())),
    ("inflight_bdp", |s| json!(s.inflight_bdp())),
    ("pacing_rate_bytes_per_s", |s| json!(s.tcp.pacing_rate_bytes_per_s)),
    ("delivery_rate_bytes_per_s", |s| json!(s.tcp.delivery_rate_bytes_per_s)),
    ("delivery_rate_app_limited", |s| json!(s.tcp.delivery_rate_app_limited)),
    ("bandwidth_bytes_per_s", |s| json!(s.bbr.as_ref().map(|bbr| bbr.bandwidth_bytes_per_s))),
    ("bbr_min_rtt_us", |s| json!(s.bbr.as_ref().and_then(|bbr| bbr.min_rtt_us))),
    ("pacing_gain", |s| json!(s.bbr.as_ref().map(|bbr| gain(bbr.pacing_gain_x256)))),
    ("cwnd_gain", |s| json!(s.bbr.as_ref().map(|bbr| gain(bbr.cwnd_gain_x256)))),
    ("bbr_mode", |s| json!(s.bbr.as_ref().and_then(|bbr| bbr.mode))),
    ("deficit_acks", |s| json!(s.bbr.as_ref().and_then(|bbr| bbr.deficit_acks))),
    ("rtt_us", |s| json!(s.tcp.rtt_us)),
    ("min_rtt_us", |s| json!(s.tcp.min_rtt_us)),
    ("ca_state", |s| json!(s.tcp.ca_state)),
    ("delivered_packets", |s| json!(s.tcp.delivered_packets)),
    ("total_retrans_packets", |s| json!(s.tcp.total_retrans_packets)),
];

fn gain(x256: u32) -> f64 {
    f64::from(x256) / 256.0
}

pub fn run(options: &Options) -> Result<()> {
    if !(options.duration_s > 0.0 && options.duration_s <= 1e6) {
        bail!("--duration-s {} is not above 0 and at most 1000000", options.duration_s);
    }
    let mut sampler = Sampler::new(options.port)?;
    let recording =
        record(Duration::from_micros(options.interval_us), Duration::from_secs_f64(options.duration_s), |samples| {
            sampler.take(samples)
        })?;
    write(&mut BufWriter::new(io::stdout().lock()), &recording).context("cannot write the samples")
}

struct Recording {
    samples: Vec<Socket>,
    ticks: u64,
    /// Number of ticks that were missed because the CPU was away for longer than an interval.
    missed_ticks: u64,
}

fn record(
    interval: Duration,
    length: Duration,
    mut take: impl FnMut(&mut Vec<Socket>) -> Result<()>,
) -> Result<Recording> {
    stop_on_sigterm()?;
    // The default timer slack of 50 us would move ticks off the grid.
    prctl::set_timerslack(1).context("cannot ask for exact timers")?;
    let mut recording = Recording { samples: Vec::new(), ticks: 0, missed_ticks: 0 };
    let start = now();
    let (mut next, end) = (start, start + length);
    while next < end && !STOP.load(Ordering::Relaxed) {
        if sleep_until(next) {
            take(&mut recording.samples)?;
            recording.ticks += 1;
            // Those that are due from the end on are not missed.
            let until = now().min(end - Duration::from_nanos(1));
            let missed = until.saturating_sub(next).as_nanos() / interval.as_nanos();
            recording.missed_ticks += missed as u64;
            next += interval * (missed as u32 + 1);
        }
    }
    Ok(recording)
}

struct Sampler {
    diag: SockDiag,
    filter: Filter,
    /// Sockets to follow one by one.
    known: Vec<SocketKey>,
    /// Whether one of them uses a control of ours, which reports its state in dumps only.
    only_dumps: bool,
    rediscover_at: Duration,
}

impl Sampler {
    fn new(port: u16) -> Result<Sampler> {
        Ok(Sampler {
            diag: SockDiag::open()?.with_state_maps(ccload::StateMaps::default().open()),
            filter: Filter { remote_port: Some(port), ..Filter::default() },
            known: Vec::new(),
            only_dumps: false,
            rediscover_at: Duration::ZERO,
        })
    }

    fn take(&mut self, samples: &mut Vec<Socket>) -> Result<()> {
        if self.known.is_empty() || now() >= self.rediscover_at {
            self.discover(samples)
        } else if self.only_dumps {
            self.dump_known(samples)
        } else {
            self.follow(samples)
        }
    }

    fn discover(&mut self, samples: &mut Vec<Socket>) -> Result<()> {
        let found = self.diag.dump(&self.filter)?;
        self.known = found.iter().map(|socket| socket.key).collect();
        self.only_dumps = found.iter().any(is_ours);
        self.rediscover_at = now() + REDISCOVER;
        samples.extend(found);
        Ok(())
    }

    /// Takes samples by a dump, of one address family only if all known sockets have the same.
    fn dump_known(&mut self, samples: &mut Vec<Socket>) -> Result<()> {
        let mut families = self.known.iter().map(|key| key.local.is_ipv6());
        let first = families.next();
        let ipv6 = first.filter(|first| families.all(|other| other == *first));
        samples.extend(self.diag.dump(&Filter { ipv6, ..self.filter })?);
        Ok(())
    }

    fn follow(&mut self, samples: &mut Vec<Socket>) -> Result<()> {
        for key in &self.known {
            match self.diag.get(key)? {
                Some(socket) => samples.push(socket),
                None => self.rediscover_at = Duration::ZERO,
            }
        }
        Ok(())
    }
}

fn is_ours(socket: &Socket) -> bool {
    let name = socket.congestion_control.as_deref();
    ccload::names().any(|ours| Some(ours) == name)
}

fn write(out: &mut impl Write, recording: &Recording) -> io::Result<()> {
    let mut names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    names.push("socket");
    writeln!(out, "{}", json!({ "columns": names }))?;
    let mut sockets: Vec<&Socket> = Vec::new();
    for sample in &recording.samples {
        let index = sockets.iter().position(|known| known.key == sample.key).unwrap_or_else(|| {
            sockets.push(sample);
            sockets.len() - 1
        });
        let mut row: Vec<Value> = COLUMNS.iter().map(|(_, value)| value(sample)).collect();
        row.push(json!(index));
        writeln!(out, "{}", Value::Array(row))?;
    }
    let sockets: Vec<Value> = sockets
        .iter()
        .map(|socket| {
            json!({
                "local": socket.key.local.to_string(),
                "remote": socket.key.remote.to_string(),
                "congestion_control": socket.congestion_control,
            })
        })
        .collect();
    let tail = json!({"sockets": sockets, "ticks": recording.ticks, "missed_ticks": recording.missed_ticks});
    writeln!(out, "{tail}")?;
    out.flush()
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Makes SIGTERM and SIGINT end the recording. Without SA_RESTART, so that a sleep ends at once.
fn stop_on_sigterm() -> Result<()> {
    extern "C" fn stop(_: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
    }
    let action = SigAction::new(SigHandler::Handler(stop), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: the handler does nothing but store to an atomic.
        unsafe { sigaction(signal, &action) }.context("cannot handle SIGTERM")?;
    }
    Ok(())
}

/// Sleeps until a time. Returns false if a signal came first.
fn sleep_until(time: Duration) -> bool {
    let request = TimeSpec::from(time);
    clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &request) != Err(Errno::EINTR)
}

fn now() -> Duration {
    // Reading this clock cannot fail.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
