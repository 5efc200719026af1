#!/usr/bin/env python3
"""Compare the schedules that virtual time models with what a real thread gets under the real driver on this host:

    sudo .venv/bin/python benchmarks/schedules.py --out DIR [--only quota-25ms]      # measures what DIR lacks
    .venv/bin/python benchmarks/schedules.py --out DIR --draw docs/schedules.png     # and draws it

A thread of its own process, pinned to the last CPU, is put under the driver by `brobust contend`, which records every
switch by BPF. It always spins, except in the row `sleeps`: there it sleeps 1 to 20 ms and wants 1 to 8 ms of CPU, drawn
from a seed, again and again, and the model is asked what a thread that does the same would get. Where periods begin and
how ticks fall into them is drawn for each repeat, on the host by chance and in the model from the seed, so the repeats
of both are taken together; and each repeat is also compared with that of the model's draws that is nearest to it.
Quiet machine: nothing else may want the last CPU. (The thread has nice -20, so that other ordinary threads take little
from it; not beside competitors.)

Printed for timeslices and off-times: 10th percentile, median and 90th percentile on the host and in the model, and the
mean distance of the two distributions (Wasserstein), of all repeats and, as the mean over repeats, from the nearest
draw, in ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.stats import wasserstein_distance

from brobust import _core
from brobust.drivers import schedules
from brobust.scenario import Contention

BROBUST = Path(sys.executable).with_name("brobust")
MS = 1_000_000
SECONDS = 4.0
MODEL_SECONDS = 20
MODEL_SEEDS = 24
NOISE_NS = 100_000
"""Off-times below this are interrupts, which the recorder calls noise."""


@dataclass(frozen=True)
class Row:
    """What is asked of `contend`, and of the model of the same."""

    name: str
    contend: Sequence[str]
    model: dict[str, Any]
    sleeps: bool


def _row(name: str, driver: str, model: str, share: float, timeslice: str, length_jitter: float = 0) -> Row:
    contend = ["--driver", driver, "--share", f"{share:g}"]
    if driver != "competitor":
        contend += ["--timeslice", timeslice]
    if length_jitter:
        contend += ["--length-jitter", f"{length_jitter:g}"]
    asked = {
        "driver": model, "start_jitter": 0, "share": share, "timeslice": timeslice, "length_jitter": length_jitter,
    }  # fmt: skip
    return Row(name, contend, asked, sleeps=model.endswith(":idle"))


HZ = _core.hz() or 250
ROWS = [
    _row("exact-10ms", "burner", "auto", 0.25, "10ms"),
    _row("lengths-20%", "burner", "auto", 0.25, "10ms", length_jitter=0.2),
    _row("deadline-10ms", "deadline", f"deadline:hz={HZ}", 0.25, "10ms"),
    _row("deadline-1ms", "deadline", f"deadline:hz={HZ}", 0.25, "1ms"),
    _row("deadline-10ms-sleeps", "deadline", "deadline:idle", 0.25, "10ms"),
    _row("quota-25ms", "quota", f"quota:hz={HZ}", 0.25, "25ms"),
    _row("quota-10ms", "quota", f"quota:hz={HZ}", 0.25, "10ms"),
    _row("competitor-1", "competitor", f"competitor:hz={HZ}", 0.5, "10ms"),
    _row("competitor-3", "competitor", f"competitor:hz={HZ}", 0.25, "10ms"),
]

TITLES = {
    "exact-10ms": "exact,\n10 ms", "lengths-20%": "lengths vary\nby 20 %",
    "deadline-10ms": "deadline,\n10 ms", "deadline-1ms": "deadline,\n1 ms",
    "deadline-10ms-sleeps": "deadline,\n10 ms,\nsleeps",
    "quota-25ms": "quota,\n25 ms", "quota-10ms": "quota,\n10 ms",
    "competitor-1": "one\ncompetitor", "competitor-3": "three\ncompetitors",
}  # fmt: skip
"""As the rows of docs/data/fidelity/the-modelled-schedules-beside-real-thr.csv."""


def bursts(seed: int, seconds: float) -> list[tuple[int, int]]:
    """Return sleeps and work (ns) that fill at least so much time."""
    draw = random.Random(seed)
    drawn = [(round(draw.uniform(1, 20) * MS), round(draw.uniform(1, 8) * MS)) for _ in range(round(seconds * 1000))]
    total, enough = 0, []
    for sleep, work in drawn:
        enough.append((sleep, work))
        total += sleep + work
        if total > seconds * 1e9:
            break
    return enough


def be_the_thread(sleeps: bool, seed: int) -> None:
    """Spin, or sleep and work, until killed."""
    print(os.getpid(), flush=True)
    if not sleeps:
        while True:
            pass
    for sleep, work in bursts(seed, 3600 / 60):
        time.sleep(sleep / 1e9)
        until = time.thread_time_ns() + work
        while time.thread_time_ns() < until:
            pass


def measure(row: Row, repeat: int, out: Path) -> None:
    """Put a thread under the driver, and keep what it got."""
    command = [sys.executable, __file__, "--be-the-thread", row.name, "--seed", str(repeat)]
    thread = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert thread.stdout is not None
        pid = thread.stdout.readline().strip()
        os.sched_setaffinity(int(pid), {max(os.sched_getaffinity(0))})
        if not row.name.startswith("competitor"):
            os.setpriority(os.PRIO_PROCESS, int(pid), -20)
        done = subprocess.run(
            [BROBUST, "contend", "--pid", pid, "--threads", pid, *row.contend, "--for", f"{SECONDS:g}s", "-o", out],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not out.exists():
            raise SystemExit(f"{row.name}: {done.stderr.strip()}")
    finally:
        thread.kill()
        thread.wait()


def of_host(file: Path) -> tuple[list[float], list[float]]:
    """Return the lengths of the stretches in which a thread ran without having to wait, and of those that it waited,
    ms. Sleep within a stretch ends it."""
    table = pl.read_parquet(file).sort("start_s")
    kinds = table["kind"].to_list()
    # Half a second in which the driver begins and ends is left out.
    begins, lengths = table["start_s"].to_list(), table["duration_ms"].to_list()
    end_s = begins[-1] + lengths[-1] / 1e3
    runs, offs, run = [], [], 0.0
    for kind, begin_s, ms in zip(kinds, begins, lengths, strict=True):
        inside = 0.5 < begin_s < end_s - 0.5
        if kind in ("running", "noise"):
            run += ms
            continue
        if inside and run:
            runs.append(run)
        if inside and kind == "off":
            offs.append(ms)
        run = 0.0
    return runs, offs


def of_model(row: Row, seed: int, asked_seed: int) -> tuple[list[float], list[float]]:
    """Return the same of the model, for one seed."""
    schedule = json.dumps(schedules.schedule(Contention(**row.model), seed))
    if row.sleeps:
        return _of_sleeping(schedule, bursts(asked_seed, MODEL_SECONDS))
    spans = _core.when_it_runs(schedule, [(0, 10**9 * MODEL_SECONDS // 4)])[1:-1]
    return [(end - begin) / MS for begin, end in spans], [(b[0] - a[1]) / MS for a, b in pairwise(spans)]


def _of_sleeping(schedule: str, wanted: list[tuple[int, int]]) -> tuple[list[float], list[float]]:
    """Each burst is asked for alone, to know when it was wanted and when it ran."""
    spans = iter(_core.when_it_runs(schedule, wanted))
    runs, offs, now = [], [], 0
    for sleep, work in wanted:
        now += sleep
        while work > 0:
            begin, end = next(spans)
            if begin - now >= NOISE_NS:
                offs.append((begin - now) / MS)
            runs.append((end - begin) / MS)
            work, now = work - (end - begin), end
    return runs, offs


def summary(values: Sequence[float]) -> str:
    if not values:
        return "none"
    low, middle, high = np.percentile(values, [10, 50, 90])
    return f"{low:.2f} / {middle:.2f} / {high:.2f} ({len(values)})"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, help="directory of the recordings")
    arguments.add_argument("--only", action="append", choices=[row.name for row in ROWS], help="may be repeated")
    arguments.add_argument("--repeat", type=int, default=6)
    arguments.add_argument("--draw", type=Path, metavar="PNG")
    arguments.add_argument("--be-the-thread", help=argparse.SUPPRESS)
    arguments.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.be_the_thread:
        be_the_thread(next(row.sleeps for row in ROWS if row.name == asked.be_the_thread), asked.seed)
        return
    if asked.out is None:
        arguments.error("--out DIR is missing")
    asked.out.mkdir(exist_ok=True)
    results = {}
    for row in ROWS:
        if asked.only and row.name not in asked.only:
            continue
        host: tuple[list[float], list[float]] = ([], [])
        repeats = []
        for repeat in range(asked.repeat):
            file = asked.out / f"{row.name}-{repeat}.parquet"
            if not file.exists():
                measure(row, repeat, file)
            repeats.append(of_host(file))
            for pool, values in zip(host, repeats[-1], strict=True):
                pool.extend(values)
        model: tuple[list[float], list[float]] = ([], [])
        draws = [of_model(row, seed, seed % asked.repeat) for seed in range(MODEL_SEEDS)]
        for drawn in draws:
            for pool, values in zip(model, drawn, strict=True):
                pool.extend(values)
        results[row.name] = (host, model)
        for number, what in enumerate(("timeslices", "off-times")):
            distance = wasserstein_distance(host[number], model[number])
            nearest = [min(wasserstein_distance(one[number], drawn[number]) for drawn in draws) for one in repeats]
            print(
                f"| {row.name} | {what} | {summary(host[number])} | {summary(model[number])} | {distance:.2f} | "
                f"{np.mean(nearest):.2f} |",
                flush=True,
            )
    if asked.draw is not None:
        draw(results, asked.draw)


def draw(results: dict[str, Any], file: Path) -> None:
    """Draw host and model over each other: a row for each schedule, timeslices beside off-times."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    shape = len(results), 2
    figure, axes = plt.subplots(*shape, figsize=(8.4, 1.15 * len(results) + 0.6), sharey=True, squeeze=False)
    # The model is a thin line on the host's thick one, so that both are seen where they agree.
    styles = (("host", {"color": "#8fbbe0", "linewidth": 4}), ("model", {"color": "black", "linewidth": 1}))
    for row, (name, measured) in enumerate(results.items()):
        for column in (0, 1):
            ax = axes[row][column]
            longest = 0.0
            for (label, style), both in zip(styles, measured, strict=True):
                ordered = np.sort(both[column])
                longest = max(longest, ordered[-1])
                parts = np.arange(len(ordered) + 1) / len(ordered)
                ax.step([0, *ordered], parts, where="post", label=label, solid_capstyle="butt", **style)
            ax.set_xlim(0, 1.06 * longest)
            ax.set_ylim(-0.06, 1.06)
            ax.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
            ax.tick_params(labelsize=8)
            ax.grid(alpha=0.3)
        axes[row][0].set_ylabel(TITLES[name], fontsize=9, rotation=0, ha="right", va="center", labelpad=8)
    for column, what in enumerate(("timeslices", "off-times")):
        axes[0][column].set_title(f"part of the {what} that is at most so long", fontsize=10)
        axes[-1][column].set_xlabel("length [ms]", fontsize=9)
    axes[0][0].legend(fontsize=9, loc="upper left")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
