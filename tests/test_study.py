"""Studies: files that say what to measure and what is claimed of it, and the rules that decide."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import polars as pl
import pytest
from pydantic import TypeAdapter

import made_up
from brobust import files
from brobust.analysis import cells, claims, confidence, summary, twins
from brobust.analysis.axes import VALUES
from brobust.analysis.checks import AnyCheck, Bound, Classes, select
from brobust.analysis.claims import DIFFERS, HOLDS, IN_PART, NOT_MEASURABLE, Claim, Verdict, decide
from brobust.analysis.metrics import METRICS, OF_RUNS, Evidence
from brobust.cli import sweep
from brobust.cli.sweep import _field
from brobust.dataset import RUNS, frame
from brobust.errors import BadInput, Interrupted
from brobust.report import plot, sheets
from brobust.report.reproduced import Reproduced
from brobust.report.study import DISTRIBUTIONS, PANELS, _where, check, draw, throughput_figure
from brobust.scenario import Grid, Run
from brobust.study import STUDIES, Scale, model, papers
from brobust.study.model import Figure
from browser import CHROMIUM, Browser
from conftest import BROBUST, Brobust, json_lines, refused

FILES = sorted(STUDIES.glob("*/*.toml"))
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
loaded = cache(model.load)
"""All of them take two seconds, which a worker that only looks for its tests need not spend."""


def _of_papers() -> dict[str, list[model.Study]]:
    return {paper: [loaded(file) for file in FILES if file.parent.name == paper] for paper in papers()}


@cache
def _grid(name: str, scale: Scale, backend: str = "virtual") -> Grid:
    """Return the grid of a study of a paper, which several tests want, and which may take seconds to make."""
    (study,) = [study for studies in _of_papers().values() for study in studies if study.name == name]
    return model.grid([study], scale, backend)


def test_each_metric_that_is_a_column_of_runs_is_there() -> None:
    assert set(OF_RUNS) <= set(summary.runs(frame(None, RUNS)).columns)


def _as_if_measured(grid: Grid) -> pl.DataFrame:
    """A row per flow of each of the grid's scenarios."""
    runs = (Run(scenario=scenario, repeat=0) for scenario in grid.scenarios)
    return frame([row for run in runs for row in made_up.rows(run)], RUNS)


@EACH
def test_it_can_be_measured_at_every_scale_and_its_figures_drawn_of_that(file: Path) -> None:
    """No more panels than fit, and something in each at scale quick."""
    study = loaded(file)
    assert {Scale.QUICK, Scale.FULL} <= set(study.scale or study.vm)
    for backend, scales in (("virtual", study.scale), ("vm", study.vm)):
        seen: list[dict[str, Any]] = []
        for scale in scales:
            # Most scales measure the cells of another, only longer or more often: their figures have the same panels.
            cells = {**(study.fields(scale, backend) or {}), "duration": None, "repeat": None}
            if cells in seen:
                continue
            seen.append(cells)
            grid = _grid(study.name, scale, backend)
            assert grid.size > 0, (backend, scale)
            said = check(study, grid.as_written)
            empty = [sentence for sentence in said if "is not drawn" in sentence]
            # At scale smoke and on vm a study may measure only some of its figures.
            allowed = max(0, len(study.figures) - 1) if backend == "vm" or scale == Scale.SMOKE else 0
            assert len(empty) <= allowed, (backend, scale, empty)


def test_a_stride_is_an_axis_of_one_control() -> None:
    (study,) = model.of_paper("mobiles", ["8"])
    flows = _as_if_measured(_grid(study.name, Scale.QUICK))
    drawn = throughput_figure(flows, study.figures[0], None)
    assert drawn.controls == ["brb_bbr1_master"]
    assert drawn._ticks(drawn._runs) == [1, 2, 5, 10, 20, 50]


def test_claims_and_figures_have_names_of_their_own() -> None:
    for paper, studies in _of_papers().items():
        assert {study.paper for study in studies} == {paper}
        claims = [claim.id for study in studies for claim in study.claims]
        assert len(claims) == len(set(claims))
        names = [study.figure for study in studies]
        assert names and len(names) == len(set(names))


@EACH
def test_a_study_can_be_measured_on_another_kernel(file: Path) -> None:
    study = loaded(file)
    mine = study.on_kernels(["virtual-mine"])
    for scale in study.scale:
        fields = mine.fields(scale, "virtual")
        assert fields is not None and fields["kernel"] == ["virtual-mine"]
        assert not any("kernel" in grid for grid in fields.get("grids", ()))
    assert not any("kernel" in figure.where for figure in mine.figures)
    assert [claim.id for claim in mine.claims] == [claim.id for claim in study.claims]


def test_a_study_can_be_measured_with_another_value_of_a_field() -> None:
    (study,) = model.of_paper("2brobust", ["buffers"])
    mine = study.with_fields(_field("nic.adaptive_rx=on")).with_fields(_field("nic.rx_ring=256"))
    for scale in (Scale.SMOKE, Scale.QUICK):  # of one grid, and of several
        fields = mine.fields(scale, "virtual")
        assert fields is not None
        assert {(one.nic.adaptive_rx, one.nic.rx_ring) for one in Grid(fields).scenarios} == {("on", 256)}
    for wrong in ("nic.adaptive_rx", "nic.adaptive=on", "flows.cc=bbr"):
        with pytest.raises(BadInput, match="FIELD=VALUE"):
            _field(wrong)
    with pytest.raises(BadInput, match=r"^--set: 'nic\.rx_ring=256\\nduration = \"1s\"' goes on after the value"):
        _field('nic.rx_ring=256\nduration = "1s"')
    assert _field("contention.share=[\n0.5,\n0.25,\n]") == {"contention": {"share": [0.5, 0.25]}}


def test_what_two_studies_want_is_measured_once() -> None:
    grids = [_grid(name, Scale.QUICK) for name in ("2brobust-4", "2brobust-12")]
    assert len(Grid.together(grids).runs()) == len(grids[0].runs())


def test_the_page_says_how_many_runs_each_paper_takes() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs/reproduction.md").read_text().split())
    said = re.search(
        r"`brobust reproduce 2brobust --scale quick` makes ([\d,]+) runs \((.*?)\), `--scale full`.*?, ([\d,]+);", page
    )
    assert said is not None
    of_each = {"2brobust": said[1], **dict(re.findall(r"`(\w+)` (\d+)", said[2]))}

    def runs(paper: str, scale: Scale) -> int:
        measured = [study.name for study in _of_papers()[paper] if scale in study.scale]
        return Grid.together([_grid(name, scale) for name in measured]).size

    for paper in ("2brobust", "clouded", "bbq", "mobiles"):
        assert of_each[paper].replace(",", "") == str(runs(paper, Scale.QUICK)), paper
    assert said[3] == f"{runs('2brobust', Scale.FULL):,}"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """BBR with 90, 40 and 5 Mbit/s at 70, 50 and 25 % of a CPU, a little more at 40 ms; Cubic with 90; n = 3."""
    mbps = {0.7: 90.0, 0.5: 40.0, 0.25: 5.0}
    grid = Grid(
        {
            "path": {"bandwidth": "100mbit", "rtt": ["10ms", "40ms"], "buffer": "1bdp"},
            "contention": {"share": list(mbps), "timeslice": "10ms"},
            "flows": [{"cc": ["cubic", "bbr"]}],
            "repeat": 3,
        }
    )

    def measured(run: Run) -> dict[str, Any]:
        cc, share = run.scenario.flows[0].cc, run.scenario.contention.share
        rate = 90.0 if cc == "cubic" else mbps[share] + run.scenario.path.rtt / 1e8
        return {"throughput_mbps": rate + run.repeat, "retransmits": 0, "kernel_release": "6.12"}

    return made_up.evidence(made_up.dataset(tmp_path_factory.mktemp("evidence") / "data", grid, measured))


def _decided(evidence: Evidence, *checks: dict[str, Any], **more: Any) -> Verdict:
    parsed = tuple(TypeAdapter(AnyCheck).validate_python(check) for check in checks)
    verdict = decide(Claim(id="X1", text="x", checks=parsed, **more), evidence)
    assert verdict.backend == "virtual"
    return verdict


def _verdict(evidence: Evidence, *checks: dict[str, Any]) -> str:
    return _decided(evidence, *checks).verdict


