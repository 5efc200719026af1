#!/usr/bin/env python3
"""Run `make test` again and again, each time in a fresh clone, and say how long each stage took and how it ended:

    .venv/bin/python benchmarks/complete_tests.py --runs 20 --loaded 10 --out complete-tests

No run is repeated until it passes: each is a line of OUT/runs.csv, and keeps its output in OUT. `stolen` is the part
of the CPUs' time that this machine's hypervisor gave to others. A later call with the same OUT adds to them; one with
--before continues another call's table. The cache (kernels, packages, crates) is the user's own, so it is warm from the
second run on; with --machine, any python3 can do this on a machine that has nothing else. The last runs, as many as
--loaded says, have a load beside them: a process on each CPU that takes a third of it, 40 of 120 ms, and a compiler
that is busy for some seconds and then away for as long.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
# "code" is lint, Rust's tests and what compiles, side by side; lint and compiles were stages of their own until run 12,
# and Rust's tests a part of unit.
STAGES = ("tools", "lint", "code", "unit", "compiles", "virtual", "vm")
STAGE = re.compile(rb"^== (\w+)$")  # the Makefile's own line at the beginning of a stage
# Of pytest, of cargo (which also prints names of tests that passed), of make.
FAILED = re.compile(
    rb"^(?:FAILED|ERROR) (\S+)|^error: test failed, to rerun pass `(.*)`|^make(?:\[\d+\])?: \*\*\* (.*)", re.MULTILINE
)

A_THIRD = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    end = time.monotonic() + 0.04
    while time.monotonic() < end:
        pass
    time.sleep(0.08)
"""
A_COMPILER = """
import pathlib, random, subprocess, sys, time
directory = pathlib.Path(sys.argv[1])
source = directory / "busy.c"
source.write_text("".join(f"double f{i}(double x) {{ return x * {i}.5 + (x > {i} ? f{i - 1}(x) : 1); }}\\n"
                          if i else "double f0(double x) { return x; }\\n" for i in range(4000)))
while True:
    begun = time.monotonic()
    subprocess.run(["cc", "-O2", "-c", source, "-o", directory / "busy.o"], check=True)
    time.sleep(min(time.monotonic() - begun, 20) * random.uniform(0.5, 1.5))
"""


@contextlib.contextmanager
def load(directory: Path) -> Iterator[None]:
    """Keep the machine busy with what its users may do beside the tests."""
    of_cpus = [[sys.executable, "-c", A_THIRD, str(cpu)] for cpu in sorted(os.sched_getaffinity(0))]
    with contextlib.ExitStack() as until_done:
        for command in [*of_cpus, [sys.executable, "-c", A_COMPILER, str(directory)]]:
            process = until_done.enter_context(subprocess.Popen(command))
            until_done.callback(process.kill)
        yield


def run(number: int, loaded: bool, called: str, out: Path) -> dict[str, str]:
    """Run `make test` in a fresh clone and return the row of the table."""
    clone = out / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    log, begun, stages = out / f"run-{number}.log", time.monotonic(), {}
    with contextlib.ExitStack() as beside, log.open("wb", buffering=0) as written:
        if loaded:
            beside.enter_context(load(out))
        make = beside.enter_context(
            subprocess.Popen(
                ["make", "test"], cwd=clone, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        )
        assert make.stdout is not None
        before = cpu_ticks()
        for line in make.stdout:
            written.write(line)
            if found := STAGE.match(line):
                stages[found[1].decode()] = time.monotonic()
    stolen, counted = (now - then for now, then in zip(cpu_ticks(), before, strict=True))
    edges = [*stages.values(), time.monotonic()]
    minutes = {stage: (end - start) / 60 for stage, start, end in zip(stages, edges, edges[1:], strict=False)}
    reported = FAILED.finditer(log.read_bytes()) if make.returncode else ()
    failures = [next(group for group in one.groups() if group).decode(errors="replace") for one in reported]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=clone, check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        "run": str(number),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "machine": called,
        "load": "yes" if loaded else "no",
        "stolen": f"{stolen / counted:.0%}",
        **{stage: f"{minutes[stage]:.1f}" if stage in minutes else "" for stage in STAGES},
        "minutes": f"{(edges[-1] - begun) / 60:.1f}",
        "outcome": outcome(failures) if make.returncode else "green",
    }


def cpu_ticks() -> tuple[int, int]:
    """Return how long this machine's hypervisor gave its CPUs to others, and how long they counted at all
    (proc_stat(5))."""
    clocks = [int(clock) for clock in Path("/proc/stat").read_text().split()[1:9]]
    return clocks[7], sum(clocks)


def outcome(failures: list[str]) -> str:
    more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
    return f"red: {failures[0] if failures else 'make'}{more}"


def read(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def write(rows: list[dict[str, str]], file: Path) -> None:
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[-1]), restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="how many runs [20]")
    parser.add_argument("--loaded", type=int, default=10, help="how many of them, the last, have a load beside [10]")
    parser.add_argument("--out", type=Path, default=Path("complete-tests"), help="directory for outputs and runs.csv")
    parser.add_argument("--before", type=Path, help="runs.csv of another call, which this one continues")
    parser.add_argument("--machine", help="what this machine is called [its CPUs]")
    parsed = parser.parse_args()
    if parsed.runs < 1:
        parser.error(f"--runs: {parsed.runs} is too few; give 1 or more")
    if parsed.before and not parsed.before.is_file():
        parser.error(f"--before: {parsed.before} is no file; give the runs.csv of another call")
    if parsed.machine is None:  # else this needs nothing that `make setup` installs: the caches may be empty
        from brobust.host import machine

        parsed.machine = f"{os.cpu_count()} CPUs of {machine.cpu()}"
    parsed.out.mkdir(parents=True, exist_ok=True)
    out = parsed.out.resolve()
    kept = out / "runs.csv"
    before = kept if kept.exists() else parsed.before
    rows = read(before) if before else []
    for number in range(parsed.runs):
        row = run(len(rows) + 1, number >= parsed.runs - parsed.loaded, parsed.machine, out)
        rows.append(row)
        write(rows, kept)
        print(f"run {row['run']}: {row['minutes']} minutes, {row['outcome']}", file=sys.stderr, flush=True)
    sys.exit(any(row["outcome"] != "green" for row in rows[-parsed.runs :]))


if __name__ == "__main__":
    main()
