#!/usr/bin/env python3
"""Measure repairs in 200 cells that nobody tuned them on:

    .venv/bin/python benchmarks/held_out.py --out DIR                         # measures what DIR lacks, then the table
    .venv/bin/python benchmarks/held_out.py --out DIR --control bbr/kept      # one more control, in the same cells
    .venv/bin/python benchmarks/held_out.py --out DIR --by schedule --csv docs/data/held-out.csv
    .venv/bin/python benchmarks/held_out.py --draw                            # the cells: docs/data/held-out-draw.csv

The cells were drawn by a fixed seed, and committed, after the last change of the repair's rule (cc/steady.h,
cc/repair.h and kernel/patches/kept, 30 November 2026; steady_recall came on 1 December, and was chosen on other cells)
and before any was measured. The draw must not be changed: tests/test_held_out.py compares it with the committed one.
Whoever changes the rule after a look at these cells draws others, by another SEED. Every control has the same cell with
the same seed, so the same timeslices and, packet by packet, the same draws of loss. A control is a name of `--cc`, and
after a slash how TCP paces (`bbr/kept`: `--cc bbr --pacing kept`).

A run lasts 10 s, or 200 round trips if those are longer; figures are of its second half, except for the queueing delay,
which is the mean over the run. Printed for each control over the cells: median, 10th percentile and minimum of its
throughput over CUBIC's in the same cell, and over that of BBR with all of its CPU; the number of cells with at least
0.95 and 0.8 of CUBIC's; median, 90th percentile and maximum of what it retransmits; and median and 90th percentile of
the queueing delay, in round trips. Each line says in how many cells that was measured: where fq paces, the rules
`linux-4.14` and `draft` of TCP's own pacing have no run.

All cells take a minute or two of CPU for each control.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from controls import CONTROLS, UNDISTURBED, cc_and_pacing, measured

from brobust.analysis.metrics import Evidence, Tables
from brobust.dataset import Dataset
from brobust.scenario import Grid, Run

SEED = 20261130
CELLS = 200
SCHEDULES: dict[str, dict[str, Any]] = {
    "exact": {"driver": "auto"},
    "lengths": {"driver": "auto", "length_jitter": 0.2},
    "deadline-250": {"driver": "deadline"},
    "deadline-1000": {"driver": "deadline:hz=1000"},
    "deadline-idle": {"driver": "deadline:idle"},
    "quota-250": {"driver": "quota"},
    "quota-1000": {"driver": "quota:hz=1000"},
    "late": {"driver": "late:chance=10%"},
}
"""What takes the CPU away (docs/scenario.md). `late` is an idle vCPU that is woken late at times: if it were late every
time, an off-time would be added to every round trip."""
MIN_SECONDS, MIN_ROUND_TRIPS = 10, 200
OF_TCP_ALONE = ("linux-4.14", "draft")
"""Rules of TCP's own pacing, which do not act where fq paces."""
GROUPS = ("schedule", "loss", "qdisc")

Cell = dict[str, Any]


def draw() -> list[Cell]:
    """Return the cells, in their order: rate in Mbit/s, RTT and timeslice in ms, share and loss as fractions, buffer in
    BDP. Whatever spans more than one order of magnitude is drawn uniformly by its logarithm."""
    drawn = random.Random(SEED)

    def logarithmic(low: float, high: float) -> float:
        return math.exp(drawn.uniform(math.log(low), math.log(high)))

    return [
        {
            "cell": number,
            "rate_mbps": round(logarithmic(20, 500), 1),
            "rtt_ms": round(logarithmic(5, 100), 1),
            "buffer_bdp": round(logarithmic(0.5, 20), 2),
            "schedule": drawn.choice(list(SCHEDULES)),
            "timeslice_ms": round(logarithmic(2, 30), 1),
            "share": round(drawn.uniform(0.12, 0.65), 3),
            "loss": round(drawn.uniform(0, 0.01), 5) if drawn.random() < 0.5 else 0.0,
            "qdisc": drawn.choice(["none", "fq"]),
        }
        for number in range(CELLS)
    ]


