#!/usr/bin/env python3
"""Print the tables of docs/repair-measured.md from the dataset of `brobust reproduce repair`:

    brobust reproduce repair --scale quick --out DIR && .venv/bin/python benchmarks/repair.py DIR

What a cell and the goal are, benchmarks/cells.py says. Figures are from the run's second half except in the last column
but one.

`--oracle` prints for each cell what the best possible sender carries (python/brobust/analysis/oracle.py), and how much
it must send ahead to reach the goal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl
from cells import beside_cubic, counts, listed

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


def table(every: pl.DataFrame) -> str:
    """Return the table as Markdown, one line per control."""
    lines = [f"| {' | '.join(HEADINGS)} |", "|---|" + "--:|" * (len(HEADINGS) - 1)]
    for control in every["cc"].unique().sort():
        lines.append(
            "| {} | {goal} of {cells} | {good} | {every_seed} | {median:.2f} | {worst:.2f} | {few} "
            "| {few_with_startup} | {most_retransmitted:.1%} |".format(control, **counts(every.filter(cc=control)))
        )
    return "\n".join(lines)


def below(every: pl.DataFrame, control: str) -> str:
    """Return the cells in which a control does not reach the goal, the worst first."""
    missed = every.filter((pl.col("cc") == control) & (pl.col("ratio") < pl.col("goal")))
    return listed(missed, "RTT", "slices", "CPU", "buffer", "of CUBIC", "Mbit/s", "CUBIC", "retransmitted")


def best(evidence: Evidence, every: pl.DataFrame) -> pl.DataFrame:
    """Return a row per cell: CUBIC's throughput, the oracle's without a bound and with one round trip, and how much it
    must send ahead to reach the goal (ms; null where it cannot), all of CUBIC's runs, medians."""
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
    evidence = _evidence(tables, given.figure, Scale(given.scale), given.kernel)
    every = beside_cubic(evidence, CELL)
    if given.oracle:
        print(oracle_table(best(evidence, every), every))
        return
    print(below(every, given.below) if given.below else table(every))


if __name__ == "__main__":
    main()
