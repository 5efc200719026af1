"""What the page asks for. Each answer is a series of objects, which the page shows as they come."""

import base64
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from brobust import api, backends, extras, files, units
from brobust.analysis import departures, summary
from brobust.analysis.axes import NAMED, VALUES, axis_value, heading, in_order
from brobust.backends.base import Backend
from brobust.dataset import Dataset, OfRun, OneRun, find
from brobust.dataset.recordings import Sweeps
from brobust.errors import BadInput, BrobustError, RunFailed
from brobust.explore import figures, recorded
from brobust.kernels import virtual as virtual_kernels
from brobust.report import capture, explanation, trace
from brobust.report.plot import USUAL, scale
from brobust.scenario import Run
from brobust.scenario.grid import scenario as one_scenario

# What the page may set: a run must neither take long nor read files or start programs.
FIELDS = {
    "path": {"bandwidth", "rtt", "buffer", "loss"}, "contention": {"share", "timeslice"}, "flows": {"cc"},
    "duration": None, "qdisc": None, "pacing": None, "seed": None,
}  # fmt: skip
MAX_CONTROLS = 6
MAX_DURATION_S, MAX_BANDWIDTH = 20, 1_000_000_000
POINTS = 500
"""So many samples of a run are drawn."""
# The controls that the page offers, of those that the kernel has.
OFFERED = (
    "cubic", "bbr", "bbr_robust", "bbr_steady", "brb_bbr3", "brb_bbr3_robust", "brb_bbr3_steady", "brb_bbr2", "reno",
    "brb_vegas",
)  # fmt: skip
MAX_CELLS = 400
# What a run can be downloaded as: the end of the file's name, and what writes it.
FILES: dict[str, Callable[[OfRun, Path], object]] = {"perfetto-trace": trace.write, "pcapng": capture.write}
MAX_FILE = 100_000_000

Answer = Iterator[dict[str, Any]]


class Superseded(BrobustError):
    """A newer question has come."""


class Answers:
    """Answers the page. One question measures at a time: a newer one ends the one before."""

    def __init__(self, dataset: Dataset | None = None, recording: Sweeps | None = None):
        self._dataset, self._recording = dataset, recording
        self._measuring, self._changing = threading.Lock(), threading.Lock()
        self._newest = 0
        self._backend: Backend | None = None

    def stop(self) -> int:
        """End what is being measured. Return the number of the question that is the newest now."""
        with self._changing:
            self._newest += 1
            if self._backend is not None:
                self._backend.stop()
            return self._newest

    @contextmanager
    def _measures(self) -> Iterator[Backend]:
        """Yield a backend, alone: whoever measures is ended first. Raise Superseded if a newer question comes."""
        number = self.stop()
        with self._measuring, backends.opened("virtual", lambda _: None) as backend:
            with self._changing:
                if number != self._newest:
                    raise Superseded("superseded")
                self._backend = backend
            try:
                yield backend
            except RunFailed:
                if number != self._newest:
                    raise Superseded("superseded") from None
                raise
            finally:
                with self._changing:
                    self._backend = None

    def answer_about(self) -> Answer:
        """Answer with what can be chosen: controls, the dataset's axes and metrics, the recording's sockets."""
        offered = virtual_kernels.find_again(virtual_kernels.default()).congestion_controls
        of_dataset = None
        if self._dataset is not None:
            measured, axes = summary.apart(self._dataset.runs(), self._dataset.grid)
            known = [name for name in VALUES if name in measured.columns and measured[name].drop_nulls().len()]
            metrics = {name: VALUES[name] for name in known}
            named = {axis: heading(axis) for axis in axes}
            of_dataset = {"name": str(self._dataset.directory), "axes": named, "metrics": metrics}
        sockets = None if self._recording is None else recorded.about(self._recording)
        yield {
            "controls": [name for name in OFFERED if name in offered], "usual": USUAL,
            "figures": figures.listed(), "dataset": of_dataset, "recording": sockets,
        }  # fmt: skip

    def answer_run(self, fields: dict[str, Any], controls: list[str]) -> Answer:
        """Measure a scenario with each of these controls, and answer with each run over time."""
        runs = _runs(fields, controls)
        with self._measures() as backend, ThreadPoolExecutor(backend.parallel) as side_by_side:
            for run, measured in zip(runs, side_by_side.map(backend.measure, runs), strict=True):
                yield {"cc": run.scenario.flows[0].cc, **_over_time(api.Result(run, measured))}

    def answer_explain(self, fields: dict[str, Any] | None = None, cc: str = "", run: str = "") -> Answer:
        """Explain the run of a scenario with this control, or a run of the dataset."""
        with self._measures() as backend:
            if fields is None:
                chosen = self._run(run)
                found = api.explain(chosen, chosen.run(), backend=backend)
            else:
                (requested,) = _runs(fields, [cc])
                found = api.explain(api.Result(requested, backend.measure(requested)), requested, backend=backend)
        yield {"sentences": explanation.sentences(found)}

    def answer_file(self, kind: str, fields: dict[str, Any] | None = None, cc: str = "", run: str = "") -> Answer:
        """Answer with the run of a scenario with this control, or a run of the dataset, as one of FILES. The scenario
        is measured again with all that can be recorded."""
        if kind not in FILES:
            raise BadInput(f"kind: {kind!r} is none of {', '.join(FILES)}")
        if kind == "perfetto-trace":
            extras.require("a timeline")
        shown: OfRun
        if fields is None:
            shown = self._run(run)
        else:
            (requested,) = _runs(fields, [cc], {"samples": "ack", "packets": True})
            with self._measures() as backend:
                shown = api.Result(requested, backend.measure(requested))
        with files.temporary_directory() as scratch:
            file = scratch / "run"
            FILES[kind](shown, file)
            if (size := file.stat().st_size) > MAX_FILE:
                raise BadInput(f"the file has {units.show_size(size)}; `brobust trace` writes it without the page")
            yield {"name": f"{shown.runs['run'][0]}.{kind}", "content": base64.b64encode(file.read_bytes()).decode()}

    def answer_cells(self, x: str, y: str, metric: str) -> Answer:
        """Answer with the dataset's cells along two axes: the median of a metric in each, and the runs."""
        opened = self._opened()
        measured, axes = summary.apart(opened.runs(), opened.grid)
        for name, known in ((x, {*NAMED, *axes}), (y, {*NAMED, *axes}), (metric, VALUES)):
            if name not in known or name not in measured.columns:
                raise BadInput(f"{name!r} is neither an axis nor a metric of this dataset")
        if measured[x].n_unique() * measured[y].n_unique() > MAX_CELLS:
            raise BadInput(f"{heading(x)} by {heading(y)} has more than {MAX_CELLS} cells; choose other axes")
        # JSON has no number for the infinite time of a run that answered too few requests.
        value = pl.col("value")
        cells = (
            measured.with_columns(value=summary.of_run(metric).cast(pl.Float64) * scale(metric))
            .sort(value)
            .group_by(*{x, y})
            .agg(
                median=summary.known(value.median()),
                low=summary.known(value.min()),
                high=summary.known(value.max()),
                runs=pl.struct("run", "cc", summary.known(value).alias("value")),
            )
        )
        xs, ys = (measured.select(axis).unique().sort(in_order([axis])).to_series().to_list() for axis in (x, y))
        ys = [None] if x == y else ys  # one axis: one row
        of_cell = {(row[x], None if x == y else row[y]): row for row in cells.iter_rows(named=True)}
        yield {
            "x": [axis_value(x, one) for one in xs],
            "y": [axis_value(y, one) for one in ys],
            "cells": [[_cell(of_cell.get((one, other))) for one in xs] for other in ys],
        }

    def answer_look(self, run: str) -> Answer:
        chosen = self._run(run)
        flows = chosen.runs.sort("flow")
        of_several = f" (flow {flows['flow'][0]} of {flows.height})" if flows.height > 1 else ""
        yield {"cc": f"{flows['cc'][0]}{of_several}", "run": chosen.id, **_over_time(chosen)}

    def answer_socket(self, key: list[Any]) -> Answer:
        if self._recording is None:
            raise BadInput("no recording is open; give one of `brobust watch --record` to `brobust explore`")
        yield recorded.socket(self._recording, key)

    def _run(self, run: str) -> OneRun:
        if not isinstance(run, str):
            raise BadInput("run: give the beginning of its id")
        return find(self._opened(), run)

    def _opened(self) -> Dataset:
        if self._dataset is None:
            raise BadInput("no dataset is open; give its directory to `brobust explore`")
        return self._dataset


