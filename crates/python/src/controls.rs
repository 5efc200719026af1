//! The controls of cc/ by name (brobust-cc) for Python.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Mutex;

use brobust_cc::replay::{Record, Replay};
use brobust_cc::{Control, Offered, CA_STATES, MODES};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("MODES", PyTuple::new(module.py(), MODES)?)?;
    module.add("CA_STATES", PyTuple::new(module.py(), CA_STATES)?)?;
    module.add_function(wrap_pyfunction!(control_names, module)?)?;
    module.add_function(wrap_pyfunction!(controls, module)?)?;
    module.add_function(wrap_pyfunction!(control_settings, module)?)?;
    module.add_function(wrap_pyfunction!(replay_calls, module)?)
}

#[pyfunction]
fn control_settings(name: &str, given: Vec<(String, String)>) -> PyResult<Vec<(&'static str, u32)>> {
    let settings = Offered::find(name).and_then(|offered| offered.settings(&given));
    settings.map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
fn control_names() -> Vec<&'static str> {
    Control::all().iter().map(|control| control.name()).collect()
}

/// Name, and the kernel's control that it wraps.
#[pyfunction]
fn controls() -> Vec<(&'static str, Option<&'static str>)> {
    Offered::all().map(|offered| (offered.name, offered.wraps)).collect()
}

/// Held by the replay that runs: parameters are set for the whole process, so there is one at a time.
static REPLAYING: Mutex<()> = Mutex::new(());

/// Makes the calls in these recordings again, with the parameters that the control had. Returns the sum over all
/// recordings as JSON (`brobust_cc::replay::Outcome`).
#[pyfunction]
fn replay_calls(py: Python<'_>, name: &str, settings: Vec<(String, u32)>, recordings: Vec<String>) -> PyResult<String> {
    let unknown = || PyValueError::new_err(format!("{name} is not one of cc/controls"));
    let control = Control::find(name).ok_or_else(unknown)?;
    py.detach(|| {
        let _guard = REPLAYING.lock();
        let settings: Vec<(&str, u32)> = settings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        // SAFETY: this is the only place of the process that uses a control, and it does so under the lock.
        unsafe { control.set(&settings) };
        let mut replay = Replay::new(control);
        for recording in &recordings {
            feed(&mut replay, recording)?;
        }
        serde_json::to_string(replay.outcome()).map_err(|error| PyValueError::new_err(error.to_string()))
    })
}

fn feed(replay: &mut Replay, recording: &str) -> io::Result<()> {
    let mut file = BufReader::new(File::open(recording)?);
    let mut bytes = [0; Record::BYTES];
    loop {
        match file.read_exact(&mut bytes) {
            Ok(()) => {}
            // The last record is cut off where a kernel was stopped while it was writing.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        if let Some(record) = Record::read(&bytes) {
            replay.feed(&record);
        }
    }
}
