"""Describe a run to the controller of virtual time (crates/virtual)."""

import random
from pathlib import Path
from typing import Any

from brobust import units
from brobust.cc import names as cc_names
from brobust.contention import recordings
from brobust.drivers import schedules
from brobust.kernels.virtual import VirtualKernel
from brobust.scenario import TSO_RTT_LOG, Contention, Pattern, Run, Scenario
from brobust.scenario.specs import Changes
from brobust.virtual import cross_traffic

# As in the testbed's guests (testbed/init.sh), so large that socket buffers limit no bulk flow.
SOCKET_BUFFER_BYTES = 67_108_864
# The interval of the throughput over time, which is iperf3's in the testbed, too.
INTERVAL_NS = 100_000_000
# The interval at which an application-limited flow writes.
WRITE_EVERY_NS = 10_000_000

# What says on the kernel's command line that TCP sizes its packets or paces not as usual, by tso_sizing and pacing.
UNUSUAL = {
    "rate": f"sysctl.net.ipv4.tcp_tso_rtt_log={TSO_RTT_LOG['rate']}",
    "control": "tcp_bbr.control_sizes_tso=1",
    "linux-4.14": "tcp_output.paces_as_linux_4_14=1",
    "draft": "tcp_output.paces_as_the_draft=1",
}
# What programs may ask for as buffers of their sockets, above the kernel's defaults: as for source and sink.
OF_PROGRAMS = [f"sysctl.net.core.{name}={SOCKET_BUFFER_BYTES}" for name in ("rmem_max", "wmem_max")]


def describe(run: Run, kernel: VirtualKernel, pcap: Path | None = None, calls: Path | None = None) -> dict[str, Any]:
    """Return the run in the form that crates/virtual/src/scenario.rs reads: ns, bit/s, bytes, ps of CPU time.
    Programs and the debugger are not in it."""
    s, buffer = run.scenario, run.scenario.path.buffer
    starts = start_times(run)
    samples = 0 if s.samples == "ack" else s.samples
    return {
        "kernel": str(kernel.path),
        "seed": run.seed,
        "duration": s.duration,
        "interval": INTERVAL_NS,
        "tcp_memory": SOCKET_BUFFER_BYTES,
        "path": {
            "rate": _changing(s.path.bandwidth, s.path.bandwidth_changes),
            "buffer": _buffer(buffer, s.path.buffer_bytes),
            "burst": s.path.burst_bytes,
            "loss": s.path.loss,
            "seed": run.seed,
            "second": _second(s),
        },
        "aqm": _aqm(s),
        "senders": [
            {**_vcpus(s.contention_of(number), run.seed + number * 2**32), "cpu": _cpu_cost(s)}
            for number in range(1, s.sender_count + 1)
        ]
        + [{"schedule": {"kind": "always"}}] * (s.cross_traffic.load > 0),
        "receiver": _schedule(s.receiver, run.seed),
        "flows": [
            {
                "cc": cc_names.name_of(group.cc),
                "sender": group.sender - 1,
                "start": start,
                "stop": group.stop,
                "rtt": _changing(*s.rtt_of(group)),
                "pattern": _pattern(group.pattern, group.bytes),
            }
            for group, start in zip(s.each_flow, starts, strict=True)
        ],
        "ip_version": s.path.ip_version,
        "transfers": _transfers(run),
        "parameters": _parameters(s),
        "tx_completion": s.nic.tx_completion,
        "coalesce": s.nic.coalesce,
        "adaptive_rx": s.nic.adaptive_rx == "on",
        "gro": s.nic.gro == "on",
        "rx_ring": s.nic.rx_ring or 0,
        "tso_max_size": s.nic.tso_max_size,
        "pacing_lag_us": s.pacing.lag // 1000,
        "qdisc": "" if s.qdisc == "none" else s.qdisc,
        "record": {
            "samples": samples,
            "packets": s.packets,
            "pcap": str(pcap) if pcap is not None else None,
            "calls": str(calls) if calls is not None else None,
        },
        "programs": None,
    }


def _transfers(run: Run) -> dict[str, Any] | None:
    """Return the cross traffic, whose sender is the one after those of the flows."""
    s = run.scenario
    if not s.cross_traffic.load:
        return None
    rtt = _changing(s.path.rtt, s.path.rtt_changes)
    each = cross_traffic.draw(s, run.seed)
    return {
        "cc": cc_names.name_of(s.cross_traffic.cc), "sender": s.sender_count, "rtt": rtt,
        "at_second": s.cross_traffic.enters == "second", "each": each,
    }  # fmt: skip


