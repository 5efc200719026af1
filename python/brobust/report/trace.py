"""Runs and recordings as a timeline for Perfetto (https://ui.perfetto.dev) and its trace_processor, in its own format.

Tracks of a run: for each sender its timeslices; for each flow its packets, missed departures, phases and counters; the
bottleneck; for each thread of programs its calls. What happens to one packet (sent, passes the bottleneck, arrives) is
joined by Perfetto's arrows. Tracks of recordings: for each thread what it did; for the host its load; for each socket
its verdicts and counters.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brobust import files, units
from brobust.analysis import departures
from brobust.dataset import OfRun
from brobust.dataset.recordings import SOCKET, Recording, Sweeps, Threads, stretches
from brobust.errors import BadInput
from brobust.lazily import pl

if TYPE_CHECKING:
    from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

# Counters of a flow: the column of the table samples, the track's name, its unit.
COUNTERS = (
    ("cwnd_packets", "cwnd", "packets"),
    ("inflight_packets", "in flight", "packets"),
    ("pacing_rate_mbps", "pacing rate", "Mbit/s"),
    ("bandwidth_estimate_mbps", "bandwidth estimate", "Mbit/s"),
    ("delivery_rate_mbps", "delivery rate", "Mbit/s"),
    ("rtt_ms", "RTT", "ms"),
    ("srtt_ms", "smoothed RTT", "ms"),
    ("min_rtt_ms", "min RTT", "ms"),
    ("queue_bytes", "queue", "bytes"),
    ("pacing_gain", "pacing gain", ""),
    ("retransmits", "retransmitted so far", "segments"),
    ("deficit_acks", "repair acted so far", "times"),
)
# The same of a recorded host and of a recorded socket.
OF_HOST = (
    ("steal_share", "steal", "of the CPUs' time"),
    ("late_share", "late wake-ups", "of the wake-ups"),
    ("busiest_share", "busiest CPU", "of its time"),
    ("pressure_share", "CPU pressure", "of the time"),
)
OF_SOCKET = (
    ("cwnd_bytes", "cwnd", "bytes"),
    ("inflight_bytes", "in flight", "bytes"),
    ("bdp_bytes", "BDP", "bytes"),
    ("pacing_rate_mbps", "pacing rate", "Mbit/s"),
    ("delivery_rate_mbps", "delivery rate", "Mbit/s"),
    ("rate_mbps", "acknowledged over the window", "Mbit/s"),
    ("srtt_ms", "smoothed RTT", "ms"),
    ("min_rtt_ms", "min RTT", "ms"),
    ("inflight_bdp", "in flight over the window", "BDP"),
    ("deficit_share", "in deficit over the window", "of the samples"),
    ("retransmit_share", "retransmitted over the window", "of the bytes"),
)


def write(shown: OfRun | Recording, file: Path, beside: Sequence[Recording] = ()) -> dict[str, int]:
    """Write the timeline of a run or a recording, and of recordings beside it. Return how many of what was recorded is
    in it: `timeslices`, `packets`, `samples` and points of `throughput` of a run, `calls` if it had programs; `threads`
    and their `intervals`; `sweeps`, `sockets` and their `points`.

    Recordings that say when they began keep their distance. A run begins with the first one: it may be its replay.
    """
    everything: list[OfRun | Recording] = [shown, *beside]
    begins = _begins(everything)
    counts: Counter[str] = Counter()
    with files.replaced(file) as out:
        trace = _Trace(out)
        for one, begin_s in zip(everything, begins, strict=True):
            counts.update(trace.add(one, begin_s))
    return dict(counts)


def _begins(everything: Sequence[OfRun | Recording]) -> list[float]:
    """Return when each begins in the timeline, s, such that nothing in it is before 0."""
    recordings = [one for one in everything if isinstance(one, (Threads, Sweeps))]
    clocks = [(one, one.begin_unix_s) for one in recordings if one.begin_unix_s is not None]
    until = None
    for one, begin in sorted(clocks, key=lambda pair: pair[1]):
        if until is not None and begin > until:
            raise BadInput(
                f"{one.name} began {units.show_measured(begin - until)} s after the others had ended; "
                "give recordings of the same time"
            )
        until = max(begin + one.end_s, until or begin)
    first = clocks[0][1] if clocks else 0.0
    known = {id(one): begin - first for one, begin in clocks}
    begins = [known.get(id(one), 0.0) for one in everything]
    earliest = min(begin + _first_s(one) for one, begin in zip(everything, begins, strict=True))
    return [begin - min(earliest, 0.0) for begin in begins]


def _first_s(one: OfRun | Recording) -> float:
    """Return the earliest time that it holds, seconds after its beginning. A thread may have waited already then."""
    return float(one.intervals["start_s"].min() or 0.0) if isinstance(one, Threads) else 0.0  # type: ignore[arg-type]


class _Trace:
    def __init__(self, out: Any):
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._track_event = perfetto_trace_pb2.TrackEvent
        self._builder: StreamingTraceProtoBuilder = StreamingTraceProtoBuilder(out)
        self._ordered = perfetto_trace_pb2.TrackDescriptor.EXPLICIT
        self._uuids = count(1)
        self._ranks = count()
        self._begin_s = 0.0

    def add(self, one: OfRun | Recording, begin_s: float) -> Mapping[str, int]:
        """Draw one, that many seconds after the beginning of the timeline."""
        self._begin_s = begin_s
        if isinstance(one, Threads):
            return self._threads(one)
        return self._sweeps(one) if isinstance(one, Sweeps) else self._of_run(one)

    def _threads(self, recording: Threads) -> dict[str, int]:
        root, number = self._track(_title(recording, "threads")), 0
        for (vcpu, thread), part in recording.intervals.group_by("vcpu", "thread", maintain_order=True):
            track = self._track(f"thread {thread}" if vcpu is None else f"vCPU {vcpu}, thread {thread}", root)
            rows = _rows(part, "kind", "start_s", "duration_ms")
            self._slices(track, ((kind, start, start + ms / 1e3) for kind, start, ms in rows))
            number += 1
        return {"threads": number, "intervals": recording.intervals.height}

    def _sweeps(self, recording: Sweeps) -> dict[str, int]:
        sweeps, flows = recording.sweeps, recording.flows
        root = self._track(_title(recording, "sockets"))
        host = self._track("host", root)
        # A sweep says what its interval was like: its verdict stands there.
        begins, ends = sweeps["time_s"] - sweeps["interval_s"], sweeps["time_s"]
        self._slices(self._track("why the CPU is short", host), stretches(sweeps["why"], begins, ends))
        for column, name, unit in OF_HOST:
            self._counter(name, unit, ends, sweeps[column], host)
        number = 0
        of_sweep = sweeps.select("sweep", "interval_s")
        for (_, _, local, remote), part in flows.group_by(*SOCKET, maintain_order=True):
            part = part.join(of_sweep, on="sweep", how="left", maintain_order="left")
            owner = "/".join(filter(None, part.select("namespace", "pod", "container").row(0)))
            track = self._track(f"{part['cc'][0]}: {local} to {remote}" + (f" ({owner})" if owner else ""), root)
            begins = part["time_s"] - part["interval_s"]
            self._slices(self._track("verdict", track), stretches(part["cause"], begins, part["time_s"]))
            for column, name, unit in OF_SOCKET:
                self._counter(name, unit, part["time_s"], part[column], track)
            number += 1
        return {"sweeps": sweeps.height, "sockets": number, "points": flows.height}

    def _of_run(self, run: OfRun) -> dict[str, int]:
        self._run = run
        rows = run.runs
        first = rows.row(0, named=True)
        self._root = self._track(f"{first['run']}: {first['bandwidth_mbps']:g} Mbit/s, {first['rtt_ms']:g} ms RTT")
        slices = self._timeslices()
        packets = departures.of_packets(run).with_columns(pl.col("number") + 1).sort("time_s", maintain_order=True)
        self._bottleneck(packets)
        points = samples = 0
        for flow in rows.iter_rows(named=True):
            of_flow = pl.col("flow") == flow["flow"]
            track = self._track(f"flow {flow['flow']}: {flow['cc']}", self._root)
            self._packets(packets.filter(of_flow), track)
            self._departures(packets.filter(of_flow), track)
            for (connection,), part in self._run.samples.filter(of_flow).group_by("connection", maintain_order=True):
                name = track if connection is None else self._track(f"connection {connection}", track)
                self._samples(part.sort("time_s"), name)
                samples += part.height
            over_time = self._run.throughput.filter(of_flow).sort("time_s")
            self._counter(
                "throughput", "Mbit/s", over_time["time_s"] + flow["start_s"], over_time["throughput_mbps"], track
            )
            points += over_time.height
        counts = {"timeslices": slices, "packets": packets.height, "samples": samples, "throughput points": points}
        return counts if rows["traffic"][0] == "brobust" else {**counts, "calls": self._calls()}

    def _timeslices(self) -> int:
        # On vm some are from before the traffic, and a timeline begins with the run.
        end_s = pl.col("start_s") + pl.col("duration_ms") / 1e3
        ran = self._run.offtimes.filter((pl.col("kind") == "timeslice") & (end_s > 0)).with_columns(end_s=end_s)
        for (sender, vcpu), part in ran.sort("sender", "vcpu", "start_s").group_by(
            "sender", "vcpu", maintain_order=True
        ):
            track = self._track(f"CPU of sender {sender}" + ("" if vcpu is None else f", vCPU {vcpu}"), self._root)
            self._slices(track, (("timeslice", max(start, 0.0), end) for start, end in _rows(part, "start_s", "end_s")))
        return ran.height

    def _packets(self, packets: pl.DataFrame, parent: int) -> None:
        if packets.is_empty():
            return
        data, acks = (packets.filter(pl.col("direction") == kind) for kind in ("data", "ack"))
        sent, lost, arrived = (self._track(f"packets {what}", parent) for what in ("sent", "lost", "arrived"))
        columns = ("number", "first_sent_s", "time_s", "arrived_s", "dropped", "seq", "payload_bytes")
        for number, first_s, time_s, arrived_s, dropped, seq, payload in _rows(data, *columns):
            name = "sent" if first_s is None else "sent again"
            self._instant(sent, time_s, name, number, seq=seq, payload_bytes=payload)
            if dropped:
                self._instant(lost, time_s, "lost", number, seq=seq, payload_bytes=payload)
            elif arrived_s is not None:
                self._instant(arrived, arrived_s, "arrived", number, seq=seq, payload_bytes=payload)
        back = self._track("ACKs arrived", parent)
        for number, arrived_s, payload, ack in _rows(acks, "number", "arrived_s", "payload_bytes", "ack"):
            if arrived_s is not None:
                self._instant(back, arrived_s, "ack", number, ack=ack, payload_bytes=payload)

    def _departures(self, packets: pl.DataFrame, parent: int) -> None:
        """Draw which departures a flow has missed, how late it then was, how it caught up, and when a repair acted."""
        first = packets.filter(pl.col("due_s").is_not_null()).unique("due_s", keep="first", maintain_order=True)
        if first.is_empty():
            return
        late = ((f"{ms:.2f} ms late", due, at) for due, at, ms in _rows(first, "due_s", "time_s", "lag_ms"))
        self._slices(self._track("missed departures", parent), late)
        # What is left of the lag after each train; an off-time ends it.
        left = packets.select("time_s", lag=pl.col("lag_ms") - pl.col("repaid_ms").fill_null(0.0)).drop_nulls()
        ends = first.select(time_s="slice_end_s", lag=0.0)
        lag = pl.concat([left, ends]).sort("time_s", maintain_order=True)
        self._counter("lag", "ms", lag["time_s"], lag["lag"], parent)
        acted = packets.filter("acted").group_by("slice", maintain_order=True)
        times = acted.agg(begin=pl.col("time_s").first(), end=pl.col("time_s").last())
        if not times.is_empty():
            acts = (("a repair acts", begin, end) for begin, end in _rows(times, "begin", "end"))
            self._slices(self._track("catching up", parent), acts)

    def _calls(self) -> int:
        """Draw the calls of programs that return in the run: a track for each thread, below its process and its node.
        A timeline begins with the run, since Perfetto's times have no sign."""
        end = pl.col("start_s") + pl.col("duration_ms") / 1e3
        calls = self._run.calls.filter(end >= 0).with_columns(end=end, start_s=pl.col("start_s").clip(0))
        calls = calls.sort("node", "process", "thread", "start_s", maintain_order=True)
        for (node,), of_node in calls.group_by("node", maintain_order=True):
            at = self._track(f"programs of {node}", self._root)
            for (process,), of_process in of_node.group_by("process", maintain_order=True):
                parent = self._track(f"process {process}: {of_process['name'][-1]}", at)
                for (thread,), part in of_process.group_by("thread", maintain_order=True):
                    rows = _rows(part, "call", "result", "start_s", "end")
                    self._slices(
                        self._track(f"thread {thread}: {part['name'][-1]}", parent),
                        ((_call(call, result), *when) for call, result, *when in rows),
                    )
        return calls.height

    def _bottleneck(self, packets: pl.DataFrame) -> None:
        """Draw which frame the link sends when: each from its arrival, or from the end of the one before."""
        passed = packets.filter(pl.col("left_s").is_not_null()).sort("left_s")
        if passed.is_empty():
            return
        begin = pl.max_horizontal("time_s", pl.col("left_s").shift(1))
        rows = _rows(passed.with_columns(begin=begin), "begin", "left_s", "flow", "number")
        self._slices(self._track("bottleneck", self._root), ((f"flow {f}", a, b, n) for a, b, f, n in rows))

    def _samples(self, samples: pl.DataFrame, parent: int) -> None:
        end_s = float(self._run.runs["duration_s"][0])
        samples = samples.with_columns(mode=pl.coalesce("mode", _phase()))
        for name, column in (("phase", "mode"), ("loss recovery", "state")):
            spans = list(_spans(samples, column, end_s))
            if spans:
                self._slices(self._track(name, parent), spans)
        for column, name, unit in COUNTERS:
            self._counter(name, unit, samples["time_s"], samples[column], parent)

    def _counter(self, name: str, unit: str, times: pl.Series, values: pl.Series, parent: int) -> None:
        """Draw a counter. A value that is the one before is left out: Perfetto holds it until the next."""
        points = pl.DataFrame({"time": times, "value": values.cast(pl.Float64)}).drop_nulls()
        changes = points.filter(pl.col("value").ne_missing(pl.col("value").shift(1)))
        if changes.is_empty():
            return
        track = self._track(name, parent, unit)
        for time_s, value in changes.iter_rows():
            self._event(track, time_s, "TYPE_COUNTER", double_counter_value=value)

    def _track(self, name: str, parent: int | None = None, unit: str | None = None) -> int:
        """Begin a track, a counter's if it has a unit, and return its number. Tracks stay in the order of their
        making."""
        packet = self._builder.create_packet()
        track = packet.track_descriptor
        track.uuid, track.name, track.sibling_order_rank = next(self._uuids), name, next(self._ranks)
        track.child_ordering = self._ordered
        if parent is not None:
            track.parent_uuid = parent
        if unit is not None:
            track.counter.unit_name = unit
        self._builder.write_packet(packet)
        return int(track.uuid)

    def _event(self, track: int, time_s: float, kind: str, **fields: Any) -> None:
        """Write an event of a track, with these fields of Perfetto's TrackEvent."""
        packet = self._builder.create_packet()
        packet.timestamp = round((self._begin_s + time_s) * 1e9)
        packet.trusted_packet_sequence_id = 1
        packet.track_event.MergeFrom(self._track_event(type=kind, track_uuid=track, **fields))
        self._builder.write_packet(packet)

    def _instant(self, track: int, time_s: float, name: str, number: int, **arguments: int) -> None:
        annotations = [{"name": key, "int_value": value} for key, value in arguments.items()]
        self._event(track, time_s, "TYPE_INSTANT", name=name, flow_ids=[number], debug_annotations=annotations)

    def _slices(self, track: int, slices: Iterable[Sequence[Any]]) -> None:
        """Draw slices: name, begin and end (s), and perhaps the number of a packet."""
        for name, begin_s, end_s, *number in slices:
            self._event(track, begin_s, "TYPE_SLICE_BEGIN", name=name, flow_ids=number)
            self._event(track, end_s, "TYPE_SLICE_END")


