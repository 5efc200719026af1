"""A dataset's rows per flow, turned into rows per run, and into rows per cell of the axes that vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from brobust import units
from brobust.analysis.axes import AXES, CONTENDED, OF_CROSS_TRAFFIC, OF_ONE_BACKEND, OF_PROGRAMS, PER_FLOW, in_order
from brobust.errors import BrobustError
from brobust.lazily import pl
from brobust.scenario import Grid, Scenario, differences

# Payload over what the bottleneck carries, by the version of IP.
CEILINGS = {version: units.goodput_ceiling_mbps(1_000_000, version) for version in units.PAYLOAD_BYTES_OF}
# What is measured of a run's cross traffic.
CROSS = ("cross_transfers", "cross_ended", "cross_median_ms", "cross_p99_ms", "cross_slowdown", "cross_slowdown_p99")

# The same of what its programs asked for.
REQUEST_COUNTS = ("requests", "requests_answered", "requests_per_s")
REQUEST_TIMES = (
    "request_median_ms", "request_p99_ms", "request_p999_ms",
    "first_byte_median_ms", "first_byte_p99_ms", "first_byte_p999_ms",
)  # fmt: skip
REQUESTS = (*REQUEST_COUNTS, *REQUEST_TIMES)


def payload() -> pl.Expr:
    """Return the payload of each flow, Mbit."""
    return pl.col("throughput_mbps") * (stop() - pl.col("start_s"))


def together() -> pl.Expr:
    """Return the throughput of several flows of a run together, Mbit/s: their payload over the run's duration, so one
    that sends for a part of the run counts accordingly. Where each flow has a size, it is over the time from the first
    start to the last end: how long the run goes on after that says nothing about the flows."""
    while_sized = stop().max() - pl.col("start_s").min()
    seconds = pl.when(pl.col("flow_bytes").is_not_null().all()).then(while_sized).otherwise(pl.col("duration_s"))
    return (payload() / seconds).sum().alias("throughput_mbps")


def of_all_flows() -> list[pl.Expr]:
    """Return what the flows of a run have together, in sum or in the mean."""
    means = pl.col("rtt_mean_ms", "skb_mean_bytes", "pacing_idle_ms").mean()
    return [together(), counted("retransmits"), counted("drops"), means]


def counted(name: str) -> pl.Expr:
    """Return the sum over the flows of a run. That of what nobody has counted, as drops on vm, is unknown, and not
    0."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)


def of_run(name: str) -> pl.Expr:
    """Return a column of the runs as medians take it. A quantile of the requests' times is longer than any that was
    measured where too few were answered: infinite, not unknown. Runs without requests have none."""
    if name not in REQUEST_TIMES:
        return pl.col(name)
    return pl.when(pl.col("requests").is_not_null()).then(pl.col(name).fill_null(math.inf)).alias(name)


def known(value: pl.Expr) -> pl.Expr:
    """Return the value, or null where it is infinite."""
    return pl.when(value.is_finite()).then(value)


def stop() -> pl.Expr:
    """Return when each flow stops sending, in seconds of the run."""
    return pl.coalesce("stop_s", "duration_s")


