"""How far virtual time can be believed: the same cells on real VMs and on `virtual`, side by side.

Every run of the VMs is repeated in virtual time with the off-times that its vCPU really had, so that only what differs
between the backends is left: a CPU that costs nothing inside its timeslices, a link without hosts, another QEMU NIC.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust import api, units
from brobust.dataset import Dataset
from brobust.errors import RunFailed
from brobust.scenario import Run
from brobust.virtual import kernels

# The aims of `brobust validate`, over all cells.
MEDIAN_AIM, P90_AIM = 0.05, 0.20
CELL = ("kernel", "cc", "timeslice_ms", "share")
COMPARED = ("throughput_mbps", "settled_mbps", "retransmits", "rtt_mean_ms")
# What a flow does in its first seconds is Startup on a CPU that comes and goes, where the backends differ most.
SETTLED_AFTER_S = 2


@dataclass(frozen=True)
class WhatIf:
    """What is to differ from the VM's scenario in the twins, to see what a difference may come from."""

    added_rtt: int = 0  # ns
    cpu_frequency: str | None = None


@dataclass(frozen=True)
class Agreement:
    """|ln(virtual / vm)| of the cells' median throughputs."""

    cells: int
    median: float
    p90: float

    @property
    def reached(self) -> bool:
        return self.median <= MEDIAN_AIM and self.p90 <= P90_AIM


def twins(recorded: Dataset, what_if: WhatIf = WhatIf()) -> Iterator[tuple[str, api.Result]]:
    """Each measured run of a VM dataset, repeated in virtual time, as it finishes: (its id, the twin's result)."""
    measured = set(recorded.runs().filter(pl.col("outcome") != "failed")["run"])
    runs = [run for run in recorded.grid().runs() if run.id in measured]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        futures = [(run.id, threads.submit(api.run, twin(run, recorded, what_if))) for run in runs]
        try:
            for name, future in futures:
                yield name, future.result()
        finally:
            for _, future in futures:
                future.cancel()


def twin(run: Run, recorded: Dataset, what_if: WhatIf = WhatIf()) -> dict[str, Any]:
    """The scenario in virtual time that is this run's: its path, its flows, its recorded off-times."""
    s = run.scenario
    series = s.kernel.removeprefix("debian-")
    kernel = f"virtual-{series}" if s.kernel.startswith("debian-") else kernels.default()
    path = s.path.model_dump(mode="json")
    # The buffer in bytes: it is the testbed's, whatever the RTT of the twin.
    path |= {"buffer": f"{s.path.buffer_bytes}B", "rtt": units.show_time(s.path.rtt + what_if.added_rtt)}
    return {
        "backend": "virtual",
        "kernel": kernel,
        "path": path,
        "flows": [group.model_dump(mode="json") for group in s.flows],
        "contention": {"replay": f"{recorded.directory}#{run.id}"} if s.contention.active else {"driver": "none"},
        "cpu": {"frequency": what_if.cpu_frequency} if what_if.cpu_frequency else {},
        "duration": s.model_dump(mode="json")["duration"],
        "seed": run.seed,
    }


def settled(throughput: pl.DataFrame, run: str) -> pl.DataFrame:
    """Mean throughput of each flow of a run after its first seconds, Mbit/s: columns run, flow, settled_mbps."""
    later = throughput.filter(pl.col("time_s") > SETTLED_AFTER_S)
    return (
        later.group_by("flow").agg(pl.col("throughput_mbps").mean().alias("settled_mbps")).with_columns(run=pl.lit(run))
    )


def compare(vm: pl.DataFrame, virtual: pl.DataFrame) -> pl.DataFrame:
    """One row per cell: medians over its runs on both backends, and the ratios of the throughputs.

    Both have a row per run and flow with the columns of CELL and COMPARED; `run` is the VM's in both.
    """
    cells = vm.filter(pl.col("outcome") != "failed").select("run", "flow", *CELL, *COMPARED)
    both = cells.join(virtual.select("run", "flow", *COMPARED), on=["run", "flow"], suffix="_virtual")
    if both.is_empty():
        raise RunFailed("no run of the VMs was measured, so there is nothing to compare")
    medians = [pl.col(name).median().alias(f"vm_{name}") for name in COMPARED]
    medians += [pl.col(f"{name}_virtual").median().alias(f"virtual_{name}") for name in COMPARED]
    return (
        both.group_by(CELL)
        .agg(pl.len().alias("n"), *medians)
        .with_columns(
            (pl.col("virtual_throughput_mbps") / pl.col("vm_throughput_mbps")).alias("ratio"),
            (pl.col("virtual_settled_mbps") / pl.col("vm_settled_mbps")).alias("settled_ratio"),
        )
        .sort("kernel", "timeslice_ms", "cc", "share", descending=[False, False, False, True], nulls_last=False)
    )


def agreement(cells: pl.DataFrame, ratio: str = "ratio") -> Agreement:
    apart = cells[ratio].log().abs()
    median, p90 = apart.median(), apart.quantile(0.9, interpolation="linear")
    assert isinstance(median, float) and p90 is not None and math.isfinite(p90)
    return Agreement(len(apart), median, p90)
