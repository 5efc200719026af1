"""Give each run in virtual time its own CPU, also if other brobusts or workers of a cluster run on the host."""

import itertools
import os
import random
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from brobust.errors import MissingSupport, WriteFailed
from brobust.host.locks import Locked, locked, private_directory

PLACES = 64
"""So many runs that share a CPU are told apart, which is more than any CPU could do well."""


class Cpus:
    """The CPUs that this process may use. There are as many runs at a time as CPUs, and the others wait: two runs on
    one CPU would only slow each other down."""

    def __init__(self) -> None:
        self._cpus = sorted(os.sched_getaffinity(0))
        self._ours: set[int] = set()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(len(self._cpus))

    def __len__(self) -> int:
        return len(self._cpus)

    @contextmanager
    def one(self) -> Iterator[int]:
        """Hold a CPU that no other run uses; if other processes use all, that with the fewest of those that no other
        run of ours uses."""
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
    """Return the directory with a file per CPU that a run locks while it uses the CPU, so that other processes choose
    another one; CPU-1 and so on for the second one there.

    Other users must not be able to write there: a predictable name in /tmp that root opens could be anybody's link.
    """
    if os.geteuid() == 0:
        return Path("/run/brobust-cpus")
    if directory := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(directory) / "brobust-cpus"
    return Path(tempfile.gettempdir()) / f"brobust-cpus-{os.geteuid()}"


def _choose(candidates: list[int]) -> tuple[int, ExitStack]:
    """Return the CPU with the lowest free place, so one with few runs, and what holds this place."""
    held = ExitStack()
    # A foreign directory, a full disk, or no directory at all: then other processes are not told.
    with suppress(MissingSupport, WriteFailed, OSError):
        directory = private_directory(lock_directory(), mode=0o700)
        for place, cpu in itertools.product(range(PLACES), candidates):
            file = directory / (f"{cpu}-{place}" if place else str(cpu))
            with suppress(Locked):
                held.enter_context(locked(file, seconds=0, named=False))
                return cpu, held
    return random.choice(candidates), held
