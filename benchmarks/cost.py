"""Measure what a control costs its kernel: nanoseconds per ACK, from the kernel's statistics of BPF programs.

    sudo .venv/bin/python benchmarks/cost.py [--kernel debian-6.12] [--repeats 5] [--host | --gigabyte]

It runs in a VM, or with --host on this machine over loopback, which shows the cost on a real CPU where VMs are emulated
(TCG). Controls take turns. "bbr" is the kernel's own BBR behind a BPF program that only calls it (bbr_robust with its
repair off), so that both sides of a ratio include the clock of the statistics. A program that only returns a constant
(sndbuf_expand) shows what that clock costs; the last columns are without it.

With --gigabyte: seconds that an undisturbed VM's vCPU was busy for each gigabyte of payload. This counts everything
that runs in the VM (iperf3, the stack, QEMU's translation of both); the statistics are off, and bbr is the kernel's
own, unwrapped.
"""

from __future__ import annotations

import json
import socket
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import spread
import typer

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import name_of
from brobust.host.programs import ask_host_program
from brobust.scenario import Run, Scenario

CONTROLS = {
    "bbr": "bbr_robust:robust_repair=off",
    "bbr_robust": "bbr_robust",
    "bbr_steady": "bbr_steady",
    "brb_bbr1": "brb_bbr1",
    "brb_bbr1_robust": "brb_bbr1_robust",
    "brb_bbr1_steady": "brb_bbr1_steady",
    "brb_bbr3": "brb_bbr3",
    "brb_bbr3_robust": "brb_bbr3_robust",
    "brb_bbr3_steady": "brb_bbr3_steady",
    "brb_cubic": "brb_cubic",
}
PER_GIGABYTE = ("bbr", "bbr_robust", "bbr_steady", "cubic")
PER_ACK = ("cong_control", "cong_avoid", "pkts_acked")
PER_PASS = "min_tso_segs"  # of the stack's write loop
TCP_CONGESTION = 13
STATISTICS = Path("/proc/sys/kernel/bpf_stats_enabled")

# Runs and nanoseconds of one callback.
Cost = dict[str, tuple[int, int]]


def main(
    kernel: Annotated[str, typer.Option(help="of the VM")] = "debian-6.12",
    repeats: Annotated[int, typer.Option(min=1)] = 5,
    host: Annotated[bool, typer.Option("--host", help="this machine's kernel, over loopback")] = False,
    gigabyte: Annotated[bool, typer.Option("--gigabyte", help="CPU seconds per gigabyte in a VM")] = False,
) -> None:
    if gigabyte:
        _per_gigabyte(kernel, repeats)
        return
    where = _host() if host else _vm(kernel)
    per_ack: dict[str, list[float]] = defaultdict(list)
    per_pass: dict[str, list[float]] = defaultdict(list)
    clock: list[float] = []
    with where as measure:
        for repeat in range(repeats):
            for name, control in CONTROLS.items():
                cost = measure(control, repeat)
                acks = max(runs for callback, (runs, _) in cost.items() if callback in PER_ACK)
                per_ack[name].append(sum(ns for callback, (_, ns) in cost.items() if callback in PER_ACK) / acks)
                if passes := cost.get(PER_PASS, (0, 0))[0]:
                    per_pass[name].append(cost[PER_PASS][1] / passes)
                if runs := cost.get("sndbuf_expand", (0, 0))[0]:
                    clock.append(cost["sndbuf_expand"][1] / runs)
    empty = statistics.median(clock)
    native = statistics.median(per_ack["bbr"])
    print(f"a program that returns a constant: {empty:.0f} ns (median of {len(clock)})\n")
    print("| control | ns per ACK, median of runs | min | max | of bbr | of bbr, without the clock | ns per pass |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, values in per_ack.items():
        median = statistics.median(values)
        ratio, net = median / native, (median - empty) / (native - empty)
        each_pass = f"{statistics.median(per_pass[name]):.0f}" if per_pass[name] else ""
        print(
            f"| {name} | {median:.0f} | {min(values):.0f} | {max(values):.0f} | {ratio:.2f} | {net:.2f} | {each_pass} |"
        )


def _per_gigabyte(kernel: str, repeats: int) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    with backends.opened("vm", lambda _: None) as backend:
        for repeat in range(repeats):
            for control in PER_GIGABYTE:
                (row,) = backend.measure(Run(scenario=_scenario(kernel, control), repeat=repeat)).runs
                gigabytes = row["throughput_mbps"] * row["duration_s"] / 8e3
                seconds[control].append((1 - row["asleep_share"]) * row["duration_s"] / gigabytes)
    native = statistics.median(seconds["bbr"])
    print("| control | CPU seconds per GB, median of runs | min | max | of bbr |")
    print("|---|--:|--:|--:|--:|")
    for control, values in seconds.items():
        median = statistics.median(values)
        print(f"| {control} | {median:.1f} | {min(values):.1f} | {max(values):.1f} | {median / native:.3f} |")


def _scenario(kernel: str, control: str) -> Scenario:
    return Scenario.model_validate(
        {
            "backend": "vm",
            "kernel": kernel,
            "duration": "10s",
            "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
            "flows": [{"cc": control}],
        }
    )


Measure = Callable[[str, int], Cost]


@contextmanager
def _vm(kernel: str) -> Iterator[Measure]:
    with backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        backend.ask_sender("bash", "-c", f"echo 1 > {STATISTICS}", kernel=kernel)

        def measure(control: str, repeat: int) -> Cost:
            backend.measure(Run(scenario=_scenario(kernel, control), repeat=repeat))
            programs = json.loads(backend.ask_sender("brobust", "cc", "programs", name_of(control)))
            now = {p["callback"]: (p["runs"], p["run_time_ns"]) for p in programs}
            backend.forget_control(control)
            return now

        yield measure


@contextmanager
def _host() -> Iterator[Measure]:
    previous = STATISTICS.read_text()
    STATISTICS.write_text("1")
    try:
        yield lambda control, _: _on_host(control)
    finally:
        STATISTICS.write_text(previous)


def _on_host(control: str) -> Cost:
    name, *settings = control.split(":")
    ask_host_program("cc", "load", name, "--pin", *(word for setting in settings for word in ("--param", setting)))
    try:
        _transfer(name)
        programs = ask_host_program("cc", "programs", name)
        return {program["callback"]: (program["runs"], program["run_time_ns"]) for program in programs}
    finally:
        ask_host_program("cc", "unload", name)


def _transfer(control: str) -> None:
    """Send a GiB over loopback under a control."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def receive() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(1 << 20):
                    pass

        receiver = threading.Thread(target=receive)
        receiver.start()
        with socket.create_connection(server.getsockname()) as sender:
            sender.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, control.encode())
            chunk = bytes(1 << 20)
            for _ in range(1024):
                sender.sendall(chunk)
        receiver.join()


if __name__ == "__main__":
    spread.run(lambda: typer.run(main))
