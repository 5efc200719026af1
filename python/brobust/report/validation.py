"""The result of `brobust validate`, as a table and a figure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
from rich.table import Table

from brobust.analysis.agreement import MAY_VARY, SETTLED_AFTER_S, Agreement
from brobust.analysis.axes import NAMED, axis_value
from brobust.cc import names as cc_names
from brobust.host.machine import public_release
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.units import show_count


def render(cells: pl.DataFrame, found: Agreement, settled: Agreement, backend: str = "vm") -> Table:
    """Return the cells as a table. `backend`: what measured in real time, vm or lab."""
    table = Table(
        title=f"the same cells on {backend} and virtual: medians", title_style="bold", box=None, padding=(0, 1, 0, 0),
        pad_edge=False,
    )  # fmt: skip
    vary = [name for name in ("kernel", *MAY_VARY) if name in cells.columns and cells[name].n_unique() > 1]
    for name in vary:
        table.add_column(NAMED[name].axis.heading if name in NAMED else "duration", justify="right", no_wrap=True)
    for name in ("cc", "slice", "share", "n", backend, "virtual", "ratio", "settled", "retrans", "RTT"):
        table.add_column(name, justify="left" if name == "cc" else "right", no_wrap=True)
    of_vary = [NAMED[name].unit if name in NAMED else "s" for name in vary]
    units = ["", "ms", "%", "", "Mbit/s", "Mbit/s", "", "", f"{backend}/virt", f"{backend}/virt ms"]
    table.add_row(*of_vary, *units, style="dim")
    for cell in cells.iter_rows(named=True):
        timeslice, real = cell["timeslice_ms"], cell[f"{backend}_throughput_mbps"]
        table.add_row(
            *(axis_value(name, cell[name]) for name in vary),
            cell["cc"], "-" if timeslice is None else f"{timeslice:g}", f"{cell['share'] * 100:g}", str(cell["n"]),
            f"{real:.2f}", f"{cell['virtual_throughput_mbps']:.2f}", _number(cell["ratio"], 3),
            _number(cell["settled_ratio"], 3),
            f"{_number(cell[f'{backend}_retransmits'], 0)}/{_number(cell['virtual_retransmits'], 0)}",
            f"{_number(cell[f'{backend}_rtt_mean_ms'], 1)}/{_number(cell['virtual_rtt_mean_ms'], 1)}",
        )  # fmt: skip
    of_settled = f"settled, after {SETTLED_AFTER_S} s: {settled.median:.3f} and {settled.p90:.3f}"
    table.caption = f"{sentence(found, backend)}; {of_settled}"
    return table


def _number(value: float | None, digits: int) -> str:
    """Return a number, or a dash for what a run that carried nothing does not have."""
    return "-" if value is None else f"{value:.{digits}f}"


def for_report(
    cells: pl.DataFrame,
    found: Agreement,
    settled: Agreement,
    runs: pl.DataFrame,
    what_if: str,
    hosts: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return what a report of this validation says (docs/fidelity.md, "Your machine"), without names that only its
    owner gave: of a guest's kernel or a control from elsewhere it says `own`. `hosts`: what is known of those of lab,
    by their parts in the path; None on vm."""
    backend = "vm" if hosts is None else "lab"
    of_path = ("bandwidth_mbps", "rtt_ms", "buffer_bytes", "driver", "duration_s", "accelerator", "qemu", "iperf3")
    once = runs.unique("run")
    same = {name: _only(once[name].drop_nulls().unique().sort().to_list()) for name in of_path}
    said: dict[str, Any] = {
        **{name: value for name, value in same.items() if value is not None},
        "kernel": _public(_only(once["kernel"].unique().sort().to_list())),
        "what_if": what_if,
        "runs": len(once),
        **{f"runs_{outcome}": int((once["outcome"] == outcome).sum()) for outcome in ("unfaithful", "failed")},
        "cells": found.cells,
        "median_abs_ln_ratio": round(found.median, 4),
        "p90_abs_ln_ratio": round(found.p90, 4),
        "settled_median_abs_ln_ratio": round(settled.median, 4),
        "settled_p90_abs_ln_ratio": round(settled.p90, 4),
        "minutes": round(float(once["wall_s"].sum()) / 60, 1),
    }
    if hosts is not None:
        said["backend"] = backend
        said["host"] = [
            {"part": part, "cpu": of["cpu"], "cpus": of["cpus"], "kernel": public_release(of["kernel_release"])}
            for part, of in hosts.items()
        ]
    return {**said, "cell": [_as_report(cell, backend) for cell in cells.iter_rows(named=True)]}


