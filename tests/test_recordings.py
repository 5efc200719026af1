"""Recorded off-times are read from a dataset of either backend, or from somebody's own table."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from brobust import files, lazily
from brobust.contention import recordings
from brobust.dataset import Dataset, Measured
from brobust.dataset import recordings as recorded
from brobust.errors import BadInput
from brobust.scenario import Grid

MS = 1_000_000
NAMES = Path(__file__).with_name("recording-names.csv")  # crates/command/src/contend/recordings.rs is held to it, too


def _dataset(directory: Path, *runs: str) -> Path:
    dataset = Dataset.create(directory, Grid.from_flags({}), {})
    for number, run in enumerate(runs):
        off = {"run": run, "sender": 1, "kind": "off", "duration_ms": 30.0}
        rows = [
            {**off, "start_s": -0.01},  # begun before the traffic
            {**off, "start_s": 0.05 + number},
            {**off, "start_s": None},
            {**off, "start_s": -5.0},
            {**off, "start_s": 0.04, "sender": 2},
            {**off, "start_s": 0.02, "kind": "timeslice"},
        ]
        dataset.append(run, Measured([{"run": run, "outcome": "ok"}], offtimes=rows))
    return directory


def test_of_a_dataset_sender_1s_off_times_are_taken_from_the_runs_start_on(tmp_path: Path) -> None:
    directory = _dataset(tmp_path / "d", "a-0")
    assert recordings.offtimes(str(directory)) == ((0, 20 * MS), (50 * MS, 30 * MS))


def test_of_several_runs_one_is_named(tmp_path: Path) -> None:
    directory = _dataset(tmp_path / "d", "a-0", "b-0")
    assert recordings.offtimes(f"{directory}#b-0")[1] == (1050 * MS, 30 * MS)
    with pytest.raises(BadInput, match=r"of 2 runs; give .*#RUN with one of: a-0, b-0"):
        recordings.offtimes(str(directory))
    with pytest.raises(BadInput, match="no off-times of run c-0"):
        recordings.offtimes(f"{directory}#c-0")
    other = directory.rename(directory.with_name("try #2"))
    assert recordings.offtimes(f"{other}#b-0")[1] == (1050 * MS, 30 * MS)
    with pytest.raises(BadInput, match="holds the off-times of 2 runs"):
        recordings.offtimes(str(other))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_ones_own(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"mine{suffix}"
    table = pl.DataFrame({"kind": ["off", "timeslice", "off"], "start_s": [1.5, 0.0, 0.25], "duration_ms": [2, 250, 1]})
    table.write_csv(file) if suffix == ".csv" else table.write_parquet(file)
    assert recordings.offtimes(str(file)) == ((250 * MS, MS), (1500 * MS, 2 * MS))


def test_of_several_threads_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("thread,kind,start_s,duration_ms\n7,off,0.01,30\n8,off,0.02,5\n8,running,0,20\n")
    assert recordings.offtimes(f"{file}#8") == ((20 * MS, 5 * MS),)
    with pytest.raises(BadInput, match=r"holds 2 threads; give .*#THREAD with one of: 7, 8"):
        recordings.offtimes(str(file))
    with pytest.raises(BadInput, match="holds no thread 9"):
        recordings.offtimes(f"{file}#9")


def test_columns_that_nobody_needs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of some kilobytes may hold thousands, each of as many equal rows as a recording may have."""
    own: dict[str, Any] = {"thread": 7, "vcpu": 0, "kind": "off", "start_s": 0.5, "duration_ms": 2.0}
    more = {f"more_{number}": 0.0 for number in range(50)}
    file, read, taken = tmp_path / "wide.parquet", pl.read_parquet, []
    pl.DataFrame([{**more, **own}]).write_parquet(file)

    def noted(*arguments: Any, **options: Any) -> pl.DataFrame:
        taken.append(read(*arguments, **options))
        return taken[-1]

    for polars in (pl, lazily.pl):
        monkeypatch.setattr(polars, "read_parquet", noted)
    assert recordings.offtimes(str(file)) == ((500 * MS, 2 * MS),)
    assert recorded.read(file).intervals.height == 1
    assert [set(table.columns) for table in taken] == [set(own), set(own)]


@pytest.mark.parametrize("row", NAMES.read_text().splitlines()[1:])
def test_a_thread_is_named_after_the_last_hash_unless_a_file_has_the_whole_name(tmp_path: Path, row: str) -> None:
    name, given, expected = row.split(",")
    (tmp_path / name).write_text("thread,start_s,duration_ms\n7,1,2\n8,2,2\n")
    if expected.isdigit():
        assert recordings.offtimes(str(tmp_path / given)) == ((int(expected) * 1000 * MS, 2 * MS),)
    else:
        with pytest.raises(BadInput, match=expected):
            recordings.offtimes(str(tmp_path / given))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "neither CSV nor Parquet; give a .csv or .parquet file"),
        ("start_s\n1\n", "no column duration_ms"),
        ("start_s,duration_ms" + "," * 1000 + "\n0,1\n", "has 1000 columns or more"),
        ("start_s,duration_ms\nsoon,1\n", "something else than numbers"),
        ("start_s,duration_ms\nnan,5\n", "no number"),
        ("start_s,duration_ms\ninf,5\n", "no number"),
        ("start_s,duration_ms\n1e300,5\n", "more than 1e"),
        ("start_s,duration_ms\n-1,1\n", "no off-time"),
        ("start_s,duration_ms\n1,10\n1.005,10\n", "overlap, at 1 s and 1.005 s"),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "mine.csv"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=words) as refusal:
        recordings.offtimes(str(file))
    assert str(refusal.value).startswith("replay: ")
    assert "\n" not in str(refusal.value)


