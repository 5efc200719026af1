#!/usr/bin/env python3
"""Measure repairs in the 90 cells of docs/repair-measured.md, without random loss and with some:

    .venv/bin/python benchmarks/repair_cells.py --out DIR                           # 2,250 runs, four minutes
    .venv/bin/python benchmarks/repair_cells.py --out DIR --control bbr_steady --control bbr/kept --loss 0 --loss 0.01
    .venv/bin/python benchmarks/repair_cells.py --out DIR --below bbr_steady        # the cells in which it falls short
    .venv/bin/python benchmarks/repair_cells.py --out DIR --oracle                  # what any sender could carry there

A cell is a path of 100 Mbit/s and a contention: RTT 10 and 40 ms; buffers of 0.5, 1 and 12 BDP; timeslices of 1, 10 and
20 ms; 10, 15, 25, 40 and 60 % of a CPU. Figures are medians over the repeats, of the second half of 10 s. The goal is
95 % of what CUBIC carries in the cell without random loss, 80 % with half a BDP. What DIR lacks is measured; a control
is named as in benchmarks/controls.py. "of itself": cells with 1 BDP and more in which a control carries 80 % of what
it carries there without random loss. "below bbr_robust": cells in which it carries less than 97 % of what that does,
with the same loss.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from controls import cc_and_pacing, measured

from brobust.analysis import metrics, oracle
from brobust.analysis.metrics import Evidence, Tables
from brobust.scenario import Grid

CONTROLS = ("bbr", "bbr_robust", "bbr_steady", "brb_bbr3_steady")
CELL = ["rtt_ms", "buffer_bdp", "timeslice_ms", "share"]
METRICS = {
    "late_mbps": "mbps", "late_retransmit_share": "retransmitted", "retransmit_share": "with_startup",
    "queue_mean_ms": "queue_ms",
}  # fmt: skip


def fields(control: str, losses: Sequence[float], repeat: int, kernel: str | None) -> dict[str, Any]:
    """Return the cells of a control, as the fields of a grid."""
    cc, pacing = cc_and_pacing(control)
    return {
        "duration": "10s", "samples": "100ms", "repeat": repeat, "pacing": pacing, "flows": [{"cc": cc}],
        "path": {
            "bandwidth": "100mbit", "rtt": ["10ms", "40ms"], "buffer": ["0.5bdp", "1bdp", "12bdp"],
            "loss": list(losses),
        },
        "contention": {"timeslice": ["1ms", "10ms", "20ms"], "share": [0.1, 0.15, 0.25, 0.4, 0.6]},
    } | ({"kernel": kernel} if kernel else {})  # fmt: skip


def cells(evidence: Evidence) -> pl.DataFrame:
    """Return a row per control, random loss and cell: throughput in Mbit/s (`mbps`; `cubic` and `own`: CUBIC's and the
    control's own without random loss; `robust`: bbr_robust's with the same), its `ratio` to CUBIC's, the parts
    retransmitted, the queueing delay in ms."""
    of_runs = evidence.runs.select("run", "cc", "pacing", "loss", *CELL)
    for metric, name in METRICS.items():
        of_runs = of_runs.join(evidence.values(metric).select("run", pl.col("value").alias(name)), on="run")
    each = of_runs.group_by("cc", "pacing", "loss", *CELL).agg(pl.col(METRICS.values()).median())
    cubic = each.filter(cc="cubic", pacing="kernel", loss=0).select(*CELL, cubic="mbps")
    own = each.filter(loss=0).select("cc", "pacing", *CELL, own="mbps")
    robust = each.filter(cc="bbr_robust", pacing="kernel").select("loss", *CELL, robust="mbps")
    return (
        each.join(cubic, on=CELL)
        .join(own, on=["cc", "pacing", *CELL])
        .join(robust, on=["loss", *CELL], how="left")
        .with_columns(
            ratio=pl.col("mbps") / pl.col("cubic"),
            goal=pl.when(pl.col("buffer_bdp") >= 1).then(0.95).otherwise(0.8),
        )
    )


def counted(every: pl.DataFrame, controls: Sequence[str], losses: Sequence[float]) -> Iterator[dict[str, str]]:
    """Yield a row of the table for each control and random loss."""
    ratio, more = pl.col("ratio"), pl.col("retransmitted") - pl.col("loss")
    for control in controls:
        cc, pacing = cc_and_pacing(control)
        for loss in losses:
            of = every.filter(cc=cc, pacing=pacing, loss=loss)
            count = of.select(
                goal=(ratio >= pl.col("goal")).sum(), good=(ratio >= 0.8).sum(), enough=(ratio >= 0.6).sum(),
                median=ratio.median(), worst=ratio.min(), few=(more <= 0.01).sum(),
                few_with_startup=(pl.col("with_startup") - pl.col("loss") <= 0.02).sum(), most=more.max(),
                itself=((pl.col("mbps") >= 0.8 * pl.col("own")) & (pl.col("buffer_bdp") >= 1)).sum(),
                below_robust=(pl.col("mbps") < 0.97 * pl.col("robust")).sum(),
                queue_ms=pl.col("queue_ms").median(),
            ).row(0, named=True)  # fmt: skip
            yield {
                "control": control,
                "random loss": f"{loss:.1%}" if loss else "none",
                "goal": f"{count['goal']}",
                "0.8 of CUBIC": f"{count['good']}",
                "0.6": f"{count['enough']}",
                "median": f"{count['median']:.2f}",
                "worst": f"{count['worst']:.2f}",
                "of itself": f"{count['itself']}" if loss else "",
                **({"below bbr_robust": f"{count['below_robust']}"} if "bbr_robust" in controls else {}),
                "at most 1 % resent": f"{count['few']}",
                "2 % with STARTUP": f"{count['few_with_startup']}",
                "most resent": f"{count['most']:.1%}",
                "queue": f"{count['queue_ms']:.1f} ms",
            }


def listed(every: pl.DataFrame, control: str) -> Iterator[dict[str, str]]:
    """Yield the cells in which a control misses the goal or retransmits more than 1 % beyond the random loss."""
    cc, pacing = cc_and_pacing(control)
    short = (pl.col("ratio") < pl.col("goal")) | (pl.col("retransmitted") - pl.col("loss") > 0.01)
    for row in every.filter(short, cc=cc, pacing=pacing).sort("loss", "ratio").iter_rows(named=True):
        yield {
            "random loss": f"{row['loss']:.1%}" if row["loss"] else "none",
            "RTT": f"{row['rtt_ms']:g} ms",
            "timeslice": f"{row['timeslice_ms']:g} ms",
            "CPU": f"{row['share']:.0%}",
            "buffer": f"{row['buffer_bdp']:g} BDP",
            "of CUBIC": f"{row['ratio']:.2f}",
            "Mbit/s": f"{row['mbps']:.1f}",
            "resent": f"{row['retransmitted']:.1%}",
        }


def best(evidence: Evidence, every: pl.DataFrame) -> Iterator[dict[str, str]]:
    """Yield for each cell what the best possible sender carries (python/brobust/analysis/oracle.py), and how much it
    must send ahead to reach the goal."""
    of_run = evidence.runs.filter(cc="cubic", loss=0).select("run", *CELL)
    for metric in ("oracle_mbps", "oracle_one_rtt_mbps"):
        of_run = of_run.join(evidence.values(metric).select("run", pl.col("value").alias(metric)), on="run")
    of_run = of_run.join(every.filter(cc="cubic", loss=0).select(*CELL, "cubic", "goal"), on=CELL)
    wanted = {run: cubic * goal for run, cubic, goal in of_run.select("run", "cubic", "goal").iter_rows()}
    needed = []
    for run, slices, path in metrics.when_it_ran(evidence):
        if run in wanted:
            link = path["bandwidth_mbps"], path["buffer_bytes"], path["from_s"], path["to_s"]
            needed.append((run, ahead_needed_s(slices, *link, wanted[run])))
    ahead = pl.DataFrame(needed, schema={"run": pl.String, "ahead_s": pl.Float64}, orient="row")
    columns = pl.col("cubic", "goal", "oracle_mbps", "oracle_one_rtt_mbps", "ahead_s").median()
    for row in of_run.join(ahead, on="run").group_by(CELL).agg(columns).sort(CELL).iter_rows(named=True):
        yield {
            "RTT": f"{row['rtt_ms']:g} ms",
            "buffer": f"{row['buffer_bdp']:g} BDP",
            "timeslice": f"{row['timeslice_ms']:g} ms",
            "CPU": f"{row['share']:.0%}",
            "oracle": f"{row['oracle_mbps']:.1f}",
            "one round trip ahead": f"{row['oracle_one_rtt_mbps']:.1f}",
            "CUBIC": f"{row['cubic']:.1f}",
            "ahead needed for the goal": "-" if row["ahead_s"] is None else f"{1e3 * row['ahead_s']:.1f} ms",
        }


def ahead_needed_s(
    timeslices: list[tuple[float, float]],
    bandwidth_mbps: float,
    buffer_bytes: float,
    begin_s: float,
    end_s: float,
    mbps: float,
) -> float | None:
    """Return the least `ahead_s` with which the oracle carries this much; None if it cannot."""
    if oracle.carried_mbps(timeslices, bandwidth_mbps, buffer_bytes, begin_s, end_s) < mbps:
        return None
    low, high = 0.0, buffer_bytes * 8e-6 / bandwidth_mbps
    for _ in range(40):
        middle = (low + high) / 2
        if oracle.carried_mbps(timeslices, bandwidth_mbps, buffer_bytes, begin_s, end_s, middle) < mbps:
            low = middle
        else:
            high = middle
    return high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the dataset; what it lacks is measured")
    parser.add_argument(
        "--control", action="append", help=f"CC or CC/PACING, again for more; else {', '.join(CONTROLS)}"
    )
    parser.add_argument("--loss", type=float, action="append", help="random loss, 0 to 1, again for more [0]")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each cell [5]")
    parser.add_argument("--jobs", type=int, help="runs at a time; else one for each CPU")
    parser.add_argument("--kernel", help="another than the default one, such as virtual-7.2")
    parser.add_argument("--below", metavar="CONTROL", help="the cells in which it falls short")
    parser.add_argument("--oracle", action="store_true", help="what the best possible sender carries in each cell")
    parser.add_argument("--csv", type=Path, help="write the table there, too")
    given = parser.parse_args()
    losses = sorted({0.0, *(given.loss or ())})
    controls = [given.below] if given.below else given.control or list(CONTROLS)
    wanted = [fields("cubic", [0.0], given.repeat, given.kernel)]
    if not given.oracle:
        wanted += [fields(control, losses, given.repeat, given.kernel) for control in controls]
    tables = Tables(measured(given.out, wanted, given.jobs))
    evidence = Evidence(tables, list(dict.fromkeys(run.id for of in wanted for run in Grid(of).runs())))
    every = cells(evidence)
    if given.oracle:
        rows = list(best(evidence, every))
    elif given.below:
        rows = list(listed(every, given.below))
    else:
        rows = list(counted(every, ["cubic", *controls], [0.0])) if len(losses) == 1 else []
        rows = rows or list(counted(every, controls, losses))
    if not rows:
        print(f"{given.below}: none")
        return
    table = pl.DataFrame(rows)
    lines = [f"| {' | '.join(table.columns)} |", "|---|" + "--:|" * (table.width - 1)]
    print("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table.iter_rows())]))
    if given.csv is not None:
        table.write_csv(given.csv)


if __name__ == "__main__":
    main()
