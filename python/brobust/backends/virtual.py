"""Backend `virtual`: real Linux kernels in virtual time, as ordinary processes of this host.

crates/virtual is the controller. This file translates a scenario into the controller's form, and the controller's
results into the dataset's tables. It needs no privilege, and runs are deterministic: the hash of its packets identifies
a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import random
import re
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brobust import _core, files, quic, units
from brobust.backends.base import Announce
from brobust.backends.support import program_knows_cc
from brobust.cc import names as cc_names
from brobust.contention import recordings, verdict
from brobust.dataset import (
    CONNECTIONS,
    PACKETS,
    SAMPLES,
    Measured,
    Rows,
    flow_columns,
    frame,
    scenario_columns,
)
from brobust.dataset import iperf3 as iperf3_results
from brobust.dataset.raw import RawColumns, RawTimeslices, from_bytes
from brobust.drivers import schedules
from brobust.errors import BadInput, RunFailed, one_line
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.virtual import VirtualKernel
from brobust.lazily import pl
from brobust.quic import qlog
from brobust.scenario import TSO_RTT_LOG, Contention, Pattern, Run, Scenario
from brobust.scenario.specs import Changes
from brobust.virtual import cross_traffic, debugger, iperf3, programs, requests
from brobust.virtual.cpus import Cpus

# As in the testbed's guests (testbed/init.sh), so large that socket buffers limit no bulk flow.
SOCKET_BUFFER_BYTES = 67_108_864
# gso_ipv4_max_size, and a gso_max_size of more than 64 KiB; include/linux/netdevice.h
FIRST_WITH_BIG_TCP = {4: (6, 3), 6: (5, 19)}
# The interval of the throughput over time, which is iperf3's in the testbed, too.
INTERVAL_NS = 100_000_000
# The interval at which an application-limited flow writes.
WRITE_EVERY_NS = 10_000_000

OF_TSO_SIZING = {
    "kernel": [],
    "rate": [f"sysctl.net.ipv4.tcp_tso_rtt_log={TSO_RTT_LOG['rate']}"],
    "control": ["tcp_bbr.control_sizes_tso=1"],
}
OF_PACING = {
    "kernel": [],
    "kept": [],
    "linux-4.14": ["tcp_output.paces_as_linux_4_14=1"],
    "draft": ["tcp_output.paces_as_the_draft=1"],
}
# What programs may ask for as buffers of their sockets, above the kernel's defaults: as for source and sink.
OF_PROGRAMS = [f"sysctl.net.core.{name}={SOCKET_BUFFER_BYTES}" for name in ("rmem_max", "wmem_max")]
PROTOCOLS = {6: "tcp", 17: "udp", 1: "icmp", 58: "icmp"}


def check(scenarios: Sequence[Scenario]) -> None:
    """Refuse scenarios that cannot be measured here, before anything starts."""
    for name in sorted({scenario.kernel for scenario in scenarios}):
        kernel = virtual_kernels.find_again(name)
        offered = kernel.congestion_controls
        offering = [s for s in scenarios if s.kernel == name and not program_knows_cc(s)]
        for control in sorted({control for s in offering for control in s.ccs}):
            cc_names.check_offered(control, offered, name)
        for version, first in FIRST_WITH_BIG_TCP.items():
            sizes = [s.nic.tso_max_size for s in scenarios if s.kernel == name and s.path.ip_version == version]
            largest = max(sizes, default=0)
            if largest > units.SUPER_PACKET_BYTES and _version(kernel.release) < first:
                raise BadInput(
                    f"nic.tso_max_size: {units.show_size(largest)}, but {name} is Linux {kernel.release}, and "
                    f"IPv{version} has BIG TCP from {first[0]}.{first[1]} on; give at most "
                    f"{units.show_size(units.SUPER_PACKET_BYTES)}, or another kernel"
                )
    for scenario in scenarios:
        if scenario.traffic != "brobust":
            what = "programs: they run" if scenario.traffic == "programs" else f"traffic: {scenario.traffic} runs"
            programs.check_ptrace(what, "give traffic brobust, which does not need it, or")
            commands_of(scenario)


def _version(release: str) -> tuple[int, ...]:
    """Return the numbers that a kernel's release begins with: (6, 12) of 6.12.117-brobust."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", release)[:2])


