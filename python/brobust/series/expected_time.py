"""Estimate how long a series takes, from the runs of its dataset if there are enough, else from a short probe."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from brobust import backends
from brobust.backends.base import Backend
from brobust.dataset import Dataset
from brobust.lazily import pl
from brobust.scenario import Run
from brobust.scenario.grid import scenario

# In virtual time a run costs a boot and its frames. Two durations of the probe tell one cost from the other.
_PROBE = {"path": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"}, "flows": [{"cc": "cubic"}]}
_PROBE_DURATIONS = ("1s", "3s")
# What a Mbit of a program of the user costs, as a multiple of our own source's: system calls (docs/programs.md).
PROGRAMS = 15
MIN_RUNS = 10
ALIKE = 3  # times as large as another, at most: runs of one size
TRIES = 3  # the shortest time counts, since other work can only make a run longer


def expected_seconds(runs: Sequence[Run], dataset: Dataset | None, jobs: int | None) -> float:
    """Return the wall time that these runs take. In virtual time it is an upper estimate, because a sender that is
    short of CPU sends fewer frames."""
    done = None if dataset is None else dataset.runs().unique("run").filter(pl.col("wall_s").is_not_null())
    virtual, real = ([run for run in runs if (run.scenario.backend == "virtual") is it] for it in (True, False))
    # In virtual time a kernel with checks, such as virtual-6.12-debug, takes several times as long as others.
    work = sum(_work(its, "virtual", done, kernel) for kernel, its in _by("kernel", virtual).items())
    at_once = max(1, min(jobs or len(os.sched_getaffinity(0)), len(virtual)))
    return work / at_once + sum(_work(its, backend, done) for backend, its in _by("backend", real).items())


def _by(field: str, runs: Sequence[Run]) -> dict[str, list[Run]]:
    of_each: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of_each[getattr(run.scenario, field)].append(run)
    return of_each


def _work(runs: Sequence[Run], backend: str, done: pl.DataFrame | None, kernel: str | None = None) -> float:
    """Return what runs of one backend, and in virtual time of one kernel, take one after the other."""
    units = sum(_units(run) for run in runs)
    if done is not None:
        of_these = done.filter(pl.col("backend") == backend)
        of_these = of_these if kernel is None else of_these.filter(pl.col("kernel") == kernel)
        if len(of_these) >= MIN_RUNS:
            took, its_units = of_these.select(pl.col("wall_s").sum(), _units_of_columns(backend).sum()).row(0)
            size, its_size = units / len(runs), its_units / len(of_these)
            # Runs in virtual time of another size do not say what booting costs and what frames do; the probe does.
            if kernel is None or max(size, its_size) <= ALIKE * min(size, its_size):
                return float(took / its_units) * units
    if kernel is None:
        return sum(run.scenario.duration / 1e9 for run in runs)
    boot, per_mbit = _probe(kernel)
    return boot * len(runs) + per_mbit * units


def _units(run: Run) -> float:
    """Return what a run's time is proportional to: the Mbit that the path can carry; in real time, seconds."""
    seconds = run.scenario.duration / 1e9
    if run.scenario.traffic not in ("brobust", "iperf3"):
        seconds *= PROGRAMS
    return seconds * run.scenario.path.bandwidth / 1e6 if run.scenario.backend == "virtual" else seconds


def _units_of_columns(backend: str) -> pl.Expr:
    """Return what _units() returns, for the rows of a dataset's runs."""
    of_programs = ~pl.col("traffic").is_in(["brobust", "iperf3"])
    seconds = pl.col("duration_s") * pl.when(of_programs).then(PROGRAMS).otherwise(1)
    return seconds * pl.col("bandwidth_mbps") if backend == "virtual" else seconds


def _timed(backend: Backend, run: Run) -> float:
    begun = time.monotonic()
    backend.measure(run)
    return time.monotonic() - begun


def _probe(kernel: str) -> tuple[float, float]:
    """Measure in virtual time on this machine, with this kernel, and return the seconds for a run without frames and
    those per Mbit."""
    took = []
    with backends.opened("virtual", lambda _: None) as backend:
        for seconds in _PROBE_DURATIONS:
            run = Run(scenario=scenario({**_PROBE, "kernel": kernel, "duration": seconds}), repeat=0)
            took.append((_units(run), min(_timed(backend, run) for _ in range(TRIES))))
    (small, first), (large, second) = took
    per_mbit = max(0.0, (second - first) / (large - small))
    return max(0.0, first - per_mbit * small), per_mbit


class Remaining:
    """How long the rest of a series takes, from the runs that have ended so far.

    Runs differ in cost: one that is short of CPU takes a tenth of one that is not. So each of the runs that are left
    counts as much as those of its cell have taken; as long as there is none, as those of cells that are alike, and else
    as all.
    """

    def __init__(self, runs: Sequence[Run], now: float) -> None:
        self._begun = now
        self._left = Counter(run.scenario.hash for run in runs)
        self._alike = {run.scenario.hash: _alike(run) for run in runs}
        # How many runs of a cell, of cells that are alike and of all have ended, and what they have taken.
        self._count: Counter[object] = Counter()
        self._took: defaultdict[object, float] = defaultdict(float)
        self._ended: list[tuple[float, float]] = []
        """When each run ended, and what all until then have taken together."""

    def ended(self, run: Run, wall_s: float, now: float) -> None:
        cell = run.scenario.hash
        self._left[cell] -= 1
        for key in (cell, *self._alike[cell], None):
            self._count[key] += 1
            self._took[key] += wall_s
        self._ended.append((now, wall_s + (self._ended[-1][1] if self._ended else 0.0)))

    def seconds(self, now: float) -> float | None:
        """Return the wall time that is left; None if nothing can be said yet."""
        if not self._ended or (last := self._ended[-1][1]) <= 0:
            return None
        at, work = self._ended[-1]
        at_once = work / max(1e-9, at - self._begun)
        # The work of runs that are under way is in no sum yet. So it is counted from when each worker has ended one.
        since, before = self._begun, 0.0
        first = math.ceil(at_once)
        if len(self._ended) >= 3 * first:
            since, before = self._ended[first - 1]
        rate = (last - before) / max(1e-9, at - since)
        of_each = {cell: self._expected(cell) for cell, count in self._left.items() if count}
        left = sum(self._left[cell] * seconds for cell, seconds in of_each.items())
        under_way = min(sum(self._left.values()), first) * self._took[None] / self._count[None] / 2
        # Workers do not end together: the last one waits for a run that began when the others had none left to begin.
        longest = max(of_each.values(), default=0.0)
        alone = longest / 2 * (first - 1) / (first + 1)
        return max(0.0, (left - under_way) / rate + alone - (now - at))

    def _expected(self, cell: str) -> float:
        known = next(key for key in (cell, *self._alike[cell], None) if self._count[key])
        return self._took[known] / self._count[known]


def _alike(run: Run) -> list[tuple[Any, ...]]:
    """Return what a run has in common with others that take about as long, the closest first."""
    s = run.scenario
    size = (s.backend, _units(run))
    cpu = (*size, s.contention.share, s.contention.timeslice)
    return [(*cpu, s.flows[0].cc), cpu, (*size, s.contention.share), size]
