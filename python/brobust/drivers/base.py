"""What a way of taking the CPU away from threads has to be: what it takes, what it promises, check, start and stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from brobust.drivers.request import Request
    from brobust.host.session import Session

Offtimes = Sequence[tuple[int, int]]
"""Start and duration of each, ns."""

Places = Mapping[int, int | None]
"""Threads, each with the CPU that it is pinned to; None where the driver needs no CPU of a thread's own."""

Promise = Literal["share", "timeslices", "timeslices at ticks", "recording"]
"""What threads are held to: the share alone, timeslices of the requested length too (which may end at the next tick of
the scheduler), or the recorded off-times."""

BY_NAME: dict[str, type[Driver]] = {}


@dataclass(frozen=True)
class Options:
    """What `brobust contend` can ask of a driver beyond the fields of a scenario's contention."""

    competitors: int | None = None
    nice: int = 0
    out_of_phase: bool = False
    """Several threads are taken off their CPUs one after the other, evenly over a period."""


NO_OPTIONS = Options()


class Driver(ABC):
    """One request, to be carried out once. Times are ns, shares fractions of one CPU."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """A few words for the help of an option."""
    takes: ClassVar[frozenset[str]]
    """Fields of the request and of Options that mean something to it."""
    promise: ClassVar[Promise | None] = None
    """None: the host's scheduler decides, and owes nobody a share."""
    needs_own_cpus: ClassVar[bool] = False
    """Each thread has to be pinned to a CPU of its own, which the driver then keeps busy."""
    counts_from_traffic: ClassVar[bool] = False
    """In a run it begins when the traffic does, not before."""

    def __init_subclass__(cls) -> None:
        BY_NAME[cls.name] = cls

    def __init__(self, requested: Request, options: Options = NO_OPTIONS, offtimes: Offtimes = ()):
        self.requested = requested
        self.options = options
        self.offtimes = offtimes

    @classmethod
    def refusals(cls, requested: Request, options: Options) -> Iterator[tuple[str, str]]:
        """Yield which values of the fields that it takes it cannot do: the field, and why as the rest of a line."""
        yield from ()

    @property
    def takes_cpu_away(self) -> bool:
        """Whether the request takes any CPU away."""
        return self.requested.active

    @property
    def off_ns(self) -> int | None:
        """The off-time of each period; None where the request has none."""
        return self.requested.period - self.requested.timeslice if self.promise not in (None, "recording") else None

    def describe(self) -> str:
        """Return in a few words what it does to the threads."""
        return f"{self.requested.share:.4g} of a CPU in slices of {self.requested.timeslice / 1e6:g} ms ({self.name})"

    def kept_busy(self, places: Places) -> tuple[Collection[int], int]:
        """Return the CPUs that nobody else gets for a while, and how many more, wherever the threads happen to be."""
        return ([cpu for cpu in places.values() if cpu is not None], 0) if self.needs_own_cpus else ([], 0)

    @abstractmethod
    def check(self, threads: Sequence[int]) -> None:
        """Refuse what is not possible on this host with these threads (none: with one that is yet to be started).
        Change nothing. Raise BadInput, MissingSupport or ContentionError."""

    @abstractmethod
    def start(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> None:
        """Begin. What remains when this process is killed is written down in the session. `begin_ns` (CLOCK_MONOTONIC):
        when the first period begins; None: now. `seed`: for what is drawn."""

    @abstractmethod
    def stop(self) -> None:
        """End, also after a `start` that failed halfway; a second call does nothing."""

    @contextmanager
    def held(self, places: Places, session: Session, begin_ns: int | None, seed: int) -> Iterator[None]:
        """Keep the threads under contention while the context lasts."""
        try:
            self.start(places, session, begin_ns, seed)
            yield
        finally:
            self.stop()
