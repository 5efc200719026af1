//! Runs in virtual time (crates/virtual) for Python.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use brobust_host::without_numbers;
use brobust_virtual::{Column, Error, FlowResult, Outcome, ProgramResult, Scenario, Table};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use syscalls::x86_64::Sysno;

create_exception!(_core, VirtualError, PyException);
create_exception!(_core, NoAnswer, VirtualError);

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// One run, which another thread can stop.
#[pyclass(frozen)]
struct VirtualRun {
    scenario: Scenario,
    cpu: Option<usize>,
    stop: Arc<AtomicBool>,
}

#[pymethods]
impl VirtualRun {
    #[new]
    fn new(scenario: &str, cpu: Option<usize>) -> PyResult<Self> {
        let scenario = serde_json::from_str(scenario).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self { scenario, cpu, stop: Arc::default() })
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Runs without the GIL, which is taken ten times a second to look for signals.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (running, ended) = mpsc::channel::<()>();
        // Without the GIL only what threads may share can be used, hence the lock, which nobody else takes.
        let ended = Mutex::new(ended);
        let (scenario, stop, cpu) = (self.scenario.clone(), Arc::clone(&self.stop), self.cpu);
        let worker = thread::spawn(move || {
            let _running = running;
            brobust_virtual::run_on(cpu, &scenario, &stop)
        });
        let wait = || ended.lock().expect("never poisoned").recv_timeout(POLL_INTERVAL);
        while py.detach(wait) == Err(mpsc::RecvTimeoutError::Timeout) {
            if let Err(signal) = py.check_signals() {
                self.stop();
                py.detach(|| worker.join()).ok();
                return Err(signal);
            }
        }
        match py.detach(|| worker.join()) {
            Ok(Ok(outcome)) => dictionary(py, outcome),
            Ok(Err(error)) => Err(os_error(&error).unwrap_or_else(|| virtual_error(&error))),
            Err(_) => Err(PyRuntimeError::new_err("the run in virtual time panicked")),
        }
    }
}

/// Returns the name of each system call of Linux on x86-64, by its number.
#[pyfunction]
fn syscall_names() -> HashMap<u32, &'static str> {
    Sysno::iter().map(|call| (call.id() as u32, call.name())).collect()
}

/// Makes Python's error of the system's. Of a file that cannot be written it has the name.
fn os_error(error: &Error) -> Option<PyErr> {
    let (Error::Io { source, .. } | Error::Write { source, .. }) = error else { return None };
    let number = source.raw_os_error()?;
    Some(match error {
        Error::Write { file, .. } => PyOSError::new_err((number, without_numbers(&source.to_string()), file.clone())),
        _ => PyOSError::new_err((number, without_numbers(&error.to_string()))),
    })
}

fn virtual_error(error: &Error) -> PyErr {
    let said = without_numbers(&error.to_string());
    match error {
        Error::Hung { .. } => NoAnswer::new_err(said),
        _ => VirtualError::new_err(said),
    }
}

fn dictionary(py: Python<'_>, outcome: Outcome) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    let flows = outcome.flows.iter().map(|flow| of_flow(py, flow)).collect::<PyResult<Vec<_>>>()?;
    result.set_item("flows", PyList::new(py, flows)?)?;
    result.set_item("hash", outcome.hash)?;
    result.set_item("origin_ns", outcome.origin)?;
    result.set_item("throughput", of_table(py, outcome.throughput)?)?;
    result.set_item("samples", of_table(py, outcome.samples)?)?;
    result.set_item("packets", of_table(py, outcome.packets)?)?;
    let time_slices =
        outcome.time_slices.iter().map(|of_node| of_node.iter().map(|slice| (slice.begin, slice.end)).collect());
    result.set_item("timeslices_ns", time_slices.collect::<Vec<Vec<_>>>())?;
    result.set_item("busy_ns", outcome.busy)?;
    result.set_item("connections", of_table(py, outcome.connections)?)?;
    result.set_item("transfers", of_table(py, outcome.transfers)?)?;
    let programs = outcome.programs.into_iter().map(|program| of_program(py, program)).collect::<PyResult<Vec<_>>>()?;
    result.set_item("programs", PyList::new(py, programs)?)?;
    let work = PyDict::new(py);
    work.set_item("hand_overs", outcome.work.hand_overs)?;
    work.set_item("frames", outcome.work.frames)?;
    work.set_item("nic_drops", outcome.work.nic_drops)?;
    work.set_item("boot_s", outcome.work.boot_s)?;
    work.set_item("run_s", outcome.work.run_s)?;
    result.set_item("work", work)?;
    Ok(result)
}

fn of_flow<'py>(py: Python<'py>, flow: &FlowResult) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("received_bytes", flow.received)?;
    result.set_item("retransmits", flow.retransmits)?;
    result.set_item("drops", flow.drops)?;
    result.set_item("rtt_mean_ms", flow.rtt_mean_ms)?;
    result.set_item("rtt_p99_ms", flow.rtt_p99_ms)?;
    result.set_item("queue_mean_ms", flow.queue_mean_ms)?;
    result.set_item("skb_mean_bytes", flow.skb_mean_bytes)?;
    result.set_item("pacing_idle_ms", flow.pacing_idle_ms)?;
    result.set_item("ended_ns", flow.ended)?;
    result.set_item("errno", flow.error)?;
    Ok(result)
}

fn of_program(py: Python<'_>, program: ProgramResult) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("flow", program.flow)?;
    result.set_item("at_receiver", program.at_receiver)?;
    result.set_item("words", program.words)?;
    result.set_item("ended_ns", program.ended)?;
    result.set_item("status", program.status)?;
    result.set_item("errno", program.error)?;
    result.set_item("stdout", PyBytes::new(py, &program.stdout))?;
    result.set_item("stderr", PyBytes::new(py, &program.stderr))?;
    result.set_item("console", program.kernel)?;
    Ok(result)
}

/// Columns by name, each as (numpy's name of its type, its bytes).
fn of_table(py: Python<'_>, table: Table) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    for (name, column) in table {
        let (kind, bytes) = match column {
            Column::F64(values) => ("f8", values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()),
            Column::I64(values) => ("i8", values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Column::Bool(values) => ("?", values.iter().map(|value| u8::from(*value)).collect()),
        };
        result.set_item(name, (kind, PyBytes::new(py, &bytes)))?;
    }
    Ok(result)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<VirtualRun>()?;
    module.add_function(wrap_pyfunction!(syscall_names, module)?)?;
    module.add("VirtualError", module.py().get_type::<VirtualError>())?;
    module.add("NoAnswer", module.py().get_type::<NoAnswer>())
}
