"""Figures of a dataset, as PNG and SVG and drawn in the terminal. The same look in all.

Files need matplotlib, of the extra `study` (brobust/extras.py); the terminal does not."""

from __future__ import annotations

import itertools
import logging
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import plotext
import polars as pl

from brobust import files, units
from brobust.analysis import confidence, metrics, summary
from brobust.analysis.axes import CONTENDED, NAMED, OF_PROGRAMS, VALUES, axis_phrase, cell_phrase, in_order, natural
from brobust.analysis.cells import undisturbed_with_every_schedule
from brobust.errors import BadInput, printable
from brobust.report import parameters
from brobust.scenario import Scenario

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

BLACK = "#000000"
# Okabe and Ito's colours, which colour-blind readers can distinguish, with markers and dashes for prints in grey.
STYLES = [
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#009E73", "^", "-."),
    ("#CC79A7", "D", ":"),
    ("#E69F00", "v", (0, (5, 1))),
    ("#56B4E9", "P", (0, (1, 1))),
    (BLACK, "X", (0, (3, 1, 1, 1))),
]
# Which control has which style, in every figure that it is in.
USUAL = ("cubic", "bbr", "bbr_steady", "brb_bbr3", "bbr_robust", "brb_bbr2", "brb_bbr3_robust")
# The same in the terminal: the colours, and the markers without colours, also of further rounds of them.
TERMINAL_COLORS = ("blue", "red", "green", "magenta", "orange", "cyan", "white")
TERMINAL_MARKERS = "cbrxo+*adefghijklmnpqstuvwyz"
# What a figure has along its horizontal axis, where several axes vary and none is chosen.
FIRST_CHOICES = (
    "share", "bandwidth_mbps", "rtt_ms", "longest_rtt_ms", "timeslice_ms", "start_jitter", "length_jitter",
    "alternate_s", "receiver_share", "buffer_bytes", "buffer_bdp", "loss", "flows",
)  # fmt: skip
# The label of each axis that a figure can have: those with numbers. So can a parameter that controls' names hold, of
# which only the stride has a label of its own.
LABELS = {
    **{name: NAMED[name].axis.label for name in dict.fromkeys((*FIRST_CHOICES, *NAMED)) if NAMED[name].axis.label},
    "stride": "pacing stride",
}
LOGARITHMIC = {"stride", *(name for name, named in NAMED.items() if named.axis.logarithmic)}
PERCENT = {
    *(name for name, named in NAMED.items() if named.axis.percent),
    *(value for value, label in VALUES.items() if label.endswith("[%]")),
}
OF_RUNS = [value for value in VALUES if value in metrics.OF_RUNS]
"""Those that are columns of the runs."""
MAX_PANELS = 12
IN_A_PANEL = 4  # names of controls; of more, the legend stands above all panels
MAX_TICKS = 12  # of more values of the horizontal axis not each has a tick
DASHES = 3.4  # length of a line in a legend, in letters, that shows its dashes beside its marker
TERMINAL_LINES = 18


