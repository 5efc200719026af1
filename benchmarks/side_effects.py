#!/usr/bin/env python3
"""Measure what a repair costs others, beside its throughput and its queueing delay:

    .venv/bin/python benchmarks/side_effects.py neighbours --out DIR      # and rtt, many, policers
    .venv/bin/python benchmarks/side_effects.py many --out DIR --flows 1000 --control cubic --control bbr/kept

neighbours  A flow whose CPU is taken away, beside an undisturbed flow of CUBIC or BBR: what the latter carries, over
            what it carries beside undisturbed BBR.
rtt         Two flows of one sender, with 10 and 50 ms: the part that the one of 10 ms has.
many        1, 2, 16 and 128 flows of one vCPU: what they carry together, over what as many of CUBIC do, and how fairly
            they share it (Jain's index).
policers    A token bucket that drops (policer) or queues up to 1 BDP (shaper) what finds no token: what is sent again.

Figures are medians over the repeats, of the run's second half, except for the queueing delay, which is the mean over
the run and its flows. All paths have an RTT of 10 ms, and 100 Mbit/s unless the table says otherwise; the CPU is there
for `--timeslice` at a time and for a part `--share` of the time. "bbr, undisturbed" has all of its CPU. What DIR lacks
is measured; a control is named as in benchmarks/controls.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from controls import CONTROLS, UNDISTURBED, cc_and_pacing, measured

from brobust.analysis.metrics import Evidence, Tables
from brobust.scenario import Grid

BUFFERS = (0.5, 1, 2, 5, 10, 20)  # BDP
METRICS = {
    "late_mbps": "mbps", "late_retransmit_share": "retransmitted", "queue_mean_ms": "queue_ms",
    "first_flow_share": "first_share", "fairness": "fairness",
}  # fmt: skip

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Cell:
    """A column of a table: a path, and flows, of which those of `None` are the control's."""

    table: str
    column: str
    path: dict[str, Any]
    flows: tuple[dict[str, Any], ...] = ({"cc": None},)
    seconds: int = 10

    def fields(self, control: str, contention: Mapping[str, Any], repeat: int) -> dict[str, Any]:
        """Return the cell under a control, as the fields of a grid."""
        cc, pacing = cc_and_pacing(control)
        return {
            "path": {"bandwidth": "100mbit", "rtt": "10ms", **self.path},
            "flows": [{**flow, "cc": flow["cc"] or cc} for flow in self.flows],
            "contention": {"share": 1} if control == UNDISTURBED else dict(contention),
            "pacing": pacing, "samples": "500ms", "duration": f"{self.seconds}s", "repeat": repeat,
        }  # fmt: skip


def neighbours(_: argparse.Namespace | None = None) -> Iterator[Cell]:
    for neighbour in ("cubic", "bbr"):
        for buffer in BUFFERS:
            flows = ({"cc": None}, {"cc": neighbour, "sender": 2})
            # In 20 s, twice the time between two PROBE_RTTs, one sees how the flows have started.
            yield Cell(f"beside {neighbour}", f"{buffer:g} BDP", {"buffer": f"{buffer}bdp"}, flows, 60)


def _rtt(_: argparse.Namespace) -> Iterator[Cell]:
    for buffer in (1, 4, 12):
        flows = ({"cc": None, "rtt": "10ms"}, {"cc": None, "rtt": "50ms"})
        yield Cell("10 and 50 ms", f"{buffer} BDP", {"buffer": f"{buffer}bdp"}, flows, 30)


def _many(given: argparse.Namespace) -> Iterator[Cell]:
    for rate in ("100mbit", "1gbit"):
        for buffer in (1, 5):
            for count in given.flows or (1, 2, 16, 128):
                # A group has at most 256 flows.
                groups = [min(250, count - begun) for begun in range(0, count, 250)]
                flows = tuple({"cc": None, "count": size} for size in groups)
                table = f"{rate}, {buffer} BDP"
                yield Cell(
                    table,
                    "1 flow" if count == 1 else f"{count} flows",
                    {"bandwidth": rate, "buffer": f"{buffer}bdp"},
                    flows,
                )


def _policers(_: argparse.Namespace) -> Iterator[Cell]:
    for kind, buffer in (("policer", "0B"), ("shaper", "1bdp")):
        for rtt in (10, 40):
            for burst in (0.1, 0.5, 1, 4):
                path = {"rtt": f"{rtt}ms", "buffer": buffer, "burst": f"{burst}bdp"}
                yield Cell(f"{kind}, RTT {rtt} ms", f"burst {burst:g} BDP", path)


@dataclass(frozen=True)
class Question:
    cells: Callable[[argparse.Namespace], Iterator[Cell]]
    says: str
    """What a field of the table says."""
    text: Callable[[Figures, Figures, Figures], str]
    """A field from the figures of a control, of CUBIC and of undisturbed BBR in the same cell."""


