"""Backend `virtual`: real Linux kernels in virtual time, as ordinary processes of this host.

crates/virtual is the controller. It needs no privilege, and runs are deterministic: the hash of a run's packets
identifies it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import shlex
import signal
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brobust import _core, files, quic, units
from brobust.backends.base import Announce, Backend
from brobust.backends.support import program_knows_cc
from brobust.cc import names as cc_names
from brobust.contention import verdict
from brobust.dataset import CONNECTIONS, SAMPLES, Measured, Rows, flow_columns, frame, scenario_columns
from brobust.dataset import iperf3 as iperf3_results
from brobust.dataset.raw import RawColumns, from_bytes
from brobust.errors import BadInput, RunFailed, one_line
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.virtual import VirtualKernel
from brobust.lazily import pl
from brobust.quic import qlog
from brobust.scenario import Run, Scenario
from brobust.virtual import cross_traffic, debugger, describe, iperf3, programs, requests, results
from brobust.virtual.cpus import Cpus

# gso_ipv4_max_size, and a gso_max_size of more than 64 KiB; include/linux/netdevice.h
FIRST_WITH_BIG_TCP = {4: "6.3", 6: "5.19"}
# The first that was tried. User-Mode Linux can stop programs by seccomp since 6.16 (patch 0029 of kernel/virtual).
FIRST_WITHOUT_PTRACE = "7.2"
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
            if largest > units.SUPER_PACKET_BYTES and _is_before(first, kernel):
                raise BadInput(
                    f"nic.tso_max_size: {units.show_size(largest)}, but {name} is Linux {kernel.release}, and "
                    f"IPv{version} has BIG TCP from {first} on; give at most "
                    f"{units.show_size(units.SUPER_PACKET_BYTES)}, or another kernel"
                )
    stacks = dict.fromkeys(found[0].name for s in scenarios if (found := quic.of_traffic(s.traffic)) is not None)
    quic.check_built([quic.STACKS[name] for name in stacks])
    for scenario in scenarios:
        if scenario.pacing.lag and scenario.kernel.endswith(virtual_kernels.STOCK):
            raise BadInput(
                f"pacing: {str(scenario.pacing)!r} needs the series kept, which {scenario.kernel} is built without; "
                f"give kernel {scenario.kernel.removesuffix(virtual_kernels.STOCK)}"
            )
        if scenario.traffic != "brobust":
            what = "programs: they run" if scenario.traffic == "programs" else f"traffic: {scenario.traffic} runs"
            if _is_before(FIRST_WITHOUT_PTRACE, virtual_kernels.find_again(scenario.kernel)):
                programs.check_ptrace(what)
            commands_of(scenario)
            for end in ("sender", "receiver"):
                if (command := getattr(scenario.programs, end)) is not None:
                    programs.check_client(f"programs.{end}", command, scenario.path.ip_version)


def _is_before(series: str, kernel: VirtualKernel) -> bool:
    return virtual_kernels.version_key(virtual_kernels.series_of(kernel.release)) < virtual_kernels.version_key(series)


def commands_of(s: Scenario) -> programs.Commands:
    """Return what runs in the kernels' user space."""
    if s.traffic == "iperf3":
        return programs.commands(*iperf3.commands(s.path.ip_version), ())
    if (of_quic := quic.of_traffic(s.traffic)) is not None:
        return programs.commands(*quic.commands(*of_quic, qlog=s.samples is not None), ())
    assert s.programs.sender is not None and s.programs.receiver is not None
    watched = s.programs.waits is not None
    return programs.commands(s.programs.sender, s.programs.receiver, s.programs.files, watched=watched)