def commands_of(s: Scenario) -> programs.Commands:
    """Return what runs in the kernels' user space."""
    if s.traffic == "iperf3":
        return programs.commands(*iperf3.commands(s.path.ip_version), ())
    if (of_quic := quic.of_traffic(s.traffic)) is not None:
        return programs.commands(*quic.commands(*of_quic, qlog=s.samples is not None), ())
    assert s.programs.sender is not None and s.programs.receiver is not None
    watched = s.programs.waits is not None
    return programs.commands(s.programs.sender, s.programs.receiver, s.programs.files, watched=watched)


class VirtualBackend:
    """Virtual time. Each run boots its own kernels and ends them; runs share nothing but the host's CPUs."""

    def __init__(self, announce: Announce):
        self._announce = announce
        self.calls: Path | None = None
        """The directory in which the next run records every call of our controls (cc/call.h), one file per sender."""
        self.debugger: debugger.Stop | None = None
        """Where the next run waits for a debugger."""
        self.sent: dict[str, VirtualKernel] = {}
        """Kernels that another machine has sent; they are used instead of those here with the same names."""
        self.commands: dict[str, programs.Commands] = {}
        """The same for programs, by the scenario's hash."""
        self._cpus = Cpus()
        self.parallel = len(self._cpus)
        self._lock = threading.Lock()
        self._under_way: set[_core.VirtualRun] = set()
        self._stopped = False

    def __enter__(self) -> VirtualBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        """Do nothing: the link carries its bandwidth however slow the host is."""
        return []

    def measure(self, run: Run) -> Measured:
        started, clock = datetime.now(UTC), time.monotonic()
        kernel = self.sent.get(run.scenario.kernel) or virtual_kernels.find_again(run.scenario.kernel)
        has_programs = run.scenario.traffic != "brobust"
        commands = (self.commands.get(run.scenario.hash) or commands_of(run.scenario)) if has_programs else None
        with contextlib.ExitStack() as until_measured:
            pcap = ramdisk = None
            if run.scenario.packets or has_programs:
                scratch = Path(until_measured.enter_context(tempfile.TemporaryDirectory(prefix="brobust-")))
                until_measured.enter_context(files.writing_to(scratch))
                pcap = scratch / "packets.pcap" if run.scenario.packets else None
                ramdisk = scratch / "ramdisk"
            described = describe(run, kernel, pcap, self.calls)
            if commands is not None:
                assert ramdisk is not None
                described["programs"] = _describe_programs(run.scenario, commands, ramdisk)
            described["debugger"] = None if self.debugger is None else dataclasses.asdict(self.debugger)
            result = self._run(json.dumps(described))
            captured = pcap.read_bytes() if pcap is not None else None
        if run.scenario.cross_traffic.load:
            del result["timeslices_ns"][run.scenario.sender_count]  # its CPU is always there
        transfers: Rows = []
        of_transfers = {}
        if run.scenario.cross_traffic.load:
            transfers = cross_traffic.results(from_bytes(result["transfers"]), run)
            of_transfers = cross_traffic.figures(transfers, run.scenario)
        asked = requests.taken_out(result["programs"], run)
        common = {
            **scenario_columns(run),
            **of_transfers,
            **requests.figures(asked, run.scenario),
            "kernel_release": kernel.release,
            "kernel_hash": kernel.sha256,
            "hz": kernel.hz,
            "packet_hash": result["hash"],
            "started_at": started,
            "wall_s": time.monotonic() - clock,
        }
        rows = [
            {**common, **row, "bbr_version": kernel.bbr_versions.get(cc_names.name_of(row["cc"]))}
            for row in _flow_rows(run, result)
        ]
        over_time: Rows = RawColumns(run.id, result["throughput"])
        if run.scenario.traffic == "iperf3":
            over_time = _from_iperf3(run, result["programs"], rows)
        logged = _qlog(result["programs"]) if has_programs else []
        of_programs = [] if commands is None else _programs(run, result["programs"], commands)
        delivered = [row["throughput_mbps"] for row in rows]
        reason = verdict.in_virtual_time(run.scenario, result["timeslices_ns"], delivered)
        for row in rows:
            row |= {"outcome": "unfaithful" if reason else "ok", "reason": reason}
        connections = _connections(result["connections"], run, rows) if has_programs else None
        samples: Rows = []
        if run.scenario.samples is not None:
            samples = _samples(result["samples"], run)
            if connections is not None:
                samples = _with_qlog(samples, logged, connections, run)
        return Measured(
            rows,
            throughput=over_time,
            samples=samples,
            offtimes=_offtimes(result["timeslices_ns"][:-1], run),
            packets=_packets(result["packets"], run.id) if run.scenario.packets else None,
            transfers=transfers,
            requests=asked,
            connections=[] if connections is None else connections,
            programs=of_programs,
            pcap=captured,
        )

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for under_way in self._under_way:
                under_way.stop()

    def _run(self, scenario: str) -> dict[str, Any]:
        with self._cpus.one() as cpu:
            under_way = _core.VirtualRun(scenario, cpu)
            try:
                with self._lock:
                    if self._stopped:
                        raise RunFailed("interrupted")
                    self._under_way.add(under_way)
                return under_way.run()
            except _core.VirtualRefused as refusal:
                raise RunFailed(str(refusal)) from None
            except _core.VirtualError as error:
                raise RunFailed(str(error)) from None
            except OSError as error:
                if (failed := files.why_not_written(error)) is not None:
                    raise failed from None
                raise RunFailed(one_line(error)) from None
            finally:
                with self._lock:
                    self._under_way.discard(under_way)


