//! `brobust-contention` for Python.
use std::sync::Arc;

use brobust_contention as contention;
use contention::{Asked, OffWindow, Schedule, Ticks, Tid};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    brobust._core,
    ContentionError,
    PyException,
    "The contention asked for cannot be had, or cannot be recorded; the text is one sentence with the remedy."
);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ContentionError", module.py().get_type::<ContentionError>())?;
    module.add_class::<Deadline>()?;
    module.add_class::<Burner>()?;
    module.add_class::<Recorder>()?;
    module.add_class::<Recording>()?;
    module.add_class::<Summary>()?;
    module.add_class::<Distribution>()?;
    module.add_function(wrap_pyfunction!(check_deadline, module)?)?;
    module.add_function(wrap_pyfunction!(check_burner, module)?)?;
    module.add_function(wrap_pyfunction!(check_replay, module)?)?;
    module.add_function(wrap_pyfunction!(release_deadline, module)?)?;
    module.add_function(wrap_pyfunction!(unfaithful, module)?)?;
    module.add_function(wrap_pyfunction!(hz, module)?)?;
    module.add_function(wrap_pyfunction!(hrtick_dl, module)?)
}

fn raise(error: contention::ContentionError) -> PyErr {
    ContentionError::new_err(error.to_string())
}

/// Runs what may wait for the kernel or for a thread without holding the GIL.
fn unlocked<T: Send>(py: Python<'_>, call: impl FnOnce() -> contention::Result<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(raise)
}

#[pyfunction]
#[pyo3(signature = (timeslice_ns, share, threads = 1))]
fn check_deadline(timeslice_ns: u64, share: f64, threads: usize) -> PyResult<()> {
    contention::check_deadline(timeslice_ns, share, threads).map_err(raise)
}

#[pyfunction]
#[pyo3(signature = (timeslice_ns, share, start_jitter = 0.0, length_jitter = 0.0))]
fn check_burner(timeslice_ns: u64, share: f64, start_jitter: f64, length_jitter: f64) -> PyResult<()> {
    let schedule = Schedule::with_share(timeslice_ns, share).map_err(raise)?;
    Schedule { start_jitter, length_jitter, ..schedule }.check().map_err(raise)
}

#[pyfunction]
fn check_replay(offtimes: Vec<(u64, u64)>) -> PyResult<()> {
    contention::check_recorded(&windows(&offtimes)).map_err(raise)
}

#[pyfunction]
fn release_deadline(tid: Tid) -> PyResult<()> {
    contention::release_deadline(tid).map_err(raise)
}

/// Of starts and durations.
fn windows(offtimes: &[(u64, u64)]) -> Vec<OffWindow> {
    let window =
        |&(begin_ns, duration_ns): &(u64, u64)| OffWindow { begin_ns, end_ns: begin_ns.saturating_add(duration_ns) };
    offtimes.iter().map(window).collect()
}

#[pyfunction]
fn hz() -> Option<u32> {
    contention::hz()
}

#[pyfunction]
fn hrtick_dl() -> Option<bool> {
    contention::hrtick_dl()
}

#[pyfunction]
fn unfaithful(driver: &str, timeslice_ns: u64, share: f64, summary: &Summary) -> PyResult<Option<String>> {
    let asked = Asked { driver: driver_named(driver)?, timeslice_ns, share };
    Ok(contention::unfaithful(&asked, &summary.0, Ticks::of_this_host()))
}

fn driver_named(name: &str) -> PyResult<contention::Driver> {
    match name {
        "deadline" => Ok(contention::Driver::Deadline),
        "burner" => Ok(contention::Driver::Burner),
        "quota" => Ok(contention::Driver::Quota),
        _ => Err(PyValueError::new_err(format!("driver {name:?} is not deadline, burner or quota"))),
    }
}

#[pyclass(module = "brobust._core")]
struct Deadline {
    tids: Vec<Tid>,
    runtime_ns: u64,
    period_ns: u64,
    held: Option<contention::Deadline>,
}

#[pymethods]
impl Deadline {
    #[new]
    fn new(tids: Vec<Tid>, runtime_ns: u64, period_ns: u64) -> Self {
        Self { tids, runtime_ns, period_ns, held: None }
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.held.is_none() {
            let apply = || contention::Deadline::apply(&self.tids, self.runtime_ns, self.period_ns);
            self.held = Some(unlocked(py, apply)?);
        }
        Ok(())
    }

    fn admit(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.held.is_none() {
            let new = || contention::Deadline::new(&self.tids, self.runtime_ns, self.period_ns);
            self.held = Some(unlocked(py, new)?);
        }
        match &mut self.held {
            Some(held) => unlocked(py, || held.admit()),
            None => Ok(()),
        }
    }

