"""The drawings of a study: each figure of its file as PNG and SVG, in the style of all figures (plot.STYLES)."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from brobust.analysis import confidence, summary
from brobust.analysis.axes import VALUES, axis_phrase, cell_phrase, natural
from brobust.analysis.cells import CELL
from brobust.analysis.checks import select
from brobust.analysis.claims import DIFFERS, HOLDS, IN_PART, NOT_MEASURABLE
from brobust.analysis.metrics import OF_RUNS, Evidence
from brobust.analysis.twins import Twin
from brobust.dataset import RUNS, flow_columns, frame, scenario_columns
from brobust.errors import BadInput
from brobust.report import plot
from brobust.scenario import Run, Scenario, differences
from brobust.study.model import Figure, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MAX_COLUMNS = 4
MAX_BARS = 40
# What is drawn of a run's samples, and how: pacing, delivery and estimate (2BRobust, figure 6).
RATES = {
    "pacing_rate_mbps": "pacing rate",
    "delivery_rate_mbps": "delivery rate",
    "bandwidth_estimate_mbps": "estimate",
}


def draw(study: Study, evidence: Evidence, directory: Path, twinned: Sequence[Twin] = ()) -> Iterator[Path]:
    """Draw each figure for which there are runs, and yield its files. `twinned` is for figures of kind twins."""
    directory.mkdir(parents=True, exist_ok=True)
    for figure in study.figures:
        runs = select(evidence.runs, figure.where)
        if runs.is_empty():
            continue
        name = f"{study.name}-{figure.name}"
        heading = f"{study.paper}, figure {study.figure}: {figure.title}"
        if figure.kind == "twins":
            yield from _twins(study, runs, evidence, heading, twinned, directory / name)
        elif figure.kind == "bars":
            yield from _bars(runs, evidence, figure, directory / name)
        elif figure.kind in DISTRIBUTIONS:
            yield from _distributions(runs, evidence, figure, heading, directory / name)
        elif figure.kind == "frontier":
            yield from _frontier(runs, evidence, heading, directory / name)
        elif figure.kind == "throughput":
            chosen = evidence.flows.filter(pl.col("run").is_in(runs["run"].implode()))
            values = None if figure.value in OF_RUNS else evidence.values(figure.value)
            yield from throughput_figure(chosen, figure, values).save(directory, name)
        else:
            yield from _panels(runs, evidence, figure, heading, directory / name)


def check(study: Study, scenarios: Sequence[Scenario]) -> list[str]:
    """Refuse figures that cannot be drawn of runs of these scenarios, before any is measured. Return in sentences what
    the user may not expect: figures that none of them belongs to, and cells that are not told apart."""
    ok = {"outcome": "ok", "throughput_mbps": 1.0}
    rows = [
        {**scenario_columns(Run(scenario=one, repeat=0)), **columns, **ok}
        for one in scenarios
        for columns in flow_columns(one)
    ]
    flows = frame(rows, RUNS)
    runs = summary.runs(flows)
    by_hash = {one.hash: one for one in scenarios}
    said = [*_taken_for_one(study, runs, scenarios)]
    for figure in study.figures:
        chosen = select(runs, figure.where)
        if chosen.is_empty():
            said.append(f"{study.name}: figure {figure.name} is not drawn: its where selects none of these runs")
            continue
        its = [by_hash[name] for name in chosen["scenario"]]
        if (why := _undrawable(figure, chosen, its, flows)) is not None:
            raise BadInput(f"{study.name}: figure {figure.name}: {why}")
    for claim in study.claims:
        for one in (one for one in claim.checks if one.metric == "utilization"):
            its = [by_hash[name] for name in select(runs, one.where)["scenario"]]
            if (why := summary.why_no_utilization(its)) is not None:
                raise BadInput(f"{study.name}: claim {claim.id}: {why}")
    return said


def _undrawable(figure: Figure, runs: pl.DataFrame, scenarios: Sequence[Scenario], flows: pl.DataFrame) -> str | None:
    """Return why a figure cannot be drawn of these runs, which are of these scenarios and have these flows; None if it
    can."""
    shows_utilization = figure.value == "utilization" or figure.kind == "frontier"
    if shows_utilization and (why := summary.why_no_utilization(scenarios)) is not None:
        return why
    if figure.kind in DISTRIBUTIONS and not any(one.packets for one in scenarios):
        return f"kind {figure.kind} needs packets = true in the grid"
    if figure.kind in PANELS:
        if PANELS[figure.kind].table == "samples" and all(one.samples is None for one in scenarios):
            return f"kind {figure.kind} needs samples in the grid"
        others, places = _places(plot.with_lines(runs, figure.lines))
        if len(places) > MAX_COLUMNS:
            by = ", ".join(others)
            return f"{len(places)} panels for each control (by {by}), and {MAX_COLUMNS} fit; choose fewer runs by where"
    if figure.kind == "bars" and (bars := runs.select(summary.varying(runs) or ["cc"]).n_unique()) > MAX_BARS:
        return f"{bars} bars, and {MAX_BARS} fit; choose fewer runs by where"
    if figure.kind == "throughput":
        values = None if figure.value in OF_RUNS else runs.select("run", value=pl.lit(1.0))
        try:
            throughput_figure(flows.filter(pl.col("run").is_in(runs["run"].implode())), figure, values)
        except BadInput as refusal:
            return str(refusal).replace("--x", "x")
    return None


def _taken_for_one(study: Study, runs: pl.DataFrame, scenarios: Sequence[Scenario]) -> Iterator[str]:
    """Yield a sentence if several scenarios are the same on every axis of cells: buffers have two decimals there."""
    of_cells = runs.group_by(CELL).agg(pl.col("scenario").unique())["scenario"].to_list()
    if several := [hashes for hashes in of_cells if len(hashes) > 1]:
        fields = differences.fields(scenarios)
        names = [name for hashes in several for name in differences.names([fields[one] for one in hashes], ["seed"])]
        if names:
            apart = ", ".join(sorted(set(names)))
            yield f"{study.name}: runs that differ in {apart} alone are taken for one cell by claims and in sheets"


def throughput_figure(flows: pl.DataFrame, figure: Figure, values: pl.DataFrame | None) -> plot.ThroughputFigure:
    return plot.ThroughputFigure(
        flows, figure.x, figure.value, figure.stat, figure.lines, log=figure.log, values=values
    )


def _panels(runs: pl.DataFrame, evidence: Evidence, figure: Figure, heading: str, file: Path) -> list[Path]:
    """Draw a panel per cell: rows are controls, columns are the cells of everything else that varies."""
    runs, kind = plot.with_lines(runs, figure.lines), PANELS[figure.kind]
    others, places = _places(runs)
    colors = {name: style[0] for name, style in plot.styles(runs["cc"].unique()).items()}
    with plot.new_figure(2.0 + 3.0 * len(places), 1.6 + 1.9 * len(colors)) as canvas:
        grid = canvas.subplots(
            len(colors), len(places), squeeze=False, sharex=True, sharey="row" if kind.one_scale else False
        )
        for row, (control, color) in enumerate(colors.items()):
            for column, place in enumerate(places):
                chosen = plot.at(runs.filter(pl.col("cc") == control), others, place)
                axes = grid[row][column]
                if not chosen.is_empty():
                    ids = chosen["run"].sort()
                    drawn = pl.col("run").is_in((ids.head(1) if kind.one_run else ids).implode())
                    rows = getattr(evidence, kind.table).filter(drawn).sort("run", "time_s")
                    kind.draw(axes, rows, evidence.flows.filter(drawn), color)
                if figure.seconds is not None:
                    axes.set_xlim(*figure.seconds)
                title = [control, cell_phrase(runs, others, place)]
                axes.set_title(", ".join(filter(None, title)), fontsize=8, parse_math=False)
        for axes in grid.flat:  # only now: once a limit is set, the axis no longer scales to later panels
            axes.set_ylim(bottom=0)
            axes.locator_params(axis="x", nbins=6, steps=[1, 2, 5, 10])  # of a short time each has three decimals
        cut = " A line that leaves a panel goes on above it." if any(map(_is_cut, grid.flat)) else ""
        _name_lines(canvas, list(grid.flat))
        canvas.supylabel(kind.label, fontsize=9)
        count = plot.runs_of_a_cell(runs, ["cc", *others])
        shown = f"One run of n = {count}" if kind.one_run else f"All runs, n = {count}, and their median"
        return plot.save(canvas, file, f"{heading}. {shown}.{cut} {_where(evidence)}", "time [s]")


def _is_cut(panel: Axes) -> bool:
    """Whether a line of a panel is higher than it, at a time that it shows."""
    (begin, end), (_, top) = panel.get_xlim(), panel.get_ylim()
    lines: Iterator[Any] = (line.get_xydata() for line in panel.lines)
    return any(((begin <= of[:, 0]) & (of[:, 0] <= end) & (of[:, 1] > top)).any() for of in lines)


def _name_lines(canvas: Canvas, panels: Sequence[Axes]) -> None:
    """Write what the panels' lines are: once, above all panels, where no line is hidden; but into each panel if the
    lines of one kind have other names there: flows of other RTTs."""
    found = [panel.get_legend_handles_labels() for panel in panels]
    named: dict[str, Any] = {}
    pairs: Iterator[tuple[str, Any]] = ((label, handle) for pair in found for handle, label in zip(*pair, strict=True))
    for label, handle in pairs:
        if label in named and named[label].get_color() != handle.get_color():  # each row has its control's colour
            handle = copy(handle)
            handle.set_color("0.4")
        named[label] = handle
    if not named:
        return
    if len(named) > max(len(labels) for _, labels in found):
        for panel in (panel for panel, (_, labels) in zip(panels, found, strict=True) if labels):
            panel.legend(fontsize=7, frameon=True)
        return
    plot.name_above(canvas, named, font=8)


def _places(runs: pl.DataFrame) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the axes but the control that vary, and each cell's values on them: that of a column of panels."""
    others = [axis for axis in summary.varying(runs) if axis != "cc"]
    if not others:
        return [], [()]
    return others, runs.select(others).unique().sort(others, descending=True, nulls_last=False).rows()


