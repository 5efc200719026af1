"""Metrics of a run beyond its throughput, for claims and figures. Each has one value per run, from one table of the
dataset, over all flows of the run where the table distinguishes flows. METRICS says what each one is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import polars as pl

from brobust import dataset, units
from brobust.analysis import oracle, summary

# By then STARTUP is over on every path of the papers.
STARTUP_S = 2.0
# By then flows that share a bottleneck have found their shares.
SETTLED_S = 10.0
# Packets that follow each other within this are a train, and a train of so many packets is short (QUIC Steps).
TRAIN_GAP_MS = 0.1
SHORT_TRAIN = 5
# The throughput over time is that of intervals of 100 ms.
INTERVALS_PER_S = 10

RATE, TIME, ESTIMATE = pl.col("throughput_mbps"), pl.col("time_s"), pl.col("bandwidth_estimate_mbps")
PACING, DELIVERY, INFLIGHT_BDP = pl.col("pacing_rate_mbps"), pl.col("delivery_rate_mbps"), pl.col("inflight_bdp")
FIRST, SECOND = pl.col("flow") == 0, pl.col("flow") == 1
RETRANSMITS, MIDDLE, ORACLE = pl.col("retransmits"), pl.col("middle"), pl.col("oracle_mbps").first()
BEST_SECOND = RATE.rolling_mean(10, min_samples=5).max()
HIGH_GAIN = pl.col("pacing_gain") >= 2
# Samples are taken at ACKs, which have just made room for a burst of two.
AT_CWND = pl.col("cwnd_packets") - pl.col("inflight_packets") <= 2
NO_PROBE_RTT = pl.col("mode").ne_missing("probe_rtt")
# What arrived of each flow, in full segments.
SEGMENTS = summary.payload() * 1e6 / 8 / pl.col("ip_version").replace_strict(units.PAYLOAD_BYTES_OF)


class Tables(dataset.Tables):
    """A dataset's tables."""

    def __init__(self, of: dataset.Dataset):
        self._dataset = of

    def table(self, name: str) -> pl.DataFrame:
        return self._dataset.table(name)

    @cached_property
    def timeslices(self) -> pl.DataFrame:
        """When each contended sender could run."""
        return self.offtimes.filter(pl.col("kind") == "timeslice")


