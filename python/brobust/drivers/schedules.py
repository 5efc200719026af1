"""When a CPU may run, as crates/timeline reads it: for the simulation of virtual time and for drivers in Rust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brobust.drivers.modelled import Modelled

if TYPE_CHECKING:
    from brobust.drivers.base import Offtimes
    from brobust.drivers.request import Request


def schedule(requested: Request, seed: int, offtimes: Offtimes = ()) -> dict[str, Any]:
    """Return the schedule of a request. `offtimes`: those of its recording, if it has one."""
    if not requested.active:
        return {"kind": "always"}
    if requested.replay is not None:
        return {"kind": "replay", "offtimes": offtimes}
    modelled = Modelled.parse(requested.driver)
    if modelled is not None:
        return modelled.schedule(requested.timeslice, requested.period, seed)
    return {
        **slices(requested.timeslice, requested.period),
        "phase": None if requested.phase == "random" else requested.phase,
        "start_jitter": requested.start_jitter,
        "length_jitter": requested.length_jitter,
        "start": requested.start,
        "stop": requested.stop,
        "alternate": requested.alternate,
        "seed": seed,
    }


def slices(timeslice_ns: int, period_ns: int) -> dict[str, Any]:
    """Return the schedule of slices that begin with the first period and do not move."""
    return {"kind": "slices", "timeslice": timeslice_ns, "period": period_ns, "phase": 0}
