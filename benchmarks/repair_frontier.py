#!/usr/bin/env python3
"""Ask what the repair's constants are worth: change one or two of them, and see which goals come nearer and which go:

    .venv/bin/python benchmarks/repair_frontier.py --out DIR --csv frontier.csv --png frontier.png   # half an hour

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

import polars as pl
import repair_cells
import side_effects
from controls import UNDISTURBED, measured

from brobust.analysis.metrics import Evidence, Tables
from brobust.scenario import Grid

CHOSEN = "bbr_steady"
CHANGES = (
    "steady_window=0.5", "steady_window=1", "steady_window=2", "steady_ahead=1", "steady_ahead=2",
    "steady_haste=1", "steady_haste=3", "steady_haste=12", "steady_loss=0", "steady_loss=3", "steady_loss=15",
    "steady_overflow=60", "steady_cut=1", "steady_cut=8", "steady_beta=0.5", "steady_growth=0.04",
    "steady_window=1:steady_cut=8", "steady_window=0.5:steady_ahead=2",
)  # fmt: skip
BUFFERS = (2, 5, 10)  # BDP
LOSS = 0.01
GOALS = ("goal", "resent_few", "with_loss", "cubic_keeps", "bbr_keeps")


def beside(neighbour: str, buffer: float) -> side_effects.Cell:
    flows = ({"cc": None}, {"cc": neighbour, "sender": 2})
    return side_effects.Cell(neighbour, f"{buffer}", {"buffer": f"{buffer}bdp"}, flows, 60)


def on_frontier(rows: Sequence[dict[str, float]]) -> list[bool]:
    """Return for each row whether no other is at least as good in all goals and better in one."""

    def beats(one: dict[str, float], other: dict[str, float]) -> bool:
        return all(one[goal] >= other[goal] for goal in GOALS) and any(one[goal] > other[goal] for goal in GOALS)

    return [not any(beats(other, row) for other in rows) for row in rows]


def table(directory: Path, repeat: int, jobs: int | None) -> pl.DataFrame:
    controls = [CHOSEN, *(f"{CHOSEN}:{change}" for change in CHANGES)]
    grids = [repair_cells.fields("cubic", [0.0], repeat, None)]
    grids += [repair_cells.fields(control, [0.0, LOSS], repeat, None) for control in controls]
    contention = {"share": 0.4, "timeslice": "10ms"}
    shared = {
        (neighbour, buffer, control): beside(neighbour, buffer).fields(control, contention, repeat)
        for neighbour in ("cubic", "bbr")
        for buffer in BUFFERS
        for control in (UNDISTURBED, *controls)
    }
    tables = Tables(measured(directory, [*grids, *shared.values()], jobs))
    every = repair_cells.cells(Evidence(tables, [run.id for of in grids for run in Grid(of).runs()]))
    keeps = {}
    for key, of in shared.items():
        figures = side_effects.figures(Evidence(tables, [run.id for run in Grid(of).runs()]))
        keeps[key] = figures["mbps"] * (1 - figures["first_share"])
    rows = []
    for control in controls:
        none, lossy = repair_cells.counted(every, [control], [0.0, LOSS])
        counts = {
            "goal": float(none["goal"]),
            "resent_few": float(none["at most 1 % resent"]),
            "with_loss": float(lossy["0.8 of CUBIC"]),
        }
        for neighbour in ("cubic", "bbr"):
            parts = [keeps[neighbour, of, control] / keeps[neighbour, of, UNDISTURBED] for of in BUFFERS]
            counts[f"{neighbour}_keeps"] = round(min(parts), 2)
        rows.append(counts)
    names = ["chosen", *(change.replace("steady_", "") for change in CHANGES)]
    return (
        pl.DataFrame(rows)
        .insert_column(0, pl.Series("constants", names))
        .with_columns(pl.col(GOALS[:3]).cast(int), frontier=pl.Series(on_frontier(rows)))
    )


def draw(rows: pl.DataFrame, repeat: int, to: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
    titles = {"resent_few": "cells that resend at most 1 % [of 90]", "cubic_keeps": "part that a CUBIC beside it keeps"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        # Labels of neighbours stand above and below by turns.
        for number, row in enumerate(rows.sort("goal", column).iter_rows(named=True)):
            chosen = row["constants"] == "chosen"
            color = "tab:red" if chosen else "tab:blue" if row["frontier"] else "0.6"
            axis.plot(row[column], row["goal"], "s" if chosen else "o", color=color, markersize=8 if chosen else 5)
            if column == "resent_few" and row[column] > 80 and not chosen:
                continue  # most stand here, and the other panel names them
            place = {"xytext": (3, 5 if number % 2 else -10), "textcoords": "offset points", "fontsize": 7}
            axis.annotate(row["constants"], (row[column], row["goal"]), color=color, **place)
        axis.set(xlabel=title)
        axis.margins(x=0.12)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("cells at the goal [of 90]")
    figure.supxlabel(
        f"bbr_steady with other constants; blue: nothing is better in all of five goals; medians of n = {repeat} runs; "
        "virtual time",
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
