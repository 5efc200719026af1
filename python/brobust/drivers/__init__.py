"""Ways of taking the CPU away from threads, and the rules for which fields of a request go with which of them.

Each driver is one class in one file of this package, which is found by being there. base.py says what it has to be.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from brobust import units
from brobust.drivers.base import BY_NAME, Driver
from brobust.drivers.request import Request

__all__ = ["BY_NAME", "CHOICES", "Driver", "contradictions", "refusals"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

CHOICES = ("auto", *BY_NAME, "none")
"""Values of a scenario's field `driver`."""

# Fields that only some drivers take, with the value that asks for nothing.
_UNSET = {"phase": "random", "start_jitter": 0, "length_jitter": 0}


def contradictions(requested: Request) -> Iterator[str]:
    """Yield why fields of a request exclude each other, wherever it is carried out."""
    if requested.driver == "none" and requested.share < 1:
        yield f"driver none takes no CPU away, so share {requested.share:g} is impossible; give share 1"
    if requested.replay is not None and requested.share < 1:
        yield (
            f"replay {requested.replay} says when the CPU is away, so share {requested.share:g} must be 1; leave out "
            "--replay or --share"
        )
    if requested.driver == "replay" and requested.replay is None:
        yield "driver replay has nothing to replay; give --replay FILE, or replay = FILE in a scenario"
    if requested.replay is not None and requested.driver not in ("auto", "replay"):
        yield f"driver {requested.driver} does not replay {requested.replay}; give driver auto or replay"
    if requested.replay is not None and requested.vcpus > 1:
        yield f"replay {requested.replay} says when one CPU is away, not {requested.vcpus}; give vcpus 1"


def refusals(requested: Request) -> Iterator[tuple[str, str]]:
    """Yield each field of a request that its driver cannot carry out on this host's threads, with the reason."""
    name = requested.driver.split(":")[0]
    if requested.driver not in CHOICES:
        instead = name if name in BY_NAME else ", ".join(BY_NAME)
        yield "driver", f"{requested.driver!r} says what another host would do; for this one give {instead}"
        return
    driver = BY_NAME.get(requested.driver)
    takes = driver.takes if driver is not None else frozenset()
    for field, unset in _UNSET.items():
        given = getattr(requested, field)
        if given == unset or field in takes:
            continue
        owners = [other.name for other in BY_NAME.values() if field in other.takes]
        why = f"{_shown(field, given)} is the {owners[0]}'s, and driver {requested.driver} does not take it"
        yield field, f"{why}; give driver {' or '.join(owners)}, or {unset}"
    if driver is not None:
        yield from driver.refusals(requested)


def _shown(field: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    return units.show_time(given) if field == "phase" else f"{given:g}"
