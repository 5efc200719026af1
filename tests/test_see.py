"""A run can be looked into: as a timeline, and as an answer in words whose cause is known by construction."""

import dataclasses
import json
import math
import re
import shutil
import signal
import statistics
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pictures
import polars as pl
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

import brobust
import made_up
from brobust import api
from brobust.analysis import departures
from brobust.analysis.explain import Collapse, Explanation, Missed, _causes, _rounds, bandwidths, speed
from brobust.api import Result
from brobust.cli import main
from brobust.dataset import TABLES, Dataset, Measured, OneRun, captures, columns, find, recordings
from brobust.errors import BadInput
from brobust.explore.answers import Answers
from brobust.report import capture, explanation, over_time, trace
from brobust.scenario import Grid, Run
from brobust.scenario.grid import scenario
from conftest import BROBUST, eventually, refused
from test_contend import spinning
from test_watch import connection

ALL = {"samples": "ack", "packets": True}
BBR = {"flows": [{"cc": "bbr"}], "path": {"bandwidth": "20mbit", "buffer": "12bdp"}, "duration": "3s"}


@pytest.fixture(scope="module")
def lossy() -> Result:
    """A run in which everything happens: timeslices, losses, packets that are sent again."""
    fields = {**BBR, **ALL, "contention": {"share": 0.5}, "duration": "2s"}
    return brobust.run({**fields, "path": {**BBR["path"], "loss": 0.01}})  # type: ignore[dict-item]


@pytest.fixture(scope="module")
def repaired() -> Result:
    """A run in which a repair acts."""
    return brobust.run({**BBR, **ALL, "contention": {"share": 0.5}, "duration": "1s", "flows": [{"cc": "bbr_steady"}]})


class Timeline:
    """A trace, decoded by the package's own classes."""

    def __init__(self, file: Path):
        whole = perfetto.Trace.FromString(file.read_bytes())
        self.tracks = {
            one.track_descriptor.uuid: one.track_descriptor.name
            for one in whole.packet
            if one.HasField("track_descriptor")
        }
        self.events = [
            (self.tracks[one.track_event.track_uuid], one.timestamp, one.track_event)
            for one in whole.packet
            if one.HasField("track_event")
        ]

    def named(self, track: str) -> list[Any]:
        return [event for name, _, event in self.events if name == track]

    def counter(self, track: str) -> pl.DataFrame:
        points = [(at, event.double_counter_value) for name, at, event in self.events if name == track]
        return pl.DataFrame(points, schema={"ns": pl.Int64, "value": pl.Float64}, orient="row")


@pytest.mark.virtual
def test_a_timeline_has_what_the_run_has_recorded(lossy: Result, tmp_path: Path) -> None:
    counts = trace.write(lossy, tmp_path / "run.perfetto-trace")
    timeline = Timeline(tmp_path / "run.perfetto-trace")
    packets, slices = lossy.packets, lossy.offtimes.filter(pl.col("kind") == "timeslice")
    data, acks = (packets.filter(pl.col("direction") == kind) for kind in ("data", "ack"))

    kinds = Counter(event.type for event in timeline.named("CPU of sender 1"))
    assert kinds == {1: slices.height, 2: slices.height}  # begin and end
    sent = Counter(event.name for event in timeline.named("packets sent"))
    retransmits = lossy.runs["retransmits"][0]
    assert sent == {"sent": data.height - retransmits, "sent again": retransmits} and retransmits > 0
    assert len(timeline.named("packets lost")) == data["dropped"].sum() > 0
    assert len(timeline.named("packets arrived")) == data.height - data["dropped"].sum()
    assert len(timeline.named("ACKs arrived")) == acks["arrived_s"].drop_nulls().len()
    passed = [event for event in timeline.named("bottleneck") if event.type == 1]
    assert len(passed) == packets["left_s"].drop_nulls().len()
    assert counts == {
        "timeslices": slices.height, "packets": packets.height, "samples": lossy.samples.height,
        "throughput points": lossy.throughput.height,
    }  # fmt: skip
    assert {event.name for event in timeline.named("phase")} >= {"startup", "drain", "probe_bw: cruise"}

    # What is late is what `brobust explain` counts, and as late.
    missed = api.explain(lossy, lossy.run, tries=False).missed
    late = [(at, event) for name, at, event in timeline.events if name == "missed departures"]
    lags = timeline.counter("lag")
    begun = {at: float(event.name.removesuffix(" ms late")) for at, event in late if event.type == 1}
    ended = [at for at, event in late if event.type == 2]
    assert missed is not None and len(begun) == len(ended) == missed.departures > 20
    assert statistics.mean(begun.values()) == pytest.approx(missed.late_ms, abs=0.01)
    for (due, ms), at in zip(begun.items(), ended, strict=True):
        assert at - due == pytest.approx(ms * 1e6, abs=1e4)
        assert lags.filter(ns=at)["value"][0] == pytest.approx(ms, abs=0.01)
    assert timeline.named("catching up") == []  # there is no repair

    # A value that stays is written once: at each sample, the counter's last value is the sample's.
    for column, name, _ in trace.COUNTERS:
        at_samples = lossy.samples.select(ns=(pl.col("time_s") * 1e9).round().cast(pl.Int64), is_=pl.col(column))
        last = at_samples.drop_nulls().group_by("ns", maintain_order=True).last()
        seen = last.join_asof(timeline.counter(name).group_by("ns", maintain_order=True).last().sort("ns"), on="ns")
        assert seen["value"].to_list() == pytest.approx(seen["is_"].cast(pl.Float64).to_list()), column


@pytest.mark.virtual
def test_of_several_flows_one_may_have_sent_nothing_again(tmp_path: Path) -> None:
    flows = [{"cc": "bbr", "pattern": "rate 100kbit"}, {"cc": "cubic"}]
    run = brobust.run({**BBR, **ALL, "path": {"bandwidth": "50mbit"}, "duration": "1s", "flows": flows})
    assert run.runs["retransmits"][0] == 0 < run.runs["retransmits"][1]
    assert trace.write(run, tmp_path / "run.perfetto-trace")["packets"] == run.packets.height
    assert capture.write(run, tmp_path / "run.pcapng")["packets"] == run.packets.height


@pytest.mark.virtual
def test_a_timeline_shows_when_a_repair_catches_up(repaired: Result, tmp_path: Path) -> None:
    trace.write(repaired, tmp_path / "run.perfetto-trace")
    begins = [event.name for event in Timeline(tmp_path / "run.perfetto-trace").named("catching up") if event.type == 1]
    capture.write(repaired, tmp_path / "run.pcapng")
    comments = [comment for *_, comment in _pcapng(tmp_path / "run.pcapng")]
    acted = [comment for comment in comments if "the repair acted in this timeslice: paced at" in comment]
    timeslices = {found[1] for comment in acted if (found := re.search(r"timeslice (\d+):", comment))}
    assert set(begins) == {"a repair acts"} and len(begins) == len(timeslices) > 10
    assert len(acted) > 20


@pytest.mark.virtual
@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_wireshark_reads_the_comment_of_each_packet(lossy: Result, tmp_path: Path) -> None:
    capture.write(lossy, tmp_path / "run.pcapng")
    fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len", "-e", "frame.comment"]
    read = ["tshark", "-r", str(tmp_path / "run.pcapng"), *fields]
    shown = subprocess.run(read, capture_output=True, text=True, check=True).stdout.splitlines()
    seen = [(Decimal(time), int(length), comment) for time, length, comment in (line.split("\t") for line in shown)]
    ours = [(Decimal(at) / 10**9, length, comment) for at, length, _, comment in _pcapng(tmp_path / "run.pcapng")]
    assert seen == ours and sum("ms late: due at" in comment for *_, comment in seen) > 20


@pytest.mark.virtual
def test_frames_leave_the_bottleneck_one_after_the_other(lossy: Result, tmp_path: Path) -> None:
    trace.write(lossy, tmp_path / "run.perfetto-trace")
    times = [at for name, at, _ in Timeline(tmp_path / "run.perfetto-trace").events if name == "bottleneck"]
    assert times == sorted(times) and len(times) > 1000


def _pcapng(file: Path) -> list[tuple[int, int, bytes, str]]:
    """Return of each packet its time (ns), length, what was kept of it, and its comment (draft-ietf-opsawg-pcapng)."""
    content, at, packets, kinds = file.read_bytes(), 0, [], []
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        assert length % 4 == 0 and content[at + 4 : at + 8] == content[at + length - 4 : at + length]
        kinds.append(kind)
        if kind == 6:
            interface, high, low, kept, original = struct.unpack_from("<5I", content, at + 8)
            options, comment = at + 28 + kept + -kept % 4, ""
            while options < at + length - 4:
                code, size = struct.unpack_from("<HH", content, options)
                if code == 1:
                    comment = content[options + 4 : options + 4 + size].decode()
                options += 4 + size + -size % 4
            assert options == at + length - 4 and interface == 0
            packets.append((high << 32 | low, original, content[at + 28 : at + 28 + kept], comment))
        at += length
    assert at == len(content) and kinds[:2] == [0x0A0D0D0A, 1] and set(kinds[2:]) == {6}
    assert content[8:12] == b"\x4d\x3c\x2b\x1a"  # little-endian
    return packets


