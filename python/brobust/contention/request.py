"""A request for contention, as a scenario or a command makes it: the driver for it, and whether this host can do it."""

from __future__ import annotations

from collections.abc import Sequence

from brobust import _core
from brobust.contention import recordings
from brobust.drivers import BY_NAME, Driver
from brobust.errors import BadInput
from brobust.scenario import Contention


def driver_for(requested: Contention, nice: int = 0) -> Driver:
    """Return the driver that is to carry out a request, with the recording if it has one. `nice`: the
    threads' own."""
    offtimes = () if requested.replay is None else recordings.offtimes(requested.replay)
    return BY_NAME[requested.driver](requested, offtimes, nice)


def check(driver: Driver, threads: Sequence[int], field: str) -> None:
    """Refuse what is not possible on this host with these threads (none: with one that is yet to be started). `field`
    is what the refusal begins with."""
    try:
        driver.check(threads)
    except _core.ContentionError as error:
        raise BadInput(f"{field}: {error}") from None
