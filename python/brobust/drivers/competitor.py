"""Driver `competitor`: busy processes beside each thread on its CPU. The host's scheduler decides who runs when."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from brobust.drivers.base import Driver, Places
from brobust.host import children, cpus

if TYPE_CHECKING:
    from brobust.drivers.request import Request
    from brobust.host.session import Session

MAX_COMPETITORS = 64
# Largest difference between the share asked for and that of one of n equals.
SHARE_PRECISION = 0.005


class Competitor(Driver):
    name = "competitor"
    takes = frozenset({"share"})
    _processes: Sequence[subprocess.Popen[bytes]] = ()

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        share = requested.share
        if requested.active and competitors_for(share) is None:
            why = f"driver competitor gives one of n equals its part, not {share:g} ({100 * share:g}%)"
            yield "share", f"{why}; give 1/2 (50%), 1/3 (33.3%), 1/4 (25%), ..."

    def check(self, threads: Sequence[int]) -> None:
        """Nothing can be refused: whoever may start processes may do this."""

    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        started: list[subprocess.Popen[bytes]] = []
        self._processes = started
        for cpu in places.values():
            assert cpu is not None
            for _ in range(competitors_for(self.requested.share) or 0):
                started.append(_competitor(cpu, str(self.nice)))

    def stop(self) -> None:
        processes, self._processes = self._processes, ()
        for process in processes:
            process.kill()
            process.wait()


def competitors_for(share: float) -> int | None:
    """Return how many busy processes beside a thread leave it this share; None if no number does."""
    count = round(1 / share) - 1
    fits = 1 <= count <= MAX_COMPETITORS and abs(1 / (count + 1) - share) < SHARE_PRECISION
    return count if fits else None


def _competitor(cpu: int, nice: str) -> subprocess.Popen[bytes]:
    """Start a process that is always busy, on that CPU, with that weight. It dies with brobust."""
    command = children.killed_with_parent(["nice", "-n", nice, "sh", "-c", "while :; do :; done"])
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    cpus.pin([process.pid], {cpu})
    cpus.weigh_session(process.pid, nice)
    return process
