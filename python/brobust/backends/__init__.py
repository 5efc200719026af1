"""Open a backend by name. A backend measures runs; base.py says how.

A backend is imported only when it is needed: runs in virtual time need neither QEMU nor root, nor any host but this.
"""

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType

from brobust.backends import memory
from brobust.backends.base import Announce, Backend
from brobust.backends.support import check_written
from brobust.scenario import Grid, Scenario

__all__ = ["ALONE", "check", "check_written", "opened"]

# These measure one run at a time, in the main thread, because QEMU and ssh die with the thread that started them
# (PR_SET_PDEATHSIG). The runs of vm also change the host.
ALONE = frozenset({"vm", "lab"})


def check(asked: Grid | Sequence[Scenario], jobs: int | None = None) -> None:
    """Refuse scenarios that cannot be measured here, before anything starts: first by what the user has written, and
    only then by what this machine has. `jobs` is how many runs are measured at a time (None: one per CPU)."""
    check_written(asked.as_written if isinstance(asked, Grid) else asked)
    scenarios = asked.scenarios if isinstance(asked, Grid) else asked
    at_once = jobs or len(os.sched_getaffinity(0))
    if isinstance(asked, Grid):
        at_once = min(at_once, asked.size)
    of_backends = {name: [s for s in scenarios if s.backend == name] for name in sorted({s.backend for s in scenarios})}
    for name, those in of_backends.items():
        memory.check(those, 1 if name in ALONE else at_once)
    for name, those in of_backends.items():
        _module(name).check(those)


@contextmanager
def opened(name: str, announce: Announce) -> Iterator[Backend]:
    """Yield a backend that is ready to measure; afterwards undo all that it did."""
    module = _module(name)
    with ExitStack() as stack:
        if name == "vm":
            from brobust.host.session import Session

            backend: Backend = module.VmBackend(stack.enter_context(Session.start()), announce)
        else:
            backend = (module.LabBackend if name == "lab" else module.VirtualBackend)(announce)
        yield stack.enter_context(backend)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brobust.backends.{name}")