def _bars(runs: pl.DataFrame, evidence: Evidence, figure: Figure, file: Path) -> list[Path]:
    """Draw a bar for each cell: the median of its runs, with the median's confidence interval and every run."""
    chosen = evidence.flows.filter(pl.col("run").is_in(runs["run"].implode()))
    # The share first: in a name with timeslices nothing else would tell the cells apart, so it would be left out.
    named = plot.with_lines(runs, sorted(_places(runs)[0], key=lambda axis: axis != "share"))
    values = evidence.values(figure.value).drop("cc").join(named.select("run", "cc"), on="run")
    # A run with too few answers has an infinite time: there is no bar of its cell's other runs.
    values = values.filter(pl.col("value").is_finite().all().over("cc"))
    cells = sorted(values["cc"].unique(), key=plot.control_order, reverse=True)  # drawn from below
    with plot.new_figure(8, 1.6 + 0.45 * len(cells), font=10) as canvas:
        axes = canvas.subplots()
        for place, cell in enumerate(cells):
            each = (values.filter(cc=cell)["value"].sort() * plot.scale(figure.value)).to_list()
            median = statistics.median(each)
            low, high = confidence.of_median(each) or (median, median)
            axes.barh(place, median, height=0.6, color=plot.STYLES[0][0], alpha=0.75)
            axes.errorbar(median, place, xerr=[[median - low], [high - median]], color="black", capsize=3)
            axes.plot(each, [place] * len(each), color="black", marker=".", markersize=4, linestyle="none")
        axes.set_yticks(range(len(cells)), cells)
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(VALUES[figure.value])
        return plot.save(canvas, file, plot.caption(chosen, runs, figure.stat, drawn_as=("Bars", "lines")))