BBR = {"cc": "bbr"}


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        ({"rule": "at_most", "value": 7, "where": {**BBR, "share": "0.1-0.25"}}, HOLDS),
        ({"rule": "at_most", "value": 7, "where": {**BBR, "share": "0.1-0.5"}}, DIFFERS),
        ({"rule": "at_most", "value": 6.5, "of": "each", "where": {**BBR, "share": 0.25}}, DIFFERS),
        ({"rule": "at_most", "value": 7, "where": BBR, "unless": {"share": [0.5, 0.7]}}, HOLDS),
        ({"rule": "at_most", "value": 7, "where": BBR, "unless": {"share": 0.5, "rtt_ms": 10}}, DIFFERS),
        (
            {
                "rule": "ratio",
                "where": {"cc": "cubic"},
                "unless": {"share": "0-0.5"},
                "than": {"cc": "bbr"},
                "at_most": 5,
            },
            HOLDS,
        ),
        ({"rule": "at_least", "value": 91, "where": {"cc": "cubic"}}, HOLDS),
        ({"rule": "at_least", "value": 0.9, "metric": "utilization", "where": {"cc": "cubic"}}, HOLDS),
        ({"rule": "at_most", "value": 7, "where": {"share": 0.1}}, NOT_MEASURABLE),
        # Nobody retransmits: as much as nobody.
        (
            {
                "rule": "ratio",
                "metric": "retransmits",
                "where": BBR,
                "than": {"cc": "cubic"},
                "at_least": 1,
                "at_most": 1,
            },
            HOLDS,
        ),
        ({"rule": "ratio", "where": {"cc": "cubic"}, "than": {"cc": "bbr"}, "at_least": 0.99}, HOLDS),
        ({"rule": "ratio", "where": {"cc": "cubic"}, "than": {"cc": "bbr"}, "at_most": 5}, DIFFERS),
        ({"rule": "ratio", "where": {**BBR, "share": 0.25}, "than": {"share": 0.9}}, NOT_MEASURABLE),
        ({"rule": "part_better", "where": BBR, "than": {"cc": "cubic"}, "at_least": 0.3}, HOLDS),
        ({"rule": "part_better", "where": BBR, "than": {"cc": "cubic"}, "at_least": 0.5}, DIFFERS),
        ({"rule": "falls", "along": "share", "total": 10, "where": BBR}, HOLDS),
        ({"rule": "falls", "along": "share", "total": 20, "where": BBR}, DIFFERS),
        ({"rule": "rises", "along": "share", "where": BBR}, DIFFERS),
        ({"rule": "equal", "along": "rtt_ms", "within": 1.1, "where": BBR}, HOLDS),
        ({"rule": "equal", "along": "share", "within": 1.1, "where": BBR}, DIFFERS),
        ({"rule": "equal", "along": "rtt_ms", "within": 1, "or_apart": 0.4, "where": BBR}, HOLDS),
        ({"rule": "equal", "along": "rtt_ms", "within": 1, "or_apart": 0.2, "where": BBR}, DIFFERS),
        ({"rule": "falls", "along": "bandwidth_mbps"}, NOT_MEASURABLE),
        ({"rule": "equal", "along": "bandwidth_mbps", "within": 1.1}, NOT_MEASURABLE),
        ({"rule": "reaches", "along": "share", "level": 30, "least": 0.5, "most": 0.5, "where": BBR}, HOLDS),
        ({"rule": "reaches", "along": "share", "level": 30, "least": 0.7, "where": BBR}, DIFFERS),
        ({"rule": "reaches", "along": "share", "level": 99, "most": 0.7, "where": BBR}, DIFFERS),
        ({"rule": "part", "above": 41.5, "at_least": 0.3, "at_most": 0.6, "where": BBR}, HOLDS),
        ({"rule": "part", "below": 41.5, "at_most": 0.3, "where": BBR}, DIFFERS),
        ({"rule": "at_most", "stat": "deviation", "value": 1.01, "where": BBR}, HOLDS),
    ],
)
def test_a_rule_decides(evidence: Evidence, check: dict[str, Any], expected: str) -> None:
    assert _verdict(evidence, check) == expected


def test_what_cannot_be_judged_says_why(evidence: Evidence) -> None:
    first = Evidence(evidence._tables, evidence.flows.filter(repeat=0)["run"].to_list())
    deviation = {"rule": "at_most", "stat": "deviation", "value": 9, "where": BBR}
    assert _decided(first, deviation).measured == "a deviation needs 3 runs of a cell"
    rtt = {"rule": "at_most", "metric": "rtt_mean_ms", "value": 9}
    assert _decided(evidence, {**rtt, "where": BBR}).measured == "these runs have no rtt_mean_ms"
    assert _decided(evidence, {**rtt, "where": {"share": 0.1}}).measured == "no such cell was measured"


def test_what_falls_to_nothing_has_fallen_by_every_factor(evidence: Evidence) -> None:
    assert _verdict(evidence, {"rule": "falls", "metric": "retransmits", "along": "share", "where": BBR}) == DIFFERS
    assert _verdict(evidence, {"rule": "falls", "metric": "retransmits", "along": "share", "total": 0}) == HOLDS


def test_flows_that_start_at_different_times_are_compared_at_the_same_time(tmp_path: Path) -> None:
    grid = Grid({"flows": [{"cc": "bbr"}, {"cc": "bbr", "start": "20s"}], "duration": "40s"})
    # The first has 80 until the second comes; then each has 50, but for the second's first ten seconds.
    over_time = [(0, s, 80.0 if s <= 20 else 50.0) for s in range(1, 41)]
    over_time += [(1, s, 20.0 if s <= 10 else 50.0) for s in range(1, 21)]
    series = [{"flow": flow, "time_s": float(time), "throughput_mbps": mbps} for flow, time, mbps in over_time]
    measured = {"throughput_mbps": 50.0, "retransmits": 10, "kernel_release": "6.12"}
    dataset = made_up.dataset(tmp_path / "data", grid, lambda _: measured, lambda _: {"throughput": series})
    evidence = made_up.evidence(dataset)
    for metric, expected in {
        "first_flow_together_mbps": 50.0,
        "second_flow_together_mbps": 50.0,
        "late_mbps": (10 * 70 + 10 * 100) / 20,
        "retransmit_share": 20 / (50e6 / 8 * (40 + 20) / 1448),
    }.items():
        assert evidence.values(metric)["value"].to_list() == [pytest.approx(expected)], metric


@pytest.mark.parametrize("start_s", [0.2, 0.25, 0.999])
def test_flows_whose_intervals_begin_apart_are_added_up(tmp_path: Path, start_s: float) -> None:
    """0.1 + 0.2 is not 0.3 to a computer, and other starts are no multiples of an interval at all."""
    grid = Grid({"flows": [{"cc": "bbr"}, {"cc": "bbr", "start": f"{start_s}s"}], "duration": "10s", "repeat": 1})
    each = [(0, number / 10, 10.0) for number in range(1, 101)]
    each += [(1, number / 10, 8.0) for number in range(1, 1 + int((10 - start_s) * 10))]
    series = [{"flow": flow, "time_s": time, "throughput_mbps": mbps} for flow, time, mbps in each]
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: {"throughput": series})
    evidence = made_up.evidence(dataset)
    rates = evidence.throughput
    assert rates["time_s"].to_list() == [number / 10 for number in range(1, 101)]
    full = rates.filter(pl.col("time_s").is_between(1.1, 9.8))["throughput_mbps"].to_list()
    assert full == [pytest.approx(18)] * len(full)
    payload = 10 * 10 + 8 * 0.1 * int((10 - start_s) * 10)
    assert rates["throughput_mbps"].sum() / 10 == pytest.approx(payload)
    assert evidence.values("late_mbps")["value"].item() == pytest.approx(18, abs=0.3)


def test_what_nobody_has_counted_is_no_share_of_retransmissions(tmp_path: Path) -> None:
    grid = Grid({"flows": [{"cc": ["bbr", "cubic"]}], "repeat": 1})

    def measured(run: Run) -> dict[str, Any]:
        return {"retransmits": None if run.scenario.flows[0].cc == "bbr" else 0}  # as QUIC stacks do

    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, measured))
    assert evidence.values("retransmit_share").select("cc", "value").rows() == [("cubic", 0.0)]


def test_runs_whose_requests_were_not_answered_count_as_the_slowest(tmp_path: Path) -> None:
    """Two of five have no 99th percentile: so many requests had no answer. The median is still of all five."""
    grid = Grid({"flows": [{"cc": ["bbr", "cubic"]}], "repeat": 5})

    def measured(run: Run) -> dict[str, Any]:
        all_ms = (10.0, 12.0, 14.0, None, None) if run.scenario.flows[0].cc == "bbr" else (10.0, 12.0, None, None, None)
        return {"requests": 100, "requests_answered": 95, "request_p99_ms": all_ms[run.repeat], "retransmits": 0}

    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, measured))
    bound = {"rule": "at_most", "metric": "request_p99_ms", "value": 14}
    assert _verdict(evidence, {**bound, "where": {"cc": "bbr"}}) == HOLDS
    assert _verdict(evidence, {**bound, "where": {"cc": "cubic"}}) == DIFFERS


def test_undisturbed_cells_belong_to_every_series_along_the_share() -> None:
    """They have neither driver nor timeslice, but a claim from 100 % of a CPU on is about them, too."""
    schedules = [{"cc": "bbr", "driver": "auto", "timeslice_ms": length} for length in (1.0, 10.0)]
    rows = [{**one, "share": share} for one in schedules for share in (0.25, 0.5)]
    rows += [{"cc": cc, "driver": "none", "share": 1.0} for cc in ("bbr", "cubic")]
    every = pl.DataFrame(rows).with_columns(pl.lit(None).alias(axis) for axis in cells.CELL if axis not in rows[0])
    series = [one.select("cc", "timeslice_ms", "share").rows() for one in cells.groups(every, "share")]
    assert sorted(map(len, series)) == [1, 3, 3] and [("cubic", None, 1.0)] in series
    assert [("bbr", 1.0, 0.25), ("bbr", 1.0, 0.5), ("bbr", 1.0, 1.0)] in series
    assert sum(map(len, cells.groups(every, "cc"))) == len(every)


def test_a_replay_is_no_undisturbed_cell_and_no_schedule_of_a_series() -> None:
    rows = [
        {"driver": "virtual", "timeslice_ms": 10.0, "share": 0.5}, {"driver": "none", "share": 1.0},
        {"driver": "virtual", "share": 0.75},
    ]  # fmt: skip
    every = pl.DataFrame(rows).with_columns(pl.lit(None).alias(axis) for axis in cells.CELL if axis not in rows[0])
    series = [one.select("timeslice_ms", "share").rows() for one in cells.groups(every, "share")]
    assert sorted(series, key=len) == [[(None, 0.75)], [(10.0, 0.5), (10.0, 1.0)]]


