"""Why a flow carries what it carries: rules over what its run has recorded, and over runs that take one thing away.

docs/see.md has the same rules for people; report/explanation.py says in words what is found. A rule looks for the trace
that a cause leaves (`signs`). If no run was measured without each of the causes found, one sign decides, and several
leave it open: the data of one run cannot say which of two things at once it needs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from brobust import quic, units
from brobust.analysis import departures, oracle, summary
from brobust.analysis.cells import FULL
from brobust.dataset import OfRun, captures
from brobust.errors import BadInput
from brobust.scenario.specs import Pacing

# A run without a cause must carry so many times as much as the run itself: single runs of one cell may differ by less.
GAIN = 1.2
# Of two such runs, one within this part of the other is as good.
AS_GOOD = 0.9
# Parts of the flow's second half, from which a sign counts.
MOSTLY = 0.5
OFTEN = 0.2
# Random losses of fewer packets than this slow no congestion control down on the paths that are measured here.
SOME = 1e-4
# A window is full, if so much of it is in flight.
NEARLY = 0.9
# The CPU is away, if for so much of the time; it is busy, if for so much.
AWAY, BUSY = 0.05, 0.9

# What a run must have recorded for a sign to be seen, for those that are not in every run.
NEEDS = {"application": "samples", "window": "packets"}


@dataclass(frozen=True)
class Collapse:
    """How a BBR flow's bandwidth estimate fell. Times in s after the run's start, rates in Mbit/s."""

    from_mbps: float
    at_s: float
    to_mbps: float
    reached_s: float
    rounds: int


@dataclass(frozen=True)
class Missed:
    """Departures that pacing had set, and that fell into off-times. Times in ms but for the first one's, s."""

    first_s: float
    first_late_ms: float
    off_times: int
    """Those that began in the flow's time."""
    departures: int
    late_ms: float
    """How late they were, in the mean."""
    made_up_ms: float
    """What the sender's pacing makes up for at most of that, in the mean: in Linux half of the gap to the next packet,
    with a kept schedule (`pacing`) as much more as its lag may be."""
    pacing: str
    """How TCP paces: a scenario's `pacing`."""


@dataclass(frozen=True)
class Explanation:
    """What is known of one flow of a run. Null: it was not recorded, or does not exist there."""

    run: str
    flow: int
    cc: str
    flows: int
    throughput_mbps: float
    possible_mbps: float
    """The payload that the path's narrowest bottleneck carries, in the mean over the flow's time."""
    part: float
    """What all flows carried in the second half of this flow's time, of what the path then carries."""
    signs: dict[str, dict[str, Any]]
    """The causes of which there is a trace, each with what shows it."""
    unseen: list[str]
    """Causes that cannot be seen, because the run has not recorded what would show them."""
    causes: list[str] = field(default_factory=list)
    """What limits it: one cause; several, if each of them must be there; none, if the data does not decide."""
    oracle_mbps: float | None = None
    missed: Missed | None = None
    collapse: Collapse | None = None
    cwnd_packets: float | None = None
    """The median congestion window in the second half, if what was in flight has filled it most of the time."""
    pacing_rate_mbps: float | None = None
    """The median pacing rate in the second half, of a control that paces (one that shows a bandwidth estimate), if its
    window was seldom full, and that is no more than the path has room for: a control that catches up may ask for a
    hundred times as much."""
    tried: dict[str, float] = field(default_factory=dict)
    """What the flow carries if something is changed, Mbit/s."""
    requests: int | None = None
    """How many the run's programs asked; null: they told of none."""
    request_ms: float | None = None
    """What they took, the median; null: most had no answer."""
    tried_request_ms: dict[str, float | None] = field(default_factory=dict)
    """The same if something is changed."""
    not_tried: str | None = None
    """Why nothing was changed, although that might say more."""
    bandwidth_changes: bool = False
    """Whether the bandwidth changes in the flow's time."""
    backend: str = "virtual"
    is_of_udp: bool = False
    """Whether programs carry it without TCP, as QUIC stacks do."""


