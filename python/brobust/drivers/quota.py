"""Driver `quota`: a cgroup with bandwidth control for each thread, which is what clouds sell as a part of a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brobust import _core
from brobust.drivers.base import Driver, Places

if TYPE_CHECKING:
    from brobust.host.session import Session


class Quota(Driver):
    name = "quota"
    takes = frozenset({"share", "timeslice"})
    promise = "share"
    shares_a_cpu = True
    _session: Session | None = None
    _groups: Sequence[_core.HeldGroup] = ()

    def check(self, threads: Sequence[int]) -> None:
        _core.check_quota(self.requested.timeslice, self.requested.period, threads)

    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        self._session = session
        self._groups = session.hold_groups(list(places), self.requested.timeslice, self.requested.period)

    def stop(self) -> None:
        groups, self._groups = self._groups, ()
        if self._session is not None:
            self._session.release_groups(groups)
