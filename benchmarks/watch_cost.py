#!/usr/bin/env python3
"""What a sweep of `brobust watch` costs beside `ss -tin`, with 10 000 idle connections and 100 busy ones:

    sudo .venv/bin/python benchmarks/watch_cost.py [--idle 10000] [--repeat 9]

in a network namespace of its own; both ends are there, so twice as many sockets are read. Watch and ss take turns.
*floor* is the kernel's part of a sweep (system time): what nobody who reads all sockets can do without. Medians of CPU
time in ms, with the least and the greatest. Takes about a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from brobust import _core

INSIDE = "--inside"
BUSY = 100
IPERF3_PORT = 5201


def usage(who: int) -> tuple[float, float]:
    """User and system time, ms."""
    used = resource.getrusage(who)
    return used.ru_utime * 1e3, used.ru_stime * 1e3


def costs(work: Callable[[], object], who: int) -> tuple[float, float, float]:
    """Wall, user and system time of it, ms."""
    begun, before = time.perf_counter(), usage(who)
    work()
    after, wall = usage(who), (time.perf_counter() - begun) * 1e3
    return wall, after[0] - before[0], after[1] - before[1]


@contextlib.contextmanager
def connections(count: int) -> Iterator[None]:
    """Idle ones, over loopback, both ends here."""
    # As many as may be had: a container may not raise what it was given.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if 2 * count + 100 > most:
        sys.exit(f"--idle {count} takes {2 * count + 100} open files, and {most} are allowed (ulimit -Hn); give fewer")
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))
        for _ in range(count):
            stack.enter_context(socket.create_connection(listener.getsockname()))
            stack.enter_context(listener.accept()[0])
        yield


@contextlib.contextmanager
def traffic() -> Iterator[None]:
    """Connections that send a little all the time."""
    client = ["iperf3", "-c", "127.0.0.1", "-P", str(BUSY), "-b", "200k", "-l", "1000", "-t", "600"]
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


def list_by_ss() -> None:
    subprocess.run(["ss", "-tin"], stdout=subprocess.DEVNULL, check=True)


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


def measure(idle: int, repeats: int) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    watch = _core.Watch(10.0)
    ours, theirs = [], []
    with connections(idle), traffic():
        watch.sweep(20)  # the first one makes all the histories
        for _ in range(repeats):
            ours.append(costs(lambda: watch.sweep(20), resource.RUSAGE_SELF))
            theirs.append(costs(list_by_ss, resource.RUSAGE_CHILDREN))
            time.sleep(0.5)
    floor = [system for _, _, system in ours]
    total, of_ss = ([user + system for _, user, system in turns] for turns in (ours, theirs))
    print(f"| {2 * (idle + BUSY)} sockets, n = {repeats} | wall, ms | CPU, ms | of it in the kernel |")
    print("|---|--:|--:|--:|")
    for name, turns, sums in (("brobust watch", ours, total), ("ss -tin", theirs, of_ss)):
        print(f"| {name} | {shown([t[0] for t in turns])} | {shown(sums)} | {shown([t[2] for t in turns])} |")
    over_floor = statistics.median(a / b for a, b in zip(total, floor, strict=True) if b > 0)
    less = statistics.median(b / a for a, b in zip(total, of_ss, strict=True) if a > 0)
    print(f"\n{over_floor:.2f} times the floor; ss takes {less:.1f} times as much")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10_000, help="idle connections [10000]")
    parser.add_argument("--repeat", type=int, default=9, help="sweeps of each [9]")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.idle, options.repeat)
    else:
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, INSIDE])


if __name__ == "__main__":
    main()
