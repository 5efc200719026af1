//! Refusals for Python.
use brobust_host::{Kind, Refusal};
use pyo3::prelude::*;

/// Returns the exception of python/brobust/errors.py for a refusal.
pub fn raise(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let name = match refusal.kind {
        Kind::BadInput => "BadInput",
        Kind::MissingSupport => "MissingSupport",
        Kind::Failed | Kind::NotWritten => "RunFailed",
    };
    let class = py.import("brobust.errors").and_then(|errors| errors.getattr(name));
    class.and_then(|class| class.call1((refusal.text.as_str(),))).map_or_else(|error| error, PyErr::from_value)
}
