#!/usr/bin/env python3
"""Measure what programs in virtual time cost the host:

    .venv/bin/python benchmarks/program_cost.py                  # the QUIC stacks that are built
    .venv/bin/python benchmarks/program_cost.py --traffic quic:quinn --bandwidth 20mbit --repeat 5

The host's CPU time for a second of virtual time of one flow with all of its CPU, RTT 10 ms, a buffer of four BDP: the
difference of a run of 8 s and one of 2 s, without the start of Python and of the kernels. Median, and the smallest and
the largest of the repeats. This is CPU time, but a busy host makes it longer: keep the machine quiet.
"""

from __future__ import annotations

import argparse
import resource

from spread import shown

import brobust
from brobust import quic

SHORT_S, LONG_S = 2, 8


def cpu_seconds(traffic: str, bandwidth: str, seconds: int, repeat: int) -> float:
    """Return the CPU time of a run, this process and the kernels together, s."""
    before = _used()
    stack = quic.STACKS.get(traffic.removeprefix(quic.PREFIX).split()[0])
    control = "bbr" if stack is None or "bbr" in stack.controls else stack.controls[0]
    brobust.run(
        {
            "traffic": traffic, "flows": [{"cc": control}], "duration": f"{seconds}s", "contention": {"share": 1},
            "path": {"bandwidth": bandwidth, "rtt": "10ms", "buffer": "4bdp"},
        },
        repeat=repeat,
    )  # fmt: skip
    return _used() - before


def _used() -> float:
    of_both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in of_both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traffic", action="append")
    parser.add_argument("--bandwidth", action="append")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    built = [f"{quic.PREFIX}{stack.name}" for stack in quic.STACKS.values() if stack.state == "built"]
    bandwidths = given.bandwidth or ["20mbit", "100mbit"]
    print("| traffic | " + " | ".join(bandwidths) + " |\n|---|" + "--:|" * len(bandwidths))
    for traffic in given.traffic or ["brobust", *built]:
        row = []
        cpu_seconds(traffic, bandwidths[0], 1, 0)  # the first run also packs the programs
        for bandwidth in bandwidths:
            pairs = [
                [cpu_seconds(traffic, bandwidth, seconds, repeat) for seconds in (SHORT_S, LONG_S)]
                for repeat in range(given.repeat)
            ]
            row.append(shown([(long - short) / (LONG_S - SHORT_S) for short, long in pairs], 2))
        print(f"| {traffic} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
