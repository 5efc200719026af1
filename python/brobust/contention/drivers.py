"""Ways of taking the CPU away from threads: a context manager each. Who is held, and what for, is their caller's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

from brobust import _core
from brobust.host import children, cpus
from brobust.host.session import Session

MOST_COMPETITORS = 9

Offtimes = Sequence[tuple[int, int]]
"""Start and duration of each, ns."""


@contextmanager
def deadline(threads: Sequence[int], timeslice_ns: int, period_ns: int, session: Session) -> Iterator[None]:
    """SCHED_DEADLINE: so much CPU in every period, each thread for itself."""
    held = _core.Deadline(threads, timeslice_ns, period_ns)
    # The kernel pulls a DEADLINE thread that may run anywhere to whichever CPU is about to schedule: seen half
    # the time on the path guest's, which it froze (Cubic at 50 %: 13 instead of 18.7 Mbit/s). It takes a thread
    # that is confined to some CPUs only while its bandwidth control is off (dl_task_check_affinity), which is for
    # the moment of the call; `admit` counts what the host has admitted already.
    confined = any(len(os.sched_getaffinity(thread)) < (os.cpu_count() or 1) for thread in threads)
    try:
        while True:
            with session.sysctl("kernel/sched_rt_runtime_us", "-1") if confined else nullcontext():
                held.admit()
            if held.get_going():
                break
        yield
    finally:
        held.stop()


@contextmanager
def burner(
    places: Mapping[int, int], on_ns: int, off_ns: int, phases_ns: Sequence[int], start_jitter: float,
    length_jitter: float, seed: int, start_ns: int | None = None,
) -> Iterator[None]:  # fmt: skip
    """A real-time thread beside each thread (a key), on the CPU that it is pinned to (the value), which occupies that
    CPU in the off-times."""
    with ExitStack() as stack:
        for (thread, cpu), phase_ns in zip(places.items(), phases_ns, strict=True):
            stack.enter_context(
                _core.Burner(
                    thread,
                    cpu,
                    on_ns,
                    off_ns,
                    phase_ns=phase_ns,
                    start_jitter=start_jitter,
                    length_jitter=length_jitter,
                    seed=seed,
                    start_ns=start_ns,
                )
            )
        yield


@contextmanager
def replay(places: Mapping[int, int], offtimes: Offtimes, start_ns: int | None = None) -> Iterator[None]:
    """The same at recorded times, for all threads at once, which count from `start_ns` (None: from now)."""
    with ExitStack() as stack:
        for thread, cpu in places.items():
            stack.enter_context(_core.Burner.replay(thread, cpu, offtimes, start_ns=start_ns))
        yield


@contextmanager
def quota(threads: Sequence[int], timeslice_ns: int, period_ns: int, session: Session) -> Iterator[None]:
    """A cgroup for each thread, with bandwidth control: what clouds sell as a part of a CPU."""
    groups = session.hold_groups(threads, timeslice_ns, period_ns)
    try:
        yield
    finally:
        session.release_groups(groups)


def competitors_for(share: float, most: int = MOST_COMPETITORS) -> int | None:
    """How many busy processes beside a vCPU leave it this share; None if no number does."""
    count = round(1 / share) - 1
    return count if 1 <= count <= most and abs(1 / (count + 1) - share) < 0.005 else None


@contextmanager
def competitors(places: Mapping[int, int], count: int, nice: str) -> Iterator[None]:
    """So many busy processes beside each thread on its CPU: the host's scheduler decides who runs when."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for cpu in places.values():
            processes += [_competitor(cpu, nice) for _ in range(count)]
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _competitor(cpu: int, nice: str) -> subprocess.Popen[bytes]:
    """A process that is always busy, on that CPU, with that weight. Dies with brobust."""
    command = children.ends_with_us(["nice", "-n", nice, "sh", "-c", "while :; do :; done"])
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    cpus.pin([process.pid], {cpu})
    cpus.weigh_session(process.pid, nice)
    return process
