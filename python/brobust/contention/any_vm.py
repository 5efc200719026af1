"""Contention for the vCPU threads of any VM on this host, by a command, and recordings of what threads get.

during_run.py does the same for the testbed's guests as part of a run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from brobust import _core, files, units
from brobust.contention import request, verdict
from brobust.contention.vcpus import Machine
from brobust.drivers import Driver, Places
from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.host import cpus
from brobust.host.session import Session

Report = dict[str, Any]
"""What threads got, with the fields of docs/contend.md."""

# Ordinary threads, the kernel's among them, still get a thousandth of a CPU beside 64 of these (kernel/sched/core.c,
# sched_prio_to_weight: 9548 to 1024).
MIN_NICE = -10
SCHED_DEADLINE = 6  # include/uapi/linux/sched.h; Python's os has no name for it
# A command that has said nothing for this time, and longer than it may have to wait, counts as stuck.
STUCK_SECONDS = 15.0

BINS = 10


def check(driver: Driver, machine: Machine, *, force: bool = False) -> Places:
    """Refuse what is not possible here, or would take the host away from its owner (`force`: even that is done). Return
    the threads, each with its CPU where the driver needs one."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    for tid in tids:
        _core.refuse_held(tid)
    request.check(driver, tids, f"--driver {driver.name}")
    for tid in tids:
        if os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK == SCHED_DEADLINE:
            raise BadInput(f"thread {tid} is under SCHED_DEADLINE already: give it an ordinary policy first")
    places: Places = (
        own_cpus({tid: sorted(os.sched_getaffinity(tid)) for tid in tids})
        if driver.needs_own_cpus
        else dict.fromkeys(tids)
    )
    if not force:
        if driver.options.nice < MIN_NICE:
            raise BadInput(
                f"--nice: {driver.options.nice} starves the kernel's own threads on these CPUs; give {MIN_NICE} or "
                "more, or --force with --for"
            )
        busy, roaming = driver.kept_busy(places)
        _core.refuse_without_spare(list(busy), roaming)
    return places


