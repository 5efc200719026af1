//! Reads a scenario as JSON from standard input, runs it, and prints the figures of its flows.
use std::io::Read;
use std::sync::atomic::AtomicBool;

fn main() {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("standard input");
    let scenario: brobust_virtual::Scenario = serde_json::from_str(&text).expect("a scenario");
    match brobust_virtual::run(&scenario, &AtomicBool::new(false)) {
        Ok(outcome) => {
            for flow in &outcome.flows {
                let mbps = flow.received as f64 * 8e3 / scenario.duration as f64;
                println!("{mbps:.3} Mbit/s {flow:?}");
            }
            println!("{:?} {}", outcome.work, outcome.hash);
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}