@pytest.mark.parametrize(("at_half", "expected"), [(30.0, HOLDS), (4.0, HOLDS), (93.0, DIFFERS)])
def test_cells_are_classed_by_whether_the_bandwidth_matters(tmp_path: Path, at_half: float, expected: str) -> None:
    """Limited at a quarter of a CPU, recovering at 70 % where the bandwidth is 200; `at_half` of 100 Mbit/s at 50 %."""
    rates = {
        (0.25, 100): 5.0, (0.25, 200): 5.2, (0.5, 100): at_half, (0.5, 200): max(at_half, 6.0), (0.7, 100): 60.0,
        (0.7, 200): 110.0,
    }  # fmt: skip
    grid = Grid(
        {
            "path": {"bandwidth": ["100mbit", "200mbit"]},
            "contention": {"share": [0.25, 0.5, 0.7]},
            "flows": [{"cc": "bbr"}],
            "repeat": 1,
        }
    )

    def measured(run: Run) -> dict[str, Any]:
        rate = rates[run.scenario.contention.share, run.scenario.path.bandwidth // 10**6]
        return {"throughput_mbps": rate, "retransmits": 0}

    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, measured))
    assert _verdict(evidence, {"rule": "classes"}) == expected


def test_a_sheet_of_cells_has_medians_with_their_intervals_and_the_class_at_each_bandwidth(tmp_path: Path) -> None:
    mbps = {100: (44.0, 30.0, 40.0), 200: (51.0, 59.0, 50.0), 400: (75.0, 40.0, 80.0)}
    path = {"bandwidth": [f"{bandwidth}mbit" for bandwidth in mbps]}
    grid = Grid({"path": path, "contention": {"share": 0.5}, "flows": [{"cc": "bbr"}], "repeat": 3})

    def measured(run: Run) -> dict[str, Any]:
        rate = mbps[run.scenario.path.bandwidth // 10**6][run.repeat]
        return {"throughput_mbps": rate, "retransmits": (0, 5, 1)[run.repeat]}

    dataset = made_up.dataset(tmp_path / "data", grid, measured)
    found = cells.table(summary.runs(dataset.runs()))
    assert found.select("bandwidth_mbps", "n", "throughput_mbps", "retransmits", "class").rows() == [
        (100.0, 3, 40.0, 1.0, "recovering"),  # it is not within 1.5 of all that are faster, only of the next
        (200.0, 3, 51.0, 1.0, "strictly CPU-limited"),
        (400.0, 3, 75.0, 1.0, "strictly CPU-limited"),
    ]
    assert found["utilization"].to_list() == pytest.approx([40 / 95.64, 51 / 191.28, 75 / 382.56], rel=1e-4)
    for row in found.iter_rows(named=True):
        each = sorted(mbps[row["bandwidth_mbps"]])
        assert (row["low_mbps"], row["high_mbps"]) == confidence.of_median(each)


def test_packets_that_follow_each_other_closely_are_a_train(tmp_path: Path) -> None:
    """The first packet counts in its train's length only, and acknowledgements not at all."""
    grid = Grid({"contention": {"share": 1}, "flows": [{"cc": "bbr"}], "repeat": 1, "packets": True})
    times_ms = [0, 0.05, 1, *(5 + 0.01 * number for number in range(7)), 2500, 2500.09, 2500.11]
    packet = {"flow": 0, "direction": "data", "payload_bytes": 1200}
    packets = [{**packet, "time_s": time / 1e3} for time in times_ms]
    packets.insert(1, {**packet, "time_s": 0.00002, "direction": "ack"})
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: {"packets": packets})
    evidence = made_up.evidence(dataset)
    assert evidence.trains["train"].to_list() == [2, 1, 7, 7, 7, 7, 7, 7, 7, 3, 3, 3]
    assert evidence.trains["gap_ms"].to_list()[:2] == [pytest.approx(0.05), pytest.approx(0.95)]
    values = {name: evidence.values(name)["value"].item() for name in ("short_train_share", "train_packets")}
    assert values == {
        "short_train_share": pytest.approx(5 / 12),
        "train_packets": pytest.approx((2 + 1 + 7 * 7 + 9) / 12),
    }
    figures = [Figure(name=name, title=name, kind=name, lines=["traffic"]) for name in ("gaps", "trains")]
    study = model.Study(paper="mine", figure="1", title="trains", figures=figures)
    drawn = {file.name for file in draw(study, evidence, tmp_path / "figures")}
    assert drawn == {f"mine-1-{name}.{end}" for name in ("gaps", "trains") for end in ("png", "svg")}


def _study(**figure: Any) -> model.Study:
    """Return a study of one figure."""
    return model.Study(paper="mine", figure="1", title="t", figures=[Figure(name="f", title="f", **figure)])


Drawn = Callable[..., tuple[Any, str]]


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """Draw a figure of what was measured, and return it with its caption, which are not written into files."""

    def draw_one(evidence: Evidence, **figure: Any) -> tuple[Any, str]:
        saved: list[tuple[Any, str]] = []
        monkeypatch.setattr(plot, "save", lambda canvas, _, caption, *__, **___: saved.append((canvas, caption)) or [])
        assert list(draw(_study(**figure), evidence, tmp_path / "figures")) == []
        (one,) = saved
        return one

    return draw_one


@pytest.mark.parametrize(
    ("kind", "seconds", "is_cut"),
    [("inflight", None, True), ("gains", None, True), ("windows", None, True), ("inflight", (2, 3), False)],
)
def test_a_figure_says_where_lines_go_on_above_its_panels(
    tmp_path: Path, drawn: Drawn, kind: str, seconds: tuple[float, float] | None, is_cut: bool
) -> None:
    grid = Grid({"flows": [{"cc": "bbr"}], "samples": "10ms", "kernel": "virtual-6.12"})
    at_first = [(1.0, 50), (2.5, 1)]
    samples = [
        {"flow": 0, "time_s": time, "inflight_bdp": number, "pacing_gain": 1.0, "cwnd_packets": number,
         "inflight_packets": number}
        for time, number in at_first
    ]  # fmt: skip
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: {"samples": samples})
    _, caption = drawn(made_up.evidence(dataset), kind=kind, seconds=seconds)
    assert ("A line that leaves a panel goes on above it." in caption) == is_cut


def test_a_line_of_a_distribution_is_of_one_cell(tmp_path: Path, drawn: Drawn) -> None:
    path = {"bandwidth": "20mbit", "rtt": ["10ms", "40ms"]}
    grid = Grid({"path": path, "contention": {"share": [1, 0.5]}, "flows": [{"cc": "bbr"}], "packets": True})

    def packets(run: Run) -> dict[str, Any]:
        packet = {"flow": 0, "direction": "data", "payload_bytes": 1200}
        return {"packets": [{**packet, "time_s": number * run.scenario.path.rtt / 1e11} for number in range(9)]}

    canvas, _ = drawn(made_up.evidence(made_up.dataset(tmp_path / "data", grid, tables=packets)), kind="gaps")
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == ["10 ms RTT", "40 ms RTT"]
    assert [len(axes.lines) for axes in canvas.axes] == [2, 2]
    ends = [line.get_xydata()[-1].tolist() for axes in canvas.axes for line in axes.lines]
    assert all(x >= DISTRIBUTIONS["gaps"][-1] and part == 1 for x, part in ends)  # also if every gap is shorter


@pytest.mark.parametrize(("rtts", "above"), [(["20ms"], True), (["20ms", "50ms"], False)])
def test_lines_of_panels_are_named_above_all_or_in_each_where_their_names_differ(
    tmp_path: Path, drawn: Drawn, rtts: list[str], above: bool
) -> None:
    """A name inside a panel may hide a line; but flow 2 of the first panel may have another RTT than the next one's."""
    grids = [{"flows": [{"cc": "bbr"}, {"cc": "bbr", "rtt": rtt}]} for rtt in rtts]
    grid = Grid.together([Grid({**one, "contention": {"share": [1, 0.5]}, "repeat": 1}) for one in grids])
    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid))
    canvas, _ = drawn(evidence, kind="flows_over_time")
    assert bool(canvas.legends) == above
    assert all((axes.get_legend() is None) == above for axes in canvas.axes)


def test_names_and_ticks_of_rows_of_panels_are_of_all_of_them(tmp_path: Path, drawn: Drawn) -> None:
    """A row's lines have its control's colour, which is not to stand in a legend for all; and of a fifth of a second
    each tick has three decimals."""
    grid = Grid({"flows": [{"cc": ["bbr", "bbr_steady"]}], "samples": "ack", "repeat": 1})
    sample = {"flow": 0, "inflight_packets": 9, "pacing_rate_mbps": 9.0}
    samples = [{**sample, "time_s": 1 + number / 10} for number in range(4)]
    dataset = made_up.dataset(tmp_path / "data", grid, tables=lambda _: {"samples": samples})
    canvas, _ = drawn(made_up.evidence(dataset), kind="sent", seconds=(1, 1.2))
    of_rows = {axes.lines[0].get_color() for axes in canvas.axes}
    (legend,) = canvas.legends
    assert len(of_rows) == 2 and legend.legend_handles[0].get_color() not in of_rows
    canvas.draw_without_rendering()
    assert all(len(label.get_text()) <= 4 for label in canvas.axes[-1].get_xticklabels())


