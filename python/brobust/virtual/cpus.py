"""Which CPU a run in virtual time takes: one to itself, also beside other brobusts and other workers of a cluster."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Cpus:
    """The CPUs that this process may use. As many runs as there are CPUs have one at a time, the rest wait: they would
    only get in each other's way."""

    def __init__(self) -> None:
        self._cpus = sorted(os.sched_getaffinity(0))
        self._ours: set[int] = set()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(len(self._cpus))
        # A file per CPU, locked while a run has it: who asks elsewhere takes another one.
        self._directory = Path(tempfile.gettempdir()) / f"brobust-cpus-{os.getuid()}"

    def __len__(self) -> int:
        return len(self._cpus)

    @contextmanager
    def one(self) -> Iterator[int]:
        """A CPU that no other run has, or if all are taken by other processes, one that none of ours has."""
        with self._free:
            with self._lock:
                cpu, locked = self._choose([cpu for cpu in self._cpus if cpu not in self._ours])
                self._ours.add(cpu)
            try:
                yield cpu
            finally:
                with self._lock:
                    self._ours.discard(cpu)
                if locked is not None:
                    os.close(locked)

    def _choose(self, candidates: list[int]) -> tuple[int, int | None]:
        for cpu in candidates:
            try:
                self._directory.mkdir(mode=0o700, exist_ok=True)
                file = os.open(self._directory / str(cpu), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError:  # no room, or not ours: then nobody is warned
                break
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                continue
            return cpu, file
        return candidates[0], None
