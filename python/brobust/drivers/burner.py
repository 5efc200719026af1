"""Driver `burner`: a real-time thread on each thread's CPU occupies it in the off-times (crates/contention)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from brobust import _core
from brobust.drivers import schedules
from brobust.drivers.base import Driver, Places, Promise

if TYPE_CHECKING:
    from brobust.drivers.request import Request
    from brobust.host.session import Session

# With more, a tenth of the timeslices would be so short that the run is called unfaithful, and off-times so short that
# they are taken for interrupts (crates/contention/src/summary.rs, noise_limit_ns).
MAX_JITTER = 0.5


class Burner(Driver):
    name = "burner"
    takes = frozenset({"share", "timeslice", "phase", "start_jitter", "length_jitter"})
    promise: ClassVar[Promise | None] = "timeslices"
    _held: _core.Contention | None = None

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        for field in ("start_jitter", "length_jitter"):
            jitter = getattr(requested, field)
            if jitter > MAX_JITTER:
                yield field, f"{jitter:g} is more than driver {cls.name} takes; give at most {MAX_JITTER:g}"

    def check(self, threads: Sequence[int]) -> None:
        _core.check_contention("burner", json.dumps(self._schedule(0)), max(self.requested.vcpus, len(threads)))

    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        phases = phases_of(self.requested, len(places), seed)
        targets = [
            (thread, cpu, json.dumps({**self._schedule(seed), **self._phase(phase)}))
            for (thread, cpu), phase in zip(places.items(), phases, strict=True)
        ]
        self._held = _core.Contention("burner", targets, begin_ns)
        self._held.start()

    def stop(self) -> None:
        if self._held is not None:
            self._held.stop()

    def _schedule(self, seed: int) -> dict[str, Any]:
        # One seed for all threads: those that go together stay together, whatever is drawn.
        return schedules.schedule(self.requested, seed, self.offtimes)

    def _phase(self, phase: int) -> dict[str, Any]:
        return {"phase": phase}


def phases_of(requested: Request, count: int, seed: int) -> list[int]:
    """Return when each thread's first whole period begins, ns. Where no time is given, the first one's is drawn."""
    phase, period = requested.phase, requested.period
    first = phase if isinstance(phase, int) else random.Random(seed).randrange(period)
    # The first number of the seed is taken.
    return [first + shift for shift in schedules.shifts(phase, count, period, seed + 1)]
