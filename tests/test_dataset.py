"""A dataset is appended run by run, survives interruption, and says what it is."""

import errno
import json
from pathlib import Path

import polars as pl
import pytest

from brobust import series
from brobust.dataset import RUNS, SCHEMA_VERSION, Dataset, Measured, frame
from brobust.errors import BadInput
from brobust.scenario import Grid


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
    grid = Grid.from_flags({"kernel": ["debian-6.12", "debian-6.1"]})
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


def test_every_column_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    for name in RUNS:
        assert f"`{name}`" in page


def test_missing_values_are_null_not_zero() -> None:
    assert frame([{"run": "a"}], RUNS)["throughput_mbps"].item() is None
    assert frame([], RUNS).schema["share"] == pl.Float64
