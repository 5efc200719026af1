"""In which fields scenarios differ, for whoever tells apart what was measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from brobust.scenario.description import shown
from brobust.scenario.fields import ROWS

if TYPE_CHECKING:
    from brobust.scenario.model import Scenario
    from brobust.scenario.tables import Contention

Fields = Mapping[str, str]
"""The fields of a scenario by their names, as people read them."""

NOTHING = "-"
# Lists of tables, with the number of the first: that of a group of flows, that of a sender.
FIRST = {"flows": 1, "senders": 2}
# What a table of contention says only where the sender is given timeslices.
_OF_SLICES = {row.key for row in ROWS if row.column is not None and row.column.null_without_slices}
_OF_CONTENTION = _OF_SLICES | {"driver", "start", "stop"}


def fields(scenarios: Iterable[Scenario]) -> dict[str, Fields]:
    """Return the fields of scenarios by their hashes, without those that say nothing there, such as the timeslice of an
    undisturbed sender. A field's name has the number of its sender or group of flows if there are several:
    flows.2.start."""
    of_each = {one.hash: _fields(one) for one in scenarios}
    names = {name for one in of_each.values() for name in one}
    alone = [
        f"{table}.{first}."
        for table, first in FIRST.items()
        if len({name.split(".")[1] for name in names if name.startswith(f"{table}.")}) == 1
    ]

    def named(name: str) -> str:
        for prefix in alone:
            name = name.replace(prefix, prefix.split(".")[0] + ".", 1) if name.startswith(prefix) else name
        return name

    return {key: {named(name): _text(value) for name, value in one.items()} for key, one in of_each.items()}


def names(of: Iterable[Fields], ignored: Collection[str] = ()) -> list[str]:
    """Return the names of the fields that differ, in the order of the fields. One that says nothing in some of the
    scenarios does not differ there."""
    values: dict[str, set[str]] = {}
    for one in of:
        for name, value in one.items():
            values.setdefault(name, set()).add(value)
    return [name for name, several in values.items() if name not in ignored and len(several) > 1]


def _fields(s: Scenario) -> dict[str, Any]:
    found: dict[str, Any] = {}
    dumped = s.model_dump(mode="json")
    # Also of those for which no table is given: they are undisturbed.
    dumped["senders"] = [s.contention_of(number).model_dump(mode="json") for number in range(2, s.sender_count + 1)]
    for name, value in dumped.items():
        if name in FIRST:
            for number, table in enumerate(value, FIRST[name]):
                found |= {f"{name}.{number}.{key}": one for key, one in table.items()}
        else:
            found |= {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
    for name in _unused(s):
        found.pop(name, None)
    return found


def _unused(s: Scenario) -> Iterator[str]:
    """Yield the fields that say nothing about a scenario, because it does not have what they are of."""
    contentions = {"contention": s.contention, "receiver": s.receiver}
    contentions |= {f"senders.{number}": s.contention_of(number) for number in range(2, s.sender_count + 1)}
    for table, contention in contentions.items():
        yield from (f"{table}.{key}" for key in _unused_of(contention))
    if not s.cross_traffic.load:
        yield from (f"cross_traffic.{key}" for key in type(s.cross_traffic).model_fields if key != "load")
    if s.path.second_bandwidth is None:
        yield "path.second_buffer"
    if s.cpu.frequency is None:
        yield from (f"cpu.{key}" for key in type(s.cpu).model_fields)
    if s.traffic in ("brobust", "iperf3"):
        yield from (f"programs.{key}" for key in type(s.programs).model_fields)


def _unused_of(contention: Contention) -> Collection[str]:
    if not contention.active:
        return _OF_CONTENTION
    return _OF_SLICES if contention.replay is not None else ()


def _text(value: Any) -> str:
    if value is None or value == []:
        return NOTHING
    if isinstance(value, list):  # of files, or of changes
        return ",".join(one if isinstance(one, str) else ":".join(one) for one in value)
    return "0s" if value == "0ns" else shown(value)
