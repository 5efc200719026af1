"""Tables and figures say what the data says: medians over runs, flows summed, n and spread beside them."""

import io
import itertools
import json
import os
import re
import subprocess
import sys
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import made_up
from brobust.analysis import summary
from brobust.analysis.axes import cell_phrase
from brobust.api import Result
from brobust.cli.plot import draw, plot
from brobust.dataset import RUNS, TABLES, Dataset, Measured, find, frame
from brobust.errors import BadInput
from brobust.report import over_time, programs, table
from brobust.report.console import Console
from brobust.report.plot import STYLES, ThroughputFigure, caption, names_beside, styles
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario
from brobust.series.runner import summary as summary_of
from brobust.virtual import results

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def no_grid() -> Grid:  # of rows that are in no dataset
    raise BadInput("there is none")


def _shown(runs: pl.DataFrame, width: int = 80, grid: Callable[[], Grid] = no_grid, title: str = "t") -> str:
    """Return what a terminal of so many columns shows of the table of these runs."""
    shown = io.StringIO()
    Console(width=width, file=shown).print_whole(table.render(runs, title, grid))
    return shown.getvalue()


def _row(cc: str, share: float, repeat: int, mbps: float | None, **more: Any) -> dict[str, Any]:
    return {
        "run": f"{cc}-{share}-{repeat}", "flow": 0, "start_s": 0.0, "cc": cc, "share": share, "repeat": repeat,
        "throughput_mbps": mbps, "retransmits": 1, "outcome": "ok", "bandwidth_mbps": 20.0, "rtt_ms": 10.0,
        "buffer_bytes": 25000, "loss": 0.0, "flows": 1, "kernel": "debian-6.12", "kernel_release": "6.12.0",
        "accelerator": "tcg", "backend": "vm", "duration_s": 5.0, "driver": "deadline" if share < 1 else "none",
        "timeslice_ms": 10.0 if share < 1 else None, "effective_share": share,
        "started_at": datetime(2026, 1, 1, tzinfo=UTC), **more,
    }  # fmt: skip


def rows() -> pl.DataFrame:
    rows = [_row("bbr", 1.0, r, 19.0) for r in range(3)]
    rows += [_row("bbr", 0.25, r, mbps) for r, mbps in enumerate((1.0, 2.0, 9.0))]
    rows += [_row("cubic", s, r, 18.0) for s in (1.0, 0.25) for r in range(3)]
    rows += [_row("bbr", 0.25, 3, None, outcome="failed", effective_share=None)]
    return frame(rows, RUNS)


@pytest.fixture
def runs() -> pl.DataFrame:
    return rows()


@pytest.fixture
def empty_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of figures are empty: to lay out and paint the two of a figure takes most of a second."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)


def test_a_cell_is_the_median_of_its_runs_with_spread_and_n(runs: pl.DataFrame) -> None:
    cell = (
        summary.cells(runs, no_grid)[0].filter((pl.col("cc") == "bbr") & (pl.col("share") == 0.25)).row(0, named=True)
    )
    assert (cell["median"], cell["min"], cell["max"], cell["n"]) == (2.0, 1.0, 9.0, 3)
    of_each = summary.cells(runs, no_grid)[0].select("cc", "share").rows()
    assert of_each == [("bbr", 1.0), ("bbr", 0.25), ("cubic", 1.0), ("cubic", 0.25)]


def test_failed_runs_are_left_out_and_said(runs: pl.DataFrame) -> None:
    assert "; without 1 run that failed" in str(table.render(runs, "t", no_grid).caption)


def test_of_several_flows_a_run_that_failed_and_its_requests_are_counted_once() -> None:
    asked = {"requests": 100, "requests_answered": 95}
    of_each = [{"run": run, "flow": flow, **more} for flow in (0, 1) for run, more in
               (("a-0", asked), ("b-0", {"outcome": "failed"}))]  # fmt: skip
    rows = frame([{**_row("bbr", 1.0, 0, 9.0), **of} for of in of_each], RUNS)
    said = str(table.render(rows, "t", no_grid).caption)
    assert "the slowest: 5 of 100;" in said and said.endswith("; without 1 run that failed")


def test_each_time_stands_under_its_heading_and_a_dash_where_a_cell_has_none() -> None:
    times = {
        "completion_ms": 1.0, "cross_median_ms": 2.0, "cross_p99_ms": 3.0, "requests": 9, "requests_answered": 9,
        "requests_per_s": 4.0, "request_median_ms": 5.0, "request_p99_ms": 6.0,
    }  # fmt: skip
    rows = frame([_row("bbr", 1.0, 0, 9.0), _row("cubic", 1.0, 0, 9.0, **times)], RUNS)
    columns = table.render(rows, "t", no_grid).columns
    cells = {str(column.header).replace("\n", " "): [*column.cells] for column in columns}
    headings = ("completion ms", "cross ms", "cross p99 ms", "req/s", "p50 ms", "p99 ms")
    assert [cells[name] for name in headings] == [["-", f"{number}.0"] for number in range(1, 7)]
    assert [column.justify for column in columns[:2]] == ["left", "right"]  # a control's name, a number


def test_unfaithful_runs_are_marked(runs: pl.DataFrame) -> None:
    one = runs.with_columns(
        outcome=pl.when(pl.col("run") == "bbr-0.25-0").then(pl.lit("unfaithful")).otherwise("outcome")
    )
    text = _shown(one)
    assert "3 (1!)" in text
    assert "(k!)" in text


def test_a_table_of_three_axes_fits_80_columns_uncut(runs: pl.DataFrame) -> None:
    contended = runs.filter((pl.col("share") < 1) & (pl.col("outcome") == "ok"))
    burner = contended.with_columns(driver=pl.lit("burner"), timeslice_ms=pl.lit(1.0), run=pl.col("run") + "-b")
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(table.render(pl.concat([contended, burner]), "t", no_grid))
    text = console.export_text()
    assert "…" not in text
    assert all(whole in text for whole in ("deadline", "1.00-9.00", "retrans", "share", "25.0%"))


def test_a_table_wider_than_the_terminal_keeps_its_numbers(runs: pl.DataFrame) -> None:
    other = {"qdisc": "fq", "pacing": "kept", "loss": 0.01, "aqm": "codel", "rtt_ms": 40.0, "gro": "off"}
    first = {"qdisc": "none", "pacing": "kernel", "loss": 0.0, "aqm": "none", "gro": "on"}
    each = [
        runs.with_columns(run=pl.col("run") + name, **{column: pl.lit(value) for column, value in of.items()})
        for name, of in (("-1", first), ("-2", other))
    ]
    both = pl.concat(each, how="vertical_relaxed")
    text = _shown(both, 60)
    assert "…" not in text and "retrans" in text
    assert text.count("1.00-9.00") == 2


def _with_requests(*p99_ms: float | None) -> pl.DataFrame:
    """Runs of a server: where p99_ms is None, five of a hundred requests had no answer."""
    of_all = [{"requests": 100, "requests_answered": 95 if ms is None else 100, "request_p99_ms": ms} for ms in p99_ms]
    return frame([_row("bbr", 1.0, number, 9.0, **of) for number, of in enumerate(of_all)], RUNS)


def test_runs_with_unanswered_requests_count_as_the_slowest() -> None:
    for p99_ms, median in (([10.0, 12.0, None], 12.0), ([10.0, None, None], None), ([10.0, None], None)):
        of_each, _ = summary.cells(_with_requests(*p99_ms), no_grid)
        assert of_each["request_p99_ms"].to_list() == [median]
        missing, asked = 5 * p99_ms.count(None), 100 * len(p99_ms)
        said = f"requests without an answer, which count as the slowest: {missing} of {asked}"
        assert said in str(table.render(_with_requests(*p99_ms), "t", no_grid).caption)
    assert "requests" not in str(table.render(_with_requests(10.0), "t", no_grid).caption)
    assert "requests" not in str(table.render(rows(), "t", no_grid).caption)


def test_a_figure_has_no_point_of_the_fast_runs_alone() -> None:
    half = {"share": 0.5, "timeslice_ms": 10.0, "driver": "deadline"}
    fast = _with_requests(10.0, 12.0, 11.0).with_columns(
        run=pl.col("run") + "-half", **{k: pl.lit(v) for k, v in half.items()}
    )
    figure = ThroughputFigure(pl.concat([_with_requests(10.0, 12.0, None), fast]), "share", "request_p99_ms")
    assert figure._points(figure._runs).select("x", "value").rows() == [(50, 11)]


def test_flows_of_one_run_are_summed() -> None:
    two = frame([_row("bbr", 1.0, 0, 9.0), {**_row("bbr", 1.0, 0, 8.0), "flow": 1}], RUNS)
    assert summary.runs(two)["throughput_mbps"].to_list() == [17.0]


def test_a_flow_that_starts_later_counts_for_its_part_of_the_run() -> None:
    rows = [_row("bbr", 1.0, 0, 18.0), {**_row("cubic", 1.0, 0, 10.0, start_s=2.5), "run": "bbr-1.0-0", "flow": 1}]
    assert summary.runs(frame(rows, RUNS))["throughput_mbps"].to_list() == [18.0 + 10.0 / 2]
    assert summary_of(rows)["throughput_mbps"] == 18.0 + 10.0 / 2


