"""Measure single runs in a testbed that stays booted: without a calibration, which takes as long as a run."""

from contextlib import suppress
from typing import Any

from brobust.backends.vm import VmBackend
from brobust.dataset import Measured
from brobust.errors import RunFailed
from brobust.scenario import Run
from brobust.scenario.grid import scenario

PATH = {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"}


def let_rest(testbed: VmBackend) -> None:
    """Let the sender of an earlier test sleep while this host compiles: between runs it is kept busy, above all others,
    and would have one of two CPUs. The next run wakes it up."""
    with suppress(RunFailed):  # no guests are running, or they have died
        testbed.testbed.keep_busy(False)


def measured(testbed: VmBackend, flows: list[dict[str, Any]], **fields: Any) -> Measured:
    fields = {"backend": "vm", "path": PATH, "duration": "4s", "flows": flows, **fields}
    return testbed.measure(Run(scenario=scenario(fields), repeat=0))


def one_flow(testbed: VmBackend, cc: str, contention: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the row of a run."""
    (row,) = measured(testbed, [{"cc": cc}], contention=contention, **fields).runs
    return row


def rate(testbed: VmBackend, cc: str, share: float, **fields: Any) -> float:
    """Return the throughput of one flow in Mbit/s."""
    mbps: float = one_flow(testbed, cc, {"share": share}, **fields)["throughput_mbps"]
    return mbps
