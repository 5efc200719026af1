"""The rules of claims. A check picks cells of a dataset (`where`), takes a metric's median over the repeats of each,
and compares. Where the dataset has no such cell, it finds nothing.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import polars as pl
from pydantic import BaseModel, Field, field_validator

from brobust.analysis import cells, confidence, metrics
from brobust.analysis.axes import CONTENDED, axis_phrase, axis_value
from brobust.analysis.cells import CELL, groups
from brobust.analysis.metrics import Evidence

SELECTING = (*CELL, "buffer_bytes")
"""What a check may select cells by: a buffer in bytes, too, which in BDPs is another number on every path."""
NO_RUNS = pl.DataFrame(schema={"run": pl.String})


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    holds: bool | None
    """None: the dataset has nothing to check."""
    measured: str
    used: pl.DataFrame = field(default_factory=lambda: NO_RUNS)
    """The runs behind it: rows of Evidence.runs."""


class Check(BaseModel, extra="forbid", frozen=True):
    """A comparison of cells."""

    metric: str = "throughput_mbps"
    where: dict[str, Any] = Field(default_factory=dict)
    """Axis = value, [values] or "min-max"; docs/data.md has the axes."""
    unless: dict[str, Any] = Field(default_factory=dict)
    """Exceptions among them, written in the same way."""
    stat: Literal["median", "deviation"] = "median"
    """The statistic of a cell's runs: their median, or their standard deviation."""
    part: str = ""
    """Which part of the claim this tests. Without it, the claim differs if this check fails."""

    @field_validator("metric")
    @classmethod
    def _known(cls, name: str) -> str:
        known = [*metrics.OF_RUNS, *metrics.METRICS]
        if name not in known:
            raise ValueError(f"{name!r} is not a metric; there are {', '.join(known)}")
        return name

    def expected(self) -> str:
        raise NotImplementedError

    def find(self, evidence: Evidence) -> Finding:
        chosen = self._chosen(evidence.values(self.metric))
        if chosen.is_empty():
            measured = not self._chosen(evidence.runs).is_empty()
            return Finding(None, f"these runs have no {self.metric}" if measured else "no such cell was measured")
        if self._cells(chosen).is_empty():
            return Finding(None, f"a deviation needs {confidence.MIN_RUNS} runs of a cell")
        return self._judge(chosen)

    def _chosen(self, runs: pl.DataFrame) -> pl.DataFrame:
        chosen = select(runs, self.where)
        return chosen.join(select(chosen, self.unless), on="run", how="anti") if self.unless else chosen

    def _judge(self, runs: pl.DataFrame) -> Finding:
        raise NotImplementedError

    def _cells(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return for each cell the statistic as `value`, each run's value, and the number of runs."""
        value = pl.col("value").median()
        if self.stat == "deviation":  # that of two runs says nothing
            value = pl.when(pl.len() >= confidence.MIN_RUNS).then(pl.col("value").std())
        found = runs.group_by(CELL).agg(value, pl.col("value").sort().alias("each"), pl.len().alias("n"))
        return found.filter(pl.col("value").is_not_null()).sort(CELL)

    def _show(self, value: float, interval: confidence.Interval | None = None) -> str:
        return " ".join(filter(None, (f"{value:.3g}{_between(interval)}", metrics.unit(self.metric))))


class Bound(Check):
    """Every cell's median lies at or below (above) a value; `of = "each"`: every run's."""

    rule: Literal["at_most", "at_least"]
    value: float
    of: Literal["median", "each"] = "median"

    def expected(self) -> str:
        side = "at most" if self.rule == "at_most" else "at least"
        return f"{self.metric} {side} {self.value:g} in {'every cell' if self.of == 'median' else 'every run'}"

    def _judge(self, runs: pl.DataFrame) -> Finding:
        found = self._cells(runs) if self.of == "median" else runs.with_columns(each=pl.concat_list("value"))
        worst = found.sort("value", descending=self.rule == "at_most").row(0, named=True)
        fits = found["value"] <= self.value if self.rule == "at_most" else found["value"] >= self.value
        extreme = "greatest" if self.rule == "at_most" else "least"
        shown = self._show(worst["value"], confidence.of_median(worst["each"]))
        text = f"{extreme} {shown} ({_name(worst, found)}); {fits.sum()} of {len(found)} fit"
        return Finding(bool(fits.all()), text, runs)


class Pairs(Check):
    """Each cell is compared with the one that has other values on some axes (`than`)."""

    than: dict[str, Any]

    def find(self, evidence: Evidence) -> Finding:
        every = evidence.values(self.metric)
        differ = {*self.than, *(CONTENDED if "share" in self.than else ())}
        kept = {axis: value for axis, value in self.where.items() if axis not in differ}
        chosen, compared = self._chosen(every), select(every, {**kept, **self.than})
        ours, others = self._cells(chosen), self._cells(compared)
        on = [axis for axis in CELL if axis not in differ]
        pairs = ours.join(others, on=on, how="inner", suffix="_than", nulls_equal=True)
        if pairs.is_empty():
            return Finding(None, "no pair of such cells was measured")
        ratio = pl.col("value") / pl.col("value_than")
        pairs = pairs.with_columns(ratio.fill_nan(1.0).alias("ratio")).sort("ratio")  # 0 / 0: two zeros are equal
        holds, shown = self._judge_pairs(pairs, ours)
        # Cells without a counterpart are not part of it.
        paired = [chosen.join(pairs, on=CELL, how="semi", nulls_equal=True)]
        theirs = pairs.select(*on, *(pl.col(f"{axis}_than").alias(axis) for axis in differ))
        paired.append(compared.join(theirs, on=CELL, how="semi", nulls_equal=True))
        return Finding(holds, shown, pl.concat(paired).unique("run"))

    def _judge_pairs(self, pairs: pl.DataFrame, ours: pl.DataFrame) -> tuple[bool, str]:
        raise NotImplementedError

    def _than(self) -> str:
        of = "" if self.stat == "median" else "deviation of "
        return f"{of}{self.metric} over that with {', '.join(f'{axis} {value}' for axis, value in self.than.items())}"


class Ratio(Pairs):
    """The ratio of every pair is in a range."""

    rule: Literal["ratio"]
    at_least: float | None = None
    at_most: float | None = None

    def expected(self) -> str:
        return f"{self._than()}: {_range('at least', self.at_least, 'at most', self.at_most)}"

    def _judge_pairs(self, pairs: pl.DataFrame, ours: pl.DataFrame) -> tuple[bool, str]:
        low, high = pairs.row(0, named=True), pairs.row(-1, named=True)
        holds = (self.at_least is None or low["ratio"] >= self.at_least) and (
            self.at_most is None or high["ratio"] <= self.at_most
        )
        return holds, f"{self._end(low, ours)} to {self._end(high, ours)}"

    def _end(self, pair: dict[str, Any], ours: pl.DataFrame) -> str:
        interval = confidence.of_ratio(pair["each"], pair["each_than"]) if self.stat == "median" else None
        return f"{pair['ratio']:.3g}{_between(interval)} ({_name(pair, ours)})"


class PartBetter(Pairs):
    """The ratio is at least `factor` in a part of the pairs."""

    rule: Literal["part_better"]
    factor: float = 1.0
    at_least: float

    def expected(self) -> str:
        return f"{self._than()}: at least {self.factor:g} in {self.at_least:.0%} of the cells"

    def _judge_pairs(self, pairs: pl.DataFrame, ours: pl.DataFrame) -> tuple[bool, str]:
        better = int((pairs["ratio"] >= self.factor).sum())
        median = float(pairs["ratio"].median())  # type: ignore[arg-type]
        return better >= self.at_least * len(pairs), f"in {better} of {len(pairs)} cells; median ratio {median:.3g}"


class Trend(Check):
    """From the largest value of an axis to the smallest, the median falls (rises) at every step; in all by a factor."""

    rule: Literal["falls", "rises"]
    along: str
    total: float = 1.0

    def expected(self) -> str:
        return f"{self.metric} {self.rule} as {self.along} goes down, in all by a factor of at least {self.total:g}"

    def _judge(self, runs: pl.DataFrame) -> Finding:
        holds, shown = True, []
        for group in groups(self._cells(runs), self.along):
            values = group.sort(self.along, descending=True)["value"].to_list()
            if len(values) == 1:
                continue
            steps = list(itertools.pairwise(values))
            down = self.rule == "falls"
            monotone = all(a >= b if down else a <= b for a, b in steps)
            whole = values[0] / max(values[-1], 1e-9) if down else values[-1] / max(values[0], 1e-9)
            holds = holds and monotone and whole >= self.total
            shown.append(" -> ".join(f"{value:.3g}" for value in values))
        if not shown:
            return Finding(None, f"only one value of {self.along} was measured")
        return Finding(holds, "; ".join(shown[:4]) + _more(shown, 4), runs)


class Equal(Check):
    """Medians along an axis lie within a factor of each other, or at most `or_apart` apart."""

    rule: Literal["equal"]
    along: str
    within: float
    or_apart: float = 0.0
    """A difference that does not count, in the metric's unit."""

    def expected(self) -> str:
        apart = f" or {self.or_apart:g} {metrics.unit(self.metric)}".rstrip() if self.or_apart else ""
        return f"{self.metric} the same for every {self.along}, within a factor of {self.within:g}{apart}"

    def _judge(self, runs: pl.DataFrame) -> Finding:
        every, found = self._cells(runs), []
        for group in groups(every, self.along):
            if len(group) > 1:
                values = group["value"].to_list()
                low, high = min(values), max(values)
                ratio = high / max(low, 1e-9)
                found.append((ratio <= self.within or high - low <= self.or_apart, ratio, low, high, group))
        if not found:
            return Finding(None, f"only one value of {self.along} was measured")
        # What does not fit comes first, then what is furthest apart.
        _, ratio, low, high, group = min(found, key=lambda one: (one[0], -one[1]))
        fit = sum(one[0] for one in found)
        where = _name(group.row(0, named=True), every, leave_out=self.along)
        ends = f"{low:.3g} and {self._show(high)}; " if self.or_apart else ""
        text = f"most apart {ratio:.3g} ({ends}{where}); {fit} of {len(found)} fit"
        return Finding(fit == len(found), text, runs)


class Reaches(Check):
    """The smallest value of an axis from which on every median is at or above a level lies in a range."""

    rule: Literal["reaches"]
    along: str
    level: float
    least: float | None = None
    most: float | None = None

    def expected(self) -> str:
        bounds = _range("not below", self.least, "not above", self.most)
        return f"{self.metric} is {self.level:g} and more from {self.along} {bounds}"

    def _judge(self, runs: pl.DataFrame) -> Finding:
        every = self._cells(runs)
        firsts: dict[str, float | None] = {}
        for group in groups(every, self.along):
            first = None
            for row in group.sort(self.along, descending=True).iter_rows(named=True):
                if row["value"] < self.level:
                    break
                first = row[self.along]
            firsts[_name(group.row(0, named=True), every, leave_out=self.along)] = first
        ordered = sorted(firsts.items(), key=lambda item: math.inf if item[1] is None else item[1])
        ends = [
            f"{'never' if first is None else axis_value(self.along, first)} ({name})"
            for name, first in dict([ordered[0], ordered[-1]]).items()
        ]
        fit = sum(self._fits(first) for first in firsts.values())
        text = f"from {' to '.join(ends)}; {fit} of {len(firsts)} fit"
        return Finding(fit == len(firsts), text, runs)

    def _fits(self, first: float | None) -> bool:
        if first is None:
            return self.most is None
        # Shares are decimals in files: they are not compared to the last bit.
        return (self.least is None or first >= self.least - 1e-9) and (self.most is None or first <= self.most + 1e-9)


class Part(Check):
    """Among all chosen runs, the part whose metric lies at or above (below) a value is in a range."""

    rule: Literal["part"]
    above: float | None = None
    below: float | None = None
    at_least: float = 0.0
    at_most: float = 1.0

    def expected(self) -> str:
        side = f">= {self.above:g}" if self.above is not None else f"<= {self.below:g}"
        return f"{self.at_least:.0%} to {self.at_most:.0%} of the runs have {self.metric} {side}"

    def _judge(self, runs: pl.DataFrame) -> Finding:
        inside = pl.lit(True)
        if self.above is not None:
            inside &= pl.col("value") >= self.above
        if self.below is not None:
            inside &= pl.col("value") <= self.below
        fit = int(runs.select(inside.sum()).item())
        part = fit / len(runs)
        low, high = confidence.of_proportion(fit, len(runs))
        values = runs["value"].to_list()
        median = self._show(statistics.median(values), confidence.of_median(values))
        text = f"{part:.0%} [{low:.0%}, {high:.0%}] of the runs; median {median}"
        return Finding(self.at_least <= part <= self.at_most, text, runs)


class Classes(Check):
    """Every cell has a class (cells.py), and in a part of the series no class goes back as the CPU share rises."""

    rule: Literal["classes"]
    within: float = cells.WITHIN
    full: float = cells.FULL
    at_least: float = 0.9

    def expected(self) -> str:
        return (
            f"limited, recovering, non-limited in this order as the share rises, in {self.at_least:.0%} of the series"
        )

    def _judge(self, runs: pl.DataFrame) -> Finding:
        every = self._cells(runs)
        filled = self._cells(runs.with_columns(value="utilization")).select(*CELL, utilization="value")
        every = every.join(filled, on=CELL, nulls_equal=True)
        classed = cells.classed(every, self.within, self.full).filter(pl.col("class").is_not_null())
        series = [one for one in groups(classed, "share") if len(one) > 1]
        if not series:  # classes need several bandwidths, and their order several shares
            return Finding(None, "no series of classes was measured")
        ordered = sum(bool(one.sort("share")["class"].is_sorted()) for one in series)
        counts = dict(classed["class"].value_counts().rows())
        shown = ", ".join(f"{counts.get(number, 0)} {name}" for number, name in enumerate(cells.CLASSES))
        text = f"{shown}; {ordered} of {len(series)} series in order"
        return Finding(ordered >= self.at_least * len(series), text, runs)


_KINDS = Bound | Ratio | PartBetter | Trend | Equal | Reaches | Part | Classes
AnyCheck = Annotated[_KINDS, Field(discriminator="rule")]
RULES = tuple(rule for kind in get_args(_KINDS) for rule in get_args(kind.model_fields["rule"].annotation))


def select(runs: pl.DataFrame, where: dict[str, Any]) -> pl.DataFrame:
    """Return the runs whose axes have these values."""
    for axis, value in where.items():
        column = pl.col(axis)
        if isinstance(value, str) and not runs.schema[axis].is_numeric():
            runs = runs.filter(column == value)
        elif isinstance(value, str):
            low, _, high = value.partition("-")
            runs = runs.filter(column.is_between(float(low) - 1e-9, float(high) + 1e-9))
        elif isinstance(value, list) and all(isinstance(one, str) for one in value):
            runs = runs.filter(column.is_in(value))
        else:
            some = value if isinstance(value, list) else [value]
            runs = runs.filter(pl.any_horizontal((column - one).abs() < 1e-9 for one in some))
    return runs


def _name(cell: dict[str, Any], among: pl.DataFrame, leave_out: str = "") -> str:
    """Return in words what distinguishes a cell from the others."""
    phrases = []
    for axis in CELL:
        if axis != leave_out and cell[axis] is not None and (among[axis].n_unique() > 1 or axis == "cc"):
            phrases.append(axis_phrase(axis, cell[axis]))
    return ", ".join(phrases)


def _between(interval: confidence.Interval | None) -> str:
    """Return the text of a 95 % confidence interval, to stand behind its median."""
    return "" if interval is None else f" [{interval[0]:.3g}, {interval[1]:.3g}]"


def _range(lower: str, low: float | None, upper: str, high: float | None) -> str:
    bounds = [(lower, low), (upper, high)]
    return " and ".join(f"{word} {value:g}" for word, value in bounds if value is not None)


def _more(shown: Sequence[str], limit: int) -> str:
    return f", and {len(shown) - limit} more" if len(shown) > limit else ""