# What stands in a square, so that a verdict needs no colour; and its colour.
_SQUARES = {
    HOLDS: ("yes", "#009E73"),
    IN_PART: ("part", "#F0E442"),
    DIFFERS: ("no", "#D55E00"),
    NOT_MEASURABLE: ("-", "#FFFFFF"),
}


def _twins(
    study: Study, runs: pl.DataFrame, evidence: Evidence, heading: str, twinned: Sequence[Twin], file: Path
) -> list[Path]:
    """Draw a square for each value of the study's first variable and each claim: whether it holds."""
    from matplotlib.patches import Rectangle

    if not study.twins:
        return []
    variable = study.twins[0].variable
    shown = [twin for twin in twinned if twin.variable == variable]
    claims = sorted({twin.claim for twin in shown}, key=natural)
    values = list(dict.fromkeys(twin.value for twin in shown))
    with plot.new_figure(3.2 + 0.62 * len(claims), 1.6 + 0.42 * len(values), grid=False) as canvas:
        axes = canvas.subplots()
        for twin in shown:
            word, color = _SQUARES[twin.verdict]
            column, row = claims.index(twin.claim), values.index(twin.value)
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="white", alpha=0.75))
            axes.text(column, row, word, ha="center", va="center")
        axes.set_xlim(-0.5, len(claims) - 0.5)
        axes.set_ylim(len(values) - 0.5, -0.5)
        axes.set_xticks(range(len(claims)), claims)
        axes.set_yticks(range(len(values)), values)
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        for side in axes.spines.values():
            side.set_visible(False)
        meaning = "yes: the claim holds; part: in part; no: it differs"
        count = plot.runs_of_a_cell(runs, CELL)
        return plot.save(canvas, file, f"{heading} {meaning}. n = {count} in each cell. {_where(evidence)}")


