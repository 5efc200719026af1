"""A scenario and the outcome of a run as rows of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

import brobust
from brobust.dataset.columns import TABLES, Rows
from brobust.dataset.raw import Raw
from brobust.lazily import pl
from brobust.scenario import Flows, Run, Scenario
from brobust.scenario.description import DIVISORS, Field
from brobust.scenario.fields import ROWS
from brobust.scenario.tables import WORK


@dataclass
class Measured:
    """What one run leaves behind: rows for each table, and the link's frames as a pcap file."""

    runs: list[dict[str, Any]]
    throughput: Rows = field(default_factory=list)
    samples: Rows = field(default_factory=list)
    offtimes: Rows = field(default_factory=list)
    packets: Rows | None = None
    transfers: Rows = field(default_factory=list)
    requests: Rows = field(default_factory=list)
    connections: Rows = field(default_factory=list)
    programs: Rows = field(default_factory=list)
    calls: Rows = field(default_factory=list)
    pcap: bytes | None = None

    @property
    def bytes(self) -> int:
        """About how much memory the tables and the capture take; rows are few."""
        return sum(_bytes(getattr(self, name)) for name in TABLES) + len(self.pcap or b"")


def _bytes(table: Rows | None) -> int:
    if isinstance(table, pl.DataFrame):
        return int(table.estimated_size())
    return table.bytes if isinstance(table, Raw) else 0


def _of_programs(key: str) -> Callable[[Scenario], Any]:
    return lambda s: None if s.traffic == "brobust" else getattr(s.programs, key)


def _of_cross_traffic(key: str) -> Callable[[Scenario], Any]:
    return lambda s: getattr(s.cross_traffic, key) if s.cross_traffic.load else None


# Fields whose columns say something else than the field's own value.
_OF_A_RUN: dict[str, Callable[[Scenario], Any]] = {
    "path.buffer": lambda s: s.path.buffer_bytes,
    "path.second_buffer": lambda s: s.path.second_buffer_bytes,
    "path.burst": lambda s: s.path.burst_bytes,
    **{f"cross_traffic.{key}": _of_cross_traffic(key) for key in ("cc", "size", "shape", "enters", "max_size")},
    "flows.count": lambda s: len(s.each_flow),
    **{f"programs.{key}": _of_programs(key) for key in ("call_time", *WORK)},
    "samples": lambda s: 0 if s.samples == "ack" else s.samples,
}
_OF_A_FLOW: dict[str, Callable[[Scenario, Flows], Any]] = {
    "flows.stop": lambda s, group: s.duration if group.stop is None else group.stop,
    "flows.rtt": lambda s, group: s.rtt_of(group)[0],
    "contention.driver": lambda s, group: s.driver_of(s.contention_of(group.sender)),
}


def scenario_columns(run: Run) -> dict[str, Any]:
    """Return the columns that the scenario alone decides, and that all flows of a run have in common."""
    own = {"run": run.id, "scenario": run.scenario.hash, "repeat": run.repeat, "brobust": brobust.__version__}
    return own | _columns_of_all_repeats(run.scenario)


@lru_cache(maxsize=256)
def _columns_of_all_repeats(s: Scenario) -> dict[str, Any]:
    return {
        row.column.name: _value(row, s, _of_a_run(row, s))
        for row in ROWS
        if row.column is not None and not row.column.from_backend and not _is_per_flow(row)
    }


def flow_columns(scenario: Scenario) -> list[dict[str, Any]]:
    """Return the columns that the scenario decides for each flow, in the order of the groups."""
    flows = [columns for group in scenario.flows for columns in [_group_columns(scenario, group)] * group.count]
    return [{"flow": number, **columns} for number, columns in enumerate(flows)]


def failed(
    run: Run,
    reason: str,
    started: datetime,
    known: Mapping[str, Any] | None = None,
    programs: Sequence[dict[str, Any]] = (),
) -> Measured:
    """Return the record of a run that could not be measured: one row per flow, without figures. `known`: columns that
    are known nevertheless; `programs`: what its programs printed, where that is known."""
    outcome = {**(known or {}), "outcome": "failed", "reason": reason, "started_at": started}
    rows = [{**scenario_columns(run), **columns, **outcome} for columns in flow_columns(run.scenario)]
    return Measured(rows, programs=list(programs))


def _is_per_flow(row: Field) -> bool:
    """Whether flows of one run differ in this field: it belongs to their group, or to their sender."""
    return row.table in ("flows", "contention") and row.name not in _OF_A_RUN


@lru_cache(maxsize=256)
def _group_columns(s: Scenario, group: Flows) -> dict[str, Any]:
    contention = s.contention_of(group.sender)
    has_slices = contention.active and contention.replay is None
    columns = {}
    for row in ROWS:
        if row.column is not None and _is_per_flow(row):
            table = group if row.table == "flows" else contention
            value = _OF_A_FLOW[row.name](s, group) if row.name in _OF_A_FLOW else getattr(table, row.key)
            columns[row.column.name] = (
                None if row.column.null_without_slices and not has_slices else _value(row, s, value)
            )
    return columns


def _of_a_run(row: Field, s: Scenario) -> Any:
    if row.name in _OF_A_RUN:
        return _OF_A_RUN[row.name](s)
    return getattr(getattr(s, row.table) if row.table else s, row.key)


def _value(row: Field, s: Scenario, value: Any) -> Any:
    """Return a field's value in the type and the unit of its column."""
    column = row.column
    assert column is not None
    if value is None or s.backend in column.null_on:
        return None
    if column.type == "text":
        return str(value)
    return value / DIVISORS[column.unit] if column.type == "number" else value
