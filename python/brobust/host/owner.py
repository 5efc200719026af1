"""Who has written something down on the host: a process, known by more than its id."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from brobust.errors import MissingSupport
from brobust.host.threads import start_time


@dataclass(frozen=True, order=True)
class Owner:
    """A process id and when that process started, in clock ticks since boot. Ids are used again and the wall clock is
    set (psutil.create_time() follows it); the pair names one process for as long as the host is up."""

    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """Return this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Return the process that has this id now; one that has ended is an owner that does not live."""
        started = start_time(pid)
        return cls(pid, -1 if started is None else started)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Read what `str` has written; None if it is something else."""
        pid, dash, started = text.partition("-")
        return cls(int(pid), int(started)) if dash and pid.isdecimal() and started.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}"

    @property
    def lives(self) -> bool:
        """Whether this very process, not a later one of the same id, is running."""
        return self.started >= 0 and start_time(self.pid) == self.started

    def kill(self, seconds: float = 5.0) -> None:
        """Kill this very process and wait until it has ended; refuse if it has not within `seconds`."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.lives:  # so the descriptor is of it, not of a later process with its id
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except PermissionError:
                raise MissingSupport(f"process {self.pid} may not be killed; run this as root") from None
            finally:
                os.close(descriptor)
        patience = time.monotonic() + seconds
        while self.lives:
            if time.monotonic() > patience:
                raise MissingSupport(f"process {self.pid} has not ended {seconds:g} s after it was killed")
            time.sleep(0.01)
