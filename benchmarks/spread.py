"""How the benchmarks write what they have measured several times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def shown(values: Sequence[float], digits: int = 1) -> str:
    """Return the median, with the smallest and the largest value."""
    median, low, high = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} ({low} to {high})"
