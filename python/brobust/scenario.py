"""What to measure: one scenario type for every backend, and the grid that a file or command line spans.

A *grid* is what the user writes: any field may be a list. A *scenario* is one point of it, with plain numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from brobust import units
from brobust.errors import BadInput

Bandwidth = Annotated[int, BeforeValidator(units.bits_per_second), PlainSerializer(units.show_rate)]
Duration = Annotated[int, BeforeValidator(units.nanoseconds), PlainSerializer(units.show_time)]
Fraction = Annotated[float, BeforeValidator(units.fraction)]
BufferSize = Annotated[units.Buffer, BeforeValidator(units.Buffer.parse), PlainSerializer(str)]

Driver = Literal["deadline", "burner", "none"]
Accelerator = Literal["auto", "kvm", "tcg"]


class _Table(BaseModel):
    """Unknown fields are refused: a misspelt one would silently measure something else."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Path(_Table):
    """The emulated path: tbf at the bottleneck, netem delay on the ACK side."""

    bandwidth: Bandwidth = Field(default="20mbit", ge=100_000, le=100_000_000_000, validate_default=True)
    rtt: Duration = Field(default="10ms", ge=0, le=10_000_000_000, validate_default=True)
    buffer: BufferSize = Field(default="1bdp", validate_default=True)
    loss: Fraction = Field(default=0.0, ge=0, lt=1)

    @property
    def buffer_bytes(self) -> int:
        return self.buffer.bytes(self.bandwidth, self.rtt)

    @model_validator(mode="after")
    def _buffer_holds_a_packet(self) -> Path:
        if self.buffer_bytes < 2 * 1514:
            raise ValueError(
                f"buffer {self.buffer} is {self.buffer_bytes} bytes on this path, less than two packets; "
                "give at least 3028B"
            )
        return self


class Contention(_Table):
    """When the sender's vCPU may run: `timeslice` out of every `timeslice / share`. Share 1 is undisturbed."""

    driver: Driver = "deadline"
    timeslice: Duration = Field(default="10ms", ge=100_000, le=4_000_000_000, validate_default=True)
    share: Fraction = Field(default=1.0, gt=0, le=1)

    @property
    def active(self) -> bool:
        return self.driver != "none" and self.share < 1

    @property
    def period(self) -> int:
        """ns"""
        return round(self.timeslice / self.share)

    @model_validator(mode="after")
    def _no_driver_no_contention(self) -> Contention:
        if self.driver == "none" and self.share < 1:
            raise ValueError(f"driver none takes no CPU away, so share {self.share:g} cannot be had; give share 1")
        return self


class Flows(_Table):
    """`count` parallel bulk flows under one congestion control, starting `start` after the run begins."""

    cc: str = Field(default="cubic", pattern=r"^[A-Za-z0-9_\-]{1,15}$")
    count: int = Field(default=1, ge=1, le=128)
    start: Duration = Field(default="0s", ge=0, validate_default=True)


