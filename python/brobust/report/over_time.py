"""One run over time, for notebooks: throughput, in flight, bandwidth estimate, and when the senders had their CPU."""

from __future__ import annotations

import html as escaping
import io
from typing import TYPE_CHECKING

import polars as pl

from brobust import extras, units
from brobust.dataset import OfRun
from brobust.report.plot import BLACK, IN_A_PANEL, STYLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The figure's panels: table, column, label.
PANELS = (
    ("throughput", "throughput_mbps", "throughput\n[Mbit/s]"),
    ("samples", "inflight_packets", "in flight\n[packets]"),
    ("samples", "bandwidth_estimate_mbps", "bandwidth estimate\n[Mbit/s]"),
)
SHOWN = ("flow", "cc", "throughput_mbps", "retransmits", "drops", "rtt_mean_ms", "queue_mean_ms", "effective_share")
TIMESLICES = 2000
"""Of more timeslices than this, none are drawn: they would be one grey area."""


def figure(run: OfRun) -> Figure:
    """Return the run's flows over time. The grey areas are the times in which a sender had no CPU. Panels of what was
    not recorded are left out."""
    import matplotlib as mpl

    from brobust.report.figure import ShownFigure

    rows = run.runs
    tables = {"throughput": run.throughput, "samples": run.samples}
    panels = [panel for panel in PANELS if tables[panel[0]][panel[1]].drop_nulls().len()]
    are_named = 1 < rows.height <= len(STYLES)  # of more, no line has a style of its own, and the names would hide them
    are_above = are_named and rows.height > IN_A_PANEL
    height = 0.6 + 1.7 * max(len(panels), 1) + 0.5 * are_above
    drawn = ShownFigure(figsize=(9, height), layout="constrained")
    axes = drawn.subplots(max(len(panels), 1), 1, squeeze=False, sharex=True)[:, 0]
    off = run.offtimes.filter((pl.col("kind") == "off") & pl.col("start_s").is_not_null())
    for (table, column, label), panel in zip(panels, axes, strict=False):
        for number, flow in enumerate(rows.iter_rows(named=True)):
            of_flow = tables[table].filter(pl.col("flow") == flow["flow"]).sort("time_s")
            times = of_flow["time_s"] + (flow["start_s"] if table == "throughput" else 0)
            color, _, dashes = STYLES[number % len(STYLES)]
            color = mpl.rcParams["text.color"] if color == BLACK else color  # of a dark theme it is white
            name = f"{flow['flow']}: {flow['cc']}"
            steps = "steps-post" if table == "samples" else "default"  # a sample holds until the next one
            panel.plot(
                times, of_flow[column], color=color, linestyle=dashes, linewidth=1.1, label=name, drawstyle=steps
            )
        if off.height <= TIMESLICES:
            for start, duration_ms in off.select("start_s", "duration_ms").iter_rows():
                panel.axvspan(start, start + duration_ms / 1e3, color="0.5", alpha=0.25, linewidth=0)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, float(rows["duration_s"][0]))
    if are_above:
        drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=IN_A_PANEL)
    elif are_named:
        axes[0].legend(loc="upper right")
    # On vm and lab each vCPU has its own, of which others may run at that time.
    who, darker = ("a vCPU of a sender", "; darker: several") if off["vcpu"].n_unique() > 1 else ("a sender", "")
    grey = f"; grey: {who} had no CPU{darker}" if off.height else ""
    if off.height > TIMESLICES:
        grey = f"; not drawn: the {off.height:,} times in which {who} had no CPU"
    axes[-1].set_xlabel(f"time [s]{grey}")
    return drawn


def html(run: OfRun, title: str) -> str:
    """Return a table of the run's flows, and its figure where matplotlib is installed, as HTML."""
    heads = "".join(f"<th>{column}</th>" for column in SHOWN)
    lines = []
    for row in run.runs.select(SHOWN).iter_rows():
        cells = (
            units.show_measured(value, 4) if isinstance(value, float) else "" if value is None else str(value)
            for value in row
        )
        lines.append("<tr>" + "".join(f"<td>{escaping.escape(cell)}</td>" for cell in cells) + "</tr>")
    shown = f"<p>{escaping.escape(title)}</p><table><tr>{heads}</tr>{''.join(lines)}</table>"
    if extras.missing():
        return shown
    import matplotlib as mpl

    drawn = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure(run).savefig(drawn, format="svg")
    return shown + drawn.getvalue()[drawn.getvalue().index("<svg") :]
