#!/usr/bin/env python3
"""Print the tables of docs/repair.md from the dataset of `brobust reproduce repair`:

    brobust reproduce repair --scale quick --out DIR && .venv/bin/python benchmarks/repair.py DIR

A cell is a path and a contention. Its figures are medians over the repeats, from the run's second half except in the
last column but one. The goal is 95 % of CUBIC's throughput in the same cell, 80 % with less than 1 BDP of buffer.

`--oracle` prints for each cell what the best possible sender carries (python/brobust/analysis/oracle.py), and how much
it must send ahead to reach the goal.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import polars as pl

from brobust.analysis import metrics, oracle
from brobust.analysis.metrics import Evidence, Tables
from brobust.dataset import Dataset
from brobust.scenario import Grid
from brobust.study import Scale, model

CELL = ["rtt_ms", "timeslice_ms", "share", "buffer_bdp"]
HEADINGS = (
    "control", "goal", "at least 80 % of CUBIC", "every seed at least 60 %", "of CUBIC, median cell", "worst cell",
    "at most 1 % retransmitted", "at most 2 % with STARTUP", "most retransmitted",
)  # fmt: skip

ORACLE_HEADINGS = (
    "RTT", "slices", "CPU", "buffer", "oracle", "one round trip ahead", "CUBIC", "ahead needed for the goal",
)  # fmt: skip


def _evidence(tables: Tables, figure: str, scale: Scale, kernel: str | None) -> Evidence:
    (study,) = (study for study in model.of_paper("repair") if study.figure == figure)
    grid = Grid((study.on_kernels([kernel]) if kernel else study).fields(scale, "virtual") or {})
    return Evidence(tables, [run.id for run in grid.runs()])


def cells(tables: Tables, figure: str, scale: Scale, kernel: str | None) -> pl.DataFrame:
    """Return a row per cell and control: throughput / CUBIC's (`ratio`; `least` of the repeats), retransmissions."""
    evidence = _evidence(tables, figure, scale, kernel)
    late = evidence.values("late_mbps").select("run", *CELL, "cc", late="value")
    for metric in ("late_retransmit_share", "retransmit_share"):
        late = late.join(evidence.values(metric).select("run", pl.col("value").alias(metric)), on="run")
    each = late.group_by(*CELL, "cc").agg(
        pl.col("late", "late_retransmit_share", "retransmit_share").median(), least=pl.col("late").min()
    )
    cubic = each.filter(cc="cubic").select(*CELL, cubic="late")
    return each.join(cubic, on=CELL).with_columns(
        ratio=pl.col("late") / pl.col("cubic"),
        least=pl.col("least") / pl.col("cubic"),
        goal=pl.when(pl.col("buffer_bdp") >= 1).then(0.95).otherwise(0.8),
    )


