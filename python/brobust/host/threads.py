"""A thread's scheduling before contention, saved so that it can be restored even after brobust was killed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from brobust import _core
from brobust.errors import BadInput, MissingSupport

SCHED_DEADLINE = 6  # include/uapi/linux/sched.h; Python's os has no name for it


@dataclass(frozen=True)
class SavedThread:
    """Policy, priority, nice value and CPUs of a thread; `started` tells it from a later one with the same id."""

    tid: int
    started: int
    cpus: tuple[int, ...]
    policy: int
    priority: int
    nice: int

    @classmethod
    def of(cls, tid: int) -> SavedThread:
        """Return the thread as it is now."""
        started = start_time(tid)
        try:
            if started is not None:
                return cls(
                    tid, started, tuple(sorted(os.sched_getaffinity(tid))), os.sched_getscheduler(tid),
                    os.sched_getparam(tid).sched_priority, os.getpriority(os.PRIO_PROCESS, tid),
                )  # fmt: skip
        except ProcessLookupError:
            pass
        raise BadInput(f"there is no thread {tid} (any more): is the VM still running?")

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> SavedThread:
        """Return what `as_entry` wrote."""
        return cls(**{**entry, "cpus": tuple(entry["cpus"])})

    def as_entry(self) -> dict[str, Any]:
        """Return it for a file of JSON."""
        return asdict(self)

    def is_same(self) -> bool:
        """Return whether the id still belongs to this thread."""
        return start_time(self.tid) == self.started

    def refuse_another(self) -> None:
        """Refuse to go on if the thread has ended, whoever has its id now."""
        if not self.is_same():
            raise BadInput(f"thread {self.tid} has ended: is the VM still running?")

    def is_altered(self) -> bool:
        """Return whether the thread still lives and differs from what was saved."""
        try:
            return self.is_same() and SavedThread.of(self.tid) != self
        except (OSError, BadInput):
            return False

    def restore(self) -> None:
        """Restore the thread; one that has ended needs nothing."""
        if not self.is_altered():
            return
        try:
            if os.sched_getscheduler(self.tid) != self.policy:
                _core.release_deadline(self.tid)
                os.sched_setscheduler(self.tid, self.policy, os.sched_param(self.priority))
            os.setpriority(os.PRIO_PROCESS, self.tid, self.nice)
            os.sched_setaffinity(self.tid, self.cpus)
        except (OSError, _core.ContentionError) as error:
            if self.is_same():
                raise MissingSupport(f"thread {self.tid} could not be restored: {error}") from None


def start_time(tid: int) -> int | None:
    """Return when a living thread started, in clock ticks since boot (proc(5), field 22 of stat); else None."""
    try:
        # The second field is a name in parentheses, which may hold spaces and parentheses itself.
        state, *rest = Path(f"/proc/{tid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else int(rest[18])  # zombie, dead
    except (OSError, IndexError, ValueError):
        return None


def allowed_cpus(threads: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Return the CPUs that each thread may use, by thread."""
    return {thread: SavedThread.of(thread).cpus for thread in threads}
