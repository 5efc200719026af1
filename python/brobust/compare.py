"""Two datasets cell by cell: a kernel before and after an upgrade, a control before and after a patch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy import stats

from brobust.dataset import Dataset
from brobust.errors import BadInput
from brobust.report import table

# What a comparison is between rather than along.
BETWEEN = ("kernel", "accelerator")
LEAST_RUNS = 3
CONFIDENCE = 0.95
RESAMPLES = 2000
SAME, WORSE, BETTER, TOO_FEW = "same", "worse", "better", "too few runs"


@dataclass(frozen=True)
class Compared:
    """One cell of both datasets."""

    cell: dict[str, Any]
    """Its axes."""
    first: float
    second: float
    """Medians of the throughput, Mbit/s."""
    runs: tuple[int, int]
    low: float | None
    high: float | None
    """Of the difference second - first of the medians: bootstrapped confidence interval, Mbit/s."""
    verdict: str


def compare(first: Dataset, second: Dataset, tolerance: float = 0.05) -> list[Compared]:
    """Cells that both have. One differs where the confidence interval of the difference is beyond `tolerance` of the
    first's median."""
    frames = [table.runs(dataset.runs()).filter(pl.col("throughput_mbps").is_not_null()) for dataset in (first, second)]
    axes = [axis for axis in table.AXES if axis not in BETWEEN]
    cells = [_cells(frame, axes) for frame in frames]
    common = [key for key in cells[0] if key in cells[1]]
    if not common:
        raise BadInput(f"{first.directory} and {second.directory} have no cell in common; measure the same scenarios")
    varying = [number for number, _ in enumerate(axes) if len({key[number] for key in common}) > 1]
    return [
        _compared({axes[n]: key[n] for n in varying}, cells[0][key], cells[1][key], tolerance)
        for key in sorted(common, key=str)
    ]


def _cells(frame: pl.DataFrame, axes: list[str]) -> dict[tuple[Any, ...], np.ndarray]:
    def each() -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
        for key, rows in frame.group_by(axes):
            yield key, rows["throughput_mbps"].to_numpy()

    return dict(each())


def _compared(cell: dict[str, Any], a: np.ndarray, b: np.ndarray, tolerance: float) -> Compared:
    medians = float(np.median(a)), float(np.median(b))
    if min(len(a), len(b)) < LEAST_RUNS:
        return Compared(cell, *medians, (len(a), len(b)), None, None, TOO_FEW)
    low, high = _interval(a, b)
    margin = tolerance * medians[0]
    verdict = WORSE if high < -margin else BETTER if low > margin else SAME
    return Compared(cell, *medians, (len(a), len(b)), low, high, verdict)


def _interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    if np.ptp(a) == 0 and np.ptp(b) == 0:  # nothing to resample
        return float(b[0] - a[0]), float(b[0] - a[0])
    found = stats.bootstrap(
        (a, b),
        lambda x, y, axis: np.median(y, axis=axis) - np.median(x, axis=axis),
        confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method="percentile", vectorized=True, rng=1,
    )  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
