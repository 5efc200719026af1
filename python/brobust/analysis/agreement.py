"""How far virtual time and real time (VMs, or the hosts of lab) agree, from runs of the same cells on both."""

import math
from dataclasses import dataclass

import polars as pl

from brobust.errors import RunFailed

# The aims of `brobust validate`, median and 90th percentile over all cells: with accelerator uml both backends run the
# same kernel, and no emulation lies between.
AIMS = (0.05, 0.20)
AIMS_WITH_UML = (0.02, 0.10)
CELL = ("kernel", "cc", "timeslice_ms", "share")
# What else tells cells apart where it varies: `brobust validate` takes lists of these, too.
MAY_VARY = ("accelerator", "bandwidth_mbps", "rtt_ms", "buffer_bytes", "duration_s", "driver")
COMPARED = ("throughput_mbps", "settled_mbps", "retransmits", "rtt_mean_ms")
# In its first seconds a flow is in Startup, under contention, where the backends differ most.
SETTLED_AFTER_S = 2


@dataclass(frozen=True)
class Agreement:
    """|ln(virtual / real)| of the cells' median throughputs: its median and its 90th percentile over the cells."""

    cells: int
    median: float
    p90: float
    aims: tuple[float, float] = AIMS
    """For the median and the 90th percentile."""


def settled(throughput: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return the mean throughput of each flow of a run after its first seconds, Mbit/s: columns run, flow,
    settled_mbps."""
    later = throughput.filter(pl.col("time_s") > SETTLED_AFTER_S)
    return later.group_by("flow").agg(settled_mbps=pl.col("throughput_mbps").mean()).with_columns(run=pl.lit(run))


def compare(real: pl.DataFrame, virtual: pl.DataFrame, backend: str = "vm") -> pl.DataFrame:
    """Return one row per cell: medians over its runs on both backends, and the ratios of the throughputs. Of MAY_VARY
    it has the columns that vary.

    Both tables have a row per run and flow, with the columns of CELL and COMPARED, the one in real time also with those
    of MAY_VARY; in both, `run` is that in real time.
    `backend` is the name of that in real time, with which its columns begin: vm_throughput_mbps.
    """
    measured = real.filter(pl.col("outcome") != "failed")
    contended = measured.filter(pl.col("share") < 1)
    # Undisturbed runs have no driver, as their share says.
    vary = [name for name in MAY_VARY if (contended if name == "driver" else measured)[name].n_unique() > 1]
    cells = measured.select("run", "flow", *CELL, *vary, *COMPARED)
    both = cells.join(virtual.select("run", "flow", *COMPARED), on=["run", "flow"], suffix="_virtual")
    if both.is_empty():
        raise RunFailed(f"no run on {backend} was measured, so there is nothing to compare")
    medians = [pl.col(name).median().alias(f"{backend}_{name}") for name in COMPARED]
    medians += [pl.col(f"{name}_virtual").median().alias(f"virtual_{name}") for name in COMPARED]
    return (
        both.group_by(*vary, *CELL)
        .agg(pl.len().alias("n"), *medians)
        .with_columns(
            (pl.col("virtual_throughput_mbps") / pl.col(f"{backend}_throughput_mbps")).alias("ratio"),
            (pl.col("virtual_settled_mbps") / pl.col(f"{backend}_settled_mbps")).alias("settled_ratio"),
        )
        .sort(*vary, "kernel", "timeslice_ms", "cc", pl.col("share").neg(), nulls_last=False)
    )


def agreement(cells: pl.DataFrame, ratio: str = "ratio", aims: tuple[float, float] = AIMS) -> Agreement:
    """Return how far the backends agree over all cells, by this column of ratios: infinitely far apart in a cell where
    only one of them carried anything."""
    apart = cells[ratio].drop_nulls().log().abs().fill_nan(0.0)  # 0 / 0: both carried nothing
    median, p90 = apart.median(), apart.quantile(0.9, interpolation="linear")
    if not isinstance(median, float) or p90 is None:
        raise RunFailed("no run carried anything after its first seconds, so there is nothing to compare")
    return Agreement(len(apart), median, math.inf if math.isnan(p90) else p90, aims)
