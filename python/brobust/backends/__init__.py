"""Backends by name: each measures a run of a scenario; nothing above them asks which one did.

A backend is imported when it is needed: virtual runs need neither QEMU's client nor root.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from brobust.backends import memory
from brobust.backends.base import Backend, Say
from brobust.backends.support import unsupported
from brobust.errors import BadInput
from brobust.scenario import Scenario

if TYPE_CHECKING:
    from brobust.host.session import Session

# Runs of these put things on the host. They have the host for themselves, and are measured one after the other in the
# main thread: QEMU is to die with the thread that started it (PR_SET_PDEATHSIG).
ON_HOST = frozenset({"vm"})


def check(scenarios: Sequence[Scenario], jobs: int | None = None) -> None:
    """Refuse, before anything is started, what could not be measured here with so many runs at once (None: one for
    each CPU)."""
    for scenario in scenarios:
        if (reason := unsupported(scenario)) is not None:
            raise BadInput(reason)
    memory.check(scenarios, jobs or len(os.sched_getaffinity(0)))
    for name in sorted({scenario.backend for scenario in scenarios}):
        _module(name).check([scenario for scenario in scenarios if scenario.backend == name])


def open_backend(name: str, session: Session | None, say: Say) -> Backend:
    """The backend of a series, to be entered once. `session` is needed by those of ON_HOST only."""
    if name == "vm":
        from brobust.backends.vm import VmBackend

        assert session is not None
        return VmBackend(session, say)
    backend: Backend = _module(name).VirtualBackend(say)
    return backend


@contextmanager
def opened(name: str, say: Say) -> Iterator[Backend]:
    """The backend ready to measure, with the session it needs; afterwards nothing of it is left."""
    from brobust.host.session import Session

    with ExitStack() as stack:
        session = stack.enter_context(Session.start()) if name in ON_HOST else None
        yield stack.enter_context(open_backend(name, session, say))


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"brobust.backends.{name}")