def test_a_flow_that_stops_earlier_counts_for_its_part_of_the_run() -> None:
    rows = [_row("bbr", 1.0, 0, 18.0, stop_s=5.0), _row("bbr", 1.0, 0, 10.0, start_s=1.0, stop_s=2.0)]
    assert summary.runs(frame(rows, RUNS))["throughput_mbps"].to_list() == [18.0 + 10.0 / 5]
    assert summary_of(rows)["throughput_mbps"] == 18.0 + 10.0 / 5


def test_flows_with_a_size_count_until_the_last_has_ended() -> None:
    sized = {"flow_bytes": 1_000_000, "start_s": 1.0}
    rows = [_row("bbr", 1.0, 0, 8.0, stop_s=2.0, **sized), _row("bbr", 1.0, 0, 4.0, stop_s=3.0, **sized)]
    assert summary.runs(frame(rows, RUNS))["throughput_mbps"].to_list() == [8.0 / 2 + 4.0]
    assert summary_of(rows)["throughput_mbps"] == 8.0 / 2 + 4.0
    one = [_row("bbr", 1.0, 0, 10.0, stop_s=1.8, completion_ms=800.0, **sized)]
    assert summary.runs(frame(one, RUNS))["throughput_mbps"].to_list() == [10.0]
    said = str(table.render(frame(one, RUNS), "t", no_grid).caption)
    assert "until the last has ended" in said and "of the flows that were through" not in said
    more = [*one, _row("bbr", 1.0, 0, 5.0, stop_s=5.0, flow=1, **sized)]
    assert "of the flows that were through, 1 of 2" in str(table.render(frame(more, RUNS), "t", no_grid).caption)
    beside = [*one, _row("bbr", 1.0, 0, 5.0, stop_s=4.0)]
    assert summary.runs(frame(beside, RUNS))["throughput_mbps"].to_list() == [pytest.approx((10.0 * 0.8 + 5 * 4) / 5)]
    later = [rows[0], _row("bbr", 1.0, 0, 4.0, flow_bytes=500_000, start_s=2.0, stop_s=3.0)]
    assert summary.runs(frame(later, RUNS))["throughput_mbps"].to_list() == [(8.0 + 4.0) / 2]


def test_of_cross_traffic_that_was_not_through_the_table_says_so() -> None:
    """Its times are of those that were, and the others took longer: nothing stands for them, as it does of requests."""

    def said(ended: int) -> str:
        crossed = {"cross_load": 0.3, "cross_transfers": 50, "cross_ended": ended, "cross_median_ms": 40.0}
        rows = [{**_row("bbr", 1.0, 0, 9.0, **crossed), "flow": flow} for flow in (0, 1)]
        rows += [_row("bbr", 1.0, 1, 9.0, **crossed), _row("bbr", 1.0, 2, 9.0, outcome="failed")]
        return str(table.render(frame(rows, RUNS), "t", no_grid).caption)

    assert "; cross: of the flows that were through, 96 of 100" in said(48) and "cross:" not in said(50)


def test_a_run_has_its_flows_in_their_order_their_longest_rtt_and_their_median_completion() -> None:
    each = [("reno", 80.0, 900.0), ("bbr", 10.0, 100.0), ("bbr", 40.5, 200.0)]
    rows = [
        {**_row(cc, 1.0, 0, 3.0, flow_rtt_ms=rtt_ms, completion_ms=ms), "run": "a-0", "flow": flow}
        for flow, (cc, rtt_ms, ms) in enumerate(each)
    ]
    (run,) = summary.runs(frame(rows, RUNS)).iter_rows(named=True)
    names = ("cc", "flow_rtt_ms", "longest_rtt_ms", "completion_ms")
    assert [run[name] for name in names] == ["reno+bbr", "80+40.5", 80.0, 200.0]  # the path has an RTT of 10 ms


def test_the_utilization_is_of_the_payload_that_the_narrowest_bottleneck_carries() -> None:
    for more, narrowest_mbps, payload in (({}, 20, 1448), ({"second_bandwidth_mbps": 10.0, "ip_version": 6}, 10, 1428)):
        row = _row("bbr", 1.0, 0, 9.0, **{"ip_version": 4, **more})
        (found,) = summary.runs(frame([row], RUNS))["utilization"]
        assert found == pytest.approx(9.0 / (narrowest_mbps * payload / 1514))


def test_kernels_are_named_with_the_version_of_their_own_bbr_if_it_is_not_the_first() -> None:
    each = [("6.9.0", "cubic", None), ("6.12.0", "bbr:x=1", 3), ("6.12.0", "bbr", 3), ("6.1.0", "bbr2", 1)]
    rows = [_row(cc, 1.0, n, 9.0, kernel_release=name, bbr_version=v) for n, (name, cc, v) in enumerate(each)]
    assert summary.kernels(frame(rows, RUNS)) == "Linux 6.1.0, 6.12.0, 6.9.0, bbr is version 3"
    assert str(table.render(frame(rows, RUNS), "t", no_grid).caption).endswith("; bbr is version 3")


def test_what_differs_only_because_the_backend_does_is_no_axis_of_its_own(runs: pl.DataFrame) -> None:
    virtual = runs.with_columns(
        backend=pl.lit("virtual"), kernel=pl.lit("virtual-6.12"), accelerator=pl.lit(None, pl.String),
        driver=pl.when(pl.col("share") < 1).then(pl.lit("virtual")).otherwise("driver"), run=pl.col("run") + "-v",
        start_jitter=pl.when(pl.col("share") < 1).then(0.25),
    )  # fmt: skip
    both = pl.concat([runs, virtual])
    assert summary.varying(summary.runs(both)) == ["backend", "cc", "share"]
    assert "Backend virtual/vm (TCG)" in ThroughputFigure(both)._caption
    assert "Backend virtual, " in ThroughputFigure(virtual)._caption


def test_what_each_flow_has_for_itself_is_an_axis_where_it_varies(runs: pl.DataFrame) -> None:
    own = runs.with_columns(flow_rtt_ms=pl.lit(40.0), pattern=pl.lit("rate 5mbit"), run=pl.col("run") + "-own")
    both = pl.concat([runs.with_columns(flow_rtt_ms="rtt_ms", pattern=pl.lit("bulk")), own])
    assert summary.varying(summary.runs(both)) == ["flow_rtt_ms", "pattern", "cc", "share"]
    table.render(both, "t", no_grid)
    assert len(ThroughputFigure(both)._panels) == 2


def test_dollars_in_the_name_of_a_file_are_no_formula(runs: pl.DataFrame, tmp_path: Path) -> None:
    replayed = [
        runs.filter(pl.col("share") == 1).with_columns(replay=pl.lit(name), run=pl.col("run") + name)
        for name in ("r${A}_${B}.csv", "other.csv")
    ]
    ThroughputFigure(pl.concat(replayed)).save(tmp_path)
    assert "r${A}_${B}.csv" in (tmp_path / "throughput.svg").read_text()


def test_a_replayed_run_is_not_an_undisturbed_one(runs: pl.DataFrame) -> None:
    replayed = runs.filter(pl.col("share") == 1).with_columns(replay=pl.lit("vm#a-0"), run=pl.col("run") + "-r")
    assert summary.varying(summary.runs(pl.concat([runs, replayed]))) == ["replay", "cc", "share"]


def _measured(grid: Grid) -> pl.DataFrame:
    """Every run of a grid with another throughput."""
    each = (made_up.rows(run, throughput_mbps=float(n), retransmits=0) for n, run in enumerate(grid.runs()))
    return frame([row for of_run in each for row in of_run], RUNS)


SHARED = {"flows": [{"cc": "bbr"}, {"cc": "cubic", "sender": 2}]}


