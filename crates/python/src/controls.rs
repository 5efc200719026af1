//! The controls of cc/ by name (brobust-cc).

use brobust_cc::Control;
use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(control_names, module)?)
}

#[pyfunction]
fn control_names() -> Vec<&'static str> {
    Control::all().iter().map(|control| control.name()).collect()
}
