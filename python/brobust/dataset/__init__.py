"""A dataset: a directory of Parquet that holds what was measured and all it takes to measure it again.

    DIR/scenario.toml          the grid, as `brobust run` reads it
    DIR/dataset.json           schema version, brobust version, host, when and by which command it was begun
    DIR/calibration.jsonl      what the testbed could carry before it was disturbed, a line per path
    DIR/runs/RUN.parquet       one file per finished run, one row per flow
    DIR/throughput/RUN.parquet receiver-side throughput over time
    DIR/samples/RUN.parquet    socket samples over time, where the scenario asked for them
    DIR/offtimes/RUN.parquet   every timeslice and off-time that the senders got
    DIR/packets/RUN.parquet    every frame at the bottleneck, where the scenario asked for it
    DIR/pcap/RUN.pcap          the same frames for tcpdump and Wireshark

Each file is written whole under another name, brought to the disk and then renamed (files.py), runs/ last: a run that
was interrupted has no file there and is done again by --resume; one that has it is never touched. Who writes holds
DIR/.lock. A file that cannot be read (somebody has cut it off) costs its own run only, and is named by a warning.
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import tomli_w

import brobust
from brobust import files
from brobust.errors import BadInput, UnreadableFile
from brobust.host import locks
from brobust.scenario import Flows, Grid, Run, Scenario

SCHEMA_VERSION = 6
OLDEST_SCHEMA = 5  # that is read: its columns are given today's names and meanings


@dataclass(frozen=True)
class Column:
    """A column's type and what it says, with its unit."""

    dtype: Any
    meaning: str


