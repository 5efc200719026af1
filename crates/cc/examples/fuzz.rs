//! Calls every control at random, with traps for undefined behaviour in the C: `cargo run -p brobust-cc --example fuzz
//! [CALLS] [SEED]` in a debug build. Prints the number of calls of each control, and the calls per second.

use std::time::Instant;

use brobust_cc::{fuzz, Control};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("CALLS and SEED are numbers"));
    let calls = arguments.next().unwrap_or(10_000_000);
    let seed = arguments.next().unwrap_or(1);
    let each = calls.div_ceil(Control::all().len() as u64);
    let begun = Instant::now();
    for control in Control::all() {
        fuzz::run(*control, each, seed);
        println!("{}: {each} calls kept every promise", control.name());
    }
    let total = each * Control::all().len() as u64;
    println!("{total} calls, {:.0} a second", total as f64 / begun.elapsed().as_secs_f64());
}