class VirtualBackend(Backend):
    """Virtual time. Each run boots its own kernels and ends them; runs share nothing but the host's CPUs. Nothing is
    calibrated: the link carries its bandwidth however slow the host is."""

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

    def __exit__(self, *_: object) -> None:
        self.stop()

    def measure(self, run: Run) -> Measured:
        started, clock = datetime.now(UTC), time.monotonic()
        kernel = self.sent.get(run.scenario.kernel) or virtual_kernels.find_again(run.scenario.kernel)
        has_programs = run.scenario.traffic != "brobust"
        commands = (self.commands.get(run.scenario.hash) or commands_of(run.scenario)) if has_programs else None
        with contextlib.ExitStack() as until_measured:
            pcap = ramdisk = None
            calls: Rows = []
            if run.scenario.packets or has_programs:
                scratch = until_measured.enter_context(files.temporary_directory())
                until_measured.enter_context(files.writing_to(scratch))
                pcap = scratch / "packets.pcap" if run.scenario.packets else None
                (scratch / "calls").mkdir()
                ramdisk = scratch / "ramdisk"
            described = describe.describe(run, kernel, pcap, self.calls)
            if commands is not None:
                assert ramdisk is not None
                described["programs"] = describe_programs(run.scenario, commands, ramdisk)
                if pcap is not None:
                    described["programs"]["calls"] = str(scratch / "calls")
            described["debugger"] = None if self.debugger is None else dataclasses.asdict(self.debugger)
            result = self._run(json.dumps(described), has_programs)
            captured = pcap.read_bytes() if pcap is not None else None
            if commands is not None and pcap is not None:
                calls = results.program_calls(scratch / "calls", result["origin_ns"], run)
        transfers: Rows = []
        of_transfers = {}
        if run.scenario.cross_traffic.load:
            del result["timeslices_ns"][run.scenario.sender_count]  # its CPU is always there
            transfers = cross_traffic.results(from_bytes(result["transfers"]), run)
            of_transfers = cross_traffic.figures(transfers)
        of_requests = requests.taken_out(result["programs"], run)
        common = {
            **scenario_columns(run),
            **of_transfers,
            **requests.figures(of_requests, run.scenario),
            "kernel_release": kernel.release,
            "kernel_hash": kernel.sha256,
            "hz": kernel.hz,
            "packet_hash": result["hash"],
            "started_at": started,
            "wall_s": time.monotonic() - clock,
        }
        of_kernel = {} if quic.of_traffic(run.scenario.traffic) is not None else kernel.bbr_versions
        rows = [
            {**common, **row, "bbr_version": of_kernel.get(cc_names.name_of(row["cc"]))}
            for row in results.flow_rows(run, result)
        ]
        throughput: Rows = RawColumns(run.id, result["throughput"])
        if run.scenario.traffic == "iperf3":
            throughput = _from_iperf3(run, result["programs"], rows)
        qlogs = _qlog(result["programs"]) if has_programs else []
        of_programs = [] if commands is None else _programs(run, result["programs"], commands)
        requests.check_all_are_told(result["programs"])
        delivered = [row["throughput_mbps"] for row in rows]
        reason = verdict.in_virtual_time(run.scenario, result["timeslices_ns"], delivered)
        for row in rows:
            row |= verdict.outcome(reason)
        connections = _connections(result["connections"], run, rows) if has_programs else None
        if connections is not None:
            of_tcp = set(connections.filter(protocol="tcp")["flow"])
            for row in rows:  # what other protocols send again, only they know
                row["retransmits"] = row["retransmits"] if row["flow"] in of_tcp else None
        samples: Rows = []
        if run.scenario.samples is not None:
            samples = results.samples(result["samples"], run)
            if connections is not None:
                samples = _with_qlog(samples, qlogs, connections, run)
        return Measured(
            rows,
            throughput=throughput,
            samples=samples,
            offtimes=results.offtimes(result["timeslices_ns"][:-1], run),
            packets=results.packets(result["packets"], run.id) if run.scenario.packets else None,
            transfers=transfers,
            requests=of_requests,
            connections=[] if connections is None else connections,
            programs=of_programs,
            calls=calls,
            pcap=captured,
        )

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for under_way in self._under_way:
                under_way.stop()

    def _run(self, scenario: str, has_programs: bool) -> dict[str, Any]:
        with self._cpus.one() as cpu:
            under_way = _core.VirtualRun(scenario, cpu)
            try:
                with self._lock:
                    if self._stopped:
                        raise RunFailed("interrupted")
                    self._under_way.add(under_way)
                return under_way.run()
            except _core.VirtualError as error:
                is_busy = has_programs and isinstance(error, _core.NoAnswer)
                why = "perhaps a program computes without a system call (docs/programs.md): " if is_busy else ""
                raise RunFailed(f"{why}{error}") from None
            except OSError as error:
                if (failed := files.why_not_written(error)) is not None:
                    raise failed from None
                raise RunFailed(one_line(error)) from None
            finally:
                with self._lock:
                    self._under_way.discard(under_way)


def describe_programs(s: Scenario, commands: programs.Commands, ramdisk: Path) -> dict[str, Any]:
    """Return what the controller is told of a scenario's programs, and write their files into a RAM disk for it."""
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