# One row per run and flow. docs/data.md is checked against these tables by a test.
RUNS: dict[str, Column] = {
    "run": Column(pl.String, "hash of the scenario, and repeat; the same in all tables"),
    "scenario": Column(pl.String, "hash of every scenario field"),
    "repeat": Column(pl.Int64, "number of the repeat, from 0"),
    "seed": Column(pl.Int64, "the scenario's seed; the run draws its random numbers from seed + repeat"),
    "flow": Column(pl.Int64, "number of the flow within the run, from 0"),
    "flows": Column(pl.Int64, "flows in the run"),
    "sender": Column(pl.Int64, "number of the sender that runs the flow, from 1"),
    "cc": Column(pl.String, "congestion control of this flow"),
    "start_s": Column(pl.Float64, "when the flow was started, seconds into the run"),
    "stop_s": Column(pl.Float64, "when the flow stopped sending, seconds into the run"),
    "pattern": Column(pl.String, "traffic pattern of its application: bulk, rate, onoff, idle"),
    "bandwidth_mbps": Column(pl.Float64, "bottleneck rate at first, Mbit/s, Ethernet frames counted"),
    "rtt_ms": Column(
        pl.Float64, "emulated round-trip time of the path at first, ms; on vm the testbed's own latency comes on top"
    ),
    "flow_rtt_ms": Column(pl.Float64, "emulated round-trip time of this flow at first, ms"),
    "buffer_bytes": Column(pl.Int64, "bottleneck buffer, bytes of Ethernet frames"),
    "aqm": Column(pl.String, "queue management at the bottleneck, with the options that are not defaults"),
    "loss": Column(pl.Float64, "random loss before the bottleneck, fraction"),
    "qdisc": Column(pl.String, "queue discipline on the sender: fq, or none where TCP paces by itself"),
    "tso_sizing": Column(
        pl.String,
        "who sizes TSO packets: kernel (the mainline), rate (the mainline without its bonus for short RTTs), "
        "control (BBR, over google's interface)",
    ),
    "coalesce_us": Column(pl.Float64, "receive interrupt coalescing of the sender's NIC, us; null on vm"),
    "tx_completion_us": Column(pl.Float64, "time from sending a packet until it is freed, us; null on vm"),
    "tso_max_bytes": Column(pl.Int64, "largest TSO packet that the sender's NIC takes, bytes; null on vm"),
    "cpu_mhz": Column(
        pl.Float64, "frequency of the sender's modelled CPU, MHz; null on vm, and where its work took no time"
    ),
    "driver": Column(
        pl.String,
        "what took the CPU from this flow's sender: virtual, deadline, burner, quota, competitor, replay, none",
    ),
    "share": Column(pl.Float64, "requested CPU share, fraction; 1 where a recording was replayed"),
    "timeslice_ms": Column(pl.Float64, "requested timeslice, ms; null when share is 1"),
    "start_jitter": Column(
        pl.Float64,
        "each timeslice began at a random point in this part of its period's off-time, fraction; null when share is 1",
    ),
    "length_jitter": Column(
        pl.Float64,
        "each timeslice and off-time was longer or shorter by a random part up to this, fraction; null when share is 1",
    ),
    "alternate_s": Column(
        pl.Float64, "contention and no contention took turns, each for this long, s; null: contention all the time"
    ),
    "receiver_share": Column(pl.Float64, "requested CPU share of the receiver, fraction"),
    "replay": Column(pl.String, "recording of off-times that was replayed; null: none"),
    "duration_s": Column(pl.Float64, "length of the run, s"),
    "backend": Column(pl.String, "virtual or vm"),
    "traffic": Column(pl.String, "program that sent and received: brobust or iperf3"),
    "kernel": Column(pl.String, "sender's kernel, as --kernel names it"),
    "kernel_release": Column(pl.String, "uname -r of the sender"),
    "kernel_hash": Column(pl.String, "SHA-256 of the sender's kernel image; null on vm"),
    "hz": Column(pl.Int64, "tick rate of the sender's kernel, Hz; null on vm"),
    "path_kernel_release": Column(pl.String, "uname -r of the guest with bottleneck and receiver; null on virtual"),
    "accelerator": Column(pl.String, "kvm or tcg; null on virtual"),
    "samples_ms": Column(pl.Float64, "interval of socket samples, ms; 0: at every ACK; null: none were taken"),
    "throughput_mbps": Column(pl.Float64, "payload received from start_s to stop_s, Mbit/s, counted at the receiver"),
    "retransmits": Column(pl.Int64, "segments retransmitted by the sender"),
    "rtt_mean_ms": Column(pl.Float64, "mean of the sender's smoothed RTT, ms"),
    "rtt_p99_ms": Column(
        pl.Float64, "99th percentile of the sender's smoothed RTT, ms; on vm it was read every 100 ms"
    ),
    "drops": Column(pl.Int64, "packets of this flow dropped at the bottleneck; null on vm"),
    "queue_mean_ms": Column(pl.Float64, "mean queueing delay of this flow's packets at the bottleneck, ms; null on vm"),
    "skb_mean_bytes": Column(pl.Float64, "mean payload of a TSO packet, bytes; null on vm"),
    "pacing_idle_ms": Column(
        pl.Float64, "mean time that pacing waited after a TSO packet, ms; null on vm, and where nothing was paced"
    ),
    "cpu_busy_share": Column(
        pl.Float64, "CPU time of the sender's work as a share of the run; null without a modelled CPU"
    ),
    "packet_hash": Column(
        pl.String, "SHA-256 of all frames and their times: equal for equal scenario, repeat and kernel; null on vm"
    ),
    "effective_share": Column(pl.Float64, "share of the run in which the sender could run, fraction"),
    "effective_timeslice_ms": Column(pl.Float64, "timeslice the sender got, ms; null without contention"),
    "effective_offtime_ms": Column(pl.Float64, "off-time the sender got, ms; null without contention"),
    "asleep_share": Column(pl.Float64, "share of the run in which the sender slept because it had nothing to do"),
    "path_waiting_share": Column(pl.Float64, "share of the run in which the path guest wanted a CPU and had none"),
    "timeslices": Column(pl.Int64, "number of timeslices that were recorded"),
    "guest_restarts": Column(
        pl.Int64,
        "how often the run was measured again in new guests, since one died or was never ready; null on virtual",
    ),
    "lost_events": Column(
        pl.Int64, "scheduler events that the recorder lost; if not 0, the effective figures are estimates"
    ),
    "outcome": Column(
        pl.String, "ok; unfaithful: share or timeslice off by more than 10 %, or nothing was delivered; failed"
    ),
    "reason": Column(pl.String, "why the run is unfaithful or failed"),
    "started_at": Column(pl.Datetime("us", "UTC"), "when the run began"),
    "wall_s": Column(pl.Float64, "wall-clock time of the whole run, s"),
    "brobust": Column(pl.String, "version of brobust that measured the run"),
    "qemu": Column(pl.String, "version of QEMU; null on virtual"),
    "iperf3": Column(pl.String, "version of iperf3; null where it was not used"),
}

