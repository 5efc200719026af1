"""What QUIC senders carried and what they lost by their own count, cell by cell, of datasets that are there:

    brobust reproduce quic --figure kept --figure rules --scale quick --out DIR
    .venv/bin/python benchmarks/quic_losses.py DIR/data

Each cell: the median of throughput (smallest to largest), the median of the share that the stack counted as lost, and
where there is one, what the pacer's detector saw in the last whole second (smallest to largest, per mille)."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

import polars as pl
from spread import shown

COUNT = re.compile(r"sent (\d+) packets, lost (\d+)")
SHARE = re.compile(r"(late|deficit)_permille: (?:Some\((\d+)\)|None)")
AXES = ("loss", "buffer_bdp", "timeslice_ms", "share")


def main() -> None:
    found: dict[tuple[str, str], dict[tuple[float, ...], list[tuple[float, float, str]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for directory in map(Path, sys.argv[1:]):
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
            found[(run["traffic"], run["cc"])][cell].append((run["throughput_mbps"], lost / sent, run["stderr"]))
    for (traffic, cc), cells in sorted(found.items()):
        print(f"{traffic}, {cc}")
        for cell, seen in sorted(cells.items()):
            rates, losses, said = zip(*seen, strict=True)
            where = ", ".join(f"{axis} {value:g}" for axis, value in zip(AXES, cell, strict=True))
            print(
                f"    {where}: {shown(rates)} Mbit/s, "
                f"{100 * median(losses):.1f} % lost, n = {len(seen)}{_detected(said)}"
            )


def _detected(said: tuple[str, ...]) -> str:
    """Return what the detector saw, as the end of a line; empty where there is none."""
    shares = [dict(SHARE.findall(text)) for text in said if "detector" in text]
    parts = []
    for name in ("late", "deficit"):
        values = sorted(int(share[name]) for share in shares if share.get(name))
        parts += [f"{name} {values[0]} to {values[-1]}"] if values else []
    return "".join(f", {part}" for part in parts)


if __name__ == "__main__":
    main()
