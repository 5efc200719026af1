"""Which CPU serves whom: the sender's vCPU gets one to itself, everything else shares the others.

Whatever else ran on the vCPU's CPU would be contention that nobody asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import MissingSupport


@dataclass(frozen=True)
class Plan:
    """CPU numbers of this host."""

    sender: int
    others: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.others | {self.sender}


def plan() -> Plan:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise MissingSupport(
            f"the vm backend needs two CPUs, one of them for the sender alone; this process may use {len(allowed)}"
        )
    return Plan(sender=allowed[-1], others=frozenset(allowed[:-1]))


def pin(threads: Iterable[int], cpus: Iterable[int]) -> None:
    """Confine threads; one that has ended meanwhile needs no CPU."""
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, set(cpus))


def weigh_session(pid: int, nice: str) -> None:
    """Where the scheduler groups threads by session, nice counts only within one; the group needs its own."""
    with contextlib.suppress(OSError):  # no such grouping here
        Path(f"/proc/{pid}/autogroup").write_text(nice)
