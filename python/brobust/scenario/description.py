"""What a description of a scenario field consists of. The descriptions themselves are in scenario/fields.py.

Nothing slow is imported here: `brobust run --help` reads the descriptions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from brobust import units

# Sections of `brobust run --help` and of docs/scenario.md, in their order.
PANELS = PATH, FLOWS, CROSS, CPU, SENDER, PROGRAMS, RUNS, OUTPUT = (
    "Path", "Flows", "Cross traffic", "CPU contention", "Sender", "Programs", "Runs", "Dataset and output",
)  # fmt: skip

Number = int | float


@dataclass(frozen=True)
class Kind:
    """How a field's values are written: the placeholder for one in the help, and how a bound is shown."""

    placeholder: str
    show: Callable[[Any], str] = str


RATE = Kind("RATE", units.show_rate)
TIME = Kind("TIME", lambda ns: units.show_time(ns) if ns else "0s")
SIZE = Kind("SIZE", units.show_size)
FREQUENCY = Kind("FREQUENCY", units.show_frequency)
FRACTION = Kind("FRACTION", "{:g}".format)
COUNT = Kind("N")
NUMBER = Kind("NUMBER", lambda number: f"{number:g}".replace("e+", "e"))
NAME = Kind("NAME")
FILE = Kind("FILE")
SWITCH = Kind("")
COMMAND = Kind("COMMAND")  # an option takes one of them, commas and all
FILES = Kind("FILE,...")
RATE_CHANGES = Kind("TIME:RATE,...")
RTT_CHANGES = Kind("TIME:RTT,...")

# What a value in a scenario is divided by to be in the unit of a column: scenarios hold ns, bit/s, Hz and bytes.
DIVISORS = {"": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "Mbit/s": 1e6, "MHz": 1e6, "B": 1}


@dataclass(frozen=True)
class FieldColumn:
    """The column of the dataset's table runs that a field is written to."""

    name: str
    type: Literal["text", "integer", "number"]
    meaning: str = ""
    """What docs/data.md says, with the unit, where the column is not just the field's value."""
    unit: str = ""
    null_on: tuple[str, ...] = ()
    """The backends on which brobust does not know the value: the column is null there."""
    from_backend: bool = False
    """Whether the backend writes what it really used, rather than what the scenario says."""
    null_without_slices: bool = False
    """Whether the column is null where the flow's sender was given no timeslices: it is undisturbed, or replays."""


@dataclass(frozen=True)
class Axis:
    """How tables, figures and sentences name a column along which cells differ, and its values."""

    heading: str
    label: str = ""
    """The label of a figure's axis. Without one, no figure can have it as its horizontal axis."""
    phrase: str = ""
    """A value where the axis is not named: "{} ms slices". By default heading, value and unit."""
    phrases: Mapping[object, str] = field(default_factory=dict)
    """The phrases of special values."""
    percent: bool = False
    """Whether people read a fraction as a percentage."""
    logarithmic: bool = False
    only_contended: bool = False
    """Whether it says something of a contended run only, so that undisturbed runs belong to each of its values."""


@dataclass(frozen=True)
class Field:
    """One field of a scenario: all that help, documentation, dataset, tables and figures say about it."""

    name: str
    """The field in a file, with its table: nic.tso_max_size."""
    kind: Kind
    option: str
    panel: str
    help: str
    """Whole sentences for the option's help and docs/scenario.md. Range, default and backend are added to them."""
    default: object = None
    """The value where the field is absent, as a file writes it. None: there is no value."""
    default_on: Mapping[str, object] = field(default_factory=dict)
    """The default on a backend on which it is another one."""
    if_absent: str = ""
    """What is measured where the field has no value, or where code chooses the default."""
    min: Number | None = None
    """The bounds, in the unit in which a scenario holds the value: ns, bit/s, Hz, bytes, fractions of 1."""
    max: Number | None = None
    above: Number | None = None
    below: Number | None = None
    or_word: str = ""
    """A word that may stand in place of a number."""
    only_on: str = ""
    """The backend that has this field; any other takes only the default."""
    words_only_on: Mapping[str, str] = field(default_factory=dict)
    """Values, or the words that they begin with, that only one backend has."""
    instead: str = ""
    """What a refusal says to give on the backend that does not have the field, or that value of it."""
    is_axis: bool = True
    """Whether a list of values spans a grid."""
    column: FieldColumn | None = None
    axis: Axis | None = None

    @property
    def table(self) -> str:
        """The table of the field in a file; empty at the top level."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        """The field's name within its table."""
        return self.name.rpartition(".")[2]

    @property
    def parameter(self) -> str:
        """The name of the option as a Python parameter."""
        return self.option.removeprefix("--").replace("-", "_")

    @property
    def takes_one_value(self) -> bool:
        """Whether a list of values is refused: the dataset has no column that would say which cell has which."""
        return not self.is_axis and self.column is None and not isinstance(self.default, list)

    @property
    def depends_on_backend(self) -> bool:
        """Whether only one backend has the field, or each has another default: where a dataset holds runs of several,
        a difference between them says nothing but which backend it was."""
        return bool(self.default_on) or (self.column is not None and bool(self.column.null_on))

    def outside(self, value: Number) -> str | None:
        """Return how a number lies outside the bounds: "is more than 10s"; None if it lies within. NaN lies outside."""
        show = self.kind.show
        if self.min is not None and not value >= self.min:
            return f"is less than {show(self.min)}"
        if self.max is not None and not value <= self.max:
            return f"is more than {show(self.max)}"
        if self.above is not None and not value > self.above:
            return f"is not above {show(self.above)}"
        if self.below is not None and not value < self.below:
            return f"is not below {show(self.below)}"
        return None

    def range(self) -> str:
        """Return the bounds in words: "100us to 4s"; empty if there are none."""
        show = self.kind.show
        if self.min is not None and self.max is not None:
            return f"{show(self.min)} to {show(self.max)}"
        low = f"at least {show(self.min)}" if self.min is not None else ""
        low = f"above {show(self.above)}" if self.above is not None else low
        high = f"at most {show(self.max)}" if self.max is not None else ""
        high = f"below {show(self.below)}" if self.below is not None else high
        return ", ".join(filter(None, (low, high)))

    def default_text(self, default: object) -> str:
        """Return a default in words, for help and documentation; `default` may be a list, which spans a grid."""
        if default is None or default is False or default == []:
            return self.if_absent
        on_backends = [f"{shown(value)} on {backend}" for backend, value in self.default_on.items()]
        return "; ".join([shown(default), *on_backends])


def shown(value: object) -> str:
    """Return a value as a file has it, or a list of values as an option has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