def _as_report(cell: dict[str, Any], backend: str) -> dict[str, Any]:
    columns = [name for name in (*MAY_VARY, "cc", "share", "timeslice_ms", "n") if name in cell]
    named = {name: _public(cell[name]) if name == "cc" else cell[name] for name in columns}
    measured = ("throughput_mbps", "retransmits", "rtt_mean_ms")
    figures = {name: cell[name] for both in measured for name in (f"{backend}_{both}", f"virtual_{both}")}
    ratios = {name: cell[name] for name in ("ratio", "settled_ratio")}
    rounded = {name: None if value is None else round(value, 3) for name, value in {**figures, **ratios}.items()}
    return {name: value for name, value in {**named, **rounded}.items() if value is not None}


def _only(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else ", ".join(map(str, values)) or None


def _public(name: str | None) -> str:
    """Return a name that brobust or Linux gave; of any other, that it is the user's own."""
    if name is None:
        return "own"
    is_kernel = name == "host" or vm_kernels.is_debian(name) or virtual_kernels.debian_series(name) is not None
    is_control = cc_names.name_of(name) in {*cc_names.LINUX, *cc_names.OURS}
    return name if is_kernel or is_control else "own"


def sentence(found: Agreement, backend: str = "vm") -> str:
    of_median, of_p90 = found.aims
    return (
        f"|ln(virtual / {backend})| of the throughput over {show_count(found.cells, 'cell')}: "
        f"median {found.median:.3f} (aim {of_median:g}), 90th percentile {found.p90:.3f} (aim {of_p90:g})"
    )


def draw(cells: pl.DataFrame, found: Agreement, directory: Path, backend: str = "vm") -> list[Path]:
    """Draw validation.png and .svg: the throughput on virtual over that in real time, a point per cell."""
    from brobust.report.plot import load_matplotlib, log_ticks, save, styles

    load_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6, 4.8), layout="constrained")
    axes = figure.add_subplot()
    both = pl.concat([cells[f"{backend}_throughput_mbps"], cells["virtual_throughput_mbps"]])
    carried = both.filter(both > 0)  # what carried nothing has no place on these axes
    low, high = carried.min(), carried.max()
    low, high = (low, high) if isinstance(low, float) and isinstance(high, float) else (1.0, 1.0)
    ends = [low / 1.3, high * 1.3]
    axes.fill_between(ends, [end / 1.2 for end in ends], [end * 1.2 for end in ends], color="0.92", zorder=0)
    axes.plot(ends, ends, color="0.6", linewidth=1, zorder=1)
    for cc, (color, marker, _) in styles(cells["cc"].unique()).items():
        of_cc = cells.filter(cc=cc)
        axes.plot(
            of_cc[f"{backend}_throughput_mbps"], of_cc["virtual_throughput_mbps"], marker, color=color, label=cc,
            markerfacecolor="none", markeredgewidth=1.4,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel=f"throughput in real time, backend {backend} [Mbit/s]")
    axes.set(ylabel="throughput in virtual time [Mbit/s]")
    log_ticks(axes.xaxis)
    log_ticks(axes.yaxis)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    directory.mkdir(parents=True, exist_ok=True)
    return save(figure, directory / "validation", caption(cells, found, backend))


def caption(cells: pl.DataFrame, found: Agreement, backend: str) -> str:
    """Return what the figure must say to be read alone: of how many runs and which kernels it is, and the agreement."""
    runs = "-".join(dict.fromkeys([str(cells["n"].min()), str(cells["n"].max())]))
    kernels = " and ".join(cells["kernel"].unique().sort())
    return (
        f"Medians of each cell's runs (n = {runs}), {kernels} on {backend}; grey: within 20 %. "
        f"|ln ratio|: median {found.median:.3f}, 90th percentile {found.p90:.3f}"
    )
