"""`brobust plot`: draw a dataset."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from brobust.dataset import Dataset


def plot(
    dataset: Annotated[Path, typer.Argument(help="Dataset directory that `brobust run` made.")],
    x: Annotated[str | None, typer.Option(help="Horizontal axis, such as share or rtt_ms [what varies].")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for the files [the dataset's].")] = None,
) -> None:
    """Draw throughput against CPU share (or what else varies) as PNG and SVG, and in the terminal."""
    from brobust.dataset import Dataset

    draw(Dataset.open(dataset), x, out or dataset)


def draw(dataset: Dataset, x: str | None, directory: Path) -> None:
    from brobust.report.plot import ThroughputFigure  # matplotlib: a second that only a figure is worth

    figure = ThroughputFigure(dataset.runs(), x)
    directory.mkdir(parents=True, exist_ok=True)
    files = figure.save(directory)
    columns = shutil.get_terminal_size().columns
    print(figure.terminal(width=min(100, columns), colors=sys.stdout.isatty()))
    for file in files:
        print(file)
