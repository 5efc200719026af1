"""Open a backend by name. A backend measures runs, and no caller asks which one it is.

A backend is imported only when it is needed: runs in virtual time need neither QEMU nor root, nor any host but this.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from brobust.backends import memory
from brobust.backends.base import Announce, Backend
from brobust.backends.support import check_written
from brobust.scenario import Grid, Scenario

if TYPE_CHECKING:
    from brobust.host.session import Session

__all__ = ["ALONE", "ON_HOST", "check", "check_written", "open_backend", "opened"]

# The runs of these backends change the host. They have it to themselves and are measured one after the other in the
# main thread, because QEMU dies with the thread that started it (PR_SET_PDEATHSIG).
ON_HOST = frozenset({"vm"})
# These measure one run at a time, in the main thread. ssh, too, dies with the thread that started it.
ALONE = ON_HOST | {"lab"}


def check(asked: Grid | Sequence[Scenario], jobs: int | None = None) -> None:
    """Refuse scenarios that cannot be measured here, before anything starts: first by what the user has written, and
    only then by what this machine has. `jobs` is how many runs are measured at a time (None: one per CPU)."""
    check_written(asked.as_written if isinstance(asked, Grid) else asked)
    scenarios = asked.scenarios if isinstance(asked, Grid) else asked
    memory.check(scenarios, jobs or len(os.sched_getaffinity(0)))
    for name in sorted({scenario.backend for scenario in scenarios}):
        _module(name).check([scenario for scenario in scenarios if scenario.backend == name])


def open_backend(name: str, session: Session | None, announce: Announce) -> Backend:
    """Return the backend for a series, a context manager to be entered once. Only backends in ON_HOST need a
    `session`."""
    if name == "vm":
        from brobust.backends.vm import VmBackend

        assert session is not None
        return VmBackend(session, announce)
    module = _module(name)
    backend: Backend = (module.LabBackend if name == "lab" else module.VirtualBackend)(announce)
    return backend


@contextmanager
def opened(name: str, announce: Announce) -> Iterator[Backend]:
    """Yield a backend that is ready to measure, with its session if it needs one; afterwards undo all that it did."""
    from brobust.host.session import Session

    with ExitStack() as stack:
        session = stack.enter_context(Session.start()) if name in ON_HOST else None
        yield stack.enter_context(open_backend(name, session, announce))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brobust.backends.{name}")
