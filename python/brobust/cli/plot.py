"""The command `brobust plot`: draw a dataset."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from brobust.dataset import Dataset


def plot(
    dataset: Annotated[Path, typer.Argument(help="The dataset directory that `brobust run` wrote.")],
    x: Annotated[
        str | None,
        typer.Option(help="Horizontal axis, such as share or rtt_ms. [default: an axis that varies]"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the files. [default: the dataset's]")] = None,
) -> None:
    """Draw throughput against the CPU share, or another axis that varies, as PNG, as SVG and in the terminal."""
    from brobust.dataset import Dataset

    draw(Dataset.open(dataset), x, out or dataset)


def draw(dataset: Dataset, x: str | None, directory: Path) -> None:
    """Draw a dataset into files in this directory and on the terminal, and print the files' names."""
    from brobust.report.plot import ThroughputFigure  # imports matplotlib, which takes a second

    figure = ThroughputFigure(dataset.runs(), x)
    directory.mkdir(parents=True, exist_ok=True)
    files = figure.save(directory)
    columns = shutil.get_terminal_size().columns
    print(figure.terminal(width=min(100, columns), colors=sys.stdout.isatty()))
    for file in files:
        print(file)
