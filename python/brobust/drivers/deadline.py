"""Driver `deadline`: SCHED_DEADLINE gives each thread so much CPU in every period (crates/contention)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from brobust import _core, units
from brobust.drivers import schedules
from brobust.drivers.base import Driver, Places

if TYPE_CHECKING:
    from brobust.drivers.request import Request
    from brobust.host.session import Session


class Deadline(Driver):
    name = "deadline"
    takes = frozenset({"share", "timeslice", "phase"})
    promise = "timeslices at ticks"
    shares_a_cpu = True
    _held: _core.Contention | None = None

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        if isinstance(requested.phase, int):
            given = units.show_time(requested.phase)
            yield (
                "phase",
                f"{given} is the burner's, since the kernel begins the periods; give driver burner, or random",
            )

    def check(self, threads: Sequence[int]) -> None:
        _core.check_contention("deadline", self._slices(), max(self.requested.vcpus, len(threads)))

    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        shifts = schedules.shifts(self.requested.phase, len(places), self.requested.period, seed)
        self._held = _core.Contention(
            "deadline", [(thread, None, self._slices(shift)) for thread, shift in zip(places, shifts, strict=True)]
        )
        # The kernel pulls a DEADLINE thread that may run anywhere to whichever CPU is about to schedule: seen half
        # the time on the path guest's, which it froze (Cubic at 50 %: 13 instead of 18.7 Mbit/s). It takes a thread
        # that is confined to some CPUs only while its bandwidth control is off (dl_task_check_affinity), which is for
        # the moment of the call; `start` counts what the host has admitted already.
        confined = any(len(os.sched_getaffinity(thread)) < (os.cpu_count() or 1) for thread in places)
        while True:
            with session.sysctl("kernel/sched_rt_runtime_us", "-1") if confined else nullcontext():
                self._held.start()
            if self._held.settle():
                break

    def stop(self) -> None:
        if self._held is not None:
            self._held.stop()

    def _slices(self, shift: int = 0) -> str:
        return json.dumps({**schedules.slices(self.requested.timeslice, self.requested.period), "phase": shift})
