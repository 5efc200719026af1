"""How sure a median is: 95 % confidence intervals by bootstrap (scipy.stats.bootstrap, percentiles)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

MIN_RUNS = 3  # resampling fewer says nothing
CONFIDENCE = 0.95
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
    return _bootstrap([values, over], lambda medians: medians[0] / medians[1])


def _bootstrap(samples: Sequence[Sequence[float]], combine: Callable[[list[Any]], Any]) -> Interval | None:
    import numpy as np
    from scipy import stats  # imports for a second, which only statistics should have to wait

    arrays = [np.asarray(sample, dtype=float) for sample in samples]
    if min(len(array) for array in arrays) < MIN_RUNS:
        return None

    def statistic(*resampled: np.ndarray, axis: int) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return combine([np.median(one, axis=axis) for one in resampled])

    if all(np.ptp(array) == 0 for array in arrays):  # nothing to resample
        only = float(statistic(*arrays, axis=0))
        return only, only
    found = stats.bootstrap(
        arrays, statistic, confidence_level=CONFIDENCE, n_resamples=RESAMPLES, method="percentile", vectorized=True,
        rng=1,
    )  # fmt: skip
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
