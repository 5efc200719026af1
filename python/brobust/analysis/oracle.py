"""The oracle: what the best possible sender carries that has its CPU in these timeslices only, whatever its congestion
control. It knows every timeslice and the buffer in advance.

A packet reaches the bottleneck when it is sent, so it does so in a timeslice. At the end of a timeslice the queue
holds at most the buffer (and the frame in transmission), which keeps the link busy for buffer / rate after it, or until
the next timeslice. So the link is busy at most in the union of the intervals

    [begin of a timeslice, its end + buffer / rate + one frame]

and no sender carries more than the rate times their length. The oracle carries exactly that and loses nothing: as a
timeslice begins it fills the buffer, and from then on it sends a frame whenever one leaves. It has at most the BDP and
the buffer in flight. What is lost at random before the bottleneck takes nothing of this, since it sends more instead.

`ahead_s` bounds what may wait in the queue at the end of a timeslice, as a time at the link's rate. With one round trip
the oracle has at most two BDP in flight: BBR's own cwnd, and the bound that a maintainer of the stack would ask for.
"""

from collections.abc import Iterable

from brobust import units


def busy_s(timeslices: Iterable[tuple[float, float]], longer_s: float, begin_s: float, end_s: float) -> float:
    """Return for how long of [begin, end] the link can be busy, if after each timeslice (begin and end, s; in order) it
    has something to send for `longer_s`."""
    busy, reached = 0.0, begin_s
    for begin, end in timeslices:
        first, last = max(begin, reached), min(end + longer_s, end_s)
        if last > first:
            busy += last - first
            reached = last
    return busy


def carried_mbps(
    timeslices: Iterable[tuple[float, float]],
    bandwidth_mbps: float,
    buffer_bytes: float,
    begin_s: float,
    end_s: float,
    ahead_s: float | None = None,
    ip_version: int = 4,
) -> float:
    """Return the payload that the link can carry in [begin, end], Mbit/s. `ahead_s`: None for as much as fits."""
    frame_s = units.FRAME_BYTES * 8e-6 / bandwidth_mbps
    waits_s = buffer_bytes * 8e-6 / bandwidth_mbps
    longer = frame_s + (waits_s if ahead_s is None else min(waits_s, ahead_s))
    part = busy_s(timeslices, longer, begin_s, end_s) / (end_s - begin_s)
    return part * units.goodput_ceiling_mbps(round(bandwidth_mbps * 1e6), ip_version)
