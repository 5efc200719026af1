"""`brobust compare`: cells of two datasets, and which of them differ beyond noise."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import made_up
from brobust.analysis import compare, confidence
from brobust.dataset import Dataset, Measured, failed
from brobust.dataset.parts import PART
from brobust.dataset.store import ALWAYS_WRITTEN
from brobust.errors import BadInput
from brobust.report.plot import RUNS_FOR_95
from brobust.scenario import Grid, Run
from brobust.scenario.grid import override
from conftest import Brobust, json_lines


def _dataset(directory: Path, rates: dict[float, list[float]], **fields: object) -> Dataset:
    """Runs of bbr with these Mbit/s at these shares."""
    own = {
        "contention": {"share": list(rates)},
        "flows": [{"cc": "bbr"}],
        "repeat": max(len(values) for values in rates.values()),
    }

    def measured(run: Run) -> dict[str, Any] | None:
        values = rates[run.scenario.contention.share]
        return {"throughput_mbps": values[run.repeat], "retransmits": 0} if run.repeat < len(values) else None

    return made_up.dataset(directory, Grid(override(own, fields)), measured)


BEFORE = {1.0: [18.9, 19.0, 19.1, 18.8, 19.0], 0.5: [5.1, 5.6, 4.9, 5.3, 5.2], 0.25: [1.2, 1.3, 1.2, 1.1, 1.2]}


def test_what_differs_beyond_noise_is_told_from_what_does_not(tmp_path: Path) -> None:
    after = {1.0: [19.0, 18.9, 19.0, 19.1, 18.9], 0.5: [17.0, 16.1, 17.3, 16.8, 17.1], 0.25: [0.6, 0.5, 0.6, 0.7, 0.6]}
    first, second = _dataset(tmp_path / "a", BEFORE), _dataset(tmp_path / "b", after)
    verdicts = {cell.cell["share"]: cell.verdict for cell in compare.compare(first, second).cells}
    assert verdicts == {1.0: compare.SAME, 0.5: compare.BETTER, 0.25: compare.WORSE}
    cell = next(cell for cell in compare.compare(first, second).cells if cell.cell["share"] == 0.5)
    assert (cell.first, cell.second, cell.runs) == (5.2, 17.0, (5, 5)), "medians"
    assert cell.low is not None and cell.high is not None and 10 < cell.low < cell.second - cell.first < cell.high < 13


def test_a_cell_that_varies_too_much_to_tell_is_not_said_to_be_the_same_without_more(
    brobust: Brobust, tmp_path: Path
) -> None:
    """Where four runs of five are fast before, and two of five after, the intervals overlap, whatever the medians."""
    _dataset(tmp_path / "a", {1.0: [19.0, 19.1, 18.9], 0.5: [60.0, 9.0, 61.0, 59.0, 60.0]})
    _dataset(tmp_path / "b", {1.0: [19.1, 19.0, 18.9], 0.5: [9.0, 60.0, 9.1, 8.9, 61.0]})
    compared = brobust("compare", "a", "b")
    said = "of the same, 1 may differ by more than the tolerance: their intervals say no more (--all)"
    assert compared.returncode == 0 and compared.stdout.splitlines() == ["2 cells: 2 same", said]
    of_each = json_lines(brobust("compare", "a", "b", "--json").stdout)
    assert [(cell["verdict"], cell["may_differ"]) for cell in of_each] == [("same", False), ("same", True)]
    assert said not in brobust("compare", "a", "b", "--tolerance", "1").stdout


def test_what_0_2_0_measured_is_compared_with_what_is_measured_now(tmp_path: Path) -> None:
    first, second = (_dataset(tmp_path / name, BEFORE) for name in "ab")
    for file in (tmp_path / "a/runs").iterdir():
        pl.read_parquet(file).select(*ALWAYS_WRITTEN["runs"].split(), PART).write_parquet(file)
    assert [cell.verdict for cell in compare.compare(first, second).cells] == [compare.SAME] * 3


def test_where_nothing_was_measured_there_is_nothing_to_compare(tmp_path: Path) -> None:
    full, none = _dataset(tmp_path / "full", BEFORE), Dataset.create(tmp_path / "none", Grid({}), {})
    with pytest.raises(BadInput, match="none holds no measured run"):
        compare.compare(full, none)


def test_a_cell_is_named_by_what_varies_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    """A buffer of some BDPs is one value of an axis, however many bytes it is; an undisturbed run lacks a driver."""
    path = {"rtt": ["5ms", "40ms"], "buffer": ["1bdp", "4bdp"]}
    data = _dataset(tmp_path / "a", BEFORE, path=path)
    cells = [cell.cell for cell in compare.compare(data, data).cells]
    assert cells == [
        {"rtt_ms": rtt, "buffer_bdp": buffer, "share": share}
        for rtt in (5.0, 40.0)
        for buffer in (1.0, 4.0)
        for share in (1.0, 0.5, 0.25)
    ]


def test_kernels_are_compared_and_not_told_apart(tmp_path: Path) -> None:
    first = _dataset(tmp_path / "a", BEFORE)
    second = _dataset(tmp_path / "b", BEFORE, kernel="virtual-6.1")
    assert {cell.verdict for cell in compare.compare(first, second).cells} == {compare.SAME}


def test_few_runs_decide_nothing(tmp_path: Path) -> None:
    first, second = _dataset(tmp_path / "a", BEFORE), _dataset(tmp_path / "b", {0.5: [1.0, 1.1]})
    (cell,) = compare.compare(first, second).cells
    assert cell.verdict == compare.TOO_FEW and cell.runs == (5, 2)


def test_a_run_that_could_not_be_measured_after_the_change_is_no_success(brobust: Brobust, tmp_path: Path) -> None:
    """A kernel that panics with one control has no throughput to be compared, and must not pass for that reason."""
    _dataset(tmp_path / "a", BEFORE)
    second = _dataset(tmp_path / "b", {1.0: BEFORE[1.0], 0.5: BEFORE[0.5][:1], 0.25: []})
    for run in second.grid().runs():
        if run.id not in set(second.runs()["run"]):
            second.append(run.id, failed(run, "it panicked", datetime.now(UTC)))
    compared = brobust("compare", "a", "b")
    assert compared.returncode == 1, compared
    assert compared.stdout.endswith("3 cells: 1 same, 2 worse\n9 runs of B failed, and carried nothing\n")
    lost = json_lines(brobust("compare", "a", "b", "--json").stdout)[-1]
    assert (lost["cell"], lost["second"], lost["runs"]) == ({"share": 0.25}, 0.0, [5, 5])
    before = brobust("compare", "b", "a")  # where nothing was measured, nothing is known
    assert before.returncode == 0
    assert before.stdout.splitlines()[-2:] == [
        "2 cells: 1 same, 1 too few runs",
        "only B has results of 1 cell, left out here; the first: 25% CPU",
    ]


def test_cells_that_one_dataset_lacks_are_said(brobust: Brobust, tmp_path: Path) -> None:
    """A series that ended early would else pass for what it has not measured."""
    _dataset(tmp_path / "a", BEFORE, duration=["3s", "10s"])
    _dataset(tmp_path / "b", {0.5: BEFORE[0.5], 0.1: [1.0, 1.0, 1.0]}, duration="10s")
    said = [
        "only A has results of 5 cells, left out here; the first: 100% CPU, duration 3s",
        "only B has results of 1 cell, left out here; the first: 10% CPU, duration 10s",
    ]
    compared = brobust("compare", "a", "b")
    assert compared.returncode == 0 and compared.stdout.splitlines() == ["1 cell: 1 same", *said]
    compared = brobust("compare", "a", "b", "--json")
    assert [cell["verdict"] for cell in json_lines(compared.stdout)] == ["same"]
    assert compared.stderr.splitlines() == said


def test_where_nothing_can_be_decided_the_command_does_not_pass(brobust: Brobust, tmp_path: Path) -> None:
    _dataset(tmp_path / "a", {0.5: [5.0], 0.25: [1.0]})
    _dataset(tmp_path / "b", {0.5: [1.0], 0.25: [1.0]})
    compared = brobust("compare", "a", "b")
    assert compared.returncode == 2 and compared.stdout.endswith("2 cells: 2 too few runs\n"), compared
    assert compared.stderr.startswith("brobust: no cell has three runs in both datasets")


def test_datasets_without_a_common_cell_are_refused(tmp_path: Path) -> None:
    first, second = _dataset(tmp_path / "a", BEFORE), _dataset(tmp_path / "b", {0.1: [1.0]})
    with pytest.raises(BadInput, match="no cell in common"):
        compare.compare(first, second)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({}, {"duration": "3s"}, r"duration \(10s and 3s\)"),
        ({}, {"path": {"loss": [f"0.{tenth}" for tenth in range(1, 9)]}}, r"loss \(0% and 10%, .*, 60% and 2 more\)"),
        ({"path": {"rtt": "5ms"}}, {"flows": [{"cc": "reno"}]}, r"RTT ms \(5 and 10\), .*cc \(bbr and reno\)"),
        ({"contention": {"start": "2s"}}, {}, r"contention\.start \(2s and 0s\)"),
        ({"path": {"rtt_changes": [["1s", "20ms"]]}}, {}, r"path\.rtt_changes \(1s:20ms and -\)"),
    ],
)
def test_cells_that_differ_in_any_field_are_not_compared(
    tmp_path: Path, first: dict[str, object], second: dict[str, object], words: str
) -> None:
    rates = {0.5: BEFORE[0.5]}
    a, b = _dataset(tmp_path / "a", rates, **first), _dataset(tmp_path / "b", rates, **second)
    with pytest.raises(BadInput, match=f"no cell in common, but differ in {words}; measure the same"):
        compare.compare(a, b)
    assert [cell.verdict for cell in compare.compare(a, a).cells] == [compare.SAME]


def test_cells_are_named_by_any_field_that_varies(tmp_path: Path) -> None:
    rates = {0.5: BEFORE[0.5]}
    both, one = _dataset(tmp_path / "a", rates, duration=["3s", "10s"]), _dataset(tmp_path / "b", rates, duration="10s")
    assert [cell.cell for cell in compare.compare(both, both).cells] == [{"duration": "3s"}, {"duration": "10s"}]
    assert [cell.runs for cell in compare.compare(both, one).cells] == [(5, 5)]


@pytest.mark.parametrize("more", [{"seed": 7}, {"packets": True}, {"path": {"buffer": "25kB"}}])
def test_what_says_the_same_in_other_words_is_compared(tmp_path: Path, more: dict[str, object]) -> None:
    first, second = _dataset(tmp_path / "a", BEFORE), _dataset(tmp_path / "b", BEFORE, **more)
    assert {cell.verdict for cell in compare.compare(first, second).cells} == {compare.SAME}


def test_the_command_ends_with_1_where_a_cell_is_worse(brobust: Brobust, tmp_path: Path) -> None:
    _dataset(tmp_path / "a", BEFORE)
    _dataset(tmp_path / "b", {**BEFORE, 0.25: [0.6, 0.5, 0.6, 0.7, 0.6]})
    same = brobust("compare", "a", "a")
    assert same.returncode == 0 and same.stdout == "3 cells: 3 same\n"
    worse = brobust("compare", "a", "b")
    assert worse.returncode == 1 and "worse" in worse.stdout and "-0.7" in worse.stdout
    assert [cell["verdict"] for cell in json_lines(brobust("compare", "a", "b", "--json").stdout)].count("worse") == 1


def test_runs_that_did_not_get_their_contention_are_said(brobust: Brobust, tmp_path: Path) -> None:
    data = _dataset(tmp_path / "a", BEFORE)
    last = data.runs().row(0, named=True)
    data.append(last["run"], Measured([{**last, "outcome": "unfaithful", "reason": "too little of its CPU"}]))
    said = brobust("compare", "a", "a").stdout.splitlines()
    assert said[1:] == [
        f"1 run of {name} did not get the requested contention, or delivered nothing; the dataset says why"
        for name in "AB"
    ]


def test_the_intervals_are_those_of_scipys_bootstrap() -> None:
    from scipy import stats  # here alone: each worker imports every file, and this takes as long as ten of them

    before, after = [9.1, 12.4, 7.7, 10.2, 15.8], [3.3, 8.9, 6.0]

    def theirs(samples: list[list[float]], statistic: Callable[..., np.ndarray]) -> object:
        found = stats.bootstrap(samples, statistic, n_resamples=confidence.RESAMPLES, method="percentile", rng=1)
        return pytest.approx((found.confidence_interval.low, found.confidence_interval.high), rel=1e-9)

    assert confidence.of_median(before) == theirs([before], np.median)
    assert confidence.of_ratio(before, after) == theirs(
        [before, after], lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis)
    )
    assert confidence.of_difference(before, after) == theirs(
        [before, after], lambda a, b, axis: np.median(b, axis=axis) - np.median(a, axis=axis)
    )
    assert confidence.of_ratio([1, 2, 3], [0, 0, 0]) == (float("inf"), float("inf"))
    assert confidence.of_median(before[:2]) is None


def test_the_interval_of_three_to_five_runs_is_their_range_and_holds_the_median_as_often_as_is_said() -> None:
    draws = np.random.default_rng(5)
    for n, part in ((3, 0.75), (4, 0.88), (5, 0.94), (RUNS_FOR_95, 0.95)):
        samples = draws.normal(size=(400, n))
        ends = [confidence.of_median(sample.tolist()) for sample in samples]
        is_range = [found == pytest.approx((min(each), max(each))) for found, each in zip(ends, samples, strict=True)]
        assert all(is_range) if n < RUNS_FOR_95 else not any(is_range)
        assert np.mean([low <= 0 <= high for low, high in filter(None, ends)]) == pytest.approx(part, abs=0.04)


def test_cells_that_are_the_same_differ_by_chance_as_often_as_is_said() -> None:
    draws = np.random.default_rng(5)
    for n, part in ((3, 1 / 10), (5, 1 / 30)):
        pairs = (confidence.of_difference(*draws.normal(size=(2, n)).tolist()) for _ in range(600))
        differ = [not low <= 0 <= high for low, high in filter(None, pairs)]
        assert len(differ) == 600 and np.mean(differ) == pytest.approx(part, abs=0.02)
