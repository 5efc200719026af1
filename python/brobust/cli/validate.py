"""`brobust validate`: how far virtual time agrees with real VMs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brobust import files, units
from brobust.cli import demo
from brobust.cli.options import parsed
from brobust.cli.run import grid_fields

if TYPE_CHECKING:
    from brobust.series.validation import WhatIf

# The demo's cells: 20 Mbit/s, where a TCG guest has CPU to spare, and 4 BDP, where Cubic fills the link.
FIELDS = {**demo.FIELDS, "backend": "vm"}


def command(
    cc: Annotated[str | None, typer.Option(help="Congestion controls [cubic,bbr,bbr_robust].")] = None,
    share: Annotated[str | None, typer.Option(help="CPU shares [1,0.7,0.5,0.35,0.25].")] = None,
    timeslice: Annotated[str | None, typer.Option(help="Timeslices [10ms].")] = None,
    driver: Annotated[str | None, typer.Option(help="Driver on vm: deadline or burner [deadline].")] = None,
    bandwidth: Annotated[str | None, typer.Option(help="Bottleneck rate [20mbit].")] = None,
    buffer: Annotated[str | None, typer.Option(help="Bottleneck buffer [4bdp].")] = None,
    duration: Annotated[str | None, typer.Option(help="How long the flows send [5s].")] = None,
    repeat: Annotated[int, typer.Option(help="Runs of every cell on vm.")] = 3,
    added_rtt: Annotated[str, typer.Option(help="What if: add this to the RTT of the runs in virtual time.")] = "0s",
    cpu_frequency: Annotated[
        str | None, typer.Option(help="What if: model the CPU of the runs in virtual time at this frequency [off].")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory; a broken series of VMs in it is completed.")] = Path("validate"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per cell, and one for all.")] = False,
) -> None:
    """Measure the same cells on real VMs and in virtual time, and say how far they agree (about 5 minutes).

    Each run in virtual time replays the off-times that the VM's vCPU had, so nothing is tuned.
    """
    import polars as pl

    from brobust import backends
    from brobust.analysis import agreement
    from brobust.cli.measuring import MEASURED, measure, require
    from brobust.dataset import Dataset
    from brobust.kernels import virtual as virtual_kernels
    from brobust.report import validation as drawing
    from brobust.report.console import Console
    from brobust.scenario import Grid
    from brobust.scenario.grid import override
    from brobust.series import runner, validation

    asked = grid_fields(
        path={"bandwidth": bandwidth, "buffer": buffer},
        contention={"share": share, "timeslice": timeslice, "driver": driver},
        flows={"cc": cc},
        duration=duration,
    )
    what_if = _what_if(added_rtt, cpu_frequency)
    grid = Grid.from_flags({**override(FIELDS, asked), "repeat": repeat})
    backends.check(grid.scenarios)
    virtual_kernels.find()  # before minutes of VMs
    directory = out / "vm"
    dataset = demo.continued(directory, grid) or Dataset.create(directory, grid, runner.host())
    errors = Console(stderr=True)
    measure(grid, dataset, as_json=False)
    require(grid, dataset, MEASURED)
    twins, of_vm = [], []
    with errors.status("repeating every run in virtual time"):
        for name, result in validation.twins(dataset, what_if):
            here = agreement.settled(result.throughput, name)
            twins.append(result.runs.with_columns(run=pl.lit(name)).join(here, on=["run", "flow"]))
            of_vm.append(agreement.settled(dataset.throughput().filter(run=name), name))
    virtual = pl.concat(twins)
    with files.replaced(out / "virtual.parquet") as file:
        virtual.write_parquet(file)
    cells = agreement.compare(dataset.runs().join(pl.concat(of_vm), on=["run", "flow"]), virtual)
    files.write(out / "validation.csv", cells.write_csv())
    found, settled = agreement.agreement(cells), agreement.agreement(cells, "settled_ratio")
    figures = drawing.draw(cells, found, out)
    if as_json:
        for cell in cells.iter_rows(named=True):
            print(json.dumps(cell))
        overall = {"cells": found.cells, "median_abs_ln_ratio": found.median, "p90_abs_ln_ratio": found.p90}
        overall |= {"settled_median_abs_ln_ratio": settled.median, "settled_p90_abs_ln_ratio": settled.p90}
        print(json.dumps(overall))
        return
    Console().print(drawing.render(cells, found, settled))
    for figure in figures:
        print(figure)


def _what_if(added_rtt: str, cpu_frequency: str | None) -> WhatIf:
    """Refused before minutes of VMs, not after."""
    from brobust.scenario.grid import scenario
    from brobust.series.validation import WhatIf

    added = parsed("added-rtt", added_rtt, units.nanoseconds)
    if cpu_frequency is not None:
        scenario({"cpu": {"frequency": cpu_frequency}})
    return WhatIf(added, cpu_frequency)
