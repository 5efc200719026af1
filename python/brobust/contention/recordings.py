"""Load recorded off-times for replay: from a dataset, from `brobust contend record`, or from a table of your own.

crates/command/src/contend reads the same recordings for `brobust contend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from brobust import files
from brobust.errors import BadInput
from brobust.lazily import pl

COLUMNS = ("thread", "vcpu", "kind", "start_s", "duration_ms")
"""Those of a table that are looked at."""
MAX_COLUMNS = 1000  # of CSV, whose columns are all read: each takes memory, however few rows there are
MAX_VCPUS = 4096  # KVM has no VM with more; a stranger's file may have as many as rows

Offtimes = tuple[tuple[int, int], ...]
"""Start and duration of each, ns."""


def offtimes(recording: str) -> Offtimes:
    """Return start and duration (ns) of every off-time, in order, without overlap; starts count from the run's start.
    Of several vCPUs, those that all of them have at the same time, of which there may be none.

    `recording` is DIR or DIR#RUN for a dataset, or FILE or FILE#THREAD for CSV or Parquet with columns start_s and
    duration_ms; where there is a column kind, its rows that are not `off` are left out.
    """
    of_each = of_each_vcpu(recording)
    return of_each[0] if len(of_each) == 1 else _common(of_each)


def of_each_vcpu(recording: str) -> tuple[Offtimes, ...]:
    """Return the off-times of each vCPU of a recording, by number; a file without a column vcpu has one."""
    name, part = recording, ""
    if "#" in recording and not (files.is_file(recording) or files.is_directory(recording)):
        name, _, part = recording.rpartition("#")  # the last one: names may have some, too
    try:
        recorded = _of_dataset(Path(name), part) if files.is_directory(name) else _of_file(Path(name), part)
        if "vcpu" not in recorded.columns:
            return (_checked(recorded, recording),)
        if (vcpus := recorded["vcpu"].n_unique()) > MAX_VCPUS:
            raise BadInput(f"replay: {recording} holds {vcpus} vCPUs; give a recording of at most {MAX_VCPUS}")
        tables = recorded.sort("vcpu", maintain_order=True).partition_by("vcpu", maintain_order=True)
        return tuple(_checked(table, recording) for table in tables or [recorded])
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise BadInput(
            f"replay: {recording} is damaged, or holds something else than numbers in start_s and duration_ms; "
            "give another recording"
        ) from None


def _checked(table: pl.DataFrame, recording: str) -> Offtimes:
    table = table.select(pl.col("start_s", "duration_ms").cast(pl.Float64)).drop_nulls().sort("start_s")
    longest = files.MAX_RECORDING_S
    # This refuses what is not a number, too: it is in no interval.
    if not table.select(pl.all_horizontal(pl.all().is_between(-longest, longest)).all()).item():
        raise BadInput(f"replay: {recording} holds a time that is no number, or of more than {longest:g} s; correct it")
    offtimes = []
    for start_s, duration_ms in table.iter_rows():
        start, end = round(start_s * 1e9), round(start_s * 1e9 + duration_ms * 1e6)
        if end > max(start, 0):  # off-times before the run's start are over when it begins
            offtimes.append((max(start, 0), end - max(start, 0)))
    if not offtimes:
        raise BadInput(f"replay: {recording} holds no off-time with a known start; give a longer recording")
    for (start, duration), (following, _) in pairwise(offtimes):
        if following < start + duration:
            raise BadInput(
                f"replay: {recording} has off-times that overlap, at {start / 1e9:g} s and {following / 1e9:g} s; "
                "give the recording of one thread"
            )
    return tuple(offtimes)


def _of_dataset(directory: Path, run: str) -> pl.DataFrame:
    from brobust.dataset import Dataset

    dataset = Dataset.open(directory)  # refuses a directory that is not a dataset, or has another schema
    runs = dataset.runs_with_offtimes()
    if not run and len(runs) == 1:
        (run,) = runs
    if run not in runs:
        named = f"no off-times of run {run}" if run else f"the off-times of {len(runs)} runs"
        known = ", ".join(runs[:3]) + (", ..." if len(runs) > 3 else "") if runs else "none"
        raise BadInput(f"replay: {directory} holds {named}; give {directory}#RUN with one of: {known}")
    return dataset.offtimes([run]).filter(pl.col("kind") == "off", pl.col("sender") == 1)


def _common(of_each: Sequence[Offtimes]) -> Offtimes:
    """Return the off-times that all vCPUs have at the same time: only then has the sender no CPU."""
    edges = sorted(
        edge for offtimes in of_each for start, duration in offtimes for edge in ((start, 1), (start + duration, -1))
    )
    common, away, since = [], 0, 0
    for time, change in edges:
        if away == len(of_each) and time > since:
            common.append((since, time - since))
        away, since = away + change, time
    return tuple(common)


def _of_file(file: Path, thread: str) -> pl.DataFrame:
    try:
        content = files.read(file, files.MAX_RECORDING)
        if file.suffix == ".parquet":
            # No others: a small file may hold thousands, each of as many equal rows.
            needed = [name for name in pl.read_parquet_schema(content) if name in COLUMNS]
            table = pl.read_parquet(content, columns=needed, n_rows=files.MAX_RECORDING_ROWS + 1)
        elif content.count(b",", 0, content.find(b"\n")) >= MAX_COLUMNS:
            raise BadInput(f"{file}: has {MAX_COLUMNS} columns or more; give start_s and duration_ms")
        else:
            table = pl.read_csv(content, n_rows=files.MAX_RECORDING_ROWS + 1)
    except BadInput as refusal:
        raise BadInput(f"replay: {refusal}") from None
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise BadInput(f"replay: {file}: is neither CSV nor Parquet; give a .csv or .parquet file") from None
    if table.height > files.MAX_RECORDING_ROWS:
        raise BadInput(f"replay: {file}: has more than {files.MAX_RECORDING_ROWS} rows; give a shorter recording")
    lacking = {"start_s", "duration_ms"} - set(table.columns)
    if lacking:
        raise BadInput(f"replay: {file} has no column {' and '.join(sorted(lacking))}; give start_s and duration_ms")
    if "thread" in table.columns:
        threads = table["thread"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
        if not thread and len(threads) == 1:
            (thread,) = threads
        if thread not in threads:
            requested = f"no thread {thread}" if thread else f"{len(threads)} threads"
            raise BadInput(
                f"replay: {file} holds {requested}; give {file}#THREAD with one of: {', '.join(threads[:5])}"
            )
        table = table.filter(pl.col("thread").cast(pl.String) == thread)
    return table.filter(pl.col("kind").cast(pl.String) == "off") if "kind" in table.columns else table
