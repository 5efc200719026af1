//! The controls of cc/ by name (brobust-cc).

use brobust_cc::Control;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(control_names, module)?)?;
    module.add_function(wrap_pyfunction!(control_params, module)?)?;
    module.add_function(wrap_pyfunction!(control_settings, module)?)
}

fn find(name: &str) -> PyResult<Control> {
    Control::find(name).ok_or_else(|| PyValueError::new_err(format!("{name} is not a control that takes parameters")))
}

/// Name, value without a setting, least, most, help.
type Param = (&'static str, String, String, String, &'static str);

#[pyfunction]
fn control_params(name: &str) -> PyResult<Vec<Param>> {
    let shown = find(name)?.params().into_iter().map(|param| {
        let [standard, least, most] = [param.standard, param.least, param.most].map(|value| param.show(value));
        (param.name, standard, least, most, param.help)
    });
    Ok(shown.collect())
}

#[pyfunction]
fn control_settings(name: &str, given: Vec<(String, String)>) -> PyResult<Vec<(&'static str, u32)>> {
    find(name)?.settings(&given).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
fn control_names() -> Vec<&'static str> {
    Control::all().iter().map(|control| control.name()).collect()
}
