#!/usr/bin/env python3
"""Ask what the repair's constants are worth: change some of them, and see which goals come nearer and which go:

    .venv/bin/python benchmarks/repair_frontier.py --out DIR --csv frontier.csv --png frontier.png   # an hour

Each row is bbr_steady with other constants (cc/repair.h, cc/steady.h; factors are in their plain form: 1.25 is
REPAIR_WINDOW 320): in how many of the 90 cells of benchmarks/repair_cells.py it reaches the goal and resends at most
1 %, in how many with 1 % of random loss it carries 0.8 of CUBIC without, and what part of its throughput an undisturbed
CUBIC and BBR keep beside it at 40 % of a CPU in 10 ms (benchmarks/side_effects.py), in the worst of buffers of 2, 5 and
10 BDP. Medians of `--repeat` runs. A row is on the frontier if no other is at least as good in all five. What DIR lacks
is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import repair_cells
import side_effects
from controls import UNDISTURBED, measured

from brobust.analysis.metrics import Evidence, Tables
from brobust.scenario import Grid

CHOSEN = "bbr_steady"
AROUND_A_CUT_OF_4 = (
    "steady_window=0.5", "steady_window=1", "steady_window=2", "steady_ahead=1", "steady_ahead=2", "steady_haste=1",
    "steady_haste=3", "steady_haste=12", "steady_loss=0", "steady_loss=3", "steady_loss=15", "steady_overflow=60",
    "steady_beta=0.5", "steady_growth=0.04", "steady_window=0.5:steady_ahead=2",
)  # fmt: skip
"""What was tried while REPAIR_CUT was 4, before 30 November 2026."""
CHANGES = (
    "steady_cut=1", "steady_cut=4", "steady_cut=16", "steady_window=1", "steady_ahead=2", "steady_haste=12",
    "steady_loss=10", "steady_beta=0.5", "steady_cut=16:steady_beta=0.5",
    *(f"steady_cut=4:{change}" for change in AROUND_A_CUT_OF_4),
)  # fmt: skip
BUFFERS = ("2 BDP", "5 BDP", "10 BDP")
LOSS = 0.01
GOALS = {
    "goal": "cells at the goal\n[of 90]",
    "resent_few": "cells that resend\nat most 1 % [of 90]",
    "with_loss": "with 1 % of loss: cells with\n0.8 of CUBIC [of 90]",
    "cubic_keeps": "part that a CUBIC beside it\nkeeps (worst of 3 buffers)",
    "bbr_keeps": "part that a BBR beside it\nkeeps (worst of 3 buffers)",
}


def on_frontier(rows: Sequence[dict[str, Any]]) -> list[bool]:
    """Return for each row whether no other is at least as good in all goals and better in one."""

    def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return all(one[goal] >= other[goal] for goal in GOALS) and any(one[goal] > other[goal] for goal in GOALS)

    return [not any(beats(other, row) for other in rows) for row in rows]


def table(directory: Path, repeat: int, jobs: int | None) -> pl.DataFrame:
    controls = {"chosen": CHOSEN} | {change.replace("steady_", ""): f"{CHOSEN}:{change}" for change in CHANGES}
    grids = [repair_cells.fields("cubic", [0.0], repeat, None)]
    grids += [repair_cells.fields(control, [0.0, LOSS], repeat, None) for control in controls.values()]
    shared = {
        (cell.table, cell.column, control): cell.fields(control, {"share": 0.4, "timeslice": "10ms"}, repeat)
        for cell in side_effects.neighbours()
        if cell.column in BUFFERS
        for control in (UNDISTURBED, *controls.values())
    }
    tables = Tables(measured(directory, [*grids, *shared.values()], jobs))
    every = repair_cells.cells(Evidence(tables, [run.id for of in grids for run in Grid(of).runs()]))
    carries = {
        key: side_effects.second_mbps(side_effects.figures(Evidence(tables, [run.id for run in Grid(of).runs()])))
        for key, of in shared.items()
    }
    rows = []
    for name, control in controls.items():
        none, lossy = repair_cells.counted(every, [control], [0.0, LOSS])
        row: dict[str, Any] = {
            "constants": name,
            "goal": int(none["goal"]),
            "resent_few": int(none["at most 1 % resent"]),
            "with_loss": int(lossy["0.8 of CUBIC"]),
        }
        for neighbour in ("cubic", "bbr"):
            of = f"beside {neighbour}"
            parts = [carries[of, buffer, control] / carries[of, buffer, UNDISTURBED] for buffer in BUFFERS]
            row[f"{neighbour}_keeps"] = round(min(parts), 2)
        rows.append(row)
    return pl.DataFrame(rows).with_columns(frontier=pl.Series(on_frontier(rows)))


def draw(rows: pl.DataFrame, repeat: int, to: Path) -> None:
    """Draw a panel for each goal, with a line of dots for each choice."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(GOALS), figsize=(11, 5), sharey=True)
    rows = rows.sort("goal", "cubic_keeps")
    for axis, (goal, title) in zip(axes, GOALS.items(), strict=True):
        for height, row in enumerate(rows.iter_rows(named=True)):
            inside = "tab:blue" if row["frontier"] else "white"
            axis.plot(row[goal], height, "o", color="tab:blue", markerfacecolor=inside, markersize=5)
        axis.axvline(rows.filter(constants="chosen")[goal][0], color="tab:red", linestyle="--", linewidth=1)
        axis.set_title(title, fontsize=8)
        axis.grid(alpha=0.3)
    axes[0].set_yticks(range(rows.height), rows["constants"], fontsize=8)
    figure.supxlabel(
        "bbr_steady with other constants; dashed: the chosen ones; hollow: another choice is at least as good in all"
        f" five goals\nmedians of n = {repeat} runs of each cell; virtual time",
        fontsize=8,
    )
    figure.tight_layout()
    figure.savefig(to, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the dataset; what it lacks is measured")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each cell [3]")
    parser.add_argument("--jobs", type=int, help="runs at a time; else one for each CPU")
    parser.add_argument("--csv", type=Path, help="write the table there")
    parser.add_argument("--png", type=Path, help="draw the table there")
    given = parser.parse_args()
    rows = table(given.out, given.repeat, given.jobs)
    print(rows.write_csv(separator="\t"), end="")
    if given.csv is not None:
        rows.write_csv(given.csv)
    if given.png is not None:
        draw(rows, given.repeat, given.png)


if __name__ == "__main__":
    main()
