"""Following the TCP sockets of this host: sweep after sweep, and what to do about what they show.

The sockets are read and judged in crates/watch; here is the clock, and what people are told.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from brobust import _core
from brobust.errors import BadInput, MissingSupport

CPU_LIMITED = "cpu-limited"
CAUSES = (CPU_LIMITED, "network-limited", "rwnd-limited", "sndbuf-limited", "app-limited", "undecided")

# So much steal, or wakes that are late: the CPU was taken away.
STEAL_SHARE = 0.01
LATE_SHARE = 0.1
# In a guest whose own work filled its CPU (TCG) 16 to 27 % of the wakes were late though nobody took it away, and where
# somebody did 46 % and more (docs/watch.md).
SURELY_LATE_SHARE = 0.4
# A CPU that is as busy has no more to give.
BUSY_SHARE = 0.9

LEAST_PAUSE = 50
"""The pause after a sweep is at least as many times as long as that took: watching takes at most 2 % of a CPU, and less
where it has to wait for the CPU itself."""

Report = dict[str, Any]
"""A sweep, with the fields of docs/watch.md."""


@dataclass(frozen=True)
class Filter:
    """Which sockets: those with these ports."""

    local_port: int | None = None
    remote_port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Filter:
        """`dport 443`, `sport 80`, or both with `and` between."""
        ports: dict[str, int] = {}
        for part in re.split(r"\s+and\s+", text.strip()):
            match = re.fullmatch(r"(sport|dport)\s*=?\s*:?(\d+)", part.strip())
            if match is None or not 0 < int(match[2]) < 65536 or match[1] in ports:
                raise BadInput(
                    f"--filter: {text!r} is no filter; write dport PORT (of the other end), sport PORT (our own), "
                    "or both: 'sport 80 and dport 5201'"
                )
            ports[match[1]] = int(match[2])
        return cls(ports.get("sport"), ports.get("dport"))


def sweeps(
    interval_s: float, window_s: float, count: int | None, top: int, which: Filter, netns: str | None
) -> Iterator[Report]:
    """A report at every interval, or later where sweeps are slow; `time_unix_s` tells when, and `interval_s` how long
    after the one before."""
    try:
        watch = _core.Watch(window_s, netns, which.local_port, which.remote_port)
        before = time.monotonic()
        due, number = before + interval_s, 0
        while count is None or number < count:
            number += 1
            time.sleep(max(0.0, due - time.monotonic()))
            begun, time_unix_s = time.monotonic(), time.time()
            report = json.loads(watch.sweep(top))
            end = time.monotonic()
            yield {"time_unix_s": time_unix_s, "interval_s": begun - before, **report}
            if begun - due > interval_s:  # we were away: begin anew instead of catching up
                due = begun
            before, due = begun, max(due + interval_s, end + LEAST_PAUSE * (end - begun))
    except _core.WatchError as error:
        raise MissingSupport(f"watch: {error}") from None


def count(report: Report, cause: str) -> int:
    """Sockets with this cause."""
    return sum(line["sockets"] for line in report["counts"] if line["cause"] == cause)


def said(value: float | None, words: str) -> str:
    return "unknown" if value is None else words.format(value)


def why(host: dict[str, Any]) -> str:
    """What the host's CPUs say of a deficit: steal explains why, the deficit says who suffers."""
    steal, late, busiest = host["steal_share"], host["late_share"] or 0, host["busiest_share"]
    if steal is not None and steal >= STEAL_SHARE:
        return f"the CPU is taken away ({steal:.0%} steal)"
    is_busy = busiest is not None and busiest >= BUSY_SHARE
    if late >= SURELY_LATE_SHARE or (late >= LATE_SHARE and not is_busy):
        return f"the CPU is taken away ({late:.0%} of our wakes were late)"
    if late >= LATE_SHARE:
        return f"a CPU is busy, and {late:.0%} of our wakes were late: by its own work, or it is taken away for moments"
    if is_busy:
        return f"a CPU is busy ({busiest:.0%}): pacing and all else cost more than it has"
    if steal is None or busiest is None:
        return "what the host's CPUs did could not be read"
    return "the CPU was there when we looked"


EXPLANATION = """\
A flow is cpu-limited when it has data, room in its windows and no reason to drain, and yet less in flight than its
own estimate of the path holds: its sender does not get to send. The estimate follows what is sent, and falls.

What to do about it:
  give the VM its CPU                       steal, or a CPU quota on its vCPUs, is the usual reason
  brobust cc load bbr_steady --dry-run      a pacing schedule that is kept although the CPU is away; not for
                                            paths with random loss (docs/repair.md)
  brobust cc load bbr_robust --dry-run      the repair of 2BRobust, for 40 % of a CPU and more (docs/robust.md)
  where one CPU is busy with many flows     fewer flows, larger bursts, or a CPU that is faster (docs/findings.md)
"""
