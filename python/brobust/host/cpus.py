"""Assign CPUs: the sender's vCPU gets one to itself, everything else shares the others.

Anything else on the vCPU's CPU would be contention that the scenario does not request.
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
    """The number of the sender's CPU, and those of the others."""

    sender: int
    others: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.others | {self.sender}


def plan() -> Plan:
    """Return the assignment for this host, or refuse a host with fewer than two CPUs."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise MissingSupport(
            f"the vm backend needs two CPUs, one of them only for the sender; this process may use {len(allowed)}"
        )
    return Plan(sender=allowed[-1], others=frozenset(allowed[:-1]))


def pin(threads: Iterable[int], cpus: Iterable[int]) -> None:
    """Confine threads to these CPUs. A thread that has ended is ignored."""
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, set(cpus))


def weigh_session(pid: int, nice: str) -> None:
    """Set the nice value of a process's session. If the scheduler groups threads by session (autogroup), a thread's own
    nice value counts only within its group."""
    with contextlib.suppress(OSError):  # this kernel does not group threads
        Path(f"/proc/{pid}/autogroup").write_text(nice)