def second_mbps(figures: Figures) -> float:
    """Return what the other of two flows carries, Mbit/s."""
    return figures["mbps"] * (1 - figures["first_share"])


QUESTIONS = {
    "neighbours": Question(
        neighbours,
        "the neighbour's throughput over that beside undisturbed BBR; the control's own, Mbit/s; queueing delay",
        lambda of, _, base: (
            f"{second_mbps(of) / second_mbps(base):.2f}; {of['mbps'] - second_mbps(of):.0f}; {of['queue_ms']:.0f} ms"
        ),
    ),
    "rtt": Question(
        _rtt,
        "the part of the flow of 10 ms; both together, Mbit/s; queueing delay",
        lambda of, _, __: f"{of['first_share']:.0%}; {of['mbps']:.0f}; {of['queue_ms']:.0f} ms",
    ),
    "many": Question(
        _many,
        "the sum over CUBIC's sum; Jain's index of the flows; retransmitted; queueing delay",
        lambda of, cubic, _: (
            f"{of['mbps'] / cubic['mbps']:.2f}; {of['fairness']:.2f}; "
            f"{of['retransmitted']:.1%}; {of['queue_ms']:.0f} ms"
        ),
    ),
    "policers": Question(
        _policers,
        "retransmitted; throughput, Mbit/s",
        lambda of, _, __: f"{of['retransmitted']:.1%}; {of['mbps']:.0f}",
    ),
}


def figures(evidence: Evidence) -> dict[str, float]:
    """Return the medians over some repeats of one cell."""
    return {name: float(np.median(evidence.values(metric)["value"].to_numpy())) for metric, name in METRICS.items()}


def markdown(table: str, columns: list[str], rows: Mapping[str, list[str]]) -> str:
    lines = [f"| {table} | {' | '.join(columns)} |", "|---|" + "--:|" * len(columns)]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--out", type=Path, required=True, help="the dataset; what it lacks is measured")
    parser.add_argument(
        "--control", action="append", help=f"CC or CC/PACING, again for more; else {', '.join(CONTROLS)}"
    )
    parser.add_argument(
        "--flows", type=int, action="append", help="many: so many instead of 1, 2, 16 and 128; 1 to 1000"
    )
    parser.add_argument(
        "--cell",
        action="append",
        metavar="NAME",
        help="only this, such as 'beside cubic,5 BDP'; again for more",
    )
    parser.add_argument("--share", type=float, default=0.4, help="share of the CPU (0.4)")
    parser.add_argument("--timeslice", default="10ms", help="how long the CPU is there at a time (10ms)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each cell (3)")
    parser.add_argument("--jobs", type=int, help="runs at a time; else one for each CPU")
    parser.add_argument("--json", action="store_true", help="one object per cell and control")
    parser.add_argument("--csv", type=Path, help="write the tables there, too, one below the other")
    given = parser.parse_args()
    if any(not 1 <= count <= 1000 for count in given.flows or ()):
        parser.error(f"--flows: {given.flows} is not allowed: give 1 to 1000")
    question = QUESTIONS[given.question]
    cells = list(question.cells(given))
    if given.cell is not None:
        names = {f"{cell.table},{cell.column}": cell for cell in cells}
        if unknown := [name for name in given.cell if name not in names]:
            parser.error(f"--cell: {given.question} has no {unknown[0]!r}; it has {'; '.join(names)}")
        cells = [names[name] for name in given.cell]
    controls = list(dict.fromkeys([UNDISTURBED, "cubic", *(given.control or CONTROLS)]))
    contention = {"share": given.share, "timeslice": given.timeslice}
    fields = {
        (cell.table, cell.column, control): cell.fields(control, contention, given.repeat)
        for cell in cells
        for control in controls
    }
    tables = Tables(measured(given.out, list(fields.values()), given.jobs))
    found = {key: figures(Evidence(tables, [run.id for run in Grid(of).runs()])) for key, of in fields.items()}
    if given.json:
        for (table, column, control), of in found.items():
            print(json.dumps({"table": table, "column": column, "control": control, **of}))
        return
    print(f"{question.says} (n = {given.repeat}; {given.timeslice} at {given.share:.0%})")
    written = []
    for table in dict.fromkeys(cell.table for cell in cells):
        columns = [cell.column for cell in cells if cell.table == table]
        base = [(found[table, column, "cubic"], found[table, column, UNDISTURBED]) for column in columns]
        rows = {
            control: [
                question.text(found[table, column, control], *of) for column, of in zip(columns, base, strict=True)
            ]
            for control in controls
        }
        print(f"\n{markdown(table, columns, rows)}")
        written += [
            {"table": table, "control": name, **dict(zip(columns, row, strict=True))} for name, row in rows.items()
        ]
    if given.csv is not None:
        pl.DataFrame(written).write_csv(given.csv)


if __name__ == "__main__":
    main()
