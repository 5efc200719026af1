"""A dataset: a directory of Parquet that holds what was measured and all it takes to measure it again.

    DIR/scenario.toml          the grid, as `brobust run` reads it
    DIR/dataset.json           schema version, brobust version, host, when and by which command it was begun
    DIR/calibration.jsonl      what the testbed could carry before it was disturbed, a line per path
    DIR/runs/RUN.parquet       one file per finished run, one row per flow
    DIR/throughput/RUN.parquet receiver-side throughput over time
    DIR/samples/RUN.parquet    socket samples over time, where the scenario asked for them
    DIR/offtimes/RUN.parquet   every timeslice and off-time that the sender's vCPU thread got

Each file is written whole under another name and then renamed, runs/ last: a run that was interrupted has no
file there and is done again by --resume; one that has it is never touched.
"""

from __future__ import annotations

import contextlib
import io
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import tomli_w

import brobust
from brobust.errors import BadInput
from brobust.scenario import Grid, Run

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Column:
    """A column's type and what it says, with its unit."""

    dtype: Any
    meaning: str


# One row per run and flow. docs/data.md is checked against these tables by a test.
RUNS: dict[str, Column] = {
    "run": Column(pl.String, "scenario hash and repeat; the same in all tables"),
    "scenario": Column(pl.String, "hash of every scenario field"),
    "repeat": Column(pl.Int64, "0 to repeats - 1"),
    "seed": Column(pl.Int64, "the scenario's seed"),
    "flow": Column(pl.Int64, "number of the flow within the run, from 0"),
    "flows": Column(pl.Int64, "flows in the run"),
    "cc": Column(pl.String, "congestion control of this flow"),
    "start_s": Column(pl.Float64, "when the flow was started, seconds into the run"),
    "bandwidth_mbps": Column(pl.Float64, "bottleneck rate, Mbit/s, Ethernet frames counted (tbf)"),
    "rtt_ms": Column(pl.Float64, "emulated round-trip time, ms (netem); the testbed's own latency comes on top"),
    "buffer_bytes": Column(pl.Int64, "bottleneck buffer, bytes of Ethernet frames"),
    "loss": Column(pl.Float64, "random loss before the bottleneck, fraction"),
    "driver": Column(pl.String, "contention driver: deadline, burner, none"),
    "share": Column(pl.Float64, "CPU share asked for, fraction"),
    "timeslice_ms": Column(pl.Float64, "timeslice asked for, ms; null when share is 1"),
    "duration_s": Column(pl.Float64, "how long the flow was to send, s"),
    "backend": Column(pl.String, "vm"),
    "kernel": Column(pl.String, "sender's kernel by its name for --kernel"),
    "kernel_release": Column(pl.String, "uname -r of the sender"),
    "path_kernel_release": Column(pl.String, "uname -r of the guest with bottleneck and receiver"),
    "accelerator": Column(pl.String, "kvm or tcg"),
    "samples_ms": Column(pl.Float64, "interval of socket samples, ms; null: none were taken (they cost CPU)"),
    "throughput_mbps": Column(pl.Float64, "payload received, Mbit/s, counted at the receiver"),
    "retransmits": Column(pl.Int64, "segments retransmitted by the sender"),
    "rtt_mean_ms": Column(pl.Float64, "mean of the sender's smoothed RTT, ms"),
    "rtt_p99_ms": Column(pl.Float64, "99th percentile of the sender's smoothed RTT seen every 100 ms, ms"),
    "effective_share": Column(pl.Float64, "share of the run in which the vCPU thread could run, fraction"),
    "effective_timeslice_ms": Column(pl.Float64, "timeslice the vCPU thread got, ms; null without contention"),
    "effective_offtime_ms": Column(pl.Float64, "off-time the vCPU thread got, ms; null without contention"),
    "asleep_share": Column(pl.Float64, "share of the run in which the vCPU slept of its own accord"),
    "path_waiting_share": Column(pl.Float64, "share of the run in which the path guest wanted a CPU and had none"),
    "timeslices": Column(pl.Int64, "timeslices recorded"),
    "lost_events": Column(pl.Int64, "scheduler events the recorder lost; not 0: the effective figures are a guess"),
    "outcome": Column(pl.String, "ok; unfaithful: share or slice off by more than 10 %; failed"),
    "reason": Column(pl.String, "why it is unfaithful or failed"),
    "started_at": Column(pl.Datetime("us", "UTC"), "when the run began"),
    "wall_s": Column(pl.Float64, "what the run took in all, s"),
    "brobust": Column(pl.String, "version that measured"),
    "qemu": Column(pl.String, "version of QEMU"),
    "iperf3": Column(pl.String, "version of iperf3"),
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
    "time_s": Column(pl.Float64, "seconds after the first sample of the run"),
    "cc": Column(pl.String, "congestion control as the socket names it"),
    "cwnd_packets": Column(pl.Int64, "congestion window, packets"),
    "pacing_rate_mbps": Column(pl.Float64, "sk_pacing_rate, Mbit/s"),
    "delivery_rate_mbps": Column(pl.Float64, "latest delivery rate sample, Mbit/s"),
    "bandwidth_estimate_mbps": Column(
        pl.Float64, "BBR's bandwidth estimate, Mbit/s; null where the control shows none"
    ),
    "min_rtt_ms": Column(pl.Float64, "BBR's min RTT, else the stack's, ms"),
    "srtt_ms": Column(pl.Float64, "smoothed RTT, ms"),
    "inflight_packets": Column(pl.Int64, "packets in flight (unacked - sacked - lost + retransmitted)"),
    "inflight_bdp": Column(pl.Float64, "in flight over BBR's own bandwidth estimate x min RTT; null without estimate"),
    "pacing_gain": Column(pl.Float64, "BBR's pacing gain; null where the control shows none"),
    "cwnd_gain": Column(pl.Float64, "BBR's cwnd gain; null where the control shows none"),
    "app_limited": Column(pl.Boolean, "latest delivery rate sample was application-limited"),
    "retransmits": Column(pl.Int64, "segments retransmitted so far"),
    "deficit_acks": Column(pl.Int64, "ACKs so far at which bbr_robust saw an inflight deficit; null elsewhere"),
    "state": Column(pl.String, "loss recovery state of the stack: open, disorder, cwr, recovery, loss"),
}

