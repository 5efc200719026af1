"""A grid of scenarios: the cross product of every list in a file or on the command line."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from brobust import files
from brobust.errors import BadInput
from brobust.scenario.defaults import KERNELS, kernels_of
from brobust.scenario.fields import DEFAULT_GRID, FIELDS
from brobust.scenario.model import Run, Scenario

# Lists of tables that together belong to one scenario, and lists that are one value. Neither is an axis.
TABLES = ("flows", "senders")
VALUES = frozenset(row.key for row in FIELDS.values() if isinstance(row.default, list))
MAX_CELLS = 100_000  # in one cross product: ten lists of ten values each are a mistake


Table = TypeVar("Table", bound=BaseModel)


class Grid:
    """A scenario file or command line: a cross product of scenarios, repeated and shuffled; or several cross products,
    each with its own changes in a table of `[[grids]]`."""

    def __init__(self, fields: Mapping[str, Any]):
        try:
            self.fields = json.loads(json.dumps(dict(fields)))  # a deep copy, and proof that it is plain data
        except TypeError as error:  # TOML has dates
            raise BadInput(f"scenario: no field takes a date or a time of day ({error})") from None
        _check_tables(self.fields, "grids", "its own changes")
        self.notes = _fill_in_kernels(self.fields)
        """Sentences for the user: which kernel was taken where none was named, if it is not the usual one."""
        common = {key: value for key, value in self.fields.items() if key != "grids"}
        parts = [_part(override(common, own)) for own in self.fields.get("grids") or [{}]]
        # A scenario in several grids is measured once, with the largest number of repeats that one of them asks for.
        self._repeats: dict[Scenario, int] = {}
        for scenarios, repeat in parts:
            for one in scenarios:
                self._repeats[one] = max(repeat, self._repeats.get(one, 0))
        self.scenarios = list(self._repeats)

    @classmethod
    def from_file(cls, file: Path, flags: Mapping[str, Any]) -> Grid:
        """Return the grid of a TOML file, which overrides the defaults, and of options, which override the file."""
        of_file = files.read_toml(file)
        return cls(override(override(_default_grid(of_file, flags), of_file), flags))

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Grid:
        return cls(override(_default_grid(flags), flags))

    def runs(self) -> list[Run]:
        """Return every repeat of every scenario, shuffled by the seed, so that a drift of the machine hits all cells
        equally."""
        repeats = max(self._repeats.values())
        runs = [Run(scenario=s, repeat=r) for r in range(repeats) for s, repeat in self._repeats.items() if r < repeat]
        random.Random(json.dumps(self.fields.get("seed"))).shuffle(runs)
        return runs


def _default_grid(*given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is measured where nothing else is said: programs choose their congestion control themselves, so it
    is no axis there."""
    grid = dict(DEFAULT_GRID)
    if any("programs" in fields for fields in given):
        grid["flows"] = [{**grid["flows"][0], "cc": FIELDS["flows.cc"].default}]
    return grid


def _fill_in_kernels(fields: dict[str, Any]) -> list[str]:
    """Name the kernel in each grid that names none, so that a series is completed with the kernel that it was begun
    with. Return a sentence for each kernel that is not the usual one."""
    chosen: dict[Any, str] = {}
    for own in fields.get("grids") or [fields]:
        backend, accelerator = (own.get(key, fields.get(key)) for key in ("backend", "accelerator"))
        backend = "virtual" if backend is None else backend
        if "kernel" in fields or "kernel" in own or not isinstance(backend, str) or backend not in KERNELS:
            continue
        if not isinstance(accelerator, list):  # else each scenario takes what its own accelerator runs
            kernels = kernels_of(backend, accelerator)
            chosen[kernels] = own["kernel"] = chosen.get(kernels) or kernels.default()
    return [why for kernels, name in chosen.items() if (why := kernels.why_default(name)) is not None]


def _part(fields: Mapping[str, Any]) -> tuple[list[Scenario], int]:
    """Return the scenarios of one cross product, and their repeats."""
    _check_tables(fields, "flows", "cc, count and start")
    _check_tables(fields, "senders", "share and timeslice")
    repeat = fields.get("repeat", 1)
    if not isinstance(repeat, int) or isinstance(repeat, bool) or not 1 <= repeat <= 10_000:
        raise BadInput(f"repeat: {repeat!r} is not a whole number between 1 and 10000")
    if (cells := _count(fields)) > MAX_CELLS:
        raise BadInput(f"the lists span {cells} cells; give shorter lists, which span at most {MAX_CELLS}")
    return [scenario(point) for point in _points(fields)], repeat


def _check_tables(fields: Mapping[str, Any], name: str, holds: str) -> None:
    tables = fields.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BadInput(f"{name}: {tables!r} is not a list of tables; write [[{name}]] with {holds}")


def scenario(point: Mapping[str, Any]) -> Scenario:
    """Return one scenario from its fields; refuse in one line what does not fit."""
    return validated(Scenario, point)


def validated(table: type[Table], fields: Mapping[str, Any], whole: str = "scenario") -> Table:
    """Return a table from its fields; refuse in one line what does not fit. `whole`: what the line begins with if it is
    not about one field."""
    try:
        return table.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(_one_line(first["loc"], first["msg"], first["input"], first["type"], whole)) from None


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


def _points(fields: Any) -> Iterator[Any]:
    """Yield the cross product over every list in a tree of tables, except the lists that are not axes."""
    if isinstance(fields, dict):
        keys = [key for key in fields if key != "repeat"]
        axes = [list(_points_of(key, fields[key])) for key in keys]
        for combination in itertools.product(*axes):
            yield dict(zip(keys, combination, strict=True))
    elif isinstance(fields, list):
        if not fields:
            raise BadInput("an empty list stands where a value is needed; give at least one value")
        yield from fields
    else:
        yield fields


def _count(fields: Any) -> int:
    """Return how many points `_points` yields."""
    if isinstance(fields, dict):
        return math.prod(_count_of(key, value) for key, value in fields.items() if key != "repeat")
    return len(fields) or 1 if isinstance(fields, list) else 1


def _count_of(key: str, value: Any) -> int:
    if key in TABLES and isinstance(value, list):
        return math.prod(map(_count, value))
    return 1 if key in VALUES else _count(value)


def _points_of(key: str, value: Any) -> Iterator[Any]:
    if key in TABLES and isinstance(value, list):
        yield from map(list, itertools.product(*(list(_points(table)) for table in value)))
    elif key in VALUES:
        yield value
    else:
        yield from _points(value)


def _one_line(location: tuple[int | str, ...], message: str, given: Any, kind: str, whole: str) -> str:
    names = [str(part) for part in location if not isinstance(part, int)]
    field = ".".join(names) or whole
    if kind == "extra_forbidden":
        return f"{field}: no such field; docs/scenario.md lists all fields"
    message = message.removeprefix("Value error, ")
    if kind == "value_error":  # our own sentences name the value themselves
        return f"{field}: {message}"
    return f"{field}: {given!r} is not allowed: {message[0].lower()}{message[1:]}"
