"""What the backends that measure in real time have in common: calibration, and the rows of a run."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from brobust.contention import verdict
from brobust.dataset import TABLES, Measured, Rows, flow_columns, frame
from brobust.dataset.iperf3 import FlowResult
from brobust.errors import RunFailed
from brobust.lazily import pl
from brobust.scenario import Run
from brobust.units import Buffer

MIN_CARRIED_SHARE = 0.95
"""Of what a path can deliver: undisturbed Cubic that carries less says that the testbed is too slow for it."""

CALIBRATION_TRIES = 6
CALIBRATION_WAIT_SECONDS = 1.0
"""After the first try; after each further one it is one second longer."""


def min_carried_share(accelerator: str) -> float:
    """Return MIN_CARRIED_SHARE, or less where QEMU emulates the guests' CPUs: while the path's guest waits longer than
    its bucket lasts, a millisecond (testbed/path.py), the path is idle. On a slow machine 94 to 97 % arrived, of 20
    Mbit/s as of 40."""
    return 0.9 if accelerator == "tcg" else MIN_CARRIED_SHARE


def calibrated(
    measure: Callable[[], float],
    enough: float,
    announce: Callable[[str], None],
    half_way: Callable[[], None] | None = None,
) -> tuple[float, int]:
    """Measure (Mbit/s) until the result is enough, at most CALIBRATION_TRIES times, since calibration is about what the
    machine can carry, not about what it carries while other work keeps it busy. Return the best result, and how often
    it was measured. `half_way` is called before the second half of the tries."""
    best = 0.0
    for tries in range(1, CALIBRATION_TRIES + 1):
        best = max(best, measure())
        if best >= enough:
            return best, tries
        if half_way is not None and tries == CALIBRATION_TRIES // 2:
            half_way()
        if tries < CALIBRATION_TRIES:
            announce(f"calibration fell short ({best:.1f} of {enough:.1f} Mbit/s); trying again")
            time.sleep(CALIBRATION_WAIT_SECONDS * tries)
    return best, CALIBRATION_TRIES


def calibration_buffer(bandwidth: int, rtt: int) -> int:
    """Return a buffer (bytes) with which Cubic fills the path in any case: calibration is about the machine, not about
    how a control copes with a small buffer."""
    return max(64_000, Buffer(2, "bdp").bytes(bandwidth, rtt))


def settled_mbps(flow: FlowResult) -> float:
    """Return what a flow carried after its first second. Slow start depends on the path, not on the machine."""
    steady = [rate for end, rate in flow.over_time if end > 1]
    return sum(steady) / len(steady) if steady else 0.0


def result(
    run: Run,
    common: dict[str, Any],
    flows: Sequence[FlowResult],
    samples: Rows,
    offtimes: Rows,
    of_each: Mapping[str, Any] | None = None,
) -> Measured:
    """Return the result of a run. `common`: columns that all its flows share; `of_each`: columns that replace those of
    each flow."""
    columns = flow_columns(run.scenario)
    if len(flows) != len(columns):
        raise RunFailed(f"iperf3 reported {len(flows)} flows instead of {len(columns)}")
    undelivered = verdict.nothing_delivered(run.scenario, [flow.throughput_mbps for flow in flows])
    if common["outcome"] == "ok" and undelivered is not None:
        common = {**common, "outcome": "unfaithful", "reason": undelivered}
    pairs = zip(columns, flows, strict=True)
    rows = [{**common, **of_flow, **(of_each or {}), **flow.columns} for of_flow, flow in pairs]
    over_time = [row for number, flow in enumerate(flows) for row in flow.throughput(run.id, number)]
    found = Measured(rows, over_time, samples, offtimes)
    try:  # here, where only this run fails: a guest or a host may answer text in place of a number, or half a character
        for name in ("runs", "throughput", "samples", "offtimes"):
            frame(getattr(found, name), TABLES[name])
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise RunFailed(f"the machines reported what fits no table: {str(error).partition(';')[0]}") from None
    return found
