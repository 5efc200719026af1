"""`brobust validate`: how far virtual time agrees with real VMs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import polars as pl
import typer
from rich.console import Console

from brobust import backends, series, validate
from brobust.cli.demo import continued
from brobust.cli.run import grid_fields, measure
from brobust.dataset import Dataset
from brobust.report import validation
from brobust.scenario import Grid
from brobust.virtual import kernels

# 20 Mbit/s, where a TCG guest has CPU to spare; 4 BDP, where Cubic fills the link (docs/scenario.md).
FIELDS = {
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
    "contention": {"driver": "deadline", "timeslice": "10ms", "share": ["1", "0.7", "0.5", "0.35", "0.25"]},
    "flows": {"cc": ["cubic", "bbr", "bbr_robust"]},
    "duration": "5s",
    "repeat": 3,
    "backend": "vm",
}


def command(
    cc: Annotated[str | None, typer.Option(help="Congestion controls [cubic,bbr,bbr_robust].")] = None,
    share: Annotated[str | None, typer.Option(help="CPU shares [1,0.7,0.5,0.35,0.25].")] = None,
    timeslice: Annotated[str | None, typer.Option(help="Timeslices [10ms].")] = None,
    driver: Annotated[str | None, typer.Option(help="Driver on vm: deadline or burner [deadline].")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bottleneck rate [20mbit].")] = None,
    buffer: Annotated[str | None, typer.Option(help="Bottleneck buffer [4bdp].")] = None,
    duration: Annotated[str | None, typer.Option(help="How long the flows send [5s].")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of every cell on vm.")] = 3,
    out: Annotated[Path, typer.Option(help="Directory; a broken series of VMs in it is completed.")] = Path("validate"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per cell, and one for all.")] = False,
) -> None:
    """Measure the same cells on real VMs and in virtual time, and say how far they agree (about 5 minutes).

    Each run in virtual time replays the off-times that the VM's vCPU had, so nothing is tuned.
    """
    asked = grid_fields(
        path={"bandwidth": bandwidth, "buffer": buffer},
        contention={"share": share, "timeslice": timeslice, "driver": driver},
        flows={"cc": cc},
        duration=duration,
    )
    fields = {key: {**value, **asked.get(key, {})} if isinstance(value, dict) else asked.get(key, value)
              for key, value in FIELDS.items()}  # fmt: skip
    grid = Grid.from_flags({**fields, "repeat": repeat})
    backends.check(grid.scenarios)
    kernels.find()  # before minutes of VMs
    directory = out / "vm"
    dataset = continued(directory, grid) or Dataset.create(directory, grid, series.host())
    errors = Console(stderr=True)
    measure(grid, dataset, as_json=False)
    frames = []
    with errors.status("repeating every run in virtual time"):
        for name, result in validate.twins(dataset):
            frames.append(result.runs.with_columns(pl.lit(name).alias("twin_of")))
    virtual = pl.concat(frames)
    virtual.write_parquet(out / "virtual.parquet")
    cells = validate.compare(dataset.runs(), virtual)
    cells.write_csv(out / "validation.csv")
    found = validate.agreement(cells)
    files = validation.draw(cells, found, out)
    if as_json:
        for cell in cells.iter_rows(named=True):
            print(json.dumps(cell))
        print(json.dumps({"cells": found.cells, "median_abs_ln_ratio": found.median, "p90_abs_ln_ratio": found.p90}))
        return
    Console().print(validation.render(cells, found))
    for file in files:
        print(file)
