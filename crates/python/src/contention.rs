//! `brobust-contention` for Python.
use brobust_contention as contention;
use brobust_host::without_numbers;
use brobust_timeline::{Schedule, Slices};
use contention::{ContentionRequest, Promise, Target, Ticks, Tid};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

use crate::refusals;

create_exception!(
    brobust._core,
    ContentionError,
    PyException,
    "This contention is not possible here, or cannot be recorded; the text is one sentence with the remedy."
);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("ContentionError", module.py().get_type::<ContentionError>())?;
    module.add("TOLERANCE", contention::TOLERANCE)?;
    module.add_class::<Held>()?;
    module.add_class::<Recorder>()?;
    module.add_class::<Summary>()?;
    module.add_function(wrap_pyfunction!(check_contention, module)?)?;
    module.add_function(wrap_pyfunction!(try_deadline, module)?)?;
    module.add_function(wrap_pyfunction!(deviation, module)?)?;
    module.add_function(wrap_pyfunction!(hz, module)?)?;
    module.add_function(wrap_pyfunction!(hrtick_dl, module)?)
}

/// Runs what may wait for the kernel or for a thread without holding the GIL.
pub fn unlocked<T: Send>(py: Python<'_>, call: impl FnOnce() -> contention::Result<T> + Send) -> PyResult<T> {
    py.detach(call).map_err(|error| match error {
        contention::ContentionError::Refused(refusal) => refusals::raise(py, &refusal),
        error => ContentionError::new_err(without_numbers(&error.to_string())),
    })
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
struct Recorder(Option<contention::Recorder>);

#[pymethods]
impl Recorder {
    #[new]
    fn new(py: Python<'_>, tids: Vec<Tid>) -> PyResult<Self> {
        unlocked(py, || contention::Recorder::start(&tids)).map(Some).map(Self)
    }

    fn stop(&mut self, py: Python<'_>, requested_off_ns: Vec<Option<u64>>) -> PyResult<Vec<Summary>> {
        let stopped = self.0.take().map_or(Ok(Vec::new()), |recorder| unlocked(py, || recorder.stop()))?;
        let each = stopped.iter().zip(requested_off_ns);
        Ok(each.map(|(recording, off_ns)| Summary(recording.summary(off_ns))).collect())
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
