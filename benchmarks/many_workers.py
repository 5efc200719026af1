"""Measure whether a cluster's workers are kept busy: 64 of them, on one machine, with recorded run times.

    .venv/bin/python benchmarks/many_workers.py [--workers 64] [--slower 5] [--repeat 30] [--repeats 5]

A real dask scheduler in its own process, and workers in another. A run of theirs only sleeps, as long as one took
(tests/run_times.json: 0.1 to 1.5 s for 10 virtual seconds, on a busy machine), times `--slower`. They return what a run
of virtual time returns. The client is brobust's own (series/cluster.py), and writes a dataset. Efficiency is the sum of
all sleeps over workers x wall time: until the last run has ended, and until there is no run left to begin, since at the
end of a series workers have nothing to do.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

import brobust
from brobust.dataset import Dataset, Measured, flow_columns, scenario_columns
from brobust.scenario import Grid, Run
from brobust.series import cluster, runner

if TYPE_CHECKING:
    from distributed import Client

TIMES = Path(brobust.__file__).parents[2] / "tests" / "run_times.json"  # dask copies this file elsewhere
RECORDED = [row[-1] for row in json.loads(TIMES.read_text())]
WAIT = 60  # s
SLOWER = "BROBUST_BENCHMARK_SLOWER"


def main(
    workers: Annotated[int, typer.Option(min=1)] = 64,
    slower: Annotated[float, typer.Option(min=0, help="than recorded")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="of each recorded run")] = 30,
    repeats: Annotated[int, typer.Option(min=1, help="of the whole series")] = 5,
) -> None:
    from distributed import Client

    whole, full = [], []
    with tempfile.TemporaryDirectory() as scratch:
        options = ["--scheduler-file", "s.json", "--no-dashboard"]
        started: list[subprocess.Popen[bytes]] = []

        def start(name: str, *arguments: str) -> None:
            with (Path(scratch) / "log").open("ab") as log:
                command = [sys.executable, "-m", f"distributed.cli.{name}", *options, *arguments]
                started.append(subprocess.Popen(command, cwd=scratch, stdout=log, stderr=log))

        os.environ[SLOWER] = str(slower)
        try:
            start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
            _wait_for(Path(scratch) / "s.json")
            start("dask_worker", "--nthreads", str(workers), "--no-nanny", "--preload", str(Path(__file__).resolve()))
            with Client(scheduler_file=f"{scratch}/s.json", set_as_default=False) as client:
                client.wait_for_workers(1, timeout=WAIT)
                for number in range(repeats):
                    done = _one(client, Path(scratch) / str(number), workers, slower, repeat, number)
                    whole.append(done[0])
                    full.append(done[1])
        finally:
            for process in started:
                process.kill()
                process.wait()
    for what, values in (("until the last run has ended", whole), ("while there are runs to begin", full)):
        print(f"{workers} workers, {what}: {statistics.median(values):.1%} ({min(values):.1%} - {max(values):.1%})")


def _one(client: Client, directory: Path, workers: int, slower: float, repeat: int, seed: int) -> tuple[float, float]:
    grid = Grid({"seed": seed, "repeat": repeat, "duration": [f"{10 + n / 1000:g}s" for n in range(len(RECORDED))]})
    runs = grid.runs()
    dataset = Dataset.create(directory, grid, runner.host())
    begun = time.monotonic()
    with dataset.writing():
        for some in cluster.measure(client, runs, lambda _: None):
            dataset.append_all([(run.id, found) for run, found in some])
    took = time.monotonic() - begun
    runs_of = [
        (at.timestamp(), at.timestamp() + wall) for at, wall in dataset.runs()["started_at", "wall_s"].iter_rows()
    ]
    first, last = min(begin for begin, _ in runs_of), max(begin for begin, _ in runs_of)
    slept = sum(end - begin for begin, end in runs_of)
    before = sum(min(end, last) - begin for begin, end in runs_of)
    print(f"{len(runs)} runs, {slept / len(runs):.2f} s each, in {took:.1f} s", flush=True)
    return slept / workers / took, before / workers / (last - first)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + WAIT
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(0.5)


def dask_setup(worker: object) -> None:
    """Let the worker that loads this file sleep instead of measuring (dask worker --preload)."""
    from datetime import UTC, datetime

    slower = float(os.environ[SLOWER])
    chance = random.Random(1)

    def sleeps(run: Run, *_: object) -> Measured:
        started, clock = datetime.now(UTC), time.monotonic()
        time.sleep(RECORDED[run.scenario.duration // 1_000_000 - 10_000] * slower)
        common = {**scenario_columns(run), "outcome": "ok", "started_at": started, "wall_s": time.monotonic() - clock}
        common["packet_hash"] = f"{chance.getrandbits(256):064x}"
        rates = [{"run": run.id, "flow": 0, "time_s": n / 10, "throughput_mbps": chance.random()} for n in range(100)]
        return Measured([{**common, **row} for row in flow_columns(run.scenario)], throughput=pl.DataFrame(rates))

    cluster._measured_there = sleeps  # type: ignore[assignment]


if __name__ == "__main__":
    typer.run(main)
