"""Tables of a run as the controller of virtual time hands them over: columns as bytes, intervals as pairs of integers.

A frame costs a millisecond of CPU, however small it is. So these tables become frames only where they are read or
written, and those of many runs together become one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Self

from brobust.lazily import pl

Columns = dict[str, tuple[str, bytes]]
"""By name: the name of numpy's type, and the bytes. NaN and the smallest integer stand for missing values."""

# This uses array, because importing numpy takes longer than a short run.
_OF_ARRAY = {"f8": "d", "i8": "q", "?": "b"}


def from_bytes(table: Columns) -> pl.DataFrame:
    """Return the columns as a frame, with null for missing values."""
    data = {name: array(_OF_ARRAY[kind], content) for name, (kind, content) in table.items()}
    types, columns = {"f8": pl.Float64, "i8": pl.Int64, "?": pl.Boolean}, []
    for name, (kind, _) in table.items():
        column = pl.col(name).cast(types[kind])
        if kind == "f8":
            column = column.fill_nan(None)
        elif kind == "i8":
            column = pl.when(column != -(2**63)).then(column)
        columns.append(column.alias(name))
    return pl.DataFrame(data).select(columns)


class Raw(ABC):
    """A table of a run that is no frame yet."""

    run: str

    @property
    @abstractmethod
    def bytes(self) -> int:
        """About how much memory it takes."""

    @classmethod
    @abstractmethod
    def together(cls, several: Sequence[Self]) -> pl.DataFrame:
        """Return the tables of several runs as one frame, with the column `run`."""


@dataclass(frozen=True)
class RawColumns(Raw):
    """Columns that are handed over as they are."""

    run: str
    columns: Columns

    @property
    def bytes(self) -> int:
        return sum(len(content) for _, content in self.columns.values())

    @classmethod
    def together(cls, several: Sequence[Self]) -> pl.DataFrame:
        first = several[0].columns
        joined = {name: (kind, b"".join(one.columns[name][1] for one in several)) for name, (kind, _) in first.items()}
        name, (kind, _) = next(iter(first.items()))
        width = array(_OF_ARRAY[kind]).itemsize
        counts = [len(one.columns[name][1]) // width for one in several]
        return from_bytes(joined).with_columns(_repeated(several, counts))


@dataclass(frozen=True)
class RawTimeslices(Raw):
    """The timeslices that senders had, as pairs of beginning and end in ns; `duration` is the run's."""

    run: str
    duration: int
    senders: dict[int, Any]

    @property
    def bytes(self) -> int:
        return sum(100 * len(slices) for slices in self.senders.values())

    @classmethod
    def together(cls, several: Sequence[Self]) -> pl.DataFrame:
        """Return a row for each timeslice and each time between two."""
        edges, senders, counts = array("q"), array("q"), []
        for one in several:
            before = len(edges)
            for sender, slices in one.senders.items():
                # Off-times begin at the edges with even numbers, timeslices at the others; the last begins none.
                of_sender = array("q", chain((0,), chain.from_iterable(slices), (one.duration,)))
                edges += of_sender
                senders += array("q", (sender,)) * len(of_sender)
            counts.append(len(edges) - before)
        all_edges = pl.DataFrame({"edge": edges, "sender": senders}).with_columns(_repeated(several, counts))
        begin, end, is_off = pl.col("edge"), pl.col("edge").shift(-1), pl.int_range(pl.len()) % 2 == 0
        is_last = pl.struct("run", "sender") != pl.struct("run", "sender").shift(-1)
        return (
            all_edges.with_columns(end=end, is_off=is_off, is_last=is_last.fill_null(True))
            .filter(~pl.col("is_last") & ~(pl.col("is_off") & (pl.col("end") <= begin)))
            .select(
                "run", "sender",
                kind=pl.when("is_off").then(pl.lit("off")).otherwise(pl.lit("timeslice")),
                start_s=begin / 1e9,
                duration_ms=(pl.col("end") - begin) / 1e6,
            )
        )  # fmt: skip


def _repeated(several: Sequence[Raw], counts: Sequence[int]) -> pl.Series:
    """Return the column `run`: the name of each run as often as it has rows."""
    numbers = array("q", chain.from_iterable([number] * count for number, count in enumerate(counts)))
    return pl.Series("run", [one.run for one in several], dtype=pl.String).gather(pl.Series(numbers, dtype=pl.Int64))
