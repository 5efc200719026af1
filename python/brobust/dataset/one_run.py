"""One run of a dataset: its tables, and how a user names it."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from functools import cached_property

from brobust import files, units
from brobust.dataset.store import Dataset
from brobust.errors import BadInput, BrobustError
from brobust.lazily import pl
from brobust.scenario import Run, differences

MAX_PCAP = 2_000_000_000
SHOWN = 6
"""So many runs are named in a refusal."""


def _table(name: str) -> cached_property[pl.DataFrame]:
    return cached_property(lambda run: run.table(name))


class Tables(ABC):
    """Tables, each of which is read once, when it is first asked for."""

    runs = _table("runs")
    throughput = _table("throughput")
    samples = _table("samples")
    offtimes = _table("offtimes")
    packets = _table("packets")
    transfers = _table("transfers")
    requests = _table("requests")
    connections = _table("connections")
    programs = _table("programs")
    calls = _table("calls")

    @abstractmethod
    def table(self, name: str) -> pl.DataFrame:
        """Return the rows of the table of this name."""


class OfRun(Tables):
    """The tables of one run: of a dataset's (OneRun), or of one that was just measured (brobust.run's Result)."""

    @property
    @abstractmethod
    def pcap(self) -> bytes | None:
        """The link's frames; None if they were not recorded."""


class OneRun(OfRun):
    def __init__(self, dataset: Dataset, run: str):
        self._dataset, self.id = dataset, run

    def __repr__(self) -> str:
        return f"<brobust run {self.id} of {self._dataset.directory}>"

    def table(self, name: str) -> pl.DataFrame:
        """Return the rows; refuse what no brobust has measured: a dataset may be a stranger's."""
        rows = self._dataset.table(name, [self.id])
        if (column := _impossible(name, rows)) is not None:
            raise BadInput(
                f"run {self.id}: its table {name} of {self._dataset.directory} has an impossible {column}; "
                "measure it again, or take another copy of the dataset"
            )
        return rows

    @property
    def pcap(self) -> bytes | None:
        file = self._dataset.directory / "pcap" / f"{self.id}.pcap"
        return files.read(file, MAX_PCAP) if file.exists() else None

    def run(self) -> Run | None:
        """Return what was to be measured; None where the dataset's scenario does not have the run (any more), or is of
        another version."""
        try:
            runs = self._dataset.grid().runs()
        except BadInput:
            return None
        return next((run for run in runs if run.id == self.id), None)


# Columns of a run's tables that always have a value, and between which numbers.
_KNOWN = {
    "runs": "flow cc flows start_s pattern sender share traffic backend bandwidth_mbps rtt_ms duration_s outcome "
    "ip_version buffer_bytes loss cross_load throughput_mbps",
    "throughput": "flow time_s throughput_mbps", "samples": "flow time_s", "offtimes": "sender kind duration_ms",
    "packets": "time_s flow direction seq ack payload_bytes frame_bytes dropped",
    "calls": "node process thread name call start_s duration_ms result",
}  # fmt: skip
_BETWEEN = {"bandwidth_mbps": (1e-3, 1e6), "duration_s": (1e-3, 1e5), "share": (1e-6, 1), "ip_version": (4, 6),
            "time_s": (0, files.MAX_RECORDING_S)}  # fmt: skip


def _range_of(column: str) -> tuple[float, float]:
    """Return between which values a column of numbers is: a time becomes ns, and others are added to."""
    return (-files.MAX_RECORDING_S, files.MAX_RECORDING_S) if column.endswith("_s") else (-(2.0**62), 2.0**62)


def _impossible(name: str, rows: pl.DataFrame) -> str | None:
    """Return a column of a run's table of this name that has a value which none can have, or lacks one; None: none."""
    for column, values in zip(rows.columns, rows, strict=True):
        if column in _KNOWN.get(name, "").split() and values.null_count():
            return column
        if values.dtype.is_numeric() and not values.is_between(*_BETWEEN.get(column, _range_of(column))).all():
            return column
    if name == "runs" and not rows["flow"].is_unique().all():
        return "flow"
    before_end = pl.col("start_s").is_between(0, pl.min_horizontal("duration_s", "stop_s"), closed="left")
    if name == "runs" and not rows.select(before_end.all()).item():
        return "start_s"
    return None


def find(dataset: Dataset, beginning: str | None) -> OneRun:
    """Return the run whose id begins like this; without a beginning, the dataset's only run. Refuse if that is none, or
    several, or a run that failed."""
    runs = dataset.runs().unique("run", maintain_order=True).sort("run")
    found = runs.filter(pl.col("run").str.starts_with(beginning or ""))
    where = f"RUN {beginning!r}: " if beginning else ""
    if found.is_empty():
        raise BadInput(
            f"{where}{dataset.directory} holds {'no such run' if where else 'no run'}; {_named(dataset, runs)}"
        )
    if found.height > 1 and beginning not in found["run"]:
        such = "such runs" if where else "runs"
        raise BadInput(f"{where}{dataset.directory} holds {found.height} {such}; {_named(dataset, found)}")
    if beginning in found["run"]:
        found = found.filter(pl.col("run") == beginning)
    run, outcome, reason = found.select("run", "outcome", "reason").row(0)
    if outcome == "failed":
        raise BadInput(f"run {run} failed: {reason}; nothing of it was measured")
    return OneRun(dataset, run)


# Fields that the name of each run in a refusal has anyway.
ALWAYS_NAMED = ("flows.cc", "contention.share")


def _named(dataset: Dataset, runs: pl.DataFrame) -> str:
    """Return what to do where these runs can be chosen: each with what tells it from the others."""
    if runs.is_empty():
        return "measure one with `brobust run`"
    shown = runs.head(SHOWN)
    of_all = set(runs["scenario"])  # also of those that are only counted: any of them may be the one that is meant
    try:
        known = differences.fields(one for one in dataset.grid().scenarios if one.hash in of_all)
    except BrobustError:  # a file of another version, or a kernel that is not here
        known = {}
    differ = differences.names(known.values(), ignored=ALWAYS_NAMED)
    names = []
    for row in shown.iter_rows(named=True):
        fields = known.get(row["scenario"], {})
        own = [(name, fields[name]) for name in differ if name in fields]
        apart = "".join(f", no {name}" if value == differences.NOTHING else f", {name} {value}" for name, value in own)
        names.append(f"{row['run']} ({row['cc']}, {units.show_percent(row['share'])} CPU{apart})")
    if runs.height > SHOWN:
        page = f"`brobust explore {shlex.quote(str(dataset.directory))}`"
        names.append(f"and {runs.height - SHOWN} more; {page} shows them all")
    return f"give one of {'; '.join(names)}"
