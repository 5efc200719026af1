"""A dataset's rows per flow as rows per run, and per cell of the axes that vary."""

from __future__ import annotations

import polars as pl

from brobust import units
from brobust.analysis.axes import AXES, CONTENDED, OF_ONE_BACKEND, PER_FLOW


def runs(table: pl.DataFrame) -> pl.DataFrame:
    """One row per measured run: throughput and retransmits summed over its flows; with `utilization`, the part of what
    the bottleneck carries of payload, and `buffer_bdp`."""
    per_run = [name for name in AXES if name not in PER_FLOW] + [
        "effective_share",
        "effective_timeslice_ms",
        "outcome",
    ]
    return (
        table.filter(pl.col("outcome") != "failed")
        .group_by("run")
        .agg(
            pl.col("cc").unique(maintain_order=True).str.join("+"),
            pl.col("pattern").unique(maintain_order=True).str.join("+"),
            # Where a flow's is not the path's, which has a column of its own.
            pl.col("flow_rtt_ms").filter(pl.col("flow_rtt_ms") != pl.col("rtt_ms")).unique(maintain_order=True)
            .cast(pl.String).str.join("+").replace("", None),
            pl.col("flow_rtt_ms").filter(pl.col("flow_rtt_ms") != pl.col("rtt_ms")).max().alias("longest_rtt_ms"),
            # As in the JSON objects: payload of all flows over the run's whole duration.
            (pl.col("throughput_mbps") * (pl.coalesce("stop_s", "duration_s") - pl.col("start_s"))
             / pl.col("duration_s")).sum(),
            pl.col("retransmits").sum(),
            pl.col("rtt_mean_ms", "skb_mean_bytes", "pacing_idle_ms").mean(),
            pl.col("cpu_busy_share").first(),
            *[pl.col(name).first() for name in per_run],
        )
        .with_columns(
            utilization=pl.col("throughput_mbps") / (pl.col("bandwidth_mbps") * units.goodput_ceiling_mbps(1_000_000)),
            buffer_bdp=(pl.col("buffer_bytes") / (pl.col("bandwidth_mbps") * pl.col("rtt_ms") * 125)).round(2),
        )
    )  # fmt: skip


def varying(measured: pl.DataFrame) -> list[str]:
    """The axes along which this dataset has more than one value. A driver or slice that is missing only where
    the share is 1 does not count: it says nothing that the share does not. Nor does what differs only because the
    backend does, nor a buffer that is the same in BDPs."""
    contended = measured.filter(pl.col("share") < 1)
    axes = []
    for name in AXES:
        rows = contended if name in CONTENDED else measured
        of_each = rows.partition_by("backend") if name in OF_ONE_BACKEND else [rows]
        if any(part[name].n_unique() > 1 for part in of_each):
            axes.append(name)
    if "flow_rtt_ms" in axes and "longest_rtt_ms" in axes:
        axes.remove("longest_rtt_ms")
    if "buffer_bytes" in axes and {"bandwidth_mbps", "rtt_ms"} & set(axes) and measured["buffer_bdp"].n_unique() == 1:
        axes.remove("buffer_bytes")
    return axes


def cells(table: pl.DataFrame, value: str = "throughput_mbps") -> pl.DataFrame:
    """Median, least, greatest and n of one figure for each cell, with the axes that vary."""
    measured = runs(table)
    axes = varying(measured) or ["cc"]
    return (
        measured.group_by(axes)
        .agg(
            pl.col(value).median().alias("median"),
            pl.col(value).min().alias("least"),
            pl.col(value).max().alias("greatest"),
            pl.len().alias("n"),
            pl.col("retransmits").median(),
            pl.col("effective_share").median(),
            (pl.col("outcome") == "unfaithful").sum().alias("unfaithful"),
        )
        .sort(axes, descending=[axis == "share" for axis in axes])
    )
