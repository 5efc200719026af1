"""Assign CPUs: each vCPU of the sender gets one to itself, everything else shares the others.

Anything else on a vCPU's CPU would be contention that the scenario does not request.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import MissingSupport


@dataclass(frozen=True)
class Plan:
    """The CPU of each of the sender's vCPUs, by number, and those of the others."""

    senders: tuple[int, ...]
    others: frozenset[int]

    @property
    def has_one_each(self) -> bool:
        """Whether no two vCPUs share a CPU."""
        return len(set(self.senders)) == len(self.senders)


def plan(vcpus: int = 1, most_on_one: int = 1) -> Plan:
    """Return the assignment for this host, or refuse a host with too few CPUs. Where there are not enough, up to
    `most_on_one` vCPUs share one: those whose numbers are far apart, since their phases may be."""
    allowed = sorted(os.sched_getaffinity(0), reverse=True)
    for on_one in range(1, most_on_one + 1):
        wanted = -(-vcpus // on_one)
        if wanted < len(allowed):
            return Plan(tuple(allowed[number % wanted] for number in range(vcpus)), frozenset(allowed[wanted:]))
    if vcpus == 1:
        raise MissingSupport(
            f"the vm backend needs two CPUs, one of them only for the sender; this process may use {len(allowed)}; "
            "allow it more, or give backend virtual"
        )
    raise MissingSupport(
        f"contention.vcpus: {vcpus} vCPUs need {-(-vcpus // most_on_one) + 1} CPUs, one of them for the path, and this "
        f"process may use {len(allowed)}; give fewer, or driver quota, or deadline with phase out, and so small "
        "a share that some can take turns on a CPU (90 % of it together)"
    )


def pin(threads: Iterable[int], cpus: Iterable[int]) -> None:
    """Confine threads to these CPUs. A thread that has ended is ignored."""
    for thread in threads:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(thread, set(cpus))


Times = dict[str, tuple[int, int]]
"""Of each CPU by its name (cpu0, ...) how long its hypervisor gave it to others, and how long it counted at all, in
clock ticks."""


def times(stat: str | None = None) -> Times:
    """Return the times of /proc/stat (proc_stat(5)), or of what another host has there."""
    found = {}
    for line in (Path("/proc/stat").read_text() if stat is None else stat).splitlines():
        name, *counts = line.split() or [""]
        if name.startswith("cpu") and name != "cpu":
            # user, nice, system, idle, iowait, irq, softirq, steal; guests count as user already
            numbers = [int(count) for count in counts[:8]]
            found[name] = (numbers[7], sum(numbers))
    return found


def steal(before: Times, after: Times) -> float:
    """Return the largest part of a CPU's time that its hypervisor gave to others between two readings. It is the
    largest, because nobody knows on which CPU the work ran."""
    shares = [
        (after[cpu][0] - stolen) / (after[cpu][1] - total)
        for cpu, (stolen, total) in before.items()
        if cpu in after and after[cpu][1] > total
    ]
    return max(shares, default=0.0)


def weigh_session(pid: int, nice: str) -> None:
    """Set the nice value of a process's session. If the scheduler groups threads by session (autogroup), a thread's own
    nice value counts only within its group."""
    with contextlib.suppress(OSError):  # this kernel does not group threads
        Path(f"/proc/{pid}/autogroup").write_text(nice)