class Evidence:
    """Some runs of a dataset, and what its tables say about them."""

    def __init__(self, tables: Tables, runs: Collection[str]):
        self._tables = tables
        self._runs = pl.Series("run", sorted(runs), dtype=pl.String)

    def _of_its_runs(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter(pl.col("run").is_in(self._runs.implode()))

    @cached_property
    def flows(self) -> pl.DataFrame:
        """One row per run and flow."""
        return self._of_its_runs(self._tables.runs)

    @cached_property
    def throughput(self) -> pl.DataFrame:
        """The throughput of all flows of a run over time, Mbit/s. Each flow's intervals begin with its start: several
        flows are brought to the same intervals, as if the bytes of each had arrived evenly."""
        of_flows = self.flow_throughput.select("run", "flow", "time_s", "throughput_mbps")
        is_alone = pl.col("flow").n_unique().over("run") == 1
        several, rate = of_flows.filter(~is_alone), pl.col("throughput_mbps")
        # Rounded, since 0.1 + 0.2 is not 0.3. `late` is the part of an interval that lies in the next one.
        begin = (pl.col("time_s") * INTERVALS_PER_S - 1).round(6)
        late = begin - begin.floor()
        parts = [
            several.filter(part > 0).select("run", time_s=(end / INTERVALS_PER_S).round(1), throughput_mbps=rate * part)
            for end, part in ((begin.floor() + 1, 1 - late), (begin.floor() + 2, late))
        ]
        together = pl.concat(parts).group_by("run", "time_s").agg(rate.sum())
        return pl.concat([of_flows.filter(is_alone).drop("flow"), together]).sort("run", "time_s")

    @cached_property
    def flow_throughput(self) -> pl.DataFrame:
        """The throughput of each flow of a run over time, Mbit/s; the time, like that of samples, is the run's."""
        starts = self.flows.select("run", "flow", "start_s")
        since_start = self._of_its_runs(self._tables.throughput).join(starts, on=["run", "flow"], maintain_order="left")
        return since_start.with_columns(pl.col("time_s") + pl.col("start_s")).drop("start_s")

    @cached_property
    def samples(self) -> pl.DataFrame:
        return self._of_its_runs(self._tables.samples)

    @cached_property
    def trains(self) -> pl.DataFrame:
        """Every packet of a flow's data when it reached the link, but the first: `gap_ms` since the one before, and
        `train`, the number of packets of its train. In a train each follows within TRAIN_GAP_MS."""
        data = (pl.col("direction") == "data") & (pl.col("payload_bytes") > 0)
        sent = self._of_its_runs(self._tables.packets.filter(data)).sort("run", "flow", "time_s", maintain_order=True)
        of_flow = ["run", "flow"]
        gap = (pl.col("time_s").diff().over(of_flow) * 1e3).alias("gap_ms")
        begins = (pl.col("gap_ms").is_null() | (pl.col("gap_ms") >= TRAIN_GAP_MS)).cum_sum().over(of_flow)
        counted = sent.with_columns(gap).with_columns(begins.alias("number"))
        trains = counted.with_columns(pl.len().over("run", "flow", "number").alias("train"))
        return trains.filter(pl.col("gap_ms").is_not_null()).select("run", "flow", "time_s", "gap_ms", "train")

    @cached_property
    def timeslices(self) -> pl.DataFrame:
        return self._of_its_runs(self._tables.timeslices)

    @cached_property
    def runs(self) -> pl.DataFrame:
        """One row per measured run (summary.py)."""
        return summary.runs(self.flows)

    def values(self, metric: str) -> pl.DataFrame:
        """Return `runs` with the metric in column `value`; runs without it are left out. The time of requests is
        infinite where too few were answered."""
        if metric in OF_RUNS:
            found = self.runs.with_columns(summary.of_run(metric).cast(pl.Float64).alias("value"))
        else:
            of_run = METRICS[metric]
            found = self.runs.join(of_run.rows(self).group_by("run").agg(value=of_run.value), on="run")
            if of_run.over_link:
                found = found.with_columns(pl.col("value") / pl.col("bandwidth_mbps"))
        # A part of nothing is no number, which would compare as greater than any.
        return found.with_columns(pl.col("value").fill_nan(None)).filter(pl.col("value").is_not_null())


@dataclass(frozen=True)
class Metric:
    """A metric that is no column of the runs."""

    rows: Callable[[Evidence], pl.DataFrame]
    """What it is computed of."""
    value: pl.Expr
    """What it is of the rows of one run; a run for which that is null has none."""
    unit: str = ""
    over_link: bool = False
    """Whether the value is divided by the bottleneck's rate."""


def _second_half(series: pl.DataFrame) -> pl.DataFrame:
    return series.filter(pl.col("time_s") > TIME.max().over("run") / 2)


def _late_samples(evidence: Evidence) -> pl.DataFrame:
    return _second_half(evidence.samples)


def _later_samples(evidence: Evidence) -> pl.DataFrame:
    return evidence.samples.filter(TIME > STARTUP_S)


def _left_startup(evidence: Evidence) -> pl.DataFrame:
    """Return the first sample after STARTUP of each flow that reports its mode."""
    later = evidence.samples.filter(pl.col("mode").is_not_null() & (pl.col("mode") != "startup"))
    return later.sort("time_s").group_by("run", "flow").agg(pl.col("time_s", "bandwidth_estimate_mbps").first())


def _late_counters(evidence: Evidence) -> pl.DataFrame:
    """Return how many segments each flow sent again and had delivered in the run's second half."""
    counters = pl.col("retransmits", "delivered_packets")
    counted = evidence.samples.filter(pl.col("delivered_packets").is_not_null())
    return _second_half(counted).group_by("run", "flow").agg(counters.max() - counters.min())


def _late_queues(evidence: Evidence) -> pl.DataFrame:
    return _late_samples(evidence).group_by("run", "flow").agg(pl.col("queue_bytes").mean())


def _while_all_send(evidence: Evidence) -> pl.DataFrame:
    """Return the throughput of each flow from 10 s after the last one's start until the first one's end."""
    ends = evidence.flows.group_by("run").agg(begun=pl.col("start_s").max(), ended=pl.col("stop_s").min())
    of_flows, time = evidence.flow_throughput.join(ends, on="run"), pl.col("time_s")
    return of_flows.filter((time > pl.col("begun") + SETTLED_S) & (time <= pl.col("ended")))


def _recovering(evidence: Evidence) -> pl.DataFrame:
    """Return the mean throughput of the second before each interval as `smooth`, with the run's `middle` and the
    `level` at which it has recovered; of a run without any throughput only these."""
    smooth = RATE.rolling_mean(10, min_samples=10).over("run")
    runs = evidence.flows.group_by("run").agg(
        level=pl.col("bandwidth_mbps").first() * 0.8, middle=pl.col("duration_s").first() / 2
    )
    return runs.join(evidence.throughput.with_columns(smooth=smooth), on="run", how="left")


def _fallen(evidence: Evidence) -> pl.DataFrame:
    """Return when the delivery rate and the estimate of each flow first were half of what STARTUP left, or less."""
    left = _left_startup(evidence).rename({"time_s": "left_s", "bandwidth_estimate_mbps": "found"})
    later = evidence.samples.join(left, on=["run", "flow"]).filter(pl.col("time_s") >= pl.col("left_s"))
    half = pl.col("found") / 2
    return later.group_by("run", "flow").agg(
        delivery=TIME.filter(pl.col("delivery_rate_mbps") <= half).min(),
        estimate=TIME.filter(pl.col("bandwidth_estimate_mbps") <= half).min(),
    )


def _oracle(evidence: Evidence, ahead_rtts: float | None = None) -> pl.DataFrame:
    rows = []
    for run, timeslices, path in when_it_ran(evidence):
        ahead_s = None if ahead_rtts is None else path["rtt_ms"] * ahead_rtts / 1e3
        link = path["bandwidth_mbps"], path["buffer_bytes"], path["from_s"], path["to_s"]
        rows.append((run, oracle.carried_mbps(timeslices, *link, ahead_s, path["ip_version"])))
    return pl.DataFrame(rows, schema={"run": pl.String, "oracle_mbps": pl.Float64}, orient="row")


def when_it_ran(evidence: Evidence) -> Iterator[tuple[str, list[tuple[float, float]], dict[str, Any]]]:
    """Yield each run in virtual time with the timeslices in which a sender of it could send (s, in order), and with
    bandwidth, RTT and buffer of its path. What the receiver gets in the run's second half passes the bottleneck from
    `from_s` to `to_s`. The oracle assumes one wire, so runs with a token bucket or a second
    bottleneck are left out."""
    end = pl.col("start_s") + pl.col("duration_ms") / 1e3
    of_run = evidence.timeslices.select("run", "start_s", end_s=end).sort("start_s")
    slices = {run: list(rows.select("start_s", "end_s").iter_rows()) for (run,), rows in of_run.group_by("run")}
    contended = dict(evidence.timeslices.group_by("run").agg(pl.col("sender").n_unique()).iter_rows())
    of_path = ("bandwidth_mbps", "buffer_bytes", "burst_bytes", "rtt_ms", "second_bandwidth_mbps", "ip_version")
    columns = pl.col("backend", "duration_s", *of_path).first()
    runs = evidence.flows.group_by("run", maintain_order=True).agg(columns, senders=pl.col("sender").n_unique())
    wire = (pl.col("backend") == "virtual") & (pl.col("burst_bytes") == 0) & pl.col("second_bandwidth_mbps").is_null()
    for path in runs.filter(wire).iter_rows(named=True):
        late = path["rtt_ms"] / 2e3
        path |= {"from_s": path["duration_s"] / 2 - late, "to_s": path["duration_s"] - late}
        whole = contended.get(path["run"], 0) < path["senders"]  # one of them always has its CPU
        yield path["run"], [(0.0, path["duration_s"])] if whole else slices[path["run"]], path


FLOWS, THROUGHPUT, TRAINS = attrgetter("flows"), attrgetter("throughput"), attrgetter("trains")

METRICS = {
    # The maximum throughput in any 0.3 s of the first two seconds: how far STARTUP came.
    "startup_peak_mbps": Metric(
        lambda of: of.throughput.filter(TIME <= STARTUP_S), RATE.rolling_mean(3, min_samples=1).max(), "Mbit/s"
    ),
    # How long STARTUP took: the median over the run's flows.
    "startup_s": Metric(_left_startup, TIME.median(), "s"),
    # What the flows' bandwidth estimates added up to when they left STARTUP, over the bottleneck's rate.
    "startup_found": Metric(_left_startup, ESTIMATE.sum(), over_link=True),
    # Mean throughput in the second half of the run.
    "late_mbps": Metric(lambda of: _second_half(of.throughput), RATE.mean(), "Mbit/s"),
    # What the best possible sender would carry in these timeslices, in the run's second half (oracle.py). Null on vm.
    "oracle_mbps": Metric(_oracle, ORACLE, "Mbit/s"),
    # The same, if at most one round trip's worth may wait at the bottleneck when a timeslice ends. Null on vm.
    "oracle_one_rtt_mbps": Metric(partial(_oracle, ahead_rtts=1), ORACLE, "Mbit/s"),
    # The maximum throughput in any second after STARTUP.
    "best_mbps": Metric(lambda of: of.throughput.filter(TIME > STARTUP_S), BEST_SECOND, "Mbit/s"),
    # The maximum throughput in any second of the run, STARTUP's too.
    "ever_mbps": Metric(THROUGHPUT, BEST_SECOND, "Mbit/s"),
    # Retransmitted segments over full segments of payload that arrived, in the whole run. Null where nobody counts
    # them, as with QUIC.
    "retransmit_share": Metric(FLOWS, summary.counted("retransmits") / SEGMENTS.sum().clip(1)),
    # Retransmitted over delivered segments, in the run's second half: without STARTUP.
    "late_retransmit_share": Metric(
        _late_counters, pl.col("retransmits").sum() / pl.col("delivered_packets").sum().clip(1)
    ),
    # Throughput of the first flow, and of the second, while it sent.
    "first_flow_mbps": Metric(FLOWS, RATE.filter(FIRST).first(), "Mbit/s"),
    "second_flow_mbps": Metric(FLOWS, RATE.filter(SECOND).first(), "Mbit/s"),
    # The first flow's part of what all flows received in the run's second half: without STARTUP.
    "first_flow_share": Metric(lambda of: _second_half(of.flow_throughput), RATE.filter(FIRST).sum() / RATE.sum()),
    # The first flow's part of all retransmitted segments. Null where none were.
    "first_flow_retransmit_share": Metric(
        FLOWS, RETRANSMITS.filter(FIRST).sum() / pl.when(RETRANSMITS.sum() > 0).then(RETRANSMITS.sum())
    ),
    # The first flow's part of the bottleneck's queue in the run's second half. Null on vm.
    "first_flow_queue_share": Metric(
        _late_queues, pl.col("queue_bytes").filter(FIRST).sum() / pl.col("queue_bytes").sum()
    ),
    # The throughput of the first flow, and of the second, while all send, from 10 s after the last one's start on.
    "first_flow_together_mbps": Metric(_while_all_send, RATE.filter(FIRST).mean(), "Mbit/s"),
    "second_flow_together_mbps": Metric(_while_all_send, RATE.filter(SECOND).mean(), "Mbit/s"),
    # Part of the first flow's samples, and of the second's, after STARTUP, without PROBE_RTT, with as much in flight as
    # cwnd allows.
    "first_flow_at_cwnd": Metric(_later_samples, AT_CWND.filter(FIRST & NO_PROBE_RTT).mean()),
    "second_flow_at_cwnd": Metric(_later_samples, AT_CWND.filter(SECOND & NO_PROBE_RTT).mean()),
    # Mean queueing delay at the bottleneck: the mean over the flows, which all count the same. Null on vm.
    "queue_mean_ms": Metric(FLOWS, pl.col("queue_mean_ms").mean(), "ms"),
    # The 99th percentile of the completion times of the run's flows, of those that were through.
    "completion_p99_ms": Metric(FLOWS, pl.col("completion_ms").quantile(0.99, "linear"), "ms"),
    # Jain's index of the flows' throughputs: 1 if all are equal, 1/n if one has everything (RFC 5166, 2.3).
    "fairness": Metric(FLOWS, RATE.sum() ** 2 / (pl.len() * (RATE**2).sum())),
    # The time from the run's middle until the throughput of a second reaches 80 % of the bottleneck's rate; the whole
    # second half if it never does. Only seconds that lie completely after the middle count.
    "recovery_s": Metric(
        _recovering,
        pl.coalesce(
            (TIME - MIDDLE).filter((TIME > MIDDLE + 0.95) & (pl.col("smooth") >= pl.col("level"))).min(), MIDDLE.first()
        ),
        "s",
    ),
    # Median of what is in flight after STARTUP, in BDPs by the control's own estimate.
    "inflight_bdp": Metric(_later_samples, INFLIGHT_BDP.median(), "BDP"),
    # Part of the samples after STARTUP with less than one BDP in flight, and with one to two.
    "below_bdp_share": Metric(_later_samples, (INFLIGHT_BDP < 1).mean()),
    "between_1_and_2_bdp_share": Metric(_later_samples, INFLIGHT_BDP.is_between(1, 2).mean()),
    # Median bandwidth estimate in the run's second half.
    "estimate_mbps": Metric(_late_samples, ESTIMATE.median(), "Mbit/s"),
    # Median pacing rate, delivery rate and bandwidth estimate in the run's second half over the bottleneck's rate.
    "pacing_to_link": Metric(_late_samples, PACING.median(), over_link=True),
    "delivery_to_link": Metric(_late_samples, DELIVERY.median(), over_link=True),
    "estimate_to_link": Metric(_late_samples, ESTIMATE.median(), over_link=True),
    # The time from the first sample after STARTUP whose delivery rate is at most half of the estimate that STARTUP
    # left, until the first whose estimate is: how long the estimate stays behind. Null if either never falls so far.
    "estimate_follows_s": Metric(_fallen, (pl.col("estimate") - pl.col("delivery")).median(), "s"),
    # Median of delivery rate over pacing rate after STARTUP.
    "delivery_to_pacing": Metric(_later_samples, (DELIVERY / PACING).filter(PACING > 0).median()),
    # The part of the samples after STARTUP with less than one BDP in flight, and of those with 1.1 BDP or more, that is
    # paced at a gain of 2 or more.
    "high_gain_in_deficit": Metric(_later_samples, HIGH_GAIN.filter(INFLIGHT_BDP < 1).mean()),
    "high_gain_without_deficit": Metric(_later_samples, HIGH_GAIN.filter(INFLIGHT_BDP >= 1.1).mean()),
    # Part of the packets that left the sender in trains of at most SHORT_TRAIN packets. Needs packets.
    "short_train_share": Metric(TRAINS, (pl.col("train") <= SHORT_TRAIN).mean()),
    # The train in which a packet left the sender, in packets: the mean over all packets. Needs packets.
    "train_packets": Metric(TRAINS, pl.col("train").mean(), "packets"),
}
# Columns of the runs themselves (summary.py), with their units.
OF_RUNS = {
    "throughput_mbps": "Mbit/s", "utilization": "", "retransmits": "segments", "drops": "packets",
    "rtt_mean_ms": "ms", "completion_ms": "ms", "skb_mean_bytes": "B", "pacing_idle_ms": "ms", "cpu_busy_share": "",
    "cross_transfers": "flows", "cross_ended": "flows", "cross_median_ms": "ms", "cross_p99_ms": "ms",
    "cross_slowdown": "", "cross_slowdown_p99": "", "requests": "", "requests_answered": "", "requests_per_s": "1/s",
    "request_median_ms": "ms", "request_p99_ms": "ms", "request_p999_ms": "ms",
    "first_byte_median_ms": "ms", "first_byte_p99_ms": "ms", "first_byte_p999_ms": "ms",
}  # fmt: skip


def unit(metric: str) -> str:
    """Return the unit of a metric; empty if it has none."""
    return OF_RUNS[metric] if metric in OF_RUNS else METRICS[metric].unit