@pytest.mark.parametrize(
    ("fields", "varying", "cells"),
    [
        ({**SHARED, "senders": [{"share": [1, 0.25]}]}, {"senders.share": ["1", "0.25"]}, 2),
        ({**SHARED, "grids": [{}, {"senders": [{"share": 0.5}]}]}, {"senders.share": ["1", "0.5"]}, 2),
        (
            {"contention": {"share": [1, 0.5], "start": ["0s", "2s"], "timeslice": ["1ms", "5ms"]}},
            {"timeslice_ms": ["5.0", "1.0", "None"], "share": ["0.5", "1.0"], "contention.start": ["2s", "0s", "-"]},
            5,
        ),
        ({"flows": [{"start": ["0s", "1s"]}, {"cc": "bbr"}]}, {"flows.1.start": ["0s", "1s"]}, 2),
        ({"duration": ["2s", "10s"], "samples": ["10ms", "ack"]}, {"duration": [], "samples": []}, 4),
        ({"cpu": {"frequency": "1GHz", "timer_cycles": [1, 2]}}, {"cpu.timer_cycles": ["1", "2"]}, 2),
        ({"cpu": {"timer_cycles": [1, 2]}}, {}, 1),  # of a CPU whose work takes no time
        (
            {"grids": [{"path": {"bandwidth_changes": [["1s", "10mbit"], ["2s", "5mbit"]]}}, {}]},
            {"path.bandwidth_changes": ["1s:10mbit,2s:5mbit", "-"]},
            2,
        ),
        ({"seed": [1, 7]}, {}, 1),
        (
            {"traffic": "iperf3", "programs": {"call_time": ["1us", "10us"]}},
            {"programs.call_time": ["1us", "10us"]},
            2,
        ),
        ({"cross_traffic": {"load": [0, 0.2]}}, {"cross_load": ["0.0", "0.2"]}, 2),
        # Of the first flow, which is another sender's, the share is 1.
        (
            {"flows": [{"sender": 2}, {"cc": "bbr"}], "contention": {"share": [1, 0.5]}},
            {"contention.share": ["1", "0.5"]},
            2,
        ),
        ({"path": {"buffer": ["1bdp", "2bdp"]}}, {"buffer_bytes": ["25000", "50000"]}, 2),
        (
            {"path": {"buffer": ["1bdp", "2bdp"], "rtt": ["10ms", "20ms"]}},
            {"rtt_ms": [], "buffer_bdp": ["1.0", "2.0"]},
            4,
        ),
    ],
)
def test_a_row_is_one_cell(fields: dict[str, Any], varying: dict[str, list[str]], cells: int) -> None:
    grid = Grid({"repeat": 3, "kernel": "virtual-6.12", **fields})
    found, axes = summary.cells(_measured(grid), lambda: grid)
    assert [axis for axis in axes if axis != "cc"] == list(varying)
    for name, values in varying.items():
        assert not values or set(map(str, found[name])) == set(values)
    assert found.height == cells and found["n"].sum() == len(grid.runs())
    table.render(_measured(grid), "t", lambda: grid)


def test_a_phase_is_a_time_for_those_who_read_it() -> None:
    contention = {"share": 0.5, "phase": ["0s", "10ms", "5ms", "random"]}
    grid = Grid({"contention": contention, "kernel": "virtual-6.12"})
    runs = _measured(grid)
    rows_of_table = _shown(runs, grid=lambda: grid).splitlines()[4:8]
    assert [line.split()[0] for line in rows_of_table] == ["0s", "5ms", "10ms", "random"]
    panels = [cell_phrase(summary.runs(runs), ["phase"], panel) for panel in ThroughputFigure(runs)._panels]
    assert panels == ["phase 0s", "phase 5ms", "phase 10ms", "phase random"]


def test_values_of_a_field_stand_in_the_order_of_the_scenarios() -> None:
    grid = Grid({"duration": ["2s", "10s"], "kernel": "virtual-6.12"})
    assert summary.cells(_measured(grid), lambda: grid)[0]["duration"].to_list() == ["2s", "10s"]


def test_a_figure_has_a_panel_for_each_value_of_a_field_that_is_no_axis() -> None:
    contention = {"share": [1, 0.5], "start": ["0s", "2s"]}
    grid = Grid({"duration": ["4s", "10s"], "contention": contention, "repeat": 3, "kernel": "virtual-6.12"})
    figure = ThroughputFigure(_measured(grid), scenarios=lambda: grid.scenarios)
    panels = [cell_phrase(figure._runs, figure._panel_axes, panel) for panel in figure._panels]
    assert panels == [f"duration {d}, contention.start {s}" for d in ("4s", "10s") for s in ("0s", "2s")]
    # Each has its contended runs, and all those without contention, which have no start.
    counts = figure._runs.group_by("duration", "contention.start", "share").len()
    assert sorted(counts.select("share", "len").rows()) == [(0.5, 3)] * 4 + [(1.0, 3)] * 4
    assert "4-10 s per run" in figure._caption and "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3 runs" in figure._caption


def test_an_undisturbed_run_stands_only_where_its_control_was_measured() -> None:
    slices = [Grid({"kernel": "virtual-6.12", "flows": [{"cc": cc}], "contention": {"share": [1, 0.5], "timeslice": t}})
              for cc, t in (("cubic", "1ms"), ("bbr", "10ms"))]  # fmt: skip
    figure = ThroughputFigure(pl.concat([_measured(grid) for grid in slices]))
    found = figure._runs.filter(pl.col("share") == 1).select("cc", "timeslice_ms").sort("cc").rows()
    assert found == [("bbr", 10.0), ("cubic", 1.0)]


def test_a_scenario_that_is_not_known_any_more_is_named_by_its_hash() -> None:
    grid = Grid({"duration": ["2s", "10s"], "kernel": "virtual-6.12"})
    for known in (no_grid, lambda: Grid({"duration": "2s", "kernel": "virtual-6.12"})):
        found, axes = summary.cells(_measured(grid), known)
        assert axes == ["cc", "scenario"] and found.height == 2


def test_an_axis_that_only_share_one_lacks_does_not_vary(runs: pl.DataFrame) -> None:
    assert summary.varying(summary.runs(runs)) == ["cc", "share"]


def test_every_panel_shows_all_of_its_points(runs: pl.DataFrame) -> None:
    faster = runs.with_columns(
        rtt_ms=pl.lit(40.0),
        flow_rtt_ms=pl.lit(40.0),
        throughput_mbps=pl.col("throughput_mbps") * 3,
        run=pl.col("run") + "-f",
    )
    both = pl.concat([runs, faster])
    _, highest = ThroughputFigure(both).figure().axes[0].get_ylim()
    assert highest >= summary.runs(both)["throughput_mbps"].max()


def test_each_of_five_panels_is_drawn_under_its_own_name(runs: pl.DataFrame) -> None:
    each = [runs.with_columns(rtt_ms=pl.lit(ms), run=pl.col("run") + f"-{ms}") for ms in (1.0, 2.0, 3.0, 4.0, 5.0)]
    axes = [one for one in ThroughputFigure(pl.concat(each), x="share").figure().axes if one.get_visible()]
    assert [one.get_title().partition(",")[0] for one in axes] == [f"{ms} ms RTT" for ms in range(1, 6)]


def test_as_many_panels_as_fit_are_drawn_and_more_are_refused(runs: pl.DataFrame) -> None:
    each = [runs.with_columns(loss=pl.lit(n / 100), run=pl.col("run") + f"-{n}") for n in range(13)]
    assert ThroughputFigure(pl.concat(each[:12]), x="share").panels == 12
    with pytest.raises(BadInput, match="the dataset varies along loss: 13 panels, and 12 fit"):
        ThroughputFigure(pl.concat(each), x="share")


