//! `brobust._core`: the Python face of the Rust crates. Thin on purpose: argument conversion only. What each name means
//! is said in python/brobust/_core.pyi.
use pyo3::prelude::*;

mod contention;

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    contention::register(module)
}
