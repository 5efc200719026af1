"""Types of a scenario's fields: each reads what people write and is written back the same way."""

import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from brobust import drivers, quic, units
from brobust.drivers import schedules
from brobust.drivers.modelled import MODELLED, Modelled
from brobust.errors import meant
from brobust.scenario import specs


def _or_none(parse: Callable[[object], Any]) -> BeforeValidator:
    return BeforeValidator(lambda given: None if given is None else parse(given))


def _written(show: Callable[[float], str]) -> PlainSerializer:
    return PlainSerializer(lambda value: value if value is None or isinstance(value, str) else show(value))


def _samples(given: object) -> object:
    if given is None or given == "ack":
        return given
    try:
        return units.nanoseconds(given)
    except ValueError as error:
        raise ValueError(f"{error}, or ack") from None


def _phase(given: object) -> object:
    if given in schedules.PHASES:
        return given
    try:
        return units.nanoseconds(given)
    except ValueError as error:
        raise ValueError(f"{error}, or one of {', '.join(schedules.PHASES)}") from None


def _ip_version(given: object) -> int:
    if str(given) not in ("4", "6"):
        raise ValueError(f"{str(given)!r} is not a version of IP; give 4 or 6")
    return int(str(given))


def _known_driver(given: str) -> str:
    modelled = Modelled.parse(given)
    if modelled is None and given not in drivers.CHOICES:
        raise ValueError(f"{given!r} is not one of {', '.join(dict.fromkeys((*drivers.CHOICES, *MODELLED)))}")
    return given if modelled is None else str(modelled)


Bandwidth = Annotated[int, BeforeValidator(units.bits_per_second), _written(units.show_rate)]
Duration = Annotated[int, BeforeValidator(units.nanoseconds), _written(units.show_time)]
RunDuration = Annotated[int, BeforeValidator(lambda given: units.nanoseconds(given, "10s")), _written(units.show_time)]
"""The duration of a run, of which the usual example, 10ms, would be too short."""
OptionalBandwidth = Annotated[int | None, _or_none(units.bits_per_second), _written(units.show_rate)]
OptionalDuration = Annotated[int | None, _or_none(units.nanoseconds), _written(units.show_time)]
Phase = Annotated[int | Literal["random", "in", "out"], BeforeValidator(_phase), _written(units.show_time)]
Samples = Annotated[int | Literal["ack"] | None, BeforeValidator(_samples), _written(units.show_time)]
Frequency = Annotated[int | None, _or_none(units.hertz), _written(units.show_frequency)]
IpVersion = Annotated[int, BeforeValidator(_ip_version)]
Fraction = Annotated[float, BeforeValidator(units.fraction)]
Bytes = Annotated[int, BeforeValidator(units.size_bytes), _written(units.show_size)]
OptionalBytes = Annotated[int | None, _or_none(units.size_bytes), _written(units.show_size)]
BufferSize = Annotated[units.Buffer, BeforeValidator(units.Buffer.parse), PlainSerializer(str)]
QueueManagement = Annotated[specs.Aqm, BeforeValidator(specs.Aqm.parse), PlainSerializer(str)]
Pacing = Annotated[specs.Pacing, BeforeValidator(specs.Pacing.parse), PlainSerializer(str)]
TrafficPattern = Annotated[specs.Pattern, BeforeValidator(specs.Pattern.parse), PlainSerializer(str)]
BandwidthChanges = Annotated[
    specs.Changes,
    BeforeValidator(lambda given: specs.changes(given, units.bits_per_second)),
    PlainSerializer(lambda value: specs.show_changes(value, units.show_rate)),
]
RttChanges = Annotated[
    specs.Changes,
    BeforeValidator(lambda given: specs.changes(given, units.nanoseconds)),
    PlainSerializer(lambda value: specs.show_changes(value, units.show_time)),
]


def _path(given: object) -> object:
    """Return the text of a path, as which Python has files; anything else as it is."""
    return os.fspath(given) if isinstance(given, os.PathLike) else given


File = Annotated[str | None, BeforeValidator(_path)]


def _files(given: object) -> object:
    names = given.split(",") if isinstance(given, str) else given
    if isinstance(names, list) and "" in names:
        raise ValueError(f"{','.join(map(str, names))!r} has an empty name; write for example a,b")
    return [_path(name) for name in names] if isinstance(names, list | tuple) else names


Files = Annotated[tuple[str, ...], BeforeValidator(_files), PlainSerializer(list)]

Driver = Annotated[str, AfterValidator(_known_driver)]
OnOff = Literal["on", "off"]


def _traffic(given: object) -> str:
    if given in ("brobust", "iperf3", "programs"):
        return str(given)
    if str(given).startswith(quic.PREFIX):
        return quic.traffic(given)
    known = ["brobust", "iperf3", "programs", *quic.NAMES]
    name = (str(given).lower().split() or [""])[0]
    near = f"{quic.PREFIX}{name}" if name in quic.STACKS else meant(name, known)
    instead = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
    raise ValueError(f"{str(given)!r} is no traffic; {instead}")


Traffic = Annotated[str, BeforeValidator(_traffic)]
