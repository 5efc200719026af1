"""The directory of a dataset: runs are added as they finish, several at a time, and what is there is read."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial, partialmethod
from pathlib import Path
from typing import Any

import tomli_w

import brobust
from brobust import SCHEMA_VERSION, files, interrupts, process_limits
from brobust.dataset import parts
from brobust.dataset.columns import TABLES, Column, Rows, columns_of, frame
from brobust.dataset.parts import PART, Part
from brobust.dataset.raw import Raw
from brobust.dataset.rows import Measured, flow_columns, scenario_columns
from brobust.errors import BadInput, UnreadableFile, WriteFailed, reason
from brobust.host import locks
from brobust.lazily import pl
from brobust.scenario import Grid, Run
from brobust.scenario.defaults import KERNELS
from brobust.scenario.fields import FIELDS
from brobust.scenario.grid import scenario as one_scenario

LOCK = ".lock"
# The files of a dataset before its first run. They are removed in this order: without the first it is none.
BEGINNING = ("dataset.json", "scenario.toml", "calibration.jsonl", LOCK)
# Tables that may be left out. Without runs it would be no dataset, and the others are empty unless a run asks for them.
OPTIONAL = ("throughput", "offtimes")
# Up to so many rows of a table are handed out in the order of their runs' names, which is the same for every series of
# a grid. Sorting more of them takes longer than reading them; those come in the order in which they were measured.
SORTED_ROWS = 200_000
# The columns that every table has had from the beginning of this schema (0.2.0), or of the table. A file that lacks one
# is none of brobust's. Later columns are not noted here: a file that lacks one says what a scenario says that has all
# of its fields at their defaults, and nothing of what was not measured yet.
ALWAYS_WRITTEN = {
    "runs": (
        "run scenario repeat flow bandwidth_mbps rtt_ms buffer_bytes aqm loss cc flows start_s stop_s flow_rtt_ms "
        "pattern sender share driver timeslice_ms start_jitter length_jitter alternate_s receiver_share replay "
        "traffic qdisc tso_sizing coalesce_us tx_completion_us tso_max_bytes cpu_mhz duration_s seed backend kernel "
        "accelerator samples_ms kernel_release kernel_hash hz path_kernel_release throughput_mbps retransmits "
        "rtt_mean_ms rtt_p99_ms drops queue_mean_ms skb_mean_bytes pacing_idle_ms cpu_busy_share packet_hash "
        "effective_share effective_timeslice_ms effective_offtime_ms asleep_share path_waiting_share timeslices "
        "guest_restarts lost_events outcome reason started_at wall_s brobust qemu iperf3"
    ),
    "throughput": "run flow time_s throughput_mbps",
    "samples": (
        "run flow time_s cc cwnd_packets ssthresh_packets pacing_rate_mbps delivery_rate_mbps bandwidth_estimate_mbps "
        "min_rtt_ms srtt_ms rtt_ms inflight_packets inflight_bdp delivered_packets lost_packets queue_bytes "
        "pacing_gain cwnd_gain app_limited retransmits deficit_acks mode state"
    ),
    "offtimes": "run sender kind start_s duration_ms",
    "packets": "run time_s left_s arrived_s flow direction seq ack payload_bytes frame_bytes dropped queue_bytes",
    "transfers": "run start_s bytes completion_ms slowdown",
    "requests": "run flow due_s first_byte_ms completion_ms bytes status",
    "connections": (
        "run connection flow protocol sender sender_port receiver_port first_s last_s packets received_bytes "
        "throughput_mbps drops retransmits queue_mean_ms"
    ),
    "programs": "run flow end command sha256 ended_s exit_status signal stdout stderr",
    "calls": "run node process thread name call start_s duration_ms result",
}


class Dataset:
    """A dataset directory, open for reading and, in the block of `writing`, for appending. `Dataset.open` returns one.

    Each table of docs/data.md is a method, of all runs, or of those whose names it is given: `runs`, `throughput`,
    `samples`, `offtimes`, `packets`, `transfers`, `requests`, `connections`, `programs`, `calls`."""

    def __init__(self, directory: Path, without: Collection[str] = ()):
        self.directory = directory
        self._without = frozenset(without)
        self._begun_here = False
        self._made_directories: list[Path] = []

    def __repr__(self) -> str:
        return f"<brobust dataset {self.directory}>"

    @classmethod
    @interrupts.finished_first
    def create(
        cls,
        directory: Path,
        grid: Grid,
        host: Mapping[str, Any],
        *,
        without: Collection[str] = (),
        made_for_it: bool = False,
    ) -> Dataset:
        """Begin a dataset in a directory that does not exist or is empty. The tables `without` are not written.

        With a dataset that stays empty, the directory and its parents are removed as far as they do not exist yet; a
        directory that was `made_for_it`, alone."""
        cls.check_new(directory, without)
        dataset = cls(directory, without=without)
        dataset._begun_here = True
        try:
            missing = [one for one in (directory, *directory.parents) if not one.exists()]
            dataset._made_directories = [directory] if made_for_it else missing
            files.make_directory(directory)
            with dataset.writing():
                _refuse_files_of_others(directory)
                files.write(directory / "scenario.toml", tomli_w.dumps(grid.fields))
                about = {"schema": SCHEMA_VERSION, "brobust": brobust.__version__, **host}
                if without:
                    about["without"] = sorted(without)
                files.write(directory / "dataset.json", json.dumps(about, indent=1))
        except OSError as error:
            raise BadInput(f"--out {directory}: cannot be written ({reason(error)})") from None
        except WriteFailed:
            dataset.discard_if_empty()
            raise
        return dataset

    def check_without(self, without: Collection[str]) -> None:
        """Refuse to leave out tables that the runs which are there have."""
        self.check_new(None, without)
        if more := sorted(set(without) - self._without):
            raise BadInput(f"--without: {self.directory} was begun with {more[0]}; leave it out, or give another --out")

    @staticmethod
    def check_new(directory: Path | None, without: Collection[str] = ()) -> None:
        """Refuse a directory in which no dataset can be begun, and tables that cannot be left out."""
        if unknown := sorted(set(without) - set(OPTIONAL)):
            raise BadInput(f"--without: {unknown[0]!r} is not a table that can be left out: {', '.join(OPTIONAL)}")
        try:
            if directory is not None:
                _refuse_files_of_others(directory)
        except OSError as error:
            raise BadInput(f"--out {directory}: cannot be written ({reason(error)})") from None

    @classmethod
    @interrupts.finished_first
    def create_beside(
        cls, directory: Path, grid: Grid, host: Mapping[str, Any], *, without: Collection[str] = ()
    ) -> Dataset:
        """Begin a dataset in this directory or, where another series has taken the name, in NAME-2, NAME-3, ..."""
        try:
            files.make_directory(directory.parent)
            for number in itertools.count(1):
                free = directory if number == 1 else directory.with_name(f"{directory.name}-{number}")
                with contextlib.suppress(FileExistsError):
                    free.mkdir()
                    break
        except OSError as error:
            raise BadInput(f"{directory}: cannot be made ({reason(error)}); give another --out") from None
        return cls.create(free, grid, host, without=without, made_for_it=True)

    @classmethod
    def open(cls, directory: Path | str) -> Dataset:
        """Return the dataset in a directory; refuse a directory without one, and one of another schema."""
        directory = Path(directory)
        try:
            about = files.read_json(directory / "dataset.json")
        except BadInput as refusal:
            if files.is_file(directory / "data" / "dataset.json"):  # `brobust reproduce` wrote it
                raise BadInput(f"{directory} holds no dataset: its dataset is {directory / 'data'}") from None
            raise BadInput(f"{directory} holds no dataset: {refusal}") from None
        if not isinstance(about, dict):
            raise BadInput(f"{directory} holds no dataset: its dataset.json is no table")
        schema: Any = about.get("schema")
        if schema != SCHEMA_VERSION:
            raise BadInput(
                f"{directory} has schema {schema}, this brobust {brobust.__version__} reads {SCHEMA_VERSION}; it was "
                f"written by brobust {about.get('brobust')}, which reads it"
            )
        process_limits.allow_polars("one that reads a dataset")
        without = about.get("without", [])
        return cls(directory, [name for name in OPTIONAL if isinstance(without, list) and name in without])

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
            self._tidy()
            yield

    def _tidy(self) -> None:
        """Remove what a killed process has left: half-written files, files that were merged, and rows of runs that were
        never complete."""
        for directory in (self.directory, *(self.directory / name for name in (*TABLES, "pcap"))):
            files.remove_scratch(directory)
        last = max((part.last for part in self._parts("runs")), default=0)
        for name in TABLES:
            left = parts.replaced(self.directory / name)
            left += [part for part in self._parts(name) if part.first > last]
            for part in left:
                part.file.unlink(missing_ok=True)

    def grid(self) -> Grid:
        """Return the grid that the dataset was begun with, or has grown to."""
        file = self.directory / "scenario.toml"
        fields = files.read_toml(file)
        if not fields:  # it would be a grid of one run, and --resume would measure that
            raise BadInput(f"{file}: is empty, which brobust never writes; take another copy of the dataset")
        try:
            return Grid(fields)
        except BadInput as refusal:
            begun_by = files.read_json(self.directory / "dataset.json").get("brobust")
            with_it = f"; brobust {begun_by} wrote it, and this is {brobust.__version__}"
            raise BadInput(f"{file}: {refusal}{with_it if begun_by != brobust.__version__ else ''}") from None

    def grow(self, grid: Grid) -> None:
        """Make it a dataset of this grid, which contains the previous one."""
        with self.writing():
            files.write(self.directory / "scenario.toml", tomli_w.dumps(grid.fields))

    def finished(self) -> set[str]:
        """Return the runs that need not be measured again: those with an outcome, ok or unfaithful. A failed run is
        measured again, and so is one of which a file is cut off."""
        if not self._parts("runs"):
            return set()  # without polars, which a new dataset does not need yet
        runs = self._read("runs", ["run", "outcome"])
        cut_off = [part for name in TABLES if name != "runs" for part in self._parts(name) if not part.is_whole]
        _warn(dict.fromkeys((part.file for part in cut_off), "cut off"))
        for part in cut_off:
            runs = runs.filter(~pl.col(PART).is_between(part.first, part.last))
        return set(runs.filter(pl.col("outcome") != "failed")["run"])

    def append(self, run: str, measured: Measured) -> None:
        self.append_all([(run, measured)])

    @interrupts.finished_first
    def append_all(self, of_runs: Sequence[tuple[str, Measured]]) -> None:
        """Add runs. Their file in runs/ is written last, so that they are there completely or not at all."""
        if not (self.directory / "dataset.json").exists():
            raise WriteFailed(f"{self.directory} was removed while runs were measured into it", "let it stay")
        for run, measured in of_runs:
            pcap = self.directory / "pcap" / f"{run}.pcap"
            if measured.pcap is not None:
                files.make_directory(pcap.parent)
                files.write(pcap, measured.pcap)
            elif pcap.exists():  # of an earlier attempt
                pcap.unlink()
        number = 1 + max((part.last for name in TABLES for part in self._parts(name)), default=0)
        written = []
        for name, columns in TABLES.items():
            if name in self._without:
                continue
            rows = _concatenated([getattr(measured, name) for _, measured in of_runs], columns)
            if not rows.is_empty():
                directory = self.directory / name
                files.make_directory(directory)
                numbered = rows.with_columns(pl.lit(number, pl.Int64).alias(PART))
                files.write_table(directory / parts.name(number, number), numbered)
                written.append(name)
        self._merge(written, parts.MANY)

    def compact(self) -> None:
        """Merge small files, and remove damaged ones of which every run has been measured again. Call it only while
        `writing`, when a series is complete."""
        for part in self._parts("runs"):
            if not part.is_whole:
                part.file.unlink(missing_ok=True)
        runs = self._read("runs", ["run"])
        for name in TABLES:
            for part in self._parts(name):
                if not part.is_whole and runs.filter(pl.col(PART).is_between(part.first, part.last)).is_empty():
                    part.file.unlink(missing_ok=True)
        self._merge(list(TABLES), 2)

    def _merge(self, names: Sequence[str], at_least: int) -> None:
        for name in names:
            documented = partial(_as_documented, name=name, columns=TABLES[name])
            # Failed runs that were measured again have no rows in other tables.
            counting = _is_last() | (pl.col("outcome") != "failed") if name == "runs" else pl.lit(True)
            parts.merge(self.directory / name, documented, [*TABLES[name]], at_least, counting)

    def discard_if_empty(self) -> bool:
        """Remove the dataset if this object has begun it and nothing was measured into it, and return whether it did.
        Call it only while `writing`."""
        if not self._begun_here or any(self.directory.glob("runs/*")):
            return False
        for name in (*TABLES, "pcap"):  # of runs that could not be written completely
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in BEGINNING:
            (self.directory / name).unlink(missing_ok=True)
        for made in self._made_directories:
            with contextlib.suppress(OSError):  # something else was put there
                made.rmdir()
        return True

    def note_calibration(self, calibration: Mapping[str, Any]) -> None:
        file = self.directory / "calibration.jsonl"
        before = files.read(file, files.MAX_TEXT) if file.exists() else b""
        files.write(file, before + json.dumps(dict(calibration)).encode() + b"\n")

    def calibrations(self) -> list[dict[str, Any]]:
        """Return the lines of calibration.jsonl, in the order in which they were added."""
        file = self.directory / "calibration.jsonl"
        lines = files.read(file, files.MAX_TEXT).splitlines() if file.exists() else []
        try:
            return [dict(json.loads(line)) for line in lines]
        except (ValueError, TypeError):
            raise BadInput(f"{file}: is damaged: its lines are no JSON objects; remove it") from None

    def runs_with_offtimes(self) -> list[str]:
        return sorted(set(self._read("offtimes", ["run"])["run"]))

    def _parts(self, table: str) -> list[Part]:
        return parts.current(self.directory / table)

    def table(self, name: str, runs: str | Collection[str] | None = None) -> pl.DataFrame:
        """Return the table of this name, of all runs, of these or of this one."""
        columns = columns_of(name)
        # A text is a collection of its letters, too, and no run is called by one.
        rows = self._read(name, runs=[runs] if isinstance(runs, str) else runs).select(*columns)
        if rows.height > SORTED_ROWS or rows["run"].is_sorted():
            return rows
        return rows.sort("run", maintain_order=True)

    runs = partialmethod(table, "runs")
    throughput = partialmethod(table, "throughput")
    samples = partialmethod(table, "samples")
    offtimes = partialmethod(table, "offtimes")
    packets = partialmethod(table, "packets")
    transfers = partialmethod(table, "transfers")
    requests = partialmethod(table, "requests")
    connections = partialmethod(table, "connections")
    programs = partialmethod(table, "programs")
    calls = partialmethod(table, "calls")

    def _read(
        self, name: str, columns: Sequence[str] = (), runs: Collection[str] | None = None, *, silent: bool = False
    ) -> pl.DataFrame:
        """Return the rows of a table that count, with their `part`. `columns`: only these, of the table runs; `runs`:
        only the rows of these. `silent`: say nothing of files that cannot be read."""
        documented = {one: TABLES[name][one] for one in columns or TABLES[name]}
        documented_rows = partial(_as_documented, name=name, columns=documented)
        frames, there, unreadable = parts.read(self.directory / name, documented_rows, [*documented], runs)
        if not silent:
            _warn(unreadable)
        rows = pl.concat(frames) if frames else frame([], documented).with_columns(pl.lit(0, pl.Int64).alias(PART))
        return rows.filter(_is_last()) if name == "runs" else self._latest(rows, there)

    def _latest(self, rows: pl.DataFrame, there: Sequence[Part]) -> pl.DataFrame:
        """Return those rows, of these files, that are of the runs in runs/, and not of an earlier attempt."""
        frames, of_runs, _ = parts.read(self.directory / "runs", lambda rows: rows.select("run", PART), ["run"])
        numbers = {number for part in there for number in (part.first, part.last)}
        are_there = all(any(part.first <= number <= part.last for part in of_runs) for number in numbers)
        are_last = not frames or pl.concat(frames).select(_is_last().all()).item()
        if are_there and are_last:  # nearly always: finding the rows one by one takes long
            return rows
        # Not with warnings.catch_warnings(): tables that are read in several threads would change each other's filters.
        runs = self._read("runs", ["run"], silent=True)
        return rows.join(runs, on=["run", PART], how="semi", maintain_order="left")


def _concatenated(tables: Sequence[Rows | None], columns: dict[str, Column]) -> pl.DataFrame:
    frames = [table for table in tables if isinstance(table, pl.DataFrame) and not table.is_empty()]
    if len({tuple(table.schema.items()) for table in frames}) > 1:
        frames = [frame(table, columns) for table in frames]
    together = [frame([row for table in tables if isinstance(table, list) for row in table], columns)]
    if frames:
        together.append(frame(pl.concat(frames), columns))
    if raw := [table for table in tables if isinstance(table, Raw)]:  # all of one kind: they are of one table
        together.append(frame(raw[0].together(raw), columns))
    return pl.concat(together)


def _is_last() -> pl.Expr:
    """Whether a row is of the last time that its run was measured."""
    return pl.col(PART) == pl.col(PART).max().over("run")


NAMED = 3
"""So many files are named that cannot be read for the same reason; the rest are counted."""


def _warn(unreadable: Mapping[Path, str]) -> None:
    """Say which files are left out, and why."""
    by_reason: dict[str, list[Path]] = {}
    for file, why in unreadable.items():
        by_reason.setdefault(why, []).append(file)
    for why, those in by_reason.items():
        for file in those[:NAMED]:
            text = f"{file} cannot be read and is left out ({why}); its runs do not count as finished"
            warnings.warn(text, UnreadableFile, stacklevel=4)
        if (more := len(those) - NAMED) > 0:
            text = f"{more} more files of {those[0].parent} cannot be read and are left out for the same reason"
            warnings.warn(text, UnreadableFile, stacklevel=4)


def _as_documented(table: pl.DataFrame, name: str, columns: Mapping[str, Column]) -> pl.DataFrame:
    """Return rows of the table of this name with the documented columns, in their order and of their types, and with
    their `part`."""
    missing = [one for one in (*columns, PART) if one not in table.columns]
    if foreign := [one for one in missing if one in (*ALWAYS_WRITTEN[name].split(), PART)]:
        raise ValueError(f"it has no column {foreign[0]}")
    table = table.with_columns(_written_later(name, one, columns[one]).alias(one) for one in missing)
    documented = [pl.col(one).cast(column.dtype) for one, column in columns.items()]
    return table.select(*documented, pl.col(PART).cast(pl.Int64))


def _written_later(table: str, name: str, column: Column) -> pl.Expr:
    """Return a column that a file of this table lacks: null, or in runs what a scenario of the run's backend says there
    that has all of its fields at their defaults."""
    if table != "runs":
        return pl.lit(None)
    contended, undisturbed = (
        pl.col("backend").replace_strict(
            {backend: _columns_of_defaults(backend, share).get(name) for backend in KERNELS},
            default=None,
            return_dtype=column.dtype,
        )
        for share in (0.5, 1)
    )
    return pl.when(pl.col("timeslice_ms").is_not_null()).then(contended).otherwise(undisturbed)


@cache
def _columns_of_defaults(backend: str, share: float) -> dict[str, Any]:
    fields = {"backend": backend, "kernel": FIELDS["kernel"].default, "contention": {"share": share}}
    plain = Run(one_scenario(fields), repeat=0)
    return {**scenario_columns(plain), **flow_columns(plain.scenario)[0]}


def _refuse_files_of_others(directory: Path) -> None:
    files.check_directory("--out", directory)
    there = {entry.name for entry in directory.iterdir()} if directory.exists() else set()
    if "dataset.json" in there:
        raise BadInput(f"{directory} already holds a dataset; add --resume to complete it or give another --out")
    if there and LOCK not in there:  # a lock is there if a dataset was interrupted while it was begun
        raise BadInput(f"--out {directory}: {min(there)} is in it, but no dataset; give an empty or a new directory")