# What is drawn of the packets when they leave the sender: the column, its label, what a height is a part of, and as far
# as it is drawn.
DISTRIBUTIONS = {
    "gaps": ("gap_ms", "gap to the packet before [ms]", "packets with at most this gap", 2.0),
    "trains": ("train", "packets of the train (gaps below 0.1 ms)", "packets in trains of at most this length", 20.0),
}


def _distributions(runs: pl.DataFrame, evidence: Evidence, figure: Figure, heading: str, file: Path) -> list[Path]:
    """Draw a distribution over packets: a panel for each control and CPU share, a line for each cell of them, named
    first after the axes `lines`; all runs of a cell together."""
    column, label, height, end = DISTRIBUTIONS[figure.kind]
    axes_of_lines = [axis for axis in dict.fromkeys([*figure.lines, *_places(runs)[0]]) if axis != "share"]
    # Only what is left of a line's name without its control, which the panel says.
    names = plot.with_lines(runs, axes_of_lines)["cc"].str.strip_prefix(runs["cc"] + ", ")
    named = runs.with_columns(names.alias("line"))
    shares, controls = named["share"].unique().sort(descending=True), named["cc"].unique().sort()
    # Where there are more lines than styles, the styles come again as wide lines.
    every = [(style, width) for width in (1.1, 2.6) for style in plot.STYLES]
    drawn = dict(zip(names.unique().sort(), itertools.cycle(every), strict=False))
    with plot.new_figure(2.5 + 3.6 * len(controls), 1.9 + 2.2 * len(shares)) as canvas:
        grid = canvas.subplots(len(shares), len(controls), squeeze=False, sharex=True, sharey=True)
        legend: dict[str, Any] = {}
        for (share, control), axes in zip(itertools.product(shares, controls), grid.flat, strict=True):
            here = named.filter((pl.col("cc") == control) & (pl.col("share") == share))
            for line in here["line"].unique().sort():
                ids = here.filter(pl.col("line") == line)["run"]
                values = evidence.trains.filter(pl.col("run").is_in(ids.implode()))[column].sort()
                (color, _marker, dashes), width = drawn[line]
                parts = [(number + 1) / len(values) for number in range(len(values))]
                # A line that ended at its last packet would seem to have no more to say; and wide ones hide no other.
                (legend[line],) = axes.plot(
                    [*values, max(end, values[-1])], [*parts, 1.0], color=color, linestyle=dashes, linewidth=width,
                    alpha=0.8, zorder=2 - width / 10,
                )  # fmt: skip
            axes.set_title(f"{control}, {axis_phrase('share', share)}", fontsize=8)
            axes.set_xlim(0, end)
            axes.locator_params(axis="x", steps=[1, 2, 5, 10])  # a train has whole packets
            axes.set_ylim(0, 1.02)
        plot.name_above(canvas, legend, font=8)
        canvas.supylabel(f"part of all packets: {height}", fontsize=9)
        count = plot.runs_of_a_cell(runs, CELL)
        caption = f"{heading}. All packets of all runs of each cell (n = {count}). {_where(evidence)}"
        return plot.save(canvas, file, caption, label)


