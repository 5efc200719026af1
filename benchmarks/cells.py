"""What the tables of repairs have in common: cells, in each of which a control is compared with CUBIC.

A cell is a path and a contention; its figures are medians over the repeats. The goal is 95 % of CUBIC's throughput in
the same cell, 80 % with less than 1 BDP of buffer. Throughput is that of the run's second half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from brobust.analysis.metrics import Evidence

METRICS = {"late_mbps": "late", "late_retransmit_share": "late_retransmitted", "retransmit_share": "retransmitted"}


def beside_cubic(
    evidence: Evidence, cell: Sequence[str], control: Sequence[str] = ("cc",), more: Sequence[str] = ()
) -> pl.DataFrame:
    """Return a row per cell and control: throughput (`late`, Mbit/s), CUBIC's with the kernel's own pacing (`cubic`),
    their `ratio`, that of the repeat with the least (`least`), the parts that were retransmitted, and further metrics.

    `control` are the columns that tell controls apart: `cc`, perhaps `pacing`."""
    metrics = METRICS | {metric: metric for metric in more}
    of_runs = evidence.runs.select("run", *cell, *control)
    for metric, name in metrics.items():
        of_runs = of_runs.join(evidence.values(metric).select("run", pl.col("value").alias(name)), on="run")
    each = of_runs.group_by(*cell, *control).agg(pl.col(metrics.values()).median(), least=pl.col("late").min())
    of_cubic = {"cc": "cubic", "pacing": "kernel"}
    cubic = each.filter(**{name: of_cubic[name] for name in control}).select(*cell, cubic="late")
    return each.join(cubic, on=cell).with_columns(
        ratio=pl.col("late") / pl.col("cubic"),
        least=pl.col("least") / pl.col("cubic"),
        goal=pl.when(pl.col("buffer_bdp") >= 1).then(0.95).otherwise(0.8),
    )


def counts(of: pl.DataFrame) -> dict[str, Any]:
    """Return what is printed of one control: cells that reach the goal and so on, median and worst cell."""
    return of.select(
        cells=pl.len(),
        goal=(pl.col("ratio") >= pl.col("goal")).sum(),
        good=(pl.col("ratio") >= 0.8).sum(),
        every_seed=(pl.col("least") >= 0.6).sum(),
        median=pl.col("ratio").median(),
        worst=pl.col("ratio").min(),
        few=(pl.col("late_retransmitted") <= 0.01).sum(),
        few_with_startup=(pl.col("retransmitted") <= 0.02).sum(),
        most_retransmitted=pl.col("late_retransmitted").max(),
    ).row(0, named=True)


# How a column of a cell is written, by its heading; `slices` and `timeslice` are the same in different tables.
OF_CELLS = {
    "RTT": "{rtt_ms:g} ms", "slices": "{timeslice_ms:g} ms", "timeslice": "{timeslice_ms:g} ms", "CPU": "{share:.0%}",
    "buffer": "{buffer_bdp:g} BDP", "of CUBIC": "{ratio:.2f}", "Mbit/s": "{late:.1f}", "CUBIC": "{cubic:.1f}",
    "retransmitted": "{late_retransmitted:.1%}",
}  # fmt: skip


def listed(cells: pl.DataFrame, *headings: str) -> str:
    """Return cells as Markdown, one line for each, the worst first."""
    lines = [f"| {' | '.join(headings)} |", "|" + "--:|" * len(headings)]
    for row in cells.sort("ratio").iter_rows(named=True):
        lines.append(f"| {' | '.join(OF_CELLS[heading].format(**row) for heading in headings)} |")
    return "\n".join(lines)
