"""Our controls beside the kernel's own in real kernels: at every call both decide, and the kernel's decision counts.

`bbr_shadow` and `cubic_shadow` (bpf/shadow.h) are the kernel's bbr and cubic, with cc/bbr1.h and cc/cubic.h on a
snapshot of the same socket. So equality is tested with the timing of a real machine, on the kernel that is booted; in
virtual time `brobust.conformance` tests it packet by packet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.congestion_controls import name_of
from brobust.scenario import Run
from brobust.scenario.grid import override
from brobust.scenario.grid import scenario as one_scenario

CONTROLS = ("bbr_shadow", "cubic_shadow")

# What the testbed can do: bulk flows over a path that does not change. Application limits, idle restarts and changes of
# the path are conformance.py's, in virtual time.
CASES: dict[str, dict[str, Any]] = {
    "clean": {"path": {"buffer": "4bdp"}},
    "loss 1%": {"path": {"loss": "1%"}},
    "shallow": {"path": {"buffer": "0.5bdp"}},
    "deep": {"path": {"buffer": "12bdp"}},
    "RTT 80 ms": {"path": {"rtt": "80ms"}},
    "5 mbit": {"path": {"bandwidth": "5mbit"}},
    "a policer's queue": {"path": {"bandwidth": "10mbit", "buffer": "4p"}},
    "8 flows": {"flows": {"count": 8}},
    "10 of 20 ms": {"path": {"buffer": "4bdp"}, "contention": {"share": 0.5, "timeslice": "10ms"}},
    "1 of 4 ms": {"path": {"buffer": "4bdp"}, "contention": {"share": 0.25, "timeslice": "1ms", "driver": "burner"}},
}
_BASE: dict[str, Any] = {"backend": "vm", "path": {"bandwidth": "20mbit", "rtt": "10ms"}, "duration": "12s"}


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
    cases: Sequence[str],
    controls: Sequence[str] = CONTROLS,
    kernel: str = "debian-6.12",
    over: Mapping[str, Any] | None = None,
) -> Iterator[Watched]:
    """Each case with each control, as they finish. `over`: fields for every case that does not have its own."""
    points = [(control, name) for control in controls for name in cases]
    base = [{**_BASE, "flows": [{"cc": control}], "kernel": kernel} for control, _ in points]
    scenarios = [
        one_scenario(override(override(fields, over or {}), CASES[name]))
        for fields, (_, name) in zip(base, points, strict=True)
    ]
    backends.check(scenarios)
    with backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        before = dict.fromkeys(controls, (0, 0, 0))
        for (control, name), scenario in zip(points, scenarios, strict=True):
            backend.measure(Run(scenario=scenario, repeat=0))
            found = json.loads(backend.ask_sender("brobust-guest", "cc", "shadow", name_of(control)))
            now = (found["acks"], found["calls"], found["differences"])
            acks, calls, differences = (a - b for a, b in zip(now, before[control], strict=True))
            before[control] = now
            yield Watched(control, kernel, name, acks, calls, differences, found["first"])
