"""Where a debugger may attach to a virtual kernel: `brobust run --gdb sender@1.5s`."""

import re
from dataclasses import dataclass

from brobust import units
from brobust.errors import BadInput
from brobust.scenario import Scenario

_EXAMPLE = "give for example sender@1.5s, sender2@1.5s, receiver@1.5s or bottleneck@1.5s"


@dataclass(frozen=True)
class Stop:
    """A kernel, and the time in the run at which virtual time waits for a debugger to attach to it."""

    node: str
    """As messages name it (crates/virtual/src/topology.rs): sender 1, receiver, bottleneck."""
    time: int
    """ns since the run's start."""


def stop(given: str, scenario: Scenario) -> Stop:
    """Read NODE@TIME; refuse what names no kernel of the scenario, or no time of its run."""
    name, found, when = given.partition("@")
    match = re.fullmatch(r"sender([1-9][0-9]*)?|receiver|bottleneck", name)
    if match is None or not found:
        raise BadInput(f"--gdb: {given!r} is not a kernel and a time; {_EXAMPLE}")
    if scenario.backend != "virtual":
        raise BadInput(
            f"--gdb: time can be stopped on backend virtual only; this scenario has backend {scenario.backend}"
        )
    if name == "bottleneck" and scenario.path.aqm.name == "none":
        raise BadInput("--gdb: the bottleneck is a kernel only with --aqm; give a sender or the receiver")
    if name.startswith("sender") and int(match[1] or 1) > scenario.sender_count:
        senders = units.show_count(scenario.sender_count, "sender")
        raise BadInput(f"--gdb: {name} is not there; the scenario has {senders}")
    try:
        time = units.nanoseconds(when)
    except ValueError as error:
        raise BadInput(f"--gdb: {error}") from None
    if not 0 <= time < scenario.duration:
        raise BadInput(f"--gdb: {when} is not before the run's end, {units.show_time(scenario.duration)}")
    return Stop(f"sender {match[1] or 1}" if name.startswith("sender") else name, time)
