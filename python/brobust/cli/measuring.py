"""Measure a series and show its progress, for all commands that measure."""

import contextlib
import json
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from brobust import units
from brobust.analysis import summary
from brobust.cli import output
from brobust.dataset import PROGRAMS, Dataset, Measured, frame
from brobust.errors import BadInput, BrobustError, CutShort, Interrupted, printable
from brobust.lazily import pl
from brobust.report import programs, table
from brobust.report.console import Console
from brobust.scenario import Grid, Run
from brobust.series import runner
from brobust.series.expected_time import Remaining

if TYPE_CHECKING:
    from rich.progress import Progress


def measure(
    grid: Grid,
    dataset: Dataset,
    as_json: bool,
    jobs: int | None = None,
    cluster: str | None = None,
    go_on: str | None = None,
    *,
    for_verdict: bool = False,
) -> None:
    """Measure the runs that the dataset lacks. Progress goes to stderr; with `as_json`, each run is a line on stdout.
    `go_on` tells the user how to complete an interrupted series. Where nobody reads stdout any more, the series ends,
    unless it is measured `for_verdict`."""
    with dataset.writing():
        try:
            runs = runner.remaining(grid, dataset)
            errors = Console(stderr=True)
            for note in [*grid.notes, *check_builds(grid, dataset, is_complete=not runs)]:
                errors.print(note, soft_wrap=True, highlight=False, markup=False)
            # Closed here, so that an interrupted series is cleaned up before the interrupt is caught.
            with (
                _ProgressBar(errors, runs) as bar,
                contextlib.closing(runner.measure(runs, dataset, bar.describe, jobs, cluster)) as measured,
            ):
                for run, found in measured:
                    bar.advance(run, found)
                    if as_json:
                        goes_on = output.if_anybody_reads() if for_verdict else contextlib.nullcontext()
                        with goes_on, output.written():
                            print(json.dumps(_as_object(found), default=str), flush=True)
        except CutShort as failed:
            done, how = _kept(grid, dataset, go_on)
            if done is None:
                raise type(failed)(f"{failed.what}; nothing is kept", failed.remedy) from None
            raise type(failed)(f"{failed.what}; {done}", failed.remedy, how) from None
        except (BrobustError, OSError):
            dataset.discard_if_empty()
            raise
        except KeyboardInterrupt:
            done, how = _kept(grid, dataset, go_on)
            if done is None:
                raise Interrupted(
                    "interrupted before the first run was complete, so nothing is kept; repeat the command"
                ) from None
            raise Interrupted(f"interrupted; {done}; {how}") from None


