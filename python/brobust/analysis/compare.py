"""Two datasets cell by cell: a kernel before and after an upgrade, a control before and after a patch."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust.analysis import confidence, summary
from brobust.analysis.axes import AXES, axis_value, cell_phrase, heading, in_order
from brobust.dataset import Dataset
from brobust.errors import BadInput
from brobust.scenario.differences import several
from brobust.units import show_count

# Axes on which the two datasets may differ: they are what is compared.
BETWEEN = ("kernel", "accelerator")
# Fields in which cells that are compared may differ, too: `scenario` is of all fields, kernel and seed among them, and
# to keep packets in virtual time takes none of it.
NOT_COMPARED = ("scenario", "hosts", "packets")
SAME, WORSE, BETTER, TOO_FEW = "same", "worse", "better", "too few runs"


@dataclass(frozen=True)
class Compared:
    cell: dict[str, Any]
    """Its values on the axes that vary."""
    first: float
    second: float
    """Medians of the throughput in both datasets, Mbit/s."""
    runs: tuple[int, int]
    low: float | None
    high: float | None
    """Bootstrapped confidence interval of the difference of the medians, second - first, Mbit/s."""
    verdict: str
    may_differ: bool = False
    """Whether it is only not shown to differ: its runs are not the same, and the interval reaches beyond the
    tolerance."""


@dataclass(frozen=True)
class Comparison:
    cells: list[Compared]
    """Those of which both have results."""
    left_out: list[str]
    """A sentence for each of the datasets that has results of other cells."""


def compare(first: Dataset, second: Dataset, tolerance: float = 0.05) -> Comparison:
    """Compare the cells that both datasets have. A cell differs where the confidence interval of the difference lies
    beyond `tolerance` times the first median. A run of the second that failed carried nothing; one of the first says
    nothing."""
    frames, axes = _of_each(first, second)
    cells = [{key: rows["throughput_mbps"].to_list() for key, rows in frame.group_by(axes)} for frame in frames]
    common = frames[0].join(frames[1], on=axes, how="semi", nulls_equal=True)
    if common.is_empty():
        apart = [f"{heading(name)} ({' and '.join(of_each)})" for name in axes if (of_each := _apart(frames, name))]
        why = f", but differ in {', '.join(apart)}" if apart else ""
        raise BadInput(
            f"{first.directory} and {second.directory} have no cell in common{why}; measure the same scenarios"
        )
    varying = _varying(common, axes)
    common = _sorted(common, varying)
    values = common.select(varying).to_dicts() if varying else [{} for _ in range(len(common))]
    shown = dict(zip(common.select(axes).iter_rows(), values, strict=True))
    compared = [_compared(cell, cells[0][key], cells[1][key], tolerance) for key, cell in shown.items()]
    return Comparison(compared, list(_left_out(frames, axes)))


def _left_out(frames: Sequence[pl.DataFrame], axes: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each dataset that has results of cells of which the other one has none."""
    varying = _varying(pl.concat(frames), axes)
    for name, here, there in zip("AB", frames, reversed(frames), strict=True):
        alone = _sorted(here.join(there, on=axes, how="anti", nulls_equal=True), varying)
        if not alone.is_empty():
            row, count = alone.row(0, named=True), alone.select(axes).n_unique()
            cell = cell_phrase(alone, varying, [row[axis] for axis in varying])
            yield f"only {name} has results of {show_count(count, 'cell')}, left out here; the first: {cell}"


def _of_each(first: Dataset, second: Dataset) -> tuple[tuple[pl.DataFrame, pl.DataFrame], list[str]]:
    """Return the runs of each dataset, and what tells their cells apart: axes, and fields that differ."""
    runs = [summary.runs(first.runs()), _with_failed(second.runs())]
    for dataset in (first, second):
        if dataset.runs().filter(pl.col("outcome") != "failed").is_empty():
            raise BadInput(f"{dataset.directory} holds no measured run to compare")
    axes = [axis for axis in AXES if axis not in BETWEEN]
    both, others = summary.told_apart(
        pl.concat(runs), axes, lambda: [*first.grid().scenarios, *second.grid().scenarios]
    )
    axes += [name for name in others if name not in NOT_COMPARED]
    return (both.head(runs[0].height), both.tail(runs[1].height)), axes


def _varying(runs: pl.DataFrame, axes: Sequence[str]) -> list[str]:
    """Return which of these axes and fields name a cell of these runs."""
    others = [name for name in axes if name not in AXES and runs[name].n_unique() > 1]
    return [*(axis for axis in summary.varying(runs) if axis not in BETWEEN), *others]


def _sorted(runs: pl.DataFrame, varying: Sequence[str]) -> pl.DataFrame:
    return runs.sort(in_order(varying), descending=[axis == "share" for axis in varying]) if varying else runs


def _with_failed(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run, also of those that failed: a kernel that panics must not pass because it has no
    throughput."""
    return summary.runs(table.with_columns(outcome=pl.lit(""))).with_columns(pl.col("throughput_mbps").fill_null(0))


def _apart(frames: Sequence[pl.DataFrame], name: str) -> list[str]:
    """Return in words which values of an axis or a field each dataset has, if they share none."""
    first, second = (frame[name].unique().sort().to_list() for frame in frames)
    if set(first) & set(second):
        return []
    return [several([axis_value(name, value) for value in values], comma=", ") for values in (first, second)]


def _compared(cell: dict[str, Any], a: list[float], b: list[float], tolerance: float) -> Compared:
    medians = statistics.median(a), statistics.median(b)
    interval = confidence.of_difference(a, b)
    if interval is None:
        return Compared(cell, *medians, (len(a), len(b)), None, None, TOO_FEW)
    low, high = interval
    margin = tolerance * medians[0]
    carries_nothing = medians[1] == 0 < medians[0]  # if four of five runs failed, the interval reaches to the fifth
    verdict = WORSE if high < -margin or carries_nothing else BETTER if low > margin else SAME
    # Runs that carry the same in both differ in nothing, however much they vary: in virtual time, the same packets.
    may_differ = verdict == SAME and max(-low, high) > margin and sorted(a) != sorted(b)
    return Compared(cell, *medians, (len(a), len(b)), low, high, verdict, may_differ)