def _call(name: str, result: int) -> str:
    return name if result >= 0 or -result not in errno.errorcode else f"{name}: {errno.errorcode[-result]}"


def _rows(table: pl.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    return table.select(columns).iter_rows()


def _title(recording: Recording, what: str) -> str:
    begin_s = recording.begin_unix_s
    since = "" if begin_s is None else datetime.fromtimestamp(begin_s, UTC).strftime(", from %Y-%m-%d %H:%M:%S UTC")
    return f"{recording.name}: {what}{since}"


def _phase() -> pl.Expr:
    """Return the phase of a control that shows its gains and not its phase, as the kernel's own BBR version 1."""
    pacing, cwnd = pl.col("pacing_gain"), pl.col("cwnd_gain")
    probing = pl.when(pacing > 1).then(pl.lit("up")).when(pacing < 1).then(pl.lit("down")).otherwise(pl.lit("cruise"))
    return (
        pl.when(pacing.is_null())
        .then(None)
        .when(cwnd > 2.5)
        .then(pl.when(pacing > 1).then(pl.lit("startup")).otherwise(pl.lit("drain")))
        .when(cwnd <= 1)
        .then(pl.lit("probe_rtt"))
        .otherwise(pl.format("probe_bw: {}", probing))
    )


def _spans(samples: pl.DataFrame, column: str, end_s: float) -> Iterator[tuple[str, float, float]]:
    """Return each value of a column, from the sample that first has it to the next one that has another."""
    known = samples.filter(pl.col(column).is_not_null())
    ends = pl.max_horizontal("time_s", pl.col("time_s").shift(-1).fill_null(end_s))
    return stretches(known[column], known["time_s"], known.select(ends).to_series())
