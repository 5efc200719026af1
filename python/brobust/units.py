"""Quantities with units, as people write them: `20mbit`, `10ms`, `60kB`, `1bdp`, `100p`, `576MHz`, `25%`.

Each parser returns one plain number in the unit its name says, and refuses what it does not understand with a
sentence that shows what is allowed. Bit rates are decimal as everywhere in networking (tc: 1 mbit = 10^6 bit/s).
A parser reads exactly what `show_*` wrote: the hash of a scenario depends on that.
"""

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Self

# A full-size Ethernet frame as tc counts it: 1500 bytes of IP and 14 of header.
FRAME_BYTES = 1514
# TCP payload in a full frame: 1514 - 14 Ethernet - 20 IPv4 - 32 TCP with timestamps. The header of IPv6 has 40 bytes.
PAYLOAD_BYTES = 1448
PAYLOAD_BYTES_OF = {4: PAYLOAD_BYTES, 6: 1428}
SUPER_PACKET_BYTES = 65536  # the maximum: GSO_LEGACY_MAX_SIZE, include/linux/netdevice.h
MAX_BUFFER_BYTES = 1e12  # bytes: more than any path can fill in an hour. Also the maximum in other units
MAX_QUOTE = 60

_NUMBER = re.compile(r"^\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z%µ]*)\s*$")

_RATES = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_TIMES_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20}
_FREQUENCIES = {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9}


def _split(text: object, what: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(str(text))
    if match is None:
        raise ValueError(f"{quoted(text)} is not a {what}; write for example {example}")
    return _finite(float(match[1]), text, example), match[2]


def _finite(number: float, text: object, example: str) -> float:
    """Return the number; refuse one that only a text can hold, such as 400 digits."""
    if not math.isfinite(number):
        raise ValueError(f"{quoted(text)} is too large; write for example {example}")
    return number


def quoted(given: object) -> str:
    """Return what was given, for a refusal."""
    return repr(cut(str(given)))


def cut(text: str) -> str:
    """Return a text as a refusal has room for it."""
    return text if len(text) <= MAX_QUOTE else f"{text[:MAX_QUOTE]}..."


def _scaled(text: object, what: str, units: dict[str, int], example: str) -> float:
    number, unit = _split(text, what, example)
    scale = units.get(unit)
    if scale is None:  # `20Mbit` is read, too
        scale = {name.lower(): scale for name, scale in units.items()}.get(unit.lower())
    if scale is None:
        problem = "has no unit" if unit == "" else f"has the unknown unit {unit!r}"
        raise ValueError(f"{quoted(text)} {problem}; write for example {example} ({', '.join(units)})")
    return _finite(number * scale, text, example)


def bits_per_second(text: object) -> int:
    """Return a bit rate such as `20mbit`, in bit/s."""
    return round(_scaled(text, "bit rate", _RATES, "20mbit"))


def nanoseconds(text: object, example: str = "10ms") -> int:
    """Return a duration such as `10ms`, in nanoseconds. A refusal shows the example."""
    return round(_scaled(text, "duration", _TIMES_NS, example))


def milliseconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def hertz(text: object) -> int:
    """Return a frequency such as `576MHz`, in Hz."""
    return round(_scaled(text, "frequency", _FREQUENCIES, "576MHz"))


def size_bytes(text: object) -> int:
    """Return a size such as `60kB`, in bytes."""
    return round(_scaled(text, "size", _SIZES, "60kB"))


def fraction(text: object) -> float:
    """Return a share or a probability, `0.25` or `25%`, as a number in which 1 is the whole."""
    if isinstance(text, float):  # the text of a small one, 1e-05, cannot be read
        return text
    number, unit = _split(text, "fraction", "0.25 or 25%")
    if unit not in ("", "%"):
        raise ValueError(f"{quoted(text)} has the unknown unit {unit!r}; write for example 0.25 or 25%")
    return number / 100 if unit == "%" else number


@dataclass(frozen=True)
class Buffer:
    """A bottleneck buffer: a number of bytes (B), bandwidth-delay products (bdp), full-size frames (p) or super-packets
    (sp). What a sender hands to its NIC at once, up to 64 KiB, is one super-packet, as in an emulator with offloads."""

    amount: float
    unit: Literal["B", "bdp", "p", "sp"]

    @classmethod
    def parse(cls, text: object) -> Self:
        example = "1bdp, 60kB or 100p"
        number, unit = _split(text, "buffer size", example)
        if unit.lower() in ("bdp", "p", "sp"):
            buffer = cls(number, unit.lower())  # type: ignore[arg-type]
        else:
            buffer = cls(_scaled(text, "buffer size", {"bdp": 0, "p": 0, "sp": 0, **_SIZES}, example), "B")
        if buffer.amount > MAX_BUFFER_BYTES:
            raise ValueError(f"{quoted(text)} is too large; write for example {example}")
        return buffer

    def bytes(self, bandwidth_bps: int, rtt_ns: int) -> int:
        """Return the size in bytes on a path of this bandwidth and RTT; for super-packets, the most that fits."""
        if self.unit == "bdp":
            return round(self.amount * bandwidth_bps * rtt_ns / 8e9)
        return round(self.amount * {"p": FRAME_BYTES, "sp": SUPER_PACKET_BYTES}.get(self.unit, 1))

    def __str__(self) -> str:
        return f"{show_number(self.amount)}{self.unit}"


def show_rate(bps: float) -> str:
    """Return a bit rate as the parser reads it, in the largest unit that keeps it short: 20mbit."""
    return _shown(bps, _RATES, ("gbit", "mbit", "kbit"), "bit")


def show_time(ns: float) -> str:
    """Return a duration as the parser reads it: 10ms."""
    return _shown(ns, _TIMES_NS, ("s", "ms", "us"), "ns")


def show_size(size: float) -> str:
    """Return a size as the parser reads it: 60kB."""
    return _shown(size, {"MB": 10**6, "kB": 10**3}, ("MB", "kB"), "B")


def show_frequency(hz: float) -> str:
    """Return a frequency as the parser reads it: 576MHz."""
    return _shown(hz, {"GHz": 10**9, "MHz": 10**6, "kHz": 10**3}, ("GHz", "MHz", "kHz"), "Hz")


def _shown(number: float, scales: dict[str, int], units: tuple[str, ...], smallest: str) -> str:
    for unit in units:
        if number >= scales[unit]:
            return f"{show_number(number / scales[unit])}{unit}"
    return f"{show_number(number)}{smallest}"


def show_percent(fraction: float) -> str:
    """Return a share or a probability in percent, for people: 12.5%."""
    return f"{fraction * 100:g}%"


def show_number(number: float) -> str:
    """Return a number with all its digits, and without an exponent (1e-05), which no parser here reads."""
    text = format(Decimal(repr(number)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_count(count: int, noun: str) -> str:
    """Return a number of things with their noun, which takes an s unless there is one: 1 cell, 2 cells."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show_measured(number: float, digits: int = 3) -> str:
    """Return what was measured with so many digits, for people: 1910, where format() has 1.91e+03."""
    return show_number(float(f"{number:.{digits}g}"))


def goodput_ceiling_mbps(bandwidth_bps: int, ip_version: int = 4) -> float:
    """Return how much TCP payload a path of this rate can deliver: tbf counts whole Ethernet frames."""
    return bandwidth_bps * PAYLOAD_BYTES_OF[ip_version] / FRAME_BYTES / 1e6
