"""Values that take more than one word, written as one string so that each can be one point of a grid:
queue management (`codel target=5ms`), traffic pattern (`onoff 1s 500ms`), changes during a run (`5s:50mbit,10s:1gbit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeVar, get_args

from brobust import units

T = TypeVar("T")

MIN_RATE, MAX_RATE = 100_000, 100_000_000_000  # bit/s
MAX_TIME = 3_600_000_000_000  # ns, of a run and of every time within it, as in crates/virtual/src/scenario.rs
VIRTUAL_MIN_RTT = 200_000  # ns

AqmName = Literal["none", "red", "codel", "fq_codel"]
PatternKind = Literal["bulk", "rate", "onoff", "idle"]

# tc-red(8), tc-codel(8), tc-fq_codel(8)
RED_PROBABILITY = 0.02
CODEL_TARGET = 5_000_000  # ns
CODEL_INTERVAL = 100_000_000  # ns


@dataclass(frozen=True)
class Aqm:
    """Active queue management at the bottleneck. Options that a discipline does not have are None."""

    name: AqmName = "none"
    ecn: bool = False  # marks instead of dropping where the flow allows it
    min_bytes: int | None = None  # red: as given; see `red_thresholds`
    max_bytes: int | None = None
    probability: float | None = None  # red: fraction, at the upper threshold
    target: int | None = None  # codel and fq_codel, ns
    interval: int | None = None  # codel and fq_codel, ns

    @classmethod
    def parse(cls, text: object) -> Aqm:
        name, *words = str(text).split() or [""]
        if name == "none" and not words:
            return cls()
        if name == "red":
            return cls._red(_Options(name, words, ("min", "max", "probability"), ("ecn",)))
        if name in ("codel", "fq_codel"):
            return cls._codel(_Options(name, words, ("target", "interval"), ("ecn", "noecn")))
        if name == "none":
            raise ValueError(f"{str(text)!r}: none takes no options")
        raise ValueError(
            f"{str(text)!r} is not a queue management; write for example none, red, codel, fq_codel or "
            "'codel target=5ms interval=100ms ecn'"
        )

    @classmethod
    def _red(cls, given: _Options) -> Aqm:
        low, high = given.take("min", units.size_bytes), given.take("max", units.size_bytes)
        probability = given.take("probability", units.fraction)
        if probability is None:
            probability = RED_PROBABILITY
        if not 0 < probability <= 1:
            raise ValueError(f"probability={probability:g} of red is not above 0 and at most 1")
        return cls("red", ecn="ecn" in given.flags, min_bytes=low, max_bytes=high, probability=probability)

    @classmethod
    def _codel(cls, given: _Options) -> Aqm:
        name: AqmName = "codel" if given.name == "codel" else "fq_codel"
        ecn = "noecn" not in given.flags if name == "fq_codel" else "ecn" in given.flags
        target = given.take("target", units.nanoseconds)
        interval = given.take("interval", units.nanoseconds)
        for time in (target, interval):
            if time is not None and not 0 < time <= MAX_TIME:
                raise ValueError(
                    f"target and interval of {name} must be greater than 0 and at most {units.show_time(MAX_TIME)}; "
                    "write for example target=5ms"
                )
        return cls(name, ecn=ecn, target=target or CODEL_TARGET, interval=interval or CODEL_INTERVAL)

    def red_thresholds(self, buffer_bytes: int) -> tuple[int, int]:
        """Return the average queue (bytes) above which red begins to drop, and that above which it drops everything. By
        default, as in tc-red(8), the second is a quarter of the buffer and the first a third of that."""
        high = self.max_bytes if self.max_bytes is not None else buffer_bytes // 4
        low = self.min_bytes if self.min_bytes is not None else high // 3
        return low, high

    def __str__(self) -> str:
        """Return the text that `parse` reads, without options that have their default."""
        parts: list[str] = [self.name]
        parts += [f"min={units.show_size(self.min_bytes)}"] if self.min_bytes is not None else []
        parts += [f"max={units.show_size(self.max_bytes)}"] if self.max_bytes is not None else []
        if self.probability not in (None, RED_PROBABILITY):
            parts.append(f"probability={units.show_number(self.probability)}")
        parts += [f"target={units.show_time(self.target)}"] if self.target not in (None, CODEL_TARGET) else []
        parts += [f"interval={units.show_time(self.interval)}"] if self.interval not in (None, CODEL_INTERVAL) else []
        if self.name == "fq_codel":  # it marks by default, tc-fq_codel(8)
            parts += [] if self.ecn else ["noecn"]
        elif self.ecn:
            parts.append("ecn")
        return " ".join(parts)


class _Options:
    """The options in `NAME KEY=VALUE FLAG ...`, each of which may be there once."""

    def __init__(self, name: str, words: list[str], keys: tuple[str, ...], flags: tuple[str, ...]):
        self.name = name
        self.flags: set[str] = set()
        self._values: dict[str, str] = {}
        allowed = ", ".join([*(f"{key}=" for key in keys), *flags])
        for word in words:
            key, equals, value = word.partition("=")
            if equals and key in keys and key not in self._values:
                self._values[key] = value
            elif word in flags and not self.flags:
                self.flags.add(word)
            else:
                raise ValueError(f"{word!r} is not an option of {name}, or is given twice; it takes {allowed}")

    def take(self, key: str, parse: Callable[[object], T]) -> T | None:
        if key not in self._values:
            return None
        try:
            return parse(self._values[key])
        except ValueError as error:
            raise ValueError(f"{key} of {self.name}: {error}") from None


PacingName = Literal["kernel", "kept", "linux-4.14", "draft"]
PACINGS: tuple[PacingName, ...] = get_args(PacingName)
KEPT_LAG = 100_000_000  # ns
MAX_KEPT_LAG = 250_000_000  # ns, of net.ipv4.tcp_pacing_lag_us (kernel/patches/kept)


@dataclass(frozen=True)
class Pacing:
    """How TCP paces by itself. `lag`: how much of what departures were late is made up for (kept; ns), else 0."""

    name: PacingName = "kernel"
    lag: int = 0

    @classmethod
    def parse(cls, text: object) -> Pacing:
        given, *words = str(text).split() or [""]
        name = next((known for known in PACINGS if known == given), None)
        if name is None:
            raise ValueError(f"{str(text)!r} is not one of {', '.join(PACINGS)}; or write for example 'kept lag=50ms'")
        if name != "kept":
            if words:
                raise ValueError(f"{str(text)!r}: {name} takes no options")
            return cls(name)
        lag = _Options(name, words, ("lag",), ()).take("lag", units.nanoseconds)
        if lag is not None and not 1000 <= lag <= MAX_KEPT_LAG:
            raise ValueError(
                f"lag={units.show_time(lag)} of kept is not between 1us and {units.show_time(MAX_KEPT_LAG)}; "
                "write for example lag=50ms"
            )
        return cls(name, lag or KEPT_LAG)

    def __str__(self) -> str:
        """Return the text that `parse` reads, without options that have their default."""
        return self.name + (f" lag={units.show_time(self.lag)}" if self.lag not in (0, KEPT_LAG) else "")


@dataclass(frozen=True)
class Pattern:
    """What a flow's application writes, and when. Values that a pattern does not have are None."""

    kind: PatternKind = "bulk"
    rate: int | None = None  # rate: bit/s of payload
    sending: int | None = None  # onoff: ns of each burst; idle: ns until the silence
    silent: int | None = None  # onoff: ns between bursts; idle: ns of the one silence

    @classmethod
    def parse(cls, text: object) -> Pattern:
        match str(text).split():
            case ["bulk"]:
                return cls()
            case ["rate", rate]:
                return cls("rate", rate=_positive(rate, units.bits_per_second, MAX_RATE))
            case ["onoff", sending, silent]:
                return cls("onoff", None, _time(sending), _time(silent))
            case ["idle", sending, silent]:
                return cls("idle", None, _time(sending), _time(silent))
        raise ValueError(
            f"{str(text)!r} is not a traffic pattern; write for example bulk, 'rate 5mbit', 'onoff 1s 500ms' or "
            "'idle 3s 2s'"
        )

    def __str__(self) -> str:
        parts: list[str] = [self.kind]
        parts += [units.show_rate(self.rate)] if self.rate is not None else []
        parts += [units.show_time(ns) for ns in (self.sending, self.silent) if ns is not None]
        return " ".join(parts)