class ThroughputFigure:
    """Throughput (or another of axes.VALUES) against one axis: one line per congestion control, and one panel per value
    of everything else that varies."""

    def __init__(
        self,
        runs: pl.DataFrame,
        x: str | None = None,
        value: str = "throughput_mbps",
        stat: Literal["median", "deviation"] = "median",
        lines: Sequence[str] = (),
        log: bool = False,
        values: pl.DataFrame | None = None,
        scenarios: Callable[[], Iterable[Scenario]] | None = None,
    ):
        """`lines`: axes that distinguish lines, as the control does, where a control has several values of them.
        `values`: columns run and value, for a value that is not a column of the runs. `scenarios`: asked for what the
        runs measured, if that may differ in fields that are no axes."""
        cells = measured = with_lines(summary.runs(runs), lines)
        fields: list[str] = []
        if scenarios is not None:
            cells, fields = summary.told_apart(measured, summary.varying(measured) or ["cc"], scenarios)
            measured = cells
        known = parameters.names(measured["cc"].unique(maintain_order=True))
        labels = dict(LABELS)
        if x == "stride" or (x is not None and x in known and x not in LABELS):
            measured, unit = parameters.as_column(measured, x)
            labels.setdefault(x, f"parameter {x}" + (f" [{unit}]" if unit else ""))
        if values is not None:
            measured = measured.join(values.select("run", pl.col("value").alias(value)), on="run")
        self._value, self._stat, self._log = value, stat, log
        self._label = VALUES[value] if stat == "median" else f"standard deviation of the {VALUES[value]}"
        if measured.is_empty():
            raise BadInput("the dataset has no measured run to plot; `brobust run --resume` repeats what failed")
        axes = [*summary.varying(measured), *fields]
        numeric = [axis for axis in LABELS if axis in axes]
        self.x = x or (numeric[0] if numeric else "share")
        choices = f"give one that varies: {', '.join(numeric)}" if numeric else "leave it out"
        if self.x not in labels:
            raise BadInput(f"--x {self.x}: no such axis; give one of {', '.join([*LABELS, *known])}")
        self._x_label = labels[self.x]
        self._panel_axes = [axis for axis in axes if axis not in (self.x, IN_ANOTHER_UNIT.get(self.x), "cc")]
        # Undisturbed runs have neither driver nor timeslice: they belong to every panel of their control.
        schedule = [axis for axis in self._panel_axes if axis in CONTENDED or axis.startswith("contention.")]
        if schedule:
            same = ["cc", *(axis for axis in self._panel_axes if axis not in schedule)]
            is_undisturbed = (pl.col("share") == 1) & pl.col("replay").is_null()
            self._panels_of(measured.filter(is_undisturbed.not_()))  # before every run is repeated for each of them
            measured = undisturbed_with_every_schedule(measured, is_undisturbed, same, schedule)
        self._runs = measured.filter(pl.col(self.x).is_not_null())  # an undisturbed run has no timeslice
        if self._runs.is_empty():
            raise BadInput(f"--x {self.x}: no run of the dataset has a value there; {choices}")
        self._panels = self._panels_of(measured)
        # A dataset may be a stranger's: a terminal would act on escape sequences in its names, and no font has them.
        self._runs = self._runs.with_columns(pl.col("cc").map_elements(printable, return_dtype=pl.String))
        self.controls = sorted(self._runs["cc"].unique(), key=control_order)
        self._caption = caption(runs, cells, stat, fields)

    def _panels_of(self, runs: pl.DataFrame) -> list[tuple[Any, ...]]:
        """Return the panels that these runs need, in order; refuse more than fit."""
        if not self._panel_axes:
            return [()]
        panels = runs.filter(pl.col(self.x).is_not_null()).select(self._panel_axes).unique()
        if panels.height > MAX_PANELS:
            raise BadInput(
                f"the dataset varies along {', '.join(self._panel_axes)}: {panels.height} panels, and {MAX_PANELS} "
                "fit; choose another --x or plot a smaller dataset"
            )
        return panels.sort(in_order(self._panel_axes)).rows()

    @property
    def panels(self) -> int:
        """The number of panels, of which the terminal has the first."""
        return len(self._panels)

    @property
    def has_values(self) -> bool:
        """Whether a run has a value for the vertical axis: not all have requests, or a slow CPU."""
        return self._runs[self._value].count() > 0

    def save(self, directory: Path, name: str = "throughput") -> list[Path]:
        """Write NAME.png and NAME.svg."""
        return save(self.figure(), directory / name, self._caption, self._x_label, size=9)

    def figure(self) -> Figure:
        columns = 2 if len(self._panels) == 4 else min(3, len(self._panels))
        rows = -(-len(self._panels) // columns)
        # A page is some 7 inches wide: the wider a figure, the smaller its letters are there.
        width = 4.8 + 2.4 * columns
        # In one panel of several, the names would seem to be of its lines alone; and many would hide lines.
        are_above = len(self._panels) > 1 or len(self.controls) > IN_A_PANEL
        names_above = -(-len(self.controls) // names_beside(self.controls, width)) if are_above else 0
        with new_figure(width, 1.2 + 3.2 * rows + 0.25 * names_above, font=10) as figure:
            grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
            for number, axes in enumerate(grid.flat):
                if number < len(self._panels):
                    self._draw(axes, self._panels[number])
                else:
                    axes.set_visible(False)
            # Only now: once a limit is set, the axis no longer scales to later panels.
            self._set_ticks(grid[0][0], (width - 0.8) / columns)
            # A logarithmic axis needs something above 0: a deviation may be 0, or unknown, in every cell.
            if self._log and any(axes.dataLim.y1 > 0 for axes in grid.flat):
                grid[0][0].set_yscale("log")
                log_ticks(grid[0][0].yaxis)
            else:
                # Where all values are nearly equal, matplotlib leaves no room above them for the markers.
                _, highest = grid[0][0].get_ylim()
                grid[0][0].set_ylim(0, highest * 1.05)
                grid[0][0].locator_params(axis="y", steps=[1, 2, 5, 10])  # no ticks at 2.5 and 7.5
            figure.supylabel(self._label, fontsize=10)
            names: dict[str, Any] = {}  # of all panels: one may lack a control
            for axes in grid.flat:
                handles, labels = axes.get_legend_handles_labels()
                # The line without its bars, which would hide the dashes.
                names |= {label: bars[0] for label, bars in zip(labels, handles, strict=True)}
            shown = {control: names[control] for control in self.controls if control in names}
            if are_above:
                name_above(figure, shown, font=10)
            else:
                grid[0][0].legend(shown.values(), shown, handlelength=DASHES, frameon=True)
        return figure

    def _draw(self, axes: Axes, panel: tuple[object, ...]) -> None:
        rows = at(self._runs, self._panel_axes, panel)
        for control, (color, marker, dashes) in styles(self.controls).items():
            points = self._points(rows.filter(pl.col("cc") == control))
            if points.is_empty():
                continue
            median = points["value"].to_numpy()
            # If all values are equal, the interval's ends and the median may differ in the last bit.
            low, high = points["low"].to_numpy(), points["high"].to_numpy()
            spread = [(median - low).clip(min=0), (high - median).clip(min=0)]
            axes.errorbar(
                points["x"].to_numpy(), median, yerr=spread, label=control, color=color, marker=marker,
                linestyle=dashes, markersize=5, capsize=3, linewidth=1.6,
            )  # fmt: skip
            if self._stat == "median":
                each = points.explode("each")
                # White, on the bars and below the lines: with few runs a bar ends at them, and would hide them.
                axes.plot(
                    each["x"], each["each"], color=color, marker="o", markersize=3, markerfacecolor="white",
                    markeredgewidth=0.7, linestyle="none", zorder=2.05,
                )  # fmt: skip
        if self._panel_axes:
            # The name of a file, or a program's command, may have two dollars, which would be a formula.
            axes.set_title(cell_phrase(self._runs, self._panel_axes, panel), fontsize=9, parse_math=False)

    def _set_ticks(self, axes: Axes, inches: float) -> None:
        """Set scale and ticks of the horizontal axis, which all panels share, each of them so many inches wide."""
        measured = self._ticks(self._runs)
        is_logarithmic = self.x in LOGARITHMIC and measured[-1] > 0
        if is_logarithmic:
            axes.set_xscale("log")
        if len(measured) <= MAX_TICKS:
            axes.set_xticks(measured, _apart(measured, is_logarithmic, inches))
            axes.minorticks_off()
        elif is_logarithmic:
            log_ticks(axes.xaxis)

    def _ticks(self, rows: pl.DataFrame) -> list[float]:
        """Return the positions at which something was measured."""
        return sorted({x * scale(self.x) for x in rows[self.x].drop_nulls()})

    def _points(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return for each x the statistic as `value`, the median's confidence interval (NaN where there is none), and
        the values of `each` run."""
        of_cell = pl.col(self._value).cast(pl.Float64).sort() * scale(self._value)
        if self._value in summary.REQUEST_TIMES:  # the runs that have it are the fast ones: there is no point of them
            rows = rows.filter(pl.col(self._value).is_not_null().all().over(self.x))
        cells = (
            rows.filter(pl.col(self._value).is_not_null())
            .group_by(x=pl.col(self.x) * scale(self.x))
            .agg(each=of_cell)
            .sort("x")
        )
        if self._stat == "deviation":
            none = pl.lit(float("nan"))
            return cells.with_columns(value=pl.col("each").list.std(), low=none, high=none)
        found = [confidence.of_median(each) or (float("nan"),) * 2 for each in cells["each"].to_list()]
        return cells.with_columns(
            pl.Series("low", [low for low, _ in found], pl.Float64),
            pl.Series("high", [high for _, high in found], pl.Float64),
            value=pl.col("each").list.median(),
        )

    def terminal(self, width: int = 80, colors: bool = False) -> str:
        """Return the first panel, drawn with characters; without colors each control has another character."""
        plotext.clear_figure()
        plotext.plotsize(width, TERMINAL_LINES)
        plotext.theme("clear")
        rows = at(self._runs, self._panel_axes, self._panels[0])
        names = []
        for control, place in style_numbers(self.controls).items():
            points = self._points(rows.filter(pl.col("cc") == control))
            if not points.is_empty():
                color = TERMINAL_COLORS[place % len(TERMINAL_COLORS)]
                marker = TERMINAL_MARKERS[place % len(TERMINAL_MARKERS)]
                is_line = colors and place < len(TERMINAL_COLORS)  # where colours come again, markers tell them apart
                xs, ys = points["x"].to_list(), points["value"].to_list()
                plotext.plot(xs, ys, color=color, marker="braille" if is_line else marker)
                names.append((f"{'⠤⠤' if is_line else marker} {control}", color))
        ticks = self._ticks(rows)
        plotext.xticks(ticks, [f"{x:g}" for x in ticks])
        plotext.ylim(0, float(rows[self._value].max() or 1) * scale(self._value) * 1.05)  # type: ignore[arg-type]
        plotext.xlabel(self._x_label)
        where = f", {cell_phrase(self._runs, self._panel_axes, self._panels[0])}" if self._panel_axes else ""
        plotext.title(printable(f"{self._stat}: {VALUES[self._value]}{where}"))
        drawn = "\n".join([plotext.build().rstrip("\n"), *_legend(names, width)])
        return drawn if colors else str(plotext.uncolorize(drawn))


def _legend(names: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return lines with these names in their colours, for below a figure in the terminal: plotext's own legend hides
    what is drawn behind it."""
    lines, left = [], 0
    for name, color in names:
        if len(name) > left:
            lines.append("")
            left = width
        lines[-1] += f"{plotext.colorize(name, color)}   "
        left -= len(name) + 3
    return [line.rstrip() for line in lines]


def _apart(ticks: Sequence[float], is_logarithmic: bool, inches: float) -> list[str]:
    """Return a label for each tick of an axis of so many inches; an empty one where it would run into the one before.
    A logarithmic axis has no place for 0, whose label is drawn nowhere."""
    places = [math.log(max(tick, 1e-9)) if is_logarithmic else tick for tick in ticks]
    whole = places[-1] - places[0]
    labels: list[str] = []
    end = -inches  # of the label before
    for tick, place in zip(ticks, places, strict=True):
        label = f"{tick:g}"
        middle, half = 0.9 * inches * (place - places[0]) / (whole or 1), 0.045 * len(label)
        is_free = middle - half > end + 0.05
        labels.append(label if is_free else "")
        end = middle + half if is_free else end
    return labels


def log_ticks(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as 1, 2, 5, 10, 20 and so on, rather than as powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def names_beside(names: Sequence[str], width: float, font: int = 10) -> int:
    """Return how many of these names fit beside each other into a legend above a figure of so many inches."""
    inches = 0.07 * font + 0.009 * font * max(len(name) for name in names)  # of a line and its margins, and of letters
    return min(len(names), max(1, int(width / inches)))


def name_above(figure: Figure, shown: Mapping[str, Any], font: int) -> None:
    """Write above all panels what their lines are, where no line is hidden. `shown` has a line for each name."""
    beside = names_beside(list(shown), figure.get_figwidth(), font)
    figure.legend(
        shown.values(), shown, loc="outside upper center", ncols=beside, fontsize=font, handlelength=DASHES
    )  # fmt: skip


def load_matplotlib() -> Any:
    """Import matplotlib, which takes a second, unless it is here, and return it. The settings in a file matplotlibrc of
    the current directory do not count: that may be a stranger's dataset, and with text.usetex they run programs."""
    if "matplotlib" not in sys.modules:
        log = logging.getLogger("matplotlib")  # it would print the lines that are no settings
        # Also where the directory is gone; and matplotlib reads what is no directory.
        is_there = os.path.exists("matplotlibrc") and not files.is_directory("matplotlibrc")  # noqa: PTH110
        if is_there:
            try:
                files.check(Path("matplotlibrc"), files.MAX_TEXT)
            except BadInput as refusal:
                raise BadInput(f"{refusal}, or remove it: matplotlib reads it before it draws") from None
        log.disabled = is_there
        try:
            import matplotlib as mpl
        except ValueError:
            if (named := os.environ.get("MPLBACKEND")) is None:
                raise
            raise BadInput(f"MPLBACKEND: matplotlib has no backend {named!r}; files need none: unset it") from None
        finally:
            log.disabled = False
        if is_there:
            mpl.rcdefaults()
    return sys.modules["matplotlib"]


@contextmanager
def new_figure(width: float, height: float, *, font: int = 9, grid: bool = True) -> Iterator[Figure]:
    """Yield a figure of so many inches to draw on, while its style applies."""
    mpl = load_matplotlib()
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": font, "axes.grid": grid, "grid.alpha": 0.3}):
        yield Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, file: Path, caption: str, label: str = "", size: int = 8) -> list[Path]:
    """Write FILE.png and FILE.svg, with a caption below all panels. `label`: that of their horizontal axis."""
    import matplotlib as mpl

    # Some 13 characters of the caption's size fit into an inch. A number stays beside its unit.
    together = re.sub(r"(?<=\d) (?=[^\W\d]|%)", "\N{NO-BREAK SPACE}", caption)
    lines = textwrap.wrap(together, int(13 * figure.get_figwidth()), break_on_hyphens=False)
    figure.supxlabel("\n".join([label, "", *lines] if label else lines), fontsize=size)
    written = [file.with_name(f"{file.name}.{kind}") for kind in ("png", "svg")]  # a name may have a dot: section 5.1
    with mpl.rc_context({"svg.fonttype": "none"}):
        for one in written:
            with files.replaced(one) as out:
                figure.savefig(out, dpi=160, format=one.suffix[1:])
    return written


def at(runs: pl.DataFrame, axes: Sequence[str], values: Sequence[object]) -> pl.DataFrame:
    for axis, value in zip(axes, values, strict=True):
        runs = runs.filter(pl.col(axis).eq_missing(pl.lit(value)))
    return runs


def style_numbers(controls: Iterable[str]) -> dict[str, int]:
    """Return the number of each control's style, the reference first: its usual one, or those that are left, in order.
    From the number of colours on, they come again."""
    ordered = sorted(controls, key=control_order)
    taken: dict[int, str] = {}
    for control in ordered:
        usual = control.split(",")[0]  # without the values of axes that with_lines has added
        if usual in USUAL:
            taken.setdefault(USUAL.index(usual), control)
    # Of every round of colours those of cubic and bbr come last: readers know them from other figures.
    many = len(STYLES)
    every = (number // many * many + (number + 2) % many for number in itertools.count())
    left = (place for place in every if place not in taken)
    usual_places = {control: place for place, control in taken.items()}
    return {control: usual_places[control] if control in usual_places else next(left) for control in ordered}


def styles(controls: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Return colour, marker and dashes of each control, the reference first. Of more controls than there are colours,
    no two have the same of all three either."""
    return {control: _style(place) for control, place in style_numbers(controls).items()}


def _style(place: int) -> tuple[Any, ...]:
    """Return the style at this place: each time that the colours come again, they have the next marker and dashes."""
    color = STYLES[place % len(STYLES)][0]
    _, marker, dashes = STYLES[(place + place // len(STYLES)) % len(STYLES)]
    return color, marker, dashes


# Axes that say the same in two units, of all flows and of each, or as the scenario's field.
IN_ANOTHER_UNIT = {
    "buffer_bdp": "buffer_bytes", "buffer_bytes": "buffer_bdp", "longest_rtt_ms": "flow_rtt_ms",
    **{name: axis.row.name for name, axis in OF_PROGRAMS.items() if axis.row is not None},
}  # fmt: skip


def with_lines(measured: pl.DataFrame, axes: Sequence[str]) -> pl.DataFrame:
    """Return the runs with the values of these axes in the control's name, and no longer as axes. The control itself is
    there anyway. Buffers that are one number of BDPs, and differ in bytes because bandwidth or RTT do, are no axis
    either: they would put each line into a panel of its own."""
    if {"bandwidth_mbps", "rtt_ms"} & set(axes) and not {"buffer_bdp", "buffer_bytes"} & set(summary.varying(measured)):
        measured = measured.with_columns(buffer_bytes=None)
    for axis in (one for one in axes if one != "cc"):
        several = measured.select(pl.col(axis).n_unique().over("cc") > 1).to_series()
        names = [
            f"{cc}, {axis_phrase(axis, value)}" if named and value is not None else cc
            for (cc, value), named in zip(measured.select("cc", axis).iter_rows(), several, strict=True)
        ]
        done = {axis, IN_ANOTHER_UNIT.get(axis, axis)}
        measured = measured.with_columns(pl.Series("cc", names), *(pl.lit(None).alias(name) for name in done))
    return measured


def scale(axis: str) -> int:
    """Return what the numbers of an axis, or a metric, are multiplied by in figures: those in percent by 100."""
    return 100 if axis in PERCENT else 1


def control_order(name: str) -> tuple[int, str]:
    """Return a key that sorts the reference first, then plain controls, then repaired ones; numbers by their value."""
    return (0 if name.split(",")[0] == "cubic" else 1, natural(name))


def runs_of_a_cell(runs: pl.DataFrame, cell: Sequence[str]) -> str:
    """Return how many runs a cell has: the number, or the smallest and the largest."""
    counts = runs.group_by(cell).len()["len"]
    return "-".join(dict.fromkeys([str(counts.min()), str(counts.max())]))


RUNS_FOR_95 = 6
"""From so many runs on, the bootstrapped interval is narrower than their range."""


def _of_medians(n: str, runs: Sequence[int], medians: str, intervals: str) -> str:
    """Return what medians of so many runs a cell are drawn as: there is no interval of fewer than three. That of three
    to five is their range, which holds the true median in 75, 88 and 94 % of cases only (1 - 2^(1-n))."""
    if max(runs) == 1:
        return f"{medians}: one run each, {n}"
    if max(runs) < confidence.MIN_RUNS:
        return f"{medians}: median of {n} runs, dots: each run"
    some = "" if min(runs) >= confidence.MIN_RUNS else f", where n is at least {confidence.MIN_RUNS}"
    ends = f"{intervals}: from the least run to the greatest{some}"
    if max(runs) >= RUNS_FOR_95:
        few = "" if min(runs) >= RUNS_FOR_95 else f"; of 3 to {RUNS_FOR_95 - 1} runs from the least to the greatest"
        ends = f"{intervals}: its 95 % confidence interval (bootstrap{few})"
    return f"{medians}: median of {n} runs, {ends}, dots: each run"


def caption(
    runs: pl.DataFrame,
    measured: pl.DataFrame,
    stat: str,
    fields: Sequence[str] = (),
    drawn_as: tuple[str, str] = ("Points", "bars"),
) -> str:
    """Return what a figure must say to be read alone: conditions, n, what the medians and their intervals are drawn as,
    backend and kernel. `fields`: what tells cells apart besides the axes."""
    durations = runs["duration_s"].drop_nulls().unique().sort()  # a stranger's dataset may lack any of these values
    seconds = "-".join(f"{one:g}" for one in dict.fromkeys([*durations.head(1), *durations.tail(1)]))
    fixed = []
    # BDPs have two decimals, which say too little of small buffers.
    buffer = "buffer_bytes" if set(measured["buffer_bdp"]) == {0.0} else "buffer_bdp"
    for axis in ("bandwidth_mbps", "rtt_ms", "longest_rtt_ms", buffer):
        values = measured[axis].unique().to_list()
        if len(values) == 1 and values[0] is not None:
            fixed.append(axis_phrase(axis, values[0]))
    if len(losses := measured["loss"].unique()) == 1 and losses[0]:
        fixed.append(f"{losses[0] * 100:g} % loss")
    contended = measured.filter(pl.col("share") < 1)
    shares = measured["share"].unique()
    if len(shares) == 1 and shares[0] is not None and shares[0] < 1:
        fixed.append(f"{shares[0] * 100:g} % CPU")
    if measured["replay"].is_not_null().all():
        fixed.append("off-times of a recording")  # a share of 100 % is what was asked for beside it
    slices = contended["timeslice_ms"].drop_nulls().unique()
    if len(slices) == 1:
        drivers = contended["driver"].unique()
        by = "exact" if drivers[0] == "virtual" else axis_phrase("driver", drivers[0])
        fixed.append(f"{slices[0]:g} ms slices" + (f" ({by})" if len(drivers) == 1 else ""))
    cell = [*(summary.varying(measured) or ["cc"]), *fields]
    n = f"n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{runs_of_a_cell(measured, cell)}"
    accelerators = "/".join(sorted(str(a).upper() for a in runs["accelerator"].unique().drop_nulls()))
    unfaithful = measured.filter(pl.col("outcome") == "unfaithful").height
    where = f"Backend {'/'.join(sorted(runs['backend'].unique().drop_nulls()))}" + (
        f" ({accelerators})" if accelerators else ""
    )
    points = f"Points: standard deviation over {n} runs"
    if stat == "median":
        points = _of_medians(n, measured.group_by(cell).len()["len"].to_list(), *drawn_as)
    conditions = "; ".join(filter(None, [", ".join(fixed), seconds and f"{seconds} s per run"]))
    return f"{conditions}. {points}. {where}, {summary.kernels(runs)}" + (
        f"; {units.show_count(unfaithful, 'run')} unfaithful." if unfaithful else "."
    )