def _parameters(s: Scenario) -> list[str]:
    """Return the parameters of the controls and of the TCP stack for the kernel's command line."""
    of_stack = [UNUSUAL[word] for word in (s.tso_sizing, s.pacing.name) if word in UNUSUAL]
    of_programs = [] if s.traffic == "brobust" else [*OF_PROGRAMS, *_work(s)]
    return of_stack + cc_names.parameters(s.ccs) + of_programs


def _work(s: Scenario) -> list[str]:
    """Return what work of the senders' programs costs, for arch/um/brobust/work.c; nothing where it takes no time."""
    costs = {
        "sent_byte_ps": round(s.programs.sent_byte_ns * 1000),
        "received_byte_ps": round(s.programs.received_byte_ns * 1000),
        "accept_ns": s.programs.accept_time,
    }
    return [f"brobust_work.{name}={cost}" for name, cost in costs.items() if cost]


def _vcpus(requested: Contention, seed: int) -> dict[str, Any]:
    """Return when a sender's vCPUs may run, and which of them does what. A source runs on the vCPU that wakes it up,
    which is that of the packets that arrive."""
    schedule = _schedule(requested, seed)
    rx, tx = requested.nic_vcpus(len(schedule.get("cpus", [None])))
    return {"schedule": schedule, "vcpus": {"rx": rx, "tx": tx}}


def _schedule(requested: Contention, seed: int) -> dict[str, Any]:
    """Return when a sender's CPU may run, in the form that crates/timeline reads."""
    recorded = () if requested.replay is None else recordings.of_each_vcpu(requested.replay)
    return schedules.any_of(requested, seed, recorded)


def _buffer(buffer: units.Buffer, size: int) -> dict[str, int]:
    counted = {"p": "packets", "sp": "super_packets"}.get(buffer.unit)
    return {"bytes": size} if counted is None else {counted: round(buffer.amount)}


def _second(s: Scenario) -> dict[str, Any] | None:
    size = s.path.second_buffer_bytes
    if s.path.second_bandwidth is None or size is None:
        return None
    return {"rate": s.path.second_bandwidth, "buffer": _buffer(s.path.second_buffer, size)}


def _changing(first: int, changes: Changes) -> list[tuple[int, int]]:
    return [(0, first), *changes]


def _aqm(s: Scenario) -> dict[str, Any] | None:
    aqm, buffer = s.path.aqm, s.path.buffer_bytes
    if aqm.name == "none":
        return None
    if aqm.name == "red":
        low, high = aqm.red_thresholds(buffer)
        return {
            "kind": "red", "limit": buffer, "min": low, "max": high, "probability": aqm.probability,
            "rate": s.path.bandwidth, "ecn": aqm.ecn,
        }  # fmt: skip
    assert aqm.target is not None and aqm.interval is not None
    return {
        "kind": aqm.name, "limit_packets": max(2, buffer // units.FRAME_BYTES), "target": aqm.target // 1000,
        "interval": aqm.interval // 1000, "ecn": aqm.ecn,
    }  # fmt: skip


def _cpu_cost(s: Scenario) -> dict[str, int]:
    if s.cpu.frequency is None:
        return {}
    picoseconds = 1e12 / s.cpu.frequency
    work = ("timer", "rx_packet", "tx_skb", "tx_byte")
    return {name: round(getattr(s.cpu, f"{name}_cycles") * picoseconds) for name in work}


def start_times(run: Run) -> list[int]:
    """Return when each flow starts, ns: where a group's starts are spread, whole microseconds that the run's seed
    decides."""
    starts = []
    for number, group in enumerate(run.scenario.flows):
        drawn = random.Random(f"starts of group {number}, {run.seed}")
        starts += [group.start + drawn.randint(0, group.start_spread // 1000) * 1000 for _ in range(group.count)]
    return starts


def _pattern(pattern: Pattern, size: int | None) -> dict[str, Any]:
    match pattern.kind:
        case "rate":
            assert pattern.rate is not None
            size = max(1, round(pattern.rate / 8 * WRITE_EVERY_NS / 1e9))
            return {"kind": "rate", "bytes": size, "every": WRITE_EVERY_NS}
        case "onoff":
            return {"kind": "onoff", "on": pattern.sending, "off": pattern.silent}
        case "idle":
            return {"kind": "idle", "after": pattern.sending, "silence": pattern.silent}
    return {"kind": "bulk", "bytes": size}