def test_bars_have_the_unit_of_their_axis_and_say_of_how_many_runs_they_are(tmp_path: Path, drawn: Drawn) -> None:
    contention = {"share": [1, 0.5], "timeslice": ["5ms", "10ms"]}
    grid = Grid({"contention": contention, "flows": [{"cc": ["bbr", "cubic"]}], "repeat": 3})
    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, lambda _: {"throughput_mbps": 9.0}))
    canvas, caption = drawn(evidence, kind="bars", value="utilization")
    percent = [bar.get_width() for bar in canvas.axes[0].patches]
    assert percent == [pytest.approx(100 * evidence.runs["utilization"][0])] * 6
    assert "1 BDP buffer; 10 s per run. Bars" in caption  # the timeslices stand in the names of bars
    names = [label.get_text() for label in canvas.axes[0].get_yticklabels()]
    cells = ["100% CPU", "50% CPU, 10 ms slices", "50% CPU, 5 ms slices"]  # from below; none is pooled
    assert names == [f"{cc}, {cell}" for cc in ("bbr", "cubic") for cell in cells]
    assert canvas.axes[0].get_xlabel().endswith("[%]")
    assert "Bars: median of n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}3 runs, lines: from the least run" in caption


def test_a_caption_begins_with_the_backend_where_every_path_is_another() -> None:
    paths = pl.DataFrame({"bandwidth_mbps": [10.0, 20.0], "rtt_ms": [10.0, 20.0], "longest_rtt_ms": [None, 30.0]})
    flows = paths.with_columns(
        backend=pl.lit("virtual"), kernel_release=pl.lit("6.12"), cc=pl.lit("bbr"), bbr_version=1
    )
    assert _where(SimpleNamespace(flows=flows, runs=flows)) == "Backend virtual, Linux 6.12."  # type: ignore[arg-type]
    one = flows.tail(1)
    said = "20 Mbit/s, 20 ms RTT, longest other RTT 30 ms; backend virtual, Linux 6.12."
    assert _where(SimpleNamespace(flows=one, runs=one)) == said  # type: ignore[arg-type]


def test_all_checks_of_a_claim_must_hold(evidence: Evidence) -> None:
    holds = {"rule": "at_least", "value": 91, "where": {"cc": "cubic"}}
    differs = {"rule": "at_least", "value": 91, "where": BBR}
    missing = {"rule": "at_least", "value": 91, "where": {"share": 0.1}}
    assert _verdict(evidence, holds, holds) == HOLDS
    assert _verdict(evidence, holds, differs) == DIFFERS
    assert _verdict(evidence, differs, missing) == NOT_MEASURABLE
    assert _verdict(evidence) == NOT_MEASURABLE


def test_a_claim_holds_in_part_by_its_named_parts_only(evidence: Evidence) -> None:
    def cubic(part: str, at_least: float) -> dict[str, Any]:
        return {"part": part, "rule": "at_least", "value": at_least, "where": {"cc": "cubic"}}

    verdict = _decided(evidence, cubic("well", 91), cubic("very well", 99), basis="fitted", basis_on_vm="-")
    assert verdict.verdict == IN_PART and verdict.in_words == "holds in part (fitted): well; not: very well"
    assert _verdict(evidence, cubic("well", 91), cubic("well", 99)) == DIFFERS  # two checks of one part
    assert _verdict(evidence, cubic("well", 98), cubic("very well", 99)) == DIFFERS
    assert _verdict(evidence, cubic("well", 91), cubic("", 99)) == DIFFERS  # a check that is no part is needed
    assert _verdict(evidence, cubic("well", 91), cubic("", 91)) == HOLDS


def test_a_verdict_says_how_many_runs_of_a_cell_it_rests_on_and_how_long_they_were(evidence: Evidence) -> None:
    check = {"rule": "ratio", "where": {**BBR, "share": 0.25}, "than": {"share": 0.7}, "at_most": 1}
    verdict = _decided(evidence, check)
    # Two RTTs, two shares, three repeats; the share of a half is not part of it.
    assert (verdict.n, verdict.runs_in_words, verdict.unfaithful) == (12, "3 x 10 s", 0)
    assert (verdict.schedule, verdict.buffer, verdict.pacing) == ("exact", "1 BDP", "kernel")
    both = _decided(evidence, check, {"rule": "at_most", "value": 99, "where": {**BBR, "share": 0.25}})
    assert both.n == 12  # a run that two checks look at is one run


def test_of_up_to_three_buffers_all_are_said_of_more_the_ends_and_who_paced_once() -> None:
    def conditions(*bdp: float) -> dict[str, str]:
        return claims._conditions(
            pl.DataFrame({"share": 1.0, "pacing": "kept", "qdisc": "fq", "buffer_bdp": list(map(float, bdp))})
        )

    assert conditions(4, 0.5, 1) == {"schedule": "undisturbed", "buffer": "0.5, 1, 4 BDP", "pacing": "kept, fq"}
    assert conditions(4, 0.5, 1, 8)["buffer"] == "0.5 to 8 BDP"


def test_sheets_have_a_row_per_claim_and_per_cell(evidence: Evidence) -> None:
    check = {"rule": "at_most", "value": 6, "where": {**BBR, "share": 0.25}}
    parts = [{**check, "part": "below 6, or"}, {**check, "value": 99, "part": "below 99"}]
    (row,) = pl.read_csv(sheets.verdicts([_decided(evidence, *parts)]).encode()).to_dicts()
    assert (row["claim"], row["verdict"], row["n"]) == ("X1", IN_PART, 6)
    assert (row["parts_that_hold"], row["parts_that_do_not"]) == ("below 99", "below 6, or")
    claim = Claim(id="X1", text="x", checks=(TypeAdapter(AnyCheck).validate_python(check),))
    study: Any = SimpleNamespace(figure="1", claims=(claim,), figures=())
    cell = sheets.metrics([(study, evidence)]).filter(cc="bbr", share=0.25, rtt_ms=10).row(0, named=True)
    assert (cell["metric"], cell["n"]) == ("throughput_mbps", 3)
    assert cell["low"] <= cell["median"] <= cell["high"] and cell["median"] == pytest.approx(6.1)


def test_a_sheet_without_rows_has_the_columns_of_one_with_rows(evidence: Evidence) -> None:
    claim, by_rtt = _by_rtt(6, ())
    twinned = list(twins.decided(by_rtt, {"X1": claim}, evidence))
    for write, every in ((sheets.twins, twinned), (sheets.verdicts, [decide(claim, evidence)])):
        columns = write(every).splitlines()[0]
        assert write([]) == f"{columns}\n" and pl.read_csv(write([]).encode()).columns == columns.split(",")


@pytest.mark.parametrize(("some", "of", "low", "high"), [(0, 10, 0, 0.278), (5, 10, 0.237, 0.763), (30, 30, 0.886, 1)])
def test_a_part_of_the_runs_has_an_interval(some: int, of: int, low: float, high: float) -> None:
    assert confidence.of_proportion(some, of) == pytest.approx((low, high), abs=0.001)  # Wilson's


def _by_rtt(bound: float, see: tuple[str, ...] = ()) -> tuple[Claim, list[twins.Twins]]:
    check = TypeAdapter(AnyCheck).validate_python({"rule": "at_most", "value": bound, "where": {**BBR, "share": 0.25}})
    values = [{"name": f"{rtt} ms", "where": {"rtt_ms": rtt}} for rtt in (10, 40)]
    values.append({"name": "80 ms", "where": {"rtt_ms": 80}})  # nobody has measured it
    claim = Claim(id="X1", text="x", checks=(check,), see=see)
    return claim, [twins.Twins.model_validate({"variable": "RTT", "of": ["X1"], "values": values})]


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (6.2, "RTT: holds with 10 ms; differs with 40 ms"),
        (7, "none found; tried RTT (10 ms, 40 ms: holds)"),
        (5, "none found; tried RTT (10 ms, 40 ms: differs)"),
    ],
)
def test_what_decides_a_claim_is_computed_from_its_twins(evidence: Evidence, bound: float, said: str) -> None:
    claim, by_rtt = _by_rtt(bound)
    found = list(twins.decided(by_rtt, {"X1": claim}, evidence))
    assert [twin.n for twin in found] == [3, 3, 0] and found[2].verdict == NOT_MEASURABLE
    assert twins.decided_by(decide(claim, evidence), found) == said
    assert twins.decided_by(decide(claim, evidence), []) == ""
    claim, _ = _by_rtt(bound, ("F1",))
    assert twins.decided_by(decide(claim, evidence), found) == f"{said}. see F1 of the findings"


def test_a_twin_may_have_other_controls(evidence: Evidence) -> None:
    claim, (by_rtt,) = _by_rtt(7)
    value = twins.Value(name="cubic", controls={"bbr": "cubic"})
    (found,) = twins.decided([by_rtt.model_copy(update={"values": (value,)})], {"X1": claim}, evidence)
    assert found.verdict == DIFFERS and found.n == 6


def test_cells_may_be_selected_by_their_buffer_in_bytes(evidence: Evidence) -> None:
    check = {"rule": "at_most", "value": 7, "where": {**BBR, "share": 0.25}}
    (bytes_of_10ms,) = evidence.runs.filter(pl.col("rtt_ms") == 10)["buffer_bytes"].unique()
    verdict = _decided(evidence, {**check, "where": {**check["where"], "buffer_bytes": bytes_of_10ms}})
    assert verdict.verdict == HOLDS and verdict.n == 3
    assert _verdict(evidence, {**check, "where": {**BBR, "buffer_bytes": 1}}) == NOT_MEASURABLE


