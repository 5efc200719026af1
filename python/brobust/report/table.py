"""A dataset as a table: a row per cell, median and spread of the throughput, and how many runs they stand on."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from rich import box
from rich.table import Table

from brobust.guests.path import goodput_ceiling_mbps

# What may distinguish cells, in the order in which a reader wants them.
AXES: dict[str, tuple[str, str]] = {  # name and unit
    "backend": ("backend", ""),
    "kernel": ("kernel", ""),
    "accelerator": ("accelerator", ""),
    "traffic": ("traffic", ""),
    "bandwidth_mbps": ("bandwidth", "Mbit/s"),
    "rtt_ms": ("RTT", "ms"),
    "flow_rtt_ms": ("flow RTT", "ms"),
    "buffer_bytes": ("buffer", "B"),
    "aqm": ("aqm", ""),
    "loss": ("loss", ""),
    "qdisc": ("qdisc", ""),
    "tso_sizing": ("TSO sizing", ""),
    "coalesce_us": ("coalesce", "us"),
    "tx_completion_us": ("tx completion", "us"),
    "tso_max_bytes": ("TSO up to", "B"),
    "longest_rtt_ms": ("longest RTT", "ms"),
    "cpu_mhz": ("CPU", "MHz"),
    "flows": ("flows", ""),
    "pattern": ("pattern", ""),
    "replay": ("replay", ""),
    "driver": ("driver", ""),
    "timeslice_ms": ("timeslice", "ms"),
    "start_jitter": ("start jitter", ""),
    "length_jitter": ("length jitter", ""),
    "alternate_s": ("alternate", "s"),
    "receiver_share": ("receiver's share", ""),
    "cc": ("cc", ""),
    "share": ("CPU share", ""),
}

# A value behind its unit, where the unit alone would not say of what.
SAID = {
    "timeslice_ms": "ms slices", "rtt_ms": "ms RTT", "flow_rtt_ms": "ms RTT", "bandwidth_mbps": "Mbit/s",
    "buffer_bdp": "BDP buffer", "buffer_bytes": "B buffer", "loss": "loss", "flows": "flows",
    "alternate_s": "s on and off", "receiver_share": "of the receiver's CPU",
}  # fmt: skip
TEXT = (
    "cc", "backend", "kernel", "driver", "accelerator", "traffic", "aqm", "qdisc", "tso_sizing", "pattern", "replay",
)  # fmt: skip
# What only a contended run has.
CONTENDED = ("driver", "timeslice_ms", "start_jitter", "length_jitter")
# What only one of the backends has, or has another default of, so that it says nothing where both are in a dataset.
OF_ONE_BACKEND = (
    "kernel", "accelerator", "traffic", "coalesce_us", "tx_completion_us", "tso_max_bytes", "driver",
    "start_jitter",
)  # fmt: skip
# What each flow has for itself, and what is made of that.
PER_FLOW = ("cc", "pattern", "flow_rtt_ms", "longest_rtt_ms")


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
            utilization=pl.col("throughput_mbps") / (pl.col("bandwidth_mbps") * goodput_ceiling_mbps(1_000_000)),
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


def render(table: pl.DataFrame, title: str) -> Table:
    summary = cells(table)
    axes = [name for name in summary.columns if name in AXES]
    # Without vertical lines, so that four axes still fit into 80 columns.
    out = Table(
        title=title, title_justify="left", caption=_caption(table), caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False,
    )  # fmt: skip
    headings = [" ".join(filter(None, AXES[axis])) for axis in axes]
    headings += ["Mbit/s", "min-max", "n", "retrans", "share got"]
    rows = [
        [
            *[axis_value(axis, row[axis]) for axis in axes],
            f"{row['median']:.2f}",
            f"{row['least']:.2f}-{row['greatest']:.2f}",
            f"{row['n']} ({row['unfaithful']}!)" if row["unfaithful"] else str(row["n"]),
            "-" if row["retransmits"] is None else f"{row['retransmits']:.0f}",
            "-" if row["effective_share"] is None else f"{row['effective_share']:.1%}",
        ]
        for row in summary.iter_rows(named=True)
    ]
    for number, heading in enumerate(headings):
        # A heading may break between its words; no word and no figure is cut.
        longest = max(len(text) for text in (*heading.split(), *(row[number] for row in rows)))
        is_text = number < len(axes) and axes[number] in TEXT
        out.add_column(heading, justify="left" if is_text else "right", min_width=longest)
    for row in rows:
        out.add_row(*row)
    return out


def axis_value(axis: str, value: object) -> str:
    """A value of an axis as people read it."""
    if value is None:
        return "-"
    if axis in ("share", "receiver_share"):
        return f"{value:.0%}"
    if axis == "loss":
        return f"{value * 100:g}%"  # type: ignore[operator]
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell_said(runs: pl.DataFrame, axes: Sequence[str], values: Sequence[object]) -> str:
    """The cell of these runs that has these values, where its axes are not named; a buffer in BDP, if that is one
    figure."""
    words = []
    for axis, value in zip(axes, values, strict=True):
        bdp = runs.filter(pl.col(axis) == value)["buffer_bdp"].unique().to_list() if axis == "buffer_bytes" else [None]
        words.append(axis_said(axis, value) if len(bdp) > 1 or bdp[0] is None else axis_said("buffer_bdp", bdp[0]))
    return ", ".join(words)


def axis_said(axis: str, value: object) -> str:
    """A value of an axis where the axis is not named: in a title, a legend, a sentence."""
    if value is None:
        return "undisturbed" if axis == "timeslice_ms" else "-"
    if axis == "share":
        return f"{axis_value(axis, value)} CPU"
    if axis == "qdisc":
        return "TCP's own pacing" if value == "none" else f"qdisc {value}"
    if axis == "tso_sizing":
        return f"TSO sizing by {value}"
    if axis == "flows":
        return f"{value} flow{'' if value == 1 else 's'}"
    if axis in SAID:
        return f"{axis_value(axis, value)} {SAID[axis]}"
    name, unit = AXES[axis]
    return f"{name} {axis_value(axis, value)} {unit}" if unit else axis_value(axis, value)


def _caption(table: pl.DataFrame) -> str:
    failed = table.filter(pl.col("outcome") == "failed")["run"].n_unique()
    text = "median of n runs; throughput is payload at the receiver; retrans: segments retransmitted"
    if "unfaithful" in set(table["outcome"]):
        text += "; (k!): k of them did not get the contention asked for, the dataset says why"
    return text + (f"; {failed} run(s) failed and are left out" if failed else "")