def fields(cell: Cell, control: str) -> dict[str, Any] | None:
    """Return the scenario of a control in a cell; None where the control's pacing does not act."""
    cc, pacing = cc_and_pacing(control)
    if pacing in OF_TCP_ALONE and cell["qdisc"] == "fq":
        return None
    slices = {"timeslice": f"{cell['timeslice_ms']}ms", "share": cell["share"], **SCHEDULES[cell["schedule"]]}
    return {
        "path": {
            "bandwidth": f"{cell['rate_mbps']}mbit", "rtt": f"{cell['rtt_ms']}ms", "buffer": f"{cell['buffer_bdp']}bdp",
            "loss": cell["loss"],
        },
        "contention": {"share": 1} if control == UNDISTURBED else slices,
        "flows": [{"cc": cc}],
        "qdisc": cell["qdisc"],
        "pacing": pacing,
        "samples": "100ms",
        "duration": f"{max(MIN_SECONDS, math.ceil(cell['rtt_ms'] * MIN_ROUND_TRIPS / 1e3))}s",
        "seed": cell["cell"] + 1,
    }  # fmt: skip


def run_of(cell: Cell, control: str) -> Run | None:
    given = fields(cell, control)
    return None if given is None else Grid(given).runs()[0]


def results(dataset: Dataset, cells: Sequence[Cell], controls: Iterable[str]) -> pl.DataFrame:
    """Return a row per cell and control: throughput (Mbit/s), its ratios to CUBIC's and to undisturbed BBR's, the part
    retransmitted (fraction) and the mean queueing delay (ms, and in round trips)."""
    named = [
        {**cell, "control": control, "run": run.id}
        for cell in cells
        for control in controls
        if (run := run_of(cell, control)) is not None
    ]
    table = pl.DataFrame(named)
    evidence = Evidence(Tables(dataset), table["run"].unique().to_list())
    for metric, name in (
        ("late_mbps", "mbps"), ("late_retransmit_share", "retransmitted"), ("queue_mean_ms", "queue_ms"),
    ):  # fmt: skip
        of_runs = evidence.values(metric).select("run", pl.col("value").alias(name))
        table = table.join(of_runs, on="run", how="left")
    for control, name in (("cubic", "of_cubic"), (UNDISTURBED, "of_undisturbed")):
        base = table.filter(control=control).select("cell", base="mbps")
        table = table.join(base, on="cell").with_columns((pl.col("mbps") / pl.col("base")).alias(name)).drop("base")
    return table.with_columns(queue_rtts=pl.col("queue_ms") / pl.col("rtt_ms")).sort("cell", "control")


def with_groups(table: pl.DataFrame) -> pl.DataFrame:
    """Return the table with loss and queue discipline in words."""
    return table.with_columns(
        loss=pl.when(pl.col("loss") > 0).then(pl.lit("0 to 1 %")).otherwise(pl.lit("none")),
        qdisc=pl.when(pl.col("qdisc") == "fq").then(pl.lit("fq")).otherwise(pl.lit("TCP's own pacing")),
    )


QUANTILES = {
    "of_cubic": {"median": 0.5, "p10": 0.1, "min": 0}, "of_undisturbed": {"median": 0.5, "p10": 0.1, "min": 0},
    "retransmitted": {"median": 0.5, "p90": 0.9, "max": 1}, "queue_rtts": {"median": 0.5, "p90": 0.9},
}  # fmt: skip


def summary(table: pl.DataFrame) -> dict[str, float]:
    """Return what is printed of one control in some cells."""

    def at(column: str) -> dict[str, float]:
        values = table[column].drop_nulls().to_numpy()
        return {f"{column}_{name}": float(np.quantile(values, part)) for name, part in QUANTILES[column].items()}

    return {
        "cells": table.height,
        **at("of_cubic"),
        "cells_at_95_percent_of_cubic": table.filter(pl.col("of_cubic") >= 0.95).height,
        "cells_at_80_percent_of_cubic": table.filter(pl.col("of_cubic") >= 0.8).height,
        **at("of_undisturbed"),
        **at("retransmitted"),
        **at("queue_rtts"),
    }


