"""What a way of taking the CPU away from threads has to be: what it takes, what it promises, when threads may run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from brobust import _core
from brobust.drivers import schedules
from brobust.drivers.request import Request
from brobust.drivers.schedules import Offtimes

if TYPE_CHECKING:
    from brobust.host.session import Session

Places = Mapping[int, int]
"""Threads, each with the CPU that it is pinned to."""

Promise = Literal["share", "timeslices", "timeslices at ticks", "recording"]
"""What threads are held to: the share alone, timeslices of the requested length too (which may end at the next tick of
the scheduler), or the recorded off-times."""

BY_NAME: dict[str, type[Driver]] = {}


class Driver:
    """One request, to be carried out once. Times are ns, shares fractions of one CPU."""

    name: ClassVar[str]
    carried_out_by: ClassVar[str]
    """The driver of crates/contention/src/held.rs that does it: that of the same name, if nothing else is said."""
    takes: ClassVar[frozenset[str]]
    """Fields of the request that mean something to it."""
    promise: ClassVar[Promise | None] = None
    """None: the host's scheduler decides, and owes nobody a share."""
    shares_a_cpu: ClassVar[bool] = False
    """Whether a thread in its off-time leaves its CPU to others of the same request."""
    counts_from_traffic: ClassVar[bool] = False
    """In a run it begins when the traffic does, not before."""

    def __init_subclass__(cls) -> None:
        cls.carried_out_by = cls.__dict__.get("carried_out_by", cls.name)
        BY_NAME[cls.name] = cls

    def __init__(self, requested: Request, offtimes: Offtimes = (), nice: int = 0):
        """`nice`: the threads' own, for what runs beside them."""
        self.requested = requested
        self.offtimes = offtimes
        self.nice = nice

    @classmethod
    def refusals(cls, requested: Request) -> Iterator[tuple[str, str]]:
        """Yield each field that it takes and whose value it cannot carry out, with the reason."""
        yield from ()

    @property
    def off_ns(self) -> int | None:
        """The off-time of each period; None where the request has none."""
        return self.requested.period - self.requested.timeslice if self.promise not in (None, "recording") else None

    def schedules(self, count: int, seed: int) -> Sequence[dict[str, Any]]:
        """Return when each of `count` threads may run, as crates/timeline reads it. `seed`: for what is drawn."""
        return [schedules.slices(self.requested.timeslice, self.requested.period)] * count

    def check(self) -> None:
        """Refuse what is not possible on this host with threads that are yet to be started. Change nothing. Raise
        BadInput, MissingSupport or ContentionError."""
        schedule = json.dumps(self.schedules(1, 0)[0])
        _core.check_contention(self.carried_out_by, schedule, [], self.requested.vcpus)

    @contextmanager
    def held(self, places: Places, session: Session, begin_ns: int, seed: int) -> Iterator[None]:
        """Keep the threads under contention while the context lasts. `begin_ns` (CLOCK_MONOTONIC): when the first
        period begins. `seed`: for what is drawn. What remains when this process is killed, the session undoes."""
        of_each = map(json.dumps, self.schedules(len(places), seed))
        targets = [(thread, cpu, schedule) for (thread, cpu), schedule in zip(places.items(), of_each, strict=True)]
        held = session.contend(self.carried_out_by, targets, begin_ns, self.nice)
        try:
            yield
        finally:
            session.release(held)
