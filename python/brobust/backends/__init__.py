"""Backends by name: each measures a run of a scenario; nothing above them asks which one did."""

from __future__ import annotations

from collections.abc import Sequence

from brobust.backends import vm
from brobust.backends.base import Backend, Say
from brobust.host.session import Session
from brobust.scenario import Scenario


def check(scenarios: Sequence[Scenario]) -> None:
    """Refuse, before anything is started, what could not be measured here."""
    vm.check(scenarios)


def open_backend(session: Session, say: Say) -> Backend:
    """The backend of a series, to be entered once."""
    return vm.VmBackend(session, say)
