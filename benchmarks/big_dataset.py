"""Measure what a large dataset takes: bytes per run, and the time to open it, to read its runs and to draw its table.

    .venv/bin/python benchmarks/big_dataset.py [--runs 1000000] [--cells 1000] [--batch 1000] [--without offtimes]

It measures a few runs of a grid, and writes their rows as those of many runs, with other names, hashes and figures, by
the code with which a series writes (Dataset.append_all), in batches. The figures are drawn at random, so that they are
no smaller on the disk than measured ones. Then another process opens the dataset. CPU time is that of all its threads.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from brobust import backends
from brobust.dataset import OFFTIMES, THROUGHPUT, Dataset, Measured, frame
from brobust.scenario import Grid
from brobust.series import runner

DURATION = "10s"
FLOATS = ("throughput_mbps", "rtt_mean_ms", "rtt_p99_ms", "queue_mean_ms", "skb_mean_bytes", "pacing_idle_ms", "wall_s")


def main(
    runs: Annotated[int, typer.Option(min=1)] = 1_000_000,
    cells: Annotated[int, typer.Option(min=1)] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="runs that are written together")] = 1000,
    without: Annotated[list[str] | None, typer.Option(help="tables to leave out")] = None,
    keep: Annotated[Path | None, typer.Option(help="write it there, and leave it")] = None,
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = keep or Path(scratch) / "data"
        _write(directory, runs, cells, batch, without or [])
        tables = [table for table in directory.iterdir() if table.is_dir()]
        size = {table.name: sum(file.stat().st_size for file in table.iterdir()) for table in tables}
        for name, of_it in sorted(size.items()):
            print(f"{name}: {of_it / runs:.0f} bytes per run in {len(list((directory / name).iterdir()))} files")
        print(f"together: {sum(size.values()) / runs:.0f} bytes per run")
        subprocess.run([sys.executable, __file__, str(directory)], check=True)


def _write(directory: Path, runs: int, cells: int, batch: int, without: list[str]) -> None:
    shares = [round(0.1 + 0.9 * cell / cells, 6) for cell in range(cells // 2)]
    fields = {
        "duration": DURATION, "path": {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"},
        "contention": {"share": shares, "timeslice": "10ms"}, "flows": [{"cc": ["cubic", "bbr"]}],
        "repeat": max(1, runs // (2 * len(shares))),
    }  # fmt: skip
    grid = Grid(fields)
    chance = random.Random(1)
    with backends.opened("virtual", lambda _: None) as backend:
        found = [_with_frames(backend.measure(run)) for run in chance.sample(grid.runs(), 6)]
    dataset = Dataset.create(directory, grid, runner.host(), without=without)
    with dataset.writing():
        several: list[tuple[str, Measured]] = []
        for run in grid.runs():
            several.append(
                (
                    run.id,
                    _other(
                        chance.choice(found), run.id, run.scenario.hash, run.repeat, chance, "offtimes" not in without
                    ),
                )
            )
            if len(several) == batch:
                dataset.append_all(several)
                several = []
        if several:
            dataset.append_all(several)
        dataset.compact()


def _with_frames(of: Measured) -> Measured:
    return replace(of, throughput=frame(of.throughput, THROUGHPUT), offtimes=frame(of.offtimes, OFFTIMES))


def _other(of: Measured, run: str, scenario: str, repeat: int, chance: random.Random, offtimes: bool) -> Measured:
    """Return what another run could have been: other figures, and the same throughputs over time in another order."""
    (row,) = of.runs
    figures: dict[str, Any] = {name: row[name] * chance.uniform(0.9, 1.1) for name in FLOATS if row.get(name)}
    own = {"run": run, "scenario": scenario, "repeat": repeat, "packet_hash": f"{chance.getrandbits(256):064x}"}
    assert isinstance(of.throughput, pl.DataFrame) and isinstance(of.offtimes, pl.DataFrame)
    rates = of.throughput["throughput_mbps"].shuffle(chance.getrandbits(32))
    other = replace(
        of,
        runs=[{**row, **figures, **own}],
        throughput=of.throughput.with_columns(pl.lit(run).alias("run"), rates),
    )
    if offtimes:
        moved = pl.when(kind="off").then(pl.col("duration_ms") * chance.uniform(0.9, 1.1)).otherwise("duration_ms")
        later = pl.col("start_s") * chance.uniform(0.9, 1.1)
        other.offtimes = of.offtimes.with_columns(pl.lit(run).alias("run"), moved, later)
    return other


def _read(directory: Path) -> None:
    with _timed("open, and read the runs"):
        dataset = Dataset.open(directory)
        runs = dataset.runs()
    print(f"{runs['run'].n_unique()} runs")
    with _timed("which runs are finished"):
        dataset.finished()
    with _timed("draw the table of its cells"):
        from brobust.report import table

        table.render(runs, title="cells")
    with _timed("the grid, and the runs that are missing"):
        print(len(runner.remaining(dataset.grid(), dataset)), "missing")
    print(f"max. resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    wall, cpu = time.monotonic(), time.process_time()
    yield
    print(f"{what}: {time.monotonic() - wall:.2f} s, {time.process_time() - cpu:.2f} s of CPU")


if __name__ == "__main__":
    if len(sys.argv) == 2 and Path(sys.argv[1]).is_dir():
        _read(Path(sys.argv[1]))
    else:
        typer.run(main)
