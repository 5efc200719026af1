//! Follows the host's TCP sockets (brobust-watch) for Python.

use std::sync::Mutex;
use std::time::Duration;

use brobust_ccload as ccload;
use brobust_sockdiag::Filter;
use brobust_watch::{Cause, Error, Namespaces, Settings, SweepReport, THRESHOLDS};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyTuple};

create_exception!(_core, WatchError, PyException);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CAUSES", PyTuple::new(py, Cause::ALL.map(Cause::name))?)?;
    module.add("CAUSE_THRESHOLDS", THRESHOLDS.into_py_dict(py)?)?;
    module.add("WatchError", py.get_type::<WatchError>())?;
    module.add_class::<Watch>()
}

fn refused(error: Error) -> PyErr {
    WatchError::new_err(error.to_string())
}

#[pyclass]
struct Watch(Mutex<brobust_watch::Watch>);

#[pymethods]
impl Watch {
    #[new]
    #[pyo3(signature = (window_s, netns=None, local_port=None, remote_port=None))]
    fn new(window_s: f64, netns: Option<&str>, local_port: Option<u16>, remote_port: Option<u16>) -> PyResult<Watch> {
        let namespaces = match netns {
            None => Namespaces::Own,
            Some("all") => Namespaces::All,
            Some(name) => Namespaces::Named(name.to_owned()),
        };
        let filter = Filter { ipv6: None, local_port, remote_port };
        let settings = Settings { namespaces, filter, window: Duration::from_secs_f64(window_s) };
        Ok(Watch(Mutex::new(brobust_watch::Watch::new(settings).map_err(refused)?)))
    }

    /// Reads all sockets once, and returns the report as JSON.
    fn sweep(&self, py: Python<'_>, top: usize) -> PyResult<String> {
        let report = py.detach(|| {
            let mut watch = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let sweep = watch.sweep(ccload::state_maps());
            SweepReport::new(&sweep, &watch.top(top))
        });
        serde_json::to_string(&report).map_err(|error| WatchError::new_err(error.to_string()))
    }
}
