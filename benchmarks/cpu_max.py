#!/usr/bin/env python3
"""Measure what a CPU limit of a container does to TCP, which the kernel paces, and to QUIC, which paces itself:

    sudo .venv/bin/python benchmarks/cpu_max.py                          # TCP, and each QUIC stack that is built
    sudo .venv/bin/python benchmarks/cpu_max.py --sender tcp:bbr --sender quic:quinn:bbr --limit 50 --period 100

A sender of one bulk flow is in a control group that may use LIMIT percent of a CPU in each PERIOD (ms), as containers
with `cpu.max`, or a Kubernetes limit, are; the period is 100 ms there. A busy process is in the same group, as other
threads of an application would be: without it a sender of 20 Mbit/s needs a few percent of a CPU, and no limit is
reached. The kernel's timers and packets are in no group. Sender and receiver are in network namespaces on either side
of a path of this program: two TUN devices, 20 Mbit/s, RTT 10 ms, a buffer of four BDP, 1500 bytes.

Throughput is what the path has delivered to the receiver in the last three quarters of each run, IP headers included;
`away` is the part of the time for which the kernel has throttled the group. Figures are medians over the repeats, in
brackets the smallest and the largest. This is real time: keep the machine quiet. Root is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spread import shown

from brobust import quic

RATE = 20e6 / 8
ONE_WAY_S = 0.005
BUFFER_BYTES = int(4 * RATE * 2 * ONE_WAY_S)
NAMES = {"sender": ("brobust-cpu-s", "10.99.0.1", "10.99.0.2"), "receiver": ("brobust-cpu-r", "10.99.0.2", "10.99.0.1")}
PORT = 4433
SECONDS = "60"  # more than a run takes, which ends its processes
SENDER_CPU, OTHER_CPU = 0, 1
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000

# What the processes of a TCP flow run. The send buffer is the kernel's default.
TCP_SEND = """
import socket, sys, time
while True:
    flow = socket.socket(); flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[4].encode())
    try: flow.connect((sys.argv[1], int(sys.argv[2]))); break
    except OSError: time.sleep(0.05)
