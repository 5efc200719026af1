"""Whether two congestion controls send the same packets at the same times, in virtual time.

The same scenario and seed twice, once with either control: paths, losses, contention, applications and changes are the
same to the nanosecond and to the random draw, so any packet that differs is the controls' doing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust import backends
from brobust.api import Result
from brobust.backends.base import Backend
from brobust.errors import BadInput, RunFailed
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import override
from brobust.scenario.grid import scenario as one_scenario

# The controls of ours that are to be the kernel's own, packet for packet.
TWINS = {
    "bbr": "brb_bbr1",
    "cubic": "brb_cubic",
    "reno": "brb_reno",
    "bbr_robust": "brb_bbr1_robust",
}

_PATHS: dict[str, dict[str, Any]] = {
    "1mbit 20ms": {"bandwidth": "1mbit", "rtt": "20ms", "buffer": "20p"},
    "5mbit 100ms": {"bandwidth": "5mbit", "rtt": "100ms"},
    "20mbit 10ms": {"bandwidth": "20mbit", "rtt": "10ms"},
    "20mbit 40ms, 4 BDP": {"bandwidth": "20mbit", "rtt": "40ms", "buffer": "4bdp"},
    "50mbit 5ms, half a BDP": {"bandwidth": "50mbit", "rtt": "5ms", "buffer": "0.5bdp"},
    "100mbit 10ms, 12 BDP": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "12bdp"},
    "100mbit 200ms": {"bandwidth": "100mbit", "rtt": "200ms"},
    "200mbit 1ms": {"bandwidth": "200mbit", "rtt": "1ms"},
    "1gbit 20ms": {"bandwidth": "1gbit", "rtt": "20ms"},
}
_LOSSES = ("0.1%", "1%", "5%")
_CONTENTION: dict[str, dict[str, Any]] = {
    "10 of 40 ms": {"timeslice": "10ms", "share": 0.25},
    "10 of 20 ms": {"timeslice": "10ms", "share": 0.5},
    "1 of 4 ms": {"timeslice": "1ms", "share": 0.25},
    "20 of 29 ms, jittered": {"timeslice": "20ms", "share": 0.7, "jitter": 0.25},
}
_APPLICATIONS = ("rate 5mbit", "rate 19mbit", "onoff 200ms 300ms", "onoff 1s 50ms", "onoff 20ms 30ms", "idle 2s 3s")
_BASE: dict[str, Any] = {
    "path": {"bandwidth": "20mbit", "rtt": "20ms", "buffer": "2bdp"},
    "duration": "12s",  # beyond the first PROBE_RTT at 10 s
}


def _all_cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, path in _PATHS.items():
        duration = "4s" if path["bandwidth"] == "1gbit" else "12s"
        yield name, {"path": path, "duration": duration}
        yield f"{name}, 10 of 20 ms", {
            "path": path, "duration": duration, "contention": _CONTENTION["10 of 20 ms"],
        }  # fmt: skip
    for loss in _LOSSES:
        yield f"loss {loss}", {"path": {"loss": loss}}
        yield f"loss {loss}, 1 of 4 ms", {"path": {"loss": loss}, "contention": _CONTENTION["1 of 4 ms"]}
        yield f"loss {loss} at 100mbit", {"path": {"loss": loss, "bandwidth": "100mbit"}}
    for name, contention in _CONTENTION.items():
        yield name, {"contention": contention}
        yield f"{name}, fq", {"contention": contention, "qdisc": "fq"}
        yield f"{name}, 100mbit", {"contention": contention, "path": {"bandwidth": "100mbit", "buffer": "12bdp"}}
    for pattern in _APPLICATIONS:
        yield pattern, {"flows": {"pattern": pattern}}
        yield f"{pattern}, 10 of 20 ms", {"flows": {"pattern": pattern}, "contention": _CONTENTION["10 of 20 ms"]}
    yield "rate falls and rises", {"path": {"bandwidth_changes": [["3s", "4mbit"], ["7s", "40mbit"]]}}
    yield "rate drops to a twentieth", {"path": {"bandwidth_changes": [["4s", "1mbit"]]}}
    yield "RTT rises", {"path": {"rtt_changes": [["4s", "80ms"]]}}
    yield "RTT falls", {"path": {"rtt": "80ms", "rtt_changes": [["4s", "10ms"]]}}
    yield "fq", {"qdisc": "fq"}
    yield "2 flows", {"flows": {"count": 2}}
    yield "8 flows, shallow", {"flows": {"count": 8}, "path": {"buffer": "0.5bdp"}}
    yield "codel", {"path": {"aqm": "codel"}}
    yield "red", {"path": {"aqm": "red", "buffer": "4bdp"}}
    yield "a policer's queue", {"path": {"bandwidth": "10mbit", "buffer": "4p"}}
    yield "receive coalescing", {"nic": {"coalesce": "1ms"}, "path": {"bandwidth": "100mbit"}}
    yield "ACKs half a second apart", {"nic": {"coalesce": "500ms"}, "duration": "20s"}
    yield "slow CPU", {"cpu": {"frequency": "100MHz"}, "path": {"bandwidth": "100mbit"}}
    yield "30 s", {"duration": "30s"}


CASES: dict[str, dict[str, Any]] = dict(_all_cases())

# One of each kind: what `make test` takes.
QUICK = (
    "20mbit 10ms", "50mbit 5ms, half a BDP, 10 of 20 ms", "loss 1%", "loss 5%, 1 of 4 ms", "20 of 29 ms, jittered",
    "onoff 200ms 300ms", "rate 19mbit, 10 of 20 ms", "idle 2s 3s", "rate falls and rises", "RTT rises", "fq",
    "8 flows, shallow", "a policer's queue", "receive coalescing",
)  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """What one scenario showed. `difference` is None where all packets are the same."""

    first: str
    second: str
    case: str
    megabytes: float
    """Payload that the first control carried."""
    difference: str | None


def case(name: str) -> dict[str, Any]:
    if name not in CASES:
        raise BadInput(f"case: there is none named {name!r}; `brobust cc same --list` shows them")
    return CASES[name]


def compare(pairs: Sequence[tuple[str, str]], cases: Sequence[str], kernel: str | None = None) -> Iterator[Compared]:
    """Every pair of controls in every case, as they finish; in order where one CPU is all there is."""
    asked = [(pair, name, _scenarios(pair, case(name), kernel)) for name in cases for pair in pairs]
    backends.check([scenario for _, _, both in asked for scenario in both])
    with (
        backends.opened("virtual", lambda _: None) as backend,
        ThreadPoolExecutor(max_workers=getattr(backend, "parallel", 1)) as threads,
    ):
        try:
            yield from threads.map(lambda one: _compare(backend, *one), asked)
        except BaseException:
            backend.stop()
            raise


def _scenarios(pair: tuple[str, str], case: Mapping[str, Any], kernel: str | None) -> tuple[Scenario, Scenario]:
    point = override({**_BASE, "flows": [{}]}, case)
    if kernel is not None:
        point["kernel"] = kernel
    first, second = (one_scenario(override(point, {"flows": {"cc": control}})) for control in pair)
    return first, second


def _compare(backend: Backend, pair: tuple[str, str], name: str, scenarios: tuple[Scenario, Scenario]) -> Compared:
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
    result = Result.of(run, backend.measure(run))
    if (result.runs["outcome"] != "ok").any():
        raise RunFailed(f"{scenario.describe()}: {result.runs['outcome'][0]}")
    return result


# What a packet is; where it went afterwards follows from that.
_PACKET = ("time_s", "flow", "direction", "seq", "ack", "payload_bytes")
_STATE = (
    "cwnd_packets",
    "ssthresh_packets",
    "pacing_rate_mbps",
    "inflight_packets",
    "pacing_gain",
    "cwnd_gain",
    "state",
)


def first_difference(pair: tuple[str, str], first: Result, second: Result) -> str:
    """The first packet that differs, and the last sample before it in which the two agree on all but the control."""
    one, other = first.packets.select(_PACKET), second.packets.select(_PACKET)
    length = min(len(one), len(other))
    unequal = (
        pl.concat(
            [one.head(length).rename(lambda c: f"a_{c}"), other.head(length).rename(lambda c: f"b_{c}")],
            how="horizontal",
        )
        .with_row_index("number")
        .filter(pl.any_horizontal(pl.col(f"a_{c}").ne_missing(pl.col(f"b_{c}")) for c in _PACKET))
    )
    number = unequal["number"][0] if len(unequal) else length
    packets = [frame.row(number, named=True) if number < len(frame) else None for frame in (one, other)]
    lines = [f"packet {number} of {len(one)} and {len(other)} differs"]
    lines += [f"  {control}: {_packet(packet)}" for control, packet in zip(pair, packets, strict=True)]
    time = min(packet["time_s"] for packet in packets if packet is not None)
    for control, result in zip(pair, (first, second), strict=True):
        before = result.samples.filter(pl.col("time_s") <= time)
        if len(before):
            last = before.row(len(before) - 1, named=True)
            shown = ", ".join(f"{column} {last[column]}" for column in _STATE)
            lines.append(f"  {control} at {last['time_s']:.6f} s: {shown}")
    return "\n".join(lines)


def _packet(packet: Mapping[str, Any] | None) -> str:
    if packet is None:
        return "none: its trace has ended"
    return (
        f"{packet['time_s']:.9f} s, flow {packet['flow']}, {packet['direction']} seq {packet['seq']} "
        f"ack {packet['ack']}, {packet['payload_bytes']} bytes"
    )
