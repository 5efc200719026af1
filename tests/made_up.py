"""Runs that nobody has measured, for tests of what is made of them."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brobust.analysis.metrics import Evidence, Tables
from brobust.dataset import Dataset, Measured, flow_columns, scenario_columns
from brobust.scenario import Grid, Run


def rows(run: Run, **measured: Any) -> list[dict[str, Any]]:
    """Return the rows of a run that is ok, one for each flow, with these values in each."""
    common = {"outcome": "ok", "started_at": datetime.now(UTC), "throughput_mbps": 1.0, **measured}
    return [{**scenario_columns(run), **columns, **common} for columns in flow_columns(run.scenario)]


def dataset(
    directory: Path,
    grid: Grid,
    measured: Callable[[Run], dict[str, Any] | None] = lambda _: {},
    tables: Callable[[Run], dict[str, list[dict[str, Any]]]] = lambda _: {},
) -> Dataset:
    """Return a dataset that has every run of a grid, with the values that `measured` returns for it; None: it lacks the
    run. `tables` returns its rows of other tables by their names, without the run's own name."""
    made = Dataset.create(directory, grid, {})
    of_runs = []
    for run in grid.runs():
        if (values := measured(run)) is not None:
            of_run = {name: [{"run": run.id, **row} for row in listed] for name, listed in tables(run).items()}
            of_runs.append((run.id, Measured(rows(run, **values), **of_run)))  # type: ignore[arg-type]
    made.append_all(of_runs)  # one file of each table: a file for each run takes most of a test's time
    return made


def evidence(of: Dataset) -> Evidence:
    """Return what all runs of a dataset say."""
    return Evidence(Tables(of), [run.id for run in of.grid().runs()])
