"""Cross traffic: what is drawn, and what of it arrives."""

import statistics
from typing import Any

import polars as pl
import pytest

import brobust
from brobust.analysis import summary
from brobust.dataset import TRANSFERS, frame
from brobust.scenario.grid import scenario
from brobust.virtual import cross_traffic

PATH = {"bandwidth": "100mbit", "rtt": "10ms", "buffer": "4bdp"}


def _drawn(seed: int = 1, **fields: Any) -> list[tuple[int, int]]:
    return cross_traffic.draw(scenario({"path": PATH, "cross_traffic": fields, "duration": "1000s"}), seed)


def test_sizes_and_starts_have_the_means_that_were_asked_for() -> None:
    flows = _drawn(load=0.2, size="100kB")
    starts, sizes = zip(*flows, strict=True)
    assert list(starts) == sorted(starts) and starts[-1] < 1000 * 10**9
    assert len(flows) == pytest.approx(0.2 * 100e6 / 8 / 100e3 * 1000, rel=0.02)
    assert statistics.mean(sizes) == pytest.approx(100_000, rel=0.05)
    assert max(sizes) <= 10_000_000


def test_few_flows_have_many_of_the_bytes_the_more_the_closer_the_shape_is_to_1() -> None:
    def of_largest_percent(shape: float) -> float:
        sizes = sorted((size for _, size in _drawn(load=0.2, shape=shape)), reverse=True)
        return sum(sizes[: len(sizes) // 100]) / sum(sizes)

    assert of_largest_percent(1.05) > of_largest_percent(1.5) > of_largest_percent(3) > 0.01


def test_a_seed_draws_the_same_flows_each_time_and_another_one_others() -> None:
    assert _drawn(1, load=0.01) == _drawn(1, load=0.01) != _drawn(2, load=0.01)
    # On every machine.
    assert _drawn(1, load=0.01)[:2] == [(166_524_000, 34_309), (628_219_000, 587_749)]


def test_a_run_in_which_none_begins_has_none() -> None:
    s = scenario({"path": PATH, "cross_traffic": {"load": 1e-9}})
    assert cross_traffic.draw(s, 1) == []
    found = cross_traffic.figures(frame([], TRANSFERS))
    assert (found["cross_transfers"], found["cross_ended"], found["cross_median_ms"]) == (0, 0, None)


def test_without_load_there_is_none_and_the_scenario_keeps_its_name() -> None:
    plain = scenario({"path": PATH})
    assert scenario({"path": PATH, "cross_traffic": {"load": 0, "cc": "bbr"}}).hash == plain.hash
    assert scenario({"path": PATH, "cross_traffic": {"load": 0.1}}).hash != plain.hash


@pytest.mark.virtual
def test_it_takes_its_part_of_the_link_and_has_completion_times() -> None:
    cross = {"load": 0.3, "size": "50kB"}
    with_it, again = (
        brobust.run({"path": PATH, "flows": [{"cc": "cubic"}, {"cc": "bbr"}], "cross_traffic": cross, "duration": "2s"})
        for _ in range(2)
    )
    row = with_it.runs.row(0, named=True)
    assert row["packet_hash"] == again.runs["packet_hash"][0] and row["outcome"] == "ok"
    assert len(with_it.runs) == 2 and 50 < with_it.runs["throughput_mbps"].sum() < 85
    through = with_it.transfers.filter(pl.col("completion_ms").is_not_null())
    assert (row["cross_transfers"], row["cross_ended"]) == (len(with_it.transfers), len(through))
    assert 0.8 * len(with_it.transfers) < len(through) <= len(with_it.transfers) and len(through) > 100
    # None is faster than the path: a handshake, half a round trip, and the time of its bytes.
    assert through["slowdown"].min() >= 1
    assert row["cross_median_ms"] == pytest.approx(through["completion_ms"].median())
    # What is missing only where there is no cross traffic distinguishes no cells.
    without = with_it.runs.with_columns(pl.lit("other").alias("run"), cross_load=0.0, cross_cc=None, cross_shape=None)
    assert summary.varying(summary.runs(pl.concat([with_it.runs, without.cast(with_it.runs.schema)]))) == ["cross_load"]
    assert 15 < row["cross_median_ms"] < row["cross_p99_ms"] < 2000


@pytest.mark.virtual
def test_on_an_idle_path_a_transfer_of_a_window_takes_no_longer_than_it_must() -> None:
    cross = {"load": 0.001, "size": "10kB", "max_size": "14kB", "shape": 3}
    flows = [{"cc": "cubic", "pattern": "rate 100kbit"}]
    result = brobust.run({"path": PATH, "flows": flows, "cross_traffic": cross, "duration": "5s"})
    assert result.run.id in repr(result) and repr(result).endswith(" Mbit/s>")
    assert len(result.transfers) > 2 and result.transfers["completion_ms"].null_count() == 0
    assert result.transfers["slowdown"].to_list() == pytest.approx([1] * len(result.transfers), abs=0.1)
