#!/usr/bin/env python3
"""Print the tables of docs/repair.md, "The stack keeps its schedule", from the dataset of

    brobust run benchmarks/kept.toml --out DIR && .venv/bin/python benchmarks/kept.py DIR

A cell is a path and a contention; its figures are medians over the repeats. The goal is 95 % of CUBIC's throughput in
the same cell, 80 % with less than 1 BDP of buffer, in the run's second half. The rule was chosen on 24 of the 90 cells
("chosen"); the others ("held") were measured once it was fixed.

`--below CONTROL` prints the cells in which a control misses the goal or retransmits more than 1 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from brobust.analysis.metrics import Evidence, Tables
from brobust.dataset import Dataset

CELL = ["rtt_ms", "buffer_bdp", "timeslice_ms", "share"]
CHOSEN = (pl.col("rtt_ms") == 10) & pl.col("buffer_bdp").is_in([1.0, 12.0]) & (pl.col("share") != 0.15)


def cells(tables: Tables) -> pl.DataFrame:
    """Return a row per cell and control: throughput over CUBIC's, parts retransmitted, queueing delay."""
    evidence = Evidence(tables, tables.runs["run"].unique().to_list())
    of_run = evidence.values("late_mbps").select("run", *CELL, "cc", "pacing", late="value")
    queues = evidence.flows.group_by("run").agg(pl.col("queue_mean_ms").mean())
    of_run = of_run.join(queues, on="run")
    for metric in ("late_retransmit_share", "retransmit_share"):
        of_run = of_run.join(evidence.values(metric).select("run", pl.col("value").alias(metric)), on="run")
    figures = pl.col("late", "late_retransmit_share", "retransmit_share", "queue_mean_ms").median()
    each = of_run.group_by(*CELL, "cc", "pacing").agg(figures, n=pl.len())
    cubic = each.filter((pl.col("cc") == "cubic") & (pl.col("pacing") == "kernel")).select(*CELL, cubic="late")
    return each.join(cubic, on=CELL).with_columns(
        ratio=pl.col("late") / pl.col("cubic"),
        goal=pl.when(pl.col("buffer_bdp") >= 1).then(0.95).otherwise(0.8),
        part=pl.when(CHOSEN).then(pl.lit("chosen")).otherwise(pl.lit("held")),
    )


def table(every: pl.DataFrame) -> str:
    """Return a line of Markdown per control and part."""
    headings = (
        "control, pacing", "cells", "goal", "at least 80 %", "of CUBIC, median", "worst", "at most 1 % retransmitted",
        "at most 2 % with STARTUP", "most retransmitted", "queueing delay, median cell",
    )  # fmt: skip
    lines = [f"| {' | '.join(headings)} |", "|---|---|" + "--:|" * (len(headings) - 2)]
    for (cc, pacing, part), of in every.group_by("cc", "pacing", "part", maintain_order=True):
        counted = of.select(
            goal=(pl.col("ratio") >= pl.col("goal")).sum(), most=(pl.col("ratio") >= 0.8).sum(),
            few=(pl.col("late_retransmit_share") <= 0.01).sum(), start=(pl.col("retransmit_share") <= 0.02).sum(),
            median=pl.col("ratio").median(), worst=pl.col("ratio").min(), queue=pl.col("queue_mean_ms").median(),
            retransmitted=pl.col("late_retransmit_share").max(),
        ).row(0, named=True)  # fmt: skip
        lines.append(
            "| {}, {} | {} {} | {goal} | {most} | {median:.2f} | {worst:.2f} | {few} | {start} | {retransmitted:.1%} "
            "| {queue:.1f} ms |".format(cc, pacing, of.height, part, **counted)
        )
    return "\n".join(lines)


def below(every: pl.DataFrame, control: str) -> str:
    """Return the cells in which a control with a kept schedule misses the goal or retransmits more than 1 %."""
    lines = [
        "| RTT | buffer | timeslice | CPU | of CUBIC | Mbit/s | retransmitted |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    missed = (pl.col("ratio") < pl.col("goal")) | (pl.col("late_retransmit_share") > 0.01)
    for row in every.filter((pl.col("cc") == control) & missed).sort("ratio").iter_rows(named=True):
        cell = f"{row['rtt_ms']:g} ms | {row['buffer_bdp']:g} BDP | {row['timeslice_ms']:g} ms | {row['share']:.0%}"
        lines.append(f"| {cell} | {row['ratio']:.2f} | {row['late']:.1f} | {row['late_retransmit_share']:.1%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what `brobust run benchmarks/kept.toml` was given as --out")
    parser.add_argument("--below", metavar="CONTROL", help="the cells in which it misses the goal")
    given = parser.parse_args()
    every = cells(Tables(Dataset.open(given.directory))).sort("cc", "pacing", "part", *CELL)
    print(below(every, given.below) if given.below else table(every))


if __name__ == "__main__":
    main()
