"""Take the CPU away from vCPU threads, and say what they really got.

A thin layer over crates/contention: it picks the driver, keeps the threads where the plan wants them, and turns the
recording into columns of the run record.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from brobust import _core
from brobust.contention import drivers, recordings
from brobust.errors import BadInput, RunFailed
from brobust.host import cgroups, cpus
from brobust.host.session import Session
from brobust.scenario import Contention

# The path guest shares its CPU with what else the testbed runs, and quietly waits for it 5-15 % of the time. More, and
# the bottleneck itself was late: the run then says as little of the sender as one whose share was wrong.
PATH_WAITS = 0.25
# An undisturbed vCPU that had less than this of its CPU was disturbed by something else.
UNDISTURBED = 0.9
# A replay that is off its CPU for so much more or less than was recorded is none.
REPLAY_OFF = 0.1


def check(asked: Contention) -> None:
    """Refuse what the driver could not do on this host."""
    try:
        if asked.driver == "deadline":
            _core.check_deadline(asked.timeslice, asked.share)
        elif asked.driver == "burner":
            _core.check_burner(asked.timeslice, asked.share, asked.start_jitter, asked.length_jitter)
        elif asked.driver == "quota":
            cgroups.check(asked.timeslice, asked.period)
        elif asked.replay is not None:
            _core.check_replay(recordings.offtimes(asked.replay))
    except _core.ContentionError as error:
        raise BadInput(f"contention: {error}") from None


class Got:
    """What the vCPU threads got during a run. Filled in when the contention ends."""

    def __init__(self, asked: Contention):
        self._asked = asked
        self._begin_ns: int | None = None
        self.summaries: list[_core.Summary] = []
        self.path: _core.Summary | None = None
        self.trouble: str | None = None
        self.recorded: drivers.Offtimes = () if asked.replay is None else recordings.offtimes(asked.replay)
        self.at_begin: Callable[[], None] | None = None
        """What is to happen then."""

    def note_begin(self) -> None:
        """Now the traffic starts: windows count from here."""
        self._begin_ns = time.monotonic_ns()
        if self.at_begin is not None:
            self.at_begin()

    def columns(self) -> dict[str, Any]:
        """Columns of the run record. Of several vCPUs the first speaks for all, the worst decides the outcome."""
        reason = self.trouble or next(filter(None, map(self._unfaithful, self.summaries)), None) or self._path_starved()
        outcome = {"outcome": "unfaithful" if reason else "ok", "reason": reason}
        if not self.summaries:
            return outcome
        first = self.summaries[0]
        active = self._asked.active
        return {
            **outcome,
            "effective_share": first.effective_share,
            "effective_timeslice_ms": _ms(first.effective_timeslice_ns) if active else None,
            "effective_offtime_ms": _ms(first.effective_offtime_ns) if active else None,
            "asleep_share": first.asleep_share,
            "timeslices": len(first.windows_ns) if active else None,
            "path_waiting_share": self.path.waiting_share if self.path else None,
            "lost_events": sum(s.lost_events for s in self.summaries),
        }

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Every timeslice and off-time of the first vCPU, for the offtimes table."""
        if not self.summaries or not self._asked.active:
            return []
        first = self.summaries[0]
        windows = [
            *zip(first.window_starts_ns, first.windows_ns, ["timeslice"] * len(first.windows_ns), strict=True),
            *zip(first.offtime_starts_ns, first.offtimes_ns, ["off"] * len(first.offtimes_ns), strict=True),
        ]
        begin = self._begin_ns
        return [
            {
                "run": run, "sender": 1, "kind": kind, "duration_ms": duration / 1e6,
                "start_s": None if begin is None else (start - begin) / 1e9,
            }
            for start, duration, kind in sorted(windows)
        ]  # fmt: skip

    def _path_starved(self) -> str | None:
        if self.path is None or self.path.waiting_share <= PATH_WAITS:
            return None
        return (
            f"the path guest waited for a CPU {self.path.waiting_share:.0%} of the time: something else on this host "
            "was busy, or the path is too fast for this machine"
        )

    def _unfaithful(self, summary: _core.Summary) -> str | None:
        asked = self._asked
        if asked.active and asked.driver == "competitor":  # the host's scheduler owes nobody a share
            return None
        if asked.replay is not None:
            return unlike_recorded(summary, self.recorded, self._begin_ns, asked.replay)
        if asked.active:
            assert asked.driver in ("deadline", "burner", "quota")  # auto is resolved in the scenario
            return _core.unfaithful(asked.driver, asked.timeslice, asked.share, summary)
        if summary.effective_share < UNDISTURBED:
            return (
                f"the vCPU was to be undisturbed and had {summary.effective_share:.1%} of its CPU: "
                "something else on this host was busy"
            )
        return None


