#!/usr/bin/env python3
"""Print the tables of docs/repair-measured.md, "The kept schedule in the same cells", from the dataset of

    brobust run benchmarks/kept.toml --out DIR && .venv/bin/python benchmarks/kept.py DIR

What a cell and the goal are, benchmarks/cells.py says. The rule was chosen on 24 of the 90 cells ("chosen"); the others
("held") were measured once it was fixed.

`--below CONTROL`, such as `--below bbr/kept`, prints the cells in which a control misses the goal or retransmits more
than 1 %. `--losses` compares each cell of kept_loss.toml with the same cell without random loss.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from cells import beside_cubic, counts, listed
from controls import cc_and_pacing

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
    """Return a line of Markdown per control, and per part for those with a kept schedule."""
    headings = (
        "control, pacing", "cells", "goal", "at least 80 %", "of CUBIC, median", "worst", "at most 1 % retransmitted",
        "at most 2 % with STARTUP", "most retransmitted", "queueing delay, median cell",
    )  # fmt: skip
    lines = [f"| {' | '.join(headings)} |", "|---|---|" + "--:|" * (len(headings) - 2)]
    kept = every.filter(pacing="kept").group_by("cc", "pacing", "part", maintain_order=True)
    whole = every.with_columns(part=pl.lit("all")).group_by("cc", "pacing", "part", maintain_order=True)
    for (cc, pacing, part), of in [*whole, *kept]:
        queue_ms = of.select(pl.col("queue_mean_ms").median()).item()
        lines.append(
            "| {}, {} | {cells} {} | {goal} | {good} | {median:.2f} | {worst:.2f} | {few} | {few_with_startup} "
            "| {most_retransmitted:.1%} | {:.1f} ms |".format(cc, pacing, part, queue_ms, **counts(of))
        )
    return "\n".join(lines)


def below(every: pl.DataFrame, control: str) -> str:
    """Return the cells in which a control, such as bbr or bbr/kept, misses the goal or retransmits more than 1 %."""
    cc, pacing = cc_and_pacing(control)
    missed = (pl.col("ratio") < pl.col("goal")) | (pl.col("late_retransmitted") > 0.01)
    headings = ("RTT", "buffer", "timeslice", "CPU", "of CUBIC", "Mbit/s", "retransmitted")
    return listed(every.filter(missed, cc=cc, pacing=pacing), *headings)


def losses(tables: Tables) -> str:
    """Return a line of Markdown per control and random loss: in how many cells it carries 80 % of what it carries there
    without that loss, and how much of it; throughput of the second half, medians over the repeats."""
    evidence = Evidence(tables, tables.runs["run"].unique().to_list())
    of = evidence.values("late_mbps").group_by("cc", "loss", *CELL).agg(mbps=pl.col("value").median())
    without = of.filter(loss=0).select("cc", *CELL, without="mbps")
    of = of.join(without, on=["cc", *CELL]).with_columns(ratio=pl.col("mbps") / pl.col("without"))
    lines = ["| control | random loss | cells | at least 0.8 | median | 10 % | worst |", "|---|" + "--:|" * 6]
    for (cc, loss), cells in (
        of.filter(pl.col("loss") > 0).sort("cc", "loss").group_by("cc", "loss", maintain_order=True)
    ):
        ratio = pl.col("ratio")
        spread = cells.select(a=ratio.median(), b=ratio.quantile(0.1), c=ratio.min()).row(0)
        good = cells.filter(ratio >= 0.8).height
        figures = " | ".join(f"{value:.2f}" for value in spread)
        lines.append(f"| {cc} | {loss:.1%} | {cells.height} | {good} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what `brobust run benchmarks/kept.toml` was given as --out")
    parser.add_argument("--below", metavar="CONTROL", help="the cells in which it misses the goal")
    parser.add_argument("--losses", action="store_true", help="random loss: DIR is of benchmarks/kept_loss.toml")
    given = parser.parse_args()
    if given.losses:
        print(losses(Tables(Dataset.open(given.directory))))
        return
    every = cells(Tables(Dataset.open(given.directory))).sort("cc", "pacing", "part", *CELL)
    print(below(every, given.below) if given.below else table(every))


if __name__ == "__main__":
    main()