end = time.monotonic() + float(sys.argv[3]); block = bytes(65536)
while time.monotonic() < end: flow.send(block)
"""
TCP_RECEIVE = """
import socket, sys
flow, _ = socket.create_server(("0.0.0.0", int(sys.argv[1]))).accept()
while flow.recv(1 << 20): pass
"""


@dataclass
class Direction:
    """What is under way from one end to the other: departure times and packets, in order."""

    rate: float | None
    """Bytes/s; None: as fast as packets come."""
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    free: float = 0
    """When the link has sent what is queued, s."""
    delivered: int = 0

    def take(self, packet: bytes, now: float) -> None:
        """Queue a packet, or drop it if the buffer is full."""
        self.free = max(self.free, now)
        if self.rate is not None:
            if (self.free - now) * self.rate + len(packet) > BUFFER_BYTES:
                return
            self.free += len(packet) / self.rate
        self.waiting.append((self.free + ONE_WAY_S, packet))

    def due(self, now: float) -> Iterator[bytes]:
        while self.waiting and self.waiting[0][0] <= now:
            packet = self.waiting.popleft()[1]
            self.delivered += len(packet)
            yield packet


class EmulatedPath:
    """Two network namespaces, joined by two TUN devices and this process."""

    def __init__(self, undo: contextlib.ExitStack) -> None:
        self.ends = []
        for end, (name, own, other) in NAMES.items():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
            ip("netns", "add", name)
            undo.callback(ip, "netns", "del", name)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            undo.callback(os.close, device)
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", f"bb-{end}".encode(), IFF_TUN | IFF_NO_PI))
            ip("link", "set", f"bb-{end}", "netns", name)
            ip("-n", name, "address", "add", own, "peer", other, "dev", f"bb-{end}")
            ip("-n", name, "link", "set", f"bb-{end}", "txqueuelen", "10000", "up")
            ip("-n", name, "link", "set", "lo", "up")
            self.ends.append(device)
        self.directions = (Direction(RATE), Direction(None))

    def carry(self, until: float) -> None:
        """Carry packets until then (s of the monotonic clock)."""
        while (now := time.monotonic()) < until:
            for direction, to in zip(self.directions, reversed(self.ends), strict=True):
                for packet in direction.due(now):
                    with contextlib.suppress(OSError):  # a device whose queue is full
                        os.write(to, packet)
            next_ = min([until, *(one.waiting[0][0] for one in self.directions if one.waiting)])
            ready, _, _ = select.select(self.ends, [], [], max(0, next_ - time.monotonic()))
            for device in ready:
                direction = self.directions[self.ends.index(device)]
                with contextlib.suppress(BlockingIOError):
                    for _ in range(64):
                        direction.take(os.read(device, 65536), time.monotonic())


class Group:
    """A control group that bounds the CPU time of its processes: cpu.max, or what version 1 has for it."""

    def __init__(self, undo: contextlib.ExitStack) -> None:
        one, two = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        offered = two / "cgroup.controllers"
        self.unified = offered.exists() and "cpu" in offered.read_text().split()
        parent = two if self.unified else one
        if not parent.is_dir():
            sys.exit("cpu_max: no control group of /sys/fs/cgroup bounds CPU time here")
        if self.unified:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        self.directory = parent / "brobust-cpu-max"
        self.directory.mkdir(exist_ok=True)
        undo.callback(self.directory.rmdir)

    def bound(self, percent: float | None, period_ms: float) -> None:
        """Let the group use so much of one CPU; None: all."""
        period = int(period_ms * 1000)
        quota = None if percent is None else int(period * percent / 100)
        if self.unified:
            (self.directory / "cpu.max").write_text(f"{'max' if quota is None else quota} {period}")
        else:
            (self.directory / "cpu.cfs_quota_us").write_text("-1")
            (self.directory / "cpu.cfs_period_us").write_text(str(period))
            (self.directory / "cpu.cfs_quota_us").write_text(str(-1 if quota is None else quota))

    def throttled(self) -> float:
        """Return for how long the group has been throttled, s."""
        values = dict(line.split() for line in (self.directory / "cpu.stat").read_text().splitlines())
        return int(values["throttled_usec"]) / 1e6 if self.unified else int(values["throttled_time"]) / 1e9


@dataclass(frozen=True)
class Sender:
    """A transport and a congestion control, such as `tcp:bbr` or `quic:quinn:bbr`."""

    name: str

    @property
    def commands(self) -> tuple[list[str], list[str]]:
        """What sends, for SECONDS, and what receives."""
        kind, *rest = self.name.split(":")
        control, to = rest[-1], NAMES["receiver"][1]
        if kind == "tcp" and len(rest) == 1:
            send = [sys.executable, "-c", TCP_SEND, to, str(PORT), SECONDS, control]
            return send, [sys.executable, "-c", TCP_RECEIVE, str(PORT)]
        if kind == "quic" and len(rest) == 2:
            program = str(quic.find(rest[0]).program)
            return [program, "send", to, str(PORT), SECONDS, control, "on"], [program, "receive", str(PORT)]
        sys.exit(f"cpu_max: --sender {self.name!r} is neither tcp:CONTROL nor quic:STACK:CONTROL")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def start(
    undo: contextlib.ExitStack, command: Sequence[str], end: str | None, cpu: int, group: Group | None = None
) -> None:
    """Start a process at an end of the path, on a CPU, in a group. It ends with `undo`."""

    def prepare() -> None:
        os.sched_setaffinity(0, {cpu})
        if group is not None:
            (group.directory / "cgroup.procs").write_text(str(os.getpid()))

    inside = ["ip", "netns", "exec", NAMES[end][0]] if end is not None else []
    process = subprocess.Popen(
        [*inside, *command], preexec_fn=prepare, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    undo.callback(process.wait)
    undo.callback(process.kill)


def measure(sender: Sender, limit: float | None, period_ms: float, seconds: float, busy: bool) -> dict[str, float]:
    """Return the throughput in Mbit/s, and the part of the time for which the group was throttled."""
    with contextlib.ExitStack() as undo:
        path, group = EmulatedPath(undo), Group(undo)
        group.bound(limit, period_ms)
        send, receive = sender.commands
        with contextlib.ExitStack() as running:
            start(running, receive, "receiver", OTHER_CPU)
            path.carry(time.monotonic() + 0.5)
            if busy:
                start(running, [sys.executable, "-c", "while True: pass"], None, SENDER_CPU, group)
            start(running, send, "sender", SENDER_CPU, group)
            path.carry(time.monotonic() + seconds / 4)
            begin, throttled, delivered = time.monotonic(), group.throttled(), path.directions[0].delivered
            path.carry(begin + seconds * 3 / 4)
            took = time.monotonic() - begin
            figures = {
                "mbps": (path.directions[0].delivered - delivered) * 8 / took / 1e6,
                "away": (group.throttled() - throttled) / took,
            }
        time.sleep(0.05)  # a group is empty a moment after its processes have ended
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sender", action="append", type=Sender, help="tcp:CONTROL or quic:STACK:CONTROL")
    parser.add_argument("--limit", action="append", type=float, help="percent of a CPU")
    parser.add_argument("--period", action="append", type=float, help="ms")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--json", type=Path, help="also write each run as a line of this file")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("cpu_max: it makes namespaces and control groups, which needs root")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("cpu_max: it needs two CPUs, one for the sender and one for the path")
    built = [stack for stack in quic.STACKS.values() if stack.state == "built"]
    stacks = [Sender(f"quic:{stack.name}:{control}") for stack in built for control in stack.controls]
    senders = given.sender or [Sender("tcp:cubic"), Sender("tcp:bbr"), *stacks]
    os.sched_setaffinity(0, {OTHER_CPU})
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))
    cells: list[tuple[float | None, float]] = [(None, 100)]
    cells += [(limit, period) for period in given.period or [100, 20] for limit in given.limit or [50, 25]]
    heads = ["all" if limit is None else f"{limit:g} % of {period:g} ms" for limit, period in cells]
    print("| sender | " + " | ".join(heads) + " |\n|---|" + "--:|" * len(heads), flush=True)
    away: dict[str, list[float]] = {head: [] for head in heads}
    for sender in senders:
        row = []
        for head, (limit, period) in zip(heads, cells, strict=True):
            runs = [measure(sender, limit, period, given.seconds, busy=limit is not None) for _ in range(given.repeat)]
            away[head] += [run["away"] for run in runs]
            row.append(shown([run["mbps"] for run in runs], 1))
            if given.json is not None:
                about = {"sender": sender.name, "limit_percent": limit, "period_ms": period}
                with given.json.open("a") as lines:
                    lines.writelines(json.dumps({**about, **run}) + "\n" for run in runs)
        print(f"| {sender.name} | " + " | ".join(row) + " |", flush=True)
    print("| away, of all | " + " | ".join(shown(values, 2) for values in away.values()) + " |")


if __name__ == "__main__":
    main()
