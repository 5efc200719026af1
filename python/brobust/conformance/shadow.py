"""Our controls beside the kernel's own in real kernels: at every call both decide, and the kernel's decision counts.

`bbr_shadow` and `cubic_shadow` (bpf/shadow.h) are the kernel's bbr and cubic, with cc/bbr1.h and cc/cubic.h on a
snapshot of the same socket. So equality is tested with the timing of a real machine, on the kernel that is booted; in
virtual time `packets` tests it packet by packet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import name_of
from brobust.conformance import cases
from brobust.scenario import Run

CONTROLS = ("bbr_shadow", "cubic_shadow")


@dataclass(frozen=True)
class Watched:
    """What a shadow has found in one case."""

    control: str
    kernel: str
    case: str
    acks: int
    calls: int
    differences: int
    first: dict[str, Any] | None
    """Of all calls since the control was loaded: number, call, and (kernel's, ours) of each value that differs."""


def watch(
    names: Sequence[str],
    controls: Sequence[str] = CONTROLS,
    over: Mapping[str, Any] | None = None,
    testbed: VmBackend | None = None,
) -> Iterator[Watched]:
    """Each of these cases (`cases.VM`) with each control, as they finish. `over`: fields for every case that does not
    have its own. `testbed`: one that is open already."""
    points = [(control, name) for control in controls for name in names]
    scenarios = [cases.vm(control, name, over) for control, name in points]
    backends.check(scenarios)
    with nullcontext(testbed) if testbed is not None else backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        for control in controls:
            backend.forget_control(control)  # it counts from its load
        before = dict.fromkeys(controls, (0, 0, 0))
        for (control, name), scenario in zip(points, scenarios, strict=True):
            backend.measure(Run(scenario=scenario, repeat=0))
            found = json.loads(backend.ask_sender("brobust-guest", "cc", "shadow", name_of(control)))
            now = (found["acks"], found["calls"], found["differences"])
            acks, calls, differences = (a - b for a, b in zip(now, before[control], strict=True))
            before[control] = now
            yield Watched(control, scenario.kernel, name, acks, calls, differences, found["first"])
