"""Compare the packets that two congestion controls send in virtual time, and when they send them.

Each case runs twice with the same scenario and seed, once with each control. Path, losses, contention, application and
changes are then the same to the nanosecond and to the random draw, so only the controls can make a packet differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from brobust import backends
from brobust.api import Result
from brobust.backends.base import Backend, in_threads
from brobust.conformance import cases
from brobust.errors import RunFailed
from brobust.scenario import Run, Scenario

# For some of the kernel's controls, the one of ours that must send the same packets.
EQUIVALENTS = {
    "bbr": "brb_bbr1",
    "cubic": "brb_cubic",
    "reno": "brb_reno",
    "bbr_robust": "brb_bbr1_robust",
    "bbr_steady": "brb_bbr1_steady",
}


@dataclass(frozen=True)
class Compared:
    """The result of one comparison. `difference` is None if all packets are the same."""

    first: str
    second: str
    case: str
    megabytes: float
    """Payload that the first control carried."""
    difference: str | None


def compare(
    pairs: Sequence[tuple[str, str]], names: Sequence[str], kernels: tuple[str | None, str | None] = (None, None)
) -> Iterator[Compared]:
    """Compare every pair of controls in each of these cases (names in `cases.VIRTUAL`), each control on its kernel;
    yield results in this order."""
    comparisons = [(pair, name) for name in names for pair in pairs]
    points = [
        (control, name, {"kernel": kernel})
        for pair, name in comparisons
        for control, kernel in zip(pair, kernels, strict=True)
    ]
    scenarios = cases.checked("virtual", points)
    calls = zip(comparisons, scenarios[::2], scenarios[1::2], strict=True)
    with backends.opened("virtual", lambda _: None) as backend:
        yield from in_threads(backend, partial(_compare, backend), calls)


def _compare(backend: Backend, compared: tuple[tuple[str, str], str], *scenarios: Scenario) -> Compared:
    pair, name = compared
    both = [_measure(backend, scenario, packets=False) for scenario in scenarios]
    hashes = [result.runs["packet_hash"][0] for result in both]
    difference = None
    if hashes[0] != hashes[1]:
        both = [_measure(backend, scenario, packets=True) for scenario in scenarios]
        difference = first_difference(pair, both[0], both[1])
    carried = float((both[0].runs["throughput_mbps"] * both[0].runs["duration_s"]).sum()) / 8
    return Compared(*pair, name, carried, difference)


def _measure(backend: Backend, scenario: Scenario, *, packets: bool) -> Result:
    wanted = scenario.model_copy(update={"packets": True, "samples": "ack"}) if packets else scenario
    run = Run(scenario=wanted, repeat=0)
    result = Result(run, backend.measure(run))
    for outcome, reason in result.runs.filter(pl.col("outcome") != "ok").select("outcome", "reason").iter_rows():
        raise RunFailed(f"{scenario.describe()}: {outcome}: {reason}")
    return result


# The columns that identify a packet. What happens to it on the path follows from them.
_PACKET = ("time_s", "flow", "direction", "seq", "ack", "payload_bytes")
_STATE = (
    "cwnd_packets", "ssthresh_packets", "pacing_rate_mbps", "inflight_packets", "pacing_gain", "cwnd_gain", "state",
)  # fmt: skip


def first_difference(pair: tuple[str, str], first: Result, second: Result) -> str:
    """Return the first packet that differs, and the state of both controls just before it."""
    one, other = first.packets.select(_PACKET), second.packets.select(_PACKET)
    both = enumerate(zip(one.iter_rows(), other.iter_rows(), strict=False))
    number = next((number for number, (a, b) in both if a != b), min(len(one), len(other)))
    if number == len(one) == len(other):
        return (
            f"all {number} packets have the same times and lengths, but other bits in their headers, such as those of "
            "ECN; `brobust run --packets` keeps them"
        )
    packets = [frame.row(number, named=True) if number < len(frame) else None for frame in (one, other)]
    lines = [f"packet {number} of {len(one)} and {len(other)} differs"]
    lines += [f"  {control}: {_packet(packet)}" for control, packet in zip(pair, packets, strict=True)]
    time = min(packet["time_s"] for packet in packets if packet is not None)
    for control, result in zip(pair, (first, second), strict=True):
        before = result.samples.filter(pl.col("time_s") <= time)
        if len(before):
            last = before.row(len(before) - 1, named=True)
            known = {column: last[column] for column in _STATE if last[column] is not None}
            shown = ", ".join(f"{name} {f'{at:.6g}' if isinstance(at, float) else at}" for name, at in known.items())
            lines.append(f"  {control} at {last['time_s']:.6f} s: {shown}")
    return "\n".join(lines)


def _packet(packet: Mapping[str, object] | None) -> str:
    if packet is None:
        return "no packet: this control sent fewer"
    return (
        f"{packet['time_s']:.9f} s, flow {packet['flow']}, {packet['direction']} seq {packet['seq']} "
        f"ack {packet['ack']}, {packet['payload_bytes']} bytes"
    )
