//! `brobust._core`: the Rust crates for Python. This crate only converts arguments and results.
//! python/brobust/_core.pyi says what each name means.
use pyo3::prelude::*;

mod contention;
mod controls;
mod loading;
mod virtual_time;
mod watching;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    contention::register(module)?;
    controls::register(module)?;
    loading::register(module)?;
    virtual_time::register(module)?;
    watching::register(module)
}
