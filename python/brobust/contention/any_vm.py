"""The CPU taken away from the vCPU threads of any VM on this host, and what these got meanwhile.

contention.py does the same for the testbed's own guests, as part of a run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl

from brobust import _core, files
from brobust.contention import drivers, recordings
from brobust.contention.during_run import unlike_recorded
from brobust.contention.vcpus import Machine
from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.host import cgroups, cpus, threads
from brobust.host.session import Session, refuse_held, refuse_without_spare

Driver = Literal["deadline", "burner", "quota", "competitor", "replay"]
Phase = Literal["random", "in", "out"]
DRIVERS: tuple[Driver, ...] = ("deadline", "burner", "quota", "competitor", "replay")
PHASES: tuple[Phase, ...] = ("random", "in", "out")

Report = dict[str, Any]
"""What threads got, with the fields of docs/contend.md."""

# Ordinary threads, the kernel's among them, still get a thousandth of a CPU beside 64 of these (kernel/sched/core.c,
# sched_prio_to_weight: 9548 to 1024).
LOWEST_NICE = -10
# A command that has said nothing for so long, beside what it may have to wait for, is taken for stuck.
STUCK_SECONDS = 15.0

BINS = 10
# Shorter waits are interrupts and neighbours' wakeups (crates/contention/src/summary.rs, noise_limit_ns).
NOISE_NS = 100_000


@dataclass(frozen=True)
class Asked:
    """The contention asked for. Times in ns, shares of one CPU."""

    driver: Driver
    share: float = 1.0
    timeslice: int = 10_000_000
    start_jitter: float = 0.0
    length_jitter: float = 0.0
    phase: Phase = "random"
    competitors: int = 1
    nice: int = 0
    replay: str | None = None

    @property
    def period(self) -> int:
        return round(self.timeslice / self.share)

    @property
    def needs_cpus(self) -> bool:
        """Whether each thread has to be on a CPU of its own, which the driver then takes from it."""
        return self.driver in ("burner", "competitor", "replay")

    def describe(self) -> str:
        """What will be done, in a few words."""
        if self.driver == "replay":
            return f"off its CPU as in {self.replay}"
        if self.driver == "competitor":
            return f"beside {self.competitors} busy process(es) of nice {self.nice}"
        return f"{self.share:.4g} of a CPU in slices of {self.timeslice / 1e6:g} ms ({self.driver})"


def check(asked: Asked, machine: Machine, *, force: bool = False) -> dict[int, int]:
    """Refuse what cannot be done here, or would take the host away from its owner (`force`: even that is done). Return
    the CPU for each thread, where the driver needs one."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    for tid in tids:
        refuse_held(tid)
    try:
        if asked.driver == "deadline":
            _core.check_deadline(asked.timeslice, asked.share, len(tids))
        elif asked.driver == "burner":
            _core.check_burner(asked.timeslice, asked.share, asked.start_jitter, asked.length_jitter)
        elif asked.driver == "replay":
            _core.check_replay(recordings.offtimes(asked.replay or ""))
        elif asked.driver == "quota":
            cgroups.check(asked.timeslice, asked.period)
            for tid in tids:
                cgroups.group_for(tid)
        for tid in tids:
            if threads.Former.of(tid).policy & ~os.SCHED_RESET_ON_FORK == threads.SCHED_DEADLINE:
                raise BadInput(f"thread {tid} is under SCHED_DEADLINE already: give it an ordinary policy first")
    except _core.ContentionError as error:
        raise BadInput(f"--driver {asked.driver}: {error}") from None
    on_cpu = places(threads.allowed_cpus(tids)) if asked.needs_cpus else {}
    if not force:
        if asked.nice < LOWEST_NICE:
            raise BadInput(
                f"--nice: {asked.nice} starves the kernel's own threads on these CPUs; give {LOWEST_NICE} or more, "
                "or --force with --for"
            )
        refuse_without_spare(*_kept_busy(asked, on_cpu, len(tids)))
    return on_cpu