def _frontier(runs: pl.DataFrame, evidence: Evidence, heading: str, file: Path) -> list[Path]:
    """Draw what throughput costs: retransmits and RTT against the throughput, a dot for the medians of each cell."""
    from matplotlib.ticker import SymmetricalLogLocator

    cells = list(dict.fromkeys(["cc", *summary.varying(runs)]))
    sent = evidence.values("retransmit_share").select("run", retransmit_share=pl.col("value") * 100)
    medians = (
        runs.join(sent, on="run")
        .group_by(cells)
        .agg(pl.col("retransmit_share", "rtt_mean_ms").median(), (pl.col("utilization") * 100).median())
        .sort("utilization")  # so that dots that overlap do so in the same order each time
    )
    with plot.new_figure(9, 4.4) as canvas:
        panels = {"retransmit_share": "retransmitted [% of segments]", "rtt_mean_ms": "mean RTT [ms]"}
        for axes, (column, label) in zip(canvas.subplots(1, 2), panels.items(), strict=True):
            for control, style in plot.styles(medians["cc"].unique()).items():
                of_control = medians.filter(pl.col("cc") == control)
                axes.scatter(
                    of_control["utilization"], of_control[column], color=style[0], marker=style[1], s=14, alpha=0.7,
                    label=control,
                )  # fmt: skip
            if column == "retransmit_share":  # 0 has a place, too
                axes.set_yscale("symlog", linthresh=0.1)
                axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=0.1, subs=[1, 2, 5]))
                axes.yaxis.set_major_formatter("{x:g}")
            else:
                axes.set_yscale("log")
                plot.log_ticks(axes.yaxis)
            axes.set_ylabel(label)
            axes.set_xlabel("throughput [% of what the bottleneck carries]")
        # Outside the panels, where there are no dots.
        handles, labels = canvas.axes[0].get_legend_handles_labels()
        plot.name_above(canvas, dict(zip(labels, handles, strict=True)), font=8)
        count = plot.runs_of_a_cell(runs, cells)
        caption = f"{heading}. A dot is a cell: medians of its runs (n = {count}). {_where(evidence)}"
        return plot.save(canvas, file, caption)


def _where(evidence: Evidence) -> str:
    """Return path, backend and kernel in words, as far as all runs have the same."""
    path = []
    for axis in ("bandwidth_mbps", "rtt_ms", "longest_rtt_ms"):
        if evidence.runs[axis].n_unique() == 1 and evidence.runs[axis][0] is not None:
            path.append(axis_phrase(axis, evidence.runs[axis][0]))
    where = "; ".join(filter(None, [", ".join(path), f"backend {evidence.flows['backend'][0]}"]))
    return f"{where[0].upper()}{where[1:]}, {summary.kernels(evidence.flows)}."


def _over_time(axes: Axes, rates: pl.DataFrame, _: pl.DataFrame, color: str) -> None:
    for of_run in rates.partition_by("run"):
        axes.plot(of_run["time_s"], of_run["throughput_mbps"], color=color, alpha=0.3, linewidth=0.8)
    median = rates.group_by("time_s").agg(pl.col("throughput_mbps").median()).sort("time_s")
    axes.plot(median["time_s"], median["throughput_mbps"], color=color, linewidth=1.8)


def _flows_over_time(axes: Axes, rates: pl.DataFrame, flows: pl.DataFrame, _: str) -> None:
    for of_flow, label, color, dashes in _each_flow(rates.sort("time_s"), flows):
        time, rate = of_flow["time_s"], of_flow["throughput_mbps"]
        axes.plot(time, rate, color=color, linestyle=dashes, linewidth=1.1, label=label)


def _each_flow(table: pl.DataFrame, flows: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, str, str, Any]]:
    """Yield of each flow of a run its rows of a table, its name, its colour and its dashes. Of more flows than there
    are styles, none has a style of its own: they have names that are in no legend, which begin with _."""
    hidden = "_" if flows.height > len(plot.STYLES) else ""
    styles = itertools.cycle(plot.STYLES)
    for row, (color, _marker, dashes) in zip(flows.sort("flow").iter_rows(named=True), styles, strict=False):
        of_flow = table.filter(pl.col("flow") == row["flow"])
        yield of_flow, f"{hidden}flow {row['flow'] + 1}, RTT {row['flow_rtt_ms']:g} ms", color, dashes


def _queue(axes: Axes, samples: pl.DataFrame, flows: pl.DataFrame, _: str) -> None:
    """Draw each flow's part of the bottleneck's queue, averaged over fifths of a second: flows are sampled at different
    ACKs."""
    mean = samples.group_by("flow", (pl.col("time_s") * 5).floor() / 5).agg(pl.col("queue_bytes").mean())
    shares = mean.with_columns(share=100 * pl.col("queue_bytes") / pl.col("queue_bytes").sum().over("time_s"))
    for of_flow, label, color, dashes in _each_flow(shares.sort("time_s"), flows):
        axes.plot(of_flow["time_s"], of_flow["share"], color=color, linestyle=dashes, linewidth=1.1, label=label)
    axes.set_ylim(0, 100)


