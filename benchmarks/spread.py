"""How the benchmarks write what they have measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def shown(values: Sequence[float], digits: int | None = 1, once: bool = False) -> str:
    """Return the median, with the smallest and the largest value: with so many digits after the point, or None with
    three in all. `once`: the median alone where the three are written alike."""

    def written(value: float) -> str:
        if digits is None:
            return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        return f"{value:.{digits}f}"

    median, low, high = (written(value) for value in (statistics.median(values), min(values), max(values)))
    return median if once and low == high else f"{median} ({low} to {high})"
