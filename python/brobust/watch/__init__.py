"""Show the sweeps of `brobust watch` on a terminal.

The program for operators reads and judges the sockets (crates/watch, crates/command); docs/watch.md lists the fields of
a sweep.
"""

from typing import Any

from brobust import _core

CAUSES = tuple(_core.CAUSES)
"""The causes, in the order in which users see them."""
MEANINGS = _core.CAUSES
"""What each cause means."""
CPU_LIMITED = CAUSES[0]

Sweep = dict[str, Any]
"""One reading of all sockets, with the fields of docs/watch.md."""

Flow = dict[str, Any]
"""One of a sweep's `flows`: a socket."""


def count(sweep: Sweep, cause: str) -> int:
    return sum(line["sockets"] for line in sweep["counts"] if line["cause"] == cause)


def formatted(value: float | None, template: str) -> str:
    """Return the value in the template, or `unknown` if it could not be read."""
    return "unknown" if value is None else template.format(value)