THROUGHPUT: dict[str, Column] = {
    "run": Column(pl.String, "the run"),
    "flow": Column(pl.Int64, "the flow"),
    "time_s": Column(pl.Float64, "end of the interval, seconds after the flow's start"),
    "throughput_mbps": Column(pl.Float64, "payload received in the interval, Mbit/s"),
}

SAMPLES: dict[str, Column] = {
    "run": Column(pl.String, "the run"),
    "flow": Column(pl.Int64, "the flow"),
    "time_s": Column(pl.Float64, "seconds after the run's start; on vm after the run's first sample"),
    "cc": Column(pl.String, "congestion control as the socket names it"),
    "cwnd_packets": Column(pl.Int64, "congestion window, packets"),
    "ssthresh_packets": Column(pl.Int64, "slow start threshold, packets; null on vm, and where there is none yet"),
    "pacing_rate_mbps": Column(pl.Float64, "sk_pacing_rate, Mbit/s"),
    "delivery_rate_mbps": Column(pl.Float64, "latest delivery rate sample, Mbit/s"),
    "bandwidth_estimate_mbps": Column(
        pl.Float64, "BBR's bandwidth estimate, Mbit/s; null where the control shows none"
    ),
    "min_rtt_ms": Column(pl.Float64, "BBR's min RTT, ms; the stack's where the control has none"),
    "srtt_ms": Column(pl.Float64, "smoothed RTT, ms"),
    "rtt_ms": Column(pl.Float64, "latest RTT sample, ms; null on vm"),
    "inflight_packets": Column(pl.Int64, "packets in flight (unacked - sacked - lost + retransmitted)"),
    "inflight_bdp": Column(pl.Float64, "in flight / (BBR's bandwidth estimate x min RTT); null without estimate"),
    "delivered_packets": Column(pl.Int64, "packets delivered so far; null on vm"),
    "lost_packets": Column(pl.Int64, "packets marked lost so far; null on vm"),
    "queue_bytes": Column(pl.Int64, "this flow's bytes in the bottleneck's queue; null on vm"),
    "pacing_gain": Column(pl.Float64, "BBR's pacing gain; null where the control shows none"),
    "cwnd_gain": Column(pl.Float64, "BBR's cwnd gain; null where the control shows none"),
    "app_limited": Column(pl.Boolean, "whether the latest delivery rate sample was application-limited"),
    "retransmits": Column(pl.Int64, "segments retransmitted so far"),
    "deficit_acks": Column(
        pl.Int64,
        "ACKs so far at which a repair acted (steady controls: stalls so far); null where the control reports none",
    ),
    "mode": Column(
        pl.String, "phase of the control: startup, drain, probe_bw, ... (cc/cc.h); null where it does not report it"
    ),
    "state": Column(pl.String, "loss recovery state of the stack: open, disorder, cwr, recovery, loss"),
}