def test_what_the_first_of_two_flows_has_of_both() -> None:
    flows = pl.DataFrame({"run": ["a", "a", "b", "b"], "flow": [0, 1, 0, 1], "retransmits": [10, 30, 0, 0]})
    queue = {"run": "a", "time_s": [1.0, 1.0, 2.0, 2.0], "flow": [0, 1, 0, 1], "queue_bytes": [9, 1, 1, 4]}
    both: Any = SimpleNamespace(flows=flows, samples=pl.DataFrame(queue), runs=pl.DataFrame({"run": ["a", "b"]}))
    assert Evidence.values(both, "first_flow_retransmit_share").rows() == [("a", 0.25)]
    assert Evidence.values(both, "first_flow_queue_share").rows() == [("a", 0.2)]  # of the second half


def _values(metric: str, **tables: Any) -> list[float]:
    """Return the metric of each run of these tables, by the runs' names."""
    evidence: Any = SimpleNamespace(**{name: pl.DataFrame(table) for name, table in tables.items()})
    return Evidence.values(evidence, metric).sort("run")["value"].to_list()


@pytest.mark.parametrize(
    ("metric", "slowly", "at_once", "never"),
    [
        ("startup_peak_mbps", (50 + 80 + 95) / 3, 99, 80),
        ("best_mbps", 100, 90, (90 + 4 * 65) / 5),  # a second that has begun with STARTUP's end has five intervals
        ("ever_mbps", 100, 90, 80),
        ("late_mbps", (19 * 30 + 31 * 90) / 50, 90, 20),
        ("recovery_s", 2.8, 1, 5),  # what is carried in the second of the run's middle is from before it, too
    ],
)
def test_a_metric_of_the_throughput_over_time(metric: str, slowly: float, at_once: float, never: float) -> None:
    """Runs of 10 s at 100 Mbit/s, in intervals of 0.1 s. Each rate lasts until its time."""
    until = {
        "slowly": [(1.7, 20), (1.8, 50), (1.9, 80), (2, 95), (2.1, 100), (4, 40), (5, 100), (6.9, 30), (10, 90)],
        "at_once": [(0.1, 99), (5, 0), (10, 90)],
        "never": [(0.5, 80), (2, 20), (2.1, 90), (2.5, 65), (10, 20)],
    }
    throughput = [
        {
            "run": run,
            "time_s": tenth / 10,
            "throughput_mbps": float(next(mbps for end, mbps in of if tenth <= end * 10)),
        }
        for run, of in until.items()
        for tenth in range(1, 101)
    ]
    flows = {"run": list(until), "bandwidth_mbps": 100.0, "duration_s": 10.0}
    found = _values(metric, throughput=throughput, flows=flows, runs={"run": list(until)})
    assert found == pytest.approx([at_once, never, slowly])


# Of a run of 10 s at 100 Mbit/s, whose STARTUP's first two seconds do not count. The columns: flow, time, mode, gain,
# packets in flight and cwnd, BDPs in flight; pacing rate, delivery rate, estimate; retransmits and delivered so far.
SAMPLES = """
0  1.0  startup    2.9  10  10  0.2  30  10  10  0    0
0  1.5  drain      0.3  10  10  0.2  20  40  40  0    0
0  2.0  probe_bw   2.0  10  10  0.1  20  30  40  0    0
0  3.0  probe_bw   2.0   8  10  0.5  40  20  40  0    5
0  4.0  probe_bw   1.0   7  10  1.0  50  10  20  0    8
0  5.0  probe_bw   1.0   7  10  2.0   0  10  20  1   10
0  6.0  probe_rtt  1.0   4   4  0.9  32   8  16  5  100
0 10.0  probe_bw   3.0  19  20  1.1  24  18  12  8  400
1  2.5  startup    2.9  10  10  3.0  20   4   5  0    0
1  3.5  drain      0.3   5  10  1.5  40  30  30  0    1
1  7.0  -          1.0   9  10  1.2  50  20  28  1   50
1  8.0  -          1.0  10  10  0.8  30  15  25  2  150
"""


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("startup_s", 2.5),
        ("startup_found", 0.4 + 0.3),
        ("late_retransmit_share", (3 + 1) / (300 + 100)),
        ("first_flow_at_cwnd", 2 / 4),  # two packets have room, and PROBE_RTT does not count
        ("second_flow_at_cwnd", 3 / 4),
        ("inflight_bdp", 1.1),
        ("below_bdp_share", 3 / 9),
        ("between_1_and_2_bdp_share", 5 / 9),
        ("estimate_mbps", 20.5),
        ("estimate_to_link", 0.205),
        ("pacing_to_link", 0.31),
        ("delivery_to_link", 0.165),
        ("delivery_to_pacing", 0.45),
        ("high_gain_in_deficit", 1 / 3),
        ("high_gain_without_deficit", 2 / 5),
        ("estimate_follows_s", 4 - 3),  # the second flow's estimate never falls to half of what STARTUP left
    ],
)
def test_a_metric_of_the_samples(metric: str, value: float) -> None:
    columns = (
        "flow", "time_s", "mode", "pacing_gain", "inflight_packets", "cwnd_packets", "inflight_bdp",
        "pacing_rate_mbps", "delivery_rate_mbps", "bandwidth_estimate_mbps", "retransmits", "delivered_packets",
    )  # fmt: skip
    rows = [dict(zip(columns, line.split(), strict=True)) for line in SAMPLES.strip().splitlines()]
    samples = [
        {name: (None if text == "-" else text) if name == "mode" else float(text) for name, text in row.items()}
        for row in rows
    ]
    runs = {"run": ["a"], "bandwidth_mbps": [100.0]}
    assert _values(metric, samples=[{"run": "a", **row} for row in samples], runs=runs) == [pytest.approx(value)]


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("first_flow_mbps", 30),
        ("second_flow_mbps", 10),
        ("fairness", 60**2 / (3 * (30**2 + 10**2 + 20**2))),
        ("completion_p99_ms", 19.9),  # of those that were through
        ("queue_mean_ms", 3),
    ],
)
def test_a_metric_of_the_flows(metric: str, value: float) -> None:
    of_each = {
        "throughput_mbps": [30.0, 10.0, 20.0],
        "completion_ms": [10.0, 20.0, None],
        "queue_mean_ms": [1.0, 2.0, 6.0],
    }
    flows = {"run": ["a"] * 3, "flow": [0, 1, 2], **of_each}
    assert _values(metric, flows=flows, runs={"run": ["a"]}) == [pytest.approx(value)]


def test_twins_are_of_claims_that_there_are_and_select_cells_that_are_measured() -> None:
    for studies in _of_papers().values():
        claims = {claim.id: claim for study in studies for claim in study.claims}
        for study in (one for one in studies if one.twins):
            runs = summary.runs(_as_if_measured(_grid(study.name, Scale.QUICK)))
            for one in study.twins:
                assert set(one.of) <= set(claims), (study.name, one.of)
                for name in one.of:
                    for value in one.values:
                        checks = twins.with_value(claims[name], value).checks
                        found = [len(select(runs, check.where)) for check in checks]
                        # Of a claim's parts there may be fewer.
                        needed = [n for n, check in zip(found, checks, strict=True) if not check.part] or [max(found)]
                        assert all(needed), (study.name, name, value.name, found)


STUDY = """
paper = "mine"
figure = "1"
title = "Half a CPU"

[grid]
duration = "1s"
path = { bandwidth = "20mbit", buffer = "4bdp" }
contention = { share = [1, 0.5] }
flows = [{ cc = ["cubic", "bbr"] }]

[scale.smoke]
repeat = 1

[scale.quick]
duration = "2s"
repeat = 2
"""


MISSPELT = '{ rule = "falls", along = "share", totals = 1 }'
A_CHECK = '[[claims]]\nid = "X"\ntext = "t"\nchecks'


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("20mbit", "20 miles", "bandwidth"),
        ("paper", "paper = ", "not a TOML file"),
        ('title = "Half a CPU"', "", "study.toml: title: it is missing\n"),
        ('title = "Half a CPU"', f'title = "t"\n{"k" * 99} = 1', f"study.toml: {'k' * 60}...: no such key; docs/"),
        ("[scale.smoke]", f'[[figures]]\nname = "{"!" * 99}"\n[scale.smoke]', f"figure {'!' * 60}...: name: '!!"),
        ('title = "Half a CPU"', 'title = "t"\ncolour = 1', "study.toml: colour: no such key; docs/"),
        ("[scale.smoke]", f"{A_CHECK} = [{{}}]\n[scale.smoke]", "claim X: check 1: it has no rule; give rule ="),
        ("[scale.smoke]", f'{A_CHECK} = [{{ rule = "x" }}]\n[scale.smoke]', "check 1: 'x' is no rule; there are at"),
        ("[scale.smoke]", f"{A_CHECK} = [{MISSPELT}]\n[scale.smoke]", "claim X: check 1: totals: no such"),
        ("[scale.smoke]", '[[figures]]\nname = "f"\ntitle = 7\n[scale.smoke]', "figure f: title: 7 is not allowed"),
        ("[scale.smoke]", '[[figures]]\ntitle = "t"\n[scale.smoke]', "figure 1: name: it is missing"),
        ("[scale.smoke]", "[scale.huge]", "scale.huge: 'huge' is not allowed"),
        ("[scale.smoke]", '[[figures]]\nname = "f"\ntitle = "t"\nkind = "twins"\n[scale.smoke]', "kind twins shows ["),
        ("[scale.smoke]", '[[figures]]\nname = "f"\ntitle = "t"\nvalue = "rtt"\n[scale.smoke]', "'rtt' is none of the"),
    ],
)  # fmt: skip
def test_a_study_that_does_not_fit_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace(old, new, 1))
    assert said in refused(capsys, "sweep", str(tmp_path / "study.toml"))


