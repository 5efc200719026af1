"""When a CPU may run, as crates/timeline reads it: for the simulation of virtual time and for drivers in Rust."""

import random
from collections.abc import Sequence
from typing import Any

from brobust.drivers.modelled import Modelled
from brobust.drivers.request import Request

Offtimes = Sequence[tuple[int, int]]
"""Start and duration of each, ns."""

PHASES = ("random", "in", "out")
"""Words for when the periods of several vCPUs begin."""


def schedule(requested: Request, seed: int, offtimes: Offtimes = ()) -> dict[str, Any]:
    """Return the schedule of each thread of a request. `offtimes`: those of its recording, if it has one."""
    if not requested.active:
        return {"kind": "always"}
    if requested.replay is not None:
        return {"kind": "replay", "offtimes": offtimes}
    modelled = Modelled.parse(requested.driver)
    if modelled is not None:
        return modelled.schedule(requested.timeslice, requested.period, seed)
    return {
        **slices(requested.timeslice, requested.period),
        "phase": None if requested.phase in PHASES else requested.phase,
        "start_jitter": requested.start_jitter,
        "length_jitter": requested.length_jitter,
        "start": requested.start,
        "stop": requested.stop,
        "alternate": requested.alternate,
        "seed": seed,
    }


def any_of(requested: Request, seed: int, recorded: Sequence[Offtimes] = ()) -> dict[str, Any]:
    """Return the schedules of the request's vCPUs, or that of the only one. `recorded`: the off-times of each vCPU of
    its recording, if it has one."""
    if requested.active and recorded:
        each = [schedule(requested, seed, offtimes) for offtimes in recorded]
    else:
        each = [schedule(requested, seed)] * (requested.vcpus if requested.active else 1)
    later = shifts(requested.phase, len(each), requested.period, seed)
    return each[0] if len(each) == 1 else {"kind": "any_of", "cpus": list(zip(each, later, strict=True))}


def shifts(phase: int | str, count: int, period: int, seed: int) -> list[int]:
    """Return how much later than the first thread's the periods of each thread begin, ns."""
    if phase == "out":
        return [number * period // count for number in range(count)]
    draw = random.Random(seed)
    return [draw.randrange(period) if number and phase == "random" else 0 for number in range(count)]


def slices(timeslice_ns: int, period_ns: int) -> dict[str, Any]:
    """Return the schedule of slices that begin with the first period and do not move."""
    return {"kind": "slices", "timeslice": timeslice_ns, "period": period_ns, "phase": 0}
