"""A grid of scenarios: the cross product of every list in a file or on the command line."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from brobust import files, quic, units
from brobust.errors import BadInput, meant
from brobust.scenario import defaults, differences
from brobust.scenario.defaults import KERNELS, kernels_of
from brobust.scenario.fields import DEFAULT_GRID, FIELDS
from brobust.scenario.model import Run, Scenario

TABLES = ("flows", "senders")
"""Lists of tables that together belong to one scenario."""
# What pydantic says of Python's types, where a user has a file, in words of files.
IN_OUR_WORDS = {"tuple_type": "give a list", "too_short": "give at least one value"}
MAX_CELLS = 100_000  # of all grids together: ten lists of ten values each are a mistake


@dataclass(frozen=True)
class _OnThisMachine:
    """A grid with the kernels that this machine has."""

    fields: dict[str, Any]
    repeats: dict[Scenario, int]
    notes: list[str]


class Grid:
    """A scenario file or command line: a cross product of scenarios, repeated and shuffled; or several cross products,
    each with its own changes in a table of `[[grids]]`."""

    def __init__(self, fields: Mapping[str, Any]):
        try:
            self._written = json.loads(json.dumps(dict(fields)))  # a deep copy, and proof that it is plain data
        except TypeError as error:  # TOML has dates
            raise BadInput(f"scenario: no field takes a date or a time of day ({error})") from None
        _check_tables(self._written, "grids", "its own changes")
        self._repeats_as_written = _repeats(self._written, as_written=True)

    @property
    def as_written(self) -> list[Scenario]:
        """The scenarios by what the user has written alone: where that names no kernel, with the usual one, whether or
        not this machine has it."""
        return list(self._repeats_as_written)

    @property
    def size(self) -> int:
        """The number of runs."""
        return sum(self._repeats_as_written.values())

    def may_continue(self, begun: Grid) -> bool:
        """Return whether a series that was begun with that grid is the one that is asked for here: it has the same
        runs, in whatever order. Where no kernel is named here, it is the one with which the series was begun."""
        ours, theirs = self._written, begun._written
        are_same = self._repeats_as_written == begun._repeats_as_written
        return bool(are_same or ours == _without_kernels(theirs))

    def differences_from(self, begun: Grid) -> str:
        """Return in words in which fields this grid is another one than that with which a series was begun, as a part
        of a sentence that begins with a colon; nothing if it is none that can be named."""
        of_each = differences.fields([*self.as_written, *begun.as_written])
        ignored = "kernel" if self._written == _without_kernels(self._written) else ""
        ours, theirs = (
            [
                {**{name: text for name, text in of_each[one.hash].items() if name != ignored}, "repeat": str(repeat)}
                for one, repeat in grid._repeats_as_written.items()
            ]
            for grid in (self, begun)
        )
        differ = differences.in_words(ours, theirs)
        return f": {differ}" if differ else ""

    @classmethod
    def together(cls, grids: Sequence[Grid]) -> Grid:
        """Return a grid of the runs of all these grids. A cell that two of them have is measured once."""
        whole = cls.__new__(cls)  # without making the scenarios again
        whole._written = {"grids": [own for grid in grids for own in _wholes(grid._written)]}
        _parts(whole._written)  # which refuses too many cells
        of_all = itertools.chain.from_iterable(grid._repeats_as_written.items() for grid in grids)
        whole._repeats_as_written = _each_once(of_all)
        return whole

    def with_all_of(self, other: Grid) -> Grid:
        """Return a grid of the runs of both: this one, if it has all of the other's."""
        if {run.id for run in other.runs()} <= {run.id for run in self.runs()}:
            return self
        return Grid.together([self, other])

    def ids_of(self, part: Grid) -> list[str]:
        """Return the runs of one of the grids that this one was made of, as they are called here: of an undisturbed
        cell, which another of them may have with another timeslice, it has one."""
        here = {one.without_idle_fields: one for one in self.scenarios}
        of_part = part._on_this_machine.repeats.items()
        return [Run(here[one.without_idle_fields], number).id for one, repeat in of_part for number in range(repeat)]

    @cached_property
    def _on_this_machine(self) -> _OnThisMachine:
        fields = json.loads(json.dumps(self._written))
        names = _fill_in_kernels(fields)
        notes = [why for kernels, name in names.items() if (why := kernels.why_default(name)) is not None]
        # An accelerator that is a list chooses among kernels, too.
        are_usual = all(name == kernels.DEFAULT for kernels, name in names.items())
        if are_usual and all("kernel" in own or "kernel" in fields for own in fields.get("grids") or [fields]):
            return _OnThisMachine(fields, self._repeats_as_written, notes)
        return _OnThisMachine(fields, _repeats(fields), notes)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as they were given, and the kernels that this machine has for those that name none."""
        return self._on_this_machine.fields

    @property
    def notes(self) -> list[str]:
        """Sentences for the user: which kernel was taken where none was named, if it is not the usual one."""
        return self._on_this_machine.notes

    @property
    def scenarios(self) -> list[Scenario]:
        """What is measured on this machine."""
        return list(self._on_this_machine.repeats)

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any], file: Path | None = None) -> Grid:
        """Return the grid of options, which override a TOML file, which overrides the defaults."""
        of_file = {} if file is None else files.read_toml(file)
        fields = override(override(_default_grid(of_file, flags), of_file), flags)
        if isinstance(several := fields.get("grids"), list):  # Grid refuses what is no list of tables
            fields["grids"] = [_overridden(own, flags) if isinstance(own, dict) else own for own in several]
        return cls(fields)

    def runs(self) -> list[Run]:
        """Return every repeat of every scenario, shuffled by the seed, so that a drift of the machine hits all cells
        equally."""
        of_each = self._on_this_machine.repeats
        repeats = max(of_each.values())
        runs = [Run(scenario=s, repeat=r) for r in range(repeats) for s, repeat in of_each.items() if r < repeat]
        random.Random(json.dumps(self.fields.get("seed"))).shuffle(runs)
        return runs


def _overridden(own: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return a grid's own changes with the options instead of its own values; it has all other options anyway."""
    return override(own, {name: value for name, value in flags.items() if name in own})


