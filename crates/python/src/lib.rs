//! `brobust._core`: the Python face of the Rust crates. Thin on purpose: argument conversion only. What each name means
//! is said in python/brobust/_core.pyi.
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
