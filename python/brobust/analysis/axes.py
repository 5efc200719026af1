"""The axes along which cells may differ: headings, units, and phrases for their values. They come from the descriptions
of the fields (scenario/fields.py); two are computed from other columns. And the labels of what is measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brobust import units
from brobust.lazily import pl
from brobust.scenario.description import CPU, CROSS, FLOWS, OUTPUT, PATH, PROGRAMS, RUNS, SENDER, TIME, Axis, Field
from brobust.scenario.fields import ROWS

_WHOLE = re.compile(r"(?<![\d.])\d+")  # not the digits after a point

# A reader first wants to know what was measured on what, and last what is compared most often.
_PANELS = (RUNS, PATH, SENDER, FLOWS, CROSS, CPU, OUTPUT)
_LAST = ("cc", "share")


@dataclass(frozen=True)
class ColumnAxis:
    axis: Axis
    unit: str = ""
    row: Field | None = None
    """The field; None if the column is computed from others."""


def _of_fields() -> Iterator[tuple[str, ColumnAxis]]:
    axes = {row.column.name: ColumnAxis(row.axis, row.column.unit, row) for row in ROWS if row.column and row.axis}
    for panel in _PANELS:
        for name, axis in axes.items():
            if axis.row is not None and axis.row.panel == panel and name not in _LAST:
                yield name, axis
                if name == "flow_rtt_ms":
                    yield "longest_rtt_ms", _LONGEST_RTT
    yield from ((name, axes[name]) for name in _LAST)


# Of the flows whose RTT is not the path's, which may be the longer one.
_LONGEST_RTT = ColumnAxis(
    Axis("longest other RTT", "longest round-trip time of a flow other than the path's [ms]", logarithmic=True), "ms"
)
_BUFFER_BDP = ColumnAxis(Axis("buffer", "bottleneck buffer [BDP]", "{} BDP buffer", logarithmic=True), "BDP")

# What may distinguish cells, in the order in which a reader wants it.
AXES: dict[str, ColumnAxis] = dict(_of_fields())
# What work costs programs distinguishes no cells of claims: runs without programs, beside which claims have those with
# programs, have none of it. But figures have it along their horizontal axis.
OF_PROGRAMS = {
    row.column.name: ColumnAxis(row.axis, row.column.unit, row)
    for row in ROWS
    if row.panel == PROGRAMS and row.column and row.axis and row.axis.label
}
# And a name for the buffer in another unit, which is an axis where bandwidth or RTT vary, too.
NAMED = {**AXES, **OF_PROGRAMS, "buffer_bdp": _BUFFER_BDP}

_FIELDS = {name: axis.row for name, axis in AXES.items() if axis.row is not None}
TEXT = tuple(name for name, row in _FIELDS.items() if row.column is not None and row.column.type == "text")
# What only a contended run has.
CONTENDED = tuple(name for name, axis in AXES.items() if axis.axis.only_contended)
# What only cross traffic has.
OF_CROSS_TRAFFIC = tuple(name for name, row in _FIELDS.items() if row.table == "cross_traffic" and name != "cross_load")
# What only one of the backends has, or has another default of, so that it says nothing where both are in a dataset.
OF_ONE_BACKEND = tuple(name for name, row in _FIELDS.items() if row.depends_on_backend)
# What each flow has for itself, and what is computed from that.
PER_FLOW = tuple(
    name for name, axis in AXES.items() if axis.row is None or (axis.row.table == "flows" and name != "flows")
)

# What figures may have along the other axis: metrics (metrics.py) with their labels, which end with [%] where figures
# have 100 times the number.
VALUES = {
    "throughput_mbps": "throughput at the receiver [Mbit/s]",
    "utilization": "throughput over what the bottleneck carries [%]",
    "retransmits": "segments retransmitted",
    "first_flow_share": "first flow's share of the throughput [%]",
    "rtt_mean_ms": "smoothed round-trip time, mean of the flows [ms]",
    "completion_ms": "completion time of a flow [ms]",
    "cross_median_ms": "completion time of cross traffic, median [ms]",
    "cross_p99_ms": "completion time of cross traffic, 99th percentile [ms]",
    "cross_slowdown": "cross traffic: time over the shortest possible, median",
    "cross_slowdown_p99": "cross traffic: time over the shortest possible, 99th percentile",
    "requests_per_s": "requests answered [1/s]",
    "request_median_ms": "time of a request, median [ms]",
    "request_p99_ms": "time of a request, 99th percentile [ms]",
    "request_p999_ms": "time of a request, 99.9th percentile [ms]",
    "first_byte_median_ms": "time to the first byte, median [ms]",
    "first_byte_p99_ms": "time to the first byte, 99th percentile [ms]",
    "first_byte_p999_ms": "time to the first byte, 99.9th percentile [ms]",
    "skb_mean_bytes": "sent at a time [bytes]",
    "pacing_idle_ms": "wait until the next, by pacing [ms]",
    "cpu_busy_share": "sender's CPU busy [%]",
}


def heading(axis: str) -> str:
    """Return the heading of an axis in a table: its name, and its unit if it has one; of another field, its name."""
    if axis not in NAMED:
        return axis
    return " ".join(filter(None, (NAMED[axis].axis.heading, NAMED[axis].unit)))


def axis_value(axis: str, value: object) -> str:
    """Return a value of an axis as people read it, without its unit."""
    if value is None:
        return "-"
    if axis in NAMED and NAMED[axis].axis.percent:
        return units.show_percent(float(value))  # type: ignore[arg-type]
    if axis == "phase" and str(value).isdigit():  # the column has words, and times in ns
        return TIME.show(int(str(value)))
    return f"{value:g}" if isinstance(value, float) else str(value)


def in_order(axes: Sequence[str]) -> list[pl.Expr]:
    """Return what sorts cells by their values on these axes. Text sorts by `natural`."""
    return [
        pl.col(axis).map_elements(natural, return_dtype=pl.String) if axis in TEXT else pl.col(axis) for axis in axes
    ]


def natural(text: str) -> str:
    """Return a key by which text sorts with the numbers in it by their value: alpha=8 before alpha=20, and 0.25 before
    0.5. Numbers without a point have at most 20 digits: times of the phase, in ns."""
    return _WHOLE.sub(lambda whole: whole[0].zfill(20), text)


def axis_phrase(name: str, value: object) -> str:
    """Return a value of an axis, or of another field, where it is not named: in a title, a legend, a sentence."""
    if name not in NAMED:
        return f"{name} {value}"
    axis, unit = NAMED[name].axis, NAMED[name].unit
    if value in axis.phrases:
        return axis.phrases[value]
    if value is None:
        return "-"
    phrase = axis.phrase or (f"{axis.heading} {{}} {unit}" if unit else "{}")
    return phrase.format(axis_value(name, value))


def cell_phrase(runs: pl.DataFrame, axes: Sequence[str], values: Sequence[object]) -> str:
    """Return a phrase for the cell of these runs that has these values on these axes, without axes that it has
    nothing on. A buffer is given in BDP if that is one number."""
    phrases = []
    # BDPs have two decimals, which small buffers may have in common.
    are_apart = runs["buffer_bdp"].n_unique() >= runs["buffer_bytes"].n_unique()
    for axis, value in zip(axes, values, strict=True):
        bdp = (
            runs.filter(pl.col(axis).eq_missing(value))["buffer_bdp"].unique().to_list()
            if axis == "buffer_bytes"
            else [None]
        )
        several = len(bdp) > 1 or bdp[0] is None or not are_apart
        phrases.append(axis_phrase(axis, value) if several else axis_phrase("buffer_bdp", bdp[0]))
    told = [phrase for phrase in phrases if phrase != "-"]
    return ", ".join(told or phrases[:1])
