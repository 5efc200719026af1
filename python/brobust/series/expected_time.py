"""Estimate how long a series takes, from the runs of its dataset if there are enough, else from a short probe."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from brobust import backends
from brobust.backends.base import Backend
from brobust.dataset import Dataset
from brobust.scenario import Run
from brobust.scenario.grid import scenario

# In virtual time a run costs a boot and its frames. Two durations of the probe tell one cost from the other.
_PROBE = {"path": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"}, "flows": [{"cc": "cubic"}]}
_PROBE_DURATIONS = ("1s", "3s")
# What a Mbit of a program of the user costs, as a multiple of our own source's: system calls (docs/programs.md).
PROGRAMS = 15
MIN_RUNS = 10
TRIES = 3  # the shortest time counts, since other work can only make a run longer


def expected_seconds(runs: Sequence[Run], dataset: Dataset | None = None, jobs: int | None = None) -> float:
    """Return the wall time that these runs take. In virtual time it is an upper estimate, because a sender that is
    short of CPU sends fewer frames."""
    side_by_side = {run.scenario.backend for run in runs} <= {"virtual"}
    at_once = (jobs or len(os.sched_getaffinity(0))) if side_by_side else 1
    if dataset is not None and len(done := dataset.runs().unique("run")) >= MIN_RUNS:
        per_unit = float(done["wall_s"].sum()) / max(1e-9, sum(_units(run) for run in runs) / len(runs) * len(done))
        return per_unit * sum(_units(run) for run in runs) / at_once
    if not side_by_side:
        return sum(run.scenario.duration / 1e9 for run in runs)
    boot, per_mbit = _probe()
    return sum(boot + per_mbit * _units(run) for run in runs) / at_once


def _units(run: Run) -> float:
    """Return what a run's time is proportional to: in virtual time the Mbit that the path can carry, on vm seconds."""
    seconds = run.scenario.duration / 1e9
    if run.scenario.traffic not in ("brobust", "iperf3"):
        seconds *= PROGRAMS
    return seconds * run.scenario.path.bandwidth / 1e6 if run.scenario.backend == "virtual" else seconds


def _timed(backend: Backend, run: Run) -> float:
    begun = time.monotonic()
    backend.measure(run)
    return time.monotonic() - begun


def _probe() -> tuple[float, float]:
    """Measure in virtual time on this machine, and return the seconds for a run without frames and those per Mbit."""
    took = []
    with backends.opened("virtual", lambda _: None) as backend:
        for seconds in _PROBE_DURATIONS:
            run = Run(scenario=scenario({**_PROBE, "duration": seconds}), repeat=0)
            took.append((_units(run), min(_timed(backend, run) for _ in range(TRIES))))
    (small, first), (large, second) = took
    per_mbit = max(0.0, (second - first) / (large - small))
    return max(0.0, first - per_mbit * small), per_mbit
