//! `cc`: loads and removes congestion controls, and says the result as one line of JSON.

use anyhow::{Context, Result};
use brobust_ccload as ccload;
use clap::Subcommand;
use serde_json::{json, Value};

#[derive(Subcommand)]
pub enum Command {
    /// Load a control; it stays until it is unloaded
    Load {
        name: String,
        /// Set a parameter: NAME=NUMBER, whole name, the number as the control keeps it; may be repeated
        #[arg(long, value_parser = setting)]
        param: Vec<(String, u32)>,
        /// Show the last lines of the verifier's log if the kernel refuses the control
        #[arg(short, long)]
        verbose: bool,
    },
    /// Show what a shadow control has found so far
    Shadow { name: String },
    /// Remove a control that was loaded
    Unload { name: String },
    /// Show the controls that brobust brings, and all that the kernel offers now
    List,
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
        Command::Load { name, param, verbose } => {
            let pin = ccload::pin_path(&name);
            ccload::load(&name, &param, Some(&pin)).inspect_err(|refusal| {
                if verbose {
                    refusal.log().iter().for_each(|line| eprintln!("{line}"));
                }
            })?;
            Ok(json!({"loaded": name, "pin": pin}))
        }
        Command::Shadow { name } => Ok(serde_json::to_value(ccload::shadow(&name)?)?),
        Command::Unload { name } => {
            ccload::unload(&name)?;
            Ok(json!({"unloaded": name}))
        }
        Command::List => Ok(json!({"controls": ccload::list(), "available": ccload::available()})),
    }
}
