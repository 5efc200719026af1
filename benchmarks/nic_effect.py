#!/usr/bin/env python3
"""Print what a NIC that adapts its interrupts changes in every study:

    for study in 2brobust bbq clouded findings mobiles repair; do
        for on in off on; do
            brobust reproduce $study --scale smoke --set nic.adaptive_rx=$on --out nic/$study-$on
        done
    done
    .venv/bin/python benchmarks/nic_effect.py nic

For each study: how many cells there are, the throughput of a cell with adaptive interrupts over that with an interrupt
for every frame (median, and from the least to the greatest), how many cells are within 5 %, and the claims whose
verdict is another.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import polars as pl

STUDIES = ("2brobust", "bbq", "clouded", "findings", "mobiles", "repair")
MEASURED = ("adaptive_rx", "n", "throughput_mbps", "low_mbps", "high_mbps", "utilization", "retransmits", "class")
"""The columns of cells.csv that do not say which cell it is."""


def verdicts(directory: Path) -> dict[str, str]:
    claims = map(json.loads, (directory / "claims.jsonl").read_text().splitlines())
    return {claim["claim"]: claim["verdict"] for claim in claims}


def ratios(off: Path, on: Path) -> pl.Series:
    """Return the throughput of each cell with adaptive interrupts over that without."""
    before, after = (pl.read_csv(directory / "cells.csv", infer_schema_length=None) for directory in (off, on))
    key = [column for column in before.columns if column not in MEASURED]
    both = before.join(after, on=key, suffix="_after", nulls_equal=True)
    return both.select(ratio=pl.col("throughput_mbps_after") / pl.col("throughput_mbps"))["ratio"].drop_nulls()


def main() -> None:
    root = Path(sys.argv[1])
    print("| study | cells | ratio | within 5 % | claims | with another verdict |\n|---|--:|--:|--:|--:|---|")
    for study in STUDIES:
        off, on = root / f"{study}-off", root / f"{study}-on"
        ratio, before, after = ratios(off, on), verdicts(off), verdicts(on)
        changed = [f"{claim}: {before[claim]} -> {after[claim]}" for claim in before if after[claim] != before[claim]]
        found = sorted(ratio.to_list())
        spread = f"{statistics.median(found):.3f} ({found[0]:.2f} to {found[-1]:.2f})"
        near = sum(0.95 <= one <= 1.05 for one in found)
        print(f"| {study} | {len(ratio)} | {spread} | {near} | {len(before)} | {', '.join(changed) or 'none'} |")


if __name__ == "__main__":
    main()