OFFTIMES: dict[str, Column] = {
    "run": Column(pl.String, "the run"),
    "sender": Column(pl.Int64, "the sender, from 1"),
    "kind": Column(pl.String, "timeslice: the sender could run; off: it could not (on vm: although it wanted to)"),
    "start_s": Column(pl.Float64, "when it began, seconds after the run's start; null where unknown"),
    "duration_ms": Column(pl.Float64, "its length, ms"),
}

PACKETS: dict[str, Column] = {
    "run": Column(pl.String, "the run"),
    "time_s": Column(pl.Float64, "when the frame reached the link, seconds after the run's start"),
    "left_s": Column(
        pl.Float64,
        "when it left the bottleneck; null if it was dropped, and for ACKs, which do not pass the bottleneck",
    ),
    "arrived_s": Column(pl.Float64, "when it reached the other end; null if it was dropped"),
    "flow": Column(pl.Int64, "the flow"),
    "direction": Column(pl.String, "data: to the receiver; ack: to the sender"),
    "seq": Column(pl.Int64, "first byte of its payload, relative to the SYN (the first byte of a flow is 1)"),
    "ack": Column(pl.Int64, "next byte that its sender expects, counted in the same way in the other direction"),
    "payload_bytes": Column(pl.Int64, "TCP payload, bytes"),
    "frame_bytes": Column(pl.Int64, "Ethernet frame, bytes"),
    "dropped": Column(pl.Boolean, "whether it was lost, or dropped at the bottleneck"),
    "queue_bytes": Column(pl.Int64, "bytes that were in the bottleneck's queue when it arrived; null for ACKs"),
}

# In the order in which a run is written: its rows in runs/ last.
TABLES = {"throughput": THROUGHPUT, "samples": SAMPLES, "offtimes": OFFTIMES, "packets": PACKETS, "runs": RUNS}

# A backend gives rows, or where there are millions of them a frame.
Rows = list[dict[str, Any]] | pl.DataFrame


@dataclass
class Measured:
    """What one run leaves behind: rows for each table, and the link's frames as a pcap file."""

    runs: list[dict[str, Any]]
    throughput: Rows = field(default_factory=list)
    samples: Rows = field(default_factory=list)
    offtimes: Rows = field(default_factory=list)
    packets: Rows | None = None
    pcap: bytes | None = None


def scenario_columns(run: Run) -> dict[str, Any]:
    """The columns of a run record that the scenario alone decides, and that all flows have in common."""
    s = run.scenario
    virtual = s.backend == "virtual"
    return {
        "run": run.id,
        "scenario": s.hash,
        "repeat": run.repeat,
        "seed": s.seed,
        "flows": sum(group.count for group in s.flows),
        "bandwidth_mbps": s.path.bandwidth / 1e6,
        "rtt_ms": s.path.rtt / 1e6,
        "buffer_bytes": s.path.buffer_bytes,
        "aqm": str(s.path.aqm),
        "loss": s.path.loss,
        "qdisc": s.qdisc,
        "tso_sizing": s.tso_sizing,
        "coalesce_us": s.nic.coalesce / 1e3 if virtual else None,
        "tx_completion_us": s.nic.tx_completion / 1e3 if virtual else None,
        "tso_max_bytes": s.nic.tso_max_size if virtual else None,
        "cpu_mhz": s.cpu.frequency / 1e6 if s.cpu.frequency is not None else None,
        "receiver_share": s.receiver.share,
        "duration_s": s.duration / 1e9,
        "backend": s.backend,
        "traffic": s.traffic,
        "kernel": s.kernel,
        "samples_ms": s.samples / 1e6 if isinstance(s.samples, int) else 0.0 if s.samples == "ack" else None,
        "brobust": brobust.__version__,
    }


def flow_columns(scenario: Scenario) -> list[dict[str, Any]]:
    """The columns that the scenario decides for each flow, in the order of the groups."""
    flows = [_group_columns(scenario, group) for group in scenario.flows for _ in range(group.count)]
    return [{"flow": number, **columns} for number, columns in enumerate(flows)]


