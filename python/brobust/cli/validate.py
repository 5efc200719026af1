"""`brobust validate`: how far virtual time agrees with real VMs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust import files, units
from brobust.cli import demo
from brobust.cli.options import parsed, takes_fields

if TYPE_CHECKING:
    from brobust.series.validation import WhatIf

# The demo's cells: 20 Mbit/s, where a TCG guest has CPU to spare, and 4 BDP, where CUBIC fills the link.
FIELDS = {**demo.FIELDS, "backend": "vm"}


@takes_fields(
    "flows.cc",
    "contention.share",
    "contention.timeslice",
    "contention.driver",
    "path.bandwidth",
    "path.buffer",
    "duration",
    "repeat",
    grid=FIELDS,
)
def command(
    *,
    fields: dict[str, Any],
    added_rtt: Annotated[
        str, typer.Option(metavar="TIME", help="What if: add this time to the RTT of the runs in virtual time.")
    ] = "0s",
    cpu_frequency: Annotated[
        str | None,
        typer.Option(
            metavar="FREQUENCY",
            help="What if: model the sender's CPU at this frequency in the runs in virtual time. "
            "[default: its work takes no time]",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIRECTORY", help="Directory for the results; an interrupted series of VMs in it is completed."
        ),
    ] = Path("validate"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per cell, and one for all of them.")
    ] = False,
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

    what_if = _what_if(added_rtt, cpu_frequency)
    grid = Grid.from_flags(override(FIELDS, fields))
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
    """Return what runs in virtual time change; refuse what they cannot take before minutes of VMs, not after."""
    from brobust.scenario.grid import scenario
    from brobust.series.validation import WhatIf

    added = parsed("added-rtt", added_rtt, units.nanoseconds)
    if cpu_frequency is not None:
        scenario({"cpu": {"frequency": cpu_frequency}})
    return WhatIf(added, cpu_frequency)
