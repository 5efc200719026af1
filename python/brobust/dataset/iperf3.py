"""The results of flows, from what iperf3 printed at both ends.

Throughput is counted at the receiver. Retransmits and RTT are the sender's.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from brobust.errors import RunFailed


@dataclass(frozen=True)
class FlowResult:
    throughput_mbps: float
    retransmits: int | None
    rtt_mean_ms: float | None
    rtt_p99_ms: float | None
    local_port: int  # that of the sender's socket
    over_time: list[tuple[float, float]]  # (end of interval s, Mbit/s at the receiver)

    @property
    def columns(self) -> dict[str, Any]:
        """What the table runs has of it."""
        return {name: getattr(self, name) for name in ("throughput_mbps", "retransmits", "rtt_mean_ms", "rtt_p99_ms")}

    def throughput(self, run: str, flow: int) -> list[dict[str, Any]]:
        """Return its rows of the table throughput."""
        return [{"run": run, "flow": flow, "time_s": end, "throughput_mbps": rate} for end, rate in self.over_time]


def flows(printed_by_sender: str, printed_by_receiver: str) -> list[FlowResult]:
    """Return the flows of a client and its server, from what iperf3 printed at both ends."""
    sent, received = report(printed_by_sender, "sender"), report(printed_by_receiver, "receiver")
    try:
        return list(_flows(sent, received))
    except (LookupError, TypeError, AttributeError) as error:
        raise RunFailed(f"iperf3 printed a result of another form ({type(error).__name__}: {error})") from None


def _flows(sent: dict[str, Any], received: dict[str, Any]) -> Iterator[FlowResult]:
    # Both ends list their streams in the order in which they were connected.
    sender_streams = sent["end"]["streams"]
    ports = [connection["local_port"] for connection in sent["start"]["connected"]]
    for number, stream in enumerate(received["end"]["streams"]):
        intervals = [interval["streams"][number] for interval in received["intervals"]]
        srtts = [_number(interval["streams"][number].get("rtt", 0)) / 1000 for interval in sent["intervals"]]
        srtts = sorted(rtt for rtt in srtts if rtt > 0)
        of_sender = sender_streams[number]["sender"]
        retransmits = of_sender.get("retransmits")
        yield FlowResult(
            throughput_mbps=_number(stream["receiver"]["bits_per_second"]) / 1e6,
            retransmits=None if retransmits is None else int(_number(retransmits)),
            rtt_mean_ms=_number(of_sender.get("mean_rtt", 0)) / 1000 or None,
            rtt_p99_ms=srtts[min(len(srtts) - 1, int(0.99 * len(srtts)))] if srtts else None,
            local_port=ports[number],
            over_time=[(_number(i["end"]), _number(i["bits_per_second"]) / 1e6) for i in intervals],
        )


def _number(value: Any) -> float:
    """Return a number that a column can have. TypeError: it is none."""
    if isinstance(value, (int, float)) and abs(value) < 2**63:  # false of NaN, too
        return value
    raise TypeError(f"{str(value)[:40]!r} is no number")


def report(text: str, end: str) -> dict[str, Any]:
    """Return what iperf3 printed at one end; raise RunFailed if that is not a result."""
    if not text:
        raise RunFailed(f"iperf3 at the {end} left no result")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RunFailed(f"iperf3 at the {end} did not print JSON: {text[:120]!r}")
    if "error" in found:
        raise RunFailed(f"iperf3 at the {end}: {found['error']}")
    return found
