"""Cross traffic: which flows begin when, and how long they took.

Sizes have a Pareto distribution with an upper bound, as those of files that the web transfers (Crovella and Bestavros,
"Self-Similarity in World Wide Web Traffic", IEEE/ACM Transactions on Networking 5(6), 1997), and times between two
beginnings an exponential one.
"""

from __future__ import annotations

import math
import random

from brobust import units
from brobust.dataset import TRANSFERS, frame
from brobust.lazily import pl
from brobust.scenario import Run, Scenario

MICROSECOND = 1000  # ns


def draw(s: Scenario, seed: int) -> list[tuple[int, int]]:
    """Return start (ns) and size (bytes) of each flow, in the order of their starts.

    They are whole microseconds and bytes, so that the last digit of a logarithm, in which C libraries differ, changes
    no packet."""
    drawn, cross = random.Random(f"cross traffic {seed}"), s.cross_traffic
    smallest = _smallest(cross.size, cross.shape, cross.max_size)
    per_ns = s.mean_transfers / s.duration
    if per_ns == 0:  # of a load so small that the division leaves nothing of it
        return []
    flows, at = [], 0.0
    while (at := at - math.log(1 - drawn.random()) / per_ns) < s.duration:
        size = _size(drawn.random(), smallest, cross.shape, cross.max_size)
        flows.append((int(at / MICROSECOND) * MICROSECOND, max(1, round(size))))
    return flows


def _size(part: float, smallest: float, shape: float, largest: float) -> float:
    """Return the size below which this part of the flows is."""
    return float(smallest * (1 - part * (1 - (smallest / largest) ** shape)) ** (-1 / shape))


def _smallest(mean: float, shape: float, largest: float) -> float:
    """Return the smallest size of the distribution with this mean."""
    low, high = 0.0, float(mean)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _mean(middle, shape, largest) < mean else (low, middle)
    return high


def _mean(smallest: float, shape: float, largest: float) -> float:
    if smallest == 0:
        return 0
    ratio = smallest / largest
    return float(smallest * shape / (shape - 1) * (1 - ratio ** (shape - 1)) / (1 - ratio**shape))


def results(transfers: pl.DataFrame, run: Run) -> pl.DataFrame:
    path, enters = run.scenario.path, run.scenario.cross_traffic.enters
    narrowest = path.narrowest if enters == "first" else path.second_bandwidth or path.bandwidth
    payload = units.PAYLOAD_BYTES_OF[path.ip_version]
    frames = (pl.col("bytes") / payload).ceil()
    on_wire = pl.col("bytes") + frames * (units.FRAME_BYTES - payload)
    shortest_ms = 1.5 * path.rtt / 1e6 + on_wire * 8e3 / narrowest
    slowdown = pl.col("completion_ms") / shortest_ms
    return frame(transfers.with_columns(pl.lit(run.id).alias("run"), slowdown.alias("slowdown")), TRANSFERS)


def figures(transfers: pl.DataFrame) -> dict[str, float | int | None]:
    """Return the columns of the run."""
    took, slowdown = transfers["completion_ms"].drop_nulls(), transfers["slowdown"].drop_nulls()
    return {
        "cross_transfers": len(transfers),
        "cross_ended": len(took),
        "cross_median_ms": took.quantile(0.5, "linear"),
        "cross_p99_ms": took.quantile(0.99, "linear"),
        "cross_slowdown": slowdown.quantile(0.5, "linear"),
        "cross_slowdown_p99": slowdown.quantile(0.99, "linear"),
    }
