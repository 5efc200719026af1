"""Driver `burner`: a real-time thread on each thread's CPU occupies it in the off-times."""

import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from brobust.drivers import schedules
from brobust.drivers.base import Driver, Promise
from brobust.drivers.request import Request

# With more, a tenth of the timeslices would be so short that the run is called unfaithful, and off-times so short that
# they are taken for interrupts (crates/contention/src/summary.rs, noise_limit_ns).
MAX_JITTER = 0.5


class Burner(Driver):
    name = "burner"
    takes = frozenset({"share", "timeslice", "phase", "start_jitter", "length_jitter"})
    promise: ClassVar[Promise | None] = "timeslices"

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        for field in ("start_jitter", "length_jitter"):
            jitter = getattr(requested, field)
            if jitter > MAX_JITTER:
                yield field, f"{jitter:g} is more than driver {cls.name} takes; give at most {MAX_JITTER:g}"

    def schedules(self, count: int, seed: int) -> Sequence[dict[str, Any]]:
        # One seed for all threads: those that go together stay together, whatever is drawn.
        of_all = schedules.schedule(self.requested, seed)
        phase, period = self.requested.phase, self.requested.period
        # Where no time is given, the first thread's is drawn.
        first = phase if isinstance(phase, int) else random.Random(seed).randrange(period)
        # The first number of the seed is taken.
        return [{**of_all, "phase": first + shift} for shift in schedules.shifts(phase, count, period, seed + 1)]