    fn get_going(&mut self, py: Python<'_>) -> PyResult<bool> {
        match &mut self.held {
            Some(held) => unlocked(py, || held.get_going()),
            None => Ok(true),
        }
    }

    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.held.take() {
            Some(mut held) => unlocked(py, move || held.restore()),
            None => Ok(()),
        }
    }

    fn __enter__<'py>(mut this: PyRefMut<'py, Self>, py: Python<'py>) -> PyResult<PyRefMut<'py, Self>> {
        this.start(py)?;
        Ok(this)
    }

    fn __exit__(
        &mut self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py)
    }
}

#[pyclass(module = "brobust._core")]
struct Burner {
    vcpu_tid: Tid,
    cpu: usize,
    when: When,
    burning: Option<contention::Burner>,
}

#[derive(Clone)]
enum When {
    Scheduled(Schedule),
    Recorded { offtimes: Vec<OffWindow>, start_ns: Option<u64> },
}

#[pymethods]
impl Burner {
    #[new]
    #[pyo3(signature = (
        vcpu_tid, cpu, on_ns, off_ns, *, phase_ns = 0, start_jitter = 0.0, length_jitter = 0.0, seed = 0, start_ns = None
    ))]
    #[allow(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        vcpu_tid: Tid,
        cpu: usize,
        on_ns: u64,
        off_ns: u64,
        phase_ns: u64,
        start_jitter: f64,
        length_jitter: f64,
        seed: u64,
        start_ns: Option<u64>,
    ) -> Self {
        let when = When::Scheduled(Schedule { on_ns, off_ns, phase_ns, start_jitter, length_jitter, seed, start_ns });
        Self { vcpu_tid, cpu, when, burning: None }
    }

    #[staticmethod]
    #[pyo3(signature = (vcpu_tid, cpu, offtimes, *, start_ns = None))]
    fn replay(vcpu_tid: Tid, cpu: usize, offtimes: Vec<(u64, u64)>, start_ns: Option<u64>) -> Self {
        Self { vcpu_tid, cpu, when: When::Recorded { offtimes: windows(&offtimes), start_ns }, burning: None }
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.burning.is_none() {
            let start = || match &self.when {
                When::Scheduled(schedule) => contention::Burner::start(self.vcpu_tid, self.cpu, *schedule),
                When::Recorded { offtimes, start_ns } => {
                    let start_ns = start_ns.unwrap_or_else(contention::clock::now);
                    contention::Burner::replay(self.vcpu_tid, self.cpu, offtimes, start_ns)
                }
            };
            self.burning = Some(unlocked(py, start)?);
        }
        Ok(())
    }

    fn stop(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.burning.take() {
            Some(mut burning) => unlocked(py, move || burning.stop()),
            None => Ok(()),
        }
    }

    fn __enter__<'py>(mut this: PyRefMut<'py, Self>, py: Python<'py>) -> PyResult<PyRefMut<'py, Self>> {
        this.start(py)?;
        Ok(this)
    }

    fn __exit__(
        &mut self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py)
    }
}

#[pyclass(module = "brobust._core")]
struct Recorder {
    tids: Vec<Tid>,
    unprivileged: bool,
    recording: Option<contention::Recorder>,
    recordings: Vec<contention::Recording>,
}

#[pymethods]
impl Recorder {
    #[new]
    #[pyo3(signature = (tids, *, unprivileged = false))]
    fn new(tids: Vec<Tid>, unprivileged: bool) -> Self {
        Self { tids, unprivileged, recording: None, recordings: Vec::new() }
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.recording.is_none() {
            let start = || match self.unprivileged {
                true => contention::Recorder::start_unprivileged(&self.tids),
                false => contention::Recorder::start(&self.tids),
            };
            self.recording = Some(unlocked(py, start)?);
        }
        Ok(())
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<Vec<Recording>> {
        let Some(recording) = &self.recording else { return Ok(Vec::new()) };
        let parts = unlocked(py, || recording.take())?;
        self.keep(&parts);
        Ok(parts.into_iter().map(Recording::from).collect())
    }

    fn stop(&mut self, py: Python<'_>) -> PyResult<Vec<Recording>> {
        self.take(py)?;
        let recording = self.recording.take();
        py.detach(|| drop(recording));
        Ok(self.recordings())
    }

    #[getter]
    fn recordings(&self) -> Vec<Recording> {
        self.recordings.iter().cloned().map(Recording::from).collect()
    }

    fn __enter__<'py>(mut this: PyRefMut<'py, Self>, py: Python<'py>) -> PyResult<PyRefMut<'py, Self>> {
        this.start(py)?;
        Ok(this)
    }

    fn __exit__(
        &mut self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.stop(py).map(drop)
    }
}

impl Recorder {
    /// The whole recording is what its parts come to.
    fn keep(&mut self, parts: &[contention::Recording]) {
        if self.recordings.is_empty() {
            self.recordings = parts.to_vec();
            return;
        }
        for (whole, part) in self.recordings.iter_mut().zip(parts) {
            whole.append(part);
        }
    }
}

/// Shared, because a recording can be long and Python gets a new object for each look at it.
#[pyclass(module = "brobust._core", frozen)]
#[derive(Clone)]
struct Recording(Arc<contention::Recording>);

impl From<contention::Recording> for Recording {
    fn from(recording: contention::Recording) -> Self {
        Self(Arc::new(recording))
    }
}

#[pymethods]
impl Recording {
    #[getter]
    fn tid(&self) -> Tid {
        self.0.tid
    }

