"""Measuring a series before the eyes of a user, for every command that does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import polars as pl
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from brobust.dataset import Dataset
from brobust.errors import BadInput, BrobustError, printable
from brobust.report import table
from brobust.report.console import Console
from brobust.scenario import Grid
from brobust.series import runner


def measure(
    grid: Grid,
    dataset: Dataset,
    as_json: bool,
    jobs: int | None = None,
    cluster: str | None = None,
    go_on: str | None = None,
) -> None:
    """Measure what the dataset lacks, with progress on stderr, and on stdout a line per run if asked for. `go_on` says
    how an interrupted series is completed."""
    with dataset.writing():
        _measure(grid, dataset, as_json, jobs, cluster, go_on)


def _measure(
    grid: Grid, dataset: Dataset, as_json: bool, jobs: int | None, cluster: str | None, go_on: str | None
) -> None:
    runs = runner.remaining(grid, dataset)
    errors = Console(stderr=True)
    for note in grid.notes:
        errors.print(note, soft_wrap=True, highlight=False, markup=False)
    try:
        with _Speaker(errors, len(runs)) as say:
            for progress in runner.measure(runs, dataset, say.now, jobs, cluster):
                say.done(progress)
                if as_json:
                    print(json.dumps(runner.summary(progress.measured.runs), default=str), flush=True)
    except BrobustError:
        dataset.discard_if_empty()
        raise
    except KeyboardInterrupt:
        done = len(dataset.finished())
        how = go_on or f"`brobust run --resume --out {dataset.directory}`"
        raise BadInterrupt(
            f"interrupted; {done} of {len(grid.runs())} runs are in {dataset.directory}; complete them with {how}"
        ) from None


def show(dataset: Dataset) -> None:
    """Print what a dataset holds."""
    Console().print(table.render(dataset.runs(), title=f"dataset {dataset.directory}"))


MEASURED = ("ok", "unfaithful")


def require(grid: Grid, dataset: Dataset, outcomes: Sequence[str] = ("ok",)) -> None:
    """Refuse to end well where no run of the grid came out as one of these: a script must not take it for a success."""
    wanted = {run.id for run in grid.runs()}
    runs = dataset.runs().filter(pl.col("run").is_in(wanted)).unique("run")
    found = Counter(runs["outcome"])
    if not any(found[outcome] for outcome in outcomes):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.items()))
        raise NoneOk(f"no run is ok ({counts}); {dataset.directory} says why of each")


class NoneOk(BrobustError):
    """A series without one run that is what was asked for."""

    exit_status = 1


class BadInterrupt(BadInput):
    """Ctrl-C: what is measured is kept."""

    exit_status = 130


class _Speaker:
    """Progress for people: a bar with ETA on a terminal, nothing in a pipe but failures."""

    def __init__(self, console: Console, total: int):
        self._console = console
        self._bar = Bar(
            TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console, disable=not console.is_terminal, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=total)

    def __enter__(self) -> _Speaker:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def now(self, text: str) -> None:
        self._bar.update(self._task, description=printable(text[:100]))

    def done(self, progress: runner.Progress) -> None:
        self._bar.update(self._task, completed=progress.done)
        first = progress.measured.runs[0]
        if first["outcome"] != "ok":
            line = f"{progress.run.scenario.describe()}: {first['outcome']}: {first['reason']}"
            self._console.print(line, soft_wrap=True, highlight=False)