def explain(
    run: OfRun,
    flow: int = 0,
    without: Mapping[str, float] | None = None,
    bandwidth_changes: Sequence[tuple[int, int]] = (),
) -> Explanation:
    """Return what limits a flow. `without`: its `speed` without each of the causes (the key), where that was
    measured. `bandwidth_changes`: when the first bottleneck's bandwidth changes, ns, and to what, bit/s; the
    tables have only the one at first."""
    return _Facts(run, flow, bandwidth_changes).explained(without or {})


def speed(row: Mapping[str, Any]) -> float:
    """Return what taking a cause away has to raise, of a row of the table runs: where programs asked, how fast the
    median request was, 1/ms, 0 where that had no answer; else the flow's throughput, Mbit/s."""
    if row.get("requests") is None:
        return float(row["throughput_mbps"])
    took_ms = row["request_median_ms"]
    return 0.0 if took_ms is None else 1 / took_ms


def bandwidths(changes: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> list[tuple[float, float]]:
    """Return each bandwidth that there is in [begin, end], and for how long, s. `changes` are times, s, from 0 on, and
    the bandwidths from there on."""
    ends = [*(at for at, _ in changes[1:]), math.inf]
    lengths = [min(until, end_s) - max(at, begin_s) for (at, _), until in zip(changes, ends, strict=True)]
    return [(bandwidth, length) for (_, bandwidth), length in zip(changes, lengths, strict=True) if length > 0]


def _window_edges(captured: bytes, packets: pl.DataFrame, run: str) -> list[int | None]:
    """Return for each row of the table packets the first byte beyond the window that its frame grants, relative to the
    acknowledged side's SYN; None where it is no ACK of TCP. Window scales are taken from the SYNs."""
    scale: dict[tuple[bytes, int], int] = {}
    isn: dict[tuple[bytes, int], int] = {}
    of_frames = ((row, _edge(frame, scale, isn)) for row, _, _, frame in captures.with_rows(captured, packets, run))
    return [edge for row, edge in of_frames if row is not None]


def _edge(frame: bytes, scale: dict[tuple[bytes, int], int], isn: dict[tuple[bytes, int], int]) -> int | None:
    found = captures.segment(frame)
    if found is None:
        return None
    if found.flags & captures.SYN:
        isn[found.here] = found.seq
        scale[found.here] = _scale(found.options)
        return None
    if not found.flags & captures.ACK or found.there not in isn:
        return None
    return int((found.ack - isn[found.there]) % 2**32) + int(found.window << scale.get(found.here, 0))


def _scale(options: bytes) -> int:
    at = 0
    while at < len(options) and options[at]:
        if options[at] == 1:
            at += 1
            continue
        if options[at] == 3 and at + 2 < len(options):
            return min(options[at + 2], 14)
        at += max(options[at + 1] if at + 1 < len(options) else 2, 2)
    return 0


class _Facts:
    """The tables of a run, for one of its flows. Rules look at the second half of its time: without STARTUP."""

    def __init__(self, run: OfRun, flow: int, bandwidth_changes: Sequence[tuple[int, int]]):
        self.run = run
        self.row: dict[str, Any] = run.runs.row(by_predicate=pl.col("flow") == flow, named=True)
        self.end_s: float = min(self.row["duration_s"], self.row["stop_s"] or self.row["duration_s"])
        self.half_s = (self.row["start_s"] + self.end_s) / 2
        of_flow = pl.col("flow") == flow
        self.samples = run.samples.filter(of_flow).sort("time_s")
        self.late = self.samples.filter(pl.col("time_s").is_between(self.half_s, self.end_s))
        is_data = (pl.col("direction") == "data") & (pl.col("payload_bytes") > 0)
        data = run.packets.filter(of_flow & is_data)
        self.data = data.with_columns(pl.col("connection").fill_null(0)).sort("time_s")
        self.is_paced = self.samples["bandwidth_estimate_mbps"].drop_nulls().len() > 0  # by BBR and its kind
        self.changes = [(0.0, self.row["bandwidth_mbps"]), *((at / 1e9, bps / 1e6) for at, bps in bandwidth_changes)]
        in_time = {mbps for mbps, _ in bandwidths(self.changes, self.row["start_s"], self.end_s)}
        self.bandwidth_mbps: float | None = in_time.pop() if len(in_time) == 1 else None  # None: it changes

    def narrowest(self, mbps: float) -> float:
        """Return the rate of the narrowest bottleneck while the first one's is this."""
        return min(mbps, self.row["second_bandwidth_mbps"] or math.inf)

    def possible_mbps(self, begin_s: float) -> float:
        """Return the payload that the narrowest bottleneck carries from there until the flow's end, in the mean."""
        of_time = bandwidths(self.changes, begin_s, self.end_s)
        mean_mbps = sum(self.narrowest(mbps) * s for mbps, s in of_time) / (self.end_s - begin_s)
        return units.goodput_ceiling_mbps(round(mean_mbps * 1e6), self.row["ip_version"])

    @property
    def burst_mbps(self) -> float:
        """What the bottleneck's token bucket lets through at first, over the flow's time."""
        return float(self.row["burst_bytes"] or 0) * 8e-6 / float(self.end_s - self.row["start_s"])

    def explained(self, without: Mapping[str, float]) -> Explanation:
        row = self.row
        signs = {name: found for name, rule in RULES.items() if (found := rule(self)) is not None}
        has = {"samples": not self.samples.is_empty(), "packets": self.run.pcap is not None}
        can_be_recorded = {"samples": True, "packets": row["backend"] == "virtual"}
        if self.is_of_udp:  # only its program knows its state, and what the peer admits it tells nobody
            can_be_recorded = {"samples": row["samples_ms"] is None and self.may_have_samples, "packets": False}
        unseen = [name for name, of in NEEDS.items() if name not in signs and can_be_recorded[of] and not has[of]]
        if (self.is_asked or self.has_data) and "application" in unseen:
            unseen.remove("application")
        causes = _causes(signs, speed(row), without)
        return Explanation(
            row["run"], row["flow"], row["cc"], self.run.runs.height, row["throughput_mbps"],
            self.possible_mbps(row["start_s"]) + self.burst_mbps, self.parts()[0], signs, unseen, causes,
            self.oracle_mbps, self.missed(), self.collapse(), self.full_window_packets(), self.limiting_rate_mbps(),
            requests=row["requests"], request_ms=row["request_median_ms"],
            bandwidth_changes=self.bandwidth_mbps is None, backend=row["backend"], is_of_udp=self.is_of_udp,
        )  # fmt: skip

    @property
    def is_asked(self) -> bool:
        """Whether programs asked for what the flow carries. It then has many connections."""
        return self.row["requests"] is not None

    @property
    def has_data(self) -> bool:
        """Whether the flow always has something to send until it ends."""
        return (self.row["traffic"], self.row["pattern"]) == ("brobust", "bulk")

    @property
    def is_of_udp(self) -> bool:
        """Whether programs carry the flow without TCP."""
        of_flow = self.run.connections.filter(pl.col("flow") == self.row["flow"])
        return self.row["traffic"] not in ("brobust", "iperf3") and "tcp" not in of_flow["protocol"]

    @property
    def may_have_samples(self) -> bool:
        """Whether the program of a flow of UDP may write qlog, and where that is read."""
        stack = quic.STACKS.get(self.row["traffic"].removeprefix(quic.PREFIX).split()[0])
        return self.row["backend"] == "virtual" and (stack is None or stack.qlog is not None)

    def parts(self) -> tuple[float, float]:
        """Return what all flows carried in the second half, and what this one did, of what the path carries."""
        starts = dict(self.run.runs.select("flow", "start_s").iter_rows())
        ends_at = pl.col("time_s") + pl.col("flow").replace_strict(starts, default=0.0, return_dtype=pl.Float64)
        after, until = self.half_s + 1e-9, self.end_s + 1e-9
        late = self.run.throughput.filter((ends_at > after) & (ends_at <= until))
        own = late.filter(pl.col("flow") == self.row["flow"])["throughput_mbps"]
        # Others may send in a part of these intervals only: this flow has all of them.
        if not own.is_empty():
            possible_mbps = self.possible_mbps(self.half_s) * len(own)
            return float(late["throughput_mbps"].sum()) / possible_mbps, float(own.sum()) / possible_mbps
        return self.parts_of_all()

    def parts_of_all(self) -> tuple[float, float]:
        """Return the same of all of the flow's time."""
        possible_mbps = self.possible_mbps(self.row["start_s"])
        mean_mbps = self.run.runs.select((pl.col("throughput_mbps") * self.beside(self.row["start_s"])).sum()).item()
        return float(mean_mbps) / possible_mbps, self.row["throughput_mbps"] / possible_mbps

    def beside(self, begin_s: float) -> pl.Expr:
        """Return for how much of the time from there until this flow's end each flow sends, as a fraction."""
        stop_s = pl.min_horizontal(summary.stop(), self.end_s)
        return (stop_s - pl.max_horizontal("start_s", begin_s)).clip(0) / (self.end_s - begin_s)

    @property
    def equal_part(self) -> float:
        """What each flow would have of the path in the second half, if all that send there had the same."""
        return 1 / float(self.run.runs.select(self.beside(self.half_s).sum()).item())

    @property
    def idle(self) -> float | None:
        """The part of the second half in which nothing was in flight, and the CPU there: nothing was to be sent."""
        if self.late.is_empty() or self.data.is_empty():
            return None
        empty = self.late.filter(pl.col("inflight_packets") == 0).select("time_s")
        gaps = empty.join_asof(self.data.select("time_s", next_s="time_s"), on="time_s", strategy="forward")
        waited = gaps.unique("next_s", keep="first").select("time_s", pl.col("next_s").fill_null(self.end_s))
        away = [(end, begin) for (_, end), (begin, _) in pairwise(self.timeslices)]
        without_cpu = sum(
            max(min(end, off_end) - max(begin, off), 0) for begin, end in waited.iter_rows() for off, off_end in away
        )
        total: float = sum(end - begin for begin, end in waited.iter_rows())
        return (total - float(without_cpu)) / float(self.end_s - self.half_s)

    @cached_property
    def timeslices(self) -> list[tuple[float, float]]:
        """When the flow's sender had its CPU, s."""
        return departures.timeslices(self.run, self.row["sender"])

    @property
    def aqm(self) -> str | None:
        """The name of the bottleneck's queue management; None if it has none."""
        name = str(self.row["aqm"] or "none").split()[0]
        return None if name == "none" else name

    @property
    def cpu_share(self) -> float | None:
        """The part of the flow's time in which its sender had its CPU; of the run's where the times are not known."""
        row = self.row
        if row["backend"] != "virtual" or not self.timeslices:
            return float(row["effective_share"]) if row["effective_share"] is not None else None
        seconds = oracle.busy_s(self.timeslices, 0.0, row["start_s"], self.end_s)
        return float(seconds / (self.end_s - row["start_s"]))

    @property
    def oracle_mbps(self) -> float | None:
        """What the best possible sender carries in these timeslices (oracle.py) in the flow's time, as its throughput
        is of all of it, where the bandwidth stays."""
        row = self.row
        if row["backend"] != "virtual" or row["burst_bytes"] or row["second_bandwidth_mbps"] or not self.timeslices:
            return None
        if self.bandwidth_mbps is None:
            return None
        link = self.bandwidth_mbps, row["buffer_bytes"], row["start_s"], self.end_s
        return oracle.carried_mbps(self.timeslices, *link, ip_version=row["ip_version"])

    @cached_property
    def full_window(self) -> float | None:
        """The part of the second half in which the congestion window was near full, of the time in which the sender had
        its CPU; where packets were not recorded with every ACK, of the samples. None: it is not known."""
        known = self.samples.drop_nulls(["inflight_packets", "cwnd_packets"])
        begin_s, end_s = self.half_s, self.end_s
        of_acks = self.row["samples_ms"] == 0 and not known.is_empty() and known["connection"].n_unique() == 1
        if not of_acks or self.data.is_empty() or self.is_of_udp:
            full = pl.col("inflight_packets") >= NEARLY * pl.col("cwnd_packets")
            found = known.filter(pl.col("time_s").is_between(begin_s, end_s)).select(full.mean()).item()
            return None if found is None else float(found)
        sampled, sent = known["time_s"].to_numpy(), self.data["time_s"].to_numpy()
        edges = np.unique(np.concatenate([sampled, sent]).clip(begin_s, end_s))
        # A sample is taken before the flow sends what the ACK has made room for. Times are whole ns.
        at = np.searchsorted(sampled, edges[:-1] + 0.5e-9) - 1
        since = np.searchsorted(sent, edges[:-1] + 0.5e-9) - np.searchsorted(sent, sampled[at] - 0.5e-9)
        in_flight, window = (known[name].to_numpy()[at] for name in ("inflight_packets", "cwnd_packets"))
        full = in_flight + since >= NEARLY * window
        ran_s = np.diff(edges)
        if ends := [end for of_slice in self.timeslices for end in of_slice]:
            so_far = np.cumsum(np.diff(ends, prepend=0.0) * (np.arange(len(ends)) % 2))
            ran_s = np.diff(np.interp(edges, ends, so_far))
        return float(ran_s[full & (at >= 0)].sum() / ran_s.sum()) if ran_s.sum() > 0 else None

    def full_window_packets(self) -> float | None:
        """Return the median congestion window in the second half; None if it was not full most of the time: a QUIC
        stack's own pacer may be what keeps the data."""
        return _median(self.late["cwnd_packets"]) if (self.full_window or 0) > MOSTLY else None

    def limiting_rate_mbps(self) -> float | None:
        """Return the median pacing rate in the second half; None if the flow is not paced, or faster than the path, or
        its window is full more often than seldom."""
        rate = _median(self.late["pacing_rate_mbps"]) if self.is_paced else None
        if rate is None or (self.full_window or 0) > OFTEN:
            return None
        return rate if rate <= max(self.narrowest(mbps) for _, mbps in self.changes) else None

    def missed(self) -> Missed | None:
        """Return the departures that fell into off-times (departures.missed), of the flow's time; of programs those of
        the connection that sent most."""
        if self.data.is_empty() or not self.is_paced or self.is_asked:
            return None
        sent = self.data.group_by("connection", maintain_order=True).agg(pl.col("payload_bytes").sum())
        of_it = pl.col("connection").fill_null(0) == sent.sort("payload_bytes", maintain_order=True)["connection"][-1]
        rated = self.samples.filter(of_it & pl.col("pacing_rate_mbps").is_not_null())
        if rated.is_empty():
            return None
        slices = self.timeslices
        found = [one for one in departures.missed(self.data.filter(of_it), slices, rated) if one.due_s < self.end_s]
        if not found:
            return None
        late_ms = sum(one.late_s for one in found) / len(found) * 1e3
        try:
            pacing = Pacing.parse(self.row["pacing"] or "kernel")
        except ValueError as error:  # of a stranger, or of another version
            raise BadInput(f"run {self.row['run']}: pacing: {error}") from None
        of_gap = 0.5 if pacing.name in ("kernel", "kept") else 0.0  # the other rules make up for nothing
        made_up_ms = sum(min(one.late_s, one.gap_s * of_gap + pacing.lag / 1e9) for one in found) / len(found) * 1e3
        first = found[0]
        off_times = sum(self.row["start_s"] <= off < self.end_s for _, off in slices[:-1])
        return Missed(first.due_s, first.late_s * 1e3, off_times, len(found), late_ms, made_up_ms, str(pacing))

    def collapse(self) -> Collapse | None:
        """Return how the bandwidth estimate fell; None if it did not fall below a half, or is not below half of what
        the path has for each flow: where it has less than at first, or others have come, an estimate falls rightly."""
        known = self.samples.filter(pl.col("bandwidth_estimate_mbps").is_not_null())
        settled = _median(self.late["bandwidth_estimate_mbps"])
        if known.is_empty() or settled is None or self.is_asked:
            return None
        least_mbps = min(self.narrowest(mbps) for mbps, _ in bandwidths(self.changes, self.row["start_s"], self.end_s))
        if settled > least_mbps * (1 - self.row["cross_load"]) * self.equal_part / 2:
            return None
        estimates, times = known["bandwidth_estimate_mbps"].to_numpy(), known["time_s"].to_numpy()
        peak = int(estimates.argmax())
        below = np.flatnonzero(estimates[peak:] <= settled * 1.1)
        if settled > estimates[peak] / 2 or not below.size:  # it rose, late in the run
            return None
        reached = peak + int(below[0])
        rounds = _rounds(known[peak : reached + 1], self.row["samples_ms"])
        return Collapse(float(estimates[peak]), float(times[peak]), settled, float(times[reached]), rounds)


def _rounds(samples: pl.DataFrame, interval_ms: float | None) -> int:
    """Return how many round trips lie between the first and the last of these samples: each ends when something that
    was sent after its begin has arrived; where that is not recorded, after a smoothed RTT. Of samples at intervals,
    which may be longer, it is the time over the smoothed RTT."""
    if interval_ms:
        took_ms = (pl.col("time_s").diff() * 1e3) / pl.col("srtt_ms").backward_fill()
        return round(float(samples.filter(pl.col("srtt_ms").ne_missing(0.0)).select(took_ms.sum()).item()))
    columns = ("time_s", "delivered_packets", "inflight_packets", "srtt_ms")
    rounds, ends_at, ends_s = 0, None, 0.0
    for time_s, delivered, inflight, srtt_ms in samples.select(columns).iter_rows():
        over = delivered > ends_at if ends_at is not None and delivered is not None else time_s >= ends_s
        if over or ends_s == 0.0:
            rounds += 1
            ends_at = None if delivered is None else delivered + inflight
            ends_s = time_s + (srtt_ms or 0) / 1e3
    return max(rounds - 1, 0)


def _median(values: pl.Series) -> float | None:
    found = values.drop_nulls().median()
    return None if found is None else float(found)  # type: ignore[arg-type]


# --- signs: each returns what shows it, or None --------------------------------------------------------------------


def _link(facts: _Facts) -> dict[str, Any] | None:
    """The path is full: nothing is missing. It does not decide where this flow has less than half of an equal part, or
    where the path was clearly less full in the first half: something else may have kept the flow from sending there."""
    part, own = facts.parts()
    decides = own >= MOSTLY * facts.equal_part and GAIN * facts.parts_of_all()[0] >= min(part, 1)
    return {"part": part, "decides": decides} if part >= FULL else None


def _application(facts: _Facts) -> dict[str, Any] | None:
    """Most of the delivery rate samples were application-limited; or nothing was in flight for much of the time; or it
    writes at a rate, and this arrives. A server has nothing to send until it is asked, and who is busy with sending has
    no time to write more: these are no causes. Nor is our own source, which always has data unless its pattern says
    otherwise: what it has sent may all be lost, or wait for a CPU."""
    if facts.is_asked or facts.has_data or _work(facts):
        return None
    limited = facts.late.select(pl.col("app_limited").mean()).item()
    if limited is not None and limited > MOSTLY:
        return {"limited": limited}
    if facts.idle is not None and facts.idle > OFTEN:
        return {"idle": facts.idle}
    kind, _, rate = str(facts.row["pattern"]).partition(" ")
    written = units.bits_per_second(rate) / 1e6 if kind == "rate" else 0
    return {"written_mbps": written} if kind == "rate" and facts.row["throughput_mbps"] >= FULL * written else None


def _window(facts: _Facts) -> dict[str, Any] | None:
    """Much of the data was sent up to the last byte that the receiver's window allowed."""
    capture, frames = facts.run.pcap, facts.run.packets
    if capture is None or facts.data.is_empty():
        return None
    edges = _window_edges(capture, frames, facts.row["run"])
    in_flow = pl.col("flow") == facts.row["flow"]
    arrived = pl.all_horizontal(in_flow, pl.col("direction") == "ack", pl.col("edge", "arrived_s").is_not_null())
    granted = frames.with_columns(edge=pl.Series(edges, dtype=pl.Int64)).filter(arrived)
    granted = granted.with_columns(pl.col("connection").fill_null(0)).sort("arrived_s")
    at_sender = granted.select("connection", "edge", time_s="arrived_s")
    late = facts.data.filter(pl.col("time_s") >= facts.half_s)
    sent = late.join_asof(at_sender, on="time_s", by="connection", check_sortedness=False)
    end = pl.col("seq") + pl.col("payload_bytes")
    full = sent.select((end + units.PAYLOAD_BYTES > pl.col("edge")).mean()).item()
    if full is None or full <= OFTEN:
        return None
    window = granted.filter(pl.col("time_s") >= facts.half_s).select((pl.col("edge") - pl.col("ack")).median()).item()
    return {"full": full, "window_bytes": window, "decides": full > MOSTLY}


def _receiver(facts: _Facts) -> dict[str, Any] | None:
    """The receiver has only a part of its CPU."""
    share = facts.row["receiver_share"]
    return {"share": share} if share is not None and share < 1 - AWAY else None


def _cpu(facts: _Facts) -> dict[str, Any] | None:
    """The sender had only a part of its CPU in the flow's time."""
    share = facts.cpu_share
    if share is None or share >= 1 - AWAY:
        return None
    return {"share": share, "off_ms": facts.row["effective_offtime_ms"], "on_ms": facts.row["effective_timeslice_ms"]}


def _work(facts: _Facts) -> dict[str, Any] | None:
    """The work of sending keeps the sender's modelled CPU busy."""
    busy = facts.row["cpu_busy_share"]
    return {"busy": busy} if busy is not None and busy >= BUSY else None


def _dropped(facts: _Facts) -> tuple[float, float, float] | None:
    """Return how many packets were lost at random, how many the queue dropped, and how many were sent. Where packets
    were not recorded, do not say which of two bottlenecks had them in its queue, or are dropped by a queue that has
    room, the path's rate of loss says how many were lost at random, and only many more are taken for the queue's.
    None: nothing was dropped, or it is not known."""
    row = facts.row
    if not row["drops"]:
        return None
    if facts.data.is_empty() or row["second_bandwidth_mbps"] is not None or facts.aqm is not None:
        arrived = row["throughput_mbps"] * 1e6 / 8 * (facts.end_s - row["start_s"]) / units.PAYLOAD_BYTES
        sent = arrived + row["drops"]
        by_chance = row["loss"] * sent
        others = row["drops"] - by_chance
        is_chance = others <= 3 * math.sqrt(by_chance)  # three standard deviations
        return (row["drops"], 0.0, sent) if is_chance else (by_chance, others, sent)
    lost = facts.data.filter(pl.col("dropped"))
    fits = lost["queue_bytes"] + lost["frame_bytes"] <= row["buffer_bytes"] - units.FRAME_BYTES
    fitted = float(fits.sum())
    return fitted, lost.height - fitted, facts.data.height


def _loss(facts: _Facts) -> dict[str, Any] | None:
    """The path loses packets although its buffer has room."""
    found = _dropped(facts)
    if found is None or not facts.row["loss"]:
        return None
    by_chance, _, sent = found
    return {"packets": by_chance, "part": by_chance / sent} if by_chance >= max(SOME * sent, 1) else None


def _buffer(facts: _Facts) -> dict[str, Any] | None:
    """Packets found the bottleneck's buffer full, or its queue management dropped them (`aqm`)."""
    found = _dropped(facts)
    if found is None or found[1] < 1:
        return None
    row = facts.row
    sign = {"packets": found[1], "bytes": None, "bdp": None, "aqm": None}
    if facts.aqm is not None:
        return {**sign, "aqm": facts.aqm}
    if row["second_bandwidth_mbps"] is not None:  # it may have been either one
        return sign
    bdp = (facts.bandwidth_mbps or 0) * row["rtt_ms"] * 125
    return {**sign, "bytes": row["buffer_bytes"], "bdp": row["buffer_bytes"] / bdp if bdp else None}


def _cross(facts: _Facts) -> dict[str, Any] | None:
    """Other senders' short flows take a part of the path."""
    load = facts.row["cross_load"]
    return {"load": load} if load else None


RULES: dict[str, Callable[[_Facts], dict[str, Any] | None]] = {
    "link": _link, "application": _application, "window": _window, "receiver": _receiver, "cpu": _cpu, "work": _work,
    "loss": _loss, "buffer": _buffer, "cross": _cross,
}  # fmt: skip
# These leave no room for another cause: they say what the flow waited for, all the time.
DECIDE = ("link", "application", "window")
# One of these that does not decide (`decides` of its sign) is the cause if no run without another one is faster.
LAST = ("link", "window")


def _causes(signs: Mapping[str, Mapping[str, Any]], as_it_is: float, without: Mapping[str, float]) -> list[str]:
    """Return the causes among those of which there are signs."""
    for name in DECIDE:
        if name in signs and signs[name].get("decides", True):
            return [name]
    others = [name for name in signs if name not in LAST]
    known = {name: faster for name, faster in without.items() if name in others}
    if set(others) - set(known):  # not all of them were taken away
        return list(signs) if len(signs) == 1 else []
    best = max(known.values(), default=0.0)
    if not best or best < GAIN * as_it_is:
        return [name for name in LAST if name in signs][:1]
    return [name for name in others if known[name] >= AS_GOOD * best]
