"""Contention for the testbed's sender during a run, and what its vCPU threads got, as columns of the run's record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from brobust import _core, units
from brobust.contention import request, verdict
from brobust.drivers import Driver
from brobust.errors import RunFailed
from brobust.host import cpus
from brobust.host.session import Session
from brobust.scenario import Contention


def check(requested: Contention) -> None:
    """Refuse what the driver could not do on this host."""
    request.check(request.driver_for(requested), (), "contention")


class ContentionOutcome:
    """What the vCPU threads got during a run. It is filled in when the contention ends."""

    def __init__(self, driver: Driver | None):
        self._driver = driver
        """None: the threads were to be undisturbed."""
        self._begin_ns: int | None = None
        self.summaries: list[_core.Summary] = []
        self.path: _core.Summary | None = None
        self.trouble: str | None = None
        self.at_begin: Callable[[], None] | None = None
        """What is to happen when the traffic starts."""

    def note_begin(self) -> None:
        """Note that the traffic starts now: timeslices and off-times count from here."""
        self._begin_ns = time.monotonic_ns()
        if self.at_begin is not None:
            self.at_begin()

    def columns(self) -> dict[str, Any]:
        """Return columns of the run record. Of several vCPUs the first stands for all, and the worst decides the
        outcome."""
        reason = self.trouble or next(filter(None, map(self._deviation, self.summaries)), None)
        if reason is None and self.path is not None:
            reason = verdict.of_path(self.path)
        outcome = {"outcome": "unfaithful" if reason else "ok", "reason": reason}
        if not self.summaries:
            return outcome
        first, contended = self.summaries[0], self._driver is not None
        return {
            **outcome,
            "effective_share": first.effective_share,
            "effective_timeslice_ms": units.milliseconds(first.effective_timeslice_ns) if contended else None,
            "effective_offtime_ms": units.milliseconds(first.effective_offtime_ns) if contended else None,
            "asleep_share": first.asleep_share,
            "timeslices": len(first.timeslices_ns) if contended else None,
            "path_waiting_share": self.path.waiting_share if self.path else None,
            "lost_events": sum(s.lost_events for s in self.summaries),
        }

    def rows(self, run: str) -> list[dict[str, Any]]:
        """Return every timeslice and off-time of the first vCPU, for the offtimes table."""
        if not self.summaries or self._driver is None:
            return []
        first = self.summaries[0]
        count, offs = len(first.timeslices_ns), len(first.offtimes_ns)
        intervals = [
            *zip(first.timeslice_starts_ns, first.timeslices_ns, ["timeslice"] * count, strict=True),
            *zip(first.offtime_starts_ns, first.offtimes_ns, ["off"] * offs, strict=True),
        ]
        begin = self._begin_ns
        return [
            {
                "run": run, "sender": 1, "kind": kind, "duration_ms": duration / 1e6,
                "start_s": None if begin is None else (start - begin) / 1e9,
            }
            for start, duration, kind in sorted(intervals)
        ]  # fmt: skip

    def _deviation(self, summary: _core.Summary) -> str | None:
        if self._driver is None:
            return verdict.of_undisturbed(summary)
        return verdict.of_thread(self._driver, summary, self._begin_ns)


@contextmanager
def applied(
    requested: Contention,
    threads: Sequence[int],
    path_thread: int,
    plan: cpus.Plan,
    session: Session,
    seed: int,
    nice: str,
) -> Iterator[ContentionOutcome]:
    """Hold the threads, each pinned to the plan's CPU for the sender, under the requested contention, and record what
    they get, until the context is left. `seed` decides what the burner draws; `nice` is the guests' own, for
    competitors."""
    driver = request.driver_for(requested, int(nice)) if requested.active else None
    outcome = ContentionOutcome(driver)
    session.hold_cpus([plan.sender], 0, True)  # the plan has left others
    try:
        with ExitStack() as stack:
            if driver is not None:
                places = dict.fromkeys(threads, plan.sender)
                start = partial(_start, stack, driver, places, session, seed)
                if driver.counts_from_traffic:
                    outcome.at_begin = start
                else:
                    start()
            recorder = _core.Recorder([*threads, path_thread])
            try:
                recorder.start()
            except _core.ContentionError as error:
                outcome.trouble = f"what the vCPU got was not recorded: {error}"
            yield outcome
            if outcome.trouble is None:
                *vcpus, bottleneck = recorder.stop()
                off_ns = driver.off_ns if driver is not None else None
                outcome.summaries = [recording.summary(off_ns) for recording in vcpus]
                outcome.path = bottleneck.summary()
    except _core.ContentionError as error:
        raise RunFailed(str(error)) from None


def _start(stack: ExitStack, driver: Driver, places: dict[int, int], session: Session, seed: int) -> None:
    """Begin now; the contention ends with the stack."""
    stack.enter_context(driver.held(places, session, time.monotonic_ns(), seed))