class Scenario(_Table):
    """One measurable point. Times in ns, rates in bit/s, fractions of 1."""

    path: Path = Path()
    contention: Contention = Contention()
    flows: tuple[Flows, ...] = Field(default=(Flows(),), min_length=1, max_length=8)
    duration: Duration = Field(default="10s", ge=1_000_000_000, le=3_600_000_000_000, validate_default=True)
    samples: Duration | None = Field(default=None, ge=1_000_000)
    seed: int = Field(default=1, ge=0, lt=2**32)
    backend: Literal["vm"] = "vm"
    kernel: str = "debian-6.12"
    accelerator: Accelerator = "auto"

    @model_validator(mode="after")
    def _flows_start_in_time(self) -> Scenario:
        for group in self.flows:
            if group.start >= self.duration:
                raise ValueError(
                    f"flows of {group.cc} start at {units.show_time(group.start)}, after the end of the run; "
                    f"give less than duration {units.show_time(self.duration)}"
                )
        return self

    @property
    def hash(self) -> str:
        """Twelve hex digits that name this point in every dataset."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def describe(self) -> str:
        """One short line for people."""
        flows = "+".join(f"{g.count}x{g.cc}" if g.count > 1 else g.cc for g in self.flows)
        c = self.contention
        cpu = "100% CPU"
        if c.active:
            cpu = f"{c.share:.0%} CPU in {units.show_time(c.timeslice)} slices ({c.driver})"
        return f"{flows}, {units.show_rate(self.path.bandwidth)}, RTT {units.show_time(self.path.rtt)}, {cpu}"


class Run(BaseModel):
    """One repeat of a scenario: what a backend is asked to do."""

    model_config = ConfigDict(frozen=True)

    scenario: Scenario
    repeat: int

    @property
    def id(self) -> str:
        return f"{self.scenario.hash}-{self.repeat}"


# What `brobust run` measures when nothing is said: the demo's question in its smallest form.
DEFAULT_GRID: dict[str, Any] = {
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "1bdp", "loss": "0"},
    "contention": {"driver": "deadline", "timeslice": "10ms", "share": ["1", "0.5", "0.25"]},
    "flows": [{"cc": ["cubic", "bbr", "bbr_robust"], "count": 1, "start": "0s"}],
    "duration": "10s",
    "repeat": 3,
    "seed": 1,
    "backend": "vm",
    "kernel": "debian-6.12",
    "accelerator": "auto",
}


class Grid:
    """A scenario file or command line: a cross product of scenarios, repeated and shuffled."""

    def __init__(self, fields: Mapping[str, Any]):
        self.fields = json.loads(json.dumps(dict(fields)))  # a deep copy, and proof that it is plain data
        flows = self.fields.get("flows", [])
        if not isinstance(flows, list) or not all(isinstance(group, dict) for group in flows):
            raise BadInput(f"flows: {flows!r} is not a list of tables; write [[flows]] with cc, count and start")
        repeat = self.fields.get("repeat", 1)
        if not isinstance(repeat, int) or isinstance(repeat, bool) or not 1 <= repeat <= 10_000:
            raise BadInput(f"repeat: {repeat!r} is not a whole number between 1 and 10000")
        self.repeat: int = repeat
        self.scenarios = [_scenario(point) for point in _points(self.fields)]

    @classmethod
    def from_file(cls, file: FilePath, flags: Mapping[str, Any]) -> Grid:
        """A TOML file over the defaults, and the command line's flags over the file."""
        try:
            written = tomllib.loads(file.read_text())
        except OSError as error:
            raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{file}: not a TOML file ({error})") from None
        return cls(_override(_override(DEFAULT_GRID, written), flags))

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Grid:
        return cls(_override(DEFAULT_GRID, flags))

    def runs(self) -> list[Run]:
        """Every repeat of every scenario, shuffled by the seed so that drift of the machine hits all cells alike."""
        runs = [Run(scenario=s, repeat=r) for r in range(self.repeat) for s in self.scenarios]
        random.Random(json.dumps(self.fields.get("seed"))).shuffle(runs)
        return runs


def _override(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables field by field. One group of flows merges with one; anything else replaces."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _override(old, value)
        elif key == "flows" and isinstance(value, dict):  # a flag such as --cc
            if not isinstance(old, list) or len(old) != 1:
                raise BadInput("--cc and --flows: the file has several [[flows]] groups; change them in the file")
            merged[key] = [_override(old[0], value)]
        else:
            merged[key] = value
    return merged


def _points(fields: Any) -> Iterator[Any]:
    """The cross product over every list in a tree of tables (the list of flow groups itself is not an axis)."""
    if isinstance(fields, dict):
        keys = [key for key in fields if key != "repeat"]
        axes = [list(_flow_points(fields[key])) if key == "flows" else list(_points(fields[key])) for key in keys]
        for combination in itertools.product(*axes):
            yield dict(zip(keys, combination, strict=True))
    elif isinstance(fields, list):
        if not fields:
            raise BadInput("an empty list stands where a value is needed; give at least one value")
        yield from fields
    else:
        yield fields


def _flow_points(groups: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    for combination in itertools.product(*(list(_points(group)) for group in groups)):
        yield list(combination)


def _scenario(point: dict[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(point)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(_one_line(first["loc"], first["msg"], first["input"], first["type"])) from None


def _one_line(location: tuple[int | str, ...], message: str, given: Any, kind: str) -> str:
    names = [str(part) for part in location if not isinstance(part, int)]
    field = ".".join(names) or "scenario"
    if kind == "extra_forbidden":
        return f"{field}: no such field; see docs/scenario.md for those there are"
    message = message.removeprefix("Value error, ")
    if kind == "value_error":  # our own sentence already names the value
        return f"{field}: {message}"
    return f"{field}: {given!r} is not allowed: {message[0].lower()}{message[1:]}"
