"""The command `brobust validate`: how well virtual time agrees with real VMs, or your own hosts."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brobust import extras, files, units
from brobust.cli import demo
from brobust.cli.options import parsed, report_option, takes_fields
from brobust.errors import BadInput
from brobust.lazily import pl

if TYPE_CHECKING:
    from brobust.dataset import Dataset
    from brobust.series.validation import WhatIf

# The demo's cells: a TCG guest can carry 20 Mbit/s, and with a buffer of 4 BDP CUBIC fills the link.
FIELDS = {**demo.FIELDS, "backend": "vm"}


@takes_fields(
    "flows.cc", "contention.share", "contention.timeslice", "contention.driver", "path.bandwidth", "path.rtt",
    "path.buffer", "duration", "repeat", "accelerator", "kernel", "backend", "hosts", grid=FIELDS,
)  # fmt: skip
def validate(
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
    adaptive_rx: Annotated[
        str,
        typer.Option(
            metavar="CHOICE",
            help="What if: on lets the NICs in virtual time choose how long interrupts wait (nic.adaptive_rx).",
        ),
    ] = "off",
    out: Annotated[
        Path,
        typer.Option(metavar="DIRECTORY", help="Directory for the results; an interrupted series in it is completed."),
    ] = Path("validate"),
    report: Annotated[Path | None, report_option("the figures and what this machine is")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per cell, and one for all of them.")
    ] = False,
) -> None:
    """Measure the same cells in real time and in virtual time, and say how well they agree (about 5 minutes).

    Each run in virtual time replays the off-times that the sender's vCPU had, so nothing is tuned to make them agree.
    What runs in real time is VMs of this machine, or with --backend lab --hosts FILE your own hosts (docs/lab.md).
    """
    from brobust import backends
    from brobust.host import machine
    from brobust.scenario import Grid
    from brobust.scenario.grid import override

    what_if = _what_if(added_rtt, cpu_frequency, adaptive_rx)
    if report:
        machine.check(report)
    real = fields.get("backend", "vm")
    if real not in ("vm", "lab"):
        given = real if isinstance(real, str) else ",".join(real)
        raise BadInput(f"--backend: {given!r} is nothing to compare virtual time with; give vm or lab")
    grid = Grid.from_flags(override(FIELDS, fields))
    directory = out / real
    backends.check_written(grid.as_written)
    demo.check_directory(directory, grid)
    extras.require("brobust validate")
    from brobust.analysis import agreement
    from brobust.cli.measuring import MEASURED, measure, require
    from brobust.dataset import Dataset
    from brobust.report import validation as drawing
    from brobust.report.console import Console
    from brobust.series import runner, validation

    if (shortest := min(scenario.duration for scenario in grid.scenarios)) <= agreement.SETTLED_AFTER_S * 10**9:
        raise BadInput(
            f"duration: {units.show_time(shortest)} is too short to compare what follows the first "
            f"{agreement.SETTLED_AFTER_S} s; give 3s or more"
        )
    backends.check(grid)
    validation.check(grid.scenarios, what_if)
    dataset = demo.continued(directory, grid) or Dataset.create(directory, grid, runner.host())
    errors = Console(stderr=True)
    load_before = machine.load()
    measure(grid, dataset, as_json=False)
    require(grid, dataset, MEASURED)
    with errors.status("repeating every run in virtual time"):
        virtual, cells = _compared(dataset, what_if, real)
    files.write_table(out / "virtual.parquet", virtual)
    files.write(out / "validation.csv", cells.write_csv())
    # With accelerator uml the same kernel runs in real and in virtual time, so they should agree more closely.
    is_uml = all(scenario.accelerator == "uml" for scenario in grid.scenarios)
    aims = agreement.AIMS_WITH_UML if is_uml else agreement.AIMS
    whole, settled_part = (agreement.agreement(cells, ratio, aims) for ratio in ("ratio", "settled_ratio"))
    figures = drawing.draw(cells, whole, out, real)
    if report:
        hosts = validation.hosts_of(dataset)
        figures_of_report = drawing.for_report(cells, whole, settled_part, dataset.runs(), what_if.in_words(), hosts)
        machine.write(report, validation={**figures_of_report, "load_before": load_before})
    if as_json:
        for cell in cells.iter_rows(named=True):
            print(json.dumps(_finite(cell)))
        overall = {"cells": whole.cells, "median_abs_ln_ratio": whole.median, "p90_abs_ln_ratio": whole.p90}
        overall |= {"settled_median_abs_ln_ratio": settled_part.median, "settled_p90_abs_ln_ratio": settled_part.p90}
        print(json.dumps(_finite(overall)))
        return
    Console().print_whole(drawing.render(cells, whole, settled_part, real))
    for figure in [*figures, *([report] if report else [])]:
        print(figure)


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return null in place of what JSON has no number for, such as the ratio where one backend carried nothing."""
    return {key: None if isinstance(one, float) and not math.isfinite(one) else one for key, one in values.items()}


def _compared(dataset: Dataset, what_if: WhatIf, real: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Repeat the runs in virtual time. Return the rows of these, and the cells with the medians of both backends;
    `real` is the one that has measured the dataset."""
    from brobust.analysis import agreement
    from brobust.series import validation

    throughput = dataset.throughput()
    replayed, in_real_time = [], []
    # Closed here, so that runs under way are stopped before an interrupt is caught.
    with contextlib.closing(validation.replay_in_virtual_time(dataset, what_if)) as repeated:
        for name, result in repeated:
            settled = agreement.settled(result.throughput, name)
            replayed.append(result.runs.with_columns(run=pl.lit(name)).join(settled, on=["run", "flow"]))
            in_real_time.append(agreement.settled(throughput.filter(run=name), name))
    virtual = pl.concat(replayed)
    return virtual, agreement.compare(dataset.runs().join(pl.concat(in_real_time), on=["run", "flow"]), virtual, real)


def _what_if(added_rtt: str, cpu_frequency: str | None, adaptive_rx: str) -> WhatIf:
    """Return the what-if options as a value; refuse a bad one now, before VMs run for minutes."""
    from brobust.scenario.grid import scenario
    from brobust.series.validation import WhatIf

    added = parsed("added-rtt", added_rtt, units.nanoseconds)
    if cpu_frequency is not None:
        scenario({"cpu": {"frequency": cpu_frequency}}, as_written=True)
    scenario({"nic": {"adaptive_rx": adaptive_rx}}, as_written=True)
    return WhatIf(added, cpu_frequency, adaptive_rx)
