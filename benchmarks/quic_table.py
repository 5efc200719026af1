#!/usr/bin/env python3
"""Print the tables of docs/quic-measured.md from what `brobust reproduce quic` has measured:

    .venv/bin/python benchmarks/quic_table.py quic-virtual-full/data

A table for each bandwidth: the throughput in Mbit/s of each sender, by round-trip time with all of its CPU, and by
timeslice and share at 10 ms without. Median of the repeats, with the smallest and the largest where these differ by 3 %
or more. A sender that carries less than 90 % of an idle path has a star: it says little about contention.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import polars as pl

from brobust.dataset import Dataset
from brobust.units import goodput_ceiling_mbps

FILLS = 0.9
ORDER = ("brobust", "quinn", "s2n-quic", "quic-go", "quiche", "tquic", "ngtcp2")


def column(row: dict[str, float]) -> str:
    if row["share"] == 1:
        return f"all, RTT {row['rtt_ms']:g} ms"
    return f"{row['timeslice_ms']:g} ms, {row['share'] * 100:g} %"


def shown(values: list[float]) -> str:
    middle, low, high = statistics.median(values), min(values), max(values)
    spread = f" ({low:.1f} to {high:.1f})" if high - low >= 0.03 * high else ""
    return f"{middle:.1f}{spread}"


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("quic_table: give the directory of the data, such as quic-virtual-full/data")
    runs = Dataset.open(Path(sys.argv[1])).runs().filter(pl.col("outcome") == "ok")
    for bandwidth, of_path in sorted(runs.partition_by("bandwidth_mbps", as_dict=True).items()):
        cells: dict[tuple[str, str], dict[str, list[float]]] = {}
        for row in of_path.sort("share", "rtt_ms", "timeslice_ms", descending=[True, False, False]).iter_rows(
            named=True
        ):
            cell = cells.setdefault((row["traffic"].removeprefix("quic:"), row["cc"]), {})
            cell.setdefault(column(row), []).append(row["throughput_mbps"])
        places = of_path.select("share", "rtt_ms", "timeslice_ms").unique()
        by_place = places.sort("share", "timeslice_ms", "rtt_ms", descending=[True, False, False], nulls_last=True)
        columns = [column(row) for row in by_place.iter_rows(named=True)]
        repeats = {len(values) for cell in cells.values() for values in cell.values()}
        print(f"\n{bandwidth[0]:g} Mbit/s, n = {min(repeats)} to {max(repeats)}\n")
        print("| sender | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
        enough = FILLS * goodput_ceiling_mbps(int(float(bandwidth[0]) * 1e6))
        for (sender, control), cell in sorted(cells.items(), key=lambda one: (ORDER.index(one[0][0]), one[0][1])):
            idle = [min(values) for name, values in cell.items() if name.startswith("all")]
            star = " *" if idle and min(idle) < enough else ""
            name = "Linux TCP" if sender == "brobust" else sender
            figures = [shown(cell[one]) if one in cell else "" for one in columns]
            print(f"| {name}, {control}{star} | " + " | ".join(figures) + " |")


if __name__ == "__main__":
    main()
