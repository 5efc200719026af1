#!/usr/bin/env python3
"""Print the tables of docs/repair.md, "The stack keeps its schedule", from the dataset of

    brobust run benchmarks/kept.toml --out DIR && .venv/bin/python benchmarks/kept.py DIR

What a cell and the goal are, benchmarks/cells.py says. The rule was chosen on 24 of the 90 cells ("chosen"); the others
("held") were measured once it was fixed.

`--below CONTROL` prints the cells in which a control misses the goal or retransmits more than 1 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from cells import beside_cubic, counts, listed

from brobust.analysis.metrics import Evidence, Tables
from brobust.dataset import Dataset

CELL = ["rtt_ms", "buffer_bdp", "timeslice_ms", "share"]
CHOSEN = (pl.col("rtt_ms") == 10) & pl.col("buffer_bdp").is_in([1.0, 12.0]) & (pl.col("share") != 0.15)


def cells(tables: Tables) -> pl.DataFrame:
    """Return a row per cell and control, and to which part the cell belongs."""
    evidence = Evidence(tables, tables.runs["run"].unique().to_list())
    every = beside_cubic(evidence, CELL, ("cc", "pacing"), ("queue_mean_ms",))
    return every.with_columns(part=pl.when(CHOSEN).then(pl.lit("chosen")).otherwise(pl.lit("held")))


def table(every: pl.DataFrame) -> str:
    """Return a line of Markdown per control and part."""
    headings = (
        "control, pacing", "cells", "goal", "at least 80 %", "of CUBIC, median", "worst", "at most 1 % retransmitted",
        "at most 2 % with STARTUP", "most retransmitted", "queueing delay, median cell",
    )  # fmt: skip
    lines = [f"| {' | '.join(headings)} |", "|---|---|" + "--:|" * (len(headings) - 2)]
    for (cc, pacing, part), of in every.group_by("cc", "pacing", "part", maintain_order=True):
        queue_ms = of.select(pl.col("queue_mean_ms").median()).item()
        lines.append(
            "| {}, {} | {cells} {} | {goal} | {good} | {median:.2f} | {worst:.2f} | {few} | {few_with_startup} "
            "| {most_retransmitted:.1%} | {:.1f} ms |".format(cc, pacing, part, queue_ms, **counts(of))
        )
    return "\n".join(lines)


def below(every: pl.DataFrame, control: str) -> str:
    """Return the cells in which a control with a kept schedule misses the goal or retransmits more than 1 %."""
    missed = (pl.col("ratio") < pl.col("goal")) | (pl.col("late_retransmitted") > 0.01)
    headings = ("RTT", "buffer", "timeslice", "CPU", "of CUBIC", "Mbit/s", "retransmitted")
    return listed(every.filter((pl.col("cc") == control) & missed), *headings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what `brobust run benchmarks/kept.toml` was given as --out")
    parser.add_argument("--below", metavar="CONTROL", help="the cells in which it misses the goal")
    given = parser.parse_args()
    every = cells(Tables(Dataset.open(given.directory))).sort("cc", "pacing", "part", *CELL)
    print(below(every, given.below) if given.below else table(every))


if __name__ == "__main__":
    main()
