"""The history of each socket over the last sweeps, and the orders in which sockets are shown."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from brobust.watch import CAUSES, Flow, Sweep

# A socket's history reaches back this many sweeps.
MAX_HISTORY_SWEEPS = 120

Key = tuple[str, int, str, str]
"""What identifies a socket: network namespace, device, local and remote address."""


def key_of(flow: Flow) -> Key:
    return flow["netns"], flow["interface"], flow["local"], flow["remote"]


@dataclass(frozen=True)
class Point:
    """What a socket's history keeps from one sweep."""

    sweep: int
    rate_mbps: float
    inflight_bdp: float | None
    deficit_share: float | None


@dataclass
class History:
    """A socket in the latest sweep that shows it, and its points in earlier sweeps."""

    flow: Flow
    points: deque[Point] = field(default_factory=deque)


@dataclass
class Followed:
    """All that the view shows: the latest sweep, or the one at which the view was paused, and the histories."""

    sweep: Sweep | None = None
    histories: dict[Key, History] = field(default_factory=dict)
    is_paused: bool = False
    # Sweeps that arrived during the pause. Older ones would have left every history by now.
    waiting: deque[Sweep] = field(default_factory=lambda: deque(maxlen=MAX_HISTORY_SWEEPS))

    def take(self, sweep: Sweep) -> None:
        """Show a new sweep, or keep it until the pause ends."""
        if self.is_paused:
            self.waiting.append(sweep)
        else:
            self._show(sweep)

    def toggle_pause(self) -> None:
        """Begin a pause, or end it and show the sweeps that arrived during it."""
        self.is_paused = not self.is_paused
        while self.waiting:
            self._show(self.waiting.popleft())

    def _show(self, sweep: Sweep) -> None:
        self.sweep = sweep
        for flow in sweep["flows"]:
            history = self.histories.setdefault(key_of(flow), History(flow))
            history.flow = flow
            point = Point(sweep["sweep"], flow["rate_mbps"], flow["inflight_bdp"], flow["deficit_share"])
            history.points.append(point)
        for key, history in list(self.histories.items()):
            while history.points and history.points[0].sweep <= sweep["sweep"] - MAX_HISTORY_SWEEPS:
                history.points.popleft()
            if not history.points:
                del self.histories[key]


@dataclass(frozen=True)
class Order:
    name: str
    value: Callable[[Flow], float | None]
    largest_first: bool
    first: str
    first_if_reversed: str

    def sort(self, flows: Sequence[Flow], is_reversed: bool) -> list[Flow]:
        """Return the sockets in this order. Those without the value come last, also in the reversed order; those with
        equal values keep their places."""
        known = [(value, flow) for flow in flows if (value := self.value(flow)) is not None]
        known.sort(key=lambda pair: pair[0], reverse=is_reversed != self.largest_first)
        return [flow for _, flow in known] + [flow for flow in flows if self.value(flow) is None]


ORDERS = (
    Order("cause", lambda flow: CAUSES.index(flow["cause"]), False, "cpu-limited first", "cpu-limited last"),
    Order("rate", lambda flow: flow["rate_mbps"], True, "highest first", "lowest first"),
    Order("inflight", lambda flow: flow["inflight_bdp"], False, "lowest first", "highest first"),
    Order("deficit", lambda flow: flow["deficit_share"], True, "highest first", "lowest first"),
)