WITH_CLAIM = (
    STUDY
    + """
[[figures]]
name = "throughput"
title = "Throughput"
where = { rtt_ms = 10 }

[[claims]]
id = "X1"
text = "what is said"
checks = [{ rule = "ratio", where = { cc = "bbr" }, than = { share = 1 }, at_most = 1 }]

[[twins]]
variable = "buffer"
of = ["X1"]
values = [{ name = "4 BDP", where = { buffer_bdp = 4 } }]
"""
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('where = { cc = "bbr" }', 'where = { share = "0.5" }', "claim X1: where: share: '0.5' .* range such as \"0"),
        ('where = { cc = "bbr" }', 'where = { share = "0.5-0.1" }', "claim X1: where: share: the range '0.5-0.1' s"),
        ('where = { cc = "bbr" }', "where = { share = [] }", "claim X1: where: share: an empty list selects no run"),
        ('where = { cc = "bbr" }', "where = { cc = 5 }", "claim X1: where: cc: 5 is not a value of it"),
        ('where = { cc = "bbr" }', "where = { rtt = 10 }", "claim X1: where: 'rtt' is not an axis; there are"),
        ("than = { share = 1 }", "than = { buffer_bytes = 1 }", "claim X1: than: 'buffer_bytes' is not an axis"),
        ("than = { share = 1 }", "than = {}", "claim X1: than: it names no axis"),
        (", than = { share = 1 }, at_most = 1", ', along = "x", within = 1', "claim X1: along: 'x' is not an axis"),
        ("where = { rtt_ms = 10 }", "where = { rtt = 10 }", "figure throughput: where: 'rtt' is not an axis"),
        ("where = { rtt_ms = 10 }", 'lines = ["rtt"]', "figure throughput: lines: 'rtt' is not an axis"),
        ("{ buffer_bdp = 4 }", "{ buffer = 4 }", "twins of buffer: 4 BDP: where: 'buffer' is not an axis"),
        ("[[twins]]", '[[claims]]\nid = "X1"\ntext = "t"\n[[twins]]', "claims: two are called X1"),
        ("[[claims]]", '[[figures]]\nname = "throughput"\ntitle = "t"\n[[claims]]', "figures: two are called throughp"),
        ('of = ["X1"]', 'of = ["X2"]', "twins of 'X2': there is no such claim; there are X1"),
    ],
)
def test_what_no_run_could_be_selected_by_is_refused_before_any_is_measured(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(WITH_CLAIM)
    assert len(model.of_paper(str(file))) == 1
    text = WITH_CLAIM.replace(old, new, 1).replace(
        'rule = "ratio"', 'rule = "equal"' if "along" in new else 'rule = "ratio"'
    )
    file.write_text(text)
    with pytest.raises(BadInput, match=said):
        model.of_paper(str(file))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('{ rule = "falls", along = "cc" }', "claim X: along: 'cc' has words, and rule falls compares numbers"),
        ('{ rule = "reaches", along = "kernel", level = 1, most = 1 }', "claim X: along: 'kernel' has words"),
        ('{ rule = "reaches", along = "share", level = 1 }', "claim X: rule reaches has neither least nor most"),
        ('{ rule = "part", at_least = 0.9 }', "claim X: rule part has neither above nor below"),
        ('{ rule = "ratio", than = { share = 1 } }', "claim X: rule ratio has neither at_least nor at_most"),
        (
            '{ rule = "part", above = 1 }',
            "claim X: rule part would hold whatever is measured; give at_least or at_most",
        ),
        (
            '{ rule = "part", above = 1, at_least = 50 }',
            "claim X: rule part: at_least = 50 is not allowed; give a part",
        ),
        ('{ rule = "part", above = 1, at_least = 0.5, at_most = 0.1 }', "no number is at_least 0.5 and at_most 0.1"),
        ('{ rule = "part_better", than = { share = 1 }, at_least = 0 }', "rule part_better would hold whatever"),
        (
            '{ rule = "classes", at_least = 90 }',
            "claim X: rule classes: at_least = 90 is not allowed; give a part of 1",
        ),
        (
            '{ rule = "ratio", than = { share = 1 }, at_least = 2, at_most = 1 }',
            "no number is at_least 2 and at_most 1",
        ),
        (
            '{ rule = "reaches", along = "share", level = 1, least = 0.5, most = 0.1 }',
            "no number is least 0.5 and most",
        ),
        ('{ rule = "part", above = 1, at_most = 0 }', None),
        ('{ rule = "equal", along = "cc", within = 2 }', None),
    ],
)
def test_a_check_that_nothing_could_decide_is_refused_before_any_run_is_measured(
    tmp_path: Path, rule: str, said: str | None
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(f"{STUDY}\n{A_CHECK} = [{rule}]")
    if said is None:
        assert len(model.of_paper(str(file))) == 1
        return
    with pytest.raises(BadInput, match=said):
        model.of_paper(str(file))


def test_a_check_does_not_hold_because_nothing_can_be_compared(tmp_path: Path) -> None:
    """One bandwidth makes no classes, and Jain's index of flows without any throughput is no number."""

    def measured(directory: str, mbps: float, fields: dict[str, Any]) -> Evidence:
        grid = Grid({"repeat": 3, **fields})
        rate = {"throughput_mbps": mbps}
        return made_up.evidence(made_up.dataset(tmp_path / directory, grid, lambda _: rate))

    one_bandwidth = measured("one", 5.0, {"flows": [{"cc": "bbr"}], "contention": {"share": [1, 0.5]}})
    found = Classes(rule="classes").find(one_bandwidth)
    assert (found.holds, found.measured) == (None, "no series of classes was measured")
    nothing = measured("nothing", 0.0, {"flows": [{"cc": "bbr"}, {"cc": "bbr"}]})
    found = Bound(rule="at_least", metric="fairness", value=0.9).find(nothing)
    assert (found.holds, found.measured) == (None, "these runs have no fairness")


def test_the_interval_of_a_ratio_is_of_numbers_where_both_sides_have_zeros() -> None:
    assert confidence.of_ratio([0, 0, 0], [0, 0, 0]) == (1.0, 1.0)
    assert confidence.of_ratio([0, 1, 2], [0, 1, 2]) == (0.0, math.inf)


@pytest.mark.parametrize(
    "keys",
    [
        {"lines": ["timeslice_ms"]},
        {"lines": ["cc"]},
        {"kind": "frontier", "where": {"cc": "bbr"}},
        {"kind": "bars", "value": "rtt_mean_ms"},
        {"value": "retransmits", "log": True},
        {"value": "retransmits", "log": True, "stat": "deviation"},
    ],
)
def test_figures_are_drawn_whatever_was_measured(evidence: Evidence, drawn: Drawn, keys: dict[str, Any]) -> None:
    """Of one control, of a metric that no run has, of nothing above 0: once all is measured, nothing may fail."""
    canvas, _ = drawn(evidence, **keys)
    canvas.draw_without_rendering()


def test_a_reproduction_that_is_interrupted_while_it_draws_says_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    studies = model.of_paper(str(tmp_path / "study.toml"))
    dataset = made_up.dataset(tmp_path / "data", model.grid(studies, Scale.SMOKE, "virtual"))

    def interrupted(*_: object) -> list[Path]:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "_measure", lambda *_, **__: dataset)
    monkeypatch.setattr("brobust.report.study.draw", interrupted)
    with pytest.raises(Interrupted, match=r"interrupted; .*/data has 4 of 4 runs; go on with the same command"):
        sweep.reproduce(str(tmp_path / "study.toml"), scale=Scale.SMOKE, out=tmp_path)


