#!/usr/bin/env python3
"""Compare the cost of a sweep of `brobust watch` with `ss -tin`, for 10 000 idle and 100 busy connections:

    sudo .venv/bin/python benchmarks/watch_cost.py [--idle 10000] [--busy 100] [--repeat 9]

It works in a separate network namespace. Both ends of each connection are there, so twice as many sockets are read.
*floor* asks the kernel for the same and ignores the answer: the minimum for any program that reads all sockets. The
three take turns. The results are medians of CPU time in ms, user and system, with minimum and maximum; ratios are taken
within a turn. It takes about a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spread import shown

from brobust.host.programs import host_program

INSIDE = "--inside"
WARM_UP = 12
"""Sweeps before the ones that count: as many as a window of 20 s holds."""

SOCK_DIAG = 4
"""The protocol NETLINK_SOCK_DIAG."""
WANTED = 1 << 1 | 1 << 2 | 1 << 3
"""INET_DIAG_INFO, _VEGASINFO and _CONG, as crates/sockdiag asks for them."""
STATES = 1 << 1 | 1 << 4 | 1 << 8
"""Established, FIN-WAIT-1 and CLOSE-WAIT."""
DONE = struct.pack("=IH", 20, 3)
"""The beginning of the last message of a dump, which is 20 bytes long."""


def cpu_ms(who: int) -> float:
    """Return user plus system time. The kernel accounts for the sum exactly; it only samples the parts."""
    used = resource.getrusage(who)
    return (used.ru_utime + used.ru_stime) * 1e3


def costs(work: Callable[[], object], who: int = resource.RUSAGE_SELF) -> tuple[float, float]:
    """Return the wall-clock and CPU time of a call, ms."""
    begun, before = time.perf_counter(), cpu_ms(who)
    work()
    return (time.perf_counter() - begun) * 1e3, cpu_ms(who) - before


@contextlib.contextmanager
def connections(count: int) -> Iterator[None]:
    """Open idle connections over loopback, with both ends in this process."""
    # As many as allowed: a container may not raise its limit.
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if 2 * count + 100 > limit:
        sys.exit(f"--idle {count} takes {2 * count + 100} open files, and {limit} are allowed (ulimit -Hn); give fewer")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))
        for _ in range(count):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            stack.enter_context(listener.accept()[0])
        yield


@contextlib.contextmanager
def traffic(count: int) -> Iterator[None]:
    """Open connections that send a little all the time."""
    client = ["iperf3", "-c", "127.0.0.1", "-P", str(count), "-b", "200k", "-l", "1000", "-t", "600"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["iperf3", "-s"], **quiet) as server:  # type: ignore[call-overload]
        time.sleep(0.5)
        with subprocess.Popen(client, **quiet) as sender:  # type: ignore[call-overload]
            try:
                time.sleep(2)
                yield
            finally:
                sender.kill()
                server.kill()


@contextlib.contextmanager
def sweeps() -> Iterator[Iterator[tuple[float, float]]]:
    """Let `brobust watch --json` sweep every two seconds; yield the wall-clock and CPU time of each sweep, ms.

    The CPU time is that of its thread since the sweep before, so writing the sweep and waiting for the next one are
    included.
    """
    command = [str(host_program()), "watch", "--json", "--interval", "2s", "--window", "20s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        used = Path(f"/proc/{process.pid}/schedstat")

        def each() -> Iterator[tuple[float, float]]:
            assert process.stdout is not None
            before = 0
            for line in process.stdout:
                now = int(used.read_text().split()[0])
                yield json.loads(line)["took_ms"], (now - before) / 1e6
                before = now

        yield each()
        process.terminate()


def list_by_ss() -> None:
    subprocess.run(["ss", "-tin"], stdout=subprocess.DEVNULL, check=True)


def receive_only() -> None:
    """Receive the dumps of a sweep and discard them."""
    datagram = bytearray(1 << 16)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, WANTED, 0, STATES)
            kernel.send(struct.pack("=IHHII", 16 + len(body), 20, 0x301, 1, 0) + body)
            while True:
                length = kernel.recv_into(datagram)
                if datagram[length - 20 : length - 14] == DONE:
                    break


def measure(idle: int, busy: int, repeats: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    turns = []
    with connections(idle), traffic(busy), sweeps() as costs_of_sweeps:
        for _ in range(WARM_UP):
            next(costs_of_sweeps)
        for _ in range(repeats):
            turns.append((next(costs_of_sweeps), costs(list_by_ss, resource.RUSAGE_CHILDREN), costs(receive_only)))
    print(f"| {2 * (idle + busy)} sockets, n = {repeats} | wall, ms | CPU, ms |")
    print("|---|--:|--:|")
    for name, each in zip(("brobust watch", "ss -tin", "floor"), zip(*turns, strict=True), strict=True):
        print(f"| {name} | {shown([wall for wall, _ in each])} | {shown([cpu for _, cpu in each])} |")
    over_floor = [ours / floor for (_, ours), _, (_, floor) in turns]
    less = [of_ss / ours for (_, ours), (_, of_ss), _ in turns]
    print(f"\n{shown(over_floor, 2)} times the floor; ss takes {shown(less)} times as much")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections [10000]")
    parser.add_argument("--busy", type=int, default=100, help="busy ones [100]")
    parser.add_argument("--repeat", type=int, default=9, help="sweeps of each [9]")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.idle, options.busy, options.repeat)
    else:
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, INSIDE])


if __name__ == "__main__":
    main()
