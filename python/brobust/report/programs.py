"""What the programs of a series printed and how they ended, in lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from brobust.dataset import Dataset
from brobust.lazily import pl
from brobust.units import show_count

MAX_RUNS = 3  # with more, what they printed is only in the dataset
THROUGH = 0.9  # part of a run: a program that ended earlier did not end with it
MAX_LINES = 5  # of each program's standard output, and of its standard error
MAX_LETTERS = 400  # of a line; a terminal that wraps is not to be filled by one


def shown(dataset: Dataset) -> Iterator[str]:
    """Yield a line for each program of a few runs, and the ends of what they printed."""
    programs = dataset.programs()
    if programs.is_empty():
        return
    # What iperf3 prints is a report for us, unless it fails.
    of_iperf3 = dataset.runs().filter(traffic="iperf3")["run"].unique()
    programs = programs.filter(~(pl.col("run").is_in(of_iperf3.implode()) & pl.col("exit_status").eq_missing(0)))
    yield from _short(programs, dataset.runs())
    yield from _without_cc(dataset)
    runs = programs["run"].unique(maintain_order=True).to_list()
    if len(runs) > MAX_RUNS:
        yield f"what the programs of {len(runs)} runs printed: {dataset.directory}/programs"
        return
    for run in runs:
        for program in programs.filter(run=run).iter_rows(named=True):
            yield f"run {run}, flow {program['flow']}, {program['end']}: {_ended(program)}: {program['command']}"
            for stream in ("stdout", "stderr"):
                lines = program[stream].splitlines()
                if len(lines) > MAX_LINES:
                    yield f"  {stream}: ... ({show_count(len(lines) - MAX_LINES, 'line')} before)"
                yield from (f"  {stream}: {_cut(line)}" for line in lines[-MAX_LINES:])


def _without_cc(dataset: Dataset) -> Iterator[str]:
    """Yield a sentence if runs differ in a congestion control of which their programs know nothing: they have no
    sockets of TCP, and their command does not name it."""
    runs = dataset.runs().filter(pl.col("outcome") != "failed", traffic="programs")
    unnamed = runs.filter(~pl.col("sender_program").str.contains("{cc}", literal=True))
    if unnamed["cc"].n_unique() < 2:
        return
    protocols = dataset.connections().filter(pl.col("run").is_in(unnamed["run"].unique().implode()))["protocol"]
    if "tcp" not in protocols:
        yield (
            "nothing was sent over TCP, and the sender's command names no {cc}: runs that differ in cc alone are the "
            "same runs"
        )


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LETTERS else f"{line[:MAX_LETTERS]}... ({len(line)} letters)"


def _short(programs: pl.DataFrame, runs: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence if programs were through long before their runs were: of a download that took half of its run
    the throughput would be half of what was carried."""
    durations = runs.filter(pl.col("outcome") != "failed").select("run", "duration_s").unique("run")
    ended = programs.join(durations, on="run").filter(pl.col("ended_s").is_between(0, THROUGH * pl.col("duration_s")))
    if count := ended["run"].n_unique():
        yield (
            f"programs of {show_count(count, 'run')} ended before {THROUGH:.0%} of the run had passed; if they had "
            "no more to send, that is all, but Mbit/s is over the whole run: they took ended_s of the table programs"
        )


def _ended(program: dict[str, Any]) -> str:
    if program["ended_s"] is None:
        return "ran until the end"
    how = f"exit status {program['exit_status']}" if program["signal"] is None else program["signal"]
    seconds = program["ended_s"]
    return f"{how} after {seconds:.3f} s" if seconds >= 0 else f"{how}, {-seconds:.3f} s before the run"
