"""Driver `deadline`: SCHED_DEADLINE gives each thread so much CPU in every period."""

from collections.abc import Iterator, Sequence
from typing import Any

from brobust import units
from brobust.drivers import schedules
from brobust.drivers.base import Driver
from brobust.drivers.request import Request


class Deadline(Driver):
    name = "deadline"
    takes = frozenset({"share", "timeslice", "phase"})
    promise = "timeslices at ticks"
    shares_a_cpu = True

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        if isinstance(requested.phase, int):
            given = units.show_time(requested.phase)
            yield (
                "phase",
                f"{given} is the burner's, since the kernel begins the periods; give driver burner, or random",
            )

    def schedules(self, count: int, seed: int) -> Sequence[dict[str, Any]]:
        shifts = schedules.shifts(self.requested.phase, count, self.requested.period, seed)
        return [{**one, "phase": shift} for one, shift in zip(super().schedules(count, seed), shifts, strict=True)]