OFFTIMES: dict[str, Column] = {
    "run": Column(pl.String, "the run"),
    "kind": Column(pl.String, "timeslice: the thread could run; off: it wanted to and could not"),
    "duration_ms": Column(pl.Float64, "how long, ms"),
}


@dataclass
class Measured:
    """What one run leaves behind: rows for each table."""

    runs: list[dict[str, Any]]
    throughput: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    offtimes: list[dict[str, Any]] = field(default_factory=list)


def scenario_columns(run: Run) -> dict[str, Any]:
    """The columns of a run record that the scenario alone decides."""
    s = run.scenario
    return {
        "run": run.id,
        "scenario": s.hash,
        "repeat": run.repeat,
        "seed": s.seed,
        "flows": sum(group.count for group in s.flows),
        "bandwidth_mbps": s.path.bandwidth / 1e6,
        "rtt_ms": s.path.rtt / 1e6,
        "buffer_bytes": s.path.buffer_bytes,
        "loss": s.path.loss,
        "driver": s.contention.driver if s.contention.active else "none",
        "share": s.contention.share,
        "timeslice_ms": s.contention.timeslice / 1e6 if s.contention.active else None,
        "duration_s": s.duration / 1e9,
        "backend": s.backend,
        "kernel": s.kernel,
        "samples_ms": s.samples / 1e6 if s.samples else None,
        "brobust": brobust.__version__,
    }


def failed(run: Run, reason: str, started: datetime) -> Measured:
    """The record of a run that could not be measured: one row per group of flows, without figures."""
    return Measured(
        [
            {
                **scenario_columns(run),
                "flow": n,
                "cc": group.cc,
                "outcome": "failed",
                "reason": reason,
                "started_at": started,
            }
            for n, group in enumerate(run.scenario.flows)
        ]
    )