def describe(
    run: Run,
    kernel: VirtualKernel,
    pcap: Path | None = None,
    calls: Path | None = None,
) -> dict[str, Any]:
    """Return the run in the form that crates/virtual/src/scenario.rs reads: ns, bit/s, bytes, ps of CPU time.
    Programs are not in it."""
    s, buffer = run.scenario, run.scenario.path.buffer
    flows = [group for group in s.flows for _ in range(group.count)]
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
            {"schedule": _schedule(s.contention_of(number), run.seed + number * 2**32), "cpu": _cpu_cost(s)}
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
            for group, start in zip(flows, starts, strict=True)
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


def _describe_programs(s: Scenario, commands: programs.Commands, ramdisk: Path) -> dict[str, Any]:
    ramdisk.write_bytes(commands.ramdisk)
    return {
        "initrd": str(ramdisk),
        "sender": commands.sender,
        "receiver": commands.receiver,
        "waits": s.programs.waits and {"at_sender": s.programs.waits == "sender", "watcher": programs.WATCHER},
        "environment": programs.ENVIRONMENT,
        "linger": iperf3.LINGER if s.traffic == "iperf3" else s.programs.linger,
        "call": s.programs.call_time,
        "poll": s.programs.poll_time,
    }


def _parameters(s: Scenario) -> list[str]:
    """Return the parameters of the controls and of the TCP stack for the kernel's command line."""
    of_controls = [
        f"{cc_names.name_of(control)}.{name}={value}"
        for control in sorted(set(s.ccs))
        for name, value in cc_names.settings_of(control)
    ]
    of_programs = [] if s.traffic == "brobust" else OF_PROGRAMS
    return OF_TSO_SIZING[s.tso_sizing] + OF_PACING[s.pacing.name] + of_controls + of_programs


def _schedule(requested: Contention, seed: int) -> dict[str, Any]:
    """Return when a sender's CPU may run, in the form that crates/timeline reads."""
    offtimes = () if requested.replay is None else recordings.offtimes(requested.replay)
    return schedules.any_of(requested, seed, offtimes)


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
        low, high = s.path.red_thresholds
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
    cycles = {
        "timer": s.cpu.timer_cycles,
        "rx_packet": s.cpu.rx_packet_cycles,
        "tx_skb": s.cpu.tx_skb_cycles,
        "tx_byte": s.cpu.tx_byte_cycles,
    }
    return {name: round(count * picoseconds) for name, count in cycles.items()}


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


def _flow_rows(run: Run, result: dict[str, Any]) -> list[dict[str, Any]]:
    s, rows = run.scenario, []
    modelled = s.cpu.frequency is not None
    busy = [ns / s.duration if modelled else None for ns in result["busy_ns"]]
    for columns, flow, start in zip(flow_columns(s), result["flows"], start_times(run), strict=True):
        if flow["errno"]:
            why = os.strerror(flow["errno"]).lower()
            number = columns["flow"]
            raise RunFailed(f"flow {number} ({columns['cc']}) ended: {why} ({errno.errorcode.get(flow['errno'])})")
        ended = flow["ended_ns"]
        columns |= {"start_s": start / 1e9, "stop_s": columns["stop_s"] if ended is None else ended / 1e9}
        seconds = columns["stop_s"] - columns["start_s"]
        slices = result["timeslices_ns"][columns["sender"] - 1]
        rows.append(
            {
                **columns,
                "throughput_mbps": flow["received_bytes"] * 8e-6 / seconds,
                "completion_ms": None if ended is None else (ended - start) / 1e6,
                "retransmits": flow["retransmits"],
                "nic_drops": result["work"]["nic_drops"],
                "rtt_mean_ms": flow["rtt_mean_ms"],
                "rtt_p99_ms": flow["rtt_p99_ms"],
                "drops": flow["drops"],
                "queue_mean_ms": flow["queue_mean_ms"],
                "skb_mean_bytes": flow["skb_mean_bytes"],
                "pacing_idle_ms": flow["pacing_idle_ms"],
                "cpu_busy_share": busy[columns["sender"] - 1],
                **_got(slices, s.duration, columns["driver"] != "none"),
            }
        )
    return rows