def _default_grid(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is measured where nothing else is said. Two things are no axes then: the congestion control of
    programs, which choose it themselves, and the share beside a recording, which says when the CPU is away. QUIC stacks
    have the usual controls that all of them know, or if there are none, others that they all know."""
    grid = dict(DEFAULT_GRID)
    traffic = [fields["traffic"] for fields in given if "traffic" in fields][-1:]  # an option replaces the file's
    if stacks := [stack for one in traffic for stack in quic.named(one)]:
        common = [cc for cc in stacks[0].controls if all(cc in stack.controls for stack in stacks)]
        if not common and not any("grids" in fields for fields in given):  # those may have other traffic
            each = " and ".join(f"{quic.PREFIX}{stack.name} ({', '.join(stack.controls)})" for stack in stacks)
            raise BadInput(f"traffic: {each} have no cc in common; measure each of them in a command of its own")
        usual = [cc for cc in grid["flows"][0]["cc"] if cc in common]
        grid["flows"] = [{**grid["flows"][0], "cc": usual or common or list(stacks[0].controls)}]
    if any("programs" in fields for fields in given):
        grid["flows"] = [{**grid["flows"][0], "cc": FIELDS["flows.cc"].default}]
    if any("replay" in table for fields in given if isinstance(table := fields.get("contention"), Mapping)):
        grid["contention"] = {**grid["contention"], "share": FIELDS["contention.share"].default}
    return grid


def _fill_in_kernels(fields: dict[str, Any]) -> dict[Any, str]:
    """Name the kernel in each grid that names none, so that a series is completed with the kernel that it was begun
    with. Return the kernels that were named, by what has chosen each."""
    chosen: dict[Any, str] = {}
    for own in fields.get("grids") or [fields]:
        backend, accelerator = (own.get(key, fields.get(key)) for key in ("backend", "accelerator"))
        backend = "virtual" if backend is None else backend
        if "kernel" in fields or "kernel" in own or not isinstance(backend, str) or backend not in KERNELS:
            continue
        if not isinstance(accelerator, list):  # else each scenario takes what its own accelerator runs
            kernels = kernels_of(backend, accelerator)
            chosen[kernels] = own["kernel"] = chosen.get(kernels) or kernels.default()
    return chosen


def _without_kernels(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: [_without_kernels(own) for own in value] if key == "grids" else value
        for key, value in fields.items()
        if key != "kernel"
    }


def _repeats(fields: Mapping[str, Any], *, as_written: bool = False) -> dict[Scenario, int]:
    return _each_once(
        (scenario(_point(whole, values), as_written=as_written), repeat)
        for whole, axes, repeat in _parts(fields)
        for values in itertools.product(*axes)
    )


def _parts(fields: Mapping[str, Any]) -> list[tuple[dict[str, Any], list[list[Any]], int]]:
    """Return each cross product with the values of each of its fields, and its repeats."""
    parts = [(whole, *_axes(whole)) for whole in _wholes(fields)]
    if (cells := sum(math.prod(map(len, axes)) for _, axes, _ in parts)) > MAX_CELLS:
        raise BadInput(f"the lists span {cells} cells; give shorter lists, which span at most {MAX_CELLS}")
    return parts


def _each_once(cells: Iterable[tuple[Scenario, int]]) -> dict[Scenario, int]:
    """Return scenarios with their repeats. One that is there several times is measured once, with the largest number of
    repeats; so is an undisturbed one that is there with several timeslices."""
    repeats: dict[Scenario, int] = {}
    firsts: dict[Scenario, Scenario] = {}
    for one, repeat in cells:
        first = firsts.setdefault(one.without_idle_fields, one)
        repeats[first] = max(repeat, repeats.get(first, 0))
    return repeats


def _wholes(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return each cross product with all of its fields: the common ones and its own changes."""
    common = {key: value for key, value in fields.items() if key != "grids"}
    return [override(common, own) for own in fields.get("grids") or [{}]]


def _axes(whole: dict[str, Any]) -> tuple[list[list[Any]], int]:
    """Take the repeats out of a cross product. Return the values of each of its fields, and the repeats."""
    _check_tables(whole, "flows", "cc, count and start")
    _check_tables(whole, "senders", "share and timeslice")
    row, repeat = FIELDS["repeat"], whole.pop("repeat", 1)
    if not isinstance(repeat, int) or isinstance(repeat, bool) or row.outside(repeat):
        raise BadInput(f"repeat: {units.cut(repr(repeat))} is not a whole number from {row.range()}")
    axes: list[list[Any]] = []
    _each(whole, lambda name, value: axes.append(_values(name, value)))
    return axes, repeat


def _check_tables(fields: Mapping[str, Any], name: str, holds: str) -> None:
    tables = fields.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{name}: {units.cut(repr(tables))} is not a list of tables; write [[{name}]] with {holds}")


WHOLE = "scenario"
"""What a refusal is of that is not of one field's value."""


def scenario(point: Mapping[str, Any], *, as_written: bool = False) -> Scenario:
    """Return one scenario from its fields; refuse in one line what does not fit. `as_written`: without looking at which
    kernels this machine has."""
    try:
        return Scenario.model_validate(point, context={defaults.AS_WRITTEN: as_written})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(part for part in first["loc"] if isinstance(part, str)) or WHOLE
        if first["type"] == "extra_forbidden":
            instead = f"did you mean {' or '.join(near)}? " if (near := _meant(field)) else ""
            raise BadInput(f"{units.cut(field)}: no such field; {instead}docs/scenario.md lists all fields") from None
        raise BadInput(one_line(field, first)) from None


def _meant(field: str) -> list[str]:
    """Return the fields of that name in other tables; if there are none, one of its table of which it is a slip."""
    table, _, key = field.rpartition(".")
    same_key = [name for name, row in FIELDS.items() if row.key == key]
    keys = [row.key for row in FIELDS.values() if row.table == table]
    keys += [] if table else dict.fromkeys(row.table for row in FIELDS.values() if row.table)
    near = None if same_key else meant(key, keys)
    return [f"{table}.{near}".lstrip(".")] if near else same_key


def override(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the fields of `over`, merged table by table. One group of flows is merged with one; anything
    else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = override(old, value)
        elif key == "flows" and isinstance(value, dict):  # a flag such as --cc
            if not isinstance(old, list) or len(old) != 1:
                raise BadInput(
                    "--cc, --flows and the other flags of flows: the file has several [[flows]] groups; "
                    "change them in the file"
                )
            merged[key] = [override(old[0], value)]
        else:
            merged[key] = value
    return merged


def _each(tables: Mapping[str, Any], take: Callable[[str, Any], Any], table: str = "") -> dict[str, Any]:
    """Return a tree of tables with what `take` gives for the name and the value of each field."""
    made: dict[str, Any] = {}
    for key, value in tables.items():
        name = f"{table}.{key}".lstrip(".")
        if isinstance(value, dict):
            made[key] = _each(value, take, name)
        else:
            made[key] = [_each(one, take, name) for one in value] if name in TABLES else take(name, value)
    return made


def _values(name: str, value: Any) -> list[Any]:
    """Return the values that a field has in a grid: those of a list, unless that is one value."""
    field = FIELDS.get(name)
    if not isinstance(value, list) or (field is not None and isinstance(field.default, list)):
        return [value]
    if field is not None and field.takes_one_value:
        raise BadInput(f"{name}: takes one value; {units.quoted(','.join(map(str, value)))} is a list")
    if not value:
        raise BadInput(f"{name}: an empty list stands where a value is needed; give at least one value")
    return value


def _point(tables: Mapping[str, Any], values: Iterable[Any]) -> dict[str, Any]:
    """Return these tables with one of its values for each field, in the order of the fields."""
    left = iter(values)
    return _each(tables, lambda *_: next(left))


def one_line(field: str, error: Mapping[str, Any]) -> str:
    message = IN_OUR_WORDS.get(error["type"], error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":  # our own sentences name the value, those of a whole scenario the field, too
        return message if field == WHOLE else f"{field}: {message}"
    if error["type"] == "too_long":
        return f"{field}: {error['ctx']['actual_length']} are too many; give at most {error['ctx']['max_length']}"
    allowed = FIELDS[field].range() if field in FIELDS else ""
    remedy = f"; allowed: {allowed}" if allowed else ""
    given = error["input"]
    shown = units.quoted(given) if isinstance(given, str) else units.cut(repr(given))
    return f"{field}: {shown} is not allowed: {message[0].lower()}{message[1:]}{remedy}"
