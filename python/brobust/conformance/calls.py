"""Verify that a control decides the same wherever it runs: record every call in a kernel, and make it again here.

A BPF program in a VM, or the module in a virtual kernel, records the calls (cc/call.h). They are made again with the
same C compiled for this machine (crates/cc), and a single differing bit counts as a difference.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brobust import _core, backends, files
from brobust.backends.virtual import VirtualBackend
from brobust.backends.vm import VmBackend
from brobust.cc.names import name_of, settings_of
from brobust.conformance import cases
from brobust.errors import RunFailed
from brobust.kernels import our_files
from brobust.scenario import Run, Scenario


@dataclass(frozen=True)
class Replayed:
    control: str
    case: str
    calls: int
    acks: int
    """The calls that were ACKs."""
    differences: int
    first: str | None
    """The first call that differs: its number, its kind, and each value as recorded and as computed here."""
    lost: int
    """Calls that were not recorded because the kernel's buffer was full."""


def replay(
    names: Sequence[str], controls: Sequence[str], backend: str = "virtual", over: Mapping[str, Any] | None = None
) -> Iterator[Replayed]:
    """Replay each of these cases (names in `cases.VIRTUAL` or `cases.VM`) with each control; yield results as they
    finish. `over` gives values for fields that a case does not set."""
    points = [(control, name, over) for control in controls for name in names]
    scenarios = cases.checked(backend, points)
    with backends.opened(backend, lambda _: None) as opened:
        for (control, name, _), scenario in zip(points, scenarios, strict=True):
            found = _in_vm(opened, scenario) if isinstance(opened, VmBackend) else _in_virtual_time(opened, scenario)
            counted = (found["calls"], found["acks"], found["differences"], _shown(found["first"]), found["lost"])
            yield Replayed(control, name, *counted)


def is_older_than_cc() -> bool:
    """Return whether files of cc/ are newer than the C in this process, with which calls are made again: the kernel may
    have been built since with another control."""
    compiled = Path(_core.__file__).stat().st_mtime
    return any(file.stat().st_mtime > compiled for file in our_files.below(our_files.CC).values())


def _in_vm(backend: VmBackend, scenario: Scenario) -> dict[str, Any]:
    control = scenario.flows[0].cc
    backend.forget_control(control)  # it may have been loaded without recording
    backend.records_calls = True
    try:
        backend.measure(Run(scenario=scenario, repeat=0))
    finally:
        backend.records_calls = False
    settings = [f"--param={name}={value}" for name, value in settings_of(control)]
    found: dict[str, Any] = json.loads(backend.ask_sender("brobust", "cc", "replay", name_of(control), *settings))
    backend.forget_control(control)
    return found


def _in_virtual_time(backend: Any, scenario: Scenario) -> dict[str, Any]:
    assert isinstance(backend, VirtualBackend)
    control = scenario.flows[0].cc
    with files.temporary_directory() as scratch:
        backend.calls = scratch
        backend.measure(Run(scenario=scenario, repeat=0))
        recordings = [str(file) for file in sorted(scratch.iterdir())]
        try:
            found: dict[str, Any] = json.loads(_core.replay_calls(name_of(control), settings_of(control), recordings))
        except (OSError, ValueError) as error:
            raise RunFailed(f"{control}: the recorded calls cannot be read: {error}") from None
    return found


def _shown(first: Mapping[str, Any] | None) -> str | None:
    if first is None:
        return None
    values = "; ".join(f"{name} {recorded} as recorded, {here} here" for name, recorded, here in first["values"])
    return f"call {first['call']} of a socket, {first['kind']}: {values}"
