"""How sure a median is: 95 % confidence intervals by bootstrap, percentiles of the resampled values. And how sure a
part of the runs is: Wilson's score interval.

A test compares them with those of scipy.stats.bootstrap, which would be 110 MB for these few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MIN_RUNS = 3  # resampling fewer says nothing
CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959964  # of CONFIDENCE, two-sided
RESAMPLES = 2000
Interval = tuple[float, float]


def of_median(values: Sequence[float]) -> Interval | None:
    """Return the interval of the median; None for fewer than three runs."""
    return _bootstrap([values], lambda medians: medians[0])


def of_difference(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """Return the interval of the difference of the medians, after - before; None for fewer than three runs on one
    side."""
    return _bootstrap([before, after], lambda medians: medians[1] - medians[0])


def of_ratio(values: Sequence[float], over: Sequence[float]) -> Interval | None:
    """Return the interval of the ratio of the medians, values / over; None for fewer than three runs on a side."""
    return _bootstrap([values, over], _ratio)


def of_proportion(some: int, of: int) -> Interval:
    """Return the interval of a part of the runs, some / of (E. B. Wilson, 1927): it is right for few runs, too."""
    z2 = NORMAL_QUANTILE**2
    middle = (some + z2 / 2) / (of + z2)
    half = NORMAL_QUANTILE * (some * (of - some) / of + z2 / 4) ** 0.5 / (of + z2)
    return max(0.0, middle - half), min(1.0, middle + half)


def _ratio(medians: list[Any]) -> Any:
    import numpy as np

    return np.nan_to_num(medians[0] / medians[1], nan=1.0, posinf=np.inf)  # 0 / 0: two zeros are equal


def _bootstrap(samples: Sequence[Sequence[float]], combine: Callable[[list[Any]], Any]) -> Interval | None:
    import numpy as np

    if min(len(sample) for sample in samples) < MIN_RUNS:
        return None
    draws = np.random.default_rng(1)
    medians = []
    for values in (np.asarray(sample, dtype=float) for sample in samples):
        drawn = draws.integers(0, len(values), (RESAMPLES, len(values)))
        medians.append(np.median(values[drawn], axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.sort(combine(medians))
    tail = (1 - CONFIDENCE) / 2
    return _percentile(found, tail), _percentile(found, 1 - tail)


def _percentile(ordered: np.ndarray, part: float) -> float:
    """Return the value below which this part of the ordered values lies, interpolated between the two beside it."""
    whole, fraction = divmod(part * (len(ordered) - 1), 1)
    low, high = float(ordered[int(whole)]), float(ordered[min(int(whole) + 1, len(ordered) - 1)])
    return low if low == high else low + fraction * (high - low)  # both may be infinite
