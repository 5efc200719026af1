"""A series: every run of a grid, measured in shuffled order and written down as it finishes."""

from __future__ import annotations

import errno
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brobust import _core
from brobust.backends import open_backend
from brobust.dataset import Dataset, Measured, failed
from brobust.errors import BrobustError, RunFailed
from brobust.host.session import Session
from brobust.scenario import Grid, Run


@dataclass(frozen=True)
class Progress:
    """One finished run, and how far the series is."""

    run: Run
    measured: Measured
    done: int
    total: int


class DiskFull(BrobustError):
    """The dataset can take no more; what it has is whole."""


def remaining(grid: Grid, dataset: Dataset) -> list[Run]:
    """Runs still to be done, in the grid's shuffled order but kernel by kernel: another kernel is another boot."""
    finished = dataset.finished()
    runs = [run for run in grid.runs() if run.id not in finished]
    return sorted(runs, key=lambda run: (run.scenario.kernel, run.scenario.accelerator))


def measure(runs: Sequence[Run], dataset: Dataset, say: Callable[[str], None]) -> Iterator[Progress]:
    """Measure these runs, appending each to the dataset before it is reported."""
    if not runs:
        return
    with Session.start() as session, open_backend(session, say) as backend:
        for record in backend.calibrate([run.scenario for run in runs]):
            dataset.note_calibration(record)
        for done, run in enumerate(runs, start=1):
            say(run.scenario.describe())
            started = datetime.now(UTC)
            try:
                measured = backend.measure(run)
            except RunFailed as failure:
                measured = failed(run, str(failure), started)
            _append(dataset, run, measured)
            yield Progress(run, measured, done, len(runs))


def _append(dataset: Dataset, run: Run, measured: Measured) -> None:
    try:
        dataset.append(run.id, measured)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no room left for {dataset.directory}; free some, then complete the series with --resume"
            ) from None
        raise


def host() -> dict[str, Any]:
    """What a reader of the data must know of the machine."""
    model = "unknown"
    with Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "host_kernel": platform.release(),
        "host_hz": _core.hz(),
        "cpu": model,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One object per run for `--json`: the flows' shared columns, retransmits summed over them, and the throughput of
    all together: their payload over the run's whole duration, since one that starts later counts for less of it."""
    first = dict(rows[0])
    measured = [row for row in rows if row.get("throughput_mbps") is not None]
    first["throughput_mbps"] = sum(r["throughput_mbps"] * (1 - r["start_s"] / r["duration_s"]) for r in measured)
    first["retransmits"] = sum(row["retransmits"] or 0 for row in measured)
    if not measured:
        first["throughput_mbps"] = first["retransmits"] = None
    first["cc"] = "+".join(dict.fromkeys(row["cc"] for row in rows))
    first["flow_throughputs_mbps"] = [row.get("throughput_mbps") for row in rows]
    for key in ("flow", "start_s"):
        first.pop(key, None)
    first["started_at"] = first["started_at"].isoformat(timespec="milliseconds")
    return first