def test_many_undisturbed_runs_are_not_repeated_for_more_schedules_than_fit(
    runs: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6,000 runs took 8 GB: half of them undisturbed, and each of the others with a timeslice of its own."""
    monkeypatch.setattr("brobust.report.plot.undisturbed_with_every_schedule", None)
    contended = runs.filter((pl.col("share") < 1) & (pl.col("share") == pl.col("share").min()))
    each = [contended.with_columns(timeslice_ms=pl.lit(n + 0.5), run=pl.col("run") + f"-{n}") for n in range(13)]
    with pytest.raises(BadInput, match=r"varies along .*timeslice_ms.*: 13 panels, and 12 fit"):
        ThroughputFigure(pl.concat([runs.filter(pl.col("share") == 1), *each]), x="share")


def test_a_version_of_ip_that_there_is_not_has_no_utilization(runs: pl.DataFrame) -> None:
    assert summary.runs(runs.with_columns(ip_version=pl.lit(5, pl.Int64)))["utilization"].null_count() > 0


def test_a_caption_is_made_of_runs_that_lack_length_and_backend(runs: pl.DataFrame) -> None:
    nothing = [pl.lit(None, dtype=runs.schema[name]).alias(name) for name in ("duration_s", "backend")]
    said = ThroughputFigure(runs.with_columns(nothing))._caption
    assert "per run" not in said and "None" not in said


def test_a_panel_of_runs_without_a_buffer_has_a_title(runs: pl.DataFrame) -> None:
    none = runs.with_columns(buffer_bytes=pl.lit(None, pl.Int64), run=pl.col("run") + "-n")
    assert ThroughputFigure(pl.concat([runs, none]), x="share").figure().axes


def test_a_bar_goes_from_the_least_of_three_runs_to_the_greatest_and_begins_above_0(runs: pl.DataFrame) -> None:
    (axes,) = ThroughputFigure(runs.filter(pl.col("cc") == "bbr")).figure().axes
    (bars,) = axes.collections
    ends = [segment.tolist() for segment in bars.get_segments()]  # type: ignore[attr-defined]
    assert ends == [[[25, 1], [25, 9]], [[100, 19], [100, 19]]]
    medians = axes.containers[0][0]
    assert medians.get_xydata().tolist() == [[25, 2], [100, 19]]
    assert axes.get_ylim()[0] == 0 and axes.get_xscale() == "linear"


def test_a_figure_of_deviations_says_so_and_has_them(runs: pl.DataFrame) -> None:
    figure = ThroughputFigure(runs, stat="deviation")
    points = figure._points(figure._runs.filter(pl.col("cc") == "bbr"))
    assert points["value"].to_list() == pytest.approx([19**0.5, 0])  # of 1, 2 and 9: (9 + 4 + 25) / 2
    drawn = figure.figure()
    assert drawn.get_supylabel() == "standard deviation of the throughput at the receiver [Mbit/s]"
    assert "Points: standard deviation over n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3 runs. " in figure._caption
    assert not any(line.get_marker() == "o" and line.get_linestyle() == "None" for line in drawn.axes[0].lines)


def test_the_horizontal_axis_is_the_first_that_varies_or_the_share(runs: pl.DataFrame) -> None:
    alone = runs.filter(pl.col("share") == 1)
    assert ThroughputFigure(alone).x == "share"
    wider = alone.with_columns(bandwidth_mbps=pl.lit(40.0), rtt_ms=pl.lit(5.0), run=pl.col("run") + "-w")
    two = ThroughputFigure(pl.concat([alone, wider]))
    assert two.x == "bandwidth_mbps" and two.figure().axes[0].get_xscale() == "log"


def test_percentages_are_drawn_as_such_and_runs_without_a_value_are_not(runs: pl.DataFrame) -> None:
    ceiling = 20 * 1448 / 1514
    half = runs.with_columns(ip_version=pl.lit(4, pl.Int64), throughput_mbps=pl.lit(ceiling / 2))
    figure = ThroughputFigure(half, value="utilization")
    points = figure._points(figure._runs.filter(pl.col("cc") == "bbr"))
    assert points.select("x", "value").rows() == [(25, pytest.approx(50)), (100, pytest.approx(50))]
    uncounted = runs.with_columns(retransmits=pl.when(pl.col("share") == 1).then("retransmits"))
    figure = ThroughputFigure(uncounted, value="retransmits")
    assert figure._points(figure._runs)["x"].to_list() == [100]


def test_lines_are_named_by_an_axis_of_which_a_control_has_several_values(runs: pl.DataFrame) -> None:
    own = {"flow_rtt_ms": pl.lit(40.0), "rtt_ms": pl.lit(40.0)}
    for cc, controls in (
        ("bbr", ["cubic", "bbr, 10 ms RTT", "bbr, 40 ms RTT"]),
        ("cubic", ["cubic, 10 ms RTT", "cubic, 40 ms RTT", "bbr"]),
    ):
        longer = runs.filter(pl.col("cc") == cc).with_columns(run=pl.col("run") + "-f", **own)
        figure = ThroughputFigure(pl.concat([runs, longer]), x="share", lines=["rtt_ms"])
        assert figure.controls == controls and figure.panels == 1


def test_a_figure_whose_name_has_a_dot_keeps_it(tmp_path: Path) -> None:
    from brobust.report.plot import new_figure, save  # matplotlib is of the extra

    with new_figure(3, 2) as figure:
        assert [file.name for file in save(figure, tmp_path / "section 5.1", "c")] == [
            "section 5.1.png", "section 5.1.svg",
        ]  # fmt: skip


def test_a_buffer_in_bdp_is_no_panel_beside_the_same_in_bytes(runs: pl.DataFrame) -> None:
    deeper = runs.with_columns(buffer_bytes=pl.lit(50_000, pl.Int64), run=pl.col("run") + "-d")
    figure = ThroughputFigure(pl.concat([runs, deeper]).filter(pl.col("share") == 1), x="buffer_bdp")
    assert figure.panels == 1 and figure._ticks(figure._runs) == [1.0, 2.0]


def test_a_replayed_run_stands_only_in_the_panel_of_its_recording(runs: pl.DataFrame) -> None:
    alone = runs.filter(pl.col("share") == 1)
    replayed = [alone.with_columns(replay=pl.lit(name), run=pl.col("run") + name) for name in ("a.csv", "b.csv")]
    figure = ThroughputFigure(pl.concat(replayed))
    assert figure.panels == 2 and figure._runs.height == 2 * alone.height


def test_markers_have_room_above_values_that_nearly_coincide(runs: pl.DataFrame) -> None:
    equal = runs.with_columns(throughput_mbps=10 + pl.int_range(pl.len()) * 1e-3)
    _, highest = ThroughputFigure(equal).figure().axes[0].get_ylim()
    assert highest > 1.04 * summary.runs(equal)["throughput_mbps"].max()


def test_a_figure_names_each_control_once_and_above_its_panels_if_there_are_many_of_either(runs: pl.DataFrame) -> None:
    bbr = pl.col("cc") == "bbr"
    (alone,) = ThroughputFigure(runs).figure().axes
    assert alone.get_legend() is not None
    fewer = runs.filter(~bbr).with_columns(rtt_ms=pl.lit(5.0), run=pl.col("run") + "-f")  # the first panel lacks bbr
    several = ThroughputFigure(pl.concat([runs, fewer])).figure()
    assert [text.get_text() for text in several.legends[0].get_texts()] == ["cubic", "bbr"]
    assert all(panel.get_legend() is None for panel in several.axes)
    more = [runs.filter(bbr).with_columns(cc=pl.lit(name), run=pl.col("run") + name) for name in ("bbr2", "bbr3", "x")]
    many = ThroughputFigure(pl.concat([runs, *more])).figure()
    assert many.axes[0].get_legend() is None and len(many.legends[0].get_texts()) == 5


@pytest.mark.usefixtures("empty_pictures")
def test_the_terminal_says_that_it_has_the_first_of_several_panels(
    runs: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longer = runs.with_columns(rtt_ms=pl.lit(40.0), flow_rtt_ms=pl.lit(40.0), run=pl.col("run") + "-f")
    for data, says in ((runs, False), (pl.concat([runs, longer]), True)):
        monkeypatch.setattr(Dataset, "runs", lambda _, data=data: data)
        draw(Dataset(tmp_path), None, tmp_path)
        assert (f"1 of 2 panels; all are in {tmp_path}/throughput.png\n" in capsys.readouterr().out) == says


def test_of_iperf3_only_what_failed_is_printed(
    runs: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_run = {"run": "bbr-1.0-0", "flow": 0, "command": "iperf3", "stdout": "}", "stderr": "", "ended_s": 1.0}
    ended = [{**of_run, "end": "sender", "exit_status": 0}, {**of_run, "end": "receiver", "exit_status": 1}]
    monkeypatch.setattr(Dataset, "programs", lambda _: frame(ended, TABLES["programs"]))
    for traffic, ends in (("iperf3", ["receiver"]), ("programs", ["sender", "receiver"])):
        monkeypatch.setattr(Dataset, "runs", lambda _, traffic=traffic: runs.with_columns(traffic=pl.lit(traffic)))
        lines = [line for line in programs.shown(Dataset(tmp_path)) if line.startswith("run ")]
        assert [line.split(":")[0].split()[-1] for line in lines] == ends


@pytest.mark.parametrize(
    ("ended_s", "is_short"), [(2.4, True), (4.6, False), (5.01, False), (None, False), (-0.9, False)]
)
def test_programs_that_were_through_long_before_the_run_are_told_of(
    ended_s: float | None, is_short: bool, runs: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_run = {"run": "bbr-1.0-0", "flow": 0, "end": "receiver", "command": "curl", "stdout": "", "stderr": ""}
    ended = frame([{**of_run, "ended_s": ended_s, "exit_status": 0}], TABLES["programs"])
    monkeypatch.setattr(Dataset, "programs", lambda _: ended)
    monkeypatch.setattr(Dataset, "runs", lambda _: runs.with_columns(traffic=pl.lit("programs")))
    first, *_ = programs.shown(Dataset(tmp_path))
    assert first.startswith("programs of 1 run ended before 90% of the run had passed") == is_short
    assert ("if they had no more to send, that is all" in first) == is_short


def test_a_program_that_ended_before_the_run_is_told_so(
    runs: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = {"run": "bbr-1.0-0", "flow": 0, "command": "nginx", "stdout": "", "stderr": "", "end": "sender"}
    ended = frame([{**daemon, "ended_s": -0.987, "exit_status": 0}], TABLES["programs"])
    monkeypatch.setattr(Dataset, "programs", lambda _: ended)
    monkeypatch.setattr(Dataset, "runs", lambda _: runs)
    (line,) = programs.shown(Dataset(tmp_path))
    assert line == "run bbr-1.0-0, flow 0, sender: exit status 0, 0.987 s before the run: nginx"


def test_the_figure_is_written_and_its_caption_says_how_it_came_about(runs: pl.DataFrame, tmp_path: Path) -> None:
    files = ThroughputFigure(runs).save(tmp_path)
    assert [file.name for file in files] == ["throughput.png", "throughput.svg"]
    svg = files[1].read_text().replace("\N{NO-BREAK SPACE}", " ")
    for words in (
        "CPU share",
        "throughput at the receiver [Mbit/s]",
        "n = 3",
        "Linux 6.12.0",
        "20 Mbit/s",
        "10 ms slices",
    ):
        assert words in svg
    for control in ("cubic", "bbr"):
        assert f">{control}<" in svg


def test_the_terminal_drawing_names_axes_and_controls(runs: pl.DataFrame) -> None:
    text = ThroughputFigure(runs).terminal()
    for words in ("CPU share", "cubic", "bbr", "median: throughput at the receiver [Mbit/s]"):
        assert words in text
    longer = runs.with_columns(rtt_ms=pl.lit(40.0), flow_rtt_ms=pl.lit(40.0), run=pl.col("run") + "-f")
    several = ThroughputFigure(pl.concat([runs, longer])).terminal()
    assert "median: throughput at the receiver [Mbit/s], 10 ms RTT" in several


@pytest.mark.parametrize("width", [60, 80])
def test_the_names_of_controls_hide_no_line_in_the_terminal(width: int) -> None:
    names = ["cubic", *(f"brb_vegas:alpha={alpha}" for alpha in range(1, 6))]
    flat = [_row(cc, share, 0, 3.0 * mbps) for mbps, cc in enumerate(names, 1) for share in (1.0, 0.25)]
    lines = ThroughputFigure(frame(flat, RUNS)).terminal(width).splitlines()
    markers = "crxo+*"  # b is bbr's
    assert [sum(marker * (width - 10) in line for line in lines) for marker in markers] == [1] * 6
    legend = "".join(line + "   " for line in lines if "cubic" in line or "alpha" in line)
    assert legend == "".join(f"{marker} {name}   " for marker, name in zip(markers, names, strict=True))
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("colors", [False, True])
def test_no_two_controls_look_the_same_in_the_terminal(colors: bool) -> None:
    names = [f"brb_vegas:alpha={alpha}" for alpha in range(1, 29)]
    flat = [_row(cc, share, 0, 3.0 * mbps) for mbps, cc in enumerate(names, 1) for share in (1.0, 0.25)]
    legend = ThroughputFigure(frame(flat, RUNS)).terminal(colors=colors).split("CPU share")[1]
    assert len(set(re.findall(r"(\x1b\S+m)?(\S+) brb_vegas", legend))) == 28


def test_no_two_controls_look_the_same() -> None:
    of_each = styles(f"brb_vegas:alpha={alpha}" for alpha in range(1, 30))
    assert len(set(of_each.values())) == 29
    assert all(one in STYLES for one in list(of_each.values())[:7])  # each has its own colour, marker and dashes
    assert styles(["bbr", "cubic"]) == {"cubic": STYLES[0], "bbr": STYLES[1]}


@pytest.mark.parametrize("others", [(), ("bbr_robust", "bbr_steady"), ("brb_bbq", "reno"), ("cubic, 12 BDP buffer",)])
def test_a_control_looks_the_same_in_every_figure(others: tuple[str, ...]) -> None:
    assert styles(["bbr", *others])["bbr"] == STYLES[1]
    found = styles(["cubic", "bbr", "bbr, kept schedule", "bbr_steady", *others])
    assert (found["cubic"], found["bbr"], found["bbr_steady"]) == (STYLES[0], STYLES[1], STYLES[2])
    assert len(set(found.values())) == len(found)
    assert styles(["reno", "bbr, kept schedule"])["bbr, kept schedule"] == STYLES[1]


def test_of_names_that_are_wider_than_a_figure_one_stands_in_a_line() -> None:
    assert names_beside(["x" * 200, "bbr"], width=7) == 1


def test_every_run_and_every_dash_can_be_seen(runs: pl.DataFrame) -> None:
    """Of three runs the interval ends at two, whose dots are not to vanish in its bars; nor dashes in a legend's."""
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D

    (axes,) = ThroughputFigure(runs).figure().axes
    dots = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots if to_rgba(line.get_markerfacecolor())[:3] == (1, 1, 1)] == [6, 6]
    assert min(line.get_zorder() for line in dots) > max(bars.get_zorder() for bars in axes.collections)
    legend = axes.get_legend()
    assert legend is not None and [type(handle) for handle in legend.legend_handles] == [Line2D, Line2D]


