//! `brobust-contention` for Python.
use std::sync::Arc;

use brobust_contention as contention;
use brobust_timeline::{Schedule, Slices, TimeSlice, TimeSlices, NEVER};
use contention::{ContentionRequest, Promise, Target, Ticks, Tid};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

use crate::host;

create_exception!(
    brobust._core,
    ContentionError,
    PyException,
    "This contention is not possible here, or cannot be recorded; the text is one sentence with the remedy."
);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ContentionError", module.py().get_type::<ContentionError>())?;
    module.add("NOISE_NS", contention::NOISE_NS)?;
    module.add("TOLERANCE", contention::TOLERANCE)?;
    module.add_class::<Held>()?;
    module.add_class::<Recorder>()?;
    module.add_class::<Recording>()?;
    module.add_class::<Summary>()?;
    module.add_function(wrap_pyfunction!(check_contention, module)?)?;
    module.add_function(wrap_pyfunction!(try_deadline, module)?)?;
    module.add_function(wrap_pyfunction!(deviation, module)?)?;
    module.add_function(wrap_pyfunction!(hz, module)?)?;
    module.add_function(wrap_pyfunction!(when_it_runs, module)?)?;
    module.add_function(wrap_pyfunction!(hrtick_dl, module)?)
}

fn raise(py: Python<'_>, error: contention::ContentionError) -> PyErr {
    match error {
        contention::ContentionError::Refused(refusal) => host::raise(py, &refusal),
        error => ContentionError::new_err(error.to_string()),
    }
}

/// Runs what may wait for the kernel or for a thread without holding the GIL.
pub fn unlocked<T: Send>(py: Python<'_>, call: impl FnOnce() -> contention::Result<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(|error| raise(py, error))
}

pub fn schedule_of(json: &str) -> PyResult<Schedule> {
    serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pyfunction]
fn check_contention(py: Python<'_>, driver: &str, schedule: &str, threads: Vec<Tid>, count: usize) -> PyResult<()> {
    let schedule = schedule_of(schedule)?;
    unlocked(py, || contention::held::check(driver, &schedule, &threads, count))
}

/// Puts a thread under SCHED_DEADLINE for a moment.
#[pyfunction]
fn try_deadline(py: Python<'_>, tid: Tid) -> PyResult<()> {
    let schedule = Schedule::Slices(Slices::plain(10_000_000, 40_000_000));
    unlocked(py, || {
        let mut held = contention::drivers::prepare("deadline", vec![Target { tid, cpu: None, schedule }], None)?;
        held.start()?;
        held.stop()
    })
}

/// Returns when a thread runs that sleeps and then wants so much CPU, again and again: begin and end, ns. Each sleep
/// begins when the work before it is done. For comparisons of schedules with what hosts do.
#[pyfunction]
fn when_it_runs(schedule: &str, sleeps_and_work_ns: Vec<(u64, u64)>) -> PyResult<Vec<(u64, u64)>> {
    let mut slices = TimeSlices::new(&schedule_of(schedule)?, 0, NEVER);
    let (mut now, mut runs) = (0, Vec::new());
    for (sleep, mut work) in sleeps_and_work_ns {
        now += sleep;
        while work > 0 {
            let begin = slices.first_from(now);
            slices.wake_up(begin, now);
            let mut current = [TimeSlice { begin, end: NEVER }];
            slices.write(begin, &mut current);
            now = begin.saturating_add(work).min(current[0].end);
            work -= now - begin;
            runs.push((begin, now));
        }
    }
    Ok(runs)
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
fn deviation(promise: &str, timeslice_ns: u64, share: f64, summary: &Summary) -> PyResult<Option<String>> {
    let unknown = || PyValueError::new_err(format!("no driver promises {promise:?}"));
    let request = ContentionRequest { promise: Promise::named(promise).ok_or_else(unknown)?, timeslice_ns, share };
    Ok(contention::deviation(&request, &summary.0, Ticks::of_this_host()))
}

/// Threads under contention; `Session.contend` begins it.
#[pyclass(module = "brobust._core")]
pub struct Held(pub Option<contention::Held>);

#[pyclass(module = "brobust._core")]
struct Recorder {
    tids: Vec<Tid>,
    recording: Option<contention::Recorder>,
    recordings: Vec<Recording>,
}

#[pymethods]
impl Recorder {
    #[new]
    fn new(tids: Vec<Tid>) -> Self {
        Self { tids, recording: None, recordings: Vec::new() }
    }

    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.recording.is_none() {
            self.recording = Some(unlocked(py, || contention::Recorder::start(&self.tids))?);
        }
        Ok(())
    }

    fn stop(&mut self, py: Python<'_>) -> PyResult<Vec<Recording>> {
        if let Some(recording) = self.recording.take() {
            let stopped = unlocked(py, || recording.stop())?;
            self.recordings = stopped.into_iter().map(Recording::from).collect();
        }
        Ok(self.recordings())
    }

    #[getter]
    fn recordings(&self) -> Vec<Recording> {
        self.recordings.clone()
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

/// Shared, because a recording can be long and each access from Python makes a new object of it.
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
    fn intervals(&self) -> Vec<(u64, u64, &'static str)> {
        let intervals = self.0.intervals.iter();
        intervals.map(|i| (i.start_ns, i.duration_ns, i.state.name())).collect()
    }

    #[pyo3(signature = (requested_off_ns = None))]
    fn summary(&self, requested_off_ns: Option<u64>) -> Summary {
        Summary(self.0.summary(requested_off_ns))
    }
}

/// Fields of the struct that a class wraps, for Python to read.
macro_rules! readable {
    ($class:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[pymethods]
        impl $class {
            $(#[getter]
            fn $field(&self) -> $type {
                self.0.$field.clone()
            })*

            fn __repr__(&self) -> String {
                format!("{:?}", self.0)
            }
        }
    };
}

/// Not `#[pyclass(get_all)]` on the struct itself: the crate with the drivers would then need Python to link its tests.
#[pyclass(module = "brobust._core", frozen)]
struct Summary(contention::Summary);

readable!(Summary {
    effective_share: f64,
    effective_timeslice_ns: Option<f64>,
    effective_offtime_ns: Option<f64>,
    asleep_share: f64,
    waiting_share: f64,
    timeslices_ns: Vec<u64>,
    offtimes_ns: Vec<u64>,
    timeslice_starts_ns: Vec<u64>,
    offtime_starts_ns: Vec<u64>,
    lost_events: u64,
});
