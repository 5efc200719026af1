"""Identify the process that owns a record on the host, by more than its id."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import MissingSupport


@dataclass(frozen=True, order=True)
class Owner:
    """A process id, and when that process started, in clock ticks since boot. The pair identifies a process until the
    host reboots. An id alone may be reused, and a start time by the wall clock changes when the clock is set."""

    pid: int
    started: int

    @classmethod
    def current(cls) -> Owner:
        """Return this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Return the process that has this id now. If there is none, return an owner that does not live."""
        started = start_time(pid)
        return cls(pid, -1 if started is None else started)

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the owner that `str` has written as this text; None for any other text."""
        pid, dash, started = text.partition("-")
        return cls(int(pid), int(started)) if dash and pid.isdecimal() and started.isdecimal() else None

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}"

    @property
    def lives(self) -> bool:
        """Return whether this process is running, and not just a later one with the same id."""
        return self.started >= 0 and start_time(self.pid) == self.started

    def kill(self, seconds: float = 5.0) -> None:
        """Kill this process, but no later one with the same id, and wait until it has ended. Raise MissingSupport if it
        has not ended within `seconds`."""
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            try:
                if self.lives:  # so the descriptor belongs to it, not to a later process with its id
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            except PermissionError:
                raise MissingSupport(f"this user may not kill process {self.pid}; run this as root") from None
            finally:
                os.close(descriptor)
        deadline = time.monotonic() + seconds
        while self.lives:
            if time.monotonic() > deadline:
                raise MissingSupport(f"process {self.pid} has not ended {seconds:g} s after it was killed")
            time.sleep(0.01)


def start_time(pid: int) -> int | None:
    """Return when a living process or thread started, in clock ticks since boot (proc(5), field 22 of stat)."""
    try:
        # The second field is a name in parentheses, which may hold spaces and parentheses itself.
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(rest[18])  # zombie, dead
    except (OSError, IndexError, ValueError):
        return None