def own_cpus(allowed: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return a CPU of its own for each thread, of those that it may use: the highest first, the lowest serve
    interrupts."""
    taken: dict[int, int] = {}
    for thread in sorted(allowed, key=lambda thread: len(allowed[thread])):
        free = [cpu for cpu in allowed[thread] if cpu not in taken.values()]
        if not free:
            raise BadInput(
                f"each of the {len(allowed)} threads needs a CPU for itself, and no CPU is left for {thread}; "
                "give fewer with --threads, or --driver quota or deadline"
            )
        taken[thread] = free[-1]
    return {thread: taken[thread] for thread in allowed}


def contend(
    machine: Machine, driver: Driver, places: Places, seconds: float | None, out: Path | None = None, *,
    force: bool = False,
) -> Generator[Report]:  # fmt: skip
    """Apply the contention for `seconds` (None: until Ctrl-C), each thread on its CPU from `check`. Yield one report
    per second and a final one (`summary` true) for the whole time. All threads are restored on return.

    `out`: keep what they got, as `record` does. `force`: as for `check`."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    if driver.offtimes and seconds is None:
        seconds = sum(driver.offtimes[-1]) / 1e9
    # Longer than starting and ending may take; while it lasts, something is said every second.
    silence_seconds = STUCK_SECONDS + 10 * driver.requested.period / 1e9
    with Session.start(beside_others=True, silence_seconds=silence_seconds) as session:
        session.hold_threads(tids)
        for vcpu in machine.vcpus:
            if not vcpu.lives:
                raise BadInput(f"thread {vcpu.tid} has ended: is the VM still running?")
        busy, roaming = driver.kept_busy(places)
        session.hold_cpus(list(busy), roaming, force)
        try:
            for tid, cpu in places.items():
                if cpu is not None:
                    cpus.pin([tid], {cpu})
            begin = time.monotonic_ns()
            with driver.held(places, session, begin, random.randrange(2**32)), _ahead_of_guests():
                recorder, recorded_by = _recorder(tids)
                interrupted = False
                try:
                    for _ in _seconds(seconds, machine):
                        session.say_alive()
                        parts = recorder.take()
                        yield _report(machine, [part.summary(driver.off_ns) for part in parts], begin)
                except KeyboardInterrupt:
                    interrupted = True
                summaries = [recording.summary(driver.off_ns) for recording in recorder.stop()]
                if out is not None:
                    _write(machine, recorder, out, begin)
        except _core.ContentionError as error:
            raise RunFailed(str(error)) from None
    report = _report(machine, summaries, begin)
    for row, summary in zip(report["threads"], summaries, strict=True):
        row |= {
            "timeslices": histogram(summary.timeslices_ns),
            "offtimes": histogram(summary.offtimes_ns),
            "lost_events": summary.lost_events,
            "unfaithful": verdict.of_thread(driver, summary, begin),
        }
    yield {**report, "summary": True, "interrupted": interrupted, "recorded_by": recorded_by}


@contextmanager
def _ahead_of_guests() -> Iterator[None]:
    """Let this thread, and those it starts, run at once: guests that are always busy may have all CPUs, and the
    contention has to end in time."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _recorder(tids: Sequence[int]) -> tuple[_core.Recorder, str]:
    """Return the better recorder that this process may have, started, and its name."""
    recorder = _core.Recorder(tids)
    try:
        recorder.start()
        return recorder, "bpf"
    except _core.ContentionError:
        recorder = _core.Recorder(tids, unprivileged=True)
        recorder.start()
        return recorder, "schedstat"


def _seconds(seconds: float | None, machine: Machine) -> Iterator[None]:
    """Yield on each second, until the time is over or every thread has ended."""
    begin, number = time.monotonic(), 0
    while seconds is None or number < seconds:
        number += 1
        due = number if seconds is None else min(number, seconds)
        time.sleep(max(0.0, begin + due - time.monotonic()))
        yield
        if not any(vcpu.lives for vcpu in machine.vcpus):
            return


def _report(machine: Machine, summaries: Sequence[_core.Summary], begin: int) -> Report:
    rows = [
        {
            "thread": vcpu.tid, "name": vcpu.name, "vcpu": vcpu.number, "share": summary.effective_share,
            "asleep_share": summary.asleep_share, "timeslice_ms": units.milliseconds(summary.effective_timeslice_ns),
            "offtime_ms": units.milliseconds(summary.effective_offtime_ns),
        }
        for vcpu, summary in zip(machine.vcpus, summaries, strict=True)
    ]  # fmt: skip
    return {"elapsed_s": (time.monotonic_ns() - begin) / 1e9, "summary": False, "threads": rows}


def histogram(lengths_ns: Sequence[int]) -> Report | None:
    """Return how lengths are spread: bins of equal width, or of equal ratio where they span more than one order of
    magnitude. None for an empty list."""
    if not lengths_ns:
        return None
    import numpy as np  # a quarter of a second that only a summary is worth

    lengths = np.asarray(lengths_ns, dtype=float) / 1e6
    low, high = lengths.min(), lengths.max()
    edges = np.geomspace(low, high, BINS + 1) if high > 10 * low else np.linspace(low, high, BINS + 1)
    if low == high:
        edges = np.array([low, high])
    edges[0], edges[-1] = low, high  # geomspace rounds
    counts, _ = np.histogram(lengths, edges)
    p10, median, p90 = np.quantile(lengths, [0.1, 0.5, 0.9])
    return {
        "count": len(lengths_ns), "p10_ms": float(p10), "median_ms": float(median), "p90_ms": float(p90),
        "edges_ms": edges.tolist(), "counts": counts.tolist(),
    }  # fmt: skip


def record(machine: Machine, seconds: float | None, out: Path) -> Generator[Report]:
    """Record what the threads do into a Parquet file, and change nothing. Yield reports as `contend` does. The file is
    written from time to time, so that a recording that is interrupted is kept up to there."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    try:
        recorder, recorded_by = _recorder(tids)
    except _core.ContentionError as error:
        raise MissingSupport(str(error)) from None
    begin = time.monotonic_ns()
    next_write, interrupted = 10.0, False
    _write(machine, recorder, out, begin)  # a file that cannot be written is refused now
    try:
        for _ in _seconds(seconds, machine):
            parts = recorder.take()
            report = _report(machine, [part.summary() for part in parts], begin)
            if report["elapsed_s"] >= next_write:
                _write(machine, recorder, out, begin)
                next_write *= 2  # each writes everything: together they cost at most a few times the last
            yield report
    except KeyboardInterrupt:
        interrupted = True
    recorder.stop()
    _write(machine, recorder, out, begin)
    report = _report(machine, [recording.summary() for recording in recorder.recordings], begin)
    yield {**report, "summary": True, "interrupted": interrupted, "recorded_by": recorded_by, "out": str(out)}


def _write(machine: Machine, recorder: _core.Recorder, out: Path, begin: int) -> None:
    import polars as pl  # half of the time in which the command starts

    numbers = {vcpu.tid: vcpu.number for vcpu in machine.vcpus}
    rows = [
        (one.tid, numbers[one.tid], _kind(state, length), (start - begin) / 1e9, length / 1e6)
        for one in recorder.recordings
        for start, length, state in one.intervals
    ]
    columns = {
        "thread": pl.Int64, "vcpu": pl.Int64, "kind": pl.String, "start_s": pl.Float64, "duration_ms": pl.Float64,
    }  # fmt: skip
    try:
        with files.replaced(out) as file:
            pl.DataFrame(rows, schema=columns, orient="row").write_parquet(file)
    except OSError as error:
        raise BadInput(f"--out: {out} cannot be written ({(error.strerror or str(error)).lower()})") from None


def _kind(state: str, length_ns: int) -> str:
    """Return the kind of an interval. `off` is worth a replay: a wait that is longer than an interrupt's."""
    if state != "waiting":
        return state
    return "off" if length_ns >= _core.NOISE_NS else "noise"
