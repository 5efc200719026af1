"""The directory of a dataset: runs are added one by one, and what is there is read."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import tomli_w

import brobust
from brobust import files
from brobust.dataset.columns import (
    CONNECTIONS,
    OFFTIMES,
    PACKETS,
    PROGRAMS,
    RUNS,
    SAMPLES,
    TABLES,
    THROUGHPUT,
    TRANSFERS,
    Column,
    frame,
)
from brobust.dataset.rows import Measured
from brobust.errors import BadInput, UnreadableFile
from brobust.host import locks
from brobust.scenario import Grid
from brobust.versions import MIN_SCHEMA_VERSION, SCHEMA_VERSION

LOCK = ".lock"
# The files of a dataset before its first run.
BEGINNING = ("scenario.toml", "dataset.json", "calibration.jsonl", LOCK)


class Dataset:
    """A dataset directory, open for reading and, in the block of `writing`, for appending."""

    def __init__(self, directory: Path, schema: int = SCHEMA_VERSION):
        self.directory = directory
        self.schema = schema
        self._begun_here = False
        self._made_directory = False

    @classmethod
    def create(
        cls, directory: Path, grid: Grid, host: Mapping[str, Any], *, made_for_it: bool | None = None
    ) -> Dataset:
        """Begin a dataset in a directory that does not exist or is empty.

        `made_for_it` says whether the directory is removed with a dataset that stays empty; if not given, whether it
        does not exist yet."""
        dataset = cls(directory)
        try:
            dataset._made_directory = not directory.exists() if made_for_it is None else made_for_it
            _refuse_files_of_others(directory)
            files.make_directory(directory)
            with dataset.writing():
                _refuse_files_of_others(directory)
                files.write(directory / "scenario.toml", tomli_w.dumps(grid.fields))
                about = {"schema": SCHEMA_VERSION, "brobust": brobust.__version__, **host}
                files.write(directory / "dataset.json", json.dumps(about, indent=1))
        except OSError as error:
            raise BadInput(f"--out {directory}: cannot be written ({error.strerror})") from None
        dataset._begun_here = True
        return dataset

    @classmethod
    def create_beside(cls, directory: Path, grid: Grid, host: Mapping[str, Any]) -> Dataset:
        """Begin a dataset in this directory or, where another series has taken the name, in NAME-2, NAME-3, ..."""
        try:
            files.make_directory(directory.parent)
            names = itertools.chain([directory.name], (f"{directory.name}-{number}" for number in itertools.count(2)))
            free = next(free for name in names if _made(free := directory.with_name(name)))
        except OSError as error:
            raise BadInput(f"{directory}: cannot be made ({error.strerror}); give another --out") from None
        return cls.create(free, grid, host, made_for_it=True)

    @classmethod
    def open(cls, directory: Path) -> Dataset:
        """Return the dataset in a directory; refuse a directory without one, and one of another schema."""
        try:
            about = json.loads((directory / "dataset.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            about = None
        if not isinstance(about, dict):
            raise BadInput(f"{directory} holds no dataset (no readable dataset.json in it)")
        schema: Any = about.get("schema")
        if schema not in range(MIN_SCHEMA_VERSION, SCHEMA_VERSION + 1):
            raise BadInput(
                f"{directory} has schema {schema}, this brobust {brobust.__version__} reads {MIN_SCHEMA_VERSION} to "
                f"{SCHEMA_VERSION}; it was written by brobust {about.get('brobust')}"
            )
        return cls(directory, schema)

    def check_completable(self) -> None:
        """Refuse to add runs to a dataset of an older schema: its runs have other names and columns."""
        if self.schema != SCHEMA_VERSION:
            raise BadInput(
                f"{self.directory} has schema {self.schema}: it can be read, but no run can be added to it (schema "
                f"{SCHEMA_VERSION}); give another --out"
            )

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Let no other process write into this dataset until the block ends; refuse where one does."""
        with contextlib.ExitStack() as until_the_end:
            try:
                until_the_end.enter_context(locks.locked(self.directory / LOCK, seconds=0))
            except locks.Locked as by:
                raise BadInput(
                    f"{by.holder} is measuring into {self.directory}; wait for its end, or give another --out"
                ) from None
            for directory in (self.directory, *(self.directory / name for name in (*TABLES, "pcap"))):
                files.remove_scratch(directory)
            yield

    def grid(self) -> Grid:
        """Return the grid that the dataset was begun with, or has grown to."""
        return Grid(files.read_toml(self.directory / "scenario.toml"))

    def grow(self, grid: Grid) -> None:
        """Make it a dataset of this grid, which contains the previous one."""
        self.check_completable()
        with self.writing():
            files.write(self.directory / "scenario.toml", tomli_w.dumps(grid.fields))

    def finished(self) -> set[str]:
        """Return the runs that need not be measured again: those with an outcome, ok or unfaithful. A failed run is
        measured again, and so is one of which a file is cut off."""
        measured = set(self.runs().filter(pl.col("outcome") != "failed")["run"])
        cut_off = [file for name in TABLES if name != "runs" for file in self._files(name) if not _is_whole(file)]
        _warn(dict.fromkeys(cut_off, "cut off"))
        return measured - {file.stem for file in cut_off}

    def append(self, run: str, measured: Measured) -> None:
        """Add one run. Its file in runs/ is written last, so that a run is there completely or not at all."""
        self._forget(run)
        if measured.pcap is not None:
            with self._new("pcap", f"{run}.pcap") as out:
                out.write(measured.pcap)
        for name, columns in TABLES.items():
            table = frame(getattr(measured, name), columns)
            if not table.is_empty():
                with self._new(name, f"{run}.parquet") as out:
                    table.write_parquet(out)

    def _new(self, table: str, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        files.make_directory(self.directory / table)
        return files.replaced(self.directory / table / name)

    def _forget(self, run: str) -> None:
        """Remove what a failed attempt has left, its file in runs/ first."""
        for name in reversed(TABLES):
            (self.directory / name / f"{run}.parquet").unlink(missing_ok=True)
        (self.directory / "pcap" / f"{run}.pcap").unlink(missing_ok=True)

    def discard_if_empty(self) -> bool:
        """Remove the dataset if this object has begun it and nothing was measured into it, and return whether it did.
        Call it only while `writing`."""
        if not self._begun_here or any(self.directory.glob("runs/*")):
            return False
        for name in BEGINNING:
            (self.directory / name).unlink(missing_ok=True)
        if self._made_directory:
            with contextlib.suppress(OSError):  # something else was put there
                self.directory.rmdir()
        return True

    def note_calibration(self, calibration: Mapping[str, Any]) -> None:
        """Add a line to calibration.jsonl."""
        file = self.directory / "calibration.jsonl"
        before = file.read_bytes() if file.exists() else b""
        files.write(file, before + json.dumps(dict(calibration)).encode() + b"\n")

    def runs(self) -> pl.DataFrame:
        return self._table("runs", RUNS)

    def throughput(self) -> pl.DataFrame:
        return self._table("throughput", THROUGHPUT)

    def samples(self) -> pl.DataFrame:
        return self._table("samples", SAMPLES)

    def offtimes(self) -> pl.DataFrame:
        return self._table("offtimes", OFFTIMES)

    def packets(self) -> pl.DataFrame:
        return self._table("packets", PACKETS)

    def transfers(self) -> pl.DataFrame:
        return self._table("transfers", TRANSFERS)

    def connections(self) -> pl.DataFrame:
        return self._table("connections", CONNECTIONS)

    def programs(self) -> pl.DataFrame:
        return self._table("programs", PROGRAMS)

    def _files(self, table: str) -> list[Path]:
        return sorted((self.directory / table).glob("*.parquet"))

    def _table(self, name: str, columns: dict[str, Column]) -> pl.DataFrame:
        found = self._files(name)
        if not found:
            return frame([], columns)
        try:
            return _as_documented(pl.read_parquet(found, glob=False), columns)
        except UNREADABLE:  # some of them cannot be read: try each by itself
            tables, unreadable = [frame([], columns)], {}
            for file in found:
                try:
                    tables.append(_as_documented(pl.read_parquet(file, glob=False), columns))
                except UNREADABLE as error:
                    unreadable[file] = (str(error).splitlines() or ["no reason given"])[0][:200]
            _warn(unreadable)
            return pl.concat(tables)


# PanicException, when polars' Rust code fails, is not an Exception.
UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


NAMED = 3
"""So many files are named that cannot be read for the same reason; the rest are counted."""


def _warn(unreadable: Mapping[Path, str]) -> None:
    """Say which files are left out, and why."""
    by_reason: dict[str, list[Path]] = {}
    for file, why in unreadable.items():
        by_reason.setdefault(why, []).append(file)
    for why, those in by_reason.items():
        for file in those[:NAMED]:
            text = f"{file} cannot be read and is left out ({why}); its run does not count as finished"
            warnings.warn(text, UnreadableFile, stacklevel=4)
        if (more := len(those) - NAMED) > 0:
            text = f"{more} more files of {those[0].parent} cannot be read and are left out for the same reason"
            warnings.warn(text, UnreadableFile, stacklevel=4)


def _as_documented(table: pl.DataFrame, columns: dict[str, Column]) -> pl.DataFrame:
    """Return the table with the documented columns, in their order and of their types."""
    table = _upgraded(table)
    if lacking := [name for name in columns if name not in table.columns]:
        raise ValueError(f"it has no column {lacking[0]}")
    return frame(table.select(*columns), columns)


def _is_whole(file: Path) -> bool:
    """Return whether a Parquet file has its end: the last four letters, after the length of the footer."""
    try:
        with file.open("rb") as content:
            content.seek(-4, io.SEEK_END)
            return content.read() == b"PAR1"
    except OSError:
        return False


def _made(directory: Path) -> bool:
    """Make a directory and return True, or False where its name is taken."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True


def _refuse_files_of_others(directory: Path) -> None:
    there = {entry.name for entry in directory.iterdir()} if directory.is_dir() else set()
    if "dataset.json" in there:
        raise BadInput(f"{directory} already holds a dataset; add --resume to complete it or give another --out")
    if there and LOCK not in there:  # a lock is there if a dataset was interrupted while it was begun
        raise BadInput(f"--out {directory}: {min(there)} is in it, but no dataset; give an empty or a new directory")


# Columns that came to a schema later, by another one of their table, and what they would have said: senders had one
# vCPU, which was kept busy, and the kernel's own pacing; no bottleneck had a token bucket, there were no programs, and
# flows had no end, and there was no cross traffic.
_SINCE: dict[str, dict[str, float | str | None]] = {
    "share": {
        "vcpus": 1, "phase": None, "when_idle": None, "vcpu_shares": None, "sender_cpus": None, "pacing": "kernel",
        "burst_bytes": 0, "sender_program": None, "receiver_program": None, "call_us": None,
        "flow_bytes": None, "completion_ms": None, "cross_load": 0.0, "cross_cc": None, "cross_size_bytes": None,
        "cross_shape": None, "cross_max_bytes": None, "cross_transfers": None, "cross_ended": None,
        "cross_median_ms": None, "cross_p99_ms": None, "cross_slowdown": None, "cross_slowdown_p99": None,
    },
    "kind": {"vcpu": None},
    "cwnd_packets": {"connection": None},
    "payload_bytes": {"connection": None},
}  # fmt: skip


def _upgraded(runs: pl.DataFrame) -> pl.DataFrame:
    """Return rows of an older schema, or of an older brobust with this schema, with today's columns. Up to schema 5,
    one column `jitter` had another meaning on each backend."""
    for beside, columns in _SINCE.items():
        lacking = [name for name in columns if name not in runs.columns]
        if beside in runs.columns and lacking:
            runs = runs.with_columns(pl.lit(columns[name]).alias(name) for name in lacking)
    if "jitter" not in runs.columns:
        return runs
    of_virtual = pl.col("backend") == "virtual"
    moved, still = pl.col("jitter"), pl.when(pl.col("jitter").is_not_null()).then(0.0)
    return runs.with_columns(
        start_jitter=pl.when(of_virtual).then(moved).otherwise(still),
        length_jitter=pl.when(of_virtual).then(still).otherwise(moved),
    )