def runs(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per measured run, with throughput and retransmits summed over its flows, `utilization` (throughput
    over the payload that the bottleneck can carry) and `buffer_bdp`."""
    per_run = [name for name in AXES if name not in PER_FLOW] + ["effective_share", "effective_timeslice_ms", "outcome"]
    return (
        table.filter(pl.col("outcome") != "failed")
        .group_by("run")
        .agg(
            pl.col("cc").unique(maintain_order=True).str.join("+"),
            pl.col("pattern").unique(maintain_order=True).str.join("+"),
            # Only where it differs from the path's RTT, which is in another column.
            pl.col("flow_rtt_ms").filter(pl.col("flow_rtt_ms") != pl.col("rtt_ms")).unique(maintain_order=True)
            .cast(pl.String).str.strip_suffix(".0").str.join("+").replace("", None),
            pl.col("flow_rtt_ms").filter(pl.col("flow_rtt_ms") != pl.col("rtt_ms")).max().alias("longest_rtt_ms"),
            *of_all_flows(),
            pl.col("flow_bytes").max(),
            pl.col("completion_ms").median(),
            pl.col("cpu_busy_share", *CROSS, *REQUESTS, *OF_PROGRAMS).first(),
            *[pl.col(name).first() for name in ("scenario", *per_run)],
        )
        .with_columns(
            utilization=pl.col("throughput_mbps")
            / pl.min_horizontal("bandwidth_mbps", "second_bandwidth_mbps")
            / pl.col("ip_version").replace_strict(CEILINGS, default=None),
            buffer_bdp=(pl.col("buffer_bytes") / (pl.col("bandwidth_mbps") * pl.col("rtt_ms") * 125)).round(2),
        )
    )  # fmt: skip


def why_no_utilization(scenarios: Iterable[Scenario]) -> str | None:
    """Return why runs of these scenarios have no utilization, if so: it is of the bandwidth with which a run begins."""
    if not any(one.path.bandwidth_changes for one in scenarios):
        return None
    return "utilization is of the bandwidth with which a run begins, and here it changes; give throughput_mbps"


def kernels(table: pl.DataFrame) -> str:
    """Return the senders' kernels in words, with what their own BBR is where it is not version 1."""
    releases = ", ".join(sorted(str(release) for release in table["kernel_release"].unique().drop_nulls()))
    return f"Linux {releases}" + "".join(f", {note}" for note in versions(table))


def versions(table: pl.DataFrame) -> list[str]:
    """Return a note such as "bbr is version 3" for each of the kernel's own BBR controls that is not version 1."""
    later = table.filter(pl.col("bbr_version") > 1).select(pl.col("cc").str.split(":").list.first(), "bbr_version")
    return [f"{name} is version {version}" for name, version in sorted(set(later.iter_rows()))]


def varying(measured: pl.DataFrame) -> list[str]:
    """Return the axes along which this dataset has more than one value. A driver or timeslice that is missing only
    where the share is 1 does not count, since the share says the same, nor does what is missing only where there is no
    cross traffic. Nor does an axis count that differs only between backends. A buffer is in BDP if that takes fewer
    numbers than bytes do, because bandwidth or RTT vary too, and no axis if it is one number. Where two decimals of a
    BDP do not tell the buffers of one path apart, it is in bytes."""
    contended, crossed = measured.filter(pl.col("share") < 1), measured.filter(pl.col("cross_load") > 0)
    axes = []
    for name in AXES:
        rows = contended if name in CONTENDED else crossed if name in OF_CROSS_TRAFFIC else measured
        of_each = rows.partition_by("backend") if name in OF_ONE_BACKEND else [rows]
        if any(part[name].n_unique() > 1 for part in of_each):
            axes.append(name)
    if "flow_rtt_ms" in axes and "longest_rtt_ms" in axes:
        axes.remove("longest_rtt_ms")
    of_bdp, of_bytes = (measured[name].n_unique() for name in ("buffer_bdp", "buffer_bytes"))
    if "buffer_bytes" in axes and of_bdp < of_bytes and not _are_rounded_to_one(measured):
        place = axes.index("buffer_bytes")
        axes[place : place + 1] = ["buffer_bdp"] if of_bdp > 1 else []
    return axes


def _are_rounded_to_one(measured: pl.DataFrame) -> bool:
    """Whether several buffers of one path have the same number of BDPs, which has two decimals."""
    paths = [
        measured.select(pl.struct("bandwidth_mbps", "rtt_ms", name).n_unique()).item()
        for name in ("buffer_bdp", "buffer_bytes")
    ]
    return bool(paths[0] < paths[1])


# Fields in which runs of one cell may differ: each seed draws other random numbers, as each repeat does. And what an
# axis says, but for contention, of which there is one for each sender: a buffer is written in bytes or in BDP.
NOT_APART = ("seed", *(axis.row.name for axis in AXES.values() if axis.row and axis.row.table != "contention"))


def told_apart(
    measured: pl.DataFrame, axes: Sequence[str], scenarios: Callable[[], Iterable[Scenario]]
) -> tuple[pl.DataFrame, list[str]]:
    """Return the runs with a column for each field that differs among scenarios which are the same on these axes, and
    the names of these columns. `scenarios` is asked only if there are such. For one that it does not have any more, the
    column `scenario` stands."""
    of_cells = measured.group_by(axes).agg(pl.col("scenario").unique())["scenario"].to_list()
    several = [hashes for hashes in of_cells if len(hashes) > 1]
    if not several:
        return measured, []
    try:
        known = differences.fields(scenarios())
    except BrobustError:  # a file of another version, or a kernel that is not here
        known = {}
    fields = {name: known.get(name, {}) for name in measured["scenario"].unique().drop_nulls().to_list()}
    of_each = [differences.names([fields[name] for name in hashes if name in known], NOT_APART) for hashes in several]
    found = [name for name in differences.names(known.values()) if any(name in names for names in of_each)]
    columns = []
    for name in found:
        values = [fields.get(of_run, {}).get(name, differences.NOTHING) for of_run in measured["scenario"]]
        as_written = dict.fromkeys(one.get(name, differences.NOTHING) for one in known.values())
        order = pl.Enum(list(as_written | dict.fromkeys(values)))  # the user's, in which 2s comes before 10s
        columns.append(pl.Series(name, values, dtype=order))
    unknown = any(name not in known for hashes in several for name in hashes)
    return measured.with_columns(columns), [*found, *(["scenario"] if unknown else [])]


def apart(table: pl.DataFrame, grid: Callable[[], Grid]) -> tuple[pl.DataFrame, list[str]]:
    """Return one row per measured run, and the names of what tells cells apart: the axes that vary, and other fields.
    `grid` returns the scenarios."""
    measured = runs(table)
    axes = varying(measured) or ["cc"]
    measured, others = told_apart(measured, axes, lambda: grid().scenarios)
    return measured, [*axes, *others]


def cells(table: pl.DataFrame, grid: Callable[[], Grid]) -> tuple[pl.DataFrame, list[str]]:
    """Return for each cell median, minimum, maximum and n of the throughput, Mbit/s, with the axes and other fields
    that vary, and the share that each sender got (`effective_shares`); and the names of these axes and fields. `grid`
    returns the scenarios."""
    (measured, axes), mbps = apart(table, grid), pl.col("throughput_mbps")
    of_senders = (
        table.select("run", "sender", effective_shares="effective_share").unique(["run", "sender"])
        .join(measured.select("run", *axes), on="run")
        .group_by(*axes, "sender").agg(pl.col("effective_shares").median())
        .sort("sender").group_by(axes).agg("effective_shares")
    )  # fmt: skip
    of_each = (
        measured.group_by(axes)
        .agg(
            mbps.median().alias("median"),
            mbps.min().alias("min"),
            mbps.max().alias("max"),
            pl.len().alias("n"),
            pl.col("retransmits", "completion_ms", *CROSS, *REQUEST_COUNTS).median(),
            *(of_run(name).median() for name in REQUEST_TIMES),
            (pl.col("outcome") == "unfaithful").sum().alias("unfaithful"),
        )
        .with_columns(known(pl.col(name)).alias(name) for name in REQUEST_TIMES)
        .join(of_senders, on=axes, nulls_equal=True)
        .sort(in_order(axes), descending=[axis == "share" for axis in axes])
    )
    return of_each, axes
