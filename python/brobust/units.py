"""Quantities with units, as people write them: `20mbit`, `10ms`, `60kB`, `1bdp`, `25%`.

Each parser returns one plain number in the unit its name says, and refuses what it does not understand with a
sentence that shows what is allowed. Bit rates are decimal as everywhere in networking (tc: 1 mbit = 10^6 bit/s).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%µ]*)\s*$")

_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20}


def _split(text: object, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(str(text))
    if match is None:
        raise ValueError(f"{str(text)!r} is not a {what}; write for example {example}")
    return float(match[1]), match[2].lower()


def _scaled(text: object, what: str, units: dict[str, int], example: str) -> float:
    number, unit = _split(text, what, example)
    if unit not in units:
        problem = "has no unit" if unit == "" else f"has the unknown unit {unit!r}"
        raise ValueError(f"{str(text)!r} {problem}; write for example {example} ({', '.join(units)})")
    return number * units[unit]


def bits_per_second(text: object) -> int:
    """A bit rate such as `20mbit`, in bit/s."""
    return round(_scaled(text, "bit rate", _RATES, "20mbit"))


def nanoseconds(text: object) -> int:
    """A duration such as `10ms`, in nanoseconds."""
    return round(_scaled(text, "duration", _TIMES_NS, "10ms"))


def fraction(text: object) -> float:
    """A share or a probability: `0.25` or `25%`, as a number where 1 is the whole."""
    number, unit = _split(text, "fraction", "0.25 or 25%")
    if unit not in ("", "%"):
        raise ValueError(f"{str(text)!r} has the unknown unit {unit!r}; write for example 0.25 or 25%")
    return number / 100 if unit == "%" else number


@dataclass(frozen=True)
class Buffer:
    """A bottleneck buffer: so many bytes, or so many bandwidth-delay products."""

    amount: float
    in_bdp: bool

    @classmethod
    def parse(cls, text: object) -> Buffer:
        number, unit = _split(text, "buffer size", "1bdp or 60kB")
        if unit == "bdp":
            return cls(number, in_bdp=True)
        return cls(_scaled(text, "buffer size", {"bdp": 0, **_SIZES}, "1bdp or 60kB"), in_bdp=False)

    def bytes(self, bandwidth_bps: int, rtt_ns: int) -> int:
        """Size in bytes on a path of this bandwidth and round-trip time."""
        if self.in_bdp:
            return round(self.amount * bandwidth_bps * rtt_ns / 8e9)
        return round(self.amount)

    def __str__(self) -> str:
        return f"{self.amount:g}bdp" if self.in_bdp else f"{self.amount:g}B"


def show_rate(bps: float) -> str:
    """A bit rate as the parser reads it, in the largest unit that keeps it short: 20mbit."""
    for unit, scale in reversed(_RATES.items()):
        if bps >= scale:
            return f"{bps / scale:g}{unit}"
    return f"{bps:g}bit"


def show_time(ns: float) -> str:
    """A duration as the parser reads it: 10ms."""
    for unit in ("s", "ms", "us"):
        if ns >= _TIMES_NS[unit]:
            return f"{ns / _TIMES_NS[unit]:g}{unit}"
    return f"{ns:g}ns"
