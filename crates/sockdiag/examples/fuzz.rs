//! Reads damaged answers of the kernel: `cargo run --release -p brobust-sockdiag --example fuzz [INPUTS] [SEED]`.
//! Prints what became of them, and how many were read per second.

use std::time::Instant;

use brobust_sockdiag::fuzz;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("INPUTS and SEED are numbers"));
    let inputs = arguments.next().unwrap_or(10_000_000);
    let seed = arguments.next().unwrap_or(1);
    let begun = Instant::now();
    let fuzz::Outcome { inputs, sockets, refused, cut_off } = fuzz::run(inputs, seed);
    println!(
        "{inputs} datagrams kept every promise: {sockets} sockets read, {refused} messages refused, {cut_off} cut off"
    );
    println!("{:.0} a second", inputs as f64 / begun.elapsed().as_secs_f64());
}
