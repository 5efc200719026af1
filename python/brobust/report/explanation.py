"""An explanation (analysis/explain.py) as sentences."""

import math
from collections.abc import Iterator
from typing import Any

from brobust import files
from brobust.analysis.cells import FULL
from brobust.analysis.explain import DECIDE, GAIN, Explanation, Missed
from brobust.units import show_count
from brobust.units import show_measured as show

# The causes, as the subject of a sentence.
NAMES = {
    "link": "the path itself", "application": "the application", "window": "the receiver's window",
    "receiver": "the receiver's CPU", "cpu": "the CPU that is taken from the sender",
    "work": "the work of sending, for the sender's CPU", "loss": "random loss on the path",
    "buffer": "the bottleneck's buffer", "cross": "the cross traffic",
}  # fmt: skip


def sentences(found: Explanation) -> list[str]:
    """Return about five sentences: what was carried, the cause, how it works, what limits the flow now, and what would
    change it."""
    return [*_carried(found), _cause(found), *_how(found), *_tried(found), *_unseen(found)]


def _carried(found: Explanation) -> Iterator[str]:
    mbps = show(round(found.throughput_mbps, 6))  # bytes of payload are counted as floating-point numbers
    carried = f"Flow {found.flow} ({found.cc}) carried {mbps} Mbit/s on a path that has room "
    carried += f"for {show(found.possible_mbps)}"
    if found.bandwidth_changes:
        carried += " in the mean, since its bandwidth changes"
    if found.flows > 1:
        fill = f"the {found.flows} flows of the run fill {_of_all(found.part)} of the path"
        carried += f"; in the second half of its time {fill}"
    yield carried + "."
    if found.requests is not None:
        took = (
            "most had no answer" if found.request_ms is None else f"they took {show(found.request_ms)} ms in the median"
        )
        yield f"The run's programs asked {show_count(found.requests, 'time')}, and {took}."


def _of_all(part: float) -> str:
    """Return a part in percent. What waited behind a packet that was sent again is received with it: what arrives in a
    half may be more than passes in it."""
    return f"{min(part, 1):.0%}"


def _cause(found: Explanation) -> str:
    # Each cause with what shows it, as the part of a sentence.
    shown = {name: f"{NAMES[name]} ({SHOWN[name](sign)})" for name, sign in found.signs.items()}
    if not shown:
        return "The data shows no cause: there is no sign of any that has a rule (docs/see.md)."
    if not found.causes and found.tried:
        faster = f"carries {GAIN:g} times as much" if found.requests is None else f"answers {GAIN:g} times as fast"
        return (
            f"The data does not decide: there are signs of {_listed(list(shown.values()))}, but no run without one of "
            f"these {faster}."
        )
    if not found.causes:
        return f"The data does not decide between {_listed(list(shown.values()))}."
    if len(found.causes) > 1:
        together = _listed([shown[name] for name in found.causes])
        return f"The cause is {together} together, since without any one of them the flow is faster."
    (name,) = found.causes
    if found.not_tried is not None and name not in DECIDE:  # a sign alone may have slowed nothing down
        return f"The only cause of which there is a sign is {NAMES[name]}: {SHOWN[name](found.signs[name])}."
    return f"The cause is {NAMES[name]}: {SHOWN[name](found.signs[name])}."


SHOWN: dict[str, Any] = {
    "link": lambda sign: (
        f"it is {_of_all(sign['part'])} full in the second half of the flow's time, and {FULL:.0%} counts as full"
    ),
    "application": lambda sign: (
        f"{sign['limited']:.0%} of the delivery rate samples were application-limited"
        if "limited" in sign
        else f"nothing was in flight for {sign['idle']:.0%} of the second half"
        if "idle" in sign
        else f"it writes {show(sign['written_mbps'])} Mbit/s, and these arrive"
    ),
    "window": lambda sign: (
        f"{sign['full']:.0%} of the data packets went up to the end of a window of {files.size(sign['window_bytes'])}"
    ),
    "receiver": lambda sign: f"it has its CPU for {sign['share']:.0%} of the time, and ACKs wait for it",
    "cpu": lambda sign: (
        f"it was there for {sign['share']:.0%} of the time"
        + (
            f", {show(sign['on_ms'])} ms on and {show(sign['off_ms'])} ms off in the mean"
            if sign["on_ms"] and sign["off_ms"]
            else ""
        )
    ),
    "work": lambda sign: f"it was busy for {sign['busy']:.0%} of the run",
    "loss": lambda sign: (
        f"the path lost {show_count(round(sign['packets']), 'packet')}, {sign['part']:.2%}, although there was room"
    ),
    "buffer": lambda sign: _of_buffer(**sign),
    "cross": lambda sign: f"it offers {sign['load']:.0%} of the bandwidth",
}


