"""What was seen of each socket over the last sweeps, and the orders in which sockets are shown."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from brobust.watch import CAUSES, Report

# Sweeps of which a socket's history is kept.
HISTORY = 120

Key = tuple[str, int, str, str]
"""A socket: network namespace, device, local and remote address."""


def key_of(flow: Report) -> Key:
    return flow["netns"], flow["interface"], flow["local"], flow["remote"]


@dataclass(frozen=True)
class Point:
    """What the history keeps of one sweep."""

    sweep: int
    rate_mbps: float
    inflight_bdp: float | None
    deficit_share: float | None


@dataclass
class History:
    """A socket as it was seen last, and before."""

    flow: Report
    points: deque[Point] = field(default_factory=deque)


@dataclass
class Followed:
    """What is shown: the latest report, or the one at which the view was paused."""

    report: Report | None = None
    histories: dict[Key, History] = field(default_factory=dict)
    is_paused: bool = False
    # What came while paused; older reports would not be in any history.
    waiting: deque[Report] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def take(self, report: Report) -> None:
        if self.is_paused:
            self.waiting.append(report)
        else:
            self._show(report)

    def toggle_pause(self) -> None:
        self.is_paused = not self.is_paused
        while self.waiting:
            self._show(self.waiting.popleft())

    def _show(self, report: Report) -> None:
        self.report = report
        for flow in report["flows"]:
            history = self.histories.setdefault(key_of(flow), History(flow))
            history.flow = flow
            point = Point(report["sweep"], flow["rate_mbps"], flow["inflight_bdp"], flow["deficit_share"])
            history.points.append(point)
        for key, history in list(self.histories.items()):
            while history.points and history.points[0].sweep <= report["sweep"] - HISTORY:
                history.points.popleft()
            if not history.points:
                del self.histories[key]


@dataclass(frozen=True)
class Order:
    """A way to sort: what matters most comes first."""

    name: str
    value: Callable[[Report], float | None]
    first: str
    first_if_reversed: str

    def sort(self, flows: Sequence[Report], is_reversed: bool) -> list[Report]:
        """Those without the value come last, also when reversed. Equal ones stay as they were."""
        known = [(value, flow) for flow in flows if (value := self.value(flow)) is not None]
        known.sort(key=lambda pair: pair[0], reverse=is_reversed)
        return [flow for _, flow in known] + [flow for flow in flows if self.value(flow) is None]


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


ORDERS = (
    Order("cause", lambda flow: CAUSES.index(flow["cause"]), "cpu-limited first", "cpu-limited last"),
    Order("rate", lambda flow: -flow["rate_mbps"], "greatest first", "least first"),
    Order("inflight", lambda flow: flow["inflight_bdp"], "least first", "greatest first"),
    Order("deficit", lambda flow: _negative(flow["deficit_share"]), "greatest first", "least first"),
)
