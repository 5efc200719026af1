//! `brobust cc programs`: the BPF programs of a loaded control, and what they cost.

use brobust_ccload as ccload;
use clap::Args;

use super::{not_known, not_privileged, refused, CONTROL};
use crate::output::{self, Align};
use crate::{files, Outcome};

#[derive(Args)]
pub struct Options {
    /// A congestion control that is loaded
    #[arg(value_name = CONTROL)]
    name: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(options: &Options) -> Outcome {
    if ccload::names().any(|known| known == options.name) {
        files::allow_open()?; // else it would be a control of which nobody knows
    }
    let programs = ccload::programs(&options.name).map_err(|refusal| match refusal {
        ccload::Refusal::Privilege => not_privileged("reading the programs of a congestion control"),
        ccload::Refusal::Unknown { .. } => not_known(&options.name, || refusal.to_string()),
        refusal => refused(refusal),
    })?;
    if options.json {
        return programs.iter().try_for_each(output::record);
    }
    let cells = programs.iter().map(|program| {
        let each = match program.runs {
            0 => String::new(),
            runs => format!("{:.0}", program.run_time_ns as f64 / runs as f64),
        };
        let counts = [program.verified_instructions.into(), program.instructions.into(), program.runs];
        let [verified, instructions, runs] = counts.map(with_commas);
        [program.callback.clone(), verified, instructions, runs, each]
    });
    let right = Align::Right;
    let headers = ["callback", "verified", "instructions", "runs", "ns each"];
    output::table(headers, [Align::Left, right, right, right, right], cells)?;
    if programs.iter().all(|program| program.runs == 0) {
        output::line("for the number of runs and their time: sysctl kernel.bpf_stats_enabled=1, then send traffic")?;
    }
    Ok(())
}

/// Writes 1234567 as 1,234,567.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(super::with_commas), ["0", "999", "1,000", "1,234,567"]);
    }
}
