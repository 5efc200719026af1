"""Kill `brobust run` at random moments and resume it, again and again: is any run lost that was reported as finished?

    .venv/bin/python benchmarks/kill_loop.py [--rounds 200] [--seed 1] [--directory DIR]     # needs virtual-6.12

A round is one process, killed with SIGKILL at a moment drawn from the time from just before its first run until its
end, as a series took that nobody killed. A run is finished when its JSON line has been printed. After each kill every
one of them must be in the dataset with the figures that were printed; a complete series must hold each run once,
and nothing that a killed process left. Then the next series is begun. Exit status 1 at the first loss.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from brobust import files
from brobust.dataset import Dataset
from brobust.errors import UnreadableFile

BROBUST = Path(sys.executable).parent / "brobust"
SERIES = ["--cc", "cubic,bbr", "--share", "1,0.5", "--duration", "1s", "--repeat", "6", "--samples", "100ms"]
RUNS = 24


class Loss(Exception):
    """What must not happen."""


def run(directory: Path, kill_after: float | None) -> tuple[list[dict[str, Any]], bool]:
    """The runs that one process reported, and whether it came to its end."""
    begun = (directory / "dataset.json").exists()
    command = [str(BROBUST), "run", "--json", "--out", str(directory), *(["--resume"] if begun else SERIES)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, errors = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        said, errors = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL) or errors:
        raise Loss(f"{command} ended with {process.returncode}: {errors}")
    # A line that was cut off was not reported.
    whole = [line for line in said.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole], process.returncode == 0


def check(directory: Path, reported: dict[str, dict[str, Any]]) -> int:
    """How many runs the dataset has; refuses one that lacks a reported run, or has other figures of it."""
    if not (directory / "dataset.json").exists():
        if reported:
            raise Loss("the dataset is gone")
        return 0
    dataset = Dataset.open(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnreadableFile)
        finished = dataset.finished()
        rows = {row["run"]: row for row in dataset.runs().iter_rows(named=True)}
        tables = [set(table["run"]) for table in (dataset.throughput(), dataset.samples())]
    for name, line in reported.items():
        if name not in finished or any(name not in table for table in tables):
            raise Loss(f"run {name} was reported and is not there")
        if any(rows[name][what] != line[what] for what in ("packet_hash", "throughput_mbps", "outcome")):
            raise Loss(f"run {name} has other figures than were reported")
    return len(finished)


def main() -> None:
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
        first_run = whole_seconds - (time.time() - (Path(scratch) / "whole" / "dataset.json").stat().st_mtime)
        if check(Path(scratch) / "whole", reported) != RUNS:
            raise Loss("a series that nobody killed is not whole")
        kills = complete = in_all = left_over = begun_before = 0
        directory, reported = Path(scratch) / "0", {}
        while kills < given.rounds:
            lines, ended = run(directory, draw.uniform(0.9 * first_run, whole_seconds))
            kills += not ended
            in_all += len(lines)
            begun_before += not ended and (directory / "dataset.json").exists()
            if again := reported.keys() & {line["run"] for line in lines}:
                raise Loss(f"measured again though it was finished: {sorted(again)}")
            reported |= {line["run"]: line for line in lines}
            there = check(directory, reported)
            left_over += len([*directory.rglob(files.SCRATCH)])
            if ended:
                if there != RUNS or len(Dataset.open(directory).runs()) != RUNS:
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
