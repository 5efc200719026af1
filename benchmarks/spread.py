"""How the benchmarks write what they have measured several times, and what cannot be measured here."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from brobust.errors import BrobustError


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; end with one line where it is refused."""
    try:
        main()
    except BrobustError as refusal:
        sys.exit(f"{Path(sys.argv[0]).name}: {refusal}")


def shown(values: Sequence[float], digits: int | None = 1, once: bool = False) -> str:
    """Return the median, with the smallest and the largest value: with so many digits after the point, or None with
    three in all. `once`: the median alone where the three are written alike."""

    def written(value: float) -> str:
        if digits is None:
            return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
        return f"{value:.{digits}f}"

    median, low, high = (written(value) for value in (statistics.median(values), min(values), max(values)))
    return median if once and low == high else f"{median} ({low} to {high})"
