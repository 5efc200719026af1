"""Driver `quota`: a cgroup with bandwidth control for each thread, which is what clouds sell as a part of a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brobust.drivers.base import Driver, Places
from brobust.host import cgroups

if TYPE_CHECKING:
    from brobust.host.session import Session


class Quota(Driver):
    name = "quota"
    summary = "a cgroup's bandwidth limit; the kernel chooses the timeslices"
    takes = frozenset({"share", "timeslice"})
    promise = "share"
    _session: Session | None = None
    _groups: Sequence[cgroups.Group] = ()

    def check(self, threads: Sequence[int]) -> None:
        cgroups.check(self.requested.timeslice, self.requested.period)
        for thread in threads:
            cgroups.group_for(thread)

    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        self._session = session
        self._groups = session.hold_groups(places, self.requested.timeslice, self.requested.period)

    def stop(self) -> None:
        groups, self._groups = self._groups, ()
        if self._session is not None:
            self._session.release_groups(groups)