def test_a_recording_of_more_rows_than_are_read_is_refused_and_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"thread": 7, "vcpu": 0, "kind": "off", "duration_ms": 2.0}
    file = tmp_path / "long.parquet"
    pl.DataFrame([{**row, "start_s": float(second)} for second in range(3)]).write_parquet(file)
    monkeypatch.setattr(files, "MAX_RECORDING_ROWS", 3)
    assert len(recordings.offtimes(str(file))) == recorded.read(file).intervals.height == 3
    monkeypatch.setattr(files, "MAX_RECORDING_ROWS", 2)
    for read in (recordings.offtimes, lambda name: recorded.read(Path(name))):
        with pytest.raises(BadInput, match="has more than 2 rows; give a shorter recording"):
            read(str(file))


def test_a_small_file_with_a_long_text_in_each_row_is_refused(tmp_path: Path) -> None:
    """Parquet keeps equal texts once. 512 rows become objects of Python at a time, each with its own copy."""
    file, rows = tmp_path / "bomb.parquet", 1000
    times = {"start_s": [float(row) for row in range(rows)], "duration_ms": [1.0] * rows}
    kind = pl.Series(["off" * 30_000]).new_from_index(0, rows)
    pl.DataFrame({"thread": [7] * rows, "vcpu": [0] * rows, "kind": kind, **times}).write_parquet(file)
    assert file.stat().st_size < 10_000
    with pytest.raises(BadInput, match="holds an interval without thread, kind, start or length"):
        recorded.read(file)


def test_a_recording_of_more_vcpus_than_a_vm_has_is_refused_at_once(tmp_path: Path) -> None:
    """A table was made for each of them, from all rows: 200,000 took longer than anybody waits."""
    file = tmp_path / "many.parquet"
    vcpus = pl.int_range(200_000, eager=True).alias("vcpu")
    pl.select(vcpus, start_s=pl.lit(1.0), duration_ms=pl.lit(1.0)).write_parquet(file)
    with pytest.raises(BadInput, match="holds 200000 vCPUs; give a recording of at most 4096"):
        recordings.offtimes(str(file))


SWEEP = {"sweep": 1, "interval_s": 1.0, "time_unix_s": 1e9, "host": {}, "flows": []}


@pytest.mark.parametrize(
    ("sweeps", "words"),
    [
        ([{**SWEEP, "interval_s": 10**400}], "line 1 is no sweep"),
        ([{**SWEEP, "time_unix_s": 1e15}], "line 1 is no sweep"),  # no calendar has that year
        ([{**SWEEP, "sweep": None}], "two sweeps of one number, or one without"),
        ([SWEEP] * 2, "two sweeps of one number, or one without"),  # each flow would be drawn in each of them
    ],
)
def test_numbers_that_no_sweep_has_are_refused(tmp_path: Path, sweeps: list[dict[str, Any]], words: str) -> None:
    file = tmp_path / "sweeps.jsonl"
    file.write_text("".join(json.dumps(sweep) + "\n" for sweep in sweeps))
    with pytest.raises(BadInput, match=words):
        recorded.read(file)


def test_a_recording_of_threads_from_a_year_that_no_calendar_has_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "threads.parquet"
    row = {"thread": 1, "vcpu": 0, "kind": "off", "start_s": 0.0, "duration_ms": 1.0}
    pl.DataFrame([row]).write_parquet(file, metadata={"begin_unix_s": "1e15"})
    with pytest.raises(BadInput, match="is damaged"):
        recorded.read(file)


def test_a_directory_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no dataset"):
        recordings.offtimes(str(tmp_path))


def test_a_long_recording_of_sockets_is_not_kept_as_objects(tmp_path: Path) -> None:
    """It may have 1 GB. Tables of polars are not counted here: they take a part of that."""
    values = dict.fromkeys(recorded._VALUES, 1234.5678)
    names = {"netns": "", "cc": "bbr", "cause": "network-limited", "interface": 0, **values}
    flows = [{"local": f"192.0.2.1:{at}", "remote": f"198.51.100.1:{at}", **names} for at in range(2000)]
    sweep = {"sweep": 1, "sockets": 2000, "interval_s": 1.0, "time_unix_s": 1e9, "host": {}, "flows": flows}
    line = json.dumps(sweep) + "\n"
    content = (
        "".join(line.replace('"sweep": 1', f'"sweep": {at}', 1) for at in range(1, 51)).encode() + b'{"sweep": 51, '
    )
    tracemalloc.start()
    try:
        found = recorded._sweeps(tmp_path / "sweeps.jsonl", content)
        assert tracemalloc.get_traced_memory()[1] < len(content)
    finally:
        tracemalloc.stop()
    assert (found.sweeps.height, found.flows.height, found.end_s) == (50, 100_000, 50.0)
    assert found.flows["time_s"].unique(maintain_order=True).to_list() == [float(at) for at in range(1, 51)]
