"""What was recorded on a host that carries load: its threads (`brobust contend record`), its sockets (`brobust watch
--record`). For a replay, brobust.contention reads the off-times of threads."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import polars as pl

from brobust import files
from brobust.errors import BadInput

_INTERVALS = {"thread": pl.Int64, "vcpu": pl.Int64, "kind": pl.String, "start_s": pl.Float64, "duration_ms": pl.Float64}
_LONGEST_KIND = 64  # bytes
_BEGIN = "begin_unix_s"  # in the file's metadata (crates/command/src/contend/recordings.rs)
# Fields of a sweep and of its flows that are kept (docs/watch.md has their meaning and units).
_SWEEP = {"sweep": pl.Int64, "sockets": pl.Int64, "why": pl.String}
_HOST = dict.fromkeys(("steal_share", "busiest_share", "pressure_share", "late_share"), pl.Float64)
_NAMES = ("local", "remote", "netns", "namespace", "pod", "container", "cc", "cause")
_VALUES = (
    "rate_mbps", "pacing_rate_mbps", "delivery_rate_mbps", "cwnd_bytes", "inflight_bytes", "bdp_bytes", "inflight_bdp",
    "deficit_share", "srtt_ms", "min_rtt_ms", "retransmit_share",
)  # fmt: skip
_FLOW = {**dict.fromkeys(_NAMES, pl.String), "interface": pl.Int64, **dict.fromkeys(_VALUES, pl.Float64)}
_OF_FLOWS = {"sweep": pl.Int64, **_FLOW, "time_s": pl.Float64}
_MAX_UNIX_S = 1e11  # the year 5138: calendars end in 9999
_FLOWS_OF_A_TABLE = 20_000  # so many are kept as objects of Python until they become rows
SOCKET = ("netns", "interface", "local", "remote")
"""The columns of `flows` that say which socket it is."""


@dataclass(frozen=True)
class Threads:
    """A recording of threads. `intervals` has thread, vcpu, kind, start_s and duration_ms (docs/contend.md)."""

    name: str
    begin_unix_s: float | None
    """When it began; None in recordings of 0.2.0."""
    intervals: pl.DataFrame

    @property
    def end_s(self) -> float:
        """When its last interval ends, seconds after its beginning."""
        return self.intervals.select((pl.col("start_s") + pl.col("duration_ms") / 1e3).max()).item() or 0.0


@dataclass(frozen=True)
class Sweeps:
    """A recording of sockets. Times count from its beginning, by a clock that nobody sets.

    `sweeps` has time_s, interval_s, sockets, why and the shares of `host`; `flows` has time_s, sweep, and what is known
    of each socket that a sweep shows (docs/watch.md)."""

    name: str
    begin_unix_s: float
    sweeps: pl.DataFrame
    flows: pl.DataFrame

    @property
    def end_s(self) -> float:
        """When its last sweep was made, seconds after its beginning."""
        return float(self.sweeps["time_s"][-1])


Recording: TypeAlias = Threads | Sweeps


def read(file: Path) -> Recording:
    """Return a recording of either kind, or refuse in one line what is none, is damaged, or is too large."""
    content = files.read(file, files.MAX_RECORDING)
    if content[:4] == b"PAR1":
        return threads(file, content)
    if content[:1] != b"{":
        _refuse(file, "is no recording")
    return _sweeps(file, content)


def stretches(values: pl.Series, begins: pl.Series, ends: pl.Series) -> Iterator[tuple[str, float, float]]:
    """Yield each value that lasts over consecutive intervals, with its begin and end."""
    last: tuple[str, float, float] | None = None
    for value, begin, end in zip(values, begins, ends, strict=True):
        if last is not None and value == last[0] and begin <= last[2] + 1e-6:
            last = last[0], last[1], end
            continue
        if last is not None:
            yield last
        last = None if value is None else (value, begin, end)
    if last is not None:
        yield last


def _refuse(file: Path, what: str) -> NoReturn:
    raise BadInput(f"{file}: {what}; give a file of `brobust contend record` or of `brobust watch --record`")


def threads(file: Path, content: bytes) -> Threads:
    """Return the recording of threads that is the content of a file, or refuse as `read` does."""
    try:
        begin = pl.read_parquet_metadata(io.BytesIO(content)).get(_BEGIN)
        present = pl.read_parquet_schema(io.BytesIO(content))
        if lacking := [name for name in _INTERVALS if name not in present]:
            _refuse(file, f"has no column {' and '.join(lacking)}")
        # No others: a small file may hold thousands, each of as many equal rows.
        table = pl.read_parquet(io.BytesIO(content), columns=list(_INTERVALS), n_rows=files.MAX_RECORDING_ROWS + 1)
        intervals = table.select(pl.col(name).cast(kind) for name, kind in _INTERVALS.items())
        begin_unix_s = None if begin is None else _number(float(begin), _MAX_UNIX_S)
    except (ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        _refuse(file, "is damaged")
    if intervals.height > files.MAX_RECORDING_ROWS:
        raise BadInput(f"{file}: has more than {files.MAX_RECORDING_ROWS} rows; give a shorter recording")
    is_interval = pl.all_horizontal(
        pl.col("start_s").abs() <= files.MAX_RECORDING_S, pl.col("duration_ms").is_between(0, files.MAX_RECORDING_S),
        pl.col("thread").is_not_null(),
        # Parquet keeps equal texts once: a small file may hold a long one in each of its rows.
        pl.col("kind").str.len_bytes() <= _LONGEST_KIND,
    )  # fmt: skip
    if not intervals.select(is_interval.fill_null(False).all()).item():
        _refuse(file, "holds an interval without thread, kind, start or length")
    return Threads(file.name, begin_unix_s, intervals.sort("vcpu", "thread", "start_s"))


def _sweeps(file: Path, content: bytes) -> Sweeps:
    intervals: list[float] = []
    times: list[float] = []
    begin_unix_s = 0.0
    of_sweeps: dict[str, list[Any]] = {name: [] for name in {**_SWEEP, **_HOST}}
    of_flows: dict[str, list[Any]] = {name: [] for name in _OF_FLOWS}
    tables: list[pl.DataFrame] = []
    for number, line in enumerate(io.BytesIO(content)):  # which does not copy all lines, as split() does
        if not line.endswith(b"\n"):
            break  # what a killed command had not finished
        try:
            sweep = json.loads(line)
            intervals.append(_number(sweep["interval_s"]))
            if number == 0:
                begin_unix_s = _number(sweep["time_unix_s"], _MAX_UNIX_S) - intervals[0]
            for table, row in ((_SWEEP, sweep), (_HOST, sweep["host"])):
                for name in table:
                    of_sweeps[name].append(row.get(name))
            times.append(intervals[-1] + (times[-1] if times else 0))
            for flow in sweep["flows"]:
                of_flows["sweep"].append(sweep["sweep"])
                for name in _FLOW:
                    of_flows[name].append(flow.get(name))
                of_flows["time_s"].append(times[-1])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            _refuse(file, f"line {number + 1} is no sweep")
        if len(of_flows["sweep"]) >= _FLOWS_OF_A_TABLE:
            tables.append(_table(file, of_flows, _OF_FLOWS))
    if not intervals:
        _refuse(file, "holds no sweep")
    if times[-1] > files.MAX_RECORDING_S:
        _refuse(file, f"holds sweeps over more than {files.MAX_RECORDING_S:g} s")
    sweeps = _table(file, of_sweeps, {**_SWEEP, **_HOST})
    if sweeps["sweep"].null_count() or sweeps["sweep"].is_duplicated().any():  # each flow would be of all of these
        _refuse(file, "holds two sweeps of one number, or one without")
    sweeps = sweeps.with_columns(time_s=pl.Series(times), interval_s=pl.Series(intervals))
    flows = pl.concat([*tables, _table(file, of_flows, _OF_FLOWS)])
    known = pl.all_horizontal(pl.col(*SOCKET, "cc", "cause").is_not_null())
    finite = pl.all_horizontal(pl.col(*_VALUES).is_finite().fill_null(True))
    if not flows.select((known & finite).all()).item():
        _refuse(file, "holds a socket without ends, control or cause")
    return Sweeps(file.name, begin_unix_s, sweeps, flows)


def _table(file: Path, columns: dict[str, list[Any]], schema: dict[str, Any]) -> pl.DataFrame:
    """Return a table of these columns, which are empty afterwards: they take several times its memory."""
    try:
        table = pl.DataFrame(columns, schema=schema)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        _refuse(file, "holds a field of another kind than a sweep's")
    for values in columns.values():
        values.clear()
    return table


def _number(value: Any, most: float = files.MAX_RECORDING_S) -> float:
    """Return a time that is one. ValueError or TypeError: it is none."""
    if not 0 <= value <= most:  # so that an integer of a thousand digits is none, either
        raise ValueError(value)
    return float(value)
