"""Which CPU a run in virtual time takes: one to itself, also beside other brobusts and other workers of a cluster."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from brobust.errors import MissingSupport
from brobust.host.locks import Locked, locked, private_directory


class Cpus:
    """The CPUs that this process may use. As many runs as there are CPUs have one at a time, the rest wait: they would
    only get in each other's way."""

    def __init__(self) -> None:
        self._cpus = sorted(os.sched_getaffinity(0))
        self._ours: set[int] = set()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(len(self._cpus))

    def __len__(self) -> int:
        return len(self._cpus)

    @contextmanager
    def one(self) -> Iterator[int]:
        """A CPU that no other run has, or if all are taken by other processes, one that none of ours has."""
        with self._free:
            with self._lock:
                cpu, held = _choose([cpu for cpu in self._cpus if cpu not in self._ours])
                self._ours.add(cpu)
            try:
                yield cpu
            finally:
                with self._lock:
                    self._ours.discard(cpu)
                held.close()


def lock_directory() -> Path:
    """Return where there is a file per CPU, locked while a run has it: who asks elsewhere takes another one.

    Nobody else may put anything there: what root opens by a foreseeable name in /tmp could be anybody's link.
    """
    if os.geteuid() == 0:
        return Path("/run/brobust-cpus")
    if directory := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(directory) / "brobust-cpus"
    return Path(tempfile.gettempdir()) / f"brobust-cpus-{os.geteuid()}"


def _choose(candidates: list[int]) -> tuple[int, ExitStack]:
    held = ExitStack()
    try:
        directory = private_directory(lock_directory(), mode=0o700)
        for cpu in candidates:
            try:
                held.enter_context(locked(directory / str(cpu), seconds=0))
            except Locked:
                continue
            return cpu, held
    except MissingSupport:  # no room, or not ours: then nobody is warned
        pass
    return candidates[0], held
