"""The axes along which cells may differ: name, unit, and how people read a value."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

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
