"""Kill `brobust run` at random moments and resume it, again and again: is any run lost that was reported as finished?

    .venv/bin/python benchmarks/kill_loop.py [--rounds 200] [--seed 1] [--directory DIR]     # needs virtual-6.12

A round is one process, killed with SIGKILL at a random moment within the time that an undisturbed series takes. It is
forked from a process that has imported everything, so that it measures during all of that time. A run is finished when
its JSON line has been printed. After each kill, every finished run must be in the dataset with the figures that were
printed; a complete series must hold each run once, and no leftovers of a killed process. Then the next series begins.
Exit status 1 at the first loss.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brobust import cli, files
from brobust.dataset import Dataset
from brobust.errors import UnreadableFile

SERIES = ["--cc", "cubic,bbr", "--share", "1,0.5", "--bandwidth", "5mbit", "--duration", "1s", "--repeat", "3"]
RUNS = 12


class Loss(Exception):
    """A finished run was lost or changed."""


def forked(work: Callable[[], None], kill_after: float | None = None) -> tuple[str, int]:
    """Fork a process for this work; return what it prints and its exit status."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        status = 0
        try:
            work()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except Loss as loss:
            print(f"LOST: {loss}")
        sys.stdout.flush()
        os._exit(status)
    os.close(writer)
    killer = threading.Timer(kill_after, os.kill, (child, signal.SIGKILL)) if kill_after is not None else None
    if killer is not None:
        killer.start()
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    if killer is not None:
        killer.cancel()
        killer.join()
    return said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(directory: Path, kill_after: float | None) -> tuple[list[dict[str, Any]], bool]:
    """Return the runs that one process reported, and whether it ended by itself."""
    begun = (directory / "dataset.json").exists()
    said, status = forked(
        lambda: cli.main(["run", "--json", "--out", str(directory), *(["--resume"] if begun else SERIES)]), kill_after
    )
    # A line that was cut off was not reported.
    whole = [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
    if status not in (0, -signal.SIGKILL) or not all(line.startswith("{") for line in whole):
        raise Loss(f"run --out {directory} ended with {status}: {said}")
    return [json.loads(line) for line in whole], status == 0


def checked(directory: Path, reported: dict[str, dict[str, Any]]) -> int:
    """Call `check` in a separate process, since a process that forks should have no threads."""
    said, _ = forked(lambda: print(check(directory, reported)))
    if not said.strip().isdigit():
        raise Loss(said)
    return int(said)


def check(directory: Path, reported: dict[str, dict[str, Any]]) -> int:
    """Return how many runs the dataset has. Refuse one that lacks a reported run or has other figures for it."""
    if not (directory / "dataset.json").exists():
        if reported:
            raise Loss("the dataset is gone")
        return 0
    dataset = Dataset.open(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadableFile)
        finished = dataset.finished()
        rows = {row["run"]: row for row in dataset.runs().iter_rows(named=True)}
        throughput = set(dataset.throughput()["run"])
    for name, line in reported.items():
        if name not in finished or name not in throughput:
            raise Loss(f"run {name} was reported and is not there")
        if any(rows[name][what] != line[what] for what in ("packet_hash", "throughput_mbps", "outcome")):
            raise Loss(f"run {name} has other figures than were reported")
    if len(finished) != len(rows) or len(dataset.runs()) != len(rows):
        raise Loss("a run is there twice")
    return len(finished)


def main() -> None:
    for late in ("cli.run", "cli.measuring", "backends.virtual"):  # imported where they are used, so in every round
        importlib.import_module(f"brobust.{late}")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=Path, help="where the datasets go [a temporary one]")
    given = parser.parse_args()
    draw, begin = random.Random(given.seed), time.monotonic()
    with tempfile.TemporaryDirectory(dir=given.directory, prefix="kill-loop-") as scratch:
        clock = time.monotonic()
        reported = {line["run"]: line for line in run(Path(scratch) / "whole", None)[0]}
        whole_seconds = time.monotonic() - clock
        if checked(Path(scratch) / "whole", reported) != RUNS:
            raise Loss("a series that nobody killed is not whole")
        kills = complete = in_all = left_over = begun_before = 0
        directory, reported = Path(scratch) / "0", {}
        while kills < given.rounds:
            lines, ended = run(directory, draw.uniform(0, whole_seconds))
            kills += not ended
            in_all += len(lines)
            begun_before += not ended and (directory / "dataset.json").exists()
            if again := reported.keys() & {line["run"] for line in lines}:
                raise Loss(f"measured again though it was finished: {sorted(again)}")
            reported |= {line["run"]: line for line in lines}
            there = checked(directory, reported)
            left_over += len([*directory.rglob(files.SCRATCH)])
            if ended:
                if there != RUNS:
                    raise Loss(f"{there} of {RUNS} runs in a series that is complete")
                if scratches := [*directory.rglob(files.SCRATCH)]:
                    raise Loss(f"left over: {scratches}")
                complete += 1
                directory, reported = Path(scratch) / str(complete), {}
                print(f"{kills} kills, {complete} series, {in_all} runs", file=sys.stderr, flush=True)
        seconds = time.monotonic() - begin
        print(
            f"{kills} kills, {begun_before} of them after the dataset was begun; {in_all} runs reported, none lost; "
            f"{complete} series completed; {left_over} half-written files seen after kills, cleared by the next "
            f"process; {seconds:.0f} s"
        )


if __name__ == "__main__":
    try:
        main()
    except Loss as loss:
        sys.exit(f"LOST: {loss}")
