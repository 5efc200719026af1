"""Follow the TCP sockets of this host, sweep after sweep, and explain what the sweeps show.

crates/watch reads and judges the sockets. This package decides when it does so, and puts the result into words.
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

CAUSES = _core.CAUSES
CPU_LIMITED = CAUSES[0]

# From this much steal, or from this share of late wake-ups on, the CPU was taken away.
MIN_STEAL_SHARE = 0.01
MIN_LATE_SHARE = 0.1
# In a guest whose own work filled its CPU (TCG), 16 to 27 % of the wake-ups were late although nobody took the CPU
# away; where somebody did, 46 % and more (docs/watch.md).
MIN_SURELY_LATE_SHARE = 0.4
# A CPU that is this busy cannot do more work.
MIN_BUSY_SHARE = 0.9

PAUSE_FACTOR = 50
"""The pause after a sweep is at least this many times the sweep's duration. So watching takes at most 2 % of a CPU, and
less where the watching itself has to wait for the CPU."""

Sweep = dict[str, Any]
"""One reading of all sockets, with the fields of docs/watch.md."""

Flow = dict[str, Any]
"""One of a sweep's `flows`: a socket."""


@dataclass(frozen=True)
class Filter:
    """The ports of the sockets that are watched. None: any port."""

    local_port: int | None = None
    remote_port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Read `dport 443`, `sport 80`, or both joined by `and`; refuse anything else."""
        ports: dict[str, int] = {}
        for part in re.split(r"\s+and\s+", text.strip()):
            match = re.fullmatch(r"(sport|dport)\s*=?\s*:?(\d+)", part.strip())
            if match is None or not 0 < int(match[2]) < 65536 or match[1] in ports:
                raise BadInput(
                    f"--filter: {text!r} is not a filter; write dport PORT (the other end's port), sport PORT (this "
                    "host's port), or both: 'sport 80 and dport 5201'"
                )
            ports[match[1]] = int(match[2])
        return cls(ports.get("sport"), ports.get("dport"))


def sweeps(
    interval_s: float, window_s: float, count: int | None, top: int, which: Filter, netns: str | None
) -> Iterator[Sweep]:
    """Yield a sweep at every interval, or later where sweeps are slow. Its `time_unix_s` says when it was made, its
    `interval_s` how long after the previous one."""
    try:
        watch = _core.Watch(window_s, netns, which.local_port, which.remote_port)
        before = time.monotonic()
        due, number = before + interval_s, 0
        while count is None or number < count:
            number += 1
            time.sleep(max(0.0, due - time.monotonic()))
            begun, time_unix_s = time.monotonic(), time.time()
            sweep = json.loads(watch.sweep(top))
            end = time.monotonic()
            yield {"time_unix_s": time_unix_s, "interval_s": begun - before, **sweep}
            if begun - due > interval_s:  # we were kept off the CPU: do not catch up on the sweeps that were missed
                due = begun
            before, due = begun, max(due + interval_s, end + PAUSE_FACTOR * (end - begun))
    except _core.WatchError as error:
        raise MissingSupport(f"watch: {error}") from None


def count(sweep: Sweep, cause: str) -> int:
    """Return how many sockets have this cause."""
    return sum(line["sockets"] for line in sweep["counts"] if line["cause"] == cause)


def formatted(value: float | None, template: str) -> str:
    """Return the value in the template, or `unknown` if it could not be read."""
    return "unknown" if value is None else template.format(value)


def why(host: dict[str, Any]) -> str:
    """Return the reason for a deficit that the state of the host's CPUs suggests. The deficit says which sockets
    suffer, steal and late wake-ups say why."""
    steal, late, busiest = host["steal_share"], host["late_share"] or 0, host["busiest_share"]
    if steal is not None and steal >= MIN_STEAL_SHARE:
        return f"the CPU is taken away ({steal:.0%} steal)"
    is_busy = busiest is not None and busiest >= MIN_BUSY_SHARE
    if late >= MIN_SURELY_LATE_SHARE or (late >= MIN_LATE_SHARE and not is_busy):
        return f"the CPU is taken away ({late:.0%} of our wake-ups were late)"
    if late >= MIN_LATE_SHARE:
        return (
            f"a CPU is busy, and {late:.0%} of our wake-ups were late: either this host's own work delays them, or the "
            "CPU is taken away for short times"
        )
    if is_busy:
        return f"a CPU is busy ({busiest:.0%}): pacing and the host's other work need more CPU time than there is"
    if steal is None or busiest is None:
        return "the load of the host's CPUs could not be read"
    return "during the sweeps the CPU was available, so this host's CPUs do not explain it"


EXPLANATION = """\
A flow is cpu-limited if it has data to send, room in its windows and no reason to drain its queue, and still has less
in flight than the bandwidth-delay product that it has estimated itself: its sender lacks the CPU to send more. The
bandwidth estimate follows what is sent, so it falls as well.

What to do about it:
  give the VM its CPU                       steal, or a CPU quota on its vCPUs, is the usual reason
  brobust cc load bbr_steady --dry-run      keeps BBR's pacing schedule although the CPU is taken away; not for
                                            paths with random loss (docs/repair.md)
  brobust cc load bbr_robust --dry-run      the repair from 2BRobust, for 40 % of a CPU and more (docs/robust.md)
  if one CPU is busy with many flows        use fewer flows, larger bursts, or a faster CPU (docs/findings.md)
"""