class Dataset:
    """A dataset directory, open for reading and appending."""

    def __init__(self, directory: Path):
        self.directory = directory

    @classmethod
    def create(cls, directory: Path, grid: Grid, host: Mapping[str, Any]) -> Dataset:
        if (directory / "dataset.json").exists():
            raise BadInput(f"{directory} already holds a dataset; add --resume to complete it or give another --out")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "scenario.toml").write_text(tomli_w.dumps(grid.fields))
            about = {"schema": SCHEMA_VERSION, "brobust": brobust.__version__, **host}
            _write_whole(directory / "dataset.json", json.dumps(about, indent=1).encode())
        except OSError as error:
            raise BadInput(f"--out {directory}: cannot be written ({error.strerror})") from None
        return cls(directory)

    @classmethod
    def open(cls, directory: Path) -> Dataset:
        try:
            about = json.loads((directory / "dataset.json").read_text())
        except (OSError, ValueError):
            raise BadInput(f"{directory} holds no dataset (no readable dataset.json in it)") from None
        if about.get("schema") != SCHEMA_VERSION:
            raise BadInput(
                f"{directory} has schema {about.get('schema')}, this brobust {brobust.__version__} reads "
                f"{SCHEMA_VERSION}; it was written by brobust {about.get('brobust')}"
            )
        return cls(directory)

    def grid(self) -> Grid:
        """The grid it was begun with."""
        return Grid(tomllib.loads((self.directory / "scenario.toml").read_text()))

    def finished(self) -> set[str]:
        """Runs that need not be done again: measured, faithfully or not. A failed one is tried again."""
        runs = self.runs()
        return set(runs.filter(pl.col("outcome") != "failed")["run"])

    def append(self, run: str, measured: Measured) -> None:
        """Add one run. Its row in runs/ comes last, so that a run is there with all it has or not at all."""
        tables: Sequence[tuple[str, list[dict[str, Any]], dict[str, Column]]] = (
            ("throughput", measured.throughput, THROUGHPUT),
            ("samples", measured.samples, SAMPLES),
            ("offtimes", measured.offtimes, OFFTIMES),
            ("runs", measured.runs, RUNS),
        )
        for name, rows, columns in tables:
            if rows:
                file = self.directory / name / f"{run}.parquet"
                file.parent.mkdir(exist_ok=True)
                content = io.BytesIO()
                frame(rows, columns).write_parquet(content)
                _write_whole(file, content.getvalue())

    def discard_if_empty(self) -> None:
        """Remove a dataset into which nothing was measured."""
        if not any(self.directory.glob("runs/*")):
            for name in ("scenario.toml", "dataset.json", "calibration.jsonl"):
                (self.directory / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it holds something of the user's
                self.directory.rmdir()

    def note_calibration(self, calibration: Mapping[str, Any]) -> None:
        with (self.directory / "calibration.jsonl").open("a") as file:
            file.write(json.dumps(dict(calibration)) + "\n")

    def runs(self) -> pl.DataFrame:
        return self._table("runs", RUNS)

    def throughput(self) -> pl.DataFrame:
        return self._table("throughput", THROUGHPUT)

    def samples(self) -> pl.DataFrame:
        return self._table("samples", SAMPLES)

    def offtimes(self) -> pl.DataFrame:
        return self._table("offtimes", OFFTIMES)

    def _table(self, name: str, columns: dict[str, Column]) -> pl.DataFrame:
        files = sorted((self.directory / name).glob("*.parquet"))
        if not files:
            return frame([], columns)
        return pl.concat([pl.read_parquet(file) for file in files])


def frame(rows: list[dict[str, Any]], columns: dict[str, Column]) -> pl.DataFrame:
    """Rows as a frame of exactly these columns; a missing value is null, a surplus one an error."""
    surplus = {key for row in rows for key in row} - set(columns)
    assert not surplus, f"not columns of this table: {sorted(surplus)}"
    return pl.DataFrame(rows, schema={name: column.dtype for name, column in columns.items()}, orient="row")


def _write_whole(file: Path, content: bytes) -> None:
    scratch = file.with_name(file.name + ".new")
    scratch.write_bytes(content)
    scratch.rename(file)
