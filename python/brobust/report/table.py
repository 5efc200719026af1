"""A dataset as a table: a row per cell with the median and the spread of the throughput, and the number of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.table import Table

from brobust import units
from brobust.analysis import summary
from brobust.analysis.axes import TEXT, axis_value, heading
from brobust.lazily import pl
from brobust.scenario import Grid

# Columns of completion times, where there are any, with their headings.
COMPLETION = {
    "completion_ms": "completion ms", "cross_median_ms": "cross ms", "cross_p99_ms": "cross p99 ms",
    "requests_per_s": "req/s", "request_median_ms": "p50 ms", "request_p99_ms": "p99 ms",
}  # fmt: skip

# What is said of runs with this outcome; the column `reason` has each one's.
UNFAITHFUL = "did not get the requested contention, or delivered nothing; the dataset says why"

GAP = 2  # between two columns
NARROW = 80  # columns of text, which any terminal has


def render(table: pl.DataFrame, title: str, grid: Callable[[], Grid]) -> Table:
    """Return a dataset's runs as a table for the terminal. `grid` returns their scenarios."""
    cells, axes = summary.cells(table, grid)
    # Without vertical lines, so that four axes still fit into 80 columns.
    out = Table(
        title=title, title_justify="left", caption=_caption(table), caption_justify="left",
        box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False,
    )  # fmt: skip
    headings = [heading(axis) for axis in axes]
    headings += ["Mbit/s", "min-max", "n", "retrans", "share got"]
    times = [name for name in COMPLETION if cells[name].null_count() < len(cells)]
    headings += [COMPLETION[name] for name in times]
    rows = [
        [
            *[axis_value(axis, row[axis]) for axis in axes],
            f"{row['median']:.2f}",
            f"{row['min']:.2f}-{row['max']:.2f}",
            f"{row['n']} ({row['unfaithful']}!)" if row["unfaithful"] else str(row["n"]),
            "-" if row["retransmits"] is None else f"{row['retransmits']:.0f}",
            _shares(row["effective_shares"]),
            *["-" if row[name] is None else f"{row[name]:.1f}" for name in times],
        ]
        for row in cells.iter_rows(named=True)
    ]
    # A heading of a wide table breaks between its words. Rich would also cut words, numbers and columns.
    widest = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    breaks = sum(widest) + GAP * (len(widest) + 1) > NARROW
    for number, text in enumerate(headings):
        is_text = number < len(axes) and axes[number] in TEXT
        heading_lines = text.replace(" ", "\n") if breaks else text
        out.add_column(heading_lines, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    return out


def _unanswered(table: pl.DataFrame) -> str:
    """Return how many requests had no whole answer, or an error's status, where there are any: the times alone would
    hide them."""
    asked, answered = (int(table.unique("run")[name].sum()) for name in ("requests", "requests_answered"))
    left = asked - answered
    return f"; requests without an answer, which count as the slowest: {left} of {asked}" if left else ""


def _unended(table: pl.DataFrame) -> str:
    """Return of how many flows of the cross traffic the times are, where some were not through: these took longer."""
    each = table.filter(pl.col("outcome") != "failed").unique("run")
    began, ended = (int(each[name].sum()) for name in ("cross_transfers", "cross_ended"))
    return f"; cross: of the flows that were through, {ended} of {began}" if ended < began else ""


def _shares(got: Sequence[float | None]) -> str:
    """Return the share that each sender got, once if all got the same."""
    each = ["-" if share is None else f"{share:.1%}" for share in got]
    return each[0] if len(set(each)) == 1 else "+".join(each)


def _caption(table: pl.DataFrame) -> str:
    failed = table.filter(pl.col("outcome") == "failed")["run"].n_unique()
    text = "median of n runs; throughput is payload at the receiver; retrans: segments retransmitted"
    if table["flow_bytes"].drop_nulls().len():
        text += "; of flows that all have a size over the time until the last has ended"
        sized = table.filter((pl.col("outcome") != "failed") & pl.col("flow_bytes").is_not_null())["completion_ms"]
        if 0 < sized.count() < len(sized):
            text += f"; completion: of the flows that were through, {sized.count()} of {len(sized)}"
    if table["sender"].n_unique() > 1:
        text += "; share got: each sender's, other columns of the CPU: that of the first flow"
    text += _unended(table) + _unanswered(table)
    if "unfaithful" in set(table["outcome"]):
        text += f"; (k!): k of them {UNFAITHFUL}"
    text = "; ".join([text, *summary.versions(table)])
    return text + (f"; without {units.show_count(failed, 'run')} that failed" if failed else "")
