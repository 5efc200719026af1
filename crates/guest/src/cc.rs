//! `cc`: loads and removes congestion controls, and prints the result as one line of JSON.

use anyhow::{Context, Result};
use brobust_cc::replay::{Record, Replay};
use brobust_cc::Control;
use brobust_ccload as ccload;
use clap::Subcommand;
use serde_json::{json, Value};

#[derive(Subcommand)]
pub enum Command {
    /// Load a control; it stays until it is unloaded
    Load {
        name: String,
        /// Set a parameter: NAME=NUMBER, with its whole name and the number that the control keeps; may be repeated
        #[arg(long, value_parser = setting)]
        param: Vec<(String, u32)>,
        /// Record what it is given and what it decides at every call, for `replay`
        #[arg(long)]
        record: bool,
        /// Show the last lines of the verifier's log if the kernel refuses the control
        #[arg(short, long)]
        verbose: bool,
    },
    /// Show what a shadow control has found so far
    Shadow { name: String },
    /// Make the recorded calls of a control again with the C compiled for this machine, and compare
    Replay {
        name: String,
        /// The parameters with which it was loaded
        #[arg(long, value_parser = setting)]
        param: Vec<(String, u32)>,
    },
    /// Show the programs of a loaded control: instructions, number of calls and their time while bpf_stats_enabled was
    /// on
    Programs { name: String },
    /// Remove a control that was loaded
    Unload { name: String },
}

pub fn run(command: Command) -> Result<()> {
    println!("{}", answer(command)?);
    Ok(())
}

fn setting(text: &str) -> Result<(String, u32)> {
    let (name, value) = text.split_once('=').context("give NAME=NUMBER")?;
    Ok((name.to_owned(), value.parse()?))
}

fn answer(command: Command) -> Result<Value> {
    match command {
        Command::Load { name, param, record, verbose } => {
            let settings = ccload::Settings { params: param, records_calls: record };
            ccload::load(&name, &settings).inspect_err(|refusal| {
                if verbose {
                    refusal.log().iter().for_each(|line| eprintln!("{line}"));
                }
            })?;
            Ok(json!({"loaded": name, "pin": ccload::pin_path(&name)}))
        }
        Command::Shadow { name } => Ok(serde_json::to_value(ccload::shadow(&name)?)?),
        Command::Replay { name, param } => replay(&name, &param),
        Command::Programs { name } => Ok(serde_json::to_value(ccload::programs(&name)?)?),
        Command::Unload { name } => {
            ccload::unload(&name)?;
            Ok(json!({"unloaded": name}))
        }
    }
}

fn replay(name: &str, params: &[(String, u32)]) -> Result<Value> {
    let control = Control::find(name).with_context(|| format!("{name} is not one of cc/controls"))?;
    let settings: Vec<(&str, u32)> = params.iter().map(|(param, value)| (param.as_str(), *value)).collect();
    // SAFETY: nothing else in this process uses a control.
    unsafe { control.set(&settings) };
    let mut replay = Replay::new(control);
    ccload::recorded_calls(name, |bytes| {
        if let Some(record) = Record::read(bytes) {
            replay.feed(&record);
        }
    })?;
    Ok(serde_json::to_value(replay.outcome())?)
}