def _kept_busy(asked: Asked, on_cpu: Mapping[int, int], count: int) -> tuple[list[int], int]:
    """The CPUs that others may not get for a while, and how many more, wherever the threads happen to be."""
    return list(on_cpu.values()), count if asked.driver == "deadline" else 0


def places(allowed: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """A CPU of its own for each thread, of those that it may use: the highest first, the lowest serve interrupts."""
    taken: dict[int, int] = {}
    for thread in sorted(allowed, key=lambda thread: len(allowed[thread])):
        free = [cpu for cpu in allowed[thread] if cpu not in taken.values()]
        if not free:
            raise BadInput(
                f"each of the {len(allowed)} threads needs a CPU of its own, and there is none left for {thread}; "
                "give fewer with --threads, or --driver quota or deadline"
            )
        taken[thread] = free[-1]
    return {thread: taken[thread] for thread in allowed}


def contend(
    machine: Machine, asked: Asked, on_cpu: Mapping[int, int], seconds: float | None, out: Path | None = None, *,
    force: bool = False,
) -> Generator[Report]:  # fmt: skip
    """Hold the threads, on the CPUs that `check` gave, for so long (None: until interrupted). A report every second of
    what they got in it, and a last one, with `summary` true, of the whole time. Then every thread is what it was.
    `out`: keep what they got, as `record` does. `force`: as `check`."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    recorded = recordings.offtimes(asked.replay) if asked.replay is not None else ()
    if recorded and seconds is None:
        seconds = sum(recorded[-1]) / 1e9
    off = None if asked.driver in ("competitor", "replay") else asked.period - asked.timeslice
    # Longer than starting and ending may take; while it lasts, something is said every second.
    silence_seconds = STUCK_SECONDS + 10 * asked.period / 1e9
    with Session.start(beside_others=True, silence_seconds=silence_seconds) as session:
        formers = [threads.Former.of(tid) for tid in tids]
        for former, vcpu in zip(formers, machine.vcpus, strict=True):
            if former.started != vcpu.started:
                raise BadInput(f"thread {vcpu.tid} has ended: is the VM still running?")
        session.hold_threads(formers)
        session.hold_cpus(*_kept_busy(asked, on_cpu, len(tids)), force=force)
        try:
            for tid, cpu in on_cpu.items():
                cpus.pin([tid], {cpu})
            begin = time.monotonic_ns()
            with _driver(asked, tids, on_cpu, recorded, begin, session), _ahead_of_guests():
                recorder, recorded_by = _recorder(tids)
                interrupted = False
                try:
                    for _ in _seconds(seconds, machine):
                        session.say_alive()
                        parts = recorder.take()
                        yield _report(machine, [part.summary(off) for part in parts], begin)
                except KeyboardInterrupt:
                    interrupted = True
                summaries = [recording.summary(off) for recording in recorder.stop()]
                if out is not None:
                    _write(machine, recorder, out, begin)
        except _core.ContentionError as error:
            raise RunFailed(str(error)) from None
    report = _report(machine, summaries, begin)
    for row, summary in zip(report["threads"], summaries, strict=True):
        row |= {
            "timeslices": histogram(summary.windows_ns),
            "offtimes": histogram(summary.offtimes_ns),
            "lost_events": summary.lost_events,
            "unfaithful": _unfaithful(asked, summary, recorded, begin),
        }
    yield {**report, "summary": True, "interrupted": interrupted, "recorded_by": recorded_by}


def _driver(
    asked: Asked, tids: Sequence[int], on_cpu: Mapping[int, int], recorded: drivers.Offtimes, begin: int,
    session: Session,
) -> AbstractContextManager[None]:  # fmt: skip
    if asked.driver == "deadline":
        return drivers.deadline(tids, asked.timeslice, asked.period, session)
    if asked.driver == "quota":
        return drivers.quota(tids, asked.timeslice, asked.period, session)
    if asked.driver == "replay":
        return drivers.replay(on_cpu, recorded, begin)
    if asked.driver == "competitor":
        return drivers.competitors(on_cpu, asked.competitors, str(asked.nice))
    seed = random.randrange(2**32)
    phases = phases_of(asked.phase, len(tids), asked.period, seed)
    off, jitter = asked.period - asked.timeslice, (asked.start_jitter, asked.length_jitter)
    return drivers.burner(on_cpu, asked.timeslice, off, phases, *jitter, seed, begin)


def phases_of(phase: Phase, count: int, period: int, seed: int) -> list[int]:
    """When each thread's first period begins, ns: all at once, evenly over a period, or anywhere in it."""
    if phase == "random":
        draw = random.Random(seed)
        return [draw.randrange(period) for _ in range(count)]
    return [0 if phase == "in" else number * period // count for number in range(count)]


@contextmanager
def _ahead_of_guests() -> Iterator[None]:
    """Lets this thread, and those it starts, run at once: guests that are always busy may have all CPUs, and what holds
    them has to end in time."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _recorder(tids: Sequence[int]) -> tuple[_core.Recorder, str]:
    """The better one that this process may have, started."""
    recorder = _core.Recorder(tids)
    try:
        recorder.start()
        return recorder, "bpf"
    except _core.ContentionError:
        recorder = _core.Recorder(tids, unprivileged=True)
        recorder.start()
        return recorder, "schedstat"


def _seconds(seconds: float | None, machine: Machine) -> Iterator[None]:
    """One after the other, on the second, until it is over or every thread has ended."""
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
            "asleep_share": summary.asleep_share, "timeslice_ms": _ms(summary.effective_timeslice_ns),
            "offtime_ms": _ms(summary.effective_offtime_ns),
        }
        for vcpu, summary in zip(machine.vcpus, summaries, strict=True)
    ]  # fmt: skip
    return {"elapsed_s": (time.monotonic_ns() - begin) / 1e9, "summary": False, "threads": rows}


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6


def _unfaithful(asked: Asked, got: _core.Summary, recorded: drivers.Offtimes, begin: int) -> str | None:
    if asked.driver == "competitor":  # the host's scheduler owes nobody a share
        return None
    if asked.driver == "replay":
        return unlike_recorded(got, recorded, begin, asked.replay or "")
    return _core.unfaithful(asked.driver, asked.timeslice, asked.share, got)


def histogram(lengths_ns: Sequence[int]) -> Report | None:
    """How lengths are spread: bins of equal width, or of equal ratio where they go over more than one order of
    magnitude. None of nothing."""
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
    """Record what the threads do into a Parquet file, and leave them alone. Reports as `contend`'s. The file is written
    now and then, so that a recording that is broken off is there as far as it came."""
    tids = [vcpu.tid for vcpu in machine.vcpus]
    try:
        recorder, recorded_by = _recorder(tids)
    except _core.ContentionError as error:
        raise MissingSupport(str(error)) from None
    begin = time.monotonic_ns()
    next_write, interrupted = 10.0, False
    _write(machine, recorder, out, begin)  # a file that cannot be written is said now
    try:
        for _ in _seconds(seconds, machine):
            parts = recorder.take()
            report = _report(machine, [part.summary() for part in parts], begin)
            if report["elapsed_s"] >= next_write:
                _write(machine, recorder, out, begin)
                next_write *= 2  # each writes all: so it costs no more than a few times the last
            yield report
    except KeyboardInterrupt:
        interrupted = True
    recorder.stop()
    _write(machine, recorder, out, begin)
    report = _report(machine, [recording.summary() for recording in recorder.recordings], begin)
    yield {**report, "summary": True, "interrupted": interrupted, "recorded_by": recorded_by, "out": str(out)}


def _write(machine: Machine, recorder: _core.Recorder, out: Path, begin: int) -> None:
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
    """`off` is what is worth repeating: a wait that is no interrupt's."""
    if state != "waiting":
        return state
    return "off" if length_ns >= NOISE_NS else "noise"