def _of_buffer(packets: float, bytes: int | None, bdp: float | None, aqm: str | None = None) -> str:
    dropped = show_count(round(packets), "packet")
    if aqm is not None:
        return f"its queue management, {aqm}, dropped {dropped}"
    if bytes is None:
        return f"{dropped} found that of one of the two full"
    if not bytes:  # a policer, if there is a burst
        return f"{dropped} found no room, since it queues none"
    return f"{dropped} found its {files.size(bytes)}{f', {show(bdp, 2)} BDP,' if bdp else ''} full"


def _how(found: Explanation) -> Iterator[str]:
    if "cpu" in found.causes:
        yield from _of_cpu(found)
    if found.causes and found.causes[0] in DECIDE:
        return
    if found.pacing_rate_mbps is not None:
        yield f"What limits it now is its own pacing rate, {show(found.pacing_rate_mbps)} Mbit/s in the median."
    elif found.cwnd_packets is not None:
        packets = show_count(round(found.cwnd_packets), "packet")
        yield f"What limits it now is its congestion window, {packets} in the median."


def _of_cpu(found: Explanation) -> Iterator[str]:
    if (missed := found.missed) is not None:
        yield (
            f"The first departure that pacing had set was missed at {missed.first_s:.4f} s, by "
            f"{show(missed.first_late_ms)} ms; {missed.departures} of {missed.off_times} off-times had one, "
            f"{show(missed.late_ms)} ms late in the mean, of which {_made_up(missed)}."
        )
    if (fell := found.collapse) is not None:
        yield (
            f"So the delivery rate fell below the bandwidth estimate, and the estimate followed: from "
            f"{show(fell.from_mbps)} Mbit/s at {fell.at_s:.2f} s to {show(fell.to_mbps)} in {fell.rounds} round trips "
            f"({show(fell.reached_s - fell.at_s, 2)} s)."
        )
    if found.oracle_mbps is not None:
        if found.oracle_mbps < FULL * found.possible_mbps:
            most = show(found.oracle_mbps)
            yield f"In these timeslices, with this buffer, no sender carries more than {most} Mbit/s."
        else:
            yield (
                "The timeslices themselves are not the limit: the best possible sender carries "
                f"{show(found.oracle_mbps)} Mbit/s in them."
            )


def _made_up(missed: Missed) -> str:
    at_most = f"makes up for at most {show(missed.made_up_ms)} ms"
    if missed.made_up_ms == 0:
        return f"pacing as in {'the draft' if missed.pacing == 'draft' else 'Linux 4.14'} makes up for nothing"
    return f"the kept schedule {at_most}" if missed.pacing.startswith("kept") else f"Linux {at_most} (half a gap)"


def _tried(found: Explanation) -> Iterator[str]:
    if found.tried_request_ms:
        took = sorted(found.tried_request_ms.items(), key=lambda one: math.inf if one[1] is None else one[1])
        changes = ", ".join(f"{'no answer' if ms is None else show(ms)} with {what}" for what, ms in took)
        yield f"The median request, measured with one change, ms: {changes}."
    elif found.tried:
        ordered = sorted(found.tried.items(), key=lambda one: -one[1])
        changes = ", ".join(f"{show(mbps)} with {what}" for what, mbps in ordered)
        yield f"Measured with one change, Mbit/s: {changes}."
    elif found.not_tried is not None and (not found.causes or found.causes[0] not in DECIDE):
        yield f"Nothing was tried: {found.not_tried}."


def _unseen(found: Explanation) -> Iterator[str]:
    if found.unseen and (not found.causes or found.not_tried):
        names = _listed([NAMES[name] for name in found.unseen])
        if found.is_of_udp:
            yield (
                f"What would show {names} was not recorded; `brobust run --samples ack` takes it from the qlog of the "
                "flow's program, if that writes some."
            )
            return
        options = "--samples ack --packets" if found.backend == "virtual" else "--samples 10ms"
        yield f"What would show {names} was not recorded; `brobust run {options}` does."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
