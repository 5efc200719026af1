"""A dataset is appended run by run, survives interruption, and says what it is."""

import errno
import json
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from brobust import series
from brobust.dataset import (
    PACKETS,
    RUNS,
    SAMPLES,
    SCHEMA_VERSION,
    TABLES,
    Dataset,
    Measured,
    failed,
    flow_columns,
    frame,
    scenario_columns,
)
from brobust.errors import BadInput
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario


def _measured(run: str, outcome: str = "ok") -> Measured:
    return Measured([{"run": run, "flow": 0, "cc": "bbr", "throughput_mbps": 1.5, "outcome": outcome}])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(tmp_path / "data", Grid.from_flags({}), {"cpu": "test"})


def test_what_is_appended_is_read_back(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    dataset.append("b-0", _measured("b-0"))
    runs = Dataset.open(dataset.directory).runs()
    assert set(runs["run"]) == {"a-0", "b-0"}
    assert runs.columns == list(RUNS)


def test_the_grid_in_it_is_the_one_it_was_begun_with(dataset: Dataset) -> None:
    again = Dataset.open(dataset.directory).grid()
    assert [run.id for run in again.runs()] == [run.id for run in Grid.from_flags({}).runs()]


def test_failed_runs_are_done_again_and_half_written_ones_do_not_count(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    dataset.append("b-0", _measured("b-0", "failed"))
    (dataset.directory / "runs" / "c-0.new").write_bytes(b"half a file")
    assert dataset.finished() == {"a-0"}


def test_the_rest_of_a_series_goes_kernel_by_kernel(tmp_path: Path) -> None:
    grid = Grid.from_flags({"backend": "vm", "kernel": ["debian-6.12", "debian-6.1"]})
    dataset = Dataset.create(tmp_path / "two", grid, {})
    first = grid.runs()[0]
    dataset.append(first.id, _measured(first.id))
    rest = series.remaining(grid, dataset)
    assert len(rest) == len(grid.runs()) - 1
    assert first.id not in {run.id for run in rest}
    kernels = [run.scenario.kernel for run in rest]
    assert kernels == sorted(kernels)


def test_a_full_disk_is_said_and_what_was_measured_stays(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.append("a-0", _measured("a-0"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    run = Grid.from_flags({}).runs()[0]
    with pytest.raises(series.DiskFull, match="--resume"):
        series._append(dataset, run, _measured(run.id))
    assert dataset.finished() == {"a-0"}


def test_an_existing_dataset_is_not_overwritten(dataset: Dataset) -> None:
    with pytest.raises(BadInput, match="--resume"):
        Dataset.create(dataset.directory, Grid.from_flags({}), {})


def test_another_schema_is_refused_by_name(dataset: Dataset) -> None:
    about = dataset.directory / "dataset.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "schema": 0, "brobust": "0.0.1"}))
    with pytest.raises(BadInput, match=rf"schema 0.*reads {SCHEMA_VERSION}.*0\.0\.1"):
        Dataset.open(dataset.directory)


def test_a_directory_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no dataset"):
        Dataset.open(tmp_path)


def test_a_column_that_is_not_in_the_schema_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="speed"):
        frame([{"speed": 1}], RUNS)


_TYPES = {pl.String: "text", pl.Int64: "integer", pl.Float64: "number", pl.Boolean: "boolean"}


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_documented(table: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    section = page.split(f"\n## {table}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {_TYPES.get(column.dtype, 'UTC time')} | {column.meaning} |"
        for name, column in TABLES[table].items()
    ]


def test_a_backend_may_give_frames_instead_of_rows(dataset: Dataset) -> None:
    samples = pl.DataFrame(
        {"run": ["a-0"] * 2, "time_s": [0.1, 0.2], "cwnd_packets": pl.Series([10, 11], dtype=pl.UInt32)}
    )
    packets = [{"run": "a-0", "flow": 0, "direction": "data", "dropped": False}]
    dataset.append(
        "a-0", Measured([{"run": "a-0", "outcome": "ok"}], samples=samples, packets=packets, pcap=b"capture")
    )
    read = dataset.samples()
    assert read.columns == list(SAMPLES)
    assert read["cwnd_packets"].to_list() == [10, 11]
    assert read["cwnd_packets"].dtype == pl.Int64
    assert read["srtt_ms"].null_count() == 2
    assert dataset.packets().columns == list(PACKETS)
    assert (dataset.directory / "pcap" / "a-0.pcap").read_bytes() == b"capture"
    assert dataset.throughput().is_empty()


def test_a_frame_with_a_column_of_its_own_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="speed"):
        frame(pl.DataFrame({"speed": [1]}), SAMPLES)


def test_a_flows_columns_are_those_of_its_group_and_its_sender() -> None:
    point = scenario(
        {
            "contention": {"share": 0.5},
            "senders": [{"share": 0.25, "timeslice": "5ms", "jitter": 0}],
            "flows": [{"cc": "bbr", "count": 2}, {"start": "1s", "stop": "4s", "rtt": "40ms", "sender": 2},
                      {"sender": 2, "pattern": "rate 5mbit"}],
        }
    )  # fmt: skip
    first, second, third, fourth = flow_columns(point)
    assert (first["flow"], second["flow"], second["cc"], second["stop_s"], second["flow_rtt_ms"]) == (
        0, 1, "bbr", 10.0, 10.0,
    )  # fmt: skip
    assert (second["share"], second["driver"], second["timeslice_ms"], second["jitter"]) == (0.5, "virtual", 10.0, 0.25)
    assert (third["start_s"], third["stop_s"], third["flow_rtt_ms"], third["sender"]) == (1.0, 4.0, 40.0, 2)
    assert (third["share"], third["timeslice_ms"], third["jitter"]) == (0.25, 5.0, 0.0)
    assert fourth["pattern"] == "rate 5mbit"
    assert frame(flow_columns(point), RUNS).height == 4


def test_a_replayed_sender_has_the_recording_and_no_timeslice() -> None:
    (columns,) = flow_columns(scenario({"contention": {"replay": "vm#a-0"}}))
    expected = {"driver": "virtual", "share": 1, "timeslice_ms": None, "jitter": None, "replay": "vm#a-0"}
    assert {name: columns[name] for name in expected} == expected


@pytest.mark.parametrize(("samples", "ms"), [("20ms", 20.0), ("ack", 0.0), (None, None)])
def test_the_scenarios_columns_are_in_the_schema(samples: str | None, ms: float | None) -> None:
    run = Run(
        scenario=scenario({"samples": samples, "cpu": {"frequency": "576MHz"}, "path": {"aqm": "codel"}}), repeat=1
    )
    columns = scenario_columns(run)
    assert set(columns) <= set(RUNS)
    assert columns["samples_ms"] == ms
    assert (columns["cpu_mhz"], columns["aqm"], columns["tx_completion_us"]) == (576.0, "codel", 5.0)


def test_a_failed_run_has_a_row_per_flow() -> None:
    run = Run(scenario=scenario({"backend": "vm", "flows": [{"count": 3}]}), repeat=0)
    rows = failed(run, "no luck", datetime.now(UTC)).runs
    assert [row["flow"] for row in rows] == [0, 1, 2]
    assert {row["coalesce_us"] for row in rows} == {None}
    assert frame(rows, RUNS)["reason"].to_list() == ["no luck"] * 3


def test_missing_values_are_null_not_zero() -> None:
    assert frame([{"run": "a"}], RUNS)["throughput_mbps"].item() is None
    assert frame([], RUNS).schema["share"] == pl.Float64
