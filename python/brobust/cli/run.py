"""`brobust run`: measure a scenario, or a grid of them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust import files, units
from brobust.cli import output
from brobust.cli.options import jobs_option, parsed, takes_fields, without_option
from brobust.errors import BadInput
from brobust.scenario.description import RUNS

if TYPE_CHECKING:
    from brobust.dataset import Dataset
    from brobust.scenario import Grid

DATA = Path("brobust-data")


@takes_fields()
def run(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="SCENARIO.toml", help="Scenario file (docs/scenario.md).")
    ] = None,
    *,
    fields: dict[str, Any],
    jobs: Annotated[int | None, jobs_option(RUNS)] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help=f"Directory for the dataset, empty or new. [default: {DATA}/DATE-TIME]"),
    ] = None,
    without: Annotated[list[str] | None, without_option()] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Complete a series that was interrupted: the one in --out, or the latest.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per run as it finishes, and nothing else.")
    ] = False,
    gdb: Annotated[
        str | None,
        typer.Option(
            metavar="KERNEL@TIME",
            help="Stop virtual time at this time of the run, such as sender@1.5s, until a debugger has attached to "
            "this kernel: sender, sender2, receiver or bottleneck. Only for a series of one run, which sends the same "
            "packets as without a debugger.",
        ),
    ] = None,
    at_least: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="For a test in continuous integration: exit with status 1 if the flows of a cell together carry less "
            "than this, such as 10mbit, in the median of its repeats. A run that failed carried nothing.",
        ),
    ] = None,
) -> None:
    """Measure throughput under CPU contention.

    Options override the file. Every field of the file has an option. Most take several values, separated by commas:
    brobust measures every combination of them, which are the cells, and each cell --repeat times. Square brackets show
    what is allowed and the default; docs/scenario.md says more. The exit status is 1 if no run is ok; where only some
    have failed, the last line says how many, and how to measure these again.

    Examples:
      brobust run --cc cubic,bbr --share 1,0.5,0.25 --out data   # six cells
      brobust run --cc bbr --share 0.5 --repeat 1 --samples ack --packets
      brobust run scenario.toml --rtt 40ms
      brobust plot data
    """
    from brobust.cli.measuring import measure, require_ok, require_throughput, show

    bound = None if at_least is None else parsed("at-least", at_least, units.bits_per_second)
    if gdb is not None:
        _check_debugger(gdb, _grid(scenario, fields), resume)
    grid, dataset = (_resumed if resume else _begun)(scenario, fields, out, jobs, without or [])
    if gdb is not None:
        _measure_under_debugger(gdb, grid, dataset)
    measure(grid, dataset, as_json, jobs, for_verdict=bound is not None)
    if not as_json:
        with output.if_anybody_reads():
            show(dataset)
    require_ok(grid, dataset)
    if bound is not None:
        require_throughput(grid, dataset, bound)


def _begun(
    scenario: Path | None, fields: dict[str, Any], out: Path | None, jobs: int | None, without: list[str]
) -> tuple[Grid, Dataset]:
    from brobust.dataset import Dataset
    from brobust.series import runner

    grid = _grid(scenario, fields)
    if out is not None:
        _check_other(out, grid)
    Dataset.check_new(out, without)
    _check(grid, jobs)
    if out is not None:
        return grid, Dataset.create(out, grid, runner.host(), without=without)
    beside = DATA / datetime.now().strftime("%Y%m%d-%H%M%S")
    return grid, Dataset.create_beside(beside, grid, runner.host(), without=without)


def _check_other(out: Path, grid: Grid) -> None:
    """Refuse a directory that holds a dataset of another scenario, which nobody could complete with these options."""
    from brobust.dataset import Dataset

    if not files.is_file(out / "dataset.json"):
        return
    begun = Dataset.open(out).grid()
    if not grid.may_continue(begun):
        differ = grid.differences_from(begun)
        raise BadInput(f"{out} already holds a dataset of another scenario{differ}; give another --out")


def _check_debugger(given: str, grid: Grid, resume: bool) -> None:
    from brobust.virtual import debugger

    if resume:
        raise BadInput("--gdb: it begins a dataset of one run, and --resume completes one; leave one of them out")
    if grid.size != 1:
        raise BadInput(f"--gdb: it is for one run, and these are {grid.size}; give one value each and --repeat 1")
    debugger.stop(given, grid.as_written[0])


def _measure_under_debugger(given: str, grid: Grid, dataset: Dataset) -> None:
    from brobust import backends
    from brobust.backends.virtual import VirtualBackend
    from brobust.virtual import debugger

    (run,) = grid.runs()
    with dataset.writing():
        try:
            with backends.opened("virtual", lambda _: None) as backend:
                assert isinstance(backend, VirtualBackend)
                backend.debugger = debugger.stop(given, run.scenario)
                dataset.append(run.id, backend.measure(run))
        except BaseException:  # also Ctrl-C, while nobody has attached
            dataset.discard_if_empty()
            raise


def _resumed(
    scenario: Path | None, fields: dict[str, Any], out: Path | None, jobs: int | None, without: list[str]
) -> tuple[Grid, Dataset]:
    """Return the series in a dataset; refuse fields that are not those with which it was begun."""
    from brobust.dataset import Dataset
    from brobust.series import runner

    directory = out or _latest()
    dataset = Dataset.open(directory)
    dataset.check_without(without)
    grid = dataset.grid()
    if scenario is not None or fields:
        asked = _grid(scenario, fields)
        if not asked.may_continue(grid):
            differ = asked.differences_from(grid)
            raise BadInput(
                f"--resume: {directory} was begun with another scenario{differ}; give no scenario options with it"
            )
    _check(grid, jobs, is_complete=not runner.remaining(grid, dataset))
    return grid, dataset


def _check(grid: Grid, jobs: int | None, is_complete: bool = False) -> None:
    from brobust import backends
    from brobust.series import runner

    runner.check_jobs(jobs, grid.as_written)
    if not is_complete:  # it needs nothing any more with which it was measured
        backends.check(grid, jobs)


def _grid(scenario: Path | None, fields: dict[str, Any]) -> Grid:
    from brobust.scenario import Grid

    return Grid.from_flags(fields, scenario)


def _latest() -> Path:
    datasets = sorted(path.parent for path in DATA.glob("*/dataset.json"))
    if not datasets:
        raise BadInput(f"--resume: no dataset in ./{DATA}; give its directory with --out")
    return datasets[-1]
