//! Asks each driver for a few patterns and prints what a spinning thread really got. Needs root, takes half a minute.
//!
//!     cargo run --release -p brobust-contention --example what_this_host_gives
use std::thread;
use std::time::Duration;

use brobust_contention::{deviation, hrtick_dl, hz, Recorder, Recording, Result, Summary, Ticks, Tid};
use brobust_timeline::Slices;

#[path = "../tests/common/mod.rs"]
mod common;
use common::{held, request, slices, Worker, BURNER, DEADLINE};

const MS: u64 = 1_000_000;
const CPU: usize = 1;

fn main() -> Result<()> {
    println!("HZ {:?}, HRTICK_DL {:?}", hz(), hrtick_dl());
    println!("driver    asked          got         timeslices p10 median mean  p90    n    noise");
    for (driver, timeslice_ns, share) in [
        (DEADLINE, 10 * MS, 0.5),
        (DEADLINE, 10 * MS, 0.25),
        (DEADLINE, 20 * MS, 0.25),
        (DEADLINE, 5 * MS, 0.25),
        (DEADLINE, MS, 0.25),
        (BURNER, MS, 0.25),
        (BURNER, 10 * MS, 0.25),
        (BURNER, 200_000, 0.5),
    ] {
        let (worker, slices) = (Worker::spinning(), slices(timeslice_ns, share));
        let _held = held(driver, worker.tid, CPU, slices)?;
        print(driver, slices, &record(worker.tid)?.summary(Some(slices.off_time())));
    }
    Ok(())
}

fn record(tid: Tid) -> Result<Recording> {
    let recorder = Recorder::start(&[tid])?;
    thread::sleep(Duration::from_secs(3));
    Ok(recorder.stop()?.remove(0))
}

fn print(driver: &str, slices: Slices, got: &Summary) {
    let Some(timeslice) = got.timeslice else {
        println!("{driver} {slices:?}: no whole timeslice");
        return;
    };
    println!(
        "{driver:8} {:5.1} ms {:4.1} % {:6.2} ms {:5.2} %  {:6.2} {:6.2} {:6.2} {:6.2} {:5} {:4}  {}",
        slices.timeslice as f64 / 1e6,
        slices.share() * 100.0,
        timeslice.trimmed_mean_ns / 1e6,
        got.effective_share * 100.0,
        timeslice.p10_ns / 1e6,
        timeslice.median_ns / 1e6,
        timeslice.mean_ns / 1e6,
        timeslice.p90_ns / 1e6,
        timeslice.count,
        got.noise_count,
        deviation(&request(driver, &slices), got, Ticks::of_this_host()).unwrap_or_default()
    );
}
