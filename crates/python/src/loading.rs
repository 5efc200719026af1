//! Loads congestion controls into the running kernel (brobust-ccload), and counts the sockets that use each
//! (brobust-sockdiag), for Python.

use std::collections::BTreeMap;

use brobust_ccload::{self as ccload, Refusal, Settings};
use brobust_sockdiag::{Filter, SockDiag};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(_core, LoadRefused, PyException);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LoadRefused", module.py().get_type::<LoadRefused>())?;
    module.add_function(wrap_pyfunction!(loadable, module)?)?;
    module.add_function(wrap_pyfunction!(check_load, module)?)?;
    module.add_function(wrap_pyfunction!(load, module)?)?;
    module.add_function(wrap_pyfunction!(unload, module)?)?;
    module.add_function(wrap_pyfunction!(programs, module)?)?;
    module.add_function(wrap_pyfunction!(sockets_by_control, module)?)
}

fn refused(refusal: Refusal) -> PyErr {
    LoadRefused::new_err(refusal.to_string())
}

#[pyfunction]
fn loadable() -> Vec<(String, bool, Option<String>)> {
    let all = ccload::list().into_iter();
    all.map(|control| (control.name, control.loaded, control.pin.map(|pin| pin.display().to_string()))).collect()
}

#[pyfunction]
fn check_load(name: &str, params: Vec<(String, u32)>) -> PyResult<()> {
    ccload::check(name, &Settings { params, ..Settings::default() }).map_err(refused)
}

#[pyfunction]
fn load(py: Python<'_>, name: &str, params: Vec<(String, u32)>) -> PyResult<()> {
    let (pin, settings) = (ccload::pin_path(name), Settings { params, ..Settings::default() });
    py.detach(|| ccload::load(name, &settings, Some(&pin))).map(drop).map_err(refused)
}

#[pyfunction]
fn unload(py: Python<'_>, name: &str) -> PyResult<()> {
    py.detach(|| ccload::unload(name)).map_err(refused)
}

/// Callback, instructions that the verifier processed, instructions, calls, time of the calls in ns.
type Program = (String, u32, u32, u64, u64);

#[pyfunction]
fn programs(py: Python<'_>, name: &str) -> PyResult<Vec<Program>> {
    let programs = py.detach(|| ccload::programs(name)).map_err(refused)?;
    let show = |p: ccload::Program| (p.callback, p.verified_instructions, p.instructions, p.runs, p.run_time_ns);
    Ok(programs.into_iter().map(show).collect())
}

#[pyfunction]
fn sockets_by_control(py: Python<'_>) -> PyResult<BTreeMap<String, usize>> {
    let sockets = py.detach(|| SockDiag::open()?.dump(&Filter::default()));
    let sockets = sockets.map_err(|error| LoadRefused::new_err(error.to_string()))?;
    let mut found = BTreeMap::new();
    for control in sockets.into_iter().filter_map(|socket| socket.congestion_control) {
        *found.entry(control).or_insert(0) += 1;
    }
    Ok(found)
}
