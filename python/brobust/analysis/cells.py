"""Cells: runs that differ only in their repeat. Each is a row, with its class (2BRobust, section 5.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from brobust.analysis import confidence
from brobust.analysis.axes import AXES, CONTENDED
from brobust.lazily import pl

# The axes that distinguish cells. `timeslice_ms` is null where the CPU is undisturbed.
CELL = [
    *(axis for axis in AXES if axis not in ("pattern", "flow_rtt_ms", "replay", "buffer_bytes")),
    "buffer_bdp",
]
# A cell is non-limited if it fills FULL of the link. It is strictly CPU-limited if its throughput does not depend on
# the bandwidth: it and those at all higher bandwidths lie within a factor of WITHIN; at the highest bandwidth, it and
# that at the next lower one. Otherwise it is recovering.
FULL = 0.9
WITHIN = 1.5
CLASSES = ("strictly CPU-limited", "recovering", "non-limited")


def groups(every: pl.DataFrame, along: str) -> Iterator[pl.DataFrame]:
    """Yield groups of cells that differ only along this axis. Cells whose CPU is undisturbed have no schedule: they are
    a part of every group along the share."""
    others = [axis for axis in CELL if axis != along]
    if along == "share":
        same = [axis for axis in others if axis not in CONTENDED]
        every = undisturbed_with_every_schedule(every, pl.col("driver") == "none", same, CONTENDED)
    yield from every.partition_by(others, maintain_order=True)


def undisturbed_with_every_schedule(
    rows: pl.DataFrame, is_undisturbed: pl.Expr, same: Sequence[str], schedule: Collection[str]
) -> pl.DataFrame:
    """Return the rows, and each undisturbed one as often as there are schedules (values of these columns) among the
    contended rows that are the same as it in the columns `same`. One without any stays as it is."""
    undisturbed = rows.filter(is_undisturbed)
    contended = rows.filter(is_undisturbed.not_().fill_null(True))
    # What is replayed has no timeslice either, and is a schedule of its own.
    schedules = contended.drop_nulls("timeslice_ms").select(*same, *schedule).unique(maintain_order=True)
    repeated = undisturbed.drop(schedule).join(schedules, on=same, nulls_equal=True)
    alone = undisturbed.join(schedules, on=same, how="anti", nulls_equal=True)
    return pl.concat([contended, repeated.select(rows.columns), alone])


def classed(cells: pl.DataFrame, within: float = WITHIN, full: float = FULL) -> pl.DataFrame:
    """Return cells, which have `value` and `utilization`, with their `class`: 0 to 2, as in CLASSES. It is null where
    there is no other bandwidth to compare with, unless the link is full."""
    return pl.concat([_classed(group, within, full) for group in groups(cells, "bandwidth_mbps")])


def _classed(group: pl.DataFrame, within: float, full: float) -> pl.DataFrame:
    group = group.sort("bandwidth_mbps")
    values = group["value"].to_list()
    found = []
    for number, filled in enumerate(group["utilization"].to_list()):
        others = values[number:] if number + 1 < len(values) else values[-2:]
        limited = max(others) <= within * min(others) if len(others) > 1 else None
        found.append(2 if filled >= full else None if limited is None else 0 if limited else 1)
    return group.with_columns(pl.Series("class", found, dtype=pl.Int32))


def table(runs: pl.DataFrame) -> pl.DataFrame:
    """Return a row per cell of these runs (summary.runs): its axes, n, median throughput (Mbit/s) and the ends of its
    95 % confidence interval, utilization, median retransmits (segments), class."""
    cells = (
        runs.group_by(CELL)
        .agg(
            pl.len().alias("n"),
            pl.col("throughput_mbps").sort().alias("each"),
            pl.col("throughput_mbps").median().alias("value"),
            pl.col("utilization", "retransmits").median(),
        )
        .sort(CELL)
    )
    cells = classed(cells).sort(CELL)
    found = [confidence.of_median(each) or (None, None) for each in cells["each"].to_list()]
    names = pl.col("class").replace_strict(dict(enumerate(CLASSES)), default=None, return_dtype=pl.String)
    return cells.select(
        *CELL,
        "n",
        throughput_mbps="value",
        low_mbps=pl.Series([low for low, _ in found], dtype=pl.Float64),
        high_mbps=pl.Series([high for _, high in found], dtype=pl.Float64),
        utilization="utilization",
        retransmits="retransmits",
        **{"class": names},
    )
