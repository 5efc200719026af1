"""Compare our controls with the kernel's own in real kernels: both decide at every call, and the kernel's is applied.

`bbr_shadow` and `cubic_shadow` (cc/hosts/bpf/shadow.h) are the kernel's bbr and cubic, with cc/bbr1.h and cc/cubic.h on
a snapshot of the same socket. This tests equality with the timing of a real machine, on the kernel that is booted;
`packets` tests it packet by packet in virtual time.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import name_of
from brobust.conformance import cases
from brobust.scenario import Run

CONTROLS = ("bbr_shadow", "cubic_shadow")


@dataclass(frozen=True)
class Compared:
    control: str
    case: str
    acks: int
    calls: int
    differences: int
    first: dict[str, Any] | None
    """The first call since the control was loaded that differs: its number, the call, and (kernel's, ours) for each
    value that differs."""


def compare(
    names: Sequence[str], controls: Sequence[str] = CONTROLS, over: Mapping[str, Any] | None = None
) -> Iterator[Compared]:
    """Run each of these cases (names in `cases.VM`) with each control; yield results as they finish. `over` gives
    values for fields that a case does not set."""
    points = [(control, name, over) for control in controls for name in names]
    scenarios = cases.checked("vm", points)
    with backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        for control in controls:
            backend.forget_control(control)  # so that it is loaded again, with its counters at zero
        before = dict.fromkeys(controls, (0, 0, 0))
        for (control, name, _), scenario in zip(points, scenarios, strict=True):
            backend.measure(Run(scenario=scenario, repeat=0))
            found = json.loads(backend.ask_sender("brobust", "cc", "shadow", name_of(control)))
            now = (found["acks"], found["calls"], found["differences"])
            acks, calls, differences = (a - b for a, b in zip(now, before[control], strict=True))
            before[control] = now
            yield Compared(control, name, acks, calls, differences, found["first"])