def _group_columns(s: Scenario, group: Flows) -> dict[str, Any]:
    contention = s.contention_of(group.sender)
    periodic = contention.active and contention.replay is None
    return {
        "sender": group.sender,
        "cc": group.cc,
        "start_s": group.start / 1e9,
        "stop_s": (s.duration if group.stop is None else group.stop) / 1e9,
        "pattern": str(group.pattern),
        "flow_rtt_ms": s.rtt_of(group)[0] / 1e6,
        "driver": s.driver_of(contention),
        "share": contention.share,
        "timeslice_ms": contention.timeslice / 1e6 if periodic else None,
        "start_jitter": contention.start_jitter if periodic else None,
        "length_jitter": contention.length_jitter if periodic else None,
        "alternate_s": contention.alternate / 1e9 if periodic and contention.alternate is not None else None,
        "replay": contention.replay,
    }


def failed(run: Run, reason: str, started: datetime, known: Mapping[str, Any] | None = None) -> Measured:
    """Return the record of a run that could not be measured: one row per flow, without figures. `known`: columns that
    are known all the same."""
    outcome = {**(known or {}), "outcome": "failed", "reason": reason, "started_at": started}
    return Measured([{**scenario_columns(run), **columns, **outcome} for columns in flow_columns(run.scenario)])


LOCK = ".lock"
# What a dataset has before its first run.
BEGINNING = ("scenario.toml", "dataset.json", "calibration.jsonl", LOCK)