def table(every: pl.DataFrame) -> str:
    """Return the table as Markdown, one line per control."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|" + "--:|" * (len(HEADINGS) - 1)]
    for control in every["cc"].unique().sort():
        of = every.filter(cc=control)
        ratios, retransmitted = of["ratio"].to_list(), of["late_retransmit_share"].to_list()
        figures = (
            f"{of.filter(pl.col('ratio') >= pl.col('goal')).height} of {of.height}",
            str(of.filter(pl.col("ratio") >= 0.8).height),
            str(of.filter(pl.col("least") >= 0.6).height),
            f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f}",
            str(of.filter(pl.col("late_retransmit_share") <= 0.01).height),
            str(of.filter(pl.col("retransmit_share") <= 0.02).height),
            f"{max(retransmitted):.1%}",
        )
        lines.append(f"| {control} | {' | '.join(figures)} |")
    return "\n".join(lines)


def below(every: pl.DataFrame, control: str) -> str:
    """Return the cells in which a control does not reach the goal, the worst first."""
    lines = [
        "| RTT | slices | CPU | buffer | of CUBIC | Mbit/s | CUBIC | retransmitted |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    missed = every.filter((pl.col("cc") == control) & (pl.col("ratio") < pl.col("goal"))).sort("ratio")
    for row in missed.iter_rows(named=True):
        cell = f"{row['rtt_ms']:g} ms | {row['timeslice_ms']:g} ms | {row['share']:.0%} | {row['buffer_bdp']:g} BDP"
        rates = f"{row['ratio']:.2f} | {row['late']:.1f} | {row['cubic']:.1f} | {row['late_retransmit_share']:.1%}"
        lines.append(f"| {cell} | {rates} |")
    return "\n".join(lines)


def best(tables: Tables, every: pl.DataFrame, figure: str, scale: Scale, kernel: str | None) -> pl.DataFrame:
    """Return a row per cell: CUBIC's throughput, the oracle's without a bound and with one round trip, and how much it
    must send ahead to reach the goal (ms; null where it cannot), all of CUBIC's runs, medians."""
    evidence = _evidence(tables, figure, scale, kernel)
    of_run = evidence.runs.filter(cc="cubic").select("run", *CELL)
    for metric in ("oracle_mbps", "oracle_one_rtt_mbps"):
        of_run = of_run.join(evidence.values(metric).select("run", pl.col("value").alias(metric)), on="run")
    goals = every.filter(cc="cubic").select(*CELL, "cubic", "goal")
    of_run = of_run.join(goals, on=CELL)
    wanted = {run: cubic * goal for run, cubic, goal in of_run.select("run", "cubic", "goal").iter_rows()}
    ahead = []
    for run, slices, path in metrics.when_it_ran(evidence):
        if run in wanted:
            link = path["bandwidth_mbps"], path["buffer_bytes"], path["from_s"], path["to_s"]
            needed = oracle.ahead_needed_s(slices, *link, wanted[run])
            ahead.append((run, None if needed is None else needed * 1e3))
    found = pl.DataFrame(ahead, schema={"run": pl.String, "ahead_ms": pl.Float64}, orient="row")
    columns = pl.col("cubic", "goal", "oracle_mbps", "oracle_one_rtt_mbps", "ahead_ms").median()
    return of_run.join(found, on="run").group_by(CELL).agg(columns).sort(CELL)


def oracle_table(cells: pl.DataFrame, of: pl.DataFrame) -> str:
    """Return the oracle's cells as Markdown, with what each control of `of` has of the oracle; two sums before it."""
    controls = [control for control in of["cc"].unique().sort() if control != "cubic"]
    each = cells.rows(named=True)
    reached, with_bound = (sum(_reaches(row, name) for row in each) for name in ("oracle_mbps", "oracle_one_rtt_mbps"))
    lines = [
        f"the oracle reaches the goal in {reached} of {len(each)} cells; with one round trip ahead in {with_bound}",
        "",
        "".join(f"| {heading} " for heading in (*ORACLE_HEADINGS, *controls)) + "|",
        "|" + "--:|" * (len(ORACLE_HEADINGS) + len(controls)),
    ]
    late = {row[:5]: row[5] for row in of.select(*CELL, "cc", "late").iter_rows()}
    for row in each:
        cell = tuple(row[name] for name in CELL)
        carried = "".join(f" {late[(*cell, control)]:.1f} |" for control in controls)
        ahead = "-" if row["ahead_ms"] is None else f"{row['ahead_ms']:.1f} ms"
        lines.append(
            f"| {row['rtt_ms']:g} ms | {row['timeslice_ms']:g} ms | {row['share']:.0%} | {row['buffer_bdp']:g} BDP "
            f"| {row['oracle_mbps']:.1f} | {row['oracle_one_rtt_mbps']:.1f} | {row['cubic']:.1f} | {ahead} |{carried}"
        )
    return "\n".join(lines)


def _reaches(row: dict[str, float], oracles: str) -> bool:
    return row[oracles] >= row["goal"] * row["cubic"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="what `brobust reproduce repair` was given as --out")
    parser.add_argument("--scale", default="quick", choices=[scale.value for scale in Scale])
    parser.add_argument("--figure", default="throughput", choices=["throughput", "ablation"])
    parser.add_argument("--kernel", help="what it was given as --kernel")
    parser.add_argument("--below", metavar="CONTROL", help="the cells in which it does not reach the goal")
    parser.add_argument("--oracle", action="store_true", help="what the best possible sender carries in each cell")
    given = parser.parse_args()
    tables = Tables(Dataset.open(given.directory / "data"))
    which = given.figure, Scale(given.scale), given.kernel
    every = cells(tables, *which)
    if given.oracle:
        print(oracle_table(best(tables, every, *which), every))
        return
    print(below(every, given.below) if given.below else table(every))


if __name__ == "__main__":
    main()
