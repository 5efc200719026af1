"""A dataset is appended run by run, survives interruption, and says what it is."""

import errno
import json
import math
import os
import re
import shutil
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from brobust import SCHEMA_VERSION, Result, __version__, files
from brobust.dataset import (
    PACKETS,
    RUNS,
    SAMPLES,
    TABLES,
    Dataset,
    Measured,
    failed,
    find,
    flow_columns,
    frame,
    iperf3,
    parts,
    raw,
    scenario_columns,
)
from brobust.dataset.store import ALWAYS_WRITTEN
from brobust.errors import BadInput, RunFailed, UnreadableFile, WriteFailed
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario
from brobust.series import runner
from conftest import refused


def _measured(run: str, outcome: str = "ok") -> Measured:
    return Measured([{"run": run, "flow": 0, "cc": "bbr", "throughput_mbps": 1.5, "outcome": outcome}])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return Dataset.create(tmp_path / "data", Grid.from_flags({}), {"cpu": "test"})


def test_what_is_appended_is_read_back(dataset: Dataset) -> None:
    dataset.append("b-0", _measured("b-0"))
    dataset.append("a-0", _measured("a-0"))
    runs = Dataset.open(dataset.directory).runs()
    assert runs["run"].to_list() == ["a-0", "b-0"]
    assert runs.columns == list(RUNS)


def test_the_rows_of_one_run_are_those_of_its_name(dataset: Dataset) -> None:
    """The letters of a name are no names of runs: the table was empty, without a word."""
    for run in ("a-0", "b-0"):
        dataset.append(run, _measured(run))
    assert dataset.runs("b-0")["run"].to_list() == dataset.table("runs", ["b-0"])["run"].to_list() == ["b-0"]
    with pytest.raises(BadInput, match=r"table: 'run' is none of a dataset's; there are calls, .*throughput"):
        dataset.table("run")
    assert repr(dataset) == f"<brobust dataset {dataset.directory}>"
    assert repr(find(dataset, "a")) == f"<brobust run a-0 of {dataset.directory}>"


def test_a_directory_whose_name_is_not_of_the_locale_is_read(tmp_path: Path) -> None:
    dataset = Dataset.create(tmp_path / os.fsdecode(b"d\xff"), Grid.from_flags({}), {"cpu": "test"})
    for run in ("a-0", "b-0"):
        dataset.append(run, _measured(run))
    assert dataset.finished() == {"a-0", "b-0"}
    dataset.compact()
    assert set(dataset.runs()["run"]) == {"a-0", "b-0"}


def test_the_grid_in_it_is_the_one_it_was_begun_with(dataset: Dataset) -> None:
    again = Dataset.open(dataset.directory).grid()
    assert [run.id for run in again.runs()] == [run.id for run in Grid.from_flags({}).runs()]