class Dataset:
    """A dataset directory, open for reading and, in the block of `writing`, for appending."""

    def __init__(self, directory: Path, schema: int = SCHEMA_VERSION):
        self.directory = directory
        self.schema = schema
        self._begun_here = False
        self._made_directory = False

    @classmethod
    def create(cls, directory: Path, grid: Grid, host: Mapping[str, Any]) -> Dataset:
        """Begin a dataset in a directory that is not there or empty."""
        dataset = cls(directory)
        try:
            dataset._made_directory = not directory.exists()
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
    def open(cls, directory: Path) -> Dataset:
        try:
            about = json.loads((directory / "dataset.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            about = None
        if not isinstance(about, dict):
            raise BadInput(f"{directory} holds no dataset (no readable dataset.json in it)")
        schema: Any = about.get("schema")
        if schema not in range(OLDEST_SCHEMA, SCHEMA_VERSION + 1):
            raise BadInput(
                f"{directory} has schema {schema}, this brobust {brobust.__version__} reads {OLDEST_SCHEMA} to "
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
        """The grid it was begun with."""
        return Grid(files.read_toml(self.directory / "scenario.toml"))

    def grow(self, grid: Grid) -> None:
        """From now on it is of this grid, which has what the one before had, and more."""
        self.check_completable()
        with self.writing():
            files.write(self.directory / "scenario.toml", tomli_w.dumps(grid.fields))

    def finished(self) -> set[str]:
        """Runs that need not be done again: measured, faithfully or not. A failed one is tried again, and so is one of
        which a file is cut off."""
        measured = set(self.runs().filter(pl.col("outcome") != "failed")["run"])
        cut_off = [file for name in TABLES if name != "runs" for file in self._files(name) if not _is_whole(file)]
        for file in cut_off:
            _warn(file, "cut off")
        return measured - {file.stem for file in cut_off}

    def append(self, run: str, measured: Measured) -> None:
        """Add one run. Its row in runs/ comes last, so that a run is there with all it has or not at all."""
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
        """Remove what an attempt that failed has left, its row in runs/ first."""
        for name in reversed(TABLES):
            (self.directory / name / f"{run}.parquet").unlink(missing_ok=True)
        (self.directory / "pcap" / f"{run}.pcap").unlink(missing_ok=True)

    def discard_if_empty(self) -> None:
        """Remove a dataset that was begun by this object, and into which nothing was measured. Only while `writing`."""
        if self._begun_here and not any(self.directory.glob("runs/*")):
            for name in BEGINNING:
                (self.directory / name).unlink(missing_ok=True)
            if self._made_directory:
                with contextlib.suppress(OSError):  # somebody has put something else there
                    self.directory.rmdir()

    def note_calibration(self, calibration: Mapping[str, Any]) -> None:
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

    def _files(self, table: str) -> list[Path]:
        return sorted((self.directory / table).glob("*.parquet"))

    def _table(self, name: str, columns: dict[str, Column]) -> pl.DataFrame:
        found = self._files(name)
        if not found:
            return frame([], columns)
        try:
            return _as_documented(pl.read_parquet(found, glob=False), columns)
        except UNREADABLE:  # some of them: each by itself
            tables = [table for file in found if (table := _readable(file, columns)) is not None]
            return pl.concat([frame([], columns), *tables])


# PanicException: polars' Rust code has met what it did not expect. It is no Exception.
UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def _readable(file: Path, columns: dict[str, Column]) -> pl.DataFrame | None:
    try:
        return _as_documented(pl.read_parquet(file, glob=False), columns)
    except UNREADABLE as error:
        _warn(file, (str(error).splitlines() or ["no reason given"])[0][:200])
        return None


def _warn(file: Path, why: str) -> None:
    text = f"{file} cannot be read and is left out ({why}); its run does not count as finished"
    warnings.warn(text, UnreadableFile, stacklevel=2)


def _as_documented(table: pl.DataFrame, columns: dict[str, Column]) -> pl.DataFrame:
    """The table with the columns that it should have, in their order and of their types."""
    table = _upgraded(table)
    if lacking := [name for name in columns if name not in table.columns]:
        raise ValueError(f"it has no column {lacking[0]}")
    return frame(table.select(*columns), columns)


def _is_whole(file: Path) -> bool:
    """Whether a Parquet file ends as one does: with the length of its footer, and these letters."""
    try:
        with file.open("rb") as content:
            content.seek(-4, io.SEEK_END)
            return content.read() == b"PAR1"
    except OSError:
        return False


def _refuse_files_of_others(directory: Path) -> None:
    there = {entry.name for entry in directory.iterdir()} if directory.is_dir() else set()
    if "dataset.json" in there:
        raise BadInput(f"{directory} already holds a dataset; add --resume to complete it or give another --out")
    if there and LOCK not in there:  # with a lock: a dataset whose beginning was interrupted
        raise BadInput(f"--out {directory}: {min(there)} is in it, and no dataset; give a directory of its own")


def frame(rows: Rows | None, columns: dict[str, Column]) -> pl.DataFrame:
    """Rows as a frame of exactly these columns; a missing value is null, a surplus one an error."""
    schema = {name: column.dtype for name, column in columns.items()}
    given = rows.columns if isinstance(rows, pl.DataFrame) else {key for row in rows or [] for key in row}
    surplus = set(given) - set(columns)
    assert not surplus, f"not columns of this table: {sorted(surplus)}"
    if not isinstance(rows, pl.DataFrame):
        return pl.DataFrame(rows or [], schema=schema, orient="row")
    present = [pl.col(name) if name in given else pl.lit(None).alias(name) for name in schema]
    return rows.select(present).cast(schema)  # type: ignore[arg-type]


def _upgraded(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs of an older schema with today's columns. Up to 5 one column jitter had another meaning on each backend."""
    if "jitter" not in runs.columns:
        return runs
    of_virtual = pl.col("backend") == "virtual"
    moved, still = pl.col("jitter"), pl.when(pl.col("jitter").is_not_null()).then(0.0)
    return runs.with_columns(
        start_jitter=pl.when(of_virtual).then(moved).otherwise(still),
        length_jitter=pl.when(of_virtual).then(still).otherwise(moved),
    )