HEADINGS = (
    "control", "cells", "of CUBIC: median, 10 %, worst", "0.95, 0.8 of CUBIC",
    "of undisturbed BBR: median, 10 %, worst", "retransmitted: median, 90 %, worst", "queue, RTTs: median, 90 %",
)  # fmt: skip


def written(lines: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Return the table's lines as texts, in the order of HEADINGS."""
    return [
        (
            name,
            f"{of['cells']:.0f}",
            f"{of['of_cubic_median']:.2f}, {of['of_cubic_p10']:.2f}, {of['of_cubic_min']:.2f}",
            f"{of['cells_at_95_percent_of_cubic']:.0f}, {of['cells_at_80_percent_of_cubic']:.0f}",
            f"{of['of_undisturbed_median']:.2f}, {of['of_undisturbed_p10']:.2f}, {of['of_undisturbed_min']:.2f}",
            f"{of['retransmitted_median']:.1%}, {of['retransmitted_p90']:.1%}, {of['retransmitted_max']:.1%}",
            f"{of['queue_rtts_median']:.2f}, {of['queue_rtts_p90']:.2f}",
        )
        for name, of in lines.items()
    ]


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return the table as Markdown."""
    rule = "|---|" + "--:|" * (len(HEADINGS) - 1)
    head, *rows = (f"| {' | '.join(line)} |" for line in (HEADINGS, *lines))
    return "\n".join([head, rule, *rows])


def _csv(table: pl.DataFrame) -> str:
    figures = pl.col("mbps", "queue_ms").round_sig_figs(4), pl.col("retransmitted").round(5)
    return table.select("cell", "control", *figures).write_csv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the dataset; what it lacks is measured")
    parser.add_argument(
        "--control", action="append", help=f"CC or CC/PACING, again for more; else {', '.join(CONTROLS)}"
    )
    parser.add_argument("--cells", type=int, default=CELLS, help=f"the first N cells only, 1 to {CELLS}")
    parser.add_argument("--jobs", type=int, help="runs at a time; else one for each CPU")
    parser.add_argument("--by", choices=GROUPS, help="a table for each schedule, for cells with and without loss, ...")
    parser.add_argument("--json", action="store_true", help="the same figures for a program, one object per line")
    parser.add_argument("--csv", type=Path, help="write a row per cell and control")
    parser.add_argument("--table", type=Path, help="write the printed table as CSV, too")
    parser.add_argument("--draw", action="store_true", help="print the cells as CSV, and measure nothing")
    given = parser.parse_args()
    if not 1 <= given.cells <= CELLS:
        parser.error(f"--cells: {given.cells} is not allowed: give 1 to {CELLS}")
    if given.draw:
        sys.stdout.write(pl.DataFrame(draw()).write_csv())
        return
    if given.out is None:
        parser.error("--out is missing: give the directory of the dataset, or --draw")
    cells = draw()[: given.cells]
    # CUBIC and undisturbed BBR are what the others are compared with.
    controls = list(dict.fromkeys([*(given.control or CONTROLS), "cubic", UNDISTURBED]))
    wanted = [run for cell in cells for control in controls if (run := fields(cell, control)) is not None]
    table = with_groups(results(measured(given.out, wanted, given.jobs), cells, controls))
    if given.csv is not None:
        given.csv.write_text(_csv(table))
    every: list[tuple[str, ...]] = []
    for group in table[given.by].unique().sort() if given.by else [None]:
        of_group = table if group is None else table.filter(pl.col(given.by) == group)
        lines = {control: summary(of_group.filter(control=control)) for control in controls}
        if given.json:
            for control, figures in lines.items():
                print(json.dumps({**({} if group is None else {given.by: group}), "control": control, **figures}))
        else:
            print(f"\n{given.by}: {group}\n" if group is not None else "", markdown(written(lines)), sep="\n")
        every += [(group or "all", *line) for line in written(lines)]
    if given.table is not None:
        pl.DataFrame(every, schema=["cells of", *HEADINGS], orient="row").write_csv(given.table)


if __name__ == "__main__":
    main()