@pytest.mark.parametrize(
    ("axis", "values"),
    [("rtt_ms", [1.0, 2.0, 5.0, 10.0, 20.0, 100.0]), ("loss", [0.0, 0.0001, 0.0005, 0.001, 0.01]),
     ("bandwidth_mbps", [1.0, 1.1, 100.0, 1000.0])],
)  # fmt: skip
def test_no_tick_runs_into_the_one_before(runs: pl.DataFrame, axis: str, values: list[float]) -> None:
    each = [runs.with_columns(pl.lit(value).alias(axis), run=pl.col("run") + f"-{value}") for value in values]
    figure = ThroughputFigure(pl.concat(each), x=axis).figure()
    figure.draw_without_rendering()
    labels = [label for label in figure.axes[-1].get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    assert 3 <= len(labels) <= len(values)
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(boxes))


def test_every_panel_has_ticks_where_any_panel_was_measured(runs: pl.DataFrame) -> None:
    """All panels share an axis: the last one may have fewer cells than the others."""
    longer = runs.filter(share=1.0).with_columns(rtt_ms=pl.lit(40.0), run=pl.col("run") + "-f")
    panels = ThroughputFigure(pl.concat([runs, longer]), x="share").figure().axes
    assert [[label.get_text() for label in panel.get_xticklabels()] for panel in panels] == [["25", "100"]] * 2


def test_lines_of_several_bandwidths_share_a_panel_where_their_buffers_are_one_number_of_bdps(
    runs: pl.DataFrame,
) -> None:
    wider = runs.with_columns(
        bandwidth_mbps=pl.lit(200.0), buffer_bytes=pl.lit(250_000, pl.Int64), run=pl.col("run") + "-w"
    )
    figure = ThroughputFigure(pl.concat([runs, wider]), x="share", lines=["bandwidth_mbps"])
    assert figure.panels == 1 and "bbr, 200 Mbit/s" in figure.controls and "1 BDP buffer" in figure._caption
    deeper = wider.with_columns(buffer_bytes=pl.lit(500_000, pl.Int64))
    assert ThroughputFigure(pl.concat([runs, deeper]), x="share", lines=["bandwidth_mbps"]).panels == 2


def test_letters_of_three_panels_can_be_read_on_a_page(runs: pl.DataFrame) -> None:
    each = [runs.with_columns(rtt_ms=pl.lit(ms), run=pl.col("run") + f"-{ms}") for ms in (1.0, 2.0, 3.0)]
    assert ThroughputFigure(pl.concat(each), x="share").figure().get_figwidth() <= 12


def test_a_number_and_its_unit_stand_on_one_line_of_a_caption(tmp_path: Path) -> None:
    from brobust.report.plot import new_figure, save  # matplotlib is of the extra

    with new_figure(3, 2) as figure:
        save(figure, tmp_path / "a", " ".join(f"{'x' * number} 60 s, 40 %, virtual-6.12" for number in range(39)))
    lines = figure.get_supxlabel().split("\n")
    assert len(lines) > 39
    assert not any(line.startswith(("s,", "%,", "6.12")) for line in lines)