def unlike_recorded(got: _core.Summary, recorded: drivers.Offtimes, begin_ns: int | None, recording: str) -> str | None:
    """Whether a thread was off its CPU for as long as was recorded (from `begin_ns` on, CLOCK_MONOTONIC), between its
    first whole window and its last: None, or a sentence."""
    if begin_ns is None or not got.window_starts_ns:
        return "not one whole timeslice was seen"
    first, last = got.window_starts_ns[0], got.window_starts_ns[-1]
    seen = zip(got.offtime_starts_ns, got.offtimes_ns, strict=True)
    wanted = ((begin_ns + start, duration) for start, duration in recorded)
    off, asked = (sum(length for start, length in them if first <= start < last) for them in (seen, wanted))
    if asked and abs(off / asked - 1) > REPLAY_OFF:
        return f"the vCPU was off its CPU for {off / asked:.0%} of the time that {recording} says"
    return None


@contextmanager
def applied(
    asked: Contention, threads: Sequence[int], path_thread: int, plan: cpus.Plan, session: Session, seed: int, nice: str
) -> Iterator[Got]:
    """Hold the threads, each pinned to the plan's CPU for the sender, under the contention asked for, and record
    what they get, until the context is left. `seed` decides what the burner draws; `nice` is
    the guests' own, for competitors."""
    got = Got(asked)
    try:
        with _driven(asked, threads, plan, session, seed, nice) as stack:
            if got.recorded:
                got.at_begin = partial(_replay, stack, dict.fromkeys(threads, plan.sender), got.recorded)
            recorder = _core.Recorder([*threads, path_thread])
            try:
                recorder.start()
            except _core.ContentionError as error:
                got.trouble = f"what the vCPU got was not recorded: {error}"
            yield got
            if got.trouble is None:
                off = asked.period - asked.timeslice if asked.active and asked.replay is None else None
                *vcpus, bottleneck = recorder.stop()
                got.summaries = [recording.summary(off) for recording in vcpus]
                got.path = bottleneck.summary()
    except _core.ContentionError as error:
        raise RunFailed(str(error)) from None


@contextmanager
def _driven(
    asked: Contention, threads: Sequence[int], plan: cpus.Plan, session: Session, seed: int, nice: str
) -> Iterator[ExitStack]:
    """The driver at work. What is called on the stack that is handed out ends with it."""
    places = dict.fromkeys(threads, plan.sender)
    session.hold_cpus([plan.sender], force=True)  # the plan has left others
    with ExitStack() as stack:
        if not asked.active:
            pass
        elif asked.driver == "deadline":
            stack.enter_context(drivers.deadline(threads, asked.timeslice, asked.period, session))
        elif asked.driver == "quota":
            stack.enter_context(drivers.quota(threads, asked.timeslice, asked.period, session))
        elif asked.driver == "competitor":
            stack.enter_context(drivers.competitors(places, drivers.competitors_for(asked.share) or 0, nice))
        elif asked.driver == "burner":
            phase = random.Random(seed).randrange(asked.period) if asked.phase == "random" else asked.phase
            off = asked.period - asked.timeslice
            jitter = asked.start_jitter, asked.length_jitter
            stack.enter_context(drivers.burner(places, asked.timeslice, off, [phase], *jitter, seed))
        yield stack


def _replay(stack: ExitStack, places: dict[int, int], offtimes: drivers.Offtimes) -> None:
    stack.enter_context(drivers.replay(places, offtimes, time.monotonic_ns()))


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