    #[getter]
    fn start_ns(&self) -> u64 {
        self.0.start_ns
    }

    #[getter]
    fn end_ns(&self) -> u64 {
        self.0.end_ns
    }

    #[getter]
    fn lost_events(&self) -> u64 {
        self.0.lost
    }

    #[getter]
    fn intervals(&self) -> Vec<(u64, u64, &'static str)> {
        let intervals = self.0.intervals.iter();
        intervals.map(|i| (i.start_ns, i.duration_ns, i.state.name())).collect()
    }

    #[pyo3(signature = (asked_off_ns = None))]
    fn summary(&self, asked_off_ns: Option<u64>) -> Summary {
        Summary(self.0.summary(asked_off_ns))
    }
}

#[pyclass(module = "brobust._core", frozen)]
struct Summary(contention::Summary);

#[pymethods]
impl Summary {
    #[getter]
    fn effective_share(&self) -> f64 {
        self.0.effective_share
    }

    #[getter]
    fn effective_timeslice_ns(&self) -> Option<f64> {
        self.0.effective_timeslice_ns()
    }

    #[getter]
    fn effective_offtime_ns(&self) -> Option<f64> {
        self.0.effective_offtime_ns()
    }

    #[getter]
    fn running_share(&self) -> f64 {
        self.0.running_share
    }

    #[getter]
    fn asleep_share(&self) -> f64 {
        self.0.asleep_share
    }

    #[getter]
    fn waiting_share(&self) -> f64 {
        self.0.waiting_share
    }

    #[getter]
    fn known_ns(&self) -> u64 {
        self.0.known_ns
    }

    #[getter]
    fn unknown_ns(&self) -> u64 {
        self.0.unknown_ns
    }

    #[getter]
    fn windows_ns(&self) -> Vec<u64> {
        self.0.windows_ns.clone()
    }

    #[getter]
    fn offtimes_ns(&self) -> Vec<u64> {
        self.0.offtimes_ns.clone()
    }

    #[getter]
    fn window_starts_ns(&self) -> Vec<u64> {
        self.0.window_starts_ns.clone()
    }

    #[getter]
    fn offtime_starts_ns(&self) -> Vec<u64> {
        self.0.offtime_starts_ns.clone()
    }

    #[getter]
    fn window(&self) -> Option<Distribution> {
        self.0.window.map(Distribution)
    }

    #[getter]
    fn offtime(&self) -> Option<Distribution> {
        self.0.offtime.map(Distribution)
    }

    #[getter]
    fn noise_count(&self) -> u64 {
        self.0.noise_count
    }

    #[getter]
    fn noise_ns(&self) -> u64 {
        self.0.noise_ns
    }

    #[getter]
    fn lost_events(&self) -> u64 {
        self.0.lost_events
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

#[pyclass(module = "brobust._core", frozen)]
struct Distribution(contention::Distribution);

#[pymethods]
impl Distribution {
    #[getter]
    fn count(&self) -> usize {
        self.0.count
    }

    #[getter]
    fn mean_ns(&self) -> f64 {
        self.0.mean_ns
    }

    #[getter]
    fn trimmed_mean_ns(&self) -> f64 {
        self.0.trimmed_mean_ns
    }

    #[getter]
    fn median_ns(&self) -> f64 {
        self.0.median_ns
    }

    #[getter]
    fn p10_ns(&self) -> f64 {
        self.0.p10_ns
    }

    #[getter]
    fn p90_ns(&self) -> f64 {
        self.0.p90_ns
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}
