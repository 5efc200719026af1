#!/usr/bin/env python3
"""Compare what a virtual second costs here with what it costs in another checkout, in turns:

    git worktree add ../before COMMIT && make -C ../before setup
    .venv/bin/python benchmarks/against.py ../before [--cache DIR] [--repeat 5]

Each checkout runs the same scenarios with its own Python and its own kernel. --cache is the BROBUST_CACHE of the other
one, if it has its own. A figure is the CPU time of a run of the longer duration less that of the shorter, user and
system, controller and kernels, without the start of either; the last row is that start, with imports that are done. A
ratio is of one turn. Median, and the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from spread import shown

HERE = Path(__file__).resolve().parent.parent
ADAPTIVE = {"nic": {"adaptive_rx": "on"}}

MEASURE = """
import json, resource, sys
import brobust

def used():
    both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)

def cpu_seconds(scenario, seconds):
    before = used()
    brobust.run({**scenario, "duration": f"{seconds}s"}, repeat=0)
    return used() - before

found = {}
for name, (scenario, short, long) in json.loads(sys.argv[1]).items():
    cpu_seconds(scenario, 1)
    starts = cpu_seconds(scenario, short)
    found[name] = starts if short == long else (cpu_seconds(scenario, long) - starts) / (long - short)
print(json.dumps(found))
"""


def cell(cc: str, bandwidth: str, short: int, long: int, **more: Any) -> tuple[dict[str, Any], int, int]:
    """Return a scenario of one flow and its two durations, s."""
    path = {"bandwidth": bandwidth, "rtt": "10ms", "buffer": "4bdp"}
    return {"flows": [{"cc": cc}], "contention": {"share": 1}, "path": path, **more}, short, long


CELLS = {
    "cubic, 100 Mbit/s": cell("cubic", "100mbit", 2, 22),
    "bbr, 100 Mbit/s": cell("bbr", "100mbit", 2, 22),
    "bbr, 100 Mbit/s, starved (25 % in 10 ms)": cell(
        "bbr", "100mbit", 5, 65, contention={"share": 0.25, "timeslice": "10ms"}
    ),
    "cubic, 1 Gbit/s": cell("cubic", "1gbit", 1, 5),
    "bbr, 1 Gbit/s": cell("bbr", "1gbit", 1, 5),
    "cubic, 100 flows, 100 Mbit/s": cell("cubic", "100mbit", 2, 12, flows=[{"cc": "cubic", "count": 100}]),
    "start and end of a run": cell("bbr", "1mbit", 1, 1),
}
"""What both checkouts can run."""

HERE_ONLY = {
    "cubic, 1 Gbit/s": cell("cubic", "1gbit", 1, 5, **ADAPTIVE),
    "bbr, 1 Gbit/s": cell("bbr", "1gbit", 1, 5, **ADAPTIVE),
}
"""The same with the NIC of a 25G host, beside the other checkout's interrupt for every frame."""


def measured(checkout: Path, cache: str | None, cells: dict[str, Any]) -> dict[str, float]:
    environment = {**os.environ, **({"BROBUST_CACHE": cache} if cache else {})}
    command = [str(checkout / ".venv/bin/python"), "-c", MEASURE, json.dumps(cells)]
    done = subprocess.run(command, env=environment, cwd=checkout, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--cache")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    there, here, adaptive = [], [], []
    for _ in range(given.repeat):
        there.append(measured(given.checkout, given.cache, CELLS))
        here.append(measured(HERE, None, CELLS))
        adaptive.append(measured(HERE, None, HERE_ONLY))
    print("| CPU s of a virtual s | there | here | ratio |\n|---|--:|--:|--:|")
    for rows, cells, suffix in ((here, CELLS, ""), (adaptive, HERE_ONLY, ", adaptive NIC here")):
        for name in cells:
            before, after = [row[name] for row in there], [row[name] for row in rows]
            ratio = [one / other for one, other in zip(before, after, strict=True)]
            print(f"| {name}{suffix} | {shown(before, 4)} | {shown(after, 4)} | {shown(ratio, 2)} |")


if __name__ == "__main__":
    main()