def _time(text: str) -> int:
    return _positive(text, units.nanoseconds, MAX_TIME)


def _positive(text: str, parse: Callable[[object], int], maximum: int) -> int:
    number = parse(text)
    if not 0 < number <= maximum:
        shown = units.show_time(maximum) if parse is units.nanoseconds else units.show_rate(maximum)
        raise ValueError(f"{text!r} must be greater than 0 and at most {shown}")
    return number


Changes = tuple[tuple[int, int], ...]  # (ns after the run's start, new value), in order of time


def changes(given: object, parse: Callable[[object], int]) -> Changes:
    """Return the changes in `[["5s", "50mbit"], ["10s", "100mbit"]]`; an option has them as `5s:50mbit,10s:100mbit`."""
    parsed = tuple((units.nanoseconds(time), parse(value)) for time, value in _pairs(given))
    for (time, _), (following, _) in pairwise(parsed):
        if following <= time:
            raise ValueError(
                f"the change at {units.show_time(following)} stands after the one at {units.show_time(time)}; "
                "give the changes in order of time"
            )
    return parsed


def _pairs(given: Any) -> Iterator[tuple[Any, Any]]:
    refusal = f"{given!r} is not a list of changes; write [['5s', VALUE], ['10s', VALUE]] or 5s:VALUE,10s:VALUE"
    if isinstance(given, str):
        given = [part.split(":") for part in given.split(",")] if given.strip() else []
    if not isinstance(given, list | tuple):
        raise ValueError(refusal)
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(refusal)
        yield pair[0], pair[1]


def show_changes(value: Changes, show: Callable[[float], str]) -> list[list[str]]:
    return [[units.show_time(time), show(new)] for time, new in value]
