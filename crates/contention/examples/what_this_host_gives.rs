//! Asks each driver for a few patterns and prints what a spinning thread really got. Needs root, takes half a minute.
//!
//!     cargo run --release -p brobust-contention --example what_this_host_gives
use std::thread;
use std::time::Duration;

use brobust_contention::{
    hrtick_dl, hz, period_ns, unfaithful, Asked, Burner, Deadline, Driver, Recorder, Result, Schedule, Summary, Ticks,
    Tid,
};

#[path = "../tests/common/mod.rs"]
mod common;
use common::Worker;

const MS: u64 = 1_000_000;
const CPU: usize = 1;

fn main() -> Result<()> {
    println!("HZ {:?}, HRTICK_DL {:?}", hz(), hrtick_dl());
    println!("driver    asked          got            windows p10 median mean  p90    n    noise");
    for (driver, timeslice_ns, share) in [
        (Driver::Deadline, 10 * MS, 0.5),
        (Driver::Deadline, 10 * MS, 0.25),
        (Driver::Deadline, 20 * MS, 0.25),
        (Driver::Deadline, 5 * MS, 0.25),
        (Driver::Deadline, MS, 0.25),
        (Driver::Burner, MS, 0.25),
        (Driver::Burner, 10 * MS, 0.25),
        (Driver::Burner, 200_000, 0.5),
    ] {
        let asked = Asked { driver, timeslice_ns, share };
        let worker = Worker::spinning();
        print(&asked, &measure(worker.tid, &asked)?);
    }
    Ok(())
}

fn measure(tid: Tid, asked: &Asked) -> Result<Summary> {
    let period_ns = period_ns(asked.timeslice_ns, asked.share)?;
    let off_ns = period_ns - asked.timeslice_ns;
    let recordings = match asked.driver {
        Driver::Deadline => {
            let _held = Deadline::apply(&[tid], asked.timeslice_ns, period_ns)?;
            record(tid)?
        }
        Driver::Quota => unreachable!("python/brobust/host/cgroups.py sets quotas"),
        Driver::Burner => {
            let _held = Burner::start(tid, CPU, Schedule::new(asked.timeslice_ns, off_ns))?;
            record(tid)?
        }
    };
    Ok(recordings[0].summary(Some(off_ns)))
}

fn record(tid: Tid) -> Result<Vec<brobust_contention::Recording>> {
    let recorder = Recorder::start(&[tid])?;
    thread::sleep(Duration::from_secs(3));
    recorder.stop()
}

fn print(asked: &Asked, got: &Summary) {
    let Some(window) = got.window else {
        println!("{asked:?}: no window");
        return;
    };
    println!(
        "{:8} {:5.1} ms {:4.1} % {:6.2} ms {:5.2} %  {:6.2} {:6.2} {:6.2} {:6.2} {:5} {:4}  {}",
        format!("{:?}", asked.driver).to_lowercase(),
        asked.timeslice_ns as f64 / 1e6,
        asked.share * 100.0,
        window.trimmed_mean_ns / 1e6,
        got.effective_share * 100.0,
        window.p10_ns / 1e6,
        window.median_ns / 1e6,
        window.mean_ns / 1e6,
        window.p90_ns / 1e6,
        window.count,
        got.noise_count,
        unfaithful(asked, got, Ticks::of_this_host()).unwrap_or_default()
    );
}
