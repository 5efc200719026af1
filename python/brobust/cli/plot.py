"""The command `brobust plot`: draw a dataset."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brobust import extras, files
from brobust.cli import output
from brobust.errors import BadInput, BrobustError
from brobust.lazily import pl
from brobust.units import show_count

if TYPE_CHECKING:
    from brobust.dataset import Dataset
    from brobust.scenario import Scenario

THROUGHPUT = "throughput_mbps"


def plot(
    dataset: Annotated[Path, typer.Argument(metavar="DIR", help="The dataset directory that `brobust run` wrote.")],
    x: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS",
            help="Horizontal axis, such as share or rtt_ms, or a parameter of controls: alpha of brb_bbq:alpha=5ms. "
            "[default: an axis that varies]",
        ),
    ] = None,
    value: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Vertical axis: throughput_mbps, or another number of each run, such as rtt_mean_ms, retransmits, "
            "request_p99_ms (docs/data.md).",
        ),
    ] = THROUGHPUT,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for the files. [default: the dataset's]")
    ] = None,
) -> None:
    """Draw throughput against the CPU share, or another axis that varies, as PNG, as SVG and in the terminal.

    Examples:
      brobust plot data
      brobust plot data --x rtt_ms --value retransmits --out figures
    """
    from brobust.dataset import Dataset

    opened = Dataset.open(dataset)
    if out is not None:
        files.check_directory("--out", out)
        extras.require("--out")
    if (lacking := _lacking(opened)) is not None:
        from brobust.report.console import Console

        Console(stderr=True).print(lacking, soft_wrap=True, highlight=False, markup=False)
    draw(opened, x, out or dataset, value)


def _lacking(dataset: Dataset) -> str | None:
    """Return a sentence if the series was not completed, since a figure does not show what is not there; None if it
    was, or if its scenario is of another version."""
    try:
        asked = dataset.grid().size
    except BrobustError:
        return None
    left = asked - dataset.runs().filter(pl.col("outcome") != "failed")["run"].n_unique()
    if left <= 0:
        return None
    go_on = f"`brobust run --resume --out {shlex.quote(str(dataset.directory))}` completes them"
    return f"not drawn, since missing or failed: {left} of the series' {show_count(asked, 'run')}; {go_on}"


def _scenarios(dataset: Dataset) -> list[Scenario]:
    try:
        return dataset.grid().scenarios
    except BrobustError:  # of another version
        return []


def draw(dataset: Dataset, x: str | None, directory: Path, value: str = THROUGHPUT) -> None:
    """Draw a dataset on the terminal and into files in this directory, and print the files' names. Without the extra
    that draws files, print how to get it instead. `value`: a column of the runs that figures have (plot.OF_RUNS)."""
    from brobust.analysis import summary
    from brobust.report.plot import OF_RUNS, ThroughputFigure

    if value not in OF_RUNS:
        raise BadInput(f"--value {value}: no such value; give one of {', '.join(OF_RUNS)}")
    if value == "utilization" and (why := summary.why_no_utilization(_scenarios(dataset))) is not None:
        raise BadInput(f"--value {value}: {why}")
    figure = ThroughputFigure(dataset.runs(), x, value, scenarios=lambda: dataset.grid().scenarios)
    if not figure.has_values:
        raise BadInput(f"--value {value}: no run of {dataset.directory} has it; docs/data.md says which have")
    columns = shutil.get_terminal_size().columns
    print(figure.terminal(width=min(100, columns), colors=output.has_colors()), flush=True)
    first = f"1 of {figure.panels} panels; all " if figure.panels > 1 else ""
    if extras.missing():
        again = f"brobust plot {shlex.quote(str(dataset.directory))}"
        print(f"{first or 'the same '}as PNG and SVG: {extras.install_command()}, then {again}")
        return
    directory.mkdir(parents=True, exist_ok=True)
    written = figure.save(directory, "throughput" if value == THROUGHPUT else value)
    if first:
        print(f"{first}are in {written[0]}")
    for file in written:
        print(file)
