"""When a CPU may run, as crates/timeline reads it: for the simulation of virtual time and for drivers in Rust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brobust.drivers.base import Offtimes
    from brobust.scenario import Contention


def schedule(asked: Contention, seed: int, offtimes: Offtimes = ()) -> dict[str, Any]:
    """Return the schedule of a request. `offtimes`: those of its recording, if it has one."""
    if not asked.active:
        return {"kind": "always"}
    if asked.replay is not None:
        return {"kind": "replay", "offtimes": offtimes}
    return {
        **slices(asked.timeslice, asked.period),
        "phase": None if asked.phase == "random" else asked.phase,
        "start_jitter": asked.start_jitter,
        "length_jitter": asked.length_jitter,
        "start": asked.start,
        "stop": asked.stop,
        "alternate": asked.alternate,
        "seed": seed,
    }


def slices(timeslice_ns: int, period_ns: int) -> dict[str, Any]:
    """Return the schedule of slices that begin with the first period and do not move."""
    return {"kind": "slices", "timeslice": timeslice_ns, "period": period_ns, "phase": 0}