def test_failed_runs_are_done_again_and_half_written_ones_do_not_count(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    dataset.append("b-0", _measured("b-0", "failed"))
    dataset.append("c-0", _measured("c-0", "unfaithful"))
    (dataset.directory / "runs" / "d-0.new").write_bytes(b"half a file")
    assert dataset.finished() == {"a-0", "c-0"}


def test_when_files_are_merged_an_earlier_attempt_does_not_come_back_nor_does_a_failed_run_go(
    dataset: Dataset,
) -> None:
    for outcome in ("failed", "ok", "ok"):
        dataset.append("a-0", replace(_rates("a-0"), runs=_measured("a-0", outcome).runs))
    dataset.append("b-0", _measured("b-0", "failed"))
    for _ in range(2):
        assert dataset.runs().select("run", "outcome").rows() == [("a-0", "ok"), ("b-0", "failed")]
        assert dataset.throughput().height == 2
        dataset.compact()


def test_files_stay_as_they_are_where_there_is_no_room_to_merge_them(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in ("a-0", "b-0"):
        dataset.append(run, _measured(run))

    def full(*_: object) -> None:
        raise WriteFailed("no room", "make room")

    monkeypatch.setattr(files, "write_table", full)
    dataset.compact()
    assert dataset.finished() == {"a-0", "b-0"}


def test_calibrations_are_handed_out_in_the_order_in_which_they_were_noted(dataset: Dataset) -> None:
    for rtt_ms in (1.0, 2.0):
        dataset.note_calibration({"network_rtt_ms": rtt_ms})
    assert dataset.calibrations() == [{"network_rtt_ms": 1.0}, {"network_rtt_ms": 2.0}]
    (dataset.directory / "calibration.jsonl").write_text("5\n")
    with pytest.raises(BadInput, match=r"calibration\.jsonl: is damaged: its lines are no JSON objects; remove it"):
        dataset.calibrations()


def test_the_rest_of_a_series_goes_kernel_by_kernel(tmp_path: Path) -> None:
    grid = Grid.from_flags({"backend": "vm", "kernel": ["debian-6.12", "debian-6.1"]})
    dataset = Dataset.create(tmp_path / "two", grid, {})
    first = grid.runs()[0]
    dataset.append(first.id, _measured(first.id))
    rest = runner.remaining(grid, dataset)
    assert len(rest) == len(grid.runs()) - 1
    assert first.id not in {run.id for run in rest}
    kernels = [run.scenario.kernel for run in rest]
    assert kernels == sorted(kernels)


def test_a_full_disk_is_said_and_what_was_measured_stays(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset.append("a-0", _measured("a-0"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    run = Grid.from_flags({}).runs()[0]
    with pytest.raises(WriteFailed, match="no room is left on"):
        runner._append(dataset, [(run, _measured(run.id))])
    assert dataset.finished() == {"a-0"}
    assert not list(dataset.directory.rglob("*.new"))


def test_a_dataset_that_is_removed_while_it_is_measured_is_not_begun_again(dataset: Dataset) -> None:
    shutil.rmtree(dataset.directory)
    with pytest.raises(WriteFailed, match="was removed while runs were measured into it; let it stay, then"):
        dataset.append("a-0", _measured("a-0"))
    assert not dataset.directory.exists()


def test_where_the_first_run_has_no_room_the_directory_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = Grid.from_flags({})
    dataset = Dataset.create(tmp_path / "d", grid, {})
    written = files.write_table

    def full(file: Path, table: pl.DataFrame) -> None:
        if file.parent.name == "runs":
            raise WriteFailed("no room", "make room")
        written(file, table)

    monkeypatch.setattr(files, "write_table", full)
    with dataset.writing(), pytest.raises(WriteFailed):
        dataset.append("a-0", replace(_rates("a-0"), pcap=b"capture"))
    assert (dataset.directory / "throughput").exists() and (dataset.directory / "pcap").exists()
    with dataset.writing():
        assert dataset.discard_if_empty()
    assert not dataset.directory.exists()
    Dataset.create(dataset.directory, grid, {})


def test_a_table_that_nobody_needs_is_not_written(tmp_path: Path) -> None:
    begun = Dataset.create(tmp_path / "d", Grid.from_flags({}), {}, without=["throughput"])
    for dataset, run in ((begun, "a-0"), (Dataset.open(begun.directory), "b-0")):
        dataset.append(run, _rates(run))
    assert begun.finished() == {"a-0", "b-0"} and begun.throughput().is_empty()
    with pytest.raises(BadInput, match=r"--without: 'runs' is not a table .* left out: throughput, offtimes$"):
        Dataset.create(tmp_path / "e", Grid.from_flags({}), {}, without=["runs"])
    assert not (tmp_path / "e").exists()
    begun.check_without(["throughput"])
    for asked, words in ((["offtimes"], "was begun with offtimes; leave it out"), (["runs"], "'runs' is not")):
        with pytest.raises(BadInput, match=f"--without: .*{words}"):
            Dataset.open(begun.directory).check_without(asked)


def test_an_existing_dataset_is_not_overwritten(dataset: Dataset) -> None:
    with pytest.raises(BadInput, match="--resume"):
        Dataset.create(dataset.directory, Grid.from_flags({}), {})


def test_a_directory_with_files_of_the_users_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    mine = tmp_path / "scenario.toml"
    mine.write_text("# mine\n")
    with pytest.raises(BadInput, match=r"scenario\.toml is in it"):
        Dataset.create(tmp_path, Grid.from_flags({}), {})
    assert [*tmp_path.iterdir()] == [mine]
    assert mine.read_text() == "# mine\n"


def test_an_empty_directory_is_taken_and_stays_when_nothing_was_measured(tmp_path: Path) -> None:
    dataset = Dataset.create(tmp_path, Grid.from_flags({}), {})
    with dataset.writing():
        dataset.note_calibration({"cubic_mbps": 1.0})
        dataset.discard_if_empty()
    assert [*tmp_path.iterdir()] == []


def test_directories_that_were_made_for_a_dataset_go_with_it_if_nothing_was_measured(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name, beside in (("first", True), ("second", False)):
        dataset = Dataset.create(tmp_path / "mine" / name / "vm", Grid.from_flags({}), {})
        if beside:
            (tmp_path / "mine" / name / "notes").touch()
        with dataset.writing():
            assert dataset.discard_if_empty()
    assert {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*")} == {"mine", "mine/first", "mine/first/notes"}


def test_a_dataset_whose_beginning_was_interrupted_can_be_begun_again(dataset: Dataset) -> None:
    (dataset.directory / "dataset.json").unlink()
    assert Dataset.create(dataset.directory, Grid.from_flags({"repeat": 1}), {}).grid().fields["repeat"] == 1


def test_a_dataset_whose_removal_was_killed_is_there_or_can_be_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = Path.unlink
    for survived in range(4):
        dataset = Dataset.create(tmp_path / str(survived), Grid.from_flags({}), {})
        left = iter(range(survived))

        def killed(file: Path, missing_ok: bool = False, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise _Killed
            remove(file, missing_ok)

        with monkeypatch.context() as patched, pytest.raises(_Killed):
            patched.setattr(Path, "unlink", killed)
            dataset.discard_if_empty()
        if survived:
            Dataset.create(dataset.directory, Grid.from_flags({}), {})
        assert Dataset.open(dataset.directory).grid().runs()


def test_only_who_began_a_dataset_discards_it(dataset: Dataset) -> None:
    again = Dataset.open(dataset.directory)
    with again.writing():
        assert not again.discard_if_empty()
    assert Dataset.open(dataset.directory)
    with dataset.writing():
        assert dataset.discard_if_empty()
    assert not dataset.directory.exists()


def test_a_second_writer_is_refused_and_told_who_is_the_first(dataset: Dataset) -> None:
    with dataset.writing():
        with pytest.raises(BadInput, match=rf"process {os.getpid()} is measuring into"):
            Dataset.open(dataset.directory).grow(Grid.from_flags({}))
        with pytest.raises(BadInput, match="already holds a dataset"):
            Dataset.create(dataset.directory, Grid.from_flags({}), {})
    Dataset.open(dataset.directory).grow(Grid.from_flags({}))


def test_a_second_resume_is_refused_and_destroys_nothing(dataset: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    with dataset.writing():
        assert f"process {os.getpid()} is measuring" in refused(
            capsys, "run", "--resume", "--out", str(dataset.directory)
        )
    assert dataset.grid().runs()


def test_what_a_killed_writer_left_is_removed_by_the_next(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    (dataset.directory / "pcap").mkdir()
    left = [dataset.directory / name / ".brobust-0123456789abcdef.new" for name in ("", "runs", "pcap")]
    for file in left:
        file.write_bytes(b"half")
    with dataset.writing():
        assert not any(file.exists() for file in left)
    assert dataset.finished() == {"a-0"}


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_run_whose_file_was_cut_off_is_named_and_measured_again_alone(dataset: Dataset, kept: int) -> None:
    for run in ("a-0", "b-0", "c-0"):
        dataset.append(run, _measured(run))
    file = dataset.directory / "runs" / parts.name(2, 2)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.warns(UnreadableFile, match=r"runs/part-0000002"):
        assert dataset.finished() == {"a-0", "c-0"}
    with pytest.warns(UnreadableFile, match=r"runs/part-0000002"):
        assert set(dataset.runs()["run"]) == {"a-0", "c-0"}
    dataset.append("b-0", _measured("b-0"))
    dataset.compact()  # removes it, without a further warning
    assert dataset.finished() == {"a-0", "b-0", "c-0"}


def test_a_run_of_which_another_table_was_cut_off_is_measured_again(dataset: Dataset) -> None:
    rates = [{"run": "a-0", "flow": 0, "time_s": 0.1, "throughput_mbps": 1.0}]
    dataset.append("a-0", Measured(_measured("a-0").runs, throughput=rates))
    file = dataset.directory / "throughput" / parts.name(1, 1)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.warns(UnreadableFile, match="throughput/part-0000001"):
        assert dataset.finished() == set()
    dataset.append("a-0", _measured("a-0", "failed"))  # what the attempt before left does not count
    file.write_bytes(whole)
    assert dataset.throughput().is_empty()
    file.write_bytes(whole[:-1])
    dataset.append("a-0", _measured("a-0"))
    dataset.compact()
    assert not file.exists() and dataset.finished() == {"a-0"}


def test_a_run_is_on_the_disk_before_it_has_its_name(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as that can be seen without cutting the power: each file before it is renamed, its directory after."""
    done: list[str] = []
    sync, rename = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        there = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append(f"sync {there.relative_to(dataset.directory)}")
        sync(descriptor)

    def replace(file: Path, target: Path) -> Path:
        done.append(f"rename {file.relative_to(dataset.directory)}")
        return rename(file, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    dataset.append("a-0", _measured("a-0"))
    made, file, renamed, directory = done
    assert made == "sync ."  # runs/ is new
    assert file.startswith("sync runs/.brobust-") and renamed == file.replace("sync", "rename")
    assert directory == "sync runs"


class _Killed(BaseException):
    """As if the process were killed: no operation on files works from now on."""


def _rates(run: str) -> Measured:
    rates = [{"run": run, "flow": 0, "time_s": 0.1 * step, "throughput_mbps": 1.0} for step in (1, 2)]
    return Measured(_measured(run).runs, throughput=rates)


def _measure_all(dataset: Dataset, names: list[str]) -> None:
    """Add the runs that the dataset lacks, two at a time, as a series does; one of them fails at first."""
    with dataset.writing():
        left = [name for name in names if name not in dataset.finished()]
        for two in range(0, len(left), 2):
            fails = two == 2 and len(left) > 4
            dataset.append_all(
                [(run, _measured(run, "failed") if fails else _rates(run)) for run in left[two : two + 2]]
            )
        dataset.compact()


def _check_whole(dataset: Dataset) -> None:
    """Every run there is has all its rows, once, whoever reads them."""
    finished = sorted(dataset.finished())
    assert dataset.runs().filter(outcome="ok")["run"].to_list() == finished
    assert dataset.runs()["run"].is_unique().all()
    assert dataset.throughput()["run"].to_list() == sorted(finished * 2)


def test_whenever_a_writer_is_killed_no_run_is_lost_or_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MANY", 3)
    names = [f"{letter}-0" for letter in "abcdefg"]
    operations = {(os, "fsync"): os.fsync, (Path, "replace"): Path.replace, (Path, "unlink"): Path.unlink}
    for survived in range(0, 1000, 3):
        dataset = Dataset.create(tmp_path / str(survived), Grid.from_flags({}), {})
        done = 0
        with monkeypatch.context() as patched:
            for (where, name), real in operations.items():

                def counted(*arguments: object, real: Any = real, survived: int = survived, **named: object) -> Any:
                    nonlocal done
                    done += 1
                    if done > survived:
                        raise _Killed
                    return real(*arguments, **named)

                patched.setattr(where, name, counted)
            try:
                _measure_all(dataset, names)
                killed = False
            except _Killed:
                killed = True
        _check_whole(dataset)
        before = dataset.finished()
        for _ in range(2):  # the second time it measures those that failed
            _measure_all(dataset, names)
            assert before <= dataset.finished()
        assert sorted(dataset.finished()) == names
        _check_whole(dataset)
        anybody = pl.read_parquet(dataset.directory / "runs" / "*.parquet")
        assert sorted(anybody["run"]) == names
        if not killed:
            break
    assert survived > 30
    assert [len(list((dataset.directory / name).glob("*"))) for name in ("runs", "throughput")] == [1, 1]


def test_whoever_reads_while_files_are_merged_reads_all(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for letter in "abc":
        dataset.append(f"{letter}-0", _rates(f"{letter}-0"))
    listed = parts.current(dataset.directory / "throughput")
    dataset.compact()
    listings = iter([listed])
    current = parts.current
    monkeypatch.setattr(parts, "current", lambda directory: next(listings, None) or current(directory))
    read, _, unreadable = parts.read(dataset.directory / "throughput", lambda rows: rows, [*TABLES["throughput"]])
    assert sum(map(len, read)) == 6 and not unreadable


def test_many_small_files_are_merged_while_a_series_goes_on(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MANY", 8)
    for number in range(30):
        dataset.append(f"{number:03}-0", _rates(f"{number:03}-0"))
        assert len(list((dataset.directory / "runs").iterdir())) < 2 * parts.MANY
    assert dataset.runs().height == 30 and dataset.throughput().height == 60


@pytest.mark.parametrize("text", [b"[]", b"{", b"", b"7", b"\xff\xfe", b'{"schema": 5', b"[" * 100_000])
def test_a_dataset_json_that_is_none_is_refused(dataset: Dataset, text: bytes) -> None:
    (dataset.directory / "dataset.json").write_bytes(text)
    with pytest.raises(BadInput, match="holds no dataset"):
        Dataset.open(dataset.directory)


@pytest.mark.parametrize("text", [None, b"", b"\xff\xfe\x00", b"path = 7", b"a = 1979-05-27"])
def test_a_scenario_that_cannot_be_read_is_refused_in_one_line(dataset: Dataset, text: bytes | None) -> None:
    file = dataset.directory / "scenario.toml"
    file.unlink()
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(BadInput) as refusal:
        dataset.grid()
    assert "\n" not in str(refusal.value)


def test_files_with_other_columns_are_left_out_and_named(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    whole, runs = dataset.runs().with_columns(pl.lit(2, pl.Int64).alias(parts.PART)), dataset.directory / "runs"
    whole.with_columns(pl.Series("share", ["many"])).write_parquet(runs / parts.name(2, 2))
    whole.drop("cc").write_parquet(runs / parts.name(3, 3))
    (runs / parts.name(4, 4)).mkdir()
    whole.drop(parts.PART).write_parquet(runs / parts.name(5, 5))
    whole.write_parquet(runs / "b-0.parquet")  # as brobust wrote it before 0.2.0
    with pytest.warns(UnreadableFile) as said:
        assert set(dataset.runs()["run"]) == {"a-0"}
    left_out = {str(one.message).partition(".parquet")[0].rpartition("/")[2] for one in said}
    assert left_out == {"b-0", *(parts.name(n, n).removesuffix(".parquet") for n in (2, 3, 4, 5))}
    assert any("no column cc" in str(one.message) for one in said)
    assert not any("\n" in str(one.message) for one in said)


def test_a_file_with_a_larger_number_than_a_column_holds_is_left_out_and_does_not_count(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    (dataset.directory / "runs" / parts.name(1, 10**20)).write_bytes(b"")
    dataset.append("b-0", _measured("b-0"))  # its number was to be one more
    with pytest.warns(UnreadableFile, match="it has no name of brobust"):
        assert set(dataset.runs()["run"]) == {"a-0", "b-0"}


@pytest.mark.parametrize(("backend", "said"), [("virtual", (None, "off", 1)), ("vm", ("spin", None, 1))])
def test_a_file_of_0_2_0_says_of_later_columns_what_their_fields_say_by_default(
    dataset: Dataset, backend: str, said: tuple[Any, ...]
) -> None:
    fields = {"backend": backend, "kernel": "k", "contention": {"share": [1, 0.5]}, "flows": {"cc": "bbr"}, "repeat": 1}
    runs = Grid.from_flags(fields).runs()
    rows = [{**scenario_columns(run), **flow_columns(run.scenario)[0], "outcome": "ok"} for run in runs]
    dataset.append_all([(run.id, Measured([row])) for run, row in zip(runs, rows, strict=True)])
    whole = dataset.runs()
    assert set(whole["phase"]) == {None, "random"}
    (file,) = (dataset.directory / "runs").iterdir()
    pl.read_parquet(file).select(*ALWAYS_WRITTEN["runs"].split(), parts.PART).write_parquet(file)
    assert dataset.runs().equals(whole)
    assert whole.select("when_idle", "adaptive_rx", "vcpus").row(0) == said


@pytest.mark.parametrize("table", TABLES)
def test_a_file_may_lack_only_columns_that_were_not_always_written(dataset: Dataset, table: str) -> None:
    run = dataset.grid().runs()[0]
    empty = Measured([{"run": run.id, "flow": 0, "cc": "bbr", "outcome": "ok"}])
    dataset.append(run.id, replace(empty, **{table: [{"run": run.id}]}) if table != "runs" else empty)
    (file,) = (dataset.directory / table).iterdir()
    whole, always = pl.read_parquet(file), ALWAYS_WRITTEN[table].split()
    assert set(always) <= set(TABLES[table])
    whole.select(*always, parts.PART).write_parquet(file)
    assert dataset.table(table).height == 1
    whole.drop(always[-1]).write_parquet(file)
    with pytest.warns(UnreadableFile, match=f"it has no column {always[-1]}"):
        assert dataset.table(table).is_empty()


def test_two_series_begun_in_the_same_second_have_a_directory_each(tmp_path: Path) -> None:
    """`brobust run` names its directory by date and time, and a shell's loop begins two in a second."""
    asked = tmp_path / "data" / "20261122-223001"
    begun = [Dataset.create_beside(asked, Grid.from_flags({}), {}) for _ in range(3)]
    assert [one.directory.name for one in begun] == [asked.name, f"{asked.name}-2", f"{asked.name}-3"]
    begun[1].discard_if_empty()
    assert not begun[1].directory.exists() and begun[0].directory.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="give another --out"):
        Dataset.create_beside(tmp_path / "file" / "data", Grid.from_flags({}), {})


def test_a_table_that_is_read_leaves_other_threads_their_warnings(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters of warnings are the process's: two threads that set theirs aside at a time may leave each other's."""
    dataset.append("a-0", _measured("a-0", "failed"))
    dataset.append("a-0", Measured(_measured("a-0").runs, throughput=[{"run": "a-0", "flow": 0, "time_s": 0.1}]))
    filters, seen = warnings.filters, []
    really = parts.read
    monkeypatch.setattr(parts, "read", lambda *given: seen.append(warnings.filters is filters) or really(*given))
    assert dataset.throughput().height == 1
    assert seen == [True] * 3  # the last time for the runs that count, of which nothing is said


def test_many_files_that_cannot_be_read_for_one_reason_are_counted(dataset: Dataset) -> None:
    dataset.append("a-0", _measured("a-0"))
    other = dataset.runs().drop("cc").with_columns(pl.lit(2, pl.Int64).alias(parts.PART))
    for number in range(2, 12):
        other.write_parquet(dataset.directory / "runs" / parts.name(number, number))
    with pytest.warns(UnreadableFile) as said:
        assert set(dataset.runs()["run"]) == {"a-0"}
    assert [parts.name(n, n) in str(one.message) for n, one in zip((2, 3, 4), said, strict=False)] == [True] * 3
    assert str(said[3].message).startswith("7 more files") and len(said) == 4


def test_of_a_table_only_the_documented_columns_are_read(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger's file of some kilobytes may have thousands of others, each with any number of equal rows."""
    dataset.append("a-0", _rates("a-0"))
    (file,) = (dataset.directory / "throughput").iterdir()
    more = {f"more_{number}": pl.lit(0.0) for number in range(50)}
    pl.read_parquet(file).with_columns(**more).write_parquet(file)
    collect, read = pl.LazyFrame.collect, set[str]()

    def noted(lazy: pl.LazyFrame, *arguments: Any, **options: Any) -> Any:
        read.update(lazy.collect_schema().names())
        return collect(lazy, *arguments, **options)

    monkeypatch.setattr(pl.LazyFrame, "collect", noted)
    assert dataset.throughput().height == 2
    assert {*TABLES["throughput"]} <= read and not read & {*more}


def test_rows_for_which_there_is_no_memory_are_left_out(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("a-0", "b-0"):
        dataset.append(run, _rates(run))
    three_rows = 3 * 8 * (len(TABLES["throughput"]) + 1)
    monkeypatch.setattr(parts, "_memory_bytes", lambda: three_rows)
    with pytest.warns(UnreadableFile, match=r"0002\.parquet .* \(its 4 rows need more memory than this machine has\)"):
        assert dataset.throughput().height == 2
    assert dataset.throughput("b-0").height == 2
    monkeypatch.setattr(parts, "_memory_bytes", lambda: 2 * three_rows)
    dataset.compact()
    monkeypatch.setattr(parts, "_memory_bytes", lambda: three_rows)
    with pytest.warns(UnreadableFile, match="its 4 rows need more memory"):
        assert dataset.throughput().is_empty()
    assert dataset.throughput("b-0").height == 2


def test_another_schema_is_refused_by_name(dataset: Dataset) -> None:
    about = dataset.directory / "dataset.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), "schema": 0, "brobust": "0.0.1"}))
    with pytest.raises(BadInput, match=rf"schema 0.*reads {SCHEMA_VERSION}.*0\.0\.1"):
        Dataset.open(dataset.directory)


def test_a_directory_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no dataset"):
        Dataset.open(tmp_path)


def test_a_scenario_of_another_brobust_is_refused_with_its_version(dataset: Dataset) -> None:
    scenario, about = (dataset.directory / name for name in ("scenario.toml", "dataset.json"))
    scenario.write_text(f'warp = "on"\n{scenario.read_text()}')
    with pytest.raises(BadInput, match=r"/scenario\.toml: warp: no such field; .* lists all fields$"):
        dataset.grid()
    about.write_text(json.dumps({**json.loads(about.read_text()), "brobust": "9.1"}))
    with pytest.raises(BadInput, match=rf"all fields; brobust 9\.1 wrote it, and this is {__version__}$"):
        dataset.grid()


def test_a_column_that_is_not_in_the_schema_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="speed"):
        frame([{"speed": 1}], RUNS)


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_documented(table: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text()
    section = page.split(f"\n## {table}\n")[1].split("\n## ")[0]
    # What every table has is said once, above the tables.
    documented = set(re.findall(r"`(\w+)`", section)) | {"run", "flow"}
    assert [name for name in TABLES[table] if name not in documented] == [], "make format"


def test_the_help_of_python_names_every_table() -> None:
    """Else it shows them as cached_property objects and partial methods, without a word."""
    for documented in (Dataset, Result):
        assert {f"`{name}`" for name in TABLES} <= set(re.findall(r"`\w+`", documented.__doc__ or ""))


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
    assert find(dataset, "a-0").pcap == b"capture"
    assert dataset.throughput().is_empty()
    # Frames of several runs may have other types. What was captured of an earlier attempt is gone.
    wider = samples.with_columns(pl.col("cwnd_packets").cast(pl.Int64), run=pl.lit("b-0"))
    two = {"a-0": samples, "b-0": wider}
    dataset.append_all([(run, Measured([{"run": run, "outcome": "ok"}], samples=two[run])) for run in two])
    assert dataset.samples()["cwnd_packets"].to_list() == [10, 11] * 2
    assert find(dataset, "a-0").pcap is None


def test_a_frame_with_a_column_of_its_own_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="speed"):
        frame(pl.DataFrame({"speed": [1]}), SAMPLES)


def test_a_flows_columns_are_those_of_its_group_and_its_sender() -> None:
    point = scenario(
        {
            "contention": {"share": 0.5},
            "senders": [{"share": 0.25, "timeslice": "5ms", "start_jitter": 0, "length_jitter": 0.1}],
            "flows": [{"cc": "bbr", "count": 2}, {"start": "1s", "stop": "4s", "rtt": "40ms", "sender": 2},
                      {"sender": 2, "pattern": "rate 5mbit"}],
        }
    )  # fmt: skip
    first, second, third, fourth = flow_columns(point)
    assert (first["flow"], second["flow"], second["cc"], second["stop_s"], second["flow_rtt_ms"]) == (
        0, 1, "bbr", 10.0, 10.0,
    )  # fmt: skip
    assert (second["share"], second["driver"], second["timeslice_ms"]) == (0.5, "virtual", 10.0)
    assert (second["start_jitter"], second["length_jitter"]) == (0.25, 0.0)
    assert (third["start_s"], third["stop_s"], third["flow_rtt_ms"], third["sender"]) == (1.0, 4.0, 40.0, 2)
    assert (third["share"], third["timeslice_ms"]) == (0.25, 5.0)
    assert (third["start_jitter"], third["length_jitter"]) == (0.0, 0.1)
    assert fourth["pattern"] == "rate 5mbit"
    assert frame(flow_columns(point), RUNS).height == 4


def test_a_replayed_sender_has_the_recording_and_no_timeslice() -> None:
    (columns,) = flow_columns(scenario({"contention": {"replay": "vm#a-0"}}))
    expected = {
        "driver": "virtual",
        "share": 1,
        "timeslice_ms": None,
        "start_jitter": None,
        "length_jitter": None,
        "replay": "vm#a-0",
    }
    assert {name: columns[name] for name in expected} == expected


@pytest.mark.parametrize(("samples", "ms"), [("20ms", 20.0), ("ack", 0.0), (None, None)])
def test_the_scenarios_columns_are_in_the_schema(samples: str | None, ms: float | None) -> None:
    run = Run(
        scenario=scenario({"samples": samples, "cpu": {"frequency": "576MHz"}, "path": {"aqm": "codel"}}), repeat=1
    )
    policer = {"burst": "15kB", "buffer": "0B", "second_bandwidth": "5mbit", "second_buffer": "30kB"}
    of_path = scenario_columns(Run(scenario({"path": policer}), repeat=0))
    names = ("burst_bytes", "buffer_bytes", "second_bandwidth_mbps", "second_buffer_bytes")
    assert [of_path[name] for name in names] == [15_000, 0, 5.0, 30_000]
    columns = scenario_columns(run)
    assert set(columns) <= set(RUNS)
    assert columns["samples_ms"] == ms
    assert (columns["cpu_mhz"], columns["aqm"], columns["tx_completion_us"]) == (576.0, "codel", 5.0)


def test_a_failed_run_has_a_row_per_flow() -> None:
    run = Run(scenario=scenario({"backend": "vm", "flows": [{"count": 3}]}), repeat=0)
    ended = {"run": run.id, "flow": 0, "end": "sender", "stderr": "no luck"}
    measured = failed(run, "no luck", datetime.now(UTC), {"kernel_release": "6.12.1"}, [ended])
    rows = measured.runs
    assert [row["flow"] for row in rows] == [0, 1, 2] and measured.programs == [ended]
    assert {row["kernel_release"] for row in rows} == {"6.12.1"}
    assert {row["coalesce_us"] for row in rows} == {None}
    assert frame(rows, RUNS)["reason"].to_list() == ["no luck"] * 3


def test_missing_values_are_null_not_zero() -> None:
    assert frame([{"run": "a"}], RUNS)["throughput_mbps"].item() is None
    assert frame([], RUNS).schema["share"] == pl.Float64


def test_what_iperf3_prints_at_both_ends_is_of_each_flow_in_our_units() -> None:
    """The receiver's throughput; of the sender, which counts in us, the RTTs."""
    sent = {
        "start": {"connected": [{"local_port": 5001}, {"local_port": 5002}]},
        "intervals": [{"streams": [{"rtt": 1000 * ms}, {}]} for ms in (200, 0, *range(1, 200))],
        "end": {"streams": [{"sender": {"retransmits": 7, "mean_rtt": 12_500}}, {"sender": {}}]},
    }
    received = {
        "intervals": [{"streams": [{"end": 1.0, "bits_per_second": rate} for rate in (8e6, 2e6)]}],
        "end": {"streams": [{"receiver": {"bits_per_second": rate}} for rate in (9e6, 1e6)]},
    }
    first, second = iperf3.flows(json.dumps(sent), json.dumps(received))
    assert first.columns == {"throughput_mbps": 9.0, "retransmits": 7, "rtt_mean_ms": 12.5, "rtt_p99_ms": 199.0}
    assert second.columns == {"throughput_mbps": 1.0, "retransmits": None, "rtt_mean_ms": None, "rtt_p99_ms": None}
    assert (first.local_port, second.local_port) == (5001, 5002)
    assert second.throughput("a-0", 1) == [{"run": "a-0", "flow": 1, "time_s": 1.0, "throughput_mbps": 2.0}]


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        ("", "iperf3 at the sender left no result"),
        ("hello", "iperf3 at the sender did not print JSON: 'hello'"),
        ('{"error": "unable to connect"}', "iperf3 at the sender: unable to connect"),
        ("[1]", "iperf3 at the sender did not print JSON"),
        ("[" * 100_000, "iperf3 at the sender did not print JSON"),
        ("{}", "iperf3 printed a result of another form .KeyError: 'end'"),
        ('{"end": {"streams": []}, "start": {"connected": 7}}', "of another form .TypeError"),
    ],
)
def test_what_iperf3_prints_in_place_of_a_result_is_why_the_run_failed(printed: str, why: str) -> None:
    with pytest.raises(RunFailed, match=why):
        iperf3.flows(printed, "{}")


@pytest.mark.parametrize("value", [None, "many", math.nan, 10**30])
def test_a_number_of_iperf3_that_no_column_can_have_fails_the_run(value: object) -> None:
    sent = {"start": {"connected": [{"local_port": 5001}]}, "intervals": [], "end": {"streams": [{"sender": {}}]}}
    received = {"intervals": [], "end": {"streams": [{"receiver": {"bits_per_second": value}}]}}
    with pytest.raises(RunFailed, match="is no number"):
        iperf3.flows(json.dumps(sent), json.dumps(received))


def test_tables_of_the_controller_are_joined_and_what_is_missing_is_null() -> None:
    def of(run: str, numbers: list[float], counts: list[int], flags: bytes) -> raw.RawColumns:
        columns = {"x": ("f8", array("d", numbers)), "n": ("i8", array("q", counts)), "is_it": ("?", array("b", flags))}
        return raw.RawColumns(run, {name: (kind, values.tobytes()) for name, (kind, values) in columns.items()})

    first, second = of("a-0", [1.5, math.nan], [7, -(2**63)], b"\1\0"), of("b-0", [2.0], [0], b"\0")
    assert raw.RawColumns.together([first, second]).rows() == [
        (1.5, 7, True, "a-0"), (None, None, False, "a-0"), (2.0, 0, False, "b-0"),
    ]  # fmt: skip
    assert first.bytes == 2 * 8 + 2 * 8 + 2


def test_between_the_timeslices_of_each_sender_and_at_the_ends_of_the_run_it_is_off_its_cpu() -> None:
    ms = 1_000_000
    two = raw.RawTimeslices("a-0", 100 * ms, {1: [(0, 10 * ms), (40 * ms, 50 * ms)], 2: [(5 * ms, 100 * ms)]})
    never = raw.RawTimeslices("b-0", 60 * ms, {1: []})
    rows = raw.RawTimeslices.together([two, never]).select("run", "sender", "kind", "start_s", "duration_ms").rows()
    assert rows == [
        ("a-0", 1, "timeslice", 0.0, 10.0), ("a-0", 1, "off", 0.01, 30.0), ("a-0", 1, "timeslice", 0.04, 10.0),
        ("a-0", 1, "off", 0.05, 50.0), ("a-0", 2, "off", 0.0, 5.0), ("a-0", 2, "timeslice", 0.005, 95.0),
        ("b-0", 1, "off", 0.0, 60.0),
    ]  # fmt: skip