def _from_iperf3(run: Run, ended: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the throughput over time that iperf3 measured, and put its other results into the rows."""
    groups = [group for group in run.scenario.flows for _ in range(group.count)]
    over_time = []
    for number, (group, row) in enumerate(zip(groups, rows, strict=True)):
        ends = sorted((one for one in ended if one["flow"] == number), key=lambda one: one["at_receiver"])
        texts = [one["stdout"].decode(errors="replace") for one in ends]
        try:
            flow = iperf3_results.flows(group, *texts)[0]
        except RunFailed as failure:
            why = str(failure)
            for end, text, one in zip(("sender", "receiver"), texts, ends, strict=True):
                # If iperf3 printed no report, the kernel may be the reason.
                if not text.startswith("{") and why.startswith(f"iperf3 at the {end} "):
                    why = f"{why}; its kernel's console ends with: {one['console']}"
            raise RunFailed(f"flow {number} ({group.cc}): {why}") from None
        row["iperf3"] = iperf3.version()
        row["throughput_mbps"], row["retransmits"] = flow.throughput_mbps, flow.retransmits
        row["rtt_mean_ms"], row["rtt_p99_ms"] = flow.rtt_mean_ms, flow.rtt_p99_ms
        over_time += [
            {"run": run.id, "flow": number, "time_s": end, "throughput_mbps": rate} for end, rate in flow.over_time
        ]
    return over_time


def _programs(run: Run, ended: list[dict[str, Any]], commands: programs.Commands) -> list[dict[str, Any]]:
    """Return what became of the programs; raise RunFailed if one of them failed."""
    rows = []
    # If one fails, the other end's may fail for that reason.
    for one in sorted(ended, key=lambda one: one["ended_ns"] or 0):
        if (why := _why_failed(one)) is not None:
            raise RunFailed(why)
    for one in ended:
        has_ended, number = one["ended_ns"] is not None, one["status"] & 0x7F
        rows.append(
            {
                "run": run.id,
                "flow": one["flow"],
                "end": "receiver" if one["at_receiver"] else "sender",
                "command": shlex.join(one["words"]),
                "sha256": commands.hashes[one["words"][0]],
                "ended_s": one["ended_ns"] / 1e9 if has_ended else None,
                "exit_status": one["status"] >> 8 if has_ended and not number else None,
                "signal": _signal(number) if number else None,
                "stdout": one["stdout"].decode(errors="replace"),
                "stderr": one["stderr"].decode(errors="replace"),
            }
        )
    return rows


def _why_failed(one: dict[str, Any]) -> str | None:
    """Return how a program failed, with its last words; None if it runs or has ended with status 0."""
    end = "receiver" if one["at_receiver"] else "sender"
    name = f"the program at the {end} of flow {one['flow']} ({Path(one['words'][0]).name})"
    if one["errno"]:
        why = os.strerror(one["errno"]).lower()
        return f"{name} could not be started: {why} ({errno.errorcode.get(one['errno'])})"
    if one["ended_ns"] is None or one["status"] == 0:
        return None
    number = one["status"] & 0x7F
    last = (
        one["stderr"].decode(errors="replace").strip() or one["stdout"].decode(errors="replace").strip()
    ).splitlines()
    said = f": {last[-1][:300]}" if last else ""
    seconds = one["ended_ns"] / 1e9
    after = f"after {seconds:.3f} s" if seconds >= 0 else f"{-seconds:.3f} s before the run"
    if number:
        # The kernel kills a program for which it has no memory, and says so.
        console = f"; its kernel's console ends with: {one['console']}" if number == signal.SIGKILL else ""
        return f"{name} was killed by {_signal(number)} {after}{said}{console}"
    return f"{name} ended with status {one['status'] >> 8} {after}{said}"


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _connections(table: dict[str, tuple[str, bytes]], run: Run, flows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """Return the table of the programs' connections."""
    connections, protocol = from_bytes(table), pl.col("protocol")
    seconds = {row["flow"]: row["stop_s"] - row["start_s"] for row in flows}
    sends_for = pl.col("flow").replace_strict(seconds, default=run.scenario.duration / 1e9, return_dtype=pl.Float64)
    connections = connections.with_columns(
        pl.lit(run.id).alias("run"),
        (pl.col("received_bytes") * 8e-6 / sends_for).alias("throughput_mbps"),
        protocol.replace_strict(PROTOCOLS, default=protocol.cast(pl.String), return_dtype=pl.String),
    )
    return _in_order(connections, CONNECTIONS)


def _got(slices: list[tuple[int, int]], duration: int, contended: bool) -> dict[str, Any]:
    """Return what a sender had of its CPU. Means are over whole timeslices: the run cuts the first and the last."""
    share = sum(end - begin for begin, end in slices) / duration
    if not contended:
        return {"effective_share": share}
    whole = [end - begin for begin, end in slices if begin > 0 and end < duration]
    off = [after[0] - before[1] for before, after in itertools.pairwise(slices)]
    return {
        "effective_share": share,
        "effective_timeslice_ms": sum(whole) / len(whole) / 1e6 if whole else None,
        "effective_offtime_ms": sum(off) / len(off) / 1e6 if off else None,
        "timeslices": len(slices),
        "lost_events": 0,
    }


def _offtimes(senders: list[list[tuple[int, int]]], run: Run) -> RawTimeslices:
    contended = {
        number: slices for number, slices in enumerate(senders, start=1) if run.scenario.contention_of(number).active
    }
    return RawTimeslices(run.id, run.scenario.duration, contended)


def _in_order(table: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    return table.select(pl.col(name).cast(column.dtype) for name, column in columns.items())


def _samples(table: dict[str, tuple[str, bytes]], run: Run) -> pl.DataFrame:
    controls = [row["cc"] for row in flow_columns(run.scenario)]
    samples = from_bytes(table).with_columns(
        pl.lit(run.id).alias("run"),
        pl.col("flow").replace_strict(dict(enumerate(controls)), return_dtype=pl.String).alias("cc"),
        pl.col("mode").replace_strict(dict(enumerate(cc_names.MODES)), default=None, return_dtype=pl.String),
        pl.col("state").replace_strict(dict(enumerate(cc_names.CA_STATES)), default=None, return_dtype=pl.String),
    )
    return _in_order(samples, SAMPLES)


def _qlog(ended: list[dict[str, Any]]) -> list[tuple[int, list[bytes]]]:
    """Take qlog out of what the senders' programs printed, and return each flow's records."""
    logged = []
    for one in ended:
        for name in ("stdout", "stderr"):
            one[name], records = qlog.split(one[name])
            if records and not one["at_receiver"]:
                logged.append((one["flow"], records))
    return logged


def _with_qlog(
    samples: pl.DataFrame, logged: list[tuple[int, list[bytes]]], connections: pl.DataFrame, run: Run
) -> pl.DataFrame:
    """Return the sockets' samples and those that programs wrote themselves, of each flow's first connection of UDP."""
    of_quic, controls = quic.of_traffic(run.scenario.traffic), [row["cc"] for row in flow_columns(run.scenario)]
    units_of = (None if of_quic is None else of_quic[0].qlog) or quic.Qlog()
    frames = [samples]
    for flow, records in logged:
        found = connections.filter((pl.col("flow") == flow) & (pl.col("protocol") == "udp")).head(1)
        if found.is_empty():
            continue
        first = found.row(0, named=True)
        taken = qlog.samples(records, began_s=first["first_s"], units_of=units_of)
        taken = taken.filter(pl.col("time_s") <= run.scenario.duration / 1e9)
        if isinstance(run.scenario.samples, int):
            taken = qlog.at_intervals(taken, run.scenario.samples / 1e9)
        here = {"run": run.id, "flow": flow, "connection": first["connection"], "cc": controls[flow]}
        frames.append(frame(taken.with_columns(pl.lit(value).alias(name) for name, value in here.items()), SAMPLES))
    return pl.concat(frames)


def _packets(table: dict[str, tuple[str, bytes]], run: str) -> pl.DataFrame:
    packets = from_bytes(table).with_columns(
        pl.lit(run).alias("run"),
        pl.when("is_ack").then(pl.lit("ack")).otherwise(pl.lit("data")).alias("direction"),
        pl.when(~pl.col("is_ack")).then("queue_bytes").alias("queue_bytes"),
    )
    return _in_order(packets, PACKETS)
