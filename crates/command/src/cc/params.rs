//! `brobust cc params`: the parameters of a control.

use brobust_cc::Offered;
use clap::Args;
use serde::Serialize;

use super::{not_known, CONTROL};
use crate::output::{self, Align};
use crate::Outcome;

#[derive(Args)]
pub struct Options {
    /// The congestion control, such as bbr_steady
    #[arg(value_name = CONTROL)]
    name: String,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    value: String,
    min: String,
    max: String,
    help: &'static str,
}

pub fn run(options: &Options) -> Outcome {
    let offered = Offered::find(&options.name).map_err(|error| not_known(&options.name, || error.to_string()))?;
    let rows = offered.params().into_iter().map(|param| {
        let [value, min, max] = [param.default, param.min, param.max].map(|value| param.show(value));
        Row { name: param.name, value, min, max, help: param.help }
    });
    if options.json {
        return rows.into_iter().try_for_each(|row| output::record(&row));
    }
    let cells = rows.map(|row| [row.name.into(), row.value, row.min, row.max, row.help.into()]);
    output::table(["parameter", "default", "min", "max", "meaning"], [Align::Left; 5], cells)
}
