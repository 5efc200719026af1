"""The command `brobust compare`: two datasets cell by cell."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brobust.cli import output
from brobust.errors import BadInput
from brobust.units import show_count

if TYPE_CHECKING:
    from rich.table import Table

    from brobust.analysis.compare import Compared


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="The first dataset, from before a change.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The second dataset, from after the change.")],
    tolerance: Annotated[
        float,
        typer.Option(metavar="FRACTION", min=0, max=1, help="Ignore differences up to this fraction of A's median."),
    ] = 0.05,
    all_cells: Annotated[bool, typer.Option("--all", help="Also show the cells that do not differ.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per cell.")] = False,
) -> None:
    """Compare the throughput of two datasets cell by cell; exit with status 1 if a cell is worse in B.

    A cell differs if the 95 % confidence interval (bootstrap) of the difference of the medians lies outside the
    tolerance; if it only reaches beyond, the cell is not shown to differ. A comparison needs three runs of the cell in
    each dataset; where noise is larger than the tolerance, one cell in ten then differs by chance, of five runs one in
    thirty. A run that failed in B carried nothing. Where no cell can be compared, the exit status is 2.

    Examples:
      brobust run --kernel virtual-6.1 --out before
      brobust run --kernel virtual-6.12 --out after
      brobust compare before after --tolerance 0.1
    """
    from brobust.analysis import compare as comparing
    from brobust.dataset import Dataset
    from brobust.report.console import Console
    from brobust.report.table import UNFAITHFUL

    datasets = [Dataset.open(directory) for directory in (first, second)]
    comparison = comparing.compare(datasets[0], datasets[1], tolerance)
    cells = comparison.cells
    counts = Counter(cell.verdict for cell in cells)
    with output.if_anybody_reads():
        if as_json:
            for cell in cells:
                print(json.dumps(cell.__dict__), flush=True)
        else:
            shown = [cell for cell in cells if all_cells or cell.verdict != comparing.SAME]
            if shown:
                Console().print_whole(_table(shown))
            listed = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            print(f"{show_count(len(cells), 'cell')}: {listed}")
            if unclear := sum(cell.may_differ for cell in cells):
                print(
                    f"of the same, {unclear} may differ by more than the tolerance: their intervals say no more (--all)"
                )
            if failed := datasets[1].runs().filter(outcome="failed")["run"].n_unique():
                print(f"{show_count(failed, 'run')} of B failed, and carried nothing")
            for name, dataset in zip("AB", datasets, strict=True):
                if unfaithful := dataset.runs().filter(outcome="unfaithful")["run"].n_unique():
                    print(f"{show_count(unfaithful, 'run')} of {name} {UNFAITHFUL}")
        for sentence in comparison.left_out:
            Console(stderr=as_json).print(sentence, soft_wrap=True, highlight=False)
    if counts[comparing.WORSE]:
        raise typer.Exit(1)
    if counts[comparing.TOO_FEW] == len(cells):  # else a test with too few runs would pass whatever happens
        raise BadInput(
            "no cell has three runs in both datasets, so nothing is decided; measure with --repeat 3 or more"
        )


def _table(cells: list[Compared]) -> Table:
    from rich.table import Table

    from brobust.analysis.axes import axis_value, heading

    axes = list(cells[0].cell)
    out = Table(box=None, pad_edge=False)
    for text in [*map(heading, axes), "A", "B", "B - A [95 %]", "n", ""]:
        out.add_column(text, no_wrap=True)
    for cell in cells:
        between = "" if cell.low is None or cell.high is None else f"{cell.low:+.2f} to {cell.high:+.2f}"
        values = [axis_value(axis, cell.cell[axis]) for axis in axes]
        runs = f"{cell.runs[0]}, {cell.runs[1]}"
        out.add_row(*values, f"{cell.first:.2f}", f"{cell.second:.2f}", between, runs, cell.verdict)
    return out
