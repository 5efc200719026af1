//! `brobust-host-changes` for Python: the session of this process.
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use brobust_contention::{Target, Tid};
use brobust_host as host;
use host::Runtime;
use pyo3::prelude::*;

use crate::contention::{self, schedule_of, Held};
use crate::refusals::raise;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Session>()
}

/// Runs what may wait for a lock or for another process without holding the GIL.
fn unlocked<T: Send>(py: Python<'_>, call: impl FnOnce() -> host::Result<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(|refusal| raise(py, &refusal))
}

/// Several threads of Python may use it.
#[pyclass(module = "brobust._core", subclass, frozen)]
struct Session(Mutex<host::Session>);

impl Session {
    fn locked<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut host::Session) -> host::Result<T> + Send,
    ) -> PyResult<T> {
        unlocked(py, || call(&mut self.mine()))
    }

    fn mine(&self) -> MutexGuard<'_, host::Session> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Session {
    #[new]
    fn new(py: Python<'_>, program: PathBuf, beside_others: bool) -> PyResult<Self> {
        let start = || host::Session::start(Runtime::of_environment(), &program, beside_others, None);
        unlocked(py, start).map(Mutex::new).map(Self)
    }

    #[getter]
    fn directory(&self, py: Python<'_>) -> PyResult<PathBuf> {
        self.locked(py, |session| Ok(session.directory.clone()))
    }

    #[getter]
    fn namespace(&self, py: Python<'_>) -> PyResult<String> {
        self.locked(py, |session| Ok(session.namespace().to_owned()))
    }

    fn record_namespace(&self, py: Python<'_>) -> PyResult<String> {
        self.locked(py, |session| session.record_namespace())
    }

    fn record_process(&self, py: Python<'_>, pid: i32) -> PyResult<()> {
        self.locked(py, |session| session.record_process(pid))
    }

    /// Forced, since a run's plan has left CPUs to others.
    fn hold_cpus(&self, py: Python<'_>, cpus: Vec<usize>) -> PyResult<()> {
        self.locked(py, |session| session.hold_cpus(&cpus, 0, true))
    }

    /// Puts threads under contention, each on its CPU by its schedule, until `release`.
    fn contend(
        &self,
        py: Python<'_>,
        driver: &str,
        threads: Vec<(Tid, Option<usize>, String)>,
        begin_ns: u64,
        nice: i32,
    ) -> PyResult<Held> {
        let target = |(tid, cpu, json): (_, _, String)| Ok(Target { tid, cpu, schedule: schedule_of(&json)? });
        let targets: Vec<Target> = threads.into_iter().map(target).collect::<PyResult<_>>()?;
        let start = || brobust_contention::Held::start(driver, targets, begin_ns, nice, &mut self.mine());
        contention::unlocked(py, start).map(Some).map(Held)
    }

    /// Ends it; a second call does nothing.
    fn release(&self, py: Python<'_>, held: &mut Held) -> PyResult<()> {
        match held.0.take() {
            Some(held) => contention::unlocked(py, || held.stop(&mut self.mine())),
            None => Ok(()),
        }
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.locked(py, |session| session.end())
    }
}