@pytest.mark.virtual
def test_a_capture_says_of_each_packet_in_which_timeslice_it_left_and_why_it_was_late(
    lossy: Result, tmp_path: Path
) -> None:
    counts = capture.write(lossy, tmp_path / "run.pcapng")
    packets = _pcapng(tmp_path / "run.pcapng")
    # The frames are those of the run's own capture, and every data packet has a comment.
    pcap, at, kept = lossy.pcap, 24, []
    assert pcap is not None
    while at < len(pcap):
        seconds, ns, size, length = struct.unpack_from("<4I", pcap, at)
        kept.append((seconds * 10**9 + ns, length, pcap[at + 16 : at + 16 + size]))
        at += 16 + size
    assert [packet[:3] for packet in packets] == kept
    data = lossy.packets.filter((pl.col("direction") == "data") & (pl.col("payload_bytes") > 0))
    commented = [(at, frame, comment) for at, _, frame, comment in packets if comment]
    assert counts == {"packets": len(packets), "comments": data.height} and len(commented) == data.height

    # What is late is what `brobust explain` calls a missed departure.
    missed = api.explain(lossy, lossy.run, tries=False).missed
    late = {}
    for at, _, comment in commented:
        if found := re.search(r"([\d.]+) ms late: due at ([\d.]+) s, but the CPU was away from ([\d.]+) to", comment):
            late[at] = tuple(map(float, found.groups()))
    assert missed is not None and len(late) == missed.departures > 20
    assert sum(ms for ms, _, _ in late.values()) / len(late) == pytest.approx(missed.late_ms, abs=0.01)
    for at, (ms, due_s, away_s) in late.items():
        assert at / 1e9 - due_s == pytest.approx(ms / 1e3, abs=1e-5) and due_s >= away_s
    # Linux makes up for at most half of a gap (tcp_update_skb_after_send); other trains follow a changed rate.
    repaid = [
        tuple(map(float, found.groups()))
        for _, _, comment in commented
        if (found := re.search(r"repays ([\d.]+) of [\d.]+ ms of lag: [\d.]+ ms after .* rate has (\d+\.\d+)", comment))
    ]
    assert len(repaid) > 20 and statistics.median(ms / gap for ms, gap in repaid) == pytest.approx(0.5, abs=0.02)

    # A packet that is sent again leads to the one that had the same bytes.
    sent = {}
    again = 0
    for at, frame, comment in commented:
        (seq,) = struct.unpack_from("!I", frame, 38)
        if found := re.match(r"retransmission: first sent ([\d.]+) ms before, at ([\d.]+) s", comment):
            assert float(found[2]) == pytest.approx(sent[seq] / 1e9, abs=1e-6)
            again += 1
        sent.setdefault(seq, at)
    assert again == lossy.runs["retransmits"][0]
    assert sum("does not arrive" in comment for *_, comment in commented) == data["dropped"].sum() > 0
    slices = lossy.offtimes.filter(pl.col("kind") == "timeslice").sort("start_s")
    for at, _, comment in commented[:: len(commented) // 50]:
        found = re.search(r"timeslice (\d+): ([\d.]+) to", comment)
        assert found is not None and float(found[2]) == pytest.approx(slices["start_s"][int(found[1]) - 1], abs=1e-6)
        assert (slices["start_s"] <= at / 1e9 + 1e-9).sum() == int(found[1])
    assert not any("the repair acted" in comment for *_, comment in commented)


def test_a_capture_needs_packets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _dataset(tmp_path / "data", ["abc-0"])
    line = refused(capsys, "trace", str(tmp_path / "data"), "-o", str(tmp_path / "no.pcapng"))
    assert "has no packets; `brobust run --packets` records them" in line and not (tmp_path / "no.pcapng").exists()
    line = refused(capsys, "trace", str(tmp_path / "data"), "-o", str(tmp_path / "no.pcap"))
    assert f"for packets give -o {tmp_path}/no.pcapng" in line and not (tmp_path / "no.pcap").exists()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with what was recorded of this host at the same time: host.jsonl and threads.parquet."""
    here = tmp_path_factory.mktemp("recorded")
    with connection() as (client, server), spinning() as pid:
        client.sendall(b"hello")
        which = ["--filter", f"dport {server.getsockname()[1]}", "--interval", "100ms", "--window", "400ms"]
        record = ["contend", "record", "--pid", str(pid), "--threads", str(pid), "--for", "100s"]
        with subprocess.Popen([BROBUST, *record, "-o", "threads.parquet"], cwd=here) as process:
            assert eventually((here / "threads.parquet").exists)
            watch = [BROBUST, "watch", "--json", "--record", "host.jsonl", "--count", "8", *which]
            said = subprocess.run(watch, cwd=here, check=True, stdout=subprocess.PIPE, text=True).stdout
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130 and said == (here / "host.jsonl").read_text()
    return here


def test_a_recorded_host_is_a_timeline_of_its_threads_and_sockets(recorded: Path, tmp_path: Path) -> None:
    threads, sockets = (recordings.read(recorded / name) for name in ("threads.parquet", "host.jsonl"))
    assert isinstance(threads, recordings.Threads) and isinstance(sockets, recordings.Sweeps)
    assert threads.begin_unix_s is not None and abs(threads.begin_unix_s - sockets.begin_unix_s) < 60
    counts = trace.write(sockets, tmp_path / "host.perfetto-trace", [threads])
    assert counts == {
        "sweeps": 8, "sockets": 1, "points": 8, "threads": 1, "intervals": threads.intervals.height,
    }  # fmt: skip
    timeline = Timeline(tmp_path / "host.perfetto-trace")
    (thread,) = (name for name in timeline.tracks.values() if name.startswith("thread "))
    kinds = Counter(event.name for event in timeline.named(thread) if event.type == 1)
    assert kinds == Counter(threads.intervals["kind"]) and kinds["running"] > 0
    # Each distance in time is the one on the host's clock.
    apart = round((threads.begin_unix_s - sockets.begin_unix_s) * 1e9)
    first = {name: min(at for track, at, _ in timeline.events if track == name) for name in (thread, "verdict")}
    known = threads.intervals["start_s"][0] * 1e9 + apart
    assert first[thread] - first["verdict"] == pytest.approx(known, abs=2) and min(first.values()) >= 0
    verdicts = [event.name for event in timeline.named("verdict") if event.type == 1]
    assert verdicts == [cause for cause, _ in groupby(sockets.flows["cause"])]
    for column, name, _ in trace.OF_SOCKET:
        changes = [value for value, _ in groupby(sockets.flows[column].drop_nulls())]
        assert timeline.counter(name)["value"].to_list() == pytest.approx(changes), name
    assert timeline.counter("cwnd")["value"][0] > 0 and timeline.counter("smoothed RTT")["value"][0] > 0


@pytest.mark.virtual
def test_a_recording_stands_beside_its_replay(recorded: Path, brobust: Callable[..., Any], tmp_path: Path) -> None:
    table = pl.read_parquet(recorded / "threads.parquet").head(1)
    off = [{"kind": "off", "start_s": number / 10, "duration_ms": 40.0} for number in range(10)]
    rows = [{**table.row(0, named=True), **interval} for interval in off]
    pl.DataFrame(rows, schema=table.schema).write_parquet(
        tmp_path / "vm.parquet", metadata={"begin_unix_s": "1800000000.5"}
    )
    options = "--cc bbr --replay vm.parquet --duration 1s --repeat 1 --out data"
    brobust("run", *options.split())
    done = brobust("trace", "data", "--beside", "vm.parquet", "-o", "both.perfetto-trace")
    assert done.returncode == 0 and "1 thread, 10 intervals" in done.stdout
    timeline = Timeline(tmp_path / "both.perfetto-trace")
    (thread,) = (name for name in timeline.tracks.values() if "thread" in name and "vm.parquet" not in name)
    away = [(at, event.type) for name, at, event in timeline.events if name == thread]
    ran = [at for name, at, event in timeline.events if name == "CPU of sender 1" and event.type == 1]
    ends = [at for at, kind in away if kind == 2]
    # The replay's CPU comes back when the recorded thread's did.
    assert len(ends) == 10 and all(min(abs(at - end) for at in ran) < 1000 for end in ends)
    assert any("from 2027-01-15 08:00:00 UTC" in name for name in timeline.tracks.values())


def test_recordings_of_other_times_files_that_are_none_and_runs_of_files_are_refused(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps = (recorded / "host.jsonl").read_text().splitlines()
    host = tmp_path / "host.jsonl"

    def refusal(text: str | bytes, *more: str) -> str:
        host.write_bytes(text.encode() if isinstance(text, str) else text)
        return refused(capsys, "trace", str(host), *more, "-o", str(tmp_path / "no.perfetto-trace"))

    later = [json.dumps({**json.loads(line), "time_unix_s": 1e9}) for line in sweeps]
    threads = str(recorded / "threads.parquet")
    assert "after the others had ended; give recordings of the same time" in refusal(
        "\n".join(later) + "\n", "--beside", threads
    )
    assert "is no recording; give a file of `brobust contend record` or" in refusal("hello\n")
    assert "line 2 is no sweep" in refusal(sweeps[0] + "\n{}\n")
    assert "line 1 is no sweep" in refusal(sweeps[0].replace('"interval_s":', '"interval_s":-') + "\n")
    assert "holds no sweep" in refusal("{")
    flow = json.loads(sweeps[0])
    flow["flows"][0]["cwnd_bytes"] = [1]
    assert "a field of another kind" in refusal(json.dumps(flow) + "\n")
    del flow["flows"][0]["cwnd_bytes"], flow["flows"][0]["cause"]
    assert "a socket without ends, control or cause" in refusal(json.dumps(flow) + "\n")
    pcapng = refused(capsys, "trace", threads, "-o", str(tmp_path / "no.pcapng"))
    assert "a recording has no packets; give -o FILE.perfetto-trace" in pcapng
    assert "is a file, which has no runs" in refusal("\n".join(sweeps) + "\n", "abc")
    assert "is damaged" in refusal((recorded / "threads.parquet").read_bytes()[:-50])
    pl.DataFrame({"thread": [1], "start_s": [0.0]}).write_parquet(host)
    assert "has no column vcpu and kind and duration_ms" in refusal(host.read_bytes())
    assert not (tmp_path / "no.perfetto-trace").exists()
    # The last line of a killed command may be half a one.
    host.write_text("\n".join(sweeps)[:-20])
    found = recordings.read(host)
    assert isinstance(found, recordings.Sweeps) and found.sweeps.height == len(sweeps) - 1


def test_a_recording_that_exists_is_not_overwritten(recorded: Path) -> None:
    before = (recorded / "host.jsonl").read_bytes()
    command = [BROBUST, "watch", "--count", "1", "--record", "host.jsonl"]
    done = subprocess.run(command, cwd=recorded, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--record: host.jsonl is there" in done.stderr
    assert (recorded / "host.jsonl").read_bytes() == before


def _dataset(directory: Path, runs: list[str]) -> Dataset:
    dataset = Dataset.create(directory, Grid.from_flags({"kernel": "virtual-6.12"}), {})
    plain = Run(scenario({"kernel": "virtual-6.12", "flows": [{"cc": "bbr"}], "contention": {"share": 0.5}}), repeat=0)
    for run in runs:
        dataset.append(run, Measured([{**row, "run": run} for row in made_up.rows(plain)]))
    return dataset


@pytest.mark.parametrize(
    ("table", "changes", "column"),
    [
        ("runs", {"bandwidth_mbps": 1e-9}, "bandwidth_mbps"),
        ("runs", {"duration_s": None}, "duration_s"),
        ("runs", {"buffer_bytes": -(2**63)}, "buffer_bytes"),
        ("runs", {"ip_version": 0}, "ip_version"),
        ("runs", {"flow": [0, 0]}, "flow"),
        ("runs", {"buffer_bytes": None}, "buffer_bytes"),
        ("runs", {"cross_load": None}, "cross_load"),
        ("runs", {"start_s": -1.0}, "start_s"),
        ("runs", {"stop_s": -1.0}, "start_s"),
        ("throughput", {"time_s": -1.0, "flow": 0, "throughput_mbps": 1.0}, "time_s"),
        ("throughput", {"time_s": math.nan, "flow": 0, "throughput_mbps": 1.0}, "time_s"),
        ("offtimes", {"start_s": math.inf, "duration_ms": 1.0, "sender": 1, "kind": "off"}, "start_s"),
        ("samples", {"time_s": None, "flow": 0}, "time_s"),
    ],
)
def test_a_run_with_numbers_that_none_can_have_is_refused_by_their_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], table: str, changes: dict[str, Any], column: str
) -> None:
    """Of a stranger's dataset they were mistakes in brobust: a division by 0, or a year that no calendar has."""
    dataset = _dataset(tmp_path / "one", ["abc-0"])
    file = tmp_path / "one" / table / "part-0000001-0000001.parquet"
    file.parent.mkdir(exist_ok=True)
    rows = dataset.runs() if table == "runs" else columns.frame([{"run": "abc-0"}], TABLES[table])
    changed = [pl.Series(name, value, dtype=rows.schema[name]) if isinstance(value, list) else
               pl.lit(value, dtype=rows.schema[name]).alias(name) for name, value in changes.items()]  # fmt: skip
    rows = pl.concat([rows] * 2) if column == "flow" else rows
    rows.with_columns(*changed, part=pl.lit(1, dtype=pl.Int64)).write_parquet(file)
    refusal = refused(capsys, "trace", str(dataset.directory), "-o", str(tmp_path / "no.perfetto-trace"))
    assert (
        f"run abc-0: its table {table} of {dataset.directory} has an impossible {column}; measure it again" in refusal
    )


def test_a_run_is_named_by_the_beginning_of_its_id_or_is_the_only_one(tmp_path: Path) -> None:
    two = _dataset(tmp_path / "two", ["abc-0", "abd-10", "abd-1"])
    assert [find(two, name).id for name in ("abc", "abd-1", "abd-10")] == ["abc-0", "abd-1", "abd-10"]
    assert find(_dataset(tmp_path / "one", ["abc-0"]), None).id == "abc-0"


@pytest.mark.parametrize("command", ["trace", "explain"])
def test_a_run_that_is_not_one_is_refused_with_the_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    _dataset(tmp_path / "two", ["abc-0", "abd-0"])
    several = refused(capsys, command, str(tmp_path / "two"))
    assert "holds 2 runs" in several and "abc-0 (bbr, 50% CPU); abd-0" in several
    assert "holds 2 such runs; give one of abc-0" in refused(capsys, command, str(tmp_path / "two"), "ab")
    assert "no such run; give one of abc-0 (" in refused(capsys, command, str(tmp_path / "two"), "7")
    none = _dataset(tmp_path / "none", [])
    assert "none holds no run; measure one with `brobust run`" in refused(capsys, command, str(none.directory))
    none.append("abc-0", Measured([{"run": "abc-0", "flow": 0, "outcome": "failed", "reason": "it panicked"}]))
    said = refused(capsys, command, str(none.directory))
    assert "run abc-0 failed: it panicked; nothing of it was measured" in said


def test_runs_that_can_be_chosen_are_named_by_what_differs(tmp_path: Path) -> None:
    contention = {"share": 0.5, "start": ["0s", "2s"]}
    grids = [{"flows": [{"stop": "3s"}]}, {"seed": 2}]
    grid = Grid({"kernel": "virtual-6.12", "contention": contention, "grids": grids, "repeat": 1})
    dataset = made_up.dataset(tmp_path / "a", grid)
    with pytest.raises(BadInput, match="holds 4 runs; give one of ") as refusal:
        find(dataset, None)
    for run in grid.runs():
        start = "0s" if run.scenario.contention.start == 0 else "2s"
        stop = "flows.stop 3s, seed 1" if run.scenario.seed == 1 else "no flows.stop, seed 2"
        words = f"{run.id} (cubic, 50% CPU, contention.start {start}, {stop})"
        assert words in str(refusal.value)
        assert find(dataset, run.id).run() == run


def test_runs_that_are_only_counted_tell_those_apart_that_are_named(tmp_path: Path) -> None:
    grid = Grid({"kernel": "virtual-6.12", "path": {"buffer": ["2bdp", "4bdp"]}, "repeat": 7})
    dataset = made_up.dataset(tmp_path / "a b", grid)
    with pytest.raises(BadInput) as refusal:
        find(dataset, None)
    first = min(run.id for run in grid.runs())
    buffer = next(run.scenario.path.buffer for run in grid.runs() if run.id == first)
    assert f"{first} (cubic, 100% CPU, path.buffer {buffer}); " in str(refusal.value)
    assert str(refusal.value).endswith(f"and 8 more; `brobust explore '{tmp_path}/a b'` shows them all")


@pytest.mark.virtual
def test_what_was_not_recorded_is_named_with_its_options(brobust: Callable[..., Any], tmp_path: Path) -> None:
    brobust("run", "--cc", "bbr", "--share", "0.5", "--duration", "1s", "--repeat", "1", "--out", "data")
    done = brobust("trace", "data", "-o", "run.perfetto-trace")
    assert done.returncode == 0 and (tmp_path / "run.perfetto-trace").stat().st_size > 1000
    assert "not recorded: packets, samples; `brobust run --packets --samples ack` records them" in done.stdout


def test_a_run_of_a_vm_has_timeslices_from_before_its_traffic_and_can_record_no_packets(tmp_path: Path) -> None:
    (requested,) = Grid({"backend": "vm", "kernel": "debian-6.12", "contention": {"share": 0.5}}).runs()
    slices = [
        {"run": requested.id, "sender": 1, "vcpu": 0, "kind": "timeslice", "start_s": start, "duration_ms": 10.0}
        for start in (None, -0.025, -0.005, 0.015)
    ]
    rows = made_up.rows(requested, throughput_mbps=5.0, effective_share=0.5)
    run = Result(requested, Measured(rows, offtimes=slices))
    assert trace.write(run, tmp_path / "run.perfetto-trace")["timeslices"] == 2
    times = [at for name, at, _ in Timeline(tmp_path / "run.perfetto-trace").events if name.startswith("CPU of")]
    assert times == [0, 5_000_000, 15_000_000, 25_000_000]
    found = api.explain(run, requested)
    assert found.causes == ["cpu"] and found.unseen == ["application"]
    assert "`brobust run --samples 10ms` does" in explanation.sentences(found)[-1]


def test_of_a_flow_of_udp_only_what_its_program_may_tell_is_asked_for() -> None:
    """Nobody else knows what it has in flight, and no packet says what its peer admits."""

    def last_words(traffic: str, **more: Any) -> str:
        programs = {"programs": {"sender": "a", "receiver": "b"}} if traffic == "programs" else {}
        given = {"traffic": traffic, "flows": [{"cc": "bbr"}], "contention": {"share": 0.5}, **programs, **more}
        (requested,) = Grid({"kernel": "virtual-6.12", **given}).runs()
        found = api.explain(
            Result(requested, Measured(made_up.rows(requested, throughput_mbps=5.0, effective_share=0.5))),
            requested, tries=False,
        )  # fmt: skip
        return explanation.sentences(found)[-1]

    for traffic in ("programs", "quic:quinn"):
        words = r"What would show the application was not recorded; `brobust run --samples ack` takes it from the qlog "
        assert re.match(words, last_words(traffic))
        assert last_words(traffic, samples="ack").startswith("Nothing was tried")  # it was asked for, and wrote none
    assert last_words("quic:s2n-quic").startswith("Nothing was tried")
    assert "receiver's window was not recorded; `brobust run --samples ack --packets` does" in last_words("brobust")


@pytest.mark.parametrize(
    ("backend", "options"),
    [("virtual", "--samples ack --packets"), ("vm", "--samples 10ms"), ("lab", "--samples 10ms")],
)
def test_what_was_not_recorded_is_said_unless_the_cause_was_tried(backend: str, options: str) -> None:
    found = Explanation("a-0", 0, "bbr", 1, 5.0, 19.1, 0.3, {"cross": {"load": 0.2}}, ["window"], backend=backend)
    words = f"What would show the receiver's window was not recorded; `brobust run {options}` does."
    for more, is_said in (({}, True), ({"causes": ["cross"]}, False), ({"causes": ["cross"], "not_tried": "x"}, True)):
        assert (words in explanation.sentences(dataclasses.replace(found, **more))) == is_said


def test_a_window_that_was_never_full_limits_nothing() -> None:
    """A QUIC stack's pacer keeps the data, and its window grows."""
    given = {"kernel": "virtual-6.12", "traffic": "quic:quinn", "flows": [{"cc": "cubic"}], "samples": "ack"}
    (requested,) = Grid({**given, "contention": {"share": 0.5}}).runs()
    rows = made_up.rows(requested, throughput_mbps=5.0, effective_share=0.5)
    for in_flight, limits in ((27, False), (480, True)):
        samples = [
            {"run": requested.id, "flow": 0, "time_s": second / 10, "cwnd_packets": 490,
             "inflight_packets": in_flight if second % 5 else 1}
            for second in range(100)
        ]  # fmt: skip
        found = api.explain(Result(requested, Measured(rows, samples=samples)), requested, tries=False)
        said = "What limits it now is its congestion window, 490 packets in the median."
        assert (said in explanation.sentences(found)) == limits


def _path(**more: Any) -> dict[str, Any]:
    return {"bandwidth": "20mbit", "rtt": "20ms", "buffer": "4bdp", **more}


HALF, SHORT = {"share": 0.5}, {"share": 0.25}
FAST = _path(bandwidth="100mbit", rtt="40ms", buffer="0.05bdp")
KNOWN: dict[str, tuple[dict[str, Any], list[str]]] = {
    "timeslices of 10 ms": ({"cc": "bbr", "path": _path(buffer="12bdp"), "contention": HALF}, ["cpu"]),
    "timeslices of 1 ms": ({"cc": "bbr", "path": _path(), "contention": {"share": 0.2, "timeslice": "1ms"}}, ["cpu"]),
    "timeslices, BBR version 3": ({"cc": "brb_bbr3", "path": _path(), "contention": {"share": 0.4}}, ["cpu"]),
    "off-times that no buffer outlasts": (
        {"cc": "cubic", "path": _path(), "contention": {"share": 0.1, "timeslice": "50ms"}}, ["cpu"],
    ),
    "loss of 0.5 %": ({"cc": "cubic", "path": _path(loss=0.005)}, ["loss"]),
    "loss of 2 %": ({"cc": "reno", "path": _path(loss=0.02)}, ["loss"]),
    "loss of 25 %, BBR": ({"cc": "bbr", "path": _path(loss=0.25)}, ["loss"]),
    "loss under contention, CUBIC": (
        {"cc": "cubic", "path": _path(buffer="12bdp", loss=0.01), "contention": {"share": 0.4}}, ["loss"],
    ),
    "loss under contention, BBR": (
        {"cc": "bbr", "path": _path(buffer="12bdp", loss=0.01), "contention": {"share": 0.4}}, ["cpu"],
    ),
    "loss under contention, BBR that no loss slows": (
        {"cc": "bbr_steady", "path": _path(bandwidth="100mbit", rtt="10ms", buffer="12bdp", loss=0.01),
         "contention": {"share": 0.4}}, ["link"],
    ),
    "loss under contention, either": (  # a repair that every loss slows
        {"cc": "bbr_steady:steady_loss=1000", "path": _path(bandwidth="100mbit", rtt="10ms", buffer="12bdp", loss=0.01),
         "contention": {"share": 0.4}}, ["cpu", "loss"],
    ),
    "a buffer of 0.05 BDP, CUBIC": ({"cc": "cubic", "path": FAST}, ["buffer"]),
    "a buffer of 0.05 BDP, Reno": ({"cc": "reno", "path": FAST}, ["buffer"]),
    "a buffer of 0.05 BDP behind another one": (
        {"cc": "cubic", "path": {**FAST, "buffer": "1bdp", "second_bandwidth": "50mbit", "second_buffer": "0.05bdp"}},
        ["buffer"],
    ),
    "an application of 5 Mbit/s": ({"cc": "cubic", "pattern": "rate 5mbit", "path": _path()}, ["application"]),
    "an application of 5 Mbit/s, BBR": ({"cc": "bbr", "pattern": "rate 5mbit", "path": _path()}, ["application"]),
    "an application that pauses": ({"cc": "bbr", "pattern": "onoff 100ms 400ms", "path": _path()}, ["application"]),
    "a receiver with 10 % of its CPU": (
        {"cc": "cubic", "path": _path(), "receiver": {"share": 0.1, "timeslice": "20ms"}}, ["receiver"],
    ),
    "a phone's core": ({"cc": "bbr", "path": _path(bandwidth="1gbit"), "cpu": {"frequency": "300MHz"}}, ["work"]),
    "a full path": ({"cc": "cubic", "path": _path()}, ["link"]),
    "a full path under contention": ({"cc": "bbr_steady", "path": _path(buffer="12bdp"), "contention": HALF}, ["link"]),
}  # fmt: skip


def _measured(fields: dict[str, Any], **more: Any) -> Result:
    fields = {"duration": "4s", **fields, **more}
    flow = {key: fields.pop(key) for key in ("cc", "pattern") if key in fields}
    return brobust.run({**fields, "flows": [flow]})


@cache
def _known(name: str) -> Result:
    return _measured(KNOWN[name][0])


@pytest.mark.virtual
@pytest.mark.parametrize("known", KNOWN)
def test_the_cause_of_a_run_is_the_one_it_was_given(known: str) -> None:
    result = _known(known)
    assert api.explain(result, result.run).causes == KNOWN[known][1], result.explain()


@pytest.mark.virtual
@pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3")
@pytest.mark.parametrize(("ip_version", "recorded"), [(4, ALL), (6, ALL), (4, {})])
def test_a_window_of_the_receiver_is_seen_in_the_packets(ip_version: int, recorded: dict[str, Any]) -> None:
    """Also of a run without packets, which is measured again with them."""
    ends = {"sender": "iperf3 -c {receiver} -p {port} -t 2 -w 32K -C {cc}", "receiver": "iperf3 -s -1 -p {port}"}
    path = _path(bandwidth="50mbit", ip_version=ip_version)
    result = _measured({"cc": "cubic", "path": path}, **recorded, traffic="programs", programs=ends, duration="2s")
    found = api.explain(result, result.run)
    assert found.causes == ["window"] and 20_000 < found.signs["window"]["window_bytes"] < 40_000


def test_a_frame_finds_its_row_past_frames_that_the_table_lacks() -> None:
    frames = [(1000, 1514), (2000, 66), (2000, 1514), (3000, 66)]
    header = struct.pack("<I20x", 0xA1B23C4D)
    captured = header + b"".join(struct.pack("<4I", 0, at, 2, length) + b"ab" for at, length in frames)
    packets = pl.DataFrame({"time_s": [2e-6, 3e-6], "frame_bytes": [1514, 66], "seq": 0, "ack": 0})
    found = list(captures.with_rows(captured, packets, "abc-0"))
    assert found == [(row, *frame, b"ab") for row, frame in zip([None, None, 0, 1], frames, strict=True)]
    with pytest.raises(BadInput, match="its capture and its table of packets differ"):
        list(captures.with_rows(captured, packets.with_columns(frame_bytes=65), "abc-0"))


def _ack(source: int, target: int, seq: int, ack: int, flags: int) -> bytes:
    """Return a frame of TCP without payload between these ports."""
    ip = b"\x08\x00\x45" + bytes(8) + b"\x06" + bytes(10)
    return bytes(12) + ip + struct.pack("!HHIIBBHI", source, target, seq, ack, 0x50, flags, 100, 0)


def test_of_two_frames_of_one_time_and_length_a_row_gets_its_own() -> None:
    """The cross traffic's ACKs leave with the flow's when the receiver has its CPU again."""
    syns = [_ack(9, 1, 500, 0, 2), _ack(1, 9, 700, 501, 18), _ack(9, 2, 50, 0, 2), _ack(2, 9, 100, 51, 18)]
    frames = [*enumerate(syns), (5, _ack(2, 9, 101, 77, 16)), (5, _ack(1, 9, 701, 901, 16))]
    captured = struct.pack("<I20x", 0xA1B23C4D) + b"".join(
        struct.pack("<4I", 0, at, len(frame), len(frame)) + frame for at, frame in frames
    )
    rows = {"time_s": [0.0, 1e-9, 5e-9], "frame_bytes": len(syns[0]), "seq": [0, 0, 1], "ack": [0, 1, 401]}
    found = [row for row, *_ in captures.with_rows(captured, pl.DataFrame(rows), "abc-0")]
    assert found == [0, 1, None, None, None, 2]
    # Numbers that fit nowhere are those of a version that counted in another way: then time and length say it.
    other = pl.DataFrame(rows).with_columns(seq=9)
    assert [row for row, *_ in captures.with_rows(captured, other, "abc-0")] == [0, 1, None, None, 2, None]


@pytest.mark.virtual
@pytest.mark.parametrize(
    "more",
    [
        {"cross_traffic": {"load": 0.3, "size": "20kB"}},
        pytest.param(
            {"traffic": "iperf3"},  # whose connection of control is in the capture only
            marks=pytest.mark.skipif(shutil.which("iperf3") is None, reason="no iperf3"),
        ),
    ],
)
def test_frames_of_no_flow_are_no_sign_of_a_window(more: dict[str, Any]) -> None:
    result = _measured({"cc": "bbr", "contention": HALF}, **ALL, **more, duration="2s")
    assert "window" not in api.explain(result, result.run, tries=False).signs


@pytest.mark.virtual
def test_without_tries_two_signs_leave_it_open_and_one_decides() -> None:
    said = _known("loss under contention, CUBIC").explain(tries=False)
    assert re.search(r"does not decide between the CPU that is taken from the sender \(.*\) and random loss on", said)
    said = _known("timeslices of 10 ms").explain(tries=False)
    assert "The only cause of which there is a sign is the CPU that is taken from the sender: it was there for" in said


@pytest.mark.parametrize(
    ("duration", "mbps", "why"),
    [
        ("120.4s", 1.0, "it has 120.4 s, more than 120 s"),
        ("120s", 1.0, None),
        ("10s", 1159.0, "it has 1,000,518 packets, more than 1,000,000"),
        ("10s", 1158.0, None),
    ],
)
def test_a_run_that_is_a_little_too_large_to_be_tried_is_not_said_to_be_as_large_as_is_allowed(
    monkeypatch: pytest.MonkeyPatch, duration: str, mbps: float, why: str | None
) -> None:
    monkeypatch.setattr(api.backends, "check", lambda *_, **__: None)
    requested = Run(scenario=scenario({"duration": duration}), repeat=0)
    run = Result(requested, Measured(made_up.rows(requested, throughput_mbps=mbps)))
    assert api._why_not_tried(run, requested, tries=True) == why


def test_what_shows_a_sign_stands_with_its_cause() -> None:
    signs: dict[str, dict[str, Any]] = {
        "cpu": {"share": 0.5, "on_ms": 10.0, "off_ms": 10.0}, "buffer": {"packets": 56.0, "bytes": 25000, "bdp": 1.0},
    }  # fmt: skip
    cpu = "the CPU that is taken from the sender (it was there for 50% of the time, 10 ms on and 10 ms off in the mean)"
    both = f"{cpu} and the bottleneck's buffer (56 packets found its 25 kB, 1 BDP, full)"
    three = {**signs, "cross": {"load": 0.2}}
    said = explanation.sentences(Explanation("a-0", 0, "bbr", 1, 5.0, 19.1, 0.3, three, []))[1]
    assert said.endswith(" BDP, full) and the cross traffic (it offers 20% of the bandwidth).") and "mean), the" in said
    untried = Explanation("a-0", 0, "bbr", 1, 5.0, 19.1, 0.3, signs, [])
    tried = dataclasses.replace(untried, tried={"--share 1": 5.1, "--buffer 100000B": 5.0})
    assert explanation.sentences(untried)[1] == f"The data does not decide between {both}."
    said = explanation.sentences(tried)
    assert f"there are signs of {both}, but no run without one of these carries 1.2 times as much." in said[1]
    assert said[2] == "Measured with one change, Mbit/s: 5.1 with --share 1, 5 with --buffer 100000B."
    of_requests = {"--cc bbr": None, "--loss 0": 12.5, "--share 1": 7.0}
    asked = dataclasses.replace(tried, requests=3, request_ms=12.5, tried_request_ms=of_requests)
    said = explanation.sentences(asked)
    assert said[1] == "The run's programs asked 3 times, and they took 12.5 ms in the median."
    assert said[2].endswith(" but no run without one of these answers 1.2 times as fast.")
    changes = "7 with --share 1, 12.5 with --loss 0, no answer with --cc bbr"
    assert said[3:] == [f"The median request, measured with one change, ms: {changes}."]
    unanswered = dataclasses.replace(untried, requests=1)
    assert explanation.sentences(unanswered)[1] == "The run's programs asked 1 time, and most had no answer."
    fast = dataclasses.replace(untried, throughput_mbps=1234.5, possible_mbps=1912.4)
    assert explanation.sentences(fast)[0].endswith("carried 1230 Mbit/s on a path that has room for 1910.")
    together = dataclasses.replace(tried, causes=["cpu", "buffer"])
    assert f"The cause is {both} together, since" in explanation.sentences(together)[1]


@pytest.mark.parametrize(
    ("cause", "sign", "said"),
    [
        (
            "link",
            {"part": 1.004},
            "the path itself: it is 100% full in the second half of the flow's time, and 90% counts",
        ),
        ("application", {"limited": 0.6}, ": 60% of the delivery rate samples were application-limited."),
        ("application", {"idle": 0.3}, "the application: nothing was in flight for 30% of the second half."),
        ("application", {"written_mbps": 5.0}, "the application: it writes 5 Mbit/s, and these arrive."),
        ("window", {"full": 0.8, "window_bytes": 61440}, ": 80% of the data packets went up to the end of a window of"),
        ("receiver", {"share": 0.1}, "the receiver's CPU: it has its CPU for 10% of the time, and ACKs wait for it."),
        ("work", {"busy": 0.95}, "the work of sending, for the sender's CPU: it was busy for 95% of the run."),
        ("loss", {"packets": 12.4, "part": 0.0123}, ": the path lost 12 packets, 1.23%, although there was room."),
        ("buffer", {"packets": 1, "bytes": None, "bdp": None}, ": 1 packet found that of one of the two full."),
        ("buffer", {"packets": 3, "bytes": 30_000, "bdp": 1.234}, ": 3 packets found its 30 kB, 1.2 BDP, full."),
        ("buffer", {"packets": 3, "bytes": 0, "bdp": 0.0}, ": 3 packets found no room, since it queues none."),
        ("cpu", {"share": 0.5, "on_ms": None, "off_ms": 9.0}, "from the sender: it was there for 50% of the time."),
        ("cross", {"load": 0.2}, "the cross traffic: it offers 20% of the bandwidth."),
    ],
)
def test_a_cause_is_said_with_what_shows_it(cause: str, sign: dict[str, Any], said: str) -> None:
    found = Explanation("a-0", 0, "bbr", 1, 5.0, 19.1, 0.3, {cause: sign}, [], [cause])
    assert explanation.sentences(found)[1].startswith("The cause is ") and said in explanation.sentences(found)[1]
    untried = explanation.sentences(dataclasses.replace(found, not_tried="it is too long"))
    if cause in ("link", "application", "window"):  # these decide
        assert untried[1].startswith("The cause is ") and untried[2:] == []
    else:
        assert untried[1].startswith("The only cause of which there is a sign is ") and said in untried[1]
        assert untried[2:] == ["Nothing was tried: it is too long."]
    nothing = dataclasses.replace(found, signs={}, causes=[])
    assert explanation.sentences(nothing)[1].startswith("The data shows no cause: there is no sign of any")


@pytest.mark.parametrize(
    ("pacing", "made_up_ms", "oracle_mbps", "said"),
    [
        (
            "kernel",
            2.5,
            17.0,
            ["of which Linux makes up for at most 2.5 ms (half a gap).", "carries more than 17 Mbit"],
        ),
        ("kept lag=5ms", 5.0, 17.18, ["of which the kept schedule makes up for at most 5 ms.", "no sender carries mo"]),
        ("linux-4.14", 0.0, 17.2, ["of which pacing as in Linux 4.14 makes up for nothing.", "are not the limit: the"]),
        (
            "draft",
            0.0,
            19.0,
            ["of which pacing as in the draft makes up for nothing.", "best possible sender carries 19"],
        ),
    ],
)
def test_how_the_cpu_slows_a_flow_down_is_said_where_it_is_the_cause(
    pacing: str, made_up_ms: float, oracle_mbps: float, said: list[str]
) -> None:
    signs: dict[str, dict[str, Any]] = {"cpu": {"share": 0.5, "on_ms": 10.0, "off_ms": 10.0}, "cross": {"load": 0.2}}
    missed = Missed(0.5, 9.0, 20, 15, 8.0, made_up_ms, pacing)
    fell = Collapse(18.0, 1.0, 4.5, 2.5, 40)
    more = {"oracle_mbps": oracle_mbps, "missed": missed, "collapse": fell, "pacing_rate_mbps": 4.6}
    found = Explanation("a-0", 0, "bbr", 1, 5.0, 19.1, 0.3, signs, [], ["cpu"], **more)
    first, second, third, last = explanation.sentences(found)[2:]
    departures = "missed at 0.5000 s, by 9 ms; 15 of 20 off-times had one, 8 ms late in the mean, " + said[0]
    assert departures in first and said[1] in third
    assert second.endswith("followed: from 18 Mbit/s at 1.00 s to 4.5 in 40 round trips (1.5 s).")
    assert last == "What limits it now is its own pacing rate, 4.6 Mbit/s in the median."
    assert explanation.sentences(dataclasses.replace(found, causes=["cross"]))[2:] == [last]
    full = dataclasses.replace(found, causes=["link"], signs={"link": {"part": 1.0}})
    assert explanation.sentences(full)[2:] == []


def _explained(
    fields: dict[str, Any], tables: dict[str, list[dict[str, Any]]] | None = None, flow: int = 0, **measured: Any
) -> Explanation:
    """Explain a run of this scenario that nobody has measured, with these columns and rows of its tables."""
    (requested,) = Grid({"kernel": "virtual-6.12", "repeat": 1, **fields}).runs()
    made = {name: [{"run": requested.id, **row} for row in rows] for name, rows in (tables or {}).items()}
    run = Result(requested, Measured(made_up.rows(requested, **measured), **made))  # type: ignore[arg-type]
    return api.explain(run, requested, flow, tries=False)


def _every_100_ms(**columns: Any) -> list[dict[str, Any]]:
    """Return a sample for each tenth of a second of ten; a column may be a function of the sample's number."""
    return [
        {"flow": 0, "time_s": number / 10, **{name: of(number) if callable(of) else of for name, of in columns.items()}}
        for number in range(100)
    ]


ONOFF = {"flows": [{"cc": "bbr", "pattern": "onoff 1s 1s"}]}
FIVE = {"flows": [{"cc": "bbr", "pattern": "rate 5mbit"}]}


@pytest.mark.parametrize(
    ("cause", "fields", "measured", "little_less"),
    [
        ("link", {}, {"throughput_mbps": 0.901 * 20 * 1448 / 1514}, {"throughput_mbps": 0.899 * 20 * 1448 / 1514}),
        ("application", FIVE, {"throughput_mbps": 4.51}, {"throughput_mbps": 4.49}),
        ("cpu", {}, {"effective_share": 0.949}, {"effective_share": 0.951}),
        ("receiver", {}, {"receiver_share": 0.949}, {"receiver_share": 0.951}),
        ("work", {}, {"cpu_busy_share": 0.901}, {"cpu_busy_share": 0.899}),
        ("cross", {}, {"cross_load": 0.01}, {"cross_load": 0.0}),
        # 10 Mbit/s are 863 packets in a second, 86,326 in a hundred.
        ("loss", {"path": {"loss": 1e-4}, "duration": "100s"}, {"drops": 9}, {"drops": 8}),
        ("loss", {"path": {"loss": 1e-3}, "duration": "1s"}, {"drops": 140}, {"drops": 130}),
        ("buffer", {}, {"drops": 1}, {"drops": 0}),
        # 8,633 packets, of which 1 % are 87.3, and three standard deviations of that 28.
        ("buffer", {"path": {"loss": 0.01}}, {"drops": 120}, {"drops": 112}),
    ],
)
def test_a_sign_is_seen_from_its_bound_on(
    cause: str, fields: dict[str, Any], measured: dict[str, Any], little_less: dict[str, Any]
) -> None:
    """The bounds are those of the table in docs/see.md."""
    seen, unseen = (_explained(fields, **{"throughput_mbps": 10.0, **columns}) for columns in (measured, little_less))
    assert cause in seen.signs and cause not in unseen.signs


def test_where_packets_were_recorded_the_queue_tells_a_random_loss_from_a_full_buffer() -> None:
    sent = [_data(at / 10, dropped=False) for at in range(97)]
    lost = [_data(9.9, dropped=True, queue_bytes=queue) for queue in (0, 9_000, 59_500)]
    for loss, of_loss in ((0.01, {"packets": 2.0, "part": 0.02}), (0, None)):
        found = _explained({"path": {"buffer": "60kB", "loss": loss}}, {"packets": [*sent, *lost]}, drops=3)
        assert found.signs.get("loss") == of_loss
        assert found.signs["buffer"] == {"packets": 1.0, "bytes": 60_000, "bdp": 2.4, "aqm": None}


def test_of_what_a_queue_management_drops_its_name_is_said() -> None:
    found = _explained({"path": {"aqm": "codel target=10ms"}}, drops=5)
    assert (
        "The only cause of which there is a sign is the bottleneck's buffer: its queue management, codel, dropped 5 "
        in (explanation.sentences(found)[1])
    )


def test_what_decides_about_the_application_is_the_second_half_without_off_times() -> None:
    for start, half in (("0s", 50), ("4s", 70)):
        for more in (0, 1):  # than half of the samples from there on
            limited = half + (100 - half) // 2 + more
            samples = _every_100_ms(app_limited=lambda number, limited=limited: number < limited)
            late = {"flows": [{**ONOFF["flows"][0], "start": start}]}
            assert ("application" in _explained(late, {"samples": samples}).signs) == bool(more)
    # Our own source always has data, who is busy with sending has no time to write, a server waits until it is asked.
    limited = {"samples": _every_100_ms(app_limited=True)}
    for fields, measured in (({}, {}), (ONOFF, {"cpu_busy_share": 0.95}), (ONOFF, {"requests": 3})):
        assert "application" not in _explained(fields, limited, **measured).signs
    # Nothing in flight from the sample at 6 s until the next packet, of 5 s.
    nothing = _every_100_ms(inflight_packets=lambda number: 0 if number == 60 else 9)
    off = [{"sender": 1, "kind": "timeslice", "start_s": at, "duration_ms": ms} for at, ms in ((0, 6200), (6.4, 3600))]
    for until_s, off_times, is_idle in ((7.0, [], False), (7.1, [], True), (7.1, off, False)):
        packets = [_data(0.0), _data(until_s)]
        tables = {"samples": nothing, "packets": packets, "offtimes": off_times}
        assert ("application" in _explained(ONOFF, tables).signs) == is_idle


def _data(time_s: float, size: int = 1250, **more: Any) -> dict[str, Any]:
    return {"flow": 0, "time_s": time_s, "direction": "data", "payload_bytes": size, "frame_bytes": size + 66, **more}


@pytest.mark.parametrize(
    ("own", "other", "before", "decides"),
    [
        (4.7, 13.0, 17.7, False),  # half of an equal part of 19.1 are 4.8
        (4.9, 13.0, 17.7, True),
        (4.9, 13.0, 15.1, True),  # 17.9 is 1.2 times 14.9
        (4.9, 13.0, 14.8, False),
    ],
)
def test_a_full_path_decides_only_if_the_flow_has_its_part_and_it_was_as_full_before(
    own: float, other: float, before: float, decides: bool
) -> None:
    rates = [{"flow": flow, "time_s": 10.0, "throughput_mbps": mbps} for flow, mbps in enumerate((own, other))]
    flows = {"flows": [{"cc": "bbr"}, {"cc": "cubic"}]}
    found = _explained(flows, {"throughput": rates}, throughput_mbps=before / 2, effective_share=0.5)
    assert found.causes == (["link"] if decides else [])
    assert found.signs["link"]["part"] == pytest.approx((own + other) / (20 * 1448 / 1514))


def test_an_equal_part_is_that_of_the_flows_that_send_at_the_time() -> None:
    """The other one has stopped for four fifths of the second half: 1 / 1.2 of 19.1 Mbit/s, and half of that are 8."""
    flows = {"flows": [{"cc": "bbr"}, {"cc": "cubic", "stop": "6s"}]}
    for own, decides in ((7.9, False), (8.1, True)):
        rates = [{"flow": flow, "time_s": at, "throughput_mbps": m} for flow, at, m in ((0, 10.0, own), (1, 6.0, 10.0))]
        found = _explained(flows, {"throughput": rates}, throughput_mbps=12.0)
        assert found.signs["link"]["decides"] == decides


@pytest.mark.parametrize(
    ("fields", "mbps"),
    [
        ({}, 20 * 1448 / 1514),
        ({"path": {"ip_version": 6}}, 20 * 1428 / 1514),
        ({"path": {"second_bandwidth": "5mbit"}}, 5 * 1448 / 1514),
        ({"path": {"burst": "250kB"}}, 20 * 1448 / 1514 + 0.2),
        ({"path": {"bandwidth_changes": "5s:10mbit"}}, 15 * 1448 / 1514),
        ({"path": {"bandwidth_changes": "4s:10mbit"}, "flows": [{"start": "2s"}]}, (20 * 2 + 10 * 6) / 8 * 1448 / 1514),
        ({"path": {"bandwidth_changes": "4s:10mbit"}, "flows": [{"stop": "4s"}]}, 20 * 1448 / 1514),
    ],
)
def test_a_path_has_room_for_the_payload_of_its_narrowest_bottleneck_in_the_flow_s_time(
    fields: dict[str, Any], mbps: float
) -> None:
    assert _explained(fields).possible_mbps == pytest.approx(mbps)


def test_the_cpu_of_a_virtual_run_is_counted_in_the_flow_s_time_and_that_of_a_vm_in_all() -> None:
    slices = [{"sender": 1, "kind": "timeslice", "start_s": at, "duration_ms": ms} for at, ms in ((0, 5000), (8, 2000))]
    of_cpu = {"effective_share": 0.7, "effective_timeslice_ms": 3.0, "effective_offtime_ms": 7.0}
    for backend, kernel, share in (("virtual", "virtual-6.12", 0.4), ("vm", "debian-6.12", 0.7)):
        fields = {"backend": backend, "kernel": kernel, "flows": [{"start": "5s"}]}
        found = _explained(fields, {"offtimes": slices}, **of_cpu)
        assert found.signs["cpu"] == {"share": pytest.approx(share), "on_ms": 3.0, "off_ms": 7.0}


@pytest.mark.parametrize(
    ("pacing", "made_up_ms"), [("kernel", 0.5), ("kept lag=5ms", 5.0), ("linux-4.14", 0.0), ("draft", 0.0)]
)
def test_a_missed_departure_is_late_and_made_up_for_as_pacing_does(pacing: str, made_up_ms: float) -> None:
    """At 10 Mbit/s the gap of 1250 bytes is 1 ms; the second departure misses half as long an off-time."""
    cpu = [(0, 10), (20, 10), (35, 10)]
    slices = [{"sender": 1, "kind": "timeslice", "start_s": begin / 1e3, "duration_ms": float(ms)} for begin, ms in cpu]
    packets = [_data(ms / 1e3) for ms in (9.5, 20, 29.5, 35)]
    samples = [{"flow": 0, "time_s": 0.001, "pacing_rate_mbps": 10.0, "bandwidth_estimate_mbps": 10.0,
                "cwnd_packets": 9, "inflight_packets": 1}]  # fmt: skip
    tables = {"samples": samples, "packets": packets, "offtimes": slices}
    missed = _explained({"pacing": pacing, "flows": [{"cc": "bbr"}]}, tables).missed
    assert missed is not None and (missed.off_times, missed.departures, missed.pacing) == (2, 2, pacing)
    assert (missed.first_s, missed.first_late_ms) == (pytest.approx(0.0105), pytest.approx(9.5))
    assert (missed.late_ms, missed.made_up_ms) == (pytest.approx((9.5 + 4.5) / 2), pytest.approx(made_up_ms))
    early = _explained({"pacing": pacing, "flows": [{"cc": "bbr", "stop": "30ms"}]}, tables).missed
    assert early is not None and early.departures == 1  # the second one was due at 30.5 ms


@pytest.mark.parametrize(
    ("fields", "settled", "has_fallen"),
    [
        ({}, 9.9, True),
        ({}, 10.1, False),  # half of the path's 20 Mbit/s
        ({"path": {"second_bandwidth": "16mbit"}}, 8.1, False),
        ({"path": {"bandwidth_changes": "3s:16mbit"}}, 8.1, False),
        ({"cross_traffic": {"load": 0.2}}, 8.1, False),
        ({"flows": [{"cc": "bbr", "count": 2}]}, 5.1, False),
        ({"flows": [{"cc": "bbr", "count": 2}]}, 4.9, True),
    ],
)
def test_an_estimate_has_collapsed_if_it_is_below_half_of_what_the_path_has_for_the_flow(
    fields: dict[str, Any], settled: float, has_fallen: bool
) -> None:
    def estimate(number: int) -> float:
        return 10.0 if number < 5 else 21.0 if number < 20 else 15.0 if number < 30 else settled

    tables = {"samples": _every_100_ms(bandwidth_estimate_mbps=estimate, srtt_ms=20.0)}
    found = _explained({"flows": [{"cc": "bbr"}], "samples": "100ms", **fields}, tables).collapse
    fell = Collapse(from_mbps=21.0, at_s=0.5, to_mbps=settled, reached_s=3.0, rounds=125)  # in 2.5 s, of 20 ms each
    assert found == (fell if has_fallen else None)


def test_an_estimate_that_was_never_twice_as_high_has_not_collapsed() -> None:
    tables = {"samples": _every_100_ms(bandwidth_estimate_mbps=lambda number: 9.0 if number < 20 else 5.0)}
    assert _explained({"flows": [{"cc": "bbr"}], "samples": "100ms"}, tables).collapse is None


@pytest.mark.parametrize(
    ("signs", "without", "causes"),
    [
        (["link", "application", "cpu"], {"cpu": 99.0}, ["link"]),
        (["application", "window"], {}, ["application"]),
        (["window", "cpu"], {"cpu": 99.0}, ["window"]),
        (["cpu"], {}, ["cpu"]),
        (["cpu", "loss"], {}, []),
        (["cpu", "loss"], {"cpu": 99.0}, []),
        (["cpu"], {"cpu": 12.0}, ["cpu"]),
        (["cpu"], {"cpu": 11.9}, []),
        (["cpu", "loss", "buffer"], {"cpu": 20.0, "loss": 18.0, "buffer": 17.9}, ["cpu", "loss"]),
        (["~link", "cpu"], {"cpu": 12.0}, ["cpu"]),
        (["~link", "cpu"], {"cpu": 11.9}, ["link"]),
        (["~window", "cpu"], {"cpu": 11.9}, ["window"]),
    ],
)
def test_the_cause_is_that_without_which_a_flow_of_10_mbits_carries_1_2_times_as_much(
    signs: list[str], without: dict[str, float], causes: list[str]
) -> None:
    """As docs/see.md says below its table. `~`: a path or a window that does not decide."""
    found = {name.removeprefix("~"): {"decides": False} if name.startswith("~") else {} for name in signs}
    assert _causes(found, 10.0, without) == causes


def test_of_programs_requests_the_speed_of_the_median_one_counts() -> None:
    assert speed({"throughput_mbps": 9.0}) == 9.0
    assert speed({"throughput_mbps": 9.0, "requests": 5, "request_median_ms": 50.0}) == 1 / 50
    assert speed({"throughput_mbps": 9.0, "requests": 5, "request_median_ms": None}) == 0


@pytest.mark.parametrize(
    ("cause", "fields", "option"),
    [
        ("buffer", {"path": {"buffer": "4bdp"}}, "--buffer 400000B"),
        ("buffer", {"path": {"buffer": "0.2bdp"}}, "--buffer 50000B"),  # 2 BDP
        (
            "buffer",
            {"path": {"buffer": "4bdp", "second_bandwidth": "10mbit", "second_buffer": "20kB"}},
            "--buffer 400000B --second-buffer 80000B",
        ),
        ("cpu", {}, "--share 1"),
        ("cpu", {"flows": [{"sender": 2}]}, None),
        ("work", {"cpu": {"frequency": "1GHz"}}, "no --cpu-frequency"),
        (
            "work",
            {"traffic": "quic:quinn", "programs": {"accept_time": "1ms", "sent_byte_ns": 2}},
            "--sent-byte-ns 0 --accept-time 0s",
        ),
        ("window", {}, None),
    ],
)
def test_a_cause_is_taken_away_as_the_page_says(cause: str, fields: dict[str, Any], option: str | None) -> None:
    one = scenario({"path": {"bandwidth": "20mbit", "rtt": "10ms"}, "kernel": "virtual-6.12", **fields})
    (change,) = [api._without(cause, one, 0)]
    assert (change and change[0]) == option
    if change is not None:
        api._changed(Run(one, 0), change[1])  # which is a scenario


@pytest.mark.parametrize(
    ("fields", "causes", "options"),
    [
        ({}, ["cpu"], ["--timeslice 1ms", "--cc bbr_steady", "--cc bbr_robust", "--pacing kept", "--qdisc fq"]),
        ({"qdisc": "fq"}, ["cpu"], ["--timeslice 1ms", "--cc bbr_steady", "--cc bbr_robust", "--pacing kept"]),
        ({"contention": {"timeslice": "1ms"}, "pacing": "kept"}, ["cpu"], ["--cc bbr_steady", "--cc bbr_robust"]),
        ({"flows": [{"cc": "cubic"}]}, ["cpu"], ["--timeslice 1ms"]),
        ({"flows": [{"cc": "bbr", "sender": 2}], "pacing": "kept"}, ["cpu"], ["--cc bbr_steady", "--cc bbr_robust"]),
        ({"flows": [{"cc": "cubic"}]}, ["loss"], ["--cc bbr"]),
        ({}, ["loss"], []),
        ({"flows": [{"cc": "cubic"}]}, [], []),
        ({"flows": [{"cc": "bbr"}, {"cc": "cubic"}]}, ["cpu"], []),
    ],
)
def test_what_may_help_is_tried_only_where_it_would_change_something(
    fields: dict[str, Any], causes: list[str], options: list[str]
) -> None:
    one = scenario({"kernel": "virtual-6.12", "flows": [{"cc": "bbr"}], **fields})
    found = Explanation("a-0", 0, one.flows[0].cc, 1, 5.0, 19.1, 0.3, {}, [], causes, pacing_rate_mbps=5.0)
    assert [option for option, _ in api._repairs(found, one)] == options


@pytest.mark.virtual
def test_an_explanation_says_how_the_estimate_fell_and_what_would_change_it(
    brobust: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "--cc bbr --share 0.5 --buffer 12bdp --duration 4s --repeat 1 --out data"
    brobust("run", *options.split())
    run = find(Dataset.open(tmp_path / "data"), None)
    found = api.explain(run, run.run())
    assert found.missed is not None and found.collapse is not None
    assert 1 < found.missed.late_ms < 10 and found.missed.made_up_ms < found.missed.late_ms / 2
    assert found.collapse.to_mbps < 10 < found.collapse.from_mbps and found.collapse.rounds > 10
    assert found.tried["--share 1"] > 18 and found.tried["--cc bbr_steady"] > 18
    assert 18 > found.tried["--cc bbr_robust"] > found.throughput_mbps
    said = brobust("explain", "data").stdout
    assert said.splitlines() == explanation.sentences(found)
    as_json = json.loads(brobust("explain", "data", "--no-try", "--json").stdout)
    assert as_json["causes"] == ["cpu"] and as_json["tried"] == {}
    assert as_json["not_tried"] == "tries are switched off (--no-try)"
    monkeypatch.setattr(api, "TRY_PACKETS", 100)
    assert re.fullmatch(r"it has \d,\d{3} packets, more than 100", api.explain(run, run.run()).not_tried or "")
    monkeypatch.setattr(api, "TRY_SECONDS", 3)
    assert api.explain(run, run.run()).not_tried == "it has 4 s, more than 3 s"


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("pacing", "says", "most_ms"),
    [
        ("kernel", r"of which Linux makes up for at most [\d.]+ ms \(half a gap\)", 5.0),
        ("kept lag=5ms", r"of which the kept schedule makes up for at most [\d.]+ ms", 10.0),
        ("draft", r"of which pacing as in the draft makes up for nothing", 0.0),
    ],
)
def test_an_explanation_says_what_the_pacing_in_force_makes_up_for(pacing: str, says: str, most_ms: float) -> None:
    scenario = {**BBR, **ALL, "contention": {"share": 0.4}, "duration": "2s", "pacing": pacing}
    run = brobust.run({**scenario, "flows": [{"cc": "bbr"}]})
    found = api.explain(run, run.run, tries=False)
    assert found.missed is not None and (found.missed.made_up_ms > 0) == (most_ms > 0)
    assert found.missed.made_up_ms <= min(most_ms, found.missed.late_ms)
    assert any(
        re.search(says, sentence) for sentence in explanation.sentences(dataclasses.replace(found, causes=["cpu"]))
    )


@pytest.mark.virtual
def test_a_pacing_rate_above_the_paths_is_not_called_the_limit() -> None:
    scenario = {**BBR, **ALL, "contention": {"share": 0.25, "timeslice": "20ms"}, "duration": "2s"}
    run = brobust.run({**scenario, "flows": [{"cc": "bbr_steady"}]})
    rates = run.samples.filter(pl.col("time_s") > 1)["pacing_rate_mbps"]
    assert float(rates.median()) > 20  # type: ignore[arg-type]  # it catches up most of the time
    assert api.explain(run, run.run, tries=False).pacing_rate_mbps is None


@pytest.mark.virtual
def test_a_path_that_others_fill_is_not_the_cause_of_a_flow_that_is_short_of_cpu() -> None:
    """It has far less than an equal part, and much more with all of its CPU."""
    run = brobust.run({**BBR, **ALL, "flows": [{"cc": "bbr"}, {"cc": "cubic", "sender": 2}], "contention": SHORT})
    found = api.explain(run, run.run)
    assert found.part > 0.9 and found.causes == ["cpu"], run.explain()
    assert "does not decide between the path itself (" in run.explain(tries=False)
    assert api.explain(run, run.run, flow=1, tries=False).causes == ["link"]


@pytest.mark.virtual
def test_a_path_that_is_full_once_the_contention_is_over_was_not_the_cause_before() -> None:
    contention = {"share": 0.1, "timeslice": "50ms", "stop": "1s"}
    run = _measured({"cc": "cubic", "path": _path(), "contention": contention}, **ALL, duration="2s")
    found = api.explain(run, run.run)
    assert found.part > 0.9 and found.causes == ["cpu"], run.explain()


@pytest.mark.virtual
def test_an_application_that_writes_little_beside_others_is_not_limited_by_the_path_that_they_fill() -> None:
    run = brobust.run({**BBR, "flows": [{"cc": "bbr", "pattern": "rate 1mbit"}, {"cc": "cubic"}]})
    assert api.explain(run, run.run, tries=False).causes == ["application"], run.explain()


@pytest.mark.virtual
def test_a_source_that_always_has_data_is_no_cause_however_few_samples_there_are() -> None:
    """The first ones of a connection are application-limited, and here there are no others."""
    path = {"bandwidth": "10mbit", "rtt": "100ms", "buffer": "60kB", "loss": 0.05}
    flow = {"cc": "bbr", "start": "700ms"}
    run = brobust.run({**ALL, "flows": [flow], "path": path, "contention": SHORT, "duration": "1s", "seed": 604})
    assert run.samples["app_limited"].mean() > 0.5  # type: ignore[operator]
    assert "application" not in api.explain(run, run.run, tries=False).signs


@pytest.mark.virtual
@pytest.mark.parametrize("aqm", ["codel", "red"])
def test_what_a_queue_management_drops_has_found_no_buffer_full(aqm: str) -> None:
    run = _measured({"cc": "cubic", "path": _path(aqm=aqm, buffer="500kB", loss=0.01)}, **ALL, duration="2s")
    found = api.explain(run, run.run, tries=False)
    said = run.explain(tries=False)
    assert 0 < run.packets.filter("dropped")["queue_bytes"].max() < 400_000  # type: ignore[operator]
    assert "full)" not in said and found.signs["loss"]["packets"] > 3
    assert "buffer" not in found.signs or f"its queue management, {aqm}, dropped" in said


@pytest.mark.virtual
def test_the_cpu_of_a_flow_is_what_was_there_in_its_time() -> None:
    flows = [{"cc": "bbr", "bytes": "200kB"}, {"cc": "bbr", "start": "1s"}]
    run = brobust.run({**BBR, **ALL, "flows": flows, "contention": {**SHORT, "start": "1s"}, "duration": "2s"})
    before, after = (api.explain(run, run.run, flow, tries=False) for flow in (0, 1))
    assert "cpu" not in before.signs and after.signs["cpu"]["share"] == pytest.approx(0.25, abs=0.03)
    # And what no sender carries more than is of the same time as what was carried.
    half = _measured(
        {"cc": "cubic", "path": _path(buffer="60kB"), "contention": {**SHORT, "start": "1s"}}, duration="2s"
    )
    found = api.explain(half, half.run, tries=False)
    assert found.oracle_mbps is not None and found.throughput_mbps < found.oracle_mbps


@pytest.mark.virtual
def test_an_estimate_that_follows_the_path_has_not_collapsed() -> None:
    path = {"bandwidth": "20mbit", "bandwidth_changes": "500ms:2mbit"}
    run = brobust.run({**BBR, **ALL, "path": path, "contention": {"share": 0.9, "timeslice": "5ms"}})
    estimates = run.samples["bandwidth_estimate_mbps"]
    assert estimates[-1] < estimates.max() / 2  # type: ignore[operator]
    assert api.explain(run, run.run, tries=False).collapse is None
    shared = brobust.run({**BBR, **ALL, "flows": [{"cc": "bbr", "count": 4}], "contention": {"share": 0.9}})
    assert api.explain(shared, shared.run, tries=False).collapse is None


def test_a_round_trip_ends_when_what_was_sent_after_its_begin_has_arrived() -> None:
    """Trains of two packets, of which each has an ACK. A sample is taken before what the ACK lets leave."""
    acks = [
        (0.01 * number + 0.001 * packet, 2 * number + packet + 1, 1 - packet)
        for number in range(6)
        for packet in (0, 1)
    ]
    names = ("time_s", "delivered_packets", "inflight_packets")
    samples = pl.DataFrame(acks, schema=names, orient="row").with_columns(srtt_ms=9.0)
    assert _rounds(samples, 0) == 5


def test_a_flow_whose_window_is_full_has_missed_no_departure() -> None:
    data = pl.DataFrame({"time_s": [0.0, 0.008, 0.008, 0.02], "payload_bytes": 1000})
    slices = [(0.0, 0.01), (0.02, 0.03)]
    for window, missed in ((4, 1), (3, 0)):
        acks = {"time_s": [0.008], "pacing_rate_mbps": 2.0, "cwnd_packets": window, "inflight_packets": 1}
        assert len(list(departures.missed(data, slices, pl.DataFrame(acks)))) == missed


@pytest.mark.parametrize(
    ("in_flight", "limit"),
    [
        ([4], "own pacing rate, 5 Mbit/s"),
        ([17], "own pacing rate, 5 Mbit/s"),
        ([18], "congestion window, 20 packets"),  # nine tenths of it are full
        ([18, 4, 4, 4, 4, 4], "own pacing rate, 5 Mbit/s"),
        ([18, 4, 4], None),  # neither seldom nor most of the time
    ],
)
def test_what_limits_a_flow_is_what_it_waits_for(in_flight: list[int], limit: str | None) -> None:
    sample = {"pacing_rate_mbps": 5.0, "bandwidth_estimate_mbps": 5.0, "cwnd_packets": 20}
    samples = _every_100_ms(  # what was in flight in the first half does not count
        inflight_packets=lambda number: 20 if number < 50 else in_flight[number % len(in_flight)], **sample
    )
    found = _explained({"flows": [{"cc": "bbr"}]}, {"samples": samples}, effective_share=0.5)
    said = [sentence for sentence in explanation.sentences(found) if sentence.startswith("What limits it now")]
    assert said == ([f"What limits it now is its {limit} in the median."] if limit else [])


def test_a_pacing_rate_that_the_path_has_never_had_room_for_limits_nothing() -> None:
    path = {"path": {"bandwidth": "20mbit", "bandwidth_changes": "9s:2mbit"}, "flows": [{"cc": "bbr"}]}
    for mbps, is_limit in ((19.9, True), (20.1, False)):
        samples = _every_100_ms(pacing_rate_mbps=mbps, bandwidth_estimate_mbps=mbps)
        assert _explained(path, {"samples": samples}).pacing_rate_mbps == (mbps if is_limit else None)


def test_what_the_best_possible_sender_carries_is_known_for_one_link_that_stays_as_it_is() -> None:
    slices = [{"sender": 1, "kind": "timeslice", "start_s": at / 10, "duration_ms": 50.0} for at in range(100)]
    for path in ({}, {"burst": "15kB"}, {"second_bandwidth": "50mbit"}, {"bandwidth_changes": "5s:10mbit"}):
        assert (_explained({"path": path}, {"offtimes": slices}).oracle_mbps is None) == bool(path)


def test_what_is_less_than_a_bit_per_second_is_nothing() -> None:
    found = Explanation("a-0", 0, "bbr", 1, 6.43e-16, 19.1, 0.0, {}, [])
    assert explanation.sentences(found)[0].startswith("Flow 0 (bbr) carried 0 Mbit/s on")
    several = dataclasses.replace(found, flows=2, part=1.23)  # what waited behind a lost packet arrives with it
    assert explanation.sentences(several)[0].endswith("the 2 flows of the run fill 100% of the path.")


def test_the_option_that_takes_a_replay_away_is_not_one_that_changes_nothing() -> None:
    s = scenario({"contention": {"replay": "off.csv"}})
    changed = api._without("cpu", s, 0)
    assert changed is not None and changed[0] == "no --replay"


@pytest.mark.virtual
@pytest.mark.parametrize("without_throughput", [False, True])
def test_a_flow_that_begins_late_fills_the_path_for_its_part_of_the_time_only(without_throughput: bool) -> None:
    flows = [{"cc": "bbr"}, {"cc": "cubic", "sender": 2, "start": "1.6s"}]
    run = brobust.run({**BBR, "flows": flows, "contention": {"share": 0.5}, "duration": "2s"})
    if without_throughput:
        run._measured.throughput = []
    both = api.explain(run, run.run, tries=False)
    assert 0.3 < both.part < 0.8 and both.causes == ["cpu"], run.explain(tries=False)
    late = api.explain(run, run.run, flow=1, tries=False)
    assert 0.9 < late.part <= 1.01 or without_throughput


@pytest.mark.virtual
def test_rare_samples_are_not_taken_for_those_of_every_ack() -> None:
    every, rare = (
        brobust.run({**BBR, "packets": True, "samples": samples, "contention": HALF}) for samples in ("ack", "100ms")
    )
    known, seen = api.explain(every, every.run), api.explain(rare, rare.run)
    assert (seen.missed, seen.collapse) == (known.missed, known.collapse)  # after it was measured again
    alone = api.explain(rare, rare.run, tries=False).collapse
    assert known.collapse is not None and alone is not None
    assert alone.rounds == pytest.approx(known.collapse.rounds, rel=0.5)


@pytest.mark.virtual
def test_an_estimate_that_rises_late_has_not_fallen() -> None:
    path = {"bandwidth": "5mbit", "bandwidth_changes": "2.7s:100mbit"}
    run = brobust.run({**BBR, "path": path, "samples": "10ms"})
    assert run.samples["bandwidth_estimate_mbps"].max() > 10  # type: ignore[operator]
    assert api.explain(run, run.run, tries=False).collapse is None


@pytest.mark.virtual
def test_of_a_flow_that_carries_nothing_without_a_cause_either_it_is_none() -> None:
    run = brobust.run({**BBR, "flows": [{"cc": "bbr", "start": "1.989s"}], "contention": HALF, "duration": "2s"})
    found = api.explain(run, run.run)
    assert found.throughput_mbps == found.tried["--share 1"] == 0 and found.causes == []


@pytest.mark.virtual
def test_a_scenario_of_python_that_names_no_flows_is_tried_with_other_controls() -> None:
    run = brobust.run({"path": _path(loss=0.02), "duration": "2s"})
    assert api.explain(run, run.run).tried["--cc bbr"] > run.runs["throughput_mbps"][0]


def test_the_first_packets_of_a_flow_have_not_waited_for_their_timeslice() -> None:
    sent = pl.DataFrame({"number": [0, 1, 2], "time_s": [0.25, 0.25, 0.45]})
    found = departures._slices(sent, [(0.0, 0.1), (0.2, 0.3), (0.4, 0.5)])
    assert found.select("slice", "off_begin_s").rows() == [(2, None), (2, None), (3, 0.3)]


@pytest.mark.virtual
def test_off_times_before_and_after_a_flow_had_no_departure_of_it() -> None:
    flow = {"cc": "bbr", "start": "200ms", "bytes": "500kB"}
    run = brobust.run({**BBR, **ALL, "flows": [flow], "contention": {"share": 0.5}, "duration": "1s"})
    start_s, stop_s = run.runs.select("start_s", "stop_s").row(0)
    slices = run.offtimes.filter(pl.col("kind") == "timeslice")
    off_times = slices.filter((pl.col("start_s") + pl.col("duration_ms") / 1e3).is_between(start_s, stop_s))
    missed = api.explain(run, run.run, tries=False).missed
    assert missed is not None and stop_s < 0.8
    assert missed.departures < missed.off_times == off_times.height < slices.height / 2


@pytest.mark.virtual
def test_a_replayed_file_that_is_gone_is_needed_neither_to_explain_nor_to_complete(
    brobust: Callable[..., Any], tmp_path: Path
) -> None:
    off_times = "".join(f"{start / 100},10\n" for start in range(0, 100, 2))
    file = tmp_path / "off.csv"
    file.write_text(f"start_s,duration_ms\n{off_times}")
    options = "--share 1 --replay off.csv --cc bbr --duration 1s --repeat 1 --samples ack --packets --out data"
    brobust("run", *options.split())
    file.unlink()
    found = json.loads(brobust("explain", "data", "--json").stdout)
    assert "off.csv: cannot be read" in found["not_tried"] and found["signs"]["cpu"]["share"] == pytest.approx(0.5)
    assert "Nothing was tried: replay: off.csv: cannot be read" in brobust("explain", "data").stdout
    assert brobust("run", "--resume", "--out", "data").returncode == 0
    file.write_text("start_s,duration_ms\n0.5,100\n")
    assert "or what it replays has changed" in json.loads(brobust("explain", "data", "--json").stdout)["not_tried"]


def test_a_time_has_the_bandwidths_that_there_are_in_it() -> None:
    changes = [(0.0, 20.0), (2.0, 50.0), (4.0, 5.0)]
    assert bandwidths(changes, 1.0, 4.5) == [(20.0, 1.0), (50.0, 2.0), (5.0, 0.5)]
    assert bandwidths(changes, 2.0, 4.0) == [(50.0, 2.0)]
    assert bandwidths(changes[:1], 0.0, 9.0) == [(20.0, 9.0)]


@pytest.mark.virtual
def test_a_path_whose_bandwidth_changes_counts_with_its_mean() -> None:
    path = {"bandwidth_changes": "500ms:5mbit"}
    full = _measured({"cc": "bbr", "path": path}, duration="2s")
    found = api.explain(full, full.run, tries=False)
    assert found.causes == ["link"] and found.bandwidth_changes
    assert found.throughput_mbps < found.possible_mbps == pytest.approx((20 + 3 * 5) / 4 * 1448 / 1514)
    # What the best possible sender carries is known for one bandwidth.
    half = _measured({"cc": "bbr", "path": path, "contention": HALF}, duration="2s")
    assert api.explain(half, half.run, tries=False).oracle_mbps is None
    assert "in the mean, since its bandwidth changes. " in half.explain(tries=False)


@pytest.mark.virtual
def test_a_run_whose_scenario_is_of_another_version_is_explained_without_tries(
    brobust: Callable[..., Any], tmp_path: Path
) -> None:
    brobust("run", "--cc", "bbr", "--share", "0.5", "--duration", "1s", "--repeat", "1", "--out", "data")
    scenario = tmp_path / "data/scenario.toml"
    scenario.write_text(f"gone = 1\n{scenario.read_text()}")
    found = json.loads(brobust("explain", "data", "--json").stdout)
    assert found["signs"]["cpu"] and "is of another version" in found["not_tried"]


@pytest.mark.virtual
def test_packets_without_samples_are_explained(lossy: Result) -> None:
    """The file with the samples may be damaged, and is then left out."""
    run = Result(lossy.run, dataclasses.replace(lossy._measured, samples=[]))
    assert "Mbit/s" in run.explain(tries=False)


@pytest.mark.virtual
def test_a_pacing_that_there_is_not_is_refused(lossy: Result) -> None:
    rows = [{**row, "pacing": "other"} for row in lossy._measured.runs]
    with pytest.raises(BadInput, match="pacing: 'other' is not one of"):
        Result(lossy.run, dataclasses.replace(lossy._measured, runs=rows)).explain(tries=False)


STRANGERS = {"sender": "sh -c 'touch /tmp/here'", "receiver": "sleep 1"}


def _strangers(directory: Path, name: str = "") -> OneRun:
    """Return a run of a dataset that names programs. `name`: what its names begin with."""
    grid = Grid({"kernel": "virtual-6.12", "programs": STRANGERS, "contention": {"share": 0.5}, "duration": "2s"})
    (run, *_) = grid.runs()
    row = {**made_up.rows(run)[0], "run": f"{name}{run.id}", "cc": f"{name}bbr", "effective_share": 0.5}
    dataset = Dataset.create(directory, grid, {})
    dataset.append(row["run"], Measured([row]))
    return find(dataset, row["run"])


def test_programs_that_a_dataset_names_run_only_if_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at a stranger's dataset does not mean to run a stranger's programs."""
    run, asked = _strangers(tmp_path / "data"), []

    def measured_again(*_: object) -> None:
        asked.append("measured")

    monkeypatch.setattr(api, "_measured_again", measured_again)
    monkeypatch.setattr(api.backends, "check", lambda *_, **__: None)
    backend: Any = object()
    assert "`brobust explain --try` runs them" in (api.explain(run, run.run(), backend=backend).not_tried or "")
    answers = Answers(Dataset.open(tmp_path / "data"))
    monkeypatch.setattr(answers, "_measures", lambda: nullcontext(backend))
    (answer,) = answers.answer_explain(run=run.id)
    assert "the dataset names programs" in " ".join(answer["sentences"]) and not asked
    assert "sends other packets" in (api.explain(run, run.run(), tries=True, backend=backend).not_tried or "")
    assert asked == ["measured"]


@pytest.mark.parametrize("command", [["explain"], ["plot"], ["trace", "-o", "run.perfetto-trace"]])
def test_what_a_dataset_says_does_nothing_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    _strangers(tmp_path / "data", "\x1b]0;gone\x07\x9b2J")
    with pytest.raises(SystemExit) as ended:
        main([command[0], "data", *command[1:]])
    printed = capsys.readouterr()
    assert ended.value.code == 0 and "\\x1b]0;gone\\x07\\x9b2J" in printed.out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", printed.out + printed.err)


def test_a_flow_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _dataset(tmp_path / "one", ["abc-0"])
    refusal = refused(capsys, "explain", str(tmp_path / "one"), "--flow", "3")
    assert "flow: 3 is not in the run, which has flows 0 to 0" in refusal


@pytest.mark.virtual
def test_the_notebook_shows_the_runs_their_figures_and_the_cause(tmp_path: Path) -> None:
    import nbformat  # here alone, as in test_compare.py
    from nbclient import NotebookClient

    notebook = nbformat.read(Path(__file__).parent.parent / "examples/why.ipynb", as_version=4)
    moved = "drag.widget.children[0].value = 1\nprint(drag.widget.result.runs['throughput_mbps'][0])"
    notebook.cells.append(nbformat.v4.new_code_cell(moved))
    client = NotebookClient(
        notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    # nbclient answers a widget on the socket on which it waits, and then misses what comes there until its timeout.
    client.comm_open_handlers = {}
    client.execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("<svg" in data.get("text/html", "") for data in shown) == 4  # two, and the sliders' before and after
    assert sum("image/png" in data for data in shown) == 1
    assert sum("application/vnd.jupyter.widget-view+json" in data for data in shown) == 1
    assert float(notebook.cells[-1].outputs[-1]["text"]) > 18  # the slider is moved to all of the CPU
    said = "".join(output.get("text", "") for output in outputs)
    assert "The cause is the CPU that is taken from the sender" in said and "bbr_steady [" in said


@pytest.mark.virtual
def test_the_figure_of_very_many_flows_has_no_legend_that_hides_them() -> None:
    for count, has_legend in ((1, False), (3, True), (50, False)):
        run = brobust.run({"flows": [{"cc": "cubic", "count": count}], "duration": "1s"})
        assert (run.plot().axes[0].get_legend() is not None) == has_legend


def test_what_a_notebook_shows_is_escaped() -> None:
    row = {"run": "a-0", "flow": 0, "cc": "<b>bbr</b>", "throughput_mbps": 1.0, "duration_s": 1.0, "start_s": 0.0}
    shown = over_time.html(Result(None, Measured([row])), "<script>")  # type: ignore[arg-type]
    assert "<b>" not in shown and "<script>" not in shown and "&lt;b&gt;bbr" in shown


def test_a_picture_that_cannot_be_made_ends_what_it_is_made_of(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no browser"), pictures.served(tmp_path) as address:
        assert address.startswith("http://127.0.0.1:")
        raise RuntimeError("no browser")