def _from_iperf3(run: Run, ended: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the throughput over time that iperf3 measured, and put its other results into the rows."""
    throughput = []
    for number, (group, row) in enumerate(zip(run.scenario.each_flow, rows, strict=True)):
        ends = sorted((one for one in ended if one["flow"] == number), key=lambda one: one["at_receiver"])
        texts = [one["stdout"].decode(errors="replace") for one in ends]
        try:
            flow = iperf3_results.flows(*texts)[0]
        except RunFailed as failure:
            why = str(failure)
            for end, text, one in zip(("sender", "receiver"), texts, ends, strict=True):
                # If iperf3 printed no report, the kernel may be the reason.
                if not text.startswith("{") and why.startswith(f"iperf3 at the {end} "):
                    why = f"{why}; its kernel's console ends with: {one['console']}"
            raise RunFailed(f"flow {number} ({group.cc}): {why}") from None
        row |= {"iperf3": iperf3.version(), **flow.columns}
        throughput += flow.throughput(run.id, number)
    return throughput


def _programs(run: Run, ended: list[dict[str, Any]], commands: programs.Commands) -> list[dict[str, Any]]:
    """Return what became of the programs; raise RunFailed, with these rows, if one of them failed."""
    rows = []
    for one in ended:
        has_ended, number = one["ended_ns"] is not None, one["status"] & 0x7F
        rows.append(
            {
                "run": run.id,
                "flow": one["flow"],
                "end": "receiver" if one["at_receiver"] else "sender",
                "command": shlex.join(one["words"]),
                "sha256": commands.hashes[one["words"][0]],
                "files_sha256": commands.files_sha256,
                "ended_s": one["ended_ns"] / 1e9 if has_ended else None,
                "exit_status": one["status"] >> 8 if has_ended and not number else None,
                "signal": _signal(number) if number else None,
                "stdout": one["stdout"].decode(errors="replace"),
                "stderr": one["stderr"].decode(errors="replace"),
            }
        )
    # If one fails, the other end's may fail for that reason.
    for one in sorted(ended, key=lambda one: one["ended_ns"] or 0):
        if (why := _why_failed(one)) is not None:
            raise RunFailed(why, rows)
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
    words = _last_words(one["stderr"]) or _last_words(one["stdout"])
    said = f": {words}" if words else ""
    seconds = one["ended_ns"] / 1e9
    after = f" after {seconds:.3f} s" if seconds >= 0 else f", {-seconds:.3f} s before the run"
    if number:
        console = _why_killed(one["console"]) if number == signal.SIGKILL else ""
        return f"{name} was killed by {_signal(number)}{after}{said}{console}"
    return f"{name} ended with status {one['status'] >> 8}{after}{said}"


# How what ends a program begins in what Rust, Go and most tools of the command line print. It need not be the last
# line: hints, usage and a trace follow it.
TELLING = re.compile(r"(thread '.*' .*panicked at |panic: |fatal error: |error: )")
MAX_WORDS = 300  # letters of what a program said last


def _last_words(printed: bytes) -> str:
    """Return the line of what a program printed that says best why it ended, else the last one; nothing if there is
    none."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    telling = [number for number, line in enumerate(lines) if TELLING.match(line)]
    if not telling:
        return lines[-1][:MAX_WORDS]
    found = lines[telling[-1]]
    if found.startswith("thread ") and found.endswith(":"):  # Rust says where, and then what
        found = " ".join(lines[telling[-1] : telling[-1] + 2])
    return found[:MAX_WORDS]


def _why_killed(console: str) -> str:
    """Return what the console of a program's kernel says of a SIGKILL, with which this ends a program for which it has
    no memory."""
    if "Out of memory: " in console:
        return "; its kernel, of 1 GB with all files, had no memory left for it"
    return f"; its kernel's console ends with: {console}"


def _signal(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _connections(table: dict[str, tuple[str, bytes]], run: Run, flows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    connections, protocol = from_bytes(table), pl.col("protocol")
    seconds = {row["flow"]: row["stop_s"] - row["start_s"] for row in flows}
    sends_for = pl.col("flow").replace_strict(seconds, default=run.scenario.duration / 1e9, return_dtype=pl.Float64)
    connections = connections.with_columns(
        pl.lit(run.id).alias("run"),
        (pl.col("received_bytes") * 8e-6 / sends_for).alias("throughput_mbps"),
        protocol.replace_strict(PROTOCOLS, default=protocol.cast(pl.String), return_dtype=pl.String),
    )
    return results.in_order(connections, CONNECTIONS)


def _qlog(ended: list[dict[str, Any]]) -> list[tuple[int, list[bytes]]]:
    """Take qlog out of what the senders' programs printed, and return each flow's records."""
    qlogs = []
    for one in ended:
        for name in ("stdout", "stderr"):
            one[name], records = qlog.split(one[name])
            if records and not one["at_receiver"]:
                qlogs.append((one["flow"], records))
    return qlogs


def _with_qlog(
    samples: pl.DataFrame, qlogs: list[tuple[int, list[bytes]]], connections: pl.DataFrame, run: Run
) -> pl.DataFrame:
    """Return the sockets' samples and those that programs wrote themselves, of each flow's first connection of UDP."""
    of_quic, controls = quic.of_traffic(run.scenario.traffic), [row["cc"] for row in flow_columns(run.scenario)]
    units_of = None if of_quic is None else of_quic[0].qlog
    frames = [samples]
    for flow, records in qlogs:
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
