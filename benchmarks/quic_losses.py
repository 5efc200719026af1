"""What QUIC senders carried and what they lost by their own count, cell by cell, of datasets that are there:

    brobust reproduce quic --figure kept --figure rules --scale quick --out DIR
    .venv/bin/python benchmarks/quic_losses.py DIR/data
    .venv/bin/python benchmarks/quic_losses.py DIR/data --csv FILE        # a row per cell, for docs/data

Each cell: the median of throughput in Mbit/s (smallest to largest), the median of the share that the stack counted as
lost, and where there is one, what the pacer's detector saw in the last whole second (smallest to largest, per mille).
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import polars as pl
from spread import shown

COUNT = re.compile(r"sent (\d+) packets, lost (\d+)")
SHARE = re.compile(r"(late|deficit)_permille: (?:Some\((\d+)\)|None)")
AXES = ("bandwidth_mbps", "loss", "buffer_bdp", "timeslice_ms", "share")


class Seen(NamedTuple):
    mbps: float
    lost: float
    """The share of the packets, 0 to 1."""
    said: str


Cells = dict[tuple[float, ...], list[Seen]]


def measured(directories: Sequence[Path]) -> dict[tuple[str, str], Cells]:
    """Return what was seen in each cell (the values of AXES), by traffic and congestion control."""
    found: dict[tuple[str, str], Cells] = defaultdict(lambda: defaultdict(list))
    for directory in directories:
        senders = pl.read_parquet(directory / "programs/*.parquet").filter(pl.col("end") == "sender")
        runs = pl.read_parquet(directory / "runs/*.parquet").join(senders.select("run", "stdout", "stderr"), on="run")
        for run in runs.to_dicts():
            count = COUNT.search(run["stdout"])
            if run["outcome"] != "ok" or count is None:
                continue
            bdp = run["bandwidth_mbps"] * run["rtt_ms"] * 125
            of = {**run, "buffer_bdp": run["buffer_bytes"] / bdp, "timeslice_ms": run["timeslice_ms"] or 0}
            sent, lost = map(int, count.groups())
            cell = tuple(float(of[axis] or 0) for axis in AXES)
            found[(run["traffic"], run["cc"])][cell].append(Seen(run["throughput_mbps"], lost / sent, run["stderr"]))
    return found


def write(found: dict[tuple[str, str], Cells], file: Path) -> None:
    """Write a row per cell; for each traffic and control a column, and two of the detector where there is one."""
    rows = []
    for cell in sorted({cell for cells in found.values() for cell in cells}, key=lambda cell: (cell[:3], -cell[4])):
        bandwidth, loss, buffer, timeslice, share = cell
        row = {
            "CPU": "all" if share == 1 else f"{timeslice:g} ms, {share:.0%}",
            "path": f"{bandwidth:g} Mbit/s",
            "buffer": f"{buffer:g} BDP",
            "loss": f"{loss:.0%}" if loss else "none",
        }
        for (traffic, cc), cells in sorted(found.items()):
            if seen := cells.get(cell):
                name = f"{traffic.removeprefix('quic:')} {cc}"
                rates = [one.mbps for one in seen]
                spread = f" {min(rates):.1f} to {max(rates):.1f}" if max(rates) - min(rates) >= 0.5 else ""
                row[name] = f"{median(rates):.1f} ({median(one.lost for one in seen):.1%}){spread}"
                row |= {f"{name} {what}": told for what, told in _detected([one.said for one in seen]).items()}
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _detected(said: Sequence[str]) -> dict[str, str]:
    """Return what the detector saw, smallest to largest; nothing where there is none."""
    shares = [dict(SHARE.findall(text)) for text in said if "detector" in text]
    found = {}
    for name in ("late", "deficit"):
        if values := sorted(int(share[name]) for share in shares if share.get(name)):
            found[name] = f"{values[0]}" if values[0] == values[-1] else f"{values[0]} to {values[-1]}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+", help="a dataset")
    parser.add_argument("--csv", type=Path, help="write a row per cell there")
    given = parser.parse_args()
    found = measured(given.data)
    if given.csv is not None:
        write(found, given.csv)
        return
    for (traffic, cc), cells in sorted(found.items()):
        print(f"{traffic}, {cc}")
        for cell, seen in sorted(cells.items()):
            where = ", ".join(f"{axis} {value:g}" for axis, value in zip(AXES, cell, strict=True))
            detected = "".join(f", {name} {told}" for name, told in _detected([one.said for one in seen]).items())
            print(
                f"    {where}: {shown([one.mbps for one in seen])} Mbit/s, "
                f"{100 * median(one.lost for one in seen):.1f} % lost, n = {len(seen)}{detected}"
            )


if __name__ == "__main__":
    main()