def _windows(axes: Axes, samples: pl.DataFrame, flows: pl.DataFrame, _: str) -> None:
    """Draw what each flow may have in flight, and what it has."""
    samples = _thinned(samples)
    for of_flow, label, color, dashes in _each_flow(samples, flows):
        time, cwnd, inflight = of_flow["time_s"], of_flow["cwnd_packets"], of_flow["inflight_packets"]
        axes.plot(time, cwnd, color=color, linestyle=dashes, linewidth=1.6, alpha=0.5, label=f"{label}: cwnd")
        axes.plot(time, inflight, color=color, linestyle=dashes, linewidth=0.7, label=f"{label}: in flight")
    # The scale is that of the time after STARTUP.
    axes.set_ylim(0, 1.3 * float(samples.filter(pl.col("time_s") > 2)["cwnd_packets"].max() or 1))  # type: ignore[arg-type]


def _lines_of_flows(samples: pl.DataFrame) -> Iterator[tuple[pl.DataFrame, str]]:
    """Yield the samples of each flow, and of each connection of programs, with what the names of its lines begin with:
    only the first one's are in the legend, since the others have the same colours."""
    for number, of_flow in enumerate(samples.partition_by("flow", "connection", maintain_order=True)):
        yield of_flow, "_" if number else ""


def _rates(axes: Axes, samples: pl.DataFrame, _: pl.DataFrame, __: str) -> None:
    for every, hidden in _lines_of_flows(samples):
        of_flow = _thinned(every)
        for (column, label), (color, _marker, dashes) in zip(RATES.items(), plot.STYLES, strict=False):
            name = f"{hidden}{label}"
            axes.plot(of_flow["time_s"], of_flow[column], color=color, linestyle=dashes, linewidth=1.1, label=name)


def _inflight(axes: Axes, samples: pl.DataFrame, _: pl.DataFrame, color: str) -> None:
    for every, _hidden in _lines_of_flows(samples):
        of_flow = _thinned(every)
        axes.plot(of_flow["time_s"], of_flow["inflight_bdp"], color=color, linewidth=0.9)
    axes.axhline(1, color="#000000", linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 4)


def _gains(axes: Axes, samples: pl.DataFrame, _: pl.DataFrame, color: str) -> None:
    for of_flow, hidden in _lines_of_flows(samples):
        time, gain, inflight = of_flow["time_s"], of_flow["pacing_gain"], of_flow["inflight_bdp"]
        axes.step(time, gain, color=color, linewidth=0.9, where="post", label=f"{hidden}pacing gain")
        name = f"{hidden}in flight [BDP]"
        axes.plot(time, inflight, color="#000000", linestyle="--", linewidth=0.7, label=name)
    axes.set_ylim(0, 4)


def _sent(axes: Axes, samples: pl.DataFrame, _: pl.DataFrame, color: str) -> None:
    """Draw what is in flight at each ACK, and the pacing rate after it."""
    for of_flow, hidden in _lines_of_flows(samples):
        time, inflight, rate = of_flow["time_s"], of_flow["inflight_packets"], of_flow["pacing_rate_mbps"]
        axes.plot(time, inflight, color=color, marker=".", markersize=2, linewidth=0.7,
                  label=f"{hidden}in flight [packets]")  # fmt: skip
        axes.step(time, rate, color="#000000", linewidth=0.7, where="post", label=f"{hidden}pacing rate [Mbit/s]")


def _thinned(samples: pl.DataFrame) -> pl.DataFrame:
    """Return at most as many samples as a panel can show."""
    return samples.gather_every(max(1, len(samples) // 2000))


@dataclass(frozen=True)
class Panels:
    """What a panel shows of a cell's runs, or of the first of them: the rows of a table of the evidence."""

    draw: Callable[[Axes, pl.DataFrame, pl.DataFrame, str], None]
    """Draws these rows. It has the flows of the runs, too, and the control's colour."""
    table: str
    label: str
    one_run: bool = True
    one_scale: bool = True  # for all panels of a row


PANELS = {
    "over_time": Panels(_over_time, "throughput", "throughput at the receiver [Mbit/s]", one_run=False),
    "flows_over_time": Panels(_flows_over_time, "flow_throughput", "throughput of each flow [Mbit/s]"),
    "queue": Panels(_queue, "samples", "part of the bottleneck's queue [%]"),
    "windows": Panels(_windows, "samples", "packets", one_scale=False),
    "model": Panels(_rates, "samples", "rate [Mbit/s]", one_scale=False),
    "inflight": Panels(_inflight, "samples", "in flight [BDP by the control's own estimate]"),
    "gains": Panels(_gains, "samples", "pacing gain, and in flight [BDP]"),
    "sent": Panels(_sent, "samples", "in flight [packets], pacing rate [Mbit/s]", one_scale=False),
}
