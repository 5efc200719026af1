"""The figures of 2BRobust that a run of the page belongs to, with the cells that our reproduction measured for them.

2brobust.csv has the cells: the sheet cells.csv of `brobust reproduce 2brobust`, which scripts/evidence.py makes (its
command is in docs/data/evidence.toml).
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import polars as pl

from brobust import files, units
from brobust.analysis.axes import AXES
from brobust.dataset import RUNS
from brobust.study import STUDIES

STUDY = "2brobust"
# A figure's horizontal axis, what distinguishes its panels and its lines, and what is drawn of a cell.
X, PANEL, LINE = "share", ("bandwidth_mbps", "rtt_ms", "timeslice_ms"), ("cc", "buffer_bdp")
DRAWN = {"n": "n", "throughput_mbps": "median", "low_mbps": "low", "high_mbps": "high"}


def listed() -> list[dict[str, Any]]:
    """Return the figures, and of each the values that its cells have on every axis, in ascending order."""
    found = []
    for (figure,), cells in _cells().group_by("figure", maintain_order=True):
        has = {axis: cells[axis].unique().sort().to_list() for axis in (X, *PANEL, *LINE)}
        found.append({**_named(str(figure)), "has": has})
    return found


def of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the figures that have a panel for this run, a row of the dataset's runs: the panel's lines along the CPU
    share, one for each control and buffer. None for a run with conditions that no figure has."""
    if run["replay"] is not None or run["pattern"] != "bulk" or run["flow_rtt_ms"] != run["rtt_ms"]:
        return []
    return [
        panel
        for panel in _panels(*(run[axis] for axis in PANEL))
        if all(run[name] in values for name, values in _conditions()[panel["name"]].items())
    ]


@lru_cache(maxsize=64)
def _panels(*at: float | None) -> list[dict[str, Any]]:
    panels = _cells().filter(pl.col(axis).eq_missing(value) for axis, value in zip(PANEL, at, strict=True))
    found = []
    for (figure,), panel in panels.group_by("figure", maintain_order=True):
        lines = [
            {**dict(zip(LINE, line, strict=True)), **cells.sort(X).select(X, *DRAWN.values()).to_dict(as_series=False)}
            for line, cells in panel.group_by(*LINE, maintain_order=True)
        ]
        found.append({**_named(str(figure)), "lines": lines})
    return found


@cache
def _conditions() -> dict[str, dict[str, set[Any]]]:
    """Return by the figures' names which values their cells have on every axis of the sheet that is not drawn. Which
    kernel it was is no condition."""
    names = ({*AXES} & {*RUNS} & {*_cells().columns}) - {X, *PANEL, *LINE, "kernel"}
    return {
        _named(figure)["name"]: {name: set(of_figure[name]) for name in names}
        for (figure,), of_figure in _cells().group_by("figure")
    }


@cache
def _cells() -> pl.DataFrame:
    """Return the cells of all figures, as the dataset's runs have their axes."""
    sheet = (resources.files("brobust.explore") / f"{STUDY}.csv").read_bytes()
    types = {name: RUNS[name].dtype for name in AXES if name in RUNS} | {"figure": pl.String}
    return pl.read_csv(sheet, schema_overrides=types).rename(DRAWN)


@cache
def _named(figure: str) -> dict[str, Any]:
    """Return a figure's name, what it shows, how long its runs last, and what the paper claims of it."""
    described = files.read_toml(STUDIES / STUDY / f"figure-{figure:0>2}.toml")
    says = [f"{claim['id']}: {claim['text']}" for claim in described["claims"]]
    duration_s = units.nanoseconds(described["grid"]["duration"]) / 1e9
    return {"name": f"2BRobust, figure {figure}", "title": described["title"], "duration_s": duration_s, "says": says}
