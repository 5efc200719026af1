//! `watch`: prints what `brobust watch --json` prints, inside a test VM, which has no Python.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use brobust_ccload as ccload;
use brobust_sockdiag::Filter;
use brobust_watch::{Namespaces, Settings, Sweeps, Watch};
use clap::Args;

#[derive(Args)]
pub struct Options {
    /// Port of the receivers: follow the sockets that are connected to it
    #[arg(long)]
    port: u16,
    /// Time between sweeps
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval_ms: u64,
    /// How far back a verdict looks
    #[arg(long, default_value_t = 10)]
    window_s: u64,
    /// Number of sweeps
    #[arg(long)]
    count: u32,
}

pub fn run(options: &Options) -> Result<()> {
    let watch = Watch::new(Settings {
        namespaces: Namespaces::Own,
        filter: Filter { remote_port: Some(options.port), ..Filter::default() },
        window: Duration::from_secs(options.window_s),
        host_root: "/".into(),
    })?;
    let (begun, interval) = (Instant::now(), Duration::from_millis(options.interval_ms));
    let (mut sweeps, mut state_maps) = (Sweeps::new(watch, interval), ccload::StateMaps::default());
    for number in 1..=options.count {
        // Not when `sweeps` says it is due: after a sweep during which the guest was off its CPU that is seconds later,
        // and a run lasts only seconds.
        thread::sleep((begun + interval * number).saturating_duration_since(Instant::now()));
        let sweep = sweeps.sweep(state_maps.open(), usize::MAX);
        let line = serde_json::to_string(&sweep).context("cannot write the sweep")?;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write the sweep")?;
    }
    Ok(())
}
