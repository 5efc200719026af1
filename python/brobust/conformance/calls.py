"""Whether a control decides the same wherever it runs: every call of it recorded in a kernel, and made again here.

The recording (cc/call.h) is that of a BPF program in a VM, or of the module in a kernel of virtual time; the calls are
made again with the same C compiled for this machine (crates/cc). One bit that differs is a difference.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brobust import _core, backends
from brobust.backends.virtual import VirtualBackend
from brobust.backends.vm import VmBackend
from brobust.cc.names import name_of, settings_of
from brobust.conformance import cases
from brobust.errors import RunFailed
from brobust.scenario import Run, Scenario


@dataclass(frozen=True)
class Replayed:
    """What one recording showed."""

    control: str
    backend: str
    kernel: str
    case: str
    calls: int
    acks: int
    """Of these, ACKs."""
    differences: int
    first: str | None
    """The first call that differs: number, kind, and each value as recorded and as here."""
    lost: int
    """Records that found no room in the kernel."""


def replay(
    names: Sequence[str],
    controls: Sequence[str],
    backend: str = "virtual",
    kernel: str | None = None,
    over: Mapping[str, Any] | None = None,
    testbed: VmBackend | None = None,
) -> Iterator[Replayed]:
    """Each of these cases (of `cases.VIRTUAL`, or `cases.VM`) with each control, as they finish. `over`: fields for
    every case in VMs that does not have its own. `testbed`: one that is open already, for backend vm."""
    points = [(control, name) for control in controls for name in names]
    if backend == "vm":
        fields = {**(over or {}), **({} if kernel is None else {"kernel": kernel})}
        scenarios = [cases.vm(control, name, fields) for control, name in points]
    else:
        scenarios = [cases.virtual(control, name, kernel) for control, name in points]
    backends.check(scenarios)
    with nullcontext(testbed) if testbed is not None else backends.opened(backend, lambda _: None) as opened:
        for (control, name), scenario in zip(points, scenarios, strict=True):
            found = _in_vm(opened, scenario) if isinstance(opened, VmBackend) else _in_virtual_time(opened, scenario)
            counted = (found["calls"], found["acks"], found["differences"], _shown(found["first"]), found["lost"])
            yield Replayed(control, backend, scenario.kernel, name, *counted)


def _in_vm(backend: VmBackend, scenario: Scenario) -> dict[str, Any]:
    control = scenario.flows[0].cc
    backend.forget_control(control)  # it may be there without a recording
    backend.records_calls = True
    try:
        backend.measure(Run(scenario=scenario, repeat=0))
    finally:
        backend.records_calls = False
    settings = [f"--param={name}={value}" for name, value in settings_of(control)]
    found: dict[str, Any] = json.loads(backend.ask_sender("brobust-guest", "cc", "replay", name_of(control), *settings))
    backend.forget_control(control)
    return found


def _in_virtual_time(backend: Any, scenario: Scenario) -> dict[str, Any]:
    assert isinstance(backend, VirtualBackend)
    control = scenario.flows[0].cc
    with tempfile.TemporaryDirectory(prefix="brobust-") as scratch:
        backend.calls = Path(scratch)
        backend.measure(Run(scenario=scenario, repeat=0))
        recordings = [str(file) for file in sorted(Path(scratch).iterdir())]
        try:
            found: dict[str, Any] = json.loads(_core.replay_calls(name_of(control), settings_of(control), recordings))
        except (OSError, ValueError) as error:
            raise RunFailed(f"{control}: its recording cannot be read: {error}") from None
    return found


def _shown(first: Mapping[str, Any] | None) -> str | None:
    if first is None:
        return None
    values = "; ".join(f"{name} {recorded} as recorded, {here} here" for name, recorded, here in first["values"])
    return f"call {first['call']} of a socket, {first['kind']}: {values}"