@contextlib.contextmanager
def kept(grid: Grid, dataset: Dataset, go_on: str) -> Iterator[None]:
    """Say of a block that comes after the measuring, if it is interrupted, what is kept and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        done, how = _kept(grid, dataset, go_on)
        raise Interrupted(f"interrupted; {done}; {how}") from None


def check_builds(grid: Grid, dataset: Dataset, is_complete: bool) -> list[str]:
    """Refuse to complete a series with other kernels or programs than it was begun with. Return the notes on a complete
    one, which may have others than are here."""
    try:
        found = runner.other_builds(grid, dataset)
    except BrobustError:
        if not is_complete:  # else it needs nothing any more with which it was measured
            raise
        return []
    if not found:
        return []
    what = f"{dataset.directory} has runs of another build of {' and of '.join(found)}"
    if not is_complete:
        raise BadInput(f"{what}; give another --out")
    return [f"{what}, which are not measured again; give another --out for that"]


def _kept(grid: Grid, dataset: Dataset, go_on: str | None) -> tuple[str | None, str]:
    """Return what is left of a series that has ended early, None if that is nothing, and how to complete it."""
    done = len(dataset.finished())
    how = go_on or _resume(dataset)
    if not done and dataset.discard_if_empty():
        return None, how
    return f"{dataset.directory} has {done} of {units.show_count(len(grid.runs()), 'run')}", f"go on with {how}"


def _resume(dataset: Dataset) -> str:
    return f"`brobust run --resume --out {shlex.quote(str(dataset.directory))}`"


def show(dataset: Dataset) -> None:
    console = Console()
    title = f"dataset {dataset.directory}"
    runs = dataset.runs()
    if (runs["outcome"] != "failed").any():  # else the table has no row
        console.print_whole(table.render(runs, title, dataset.grid))
    for line in programs.shown(dataset):
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _as_object(measured: Measured) -> dict[str, Any]:
    """Return a run as `--json` prints it: with what its programs printed, if it had some."""
    of_run = runner.summary(measured.runs)
    ended = frame(measured.programs, PROGRAMS)
    return of_run if ended.is_empty() else {**of_run, "programs": ended.drop("run").to_dicts()}


MEASURED = ("ok", "unfaithful")


def require(grid: Grid, dataset: Dataset, outcomes: Sequence[str]) -> Counter[str]:
    """Return how many runs of the grid have each outcome. Raise NoSuccess unless some run has one of these. A script
    must not take such a series for a success."""
    wanted = {run.id for run in grid.runs()}
    found = Counter(dataset.runs().filter(pl.col("run").is_in(wanted)).unique("run")["outcome"])
    if not any(found[outcome] for outcome in outcomes):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(found.items()))
        raise NoSuccess(f"no run is ok ({counts}); in {dataset.directory} the column reason of the table runs says why")
    return found


def require_ok(grid: Grid, dataset: Dataset, go_on: str | None = None) -> None:
    """Raise NoSuccess at the end of a series unless some run is ok. If others failed, say how many, and how to measure
    them again. It is no failure for that: what was measured counts, and each cell says of how many runs."""
    found = require(grid, dataset, ("ok",))
    if failed := found["failed"]:
        them = "it" if failed == 1 else "them"
        line = f"{failed} of {found.total()} runs failed; {go_on or _resume(dataset)} measures {them} again"
        Console(stderr=True).print(line, soft_wrap=True, highlight=False)


def require_throughput(grid: Grid, dataset: Dataset, bound: int) -> None:
    """Raise NoSuccess unless in every cell of the grid some run is ok, and the flows together carry at least `bound`,
    bit/s, in the median of these and of those that failed, which carried nothing."""
    table, of_cell = dataset.runs(), ("scenario", "throughput_mbps")
    ok = summary.runs(table.filter(pl.col("outcome") == "ok")).select(of_cell)  # as the table has it
    failed = table.filter(pl.col("outcome") == "failed").unique("run").with_columns(throughput_mbps=0.0).select(of_cell)
    medians = dict(pl.concat([ok, failed]).group_by("scenario").agg(pl.median("throughput_mbps")).iter_rows())
    have_ok = set(ok["scenario"])
    slow = [one for one in grid.scenarios if one.hash not in have_ok or medians[one.hash] * 1e6 < bound]
    if slow:
        first = slow[0]
        carried = "nothing, since no run is ok"
        if first.hash in have_ok:
            carried = f"{units.show_measured(medians[first.hash], 6)} Mbit/s"
            if number := failed.filter(scenario=first.hash).height:
                carried += f" (runs that failed, which carried nothing: {number})"
        others = f"; and {units.show_count(len(slow) - 1, 'other')}" if len(slow) > 1 else ""
        raise NoSuccess(f"--at-least: less than {units.show_rate(bound)}: {first.describe()} carried {carried}{others}")


class NoSuccess(BrobustError):
    """A series was measured, but is no success."""

    exit_status = 1


SHOW_SECONDS = 0.5
"""How often the remaining time is computed."""


class _ProgressBar:
    """Progress of a series: on a terminal a bar with the remaining time; in a pipe the runs that are not ok, and a line
    each minute."""

    def __init__(self, console: Console, runs: Sequence[Run]):
        self._console = console
        self._said = time.monotonic()
        self._remaining = Remaining(runs, self._said)
        self._total, self._done = len(runs), 0
        self._bar: Progress | None = None
        self._shown = -SHOW_SECONDS

    def __enter__(self) -> Self:
        if self._console.is_interactive:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            left = TextColumn("{task.fields[left]}", markup=False)
            columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), left
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("starting", total=self._total, left="")
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError):  # of a terminal that is gone; SIGHUP ends the command, or is ignored
                self._bar.stop()

    def describe(self, text: str) -> None:
        """Show what is being done now."""
        if self._bar is not None:
            self._bar.update(self._task, description=printable(text[:100]))

    def advance(self, run: Run, found: Measured) -> None:
        """Count a run, and print it if it is not ok."""
        first = found.runs[0]
        now = time.monotonic()
        self._done += 1
        self._remaining.ended(run, first.get("wall_s") or 0.0, now)
        if self._bar is not None and now - self._shown >= SHOW_SECONDS:
            self._shown = now
            self._bar.update(self._task, completed=self._done, left=self._left(now))
        if self._bar is None and now - self._said >= output.SAY_SECONDS and self._done < self._total:
            self._said = now
            self._print("; ".join(filter(None, [f"{self._done} of {self._total} runs", self._left(now)])))
        if first["outcome"] != "ok":
            self._print(f"{run.scenario.describe()}: {first['outcome']}: {first['reason']}")

    def _left(self, now: float) -> str:
        seconds = self._remaining.seconds(now)
        return "" if seconds is None else f"left {timedelta(seconds=round(seconds))}"

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._console.print(line, soft_wrap=True, highlight=False)