def test_two_files_may_not_have_a_claim_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WITH_CLAIM)
    (tmp_path / "b.toml").write_text(WITH_CLAIM.replace('figure = "1"', 'figure = "2"'))
    with pytest.raises(BadInput, match="two claims are called X1"):
        model.of_paper(str(tmp_path))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"x": "shar"}, "figure f: x shar: no such axis"),
        ({"kind": "gaps"}, "kind gaps needs packets = true"),
        ({"kind": "inflight"}, "kind inflight needs samples"),
        ({"x": "share"}, None),
        ({"kind": "over_time", "where": {"rtt_ms": 10}}, None),
        ({"kind": "bars"}, None),
        ({"kind": "over_time", "where": {"rtt_ms": "2-6"}}, "5 panels for each control (by rtt_ms), and 4 fit"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_refused_before_any_run_is_measured(
    keys: dict[str, Any], said: str | None
) -> None:
    study = _study(**keys)
    flows = {"flows": [{"cc": "bbr"}]}
    rtts = {"path": {"rtt": [f"{rtt}ms" for rtt in range(2, 7)]}, "contention": {"share": 1}}
    several = [Grid({**rtts, **flows}), Grid({"path": {"rtt": "10ms"}, "contention": {"share": [1, 0.5]}, **flows})]
    scenarios = [one for grid in several for one in grid.as_written]
    if said is None:
        assert check(study, scenarios) == []
        return
    with pytest.raises(BadInput, match=re.escape(said)):
        check(study, scenarios)


@pytest.mark.parametrize("of", ["claim", "figure", "frontier"])
def test_the_utilization_of_a_bandwidth_that_changes_is_refused_before_any_run_is_measured(of: str) -> None:
    study = _study(**{"frontier": {"kind": "frontier"}, "figure": {"value": "utilization"}}.get(of, {}))
    if of == "claim":
        one = TypeAdapter(AnyCheck).validate_python({"rule": "at_least", "metric": "utilization", "value": 0.5})
        study = study.model_copy(update={"claims": (Claim(id="X1", text="x", checks=(one,)),)})
    path = {"path": {"bandwidth_changes": [["1s", "5mbit"]]}}
    assert check(study, Grid({}).as_written) == []
    with pytest.raises(BadInput, match=r": utilization is of the bandwidth .*, and here it changes"):
        check(study, Grid(path).as_written)


def test_bars_of_one_timeslice_say_which(tmp_path: Path, drawn: Drawn) -> None:
    grid = Grid({"kernel": "virtual-6.12", "contention": {"share": [1, 0.5]}, "flows": [{"cc": "bbr"}]})
    _, caption = drawn(made_up.evidence(made_up.dataset(tmp_path / "data", grid)), kind="bars")
    assert "1 BDP buffer, 10 ms slices (exact); 10 s per run. Bars" in caption


def test_bars_leave_out_cells_with_runs_that_have_no_time_of_requests(tmp_path: Path) -> None:
    """Such a run counts as the slowest: there is no median to draw, and none of the fast runs alone."""
    grid = Grid({"kernel": "virtual-6.12", "flows": [{"cc": ["bbr", "cubic"]}], "repeat": 3})

    def times(run: Run) -> dict[str, Any]:
        answered = run.scenario.ccs == ["cubic"] or run.repeat == 0
        return {"requests": 100, "requests_answered": 99 + answered, "request_p99_ms": 20.0 if answered else None}

    evidence = made_up.evidence(made_up.dataset(tmp_path / "data", grid, times))
    _, svg = draw(_study(kind="bars", value="request_p99_ms"), evidence, tmp_path)
    assert ">cubic<" in svg.read_text() and ">bbr<" not in svg.read_text()


def test_every_kind_of_figure_is_drawn_and_stands_on_the_page() -> None:
    kinds = set(get_args(Figure.model_fields["kind"].annotation))
    drawn = {*PANELS, *DISTRIBUTIONS, "throughput", "bars", "frontier", "twins"}
    assert kinds == drawn, "Figure.kind of study/model.py names other kinds than report/study.py draws"
    page = (Path(__file__).parents[1] / "docs/studies.md").read_text()
    assert [kind for kind in kinds if f"`{kind}`" not in page] == [], "docs/studies.md has all kinds of figures"


@pytest.mark.parametrize("kind", ["throughput", "bars"])
def test_a_figure_of_a_study_can_have_every_value_that_figures_have(kind: Any) -> None:
    assert set(VALUES) <= {*METRICS, *OF_RUNS}
    grid = Grid({"contention": {"share": [1, 0.5]}, "flows": [{"cc": "bbr"}]})
    for value in VALUES:
        assert check(_study(kind=kind, value=value), grid.as_written) == []


def test_more_bars_than_fit_are_refused_before_any_run_is_measured() -> None:
    study = _study(kind="bars")
    rtts = [f"{rtt}ms" for rtt in range(10, 51)]
    with pytest.raises(BadInput, match="41 bars, and 40 fit; choose fewer runs by where"):
        check(study, Grid({"path": {"rtt": rtts}}).as_written)
    assert check(study, Grid({"path": {"rtt": rtts[1:]}}).as_written) == []


def test_a_figure_without_runs_is_named_before_any_is_measured() -> None:
    figures = [Figure(name=f"of-{rtt}", title="t", where={"rtt_ms": rtt}) for rtt in (10, 20)]
    study = model.Study(paper="mine", figure="1", title="t", figures=figures)
    (said,) = check(study, Grid({"contention": {"share": [1, 0.5]}}).as_written)
    assert said == "mine-1: figure of-20 is not drawn: its where selects none of these runs"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": {"buffer": ["0.12bdp", "0.125bdp"]}}, ["path.buffer"]),
        (
            {"duration": ["2s", "3s"], "receiver": {"share": 0.5, "timeslice": ["1ms", "2ms"]}},
            ["duration, receiver.ti"],
        ),
        ({"path": {"buffer": ["0.12bdp", "0.13bdp"]}, "seed": [1, 2]}, []),
    ],
)
def test_cells_that_claims_do_not_tell_apart_are_named_before_any_is_measured(
    fields: dict[str, Any], said: list[str]
) -> None:
    study = model.Study(paper="mine", figure="1", title="t")
    notes = check(study, Grid({**fields, "path": {"bandwidth": "100mbit", **fields.get("path", {})}}).as_written)
    assert len(notes) == len(said)
    for note, names in zip(notes, said, strict=True):
        assert note.startswith(f"mine-1: runs that differ in {names}") and note.endswith("in sheets")


@pytest.mark.parametrize("grids", [5, ["x"], "x"])
def test_grids_that_are_none_are_refused(grids: Any) -> None:
    study = model.Study(paper="mine", figure="1", title="t", scale={Scale.QUICK: {"grids": grids}})
    for one in (study, study.with_fields({"duration": "3s"})):
        with pytest.raises(BadInput, match=r"grids: .* is not a list of tables"):
            model.grid([one], Scale.QUICK, "virtual")


def test_on_the_kernels_of_the_command_a_claim_that_compares_kernels_is_not_judged() -> None:
    """All its cells would be compared with themselves."""
    ratio = {"rule": "ratio", "than": {"kernel": "virtual-6.1"}, "at_least": 1}
    value = {"name": "6.1", "where": {"kernel": "virtual-6.1"}}
    study = model.Study.model_validate(
        {
            "paper": "mine", "figure": "1", "title": "t",
            "claims": [{"id": "X1", "text": "x", "checks": [ratio]}, {"id": "X2", "text": "x", "checks": [
                {"rule": "at_least", "value": 1, "where": {"kernel": "virtual-6.1"}}]}],
            "twins": [{"variable": "Linux", "of": ["X2"], "values": [value]}],
        }
    )  # fmt: skip
    mine = study.on_kernels(["virtual-mine"])
    assert [len(claim.checks) for claim in mine.claims] == [0, 1] and mine.twins == ()


def test_papers_and_figures_are_refused_by_those_there_are() -> None:
    with pytest.raises(BadInput, match="2brobust"):
        model.of_paper("3brobust")
    with pytest.raises(BadInput, match="it has 1, 4"):
        model.of_paper("2brobust", ["3"])


def test_a_figure_alone_does_not_replace_claims_and_report_of_more_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "reproduction.json").write_text('{"figures": ["4", "10", "12"]}')
    words = ("reproduce", "2brobust", "--figure", "10", "--out", str(tmp_path))
    assert "holds the claims and the report of figure 4, 12, too, which would be replaced" in refused(capsys, *words)
    sweep._check_replaced(tmp_path, ["4", "10", "12", "13"])
    for nothing in ("[]", "{"):  # nothing that it wrote
        (tmp_path / "reproduction.json").write_text(nothing)
        sweep._check_replaced(tmp_path, ["10"])