def _cell(row: dict[str, Any] | None) -> dict[str, Any] | None:
    return row and {name: row[name] for name in ("median", "low", "high", "runs")}


def _runs(fields: dict[str, Any], controls: list[str], recorded: dict[str, Any] | None = None) -> list[Run]:
    """Return the runs that the page asks for; refuse what it may not ask for. `recorded`: fields that say what of them
    is recorded, else as many samples as are drawn."""
    if not isinstance(fields, dict):
        raise BadInput("fields: give a table of them")
    for name, value in fields.items():
        allowed = FIELDS.get(name, set())
        if allowed is not None and (not isinstance(value, dict) or set(value) - allowed):
            raise BadInput(f"{name}: the page may not set this")
    if not isinstance(controls, list) or not 1 <= len(controls) <= MAX_CONTROLS:
        raise BadInput(f"controls: give 1 to {MAX_CONTROLS}")
    runs = []
    for control in controls:
        first = one_scenario({**fields, "flows": [{"cc": control}]})
        if first.duration > MAX_DURATION_S * 1e9 or first.path.bandwidth > MAX_BANDWIDTH:
            raise BadInput(f"the page measures at most {MAX_DURATION_S} s at 1 Gbit/s; copy it as a command")
        more = recorded or {"samples": f"{max(first.duration // POINTS, 100_000)}ns"}
        runs.append(Run(scenario=one_scenario({**fields, "flows": [{"cc": control}], **more}), repeat=0))
    backends.check([run.scenario for run in runs], jobs=1)
    return runs


def _over_time(run: OfRun) -> dict[str, Any]:
    """Return the first flow of a run over time: numbers of columns that the page draws."""
    first = run.runs.sort("flow").row(0, named=True)
    of_flow = pl.col("flow") == first["flow"]
    samples = run.samples.filter(of_flow).sort("time_s")
    samples = samples.gather_every(max(samples.height // (2 * POINTS), 1))
    over_time = run.throughput.filter(of_flow).sort("time_s")
    bdp_bytes = first["bandwidth_mbps"] * first["rtt_ms"] * 125  # 0 on vm without an RTT of the path's
    columns = ("time_s", "inflight_packets", "cwnd_packets", "bandwidth_estimate_mbps", "pacing_rate_mbps", "mode")
    return {
        "throughput_mbps": first["throughput_mbps"], "retransmits": first["retransmits"],
        "rtt_ms": first["rtt_mean_ms"], "duration_s": first["duration_s"], "share": first["share"],
        "buffer_bdp": round(first["buffer_bytes"] / bdp_bytes, 2) if bdp_bytes else None,
        "figures": figures.of(first),
        "time_s": [time + first["start_s"] for time in over_time["time_s"]],
        "throughput": over_time["throughput_mbps"].to_list(),
        "samples": {name: samples[name].to_list() for name in columns},
        "slices": departures.timeslices(run, first["sender"]),
    }  # fmt: skip
