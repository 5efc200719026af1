//! `brobust._core`: the Rust crates for Python. This crate only converts arguments and results.
//! python/brobust/_core.pyi says what each name means.
use brobust_watch::Cause;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

mod contention;
mod controls;
mod host;
mod refusals;
mod virtual_time;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    contention::register(module)?;
    controls::register(module)?;
    host::register(module)?;
    virtual_time::register(module)?;
    module.add("CAUSES", Cause::ALL.map(|cause| (cause.name(), cause.meaning())).into_py_dict(module.py())?)
}