def test_settings_of_figures_in_a_strangers_directory_do_not_count(tmp_path: Path) -> None:
    """matplotlib reads them from the current directory; with these it runs latex."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfigure.facecolor: red\n\x1b[2J: 1\n")
    code = (
        "from brobust.report.plot import new_figure\n"
        "with new_figure(2, 1) as figure:\n"
        "    import matplotlib\n"
        "    print(figure.get_facecolor(), matplotlib.rcParams['text.usetex'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("(1.0, 1.0, 1.0, 1.0) False\n", "")
    (tmp_path / "matplotlibrc").unlink()
    os.mkfifo(tmp_path / "matplotlibrc")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30)
    assert "matplotlibrc: is a named pipe; give a regular file, or remove it: matplotlib reads it" in done.stderr


def test_a_backend_that_matplotlib_does_not_have_is_refused_by_the_name_of_its_variable() -> None:
    code = "from brobust.report.plot import load_matplotlib; load_matplotlib()"
    environment = {**os.environ, "MPLBACKEND": "nonsense"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr.endswith(
        "BadInput: MPLBACKEND: matplotlib has no backend 'nonsense'; files need none: unset it\n"
    )


def test_an_undisturbed_run_stands_in_every_panel(runs: pl.DataFrame) -> None:
    short = runs.filter(pl.col("share") < 1).with_columns(timeslice_ms=1.0, run=pl.col("run") + "-short")
    figure = ThroughputFigure(pl.concat([runs, short]))
    assert len(figure._panels) == 2
    assert figure._runs.filter(pl.col("share") == 1)["timeslice_ms"].unique().sort().to_list() == [1.0, 10.0]


@pytest.mark.usefixtures("empty_pictures")
def test_the_utilization_of_a_bandwidth_that_changes_is_refused(tmp_path: Path) -> None:
    """It is of the bandwidth at the beginning."""
    grids = [{"path": {"bandwidth_changes": [["1s", "5mbit"]]}}, {}]
    dataset = made_up.dataset(tmp_path / "data", Grid({"kernel": "virtual-6.12", "grids": grids}))
    with pytest.raises(BadInput, match=r"--value utilization: .* here it changes; give throughput_mbps"):
        draw(dataset, None, tmp_path, "utilization")
    draw(dataset, None, tmp_path)


@pytest.mark.usefixtures("empty_pictures")
def test_what_work_costs_programs_may_be_the_horizontal_axis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {"kernel": "virtual-6.12", "traffic": "iperf3", "contention": {"share": [1, 0.5]}}
    grid = Grid({**fields, "programs": {"call_time": ["1us", "10us"]}})
    dataset = made_up.dataset(tmp_path / "data", grid)
    draw(dataset, "call_us", tmp_path)
    figure = ThroughputFigure(dataset.runs(), "call_us", scenarios=lambda: dataset.grid().scenarios)
    assert figure.x == "call_us" and figure.panels == 2, "one for each share"
    assert "CPU time of a system call [us]" in capsys.readouterr().out


@pytest.mark.usefixtures("empty_pictures")
def test_another_value_than_the_throughput_is_drawn_into_a_file_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = Grid({"kernel": "virtual-6.12", "contention": {"share": [1, 0.5]}, "repeat": 1})
    dataset = made_up.dataset(tmp_path / "data", grid, lambda run: {"rtt_mean_ms": 40 * run.scenario.contention.share})
    draw(dataset, None, tmp_path, "rtt_mean_ms")
    assert "smoothed round-trip time" in capsys.readouterr().out
    assert {file.name for file in tmp_path.glob("*.*")} == {"rtt_mean_ms.png", "rtt_mean_ms.svg"}
    for value, said in (
        ("rtt", "no such value; give one of throughput_mbps, utilization, retransmits, rtt_mean_ms"),
        ("request_p99_ms", "no run of .*/data has it"),
        ("first_flow_share", "no such value"),
    ):
        with pytest.raises(BadInput, match=f"--value {value}: {said}"):
            draw(dataset, None, tmp_path, value)


@pytest.mark.usefixtures("empty_pictures")
def test_the_figure_of_a_part_of_a_series_says_how_much_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = Grid({"kernel": "virtual-6.12", "contention": {"share": [1, 0.5]}, "repeat": 2})
    dataset = Dataset.create(tmp_path / "in parts", grid, {})
    for number, run in enumerate(grid.runs()):
        dataset.append(run.id, Measured(made_up.rows(run, outcome="failed" if number == 3 else "ok")))
        if number in (0, 3):
            plot(tmp_path / "in parts", out=tmp_path)
            said = capsys.readouterr().err.splitlines()
            left = "3" if number == 0 else "1"
            assert said == [
                f"not drawn, since missing or failed: {left} of the series' 4 runs; "
                f"`brobust run --resume --out '{tmp_path}/in parts'` completes them"
            ]
    dataset.append(run.id, Measured(made_up.rows(run)))
    plot(tmp_path / "in parts", out=tmp_path)
    assert capsys.readouterr().err == ""
    scenario = dataset.directory / "scenario.toml"
    scenario.write_text(f"seed = 7\n{scenario.read_text()}")  # as if the runs had other names by now
    plot(tmp_path / "in parts", out=tmp_path)
    assert capsys.readouterr().err == ""


def test_an_empty_dataset_is_refused() -> None:
    with pytest.raises(BadInput, match="no measured run"):
        ThroughputFigure(frame([], RUNS))


def test_runs_without_a_value_of_the_horizontal_axis_are_left_out_or_refused(runs: pl.DataFrame) -> None:
    figure = ThroughputFigure(runs, x="timeslice_ms")
    assert figure.panels == 1 and "timeslice [ms]" in figure.terminal()
    with pytest.raises(BadInput, match=r"--x timeslice_ms: no run .* has a value there; leave it out"):
        ThroughputFigure(runs.filter((pl.col("share") == 1) & (pl.col("cc") == "bbr")), x="timeslice_ms")
    with pytest.raises(BadInput, match=r"--x alternate_s: no run .*; give one that varies: share"):
        ThroughputFigure(runs, x="alternate_s")


def test_an_undisturbed_run_stands_beside_contention_that_comes_and_goes() -> None:
    contention = {"share": [1, 0.5], "alternate": "500ms"}
    grid = Grid({"kernel": "virtual-6.12", "contention": contention})
    assert summary.varying(summary.runs(_measured(grid))) == ["share"]
    assert ThroughputFigure(_measured(grid)).panels == 1
    other = Grid({"kernel": "virtual-6.12", "contention": {**contention, "alternate": ["500ms", "1s"]}})
    assert ThroughputFigure(_measured(other)).panels == 2


def test_an_unknown_axis_is_refused_with_the_known_ones(runs: pl.DataFrame) -> None:
    with pytest.raises(BadInput, match="share, bandwidth_mbps"):
        ThroughputFigure(runs, x="colour")


def _swept(*controls: str) -> pl.DataFrame:
    return frame([_row(control, 0.5, repeat, 1.0) for control in controls for repeat in range(3)], RUNS)


def test_a_parameter_of_a_control_is_an_axis_with_others_as_lines_to_compare_with() -> None:
    swept = _swept("brb_bbq:alpha=500us", "brb_bbq:alpha=2ms:beta=1%", "brb_bbq", "bbr", "brb_bbq:alpha=1ms")
    figure = ThroughputFigure(swept, x="alpha")
    at_each = {
        control: figure._runs.filter(cc=control)["alpha"].unique().sort().to_list() for control in figure.controls
    }
    assert at_each == {
        "bbr": [0.5, 1, 2], "brb_bbq": [0.5, 1], "brb_bbq (default alpha)": [0.5, 1, 2], "brb_bbq:beta=1%": [2]
    }  # fmt: skip
    assert "parameter alpha [ms]" in figure.terminal() and figure.panels == 1
    assert "n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3 runs" in figure._caption
    assert "parameter beta [%]" in ThroughputFigure(swept, x="beta").terminal()


def test_values_of_a_parameter_stand_by_their_size_in_tables_and_figures() -> None:
    ordered = [f"brb_new:{setting}" for setting in ("a=2", "a=8", "a=20", "a=20:b=0.25", "a=20:b=0.5", "a=20:b=1.5")]
    swept = _swept(*sorted(ordered))
    assert summary.cells(swept, no_grid)[0]["cc"].to_list() == ordered
    assert ThroughputFigure(swept).controls == ordered


@pytest.mark.parametrize(
    ("controls", "x", "said"),
    [
        (
            ("brb_bbr1:policer_detection=off",),
            "policer_detection",
            "--x policer_detection: its value 'off' is no number",
        ),
        (("brb_bbq:alpha=5ms", "brb_bbr1_ha:alpha=2"), "alpha", "the controls have values with no unit and ms"),
        (("brb_bbq:alpha=5ms",), "alfa", "no such axis; .* stride, alpha$"),
    ],
)
def test_a_parameter_that_is_no_axis_is_refused(controls: tuple[str, ...], x: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ThroughputFigure(_swept(*controls), x=x)


def test_the_json_object_of_a_run_sums_its_flows() -> None:
    rows = [_row("bbr", 1.0, 0, 9.0), {**_row("cubic", 1.0, 0, 8.0), "flow": 1}]
    said = summary_of(rows)
    assert said["throughput_mbps"] == 17.0
    assert said["flow_throughputs_mbps"] == [9.0, 8.0]
    assert said["retransmits"] == 2
    assert said["cc"] == "bbr+cubic"
    assert said["share"] == 1.0 and "flow_shares" not in said
    failed = [{**_row("bbr", 1.0, 0, None, outcome="failed", stop_s=2.0), "flow": flow} for flow in (0, 1)]
    said = summary_of(failed)
    assert (said["cc"], said["throughput_mbps"], said["flow_throughputs_mbps"]) == ("bbr", None, [None, None])
    assert {"flow", "start_s", "stop_s", "flow_completions_ms"}.isdisjoint(said)
    ended = [{**rows[0], "completion_ms": 800.0}, rows[1]]
    assert summary_of(ended)["flow_completions_ms"] == [800.0, None]


def test_the_json_objects_of_runs_have_the_same_keys_whatever_was_measured() -> None:
    undisturbed, contended = _row("bbr", 1.0, 0, 9.0), {**_row("bbr", 0.5, 0, 9.0), "timeslices": 250, "iperf3": "3.12"}
    failed = {key: value for key, value in _row("bbr", 1.0, 0, None, outcome="failed").items() if value is not None}
    (keys,) = {tuple(summary_of([row])) for row in (undisturbed, contended, failed)}
    assert {"timeslices", "completion_ms", "steal_share", "reason"} <= set(keys)


def test_the_table_of_runs_of_several_senders_has_the_share_that_each_got() -> None:
    """In the order of the senders, not of the flows, and once what several have."""
    got = {1: 0.25, 2: 1.0, 3: 1.0}
    flows = [
        {**_row(cc, share, repeat, 5.0), "run": f"{repeat}", "flow": flow, "sender": sender,
         "effective_share": got[sender] + repeat / 100}
        for repeat in range(3)
        for flow, (sender, cc, share) in enumerate([(2, "reno", 1.0), (1, "bbr", 0.2), (1, "bbr", 0.2), (3, "bbr", 1)])
    ]  # fmt: skip
    assert "26.0%+101.0%" in _shown(frame(flows, RUNS))
    for senders in (flows, flows[:2]):
        said = str(table.render(frame(senders, RUNS), "t", no_grid).caption)
        assert "share got: each sender's, other columns of the CPU: that of the first flow" in said


def test_the_json_object_of_a_run_of_several_senders_has_no_share_of_the_first_alone() -> None:
    first = {**_row("bbr", 0.5, 0, 9.0), "effective_share": 0.49}
    said = summary_of([first, {**_row("bbr", 1.0, 0, 8.0), "flow": 1, "sender": 2, "effective_share": 1.0}])
    assert said["flow_shares"] == [0.5, 1.0]
    assert {"share", "timeslice_ms", "driver", "effective_share"}.isdisjoint(said)
    assert (said["throughput_mbps"], said["rtt_ms"]) == (17.0, 10.0)


def test_of_unfaithful_runs_the_table_says_all_that_this_may_mean() -> None:
    """A run that nothing was taken from is unfaithful, too, if no byte arrived."""
    rows = frame([_row("bbr", 1.0, 0, 0.0, outcome="unfaithful", reason="no byte reached the receiver")], RUNS)
    assert "(k!): k of them did not get the requested contention, or delivered nothing" in str(
        table.render(rows, "t", no_grid).caption
    )


def test_a_run_has_the_mean_of_its_flows_rtts_and_no_number_of_one_flow() -> None:
    flows = [{"flow": 0, "rtt_mean_ms": 10.0, "rtt_p99_ms": 12.0, "bbr_version": 1}, {"flow": 1, "rtt_mean_ms": 50.0}]
    rows = [{**_row("bbr", 1.0, 0, 9.0), **flow} for flow in flows]
    said = summary_of(rows)
    assert said["rtt_mean_ms"] == summary.runs(frame(rows, RUNS))["rtt_mean_ms"].item() == 30.0
    assert not {"rtt_p99_ms", "bbr_version"} & said.keys()
    assert summary_of(rows[:1])["rtt_p99_ms"] == 12.0


def test_retransmits_and_drops_that_nobody_has_counted_are_not_0() -> None:
    rows = [{**_row("bbr", 1.0, 0, 9.0), "retransmits": None, "drops": None, "flow": flow} for flow in (0, 1)]
    assert summary.runs(frame(rows, RUNS)).select("retransmits", "drops").row(0) == (None, None)
    assert "bbr 18.00 18.00-18.00 1 - 100.0%" in " ".join(_shown(frame(rows, RUNS)).split())


def _drawn_flows(tmp_path: Path, count: int) -> "tuple[Axes, Axes]":
    """Draw a run of so many flows, each of which starts two seconds after the one before: over time, and windows."""
    from matplotlib.figure import Figure  # only here: tests/test_extras.py imports this file without it

    from brobust.report.study import PANELS

    flows = [{"cc": "bbr", "start": f"{2 * number}s"} for number in range(count)]
    grid = Grid({"flows": flows, "duration": f"{2 * count}s", "samples": "10ms"})
    of_run = {
        "throughput": [{"flow": flow, "time_s": 0.5, "throughput_mbps": 9.0} for flow in range(count)],
        "samples": [{"flow": flow, "time_s": 3.0, "cwnd_packets": 9} for flow in range(count)],
    }
    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, tables=lambda _: of_run))
    throughputs, windows = Figure().subplots(2)
    PANELS["flows_over_time"].draw(throughputs, evidence.flow_throughput, evidence.flows, "")
    PANELS["windows"].draw(windows, evidence.samples, evidence.flows, "")
    return throughputs, windows


def test_flows_are_drawn_at_the_times_of_the_run_at_which_they_sent(tmp_path: Path) -> None:
    throughputs, windows = _drawn_flows(tmp_path, 2)
    assert [line.get_xdata()[0] for line in throughputs.lines] == [0.5, 2.5]
    assert throughputs.get_legend_handles_labels()[1] == ["flow 1, RTT 10 ms", "flow 2, RTT 10 ms"]
    names = windows.get_legend_handles_labels()[1]
    assert len(set(names)) == 4 and "flow 2, RTT 10 ms: in flight" in names


@pytest.mark.parametrize("kind", ["model", "inflight", "gains", "sent"])
def test_no_line_of_a_run_goes_from_one_flow_to_another(kind: str) -> None:
    from matplotlib.figure import Figure  # only here: tests/test_extras.py imports this file without it

    from brobust.report.study import PANELS, RATES

    columns = ("inflight_bdp", "inflight_packets", "pacing_gain", *RATES)
    samples = [
        {"run": "a", "flow": number % 2, "time_s": number / 100, **dict.fromkeys(columns, float(1 + number % 2))}
        for number in range(20)
    ]
    axes = Figure().subplots()
    PANELS[kind].draw(axes, frame(samples, TABLES["samples"]), frame([], RUNS), "black")
    assert len(axes.lines) > 1
    assert all(len(set(line.get_ydata())) == 1 for line in axes.lines)
    if kind == "gains":  # in print both are black
        assert len({line.get_linestyle() for line in axes.lines}) == 2
    names = axes.get_legend_handles_labels()[1]
    assert len(set(names)) == len(names)


def test_of_more_flows_than_there_are_styles_all_are_drawn(tmp_path: Path) -> None:
    throughputs, windows = _drawn_flows(tmp_path, 9)
    assert [line.get_xdata()[0] for line in throughputs.lines] == [2 * flow + 0.5 for flow in range(9)]
    assert len(windows.lines) == 18
    assert throughputs.get_legend_handles_labels() == windows.get_legend_handles_labels() == ([], [])


def test_a_title_leaves_out_what_its_cell_does_not_have(runs: pl.DataFrame) -> None:
    measured = summary.runs(runs)
    assert cell_phrase(measured, ["rtt_ms", "flow_rtt_ms"], [5.0, None]) == "5 ms RTT"
    assert [cell_phrase(measured, axes, [None] * len(axes)) for axes in ([], ["flow_rtt_ms"])] == ["", "-"]


def test_a_title_says_what_a_number_and_a_name_are(runs: pl.DataFrame) -> None:
    """The path's RTT beside the flow's own, and who takes the CPU away."""
    own = runs.with_columns(rtt_ms=pl.lit(40.0), flow_rtt_ms=pl.lit(20.0))
    burner = own.with_columns(driver=pl.lit("burner"), flow_rtt_ms=pl.lit(20.5), run=pl.col("run") + "-b")
    measured = summary.runs(pl.concat([own, burner])).filter(pl.col("share") < 1)
    axes = ["rtt_ms", "flow_rtt_ms", "driver"]
    titles = {cell_phrase(measured, axes, cell) for cell in measured.select(axes).rows()}
    assert titles == {"40 ms RTT, flow RTT 20 ms, driver deadline", "40 ms RTT, flow RTT 20.5 ms, driver burner"}
    assert cell_phrase(measured, ["driver", "aqm"], ["virtual", "none"]) == "exact timeslices, no aqm"


def test_small_buffers_that_two_decimals_of_a_bdp_do_not_tell_apart_are_cells_of_their_own() -> None:
    of_path = {"bandwidth_mbps": 1000.0, "rtt_ms": 100.0}
    rows = frame([
        {**_row("bbr", 1.0, repeat, 1.0, buffer_bytes=size, **of_path), "run": f"{size}-{repeat}"}
        for size in (20_000, 30_000) for repeat in range(2)
    ], RUNS)  # fmt: skip
    cells, axes = summary.cells(rows, no_grid)
    assert axes == ["buffer_bytes"]
    assert cells["n"].to_list() == [2, 2]
    measured = summary.runs(rows)
    assert [cell_phrase(measured, axes, [size]) for size in (20_000, 30_000)] == ["20000 B buffer", "30000 B buffer"]
    assert "0 BDP buffer" not in ThroughputFigure(rows)._caption
    assert "20000 B buffer" in ThroughputFigure(rows.filter(buffer_bytes=20_000))._caption


def test_a_caption_of_runs_on_different_paths_begins_with_their_length() -> None:
    paths = [(10.0, 10.0, 20_000), (20.0, 20.0, 90_000)]
    of_each = [_row("bbr", 1.0, 0, 1.0, bandwidth_mbps=mbps, rtt_ms=ms, buffer_bytes=size) for mbps, ms, size in paths]
    rows = frame([{**row, "run": f"r{number}"} for number, row in enumerate(of_each)], RUNS)
    assert caption(rows, summary.runs(rows), "median").startswith("5 s per run. Points")


@pytest.mark.parametrize(
    ("runs_of_each", "said"),
    [
        ((1, 1), "Points: one run each, n = 1. "),
        ((2, 1), "Points: median of n = 1-2 runs, dots: each run. "),
        ((3, 2), "bars: from the least run to the greatest, where n is at least 3, dots: each run. "),
        ((3, 5), "bars: from the least run to the greatest, dots: each run. "),
        ((6, 5), "interval (bootstrap; of 3 to 5 runs from the least to the greatest), dots: each run. "),
        ((6, 9), "bars: its 95 % confidence interval (bootstrap), dots: each run. "),
    ],
)
def test_a_caption_tells_of_intervals_only_where_there_are_enough_runs(
    runs_of_each: tuple[int, int], said: str
) -> None:
    each = zip((1.0, 0.5), runs_of_each, strict=True)
    rows = frame([_row("bbr", share, repeat, 1.0) for share, count in each for repeat in range(count)], RUNS)
    assert said in caption(rows, summary.runs(rows), "median").replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("of_each", "said", "unsaid"),
    [
        ([{}], "10 ms RTT, 1 BDP buffer, 25 % CPU, 10 ms slices (driver deadline); 5 s per run. ", "loss"),
        ([{"loss": 0.01}], ", 1 BDP buffer, 1 % loss, 25 % CPU,", "0.01"),
        ([{"loss": 0.01}, {"loss": 0.02}], ", 1 BDP buffer, 25 % CPU,", "loss"),
        ([{"driver": "virtual", "backend": "virtual"}], "10 ms slices (exact);", "deadline"),
        ([{}, {"driver": "burner"}], "10 ms slices; 5 s", "("),
        ([{}, {"timeslice_ms": 1.0}], "25 % CPU; 5 s", "slices"),
        ([{}, {"share": 1.0, "timeslice_ms": None}], "1 BDP buffer, 10 ms slices (driver deadline);", "% CPU"),
        ([{}, {"replay": "a.csv"}], "5 s per run", "recording"),
        ([{"duration_s": 10.0}, {}], "; 5-10 s per run. ", "unfaithful"),
        ([{}, {"outcome": "unfaithful"}], "Backend vm (TCG), Linux 6.12.0; 1 run unfaithful.", "2 run"),
    ],
)
def test_a_caption_says_what_all_runs_have_in_common_and_nothing_that_differs(
    of_each: list[dict[str, Any]], said: str, unsaid: str
) -> None:
    rows = [{**_row("bbr", 0.25, 0, 1.0, driver="deadline"), "run": f"{n}", **more} for n, more in enumerate(of_each)]
    table = frame(rows, RUNS)
    whole = caption(table, summary.runs(table), "median").replace("\N{NO-BREAK SPACE}", " ")
    conditions = whole.partition(" Points:")[0]
    assert whole.startswith("20 Mbit/s, ") and said in whole and unsaid not in conditions


def test_a_caption_says_that_off_times_were_replayed() -> None:
    """The CPU share of such a run is 100 %."""
    rows = frame([_row("bbr", 1.0, 0, 1.0, replay="seen.parquet")], RUNS)
    assert "off-times of a recording; 5 s per run" in caption(rows, summary.runs(rows), "median")
    undisturbed = rows.with_columns(replay=pl.lit(None, pl.String))
    assert "recording" not in caption(undisturbed, summary.runs(undisturbed), "median")


def test_shares_that_differ_by_less_than_a_percent_are_shown_as_they_are() -> None:
    rows = frame([_row("bbr", share, 0, 1.0) for share in (0.125, 0.12)], RUNS)
    assert {"12.5%", "12%"} <= set(_shown(rows).split())
    described = [scenario({"contention": {"share": share}}).describe() for share in ("0.125", "0.07")]
    assert "12.5% CPU" in described[0]
    assert "7% CPU" in described[1]


@pytest.mark.parametrize(
    ("count", "vcpus", "said"),
    [
        (0, 1, "[s]"),
        (1, 1, "grey: a sender had no CPU"),
        (3000, 1, "not drawn: the 3,000 times in which a sender"),
        (2, 2, "grey: a vCPU of a sender had no CPU; darker: several"),
        (3000, 2, "not drawn: the 3,000 times in which a vCPU of a sender"),
    ],
)
def test_a_run_over_time_says_whether_its_off_times_are_drawn(
    tmp_path: Path, count: int, vcpus: int, said: str
) -> None:
    grid = Grid({"contention": {"share": 0.5}, "duration": "60s"})
    throughput = [{"flow": 0, "time_s": 0.1, "throughput_mbps": 9.0}]
    of = {"sender": 1, "kind": "off", "duration_ms": 10.0}
    off = [{**of, "vcpu": at % vcpus, "start_s": 0.02 * at} for at in range(count)]
    of_run = {"throughput": throughput, "offtimes": off}
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: of_run)
    (axes,) = over_time.figure(find(dataset, None)).axes
    assert axes.get_xlabel().startswith("time [s]") and said in axes.get_xlabel()
    assert ("CPU" in axes.get_xlabel()) == (count > 0)
    assert len(axes.patches) == (count if "grey" in said else 0)


@pytest.mark.parametrize("theme", ["default", "dark_background"])
def test_a_run_over_time_shows_each_of_seven_flows_and_itself(theme: str) -> None:
    """In a notebook, also without %matplotlib inline; on a dark ground, too; and with no name before a line."""
    import matplotlib.style
    from matplotlib.colors import to_rgba

    run = Grid({"flows": [{"cc": "bbr", "count": 7}]}).runs()[0]
    throughput = [{"run": run.id, "flow": flow, "time_s": 0.1, "throughput_mbps": 1.0} for flow in range(7)]
    with matplotlib.style.context(theme):
        drawn = Result(run, Measured(made_up.rows(run), throughput)).plot()
        (axes,) = drawn.axes
        ground = axes.get_facecolor()
        assert drawn._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    assert all(to_rgba(line.get_color()) != ground for line in axes.lines)
    assert axes.get_legend() is None and len(drawn.legends[0].get_texts()) == 7


def test_brackets_and_escape_sequences_in_names_are_shown_and_do_nothing() -> None:
    rows = frame([_row("bbr[/y]", 1.0, 0, 1.0), _row("\x1b[2J", 1.0, 0, 1.0)], RUNS)
    text = _shown(rows, title="dataset x[/y]\x1b[0m :bug:")
    assert "\x1b" not in text
    for shown in ("bbr[/y]", "\\x1b[2J", "dataset x[/y]\\x1b[0m :bug:"):
        assert shown in text


def test_a_flow_that_stops_counts_what_had_arrived_by_then() -> None:
    """Buffers hold data when a flow stops sending, which arrives later."""
    flows = [{"cc": "bbr", "stop": "150ms"}, {"cc": "bbr"}]
    run = Run(scenario=scenario({"flows": flows, "duration": "1s"}), repeat=0)
    of_flow = dict.fromkeys(
        ("errno", "ended_ns", "retransmits", "rtt_mean_ms", "rtt_p99_ms", "drops", "queue_mean_ms", "skb_mean_bytes",
         "pacing_idle_ms")
    )  # fmt: skip
    over_time = {
        "flow": ("i8", array("q", [0, 1] * 3).tobytes()),
        "time_s": ("f8", array("d", [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]).tobytes()),
        "throughput_mbps": ("f8", array("d", [8.0, 8.0, 4.0, 8.0, 4.0, 8.0]).tobytes()),
    }
    result = {
        "flows": [{**of_flow, "received_bytes": 200_000}, {**of_flow, "received_bytes": 1_000_000}],
        "throughput": over_time, "busy_ns": [0], "timeslices_ns": [[(0, 10**9)]], "work": {"nic_drops": 0},
    }  # fmt: skip
    stopped, other = (row["throughput_mbps"] for row in results.flow_rows(run, result))
    assert stopped == pytest.approx((100_000 + 25_000) * 8e-6 / 0.15)
    assert other == 8.0  # of all that it had


@pytest.mark.parametrize(
    ("got", "shown"),
    [([0.25], "25.0%"), ([0.25, 0.25], "25.0%"), ([0.25, 1, 0.25], "25.0%+100.0%+25.0%"), ([None], "-")],
)
def test_a_table_names_each_senders_share_unless_all_are_equal(got: list[float | None], shown: str) -> None:
    assert table._shares(got) == shown


def test_a_report_says_what_a_figure_shows_to_those_who_do_not_see_it(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from brobust.report import html
    from brobust.study.model import Figure, Study

    figure = Figure(name="throughput", title="Throughput over CPU share")
    study = Study(paper="mine", figure="4", title="t", figures=[figure])
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures/mine-4-throughput.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    part = SimpleNamespace(directory=tmp_path, has=lambda _: True, about={"backend": "vm"})
    (image,) = html._images(study, [part])  # type: ignore[list-item]
    assert image["words"] == "mine, figure 4: Throughput over CPU share (backend vm)"


def test_a_report_shows_what_each_sender_asked_for_and_got(tmp_path: Path) -> None:
    from brobust.report import html  # of the extra; tests without it import this file

    asked = {"contention": {"share": 0.5, "timeslice": "10ms"}, "senders": [{"share": 0.25, "timeslice": "20ms"}]}
    grid = Grid({**asked, "flows": [{"cc": "bbr", "count": 2}, {"cc": "cubic", "sender": 2}], "repeat": 3})
    made_up.dataset(tmp_path / "data", grid, lambda _: {"effective_share": 0.3})
    about = {"paper": "2brobust", "scale": "smoke", "backend": "virtual", "figures": []}
    (tmp_path / "reproduction.json").write_text(json.dumps(about))
    (tmp_path / "claims.jsonl").touch()
    rows = [(row["timeslice_ms"], row["share"], row["n"]) for row in html._Part(tmp_path).contention()]
    assert rows == [(10.0, 0.5, 3), (20.0, 0.25, 3)]


def test_a_report_takes_no_file_for_a_picture_that_is_none(tmp_path: Path) -> None:
    """In a stranger's directory a figure may be a link to a file that its reader would not put into a page."""
    from brobust.report import html

    (tmp_path / "secret").write_text("secret")
    linked, drawn = tmp_path / "linked.png", tmp_path / "drawn.png"
    linked.symlink_to("secret")
    with pytest.raises(BadInput, match=r"linked\.png: is no PNG"):
        html._picture(linked)
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadInput, match="is a named pipe"):
        html._picture(tmp_path / "pipe.png")
    drawn.write_bytes(b"\x89PNG\r\n\x1a\nrest")
    assert html._picture(drawn).endswith(b"rest")
