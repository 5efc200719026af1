"""In which fields scenarios differ, for whoever tells apart what was measured."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from brobust.scenario.description import shown
from brobust.scenario.fields import ROWS
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
    of_each = {one.hash: _tables(one) for one in scenarios}
    several = {name for name in FIRST if any(len(one[name]) > 1 for one in of_each.values())}
    return {key: dict(_texts(one, several)) for key, one in of_each.items()}


def names(of: Iterable[Fields], ignored: Collection[str] = ()) -> list[str]:
    """Return the names of the fields that differ, in the order of the fields. One that says nothing in some of the
    scenarios does not differ there."""
    return [name for name, several in _values(of).items() if name not in ignored and len(several) > 1]


SHOWN = 3
"""Of so many fields in which two grids differ the values are named."""


def in_words(here: Sequence[Fields], there: Sequence[Fields]) -> str:
    """Return in which fields the scenarios of one grid are others than those of another one, such as "duration is 10s
    here and 20s there"; nothing if each field has the same values."""
    ours, theirs = _values(here), _values(there)
    differ = [name for name in {**ours, **theirs} if set(ours.get(name, ())) != set(theirs.get(name, ()))]
    # A field that says nothing in one of the grids, such as the timeslice of undisturbed senders, follows from another.
    differ = [name for name in differ if name in ours and name in theirs] or differ
    named = [
        f"{name} is {several(ours.get(name, {}), theirs.get(name, {}))} here and "
        f"{several(theirs.get(name, {}), ours.get(name, {}))} there"
        for name in differ[:SHOWN]
    ]
    more = f"; and {', '.join(differ[SHOWN:])}, too" if len(differ) > SHOWN else ""
    return "; ".join(named) + more


SHOWN_VALUES = 6
"""Of so many values of a field all are named."""


def several(values: Iterable[str], others: Collection[str] = (), comma: str = ",") -> str:
    """Return values as an option has them; of very many the first, beginning with those that the others lack."""
    every = list(values)
    if len(every) <= SHOWN_VALUES:
        return comma.join(every) or NOTHING
    every.sort(key=lambda value: value in others)
    return f"{comma.join(every[:SHOWN_VALUES])} and {len(every) - SHOWN_VALUES} more"


def _values(of: Iterable[Fields]) -> dict[str, dict[str, None]]:
    values: dict[str, dict[str, None]] = {}
    for one in of:
        for name, value in one.items():
            values.setdefault(name, {})[value] = None
    return values


def _tables(s: Scenario) -> dict[str, Any]:
    """Return the tables and fields of a scenario, without those that say nothing because it does not have what they are
    of."""
    # Also of those for which no table is given: they are undisturbed.
    senders = [s.contention_of(number) for number in range(FIRST["senders"], s.sender_count + 1)]
    dumped: dict[str, Any] = {**s.model_dump(mode="json"), "senders": [one.model_dump(mode="json") for one in senders]}
    tables = [dumped["contention"], dumped["receiver"], *dumped["senders"]]
    for table, contention in zip(tables, [s.contention, s.receiver, *senders], strict=True):
        for key in _unused_of(contention):
            del table[key]
    if not s.cross_traffic.load:
        dumped["cross_traffic"] = {"load": s.cross_traffic.load}
    if s.path.second_bandwidth is None:
        del dumped["path"]["second_buffer"]
    if s.cpu.frequency is None:
        del dumped["cpu"]
    if s.traffic == "brobust":  # of iperf3 they say what its calls cost
        del dumped["programs"]
    return dumped


def _texts(tables: Mapping[str, Any], several: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield name and text of each field. A name has a number where there are several tables of that kind."""
    for name, value in tables.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{key}", _text(one)) for key, one in value.items())
        elif name in FIRST:
            for number, table in enumerate(value, FIRST[name]):
                yield from _texts({f"{name}.{number}" if name in several else name: table}, several)
        else:
            yield name, _text(value)


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
