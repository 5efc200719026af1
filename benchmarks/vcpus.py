#!/usr/bin/env python3
"""Measure in virtual time what another vCPU is worth to a sender, and which of two must be pinned:

    .venv/bin/python benchmarks/vcpus.py --out DIR

phases.csv     1, 2 and 4 vCPUs that all have the same share, in phase, out of phase and at random; and two whose NIC
               has its interrupts on one of them.
pinned.csv     Two vCPUs, of which the first (interrupts of packets that were sent), the second (those of packets that
               arrive, and the application) or both are taken away; the other has a CPU to itself. A sent packet is
               freed after 5 us, as by default, or after 2 ms, so that pacing timers are more often the first one's.
beside-vm.csv  Two vCPUs out of phase beside the VMs of docs/data/fidelity/several-vcpus.csv: with exact timeslices,
               with the model of SCHED_DEADLINE, which the VMs had, and with 1 ms of the testbed's own RTT, too.
distance.csv   The median of all |ln ratio| of each of these three, and of any vCPU's timeslices together.

20 Mbit/s, RTT 10 ms, 4 BDP, timeslices of 10 ms, 5 s, as those VMs; medians, lowest and highest of --repeat runs. What
DIR lacks is measured.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from pathlib import Path
from typing import Any

import polars as pl
from controls import measured

VMS = Path(__file__).parents[1] / "docs" / "data" / "fidelity" / "several-vcpus.csv"
PATH = {"bandwidth": "20mbit", "buffer": "4bdp"}
CCS, SHARES = ["cubic", "bbr", "bbr_steady"], [0.25, 0.4]
TIMESLICE_MS, SECONDS = 10, 5
AWAY = {"tx": (0,), "rx": (1,), "both": (0, 1)}
CELL = ["cc", "share", "vcpus", "phase", "interrupts", "driver", "rtt_ms"]
MODELS = {"exact": ("virtual", 10), "deadline": ("deadline", 10), "deadline, 11 ms": ("deadline", 11)}


def _grid(repeat: int, rtt: str = "10ms", **contention: Any) -> dict[str, Any]:
    return {
        "path": {**PATH, "rtt": rtt}, "duration": f"{SECONDS}s", "flows": [{"cc": CCS}], "repeat": repeat,
        "contention": {"share": SHARES, "timeslice": f"{TIMESLICE_MS}ms", **contention},
    }  # fmt: skip


def _summary(runs: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    mbps = pl.col("throughput_mbps")
    found = runs.filter(outcome="ok").group_by(by)
    return found.agg(n=pl.len(), median=mbps.median(), low=mbps.min(), high=mbps.max()).sort(by)


def _recording(file: Path, away: str, share: float, seed: int) -> str:
    """Write off-times of two vCPUs, of which these are away until the run's end: as of exact timeslices whose starts
    move by up to a quarter of one. The other has an off-time of 1 us, since a recording without any is refused."""
    draw, period = random.Random(seed), TIMESLICE_MS / share
    rows = []
    for vcpu in (0, 1):
        first = draw.uniform(0, period)
        starts = [first + period * number + draw.uniform(0, TIMESLICE_MS / 4) for number in range(SECONDS * 200)]
        away_ms = [(start, period - TIMESLICE_MS) for start in starts if start < SECONDS * 1000]
        for start, length in away_ms if vcpu in AWAY[away] else [(0, 0.001)]:
            rows.append({"vcpu": vcpu, "start_s": start / 1000, "duration_ms": length})
    pl.DataFrame(
        rows, orient="row", schema={"vcpu": pl.Int64, "start_s": pl.Float64, "duration_ms": pl.Float64}
    ).write_csv(file)
    return str(file)


def _pinned(out: Path, repeat: int, jobs: int | None) -> pl.DataFrame:
    out.mkdir(parents=True, exist_ok=True)
    cells = {
        _recording(out / f"{away}-{share}-{seed}.csv", away, share, seed): (away, share)
        for away in AWAY for share in SHARES for seed in range(repeat)
    }  # fmt: skip
    grid = {**_grid(1), "contention": {"replay": list(cells)}, "nic": {"tx_completion": ["5us", "2ms"]}}
    runs = measured(out / "data", [grid], jobs).runs()
    of_file = pl.DataFrame(
        [(file, *cell) for file, cell in cells.items()], orient="row", schema=["replay", "away", "of_each"]
    )
    return _summary(
        runs.join(of_file, on="replay", maintain_order="right"), ["cc", "tx_completion_us", "of_each", "away"]
    )


def _beside_vms(phases: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    vms = pl.read_csv(VMS)
    rows, distances = [], {"either": [abs(math.log(one / vm)) for one, vm in vms.select("union_mbps", "median").rows()]}
    for vm in vms.iter_rows(named=True):
        row = {"cc": vm["cc"], "share": f"{vm['share']:.0%}", "vm": f"{vm['median']} ({vm['low']} to {vm['high']})"}
        for model, (driver, rtt) in MODELS.items():
            (cell,) = phases.filter(
                cc=vm["cc"], share=vm["share"], vcpus=2, phase="out", interrupts="spread", driver=driver, rtt_ms=rtt
            ).iter_rows(named=True)
            row |= {model: f"{cell['median']:.3g}", f"ratio, {model}": f"{cell['median'] / vm['median']:.2f}"}
            distances.setdefault(model, []).append(abs(math.log(cell["median"] / vm["median"])))
        rows.append({**row, "either": vm["union_mbps"]})
    found = [{"model": model, "distance": round(statistics.median(of_all), 3)} for model, of_all in distances.items()]
    return pl.DataFrame(rows), pl.DataFrame(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="Where datasets and tables are written.")
    parser.add_argument("--repeat", type=int, default=5, help="Runs of each cell.")
    parser.add_argument("--jobs", type=int, help="Runs side by side.")
    given = parser.parse_args()
    grids = [
        _grid(given.repeat),
        _grid(given.repeat, vcpus=[2, 4], phase=["in", "out", "random"]),
        _grid(given.repeat, vcpus=2, phase="out", interrupts="together"),
        *(
            _grid(given.repeat, rtt, vcpus=2, phase="out", driver="deadline", start_jitter=0)
            for rtt in ("10ms", "11ms")
        ),
    ]
    phases = _summary(measured(given.out / "phases", grids, given.jobs).runs(), CELL)
    phases.write_csv(given.out / "phases.csv")
    _pinned(given.out / "pinned", given.repeat, given.jobs).write_csv(given.out / "pinned.csv")
    for table, name in zip(_beside_vms(phases), ("beside-vm", "distance"), strict=True):
        table.write_csv(given.out / f"{name}.csv")


if __name__ == "__main__":
    main()