def test_a_reproduction_whose_files_were_not_all_written_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them would be of this time, and half of the time before."""

    def killed(file: Path, content: object) -> None:
        raise KeyboardInterrupt

    about = {"paper": "2brobust", "scale": "smoke", "backend": "virtual", "figures": ["4"]}
    (tmp_path / "reproduction.json").write_text(json.dumps(about))
    (tmp_path / "claims.jsonl").write_text("")
    assert Reproduced(tmp_path).claims == []
    evidence: Any = SimpleNamespace(runs=pl.DataFrame())
    monkeypatch.setattr(files, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        sweep._write(tmp_path, about, [(model.of_paper("2brobust", ["4"])[0], evidence)], [], [])
    with pytest.raises(BadInput, match=r"holds no finished reproduction; `brobust reproduce PAPER --out "):
        Reproduced(tmp_path)


@pytest.mark.virtual
def test_a_sweep_says_what_it_takes_measures_it_and_goes_on(brobust: Brobust, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    planned = brobust("sweep", "study.toml", "--out", "data", "--dry-run")
    assert planned.stdout.startswith("8 runs of 4 cells, about ") and not (tmp_path / "data").exists()
    done = brobust("sweep", "study.toml", "--scale", "smoke", "--out", "data", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json_lines(done.stdout)) == 4
    (file,) = (tmp_path / "data/runs").glob("*.parquet")
    pl.read_parquet(file)[1:].write_parquet(file)
    again = brobust("sweep", "study.toml", "--scale", "smoke", "--out", "data", "--json")
    assert len(json_lines(again.stdout)) == 1
    study = tmp_path / "study.toml"
    study.write_text(study.read_text().replace('cc = ["cubic", "bbr"]', 'cc = ["cubic", "bbr", "reno"]'))
    more = brobust("sweep", "study.toml", "--scale", "smoke", "--out", "data", "--json")
    assert len(json_lines(more.stdout)) == 2  # what the study has more than before
    other = brobust("sweep", "study.toml", "--scale", "quick", "--out", "data")
    assert other.returncode == 2 and "another --out" in other.stderr


# Of 2brobust: every kind of figure, and those of a kind whose runs are the fewest.
REPRODUCED = ["1", "4b", "6", "7", "9", "11", "buffers"]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The figures of REPRODUCED at their smallest."""
    directory = tmp_path_factory.mktemp("reproduced")
    chosen = [word for figure in REPRODUCED for word in ("--figure", figure)]
    done = subprocess.run(
        [BROBUST, "reproduce", "2brobust", *chosen, "--scale", "smoke", "--json"],
        cwd=directory, capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    return done, directory


@pytest.mark.virtual
def test_a_paper_is_reproduced_with_figures_and_verdicts(
    reproduced: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, directory = reproduced
    verdicts = {verdict["claim"]: verdict for verdict in json_lines(done.stdout)}
    assert verdicts["R1"]["verdict"] == HOLDS, verdicts["R1"]
    assert verdicts["R14"]["verdict"] == HOLDS, verdicts["R14"]
    # With a buffer of one BDP in packets Cubic does fall: a finding, said as one.
    assert verdicts["R1 (1 BDP)"]["verdict"] == DIFFERS and done.returncode == 1
    it = directory / "2brobust-virtual-smoke"
    assert (it / "figures/2brobust-1-over-time.svg").exists()
    assert (it / "figures/2brobust-9-inflight.png").stat().st_size > 10_000
    for study in model.of_paper("2brobust", REPRODUCED):  # something of every figure can be seen
        assert all((it / f"figures/{study.name}-{figure.name}.svg").exists() for figure in study.figures), study.name
    every = pl.read_csv(it / "cells.csv", infer_schema_length=None)
    assert set(every["figure"].cast(pl.String)) == {study.figure for study in model.of_paper("2brobust", REPRODUCED)}
    of_7 = every.filter((pl.col("figure").cast(pl.String) == "7") & (pl.col("share") == 0.1))
    assert set(of_7["class"]) == {"strictly CPU-limited"}, of_7
    kept = json_lines((it / "claims.jsonl").read_text())
    assert {verdict["claim"] for verdict in kept} == set(verdicts)
    sheet = {row["claim"]: row for row in pl.read_csv(it / "verdicts.csv", infer_schema_length=0).to_dicts()}
    assert {claim: row["verdict"] for claim, row in sheet.items()} == {c: v["verdict"] for c, v in verdicts.items()}
    assert (sheet["R1 (1 BDP)"]["schedule"], sheet["R1 (1 BDP)"]["buffer"]) == ("exact", "1 BDP")
    metrics_of_9 = pl.read_csv(it / "metrics.csv", infer_schema_length=None).filter(
        pl.col("figure").cast(pl.String) == "9"
    )
    assert "inflight_bdp" in set(metrics_of_9["metric"]) and metrics_of_9["median"].null_count() == 0


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("paper", "figures", "hold"),
    [
        ("bbq", ["1"], {"B1", "B9"}),
        ("repair", ["alternating", "receiver", "transitions"], {"S11", "S12", "S20", "S21", "S22", "S23"}),
    ],
)
def test_claims_that_hold_with_room_hold_at_the_smallest_scale(
    brobust: Brobust, tmp_path: Path, paper: str, figures: list[str], hold: set[str]
) -> None:
    chosen = [word for figure in figures for word in ("--figure", figure)]
    done = brobust("reproduce", paper, *chosen, "--scale", "smoke", "--json", cwd=tmp_path)
    verdicts = {verdict["claim"]: verdict["verdict"] for verdict in json_lines(done.stdout)}
    assert verdicts == dict.fromkeys(hold, HOLDS), verdicts


@pytest.mark.virtual
def test_the_root_cause_of_clouded_comparisons(brobust: Brobust, tmp_path: Path) -> None:
    done = brobust("reproduce", "clouded", "--scale", "smoke", "--json", cwd=tmp_path)
    verdicts = {verdict["claim"]: verdict["verdict"] for verdict in json_lines(done.stdout)}
    assert {verdicts[claim] for claim in ("P1", "P3", "P6", "P5 (short paths)")} == {HOLDS}, done.stdout
    # On the paper's paths google's interface makes the very same packets as the mainline's: a finding.
    assert (
        verdicts["P2"] == IN_PART
        and verdicts["P5"] == DIFFERS
        and verdicts["P5 (the same above 8 ms)"] == HOLDS
        and done.returncode == 1
    )
    assert (tmp_path / "clouded-virtual-smoke/report.html").exists()


@pytest.mark.virtual
def test_a_study_of_ones_own_is_reproduced_as_a_papers_is(brobust: Brobust, tmp_path: Path) -> None:
    """The one in the documentation. Its report can be written again when the file is gone."""
    page = (Path(__file__).parents[1] / "docs/studies.md").read_text()
    own = tmp_path / "mine.toml"
    own.write_text(page.split("```toml\n")[1].split("```")[0])
    done = brobust("reproduce", "mine.toml", "--scale", "smoke", "--json")
    (verdict,) = json_lines(done.stdout)
    assert (verdict["claim"], verdict["verdict"]) == ("X1", HOLDS), verdict
    own.unlink()
    assert (tmp_path / "mine-virtual-smoke/figures/mine-1-throughput.png").exists()
    assert brobust("report", "mine-virtual-smoke").returncode == 0
    assert "what the paper says" in (tmp_path / "report.html").read_text()
    # Renamed, and beside another figure of the same study.
    text = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "renamed.toml").write_text(text)
    (tmp_path / "other.toml").write_text(text.replace('figure = "1"', 'figure = "2"').replace("X1", "X2"))
    assert brobust("reproduce", "renamed.toml", "--scale", "smoke").returncode == 0
    assert brobust("reproduce", "other.toml", "--scale", "smoke", "--out", "other").returncode == 0
    assert brobust("report", "mine-virtual-smoke", "other").returncode == 0
    report = (tmp_path / "report.html").read_text()
    assert "<b>X1</b>" in report and "<b>X2</b>" in report


def test_studies_of_ones_own_have_names_for_files_and_are_told_apart(tmp_path: Path) -> None:
    text = 'paper = "mine"\nfigure = "{}"\ntitle = "t"\n'
    for name, figure in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.toml").write_text(text.format(figure))
    assert [study.figure for study in model.of_paper(str(tmp_path))] == ["1", "2"]
    (tmp_path / "b.toml").write_text(text.format("1"))
    with pytest.raises(BadInput, match="two studies are of figure 1"):
        model.of_paper(str(tmp_path))
    (tmp_path / "b.toml").write_text(text.format("../../x"))
    with pytest.raises(BadInput, match="figure: give letters, digits"):
        model.of_paper(str(tmp_path))


@pytest.mark.virtual
def test_the_report_is_one_file_with_figures_beside_claims(
    brobust: Brobust, tmp_path: Path, reproduced: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    it = reproduced[1] / "2brobust-virtual-smoke"
    page = (it / "report.html").read_text()
    figures = [figure for study in model.of_paper("2brobust", REPRODUCED) for figure in study.figures]
    assert page.count("data:image/png;base64,") == len(figures)
    assert "http" not in re.sub(r"base64,[^\"]+", "", page)  # a picture may have these letters by chance
    assert "<b>R14</b>" in page and "brobust reproduce 2brobust --scale smoke" in page
    # Beside another backend's, each claim has a verdict of both.
    other = tmp_path / "other"
    shutil.copytree(it, other)
    for name in ("claims.jsonl", "reproduction.json"):
        (other / name).write_text((it / name).read_text().replace('"backend": "virtual"', '"backend": "vm"'))
    both = brobust("report", str(it), str(other), "--html", "both.html")
    assert both.returncode == 0, both.stderr
    page = (tmp_path / "both.html").read_text()
    assert "<th>virtual, smoke</th><th>decided by</th><th>vm, smoke</th><th>decided by</th>" in page
    assert page.count("data:image/png;base64,") == 2 * len(figures)
    refused = brobust("report", "nowhere")
    assert refused.returncode == 2 and "brobust reproduce" in refused.stderr


LOOK = """{
    wide: document.documentElement.scrollWidth,
    images: document.images.length,
    broken: [...document.images].filter(it => !it.naturalWidth || it.getBoundingClientRect().width > 390).length,
    claims: document.querySelectorAll("td.holds, td.differs, td.missing").length,
    letters: parseFloat(getComputedStyle(document.querySelector("td")).fontSize),
}"""


@pytest.mark.virtual
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium; `scripts/setup.sh browser` installs it")
def test_a_browser_shows_the_report_on_a_phone(
    tmp_path: Path, reproduced: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    """A page of 390 pixels, an iPhone's, has no sideways scrolling, whole images, and letters that can be read."""
    with Browser(tmp_path) as browser:
        browser.open((reproduced[1] / "2brobust-virtual-smoke/report.html").as_uri(), width=390, height=844)
        browser.wait("document.readyState == 'complete' && document.images.length")
        seen = browser.run(f"({LOOK})")
    assert seen["wide"] <= 390 and seen["broken"] == 0, seen
    studies = model.of_paper("2brobust", REPRODUCED)
    assert seen["images"] == sum(len(study.figures) for study in studies), seen
    assert seen["claims"] >= sum(len(study.claims) for study in studies) and seen["letters"] >= 12, seen


@pytest.mark.virtual
def test_the_notebook_draws_the_figure_from_the_data(reproduced: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    import nbformat  # here alone, as in test_compare.py
    from nbclient import NotebookClient

    notebook = nbformat.read(Path(__file__).parent.parent / "examples/2brobust.ipynb", as_version=4)
    resources = {"metadata": {"path": str(reproduced[1])}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
