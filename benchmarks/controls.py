"""What the benchmarks of repairs have in common: how they name controls, and a dataset that grows.

A control is a name of `--cc`, and after a slash how TCP paces: `bbr/kept` is `--cc bbr --pacing kept`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brobust.cli.measuring import measure
from brobust.dataset import Dataset
from brobust.errors import BrobustError
from brobust.scenario import Grid
from brobust.series import runner

CONTROLS = ("cubic", "bbr", "bbr_robust", "bbr_steady", "brb_bbr3", "brb_bbr3_steady")
UNDISTURBED = "bbr, undisturbed"
"""BBR in the same cell with all of its CPU: what repairs are compared with beside CUBIC."""


def cc_and_pacing(control: str) -> tuple[str, str]:
    """Return the congestion control and how TCP paces."""
    cc, _, pacing = ("bbr" if control == UNDISTURBED else control).partition("/")
    return cc, pacing or "kernel"


def measured(directory: Path, wanted: Sequence[Mapping[str, Any]], jobs: int | None) -> Dataset:
    """Measure what the dataset lacks of these grids, and return it. It may hold others. End with one line on what
    cannot be measured."""
    try:
        if (directory / "dataset.json").exists():
            dataset = Dataset.open(directory)
            before = dataset.grid()
            grid = Grid({"grids": [*before.fields["grids"], *wanted]})
            if len(grid.runs()) > len(before.runs()):
                dataset.grow(grid)
        else:
            grid = Grid({"grids": list(wanted)})
            dataset = Dataset.create(directory, grid, runner.host())
        measure(grid, dataset, as_json=False, jobs=jobs, go_on="the same command")
    except BrobustError as refusal:
        raise SystemExit(str(refusal)) from None
    return dataset
