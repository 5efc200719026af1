"""Metrics of a run beyond its throughput, for claims and figures. Each has one value per run, from one table of the
dataset, over all flows of the run where the table distinguishes flows. Its function's docstring says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

import polars as pl

from brobust import units
from brobust.analysis import oracle, summary
from brobust.dataset import Dataset

# By then STARTUP is over on every path of the papers.
STARTUP_S = 2.0
# By then flows that share a bottleneck have found their shares.
SETTLED_S = 10.0
# Packets that follow each other within this are a train, and a train of so many packets is short (QUIC Steps).
TRAIN_GAP_MS = 0.1
SHORT_TRAIN = 5
# The throughput over time is that of intervals of 100 ms.
INTERVALS_PER_S = 10


class Tables:
    """A dataset's tables, each read once."""

    def __init__(self, dataset: Dataset):
        self._dataset = dataset

    @cached_property
    def runs(self) -> pl.DataFrame:
        return self._dataset.runs()

    @cached_property
    def throughput(self) -> pl.DataFrame:
        return self._dataset.throughput()

    @cached_property
    def samples(self) -> pl.DataFrame:
        return self._dataset.samples()

    @cached_property
    def packets(self) -> pl.DataFrame:
        return self._dataset.packets()

    @cached_property
    def timeslices(self) -> pl.DataFrame:
        """When each contended sender could run."""
        return self._dataset.offtimes().filter(pl.col("kind") == "timeslice")


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
            function, _ = METRICS[metric]
            found = self.runs.join(function(self), on="run")
        return found.filter(pl.col("value").is_not_null())


def startup_peak_mbps(evidence: Evidence) -> pl.DataFrame:
    """The maximum throughput in any 0.3 s of the first two seconds: how far STARTUP came."""
    early = evidence.throughput.filter(pl.col("time_s") <= STARTUP_S)
    smooth = early.with_columns(pl.col("throughput_mbps").rolling_mean(3, min_samples=1).over("run"))
    return smooth.group_by("run").agg(pl.col("throughput_mbps").max().alias("value"))


def _left_startup(evidence: Evidence) -> pl.DataFrame:
    """Return the first sample after STARTUP of each flow that reports its mode."""
    later = evidence.samples.filter(pl.col("mode").is_not_null() & (pl.col("mode") != "startup"))
    return later.sort("time_s").group_by("run", "flow").agg(pl.col("time_s", "bandwidth_estimate_mbps").first())


def startup_s(evidence: Evidence) -> pl.DataFrame:
    """How long STARTUP took: the median over the run's flows."""
    return _left_startup(evidence).group_by("run").agg(pl.col("time_s").median().alias("value"))


def startup_found(evidence: Evidence) -> pl.DataFrame:
    """What the flows' bandwidth estimates added up to when they left STARTUP, over the bottleneck's rate."""
    found = _left_startup(evidence).group_by("run").agg(pl.col("bandwidth_estimate_mbps").sum())
    rates = evidence.runs.select("run", "bandwidth_mbps")
    value = (pl.col("bandwidth_estimate_mbps") / pl.col("bandwidth_mbps")).alias("value")
    return found.join(rates, on="run").select("run", value)


def _second_half(series: pl.DataFrame) -> pl.DataFrame:
    return series.filter(pl.col("time_s") > pl.col("time_s").max().over("run") / 2)


def late_mbps(evidence: Evidence) -> pl.DataFrame:
    """Mean throughput in the second half of the run."""
    return _second_half(evidence.throughput).group_by("run").agg(pl.col("throughput_mbps").mean().alias("value"))


def retransmit_share(evidence: Evidence) -> pl.DataFrame:
    """Retransmitted segments over full segments of payload that arrived, in the whole run. Null where nobody counts
    them, as with QUIC."""
    payload = pl.col("ip_version").replace_strict(units.PAYLOAD_BYTES_OF)
    arrived = summary.payload() * 1e6 / 8 / payload
    of_run = evidence.flows.group_by("run").agg(summary.counted("retransmits"), arrived.sum().alias("arrived"))
    return of_run.select("run", (pl.col("retransmits") / pl.col("arrived").clip(1)).alias("value"))


def late_retransmit_share(evidence: Evidence) -> pl.DataFrame:
    """Retransmitted over delivered segments, in the run's second half: without STARTUP. Null on vm."""
    counters = pl.col("retransmits", "delivered_packets")
    counted = evidence.samples.filter(pl.col("delivered_packets").is_not_null())
    of_flow = _second_half(counted).group_by("run", "flow").agg(counters.max() - counters.min())
    of_run = of_flow.group_by("run").agg(pl.col("retransmits", "delivered_packets").sum())
    return of_run.select("run", (pl.col("retransmits") / pl.col("delivered_packets").clip(1)).alias("value"))


def oracle_mbps(evidence: Evidence) -> pl.DataFrame:
    """What the best possible sender would carry in these timeslices, in the run's second half (oracle.py). Null on
    vm."""
    return _oracle(evidence, None)


def oracle_one_rtt_mbps(evidence: Evidence) -> pl.DataFrame:
    """The same, if at most one round trip's worth may wait at the bottleneck when a timeslice ends. Null on vm."""
    return _oracle(evidence, 1)


def _oracle(evidence: Evidence, ahead_rtts: float | None) -> pl.DataFrame:
    rows = []
    for run, timeslices, path in when_it_ran(evidence):
        ahead_s = None if ahead_rtts is None else path["rtt_ms"] * ahead_rtts / 1e3
        link = path["bandwidth_mbps"], path["buffer_bytes"], path["from_s"], path["to_s"]
        rows.append((run, oracle.carried_mbps(timeslices, *link, ahead_s, path["ip_version"])))
    return pl.DataFrame(rows, schema={"run": pl.String, "value": pl.Float64}, orient="row")


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


def _of_flow(evidence: Evidence, number: int) -> pl.DataFrame:
    return evidence.flows.filter(pl.col("flow") == number).select("run", pl.col("throughput_mbps").alias("value"))


def first_flow_mbps(evidence: Evidence) -> pl.DataFrame:
    """Throughput of the first flow while it sent."""
    return _of_flow(evidence, 0)


def second_flow_mbps(evidence: Evidence) -> pl.DataFrame:
    """Throughput of the second flow while it sent."""
    return _of_flow(evidence, 1)


def first_flow_share(evidence: Evidence) -> pl.DataFrame:
    """The first flow's part of what all flows received in the run's second half: without STARTUP."""
    rate, first = pl.col("throughput_mbps"), pl.col("flow") == 0
    late = _second_half(evidence.flow_throughput)
    return late.group_by("run").agg((rate.filter(first).sum() / rate.sum()).alias("value"))


def first_flow_retransmit_share(evidence: Evidence) -> pl.DataFrame:
    """The first flow's part of all retransmitted segments. Null where none were."""
    every, first = pl.col("retransmits"), pl.col("flow") == 0
    value = every.filter(first).sum() / pl.when(every.sum() > 0).then(every.sum())
    return evidence.flows.group_by("run").agg(value.alias("value"))


def first_flow_queue_share(evidence: Evidence) -> pl.DataFrame:
    """The first flow's part of the bottleneck's queue in the run's second half. Null on vm."""
    of_flow = _second_half(evidence.samples).group_by("run", "flow").agg(pl.col("queue_bytes").mean())
    queue, first = pl.col("queue_bytes"), pl.col("flow") == 0
    return of_flow.group_by("run").agg((queue.filter(first).sum() / queue.sum()).alias("value"))


def _while_all_send(evidence: Evidence, number: int) -> pl.DataFrame:
    ends = evidence.flows.group_by("run").agg(begun=pl.col("start_s").max(), ended=pl.col("stop_s").min())
    of_flow = evidence.flow_throughput.filter(pl.col("flow") == number).join(ends, on="run")
    time = pl.col("time_s")
    both = of_flow.filter((time > pl.col("begun") + SETTLED_S) & (time <= pl.col("ended")))
    return both.group_by("run").agg(pl.col("throughput_mbps").mean().alias("value"))


def first_flow_together_mbps(evidence: Evidence) -> pl.DataFrame:
    """The first flow's throughput while all flows send, from 10 s after the last one's start on."""
    return _while_all_send(evidence, 0)


def second_flow_together_mbps(evidence: Evidence) -> pl.DataFrame:
    """The second flow's throughput while all flows send, from 10 s after the last one's start on."""
    return _while_all_send(evidence, 1)


def queue_mean_ms(evidence: Evidence) -> pl.DataFrame:
    """Mean queueing delay at the bottleneck: the mean over the flows, which all count the same. Null on vm."""
    return evidence.flows.group_by("run").agg(pl.col("queue_mean_ms").mean().alias("value"))


def completion_p99_ms(evidence: Evidence) -> pl.DataFrame:
    """The 99th percentile of the completion times of the run's flows, of those that were through."""
    value = pl.col("completion_ms").quantile(0.99, "linear")
    return evidence.flows.group_by("run").agg(value.alias("value"))


def _at_cwnd(evidence: Evidence, number: int) -> pl.DataFrame:
    later = _later_samples(evidence).filter((pl.col("flow") == number) & pl.col("mode").ne_missing("probe_rtt"))
    # Samples are taken at ACKs, which have just made room for a burst of two.
    room = pl.col("cwnd_packets") - pl.col("inflight_packets")
    return later.group_by("run").agg((room <= 2).mean().alias("value"))


def first_flow_at_cwnd(evidence: Evidence) -> pl.DataFrame:
    """Part of the first flow's samples after STARTUP, without PROBE_RTT, with as much in flight as cwnd allows."""
    return _at_cwnd(evidence, 0)


def second_flow_at_cwnd(evidence: Evidence) -> pl.DataFrame:
    """Part of the second flow's samples after STARTUP, without PROBE_RTT, with as much in flight as cwnd allows."""
    return _at_cwnd(evidence, 1)


def fairness(evidence: Evidence) -> pl.DataFrame:
    """Jain's index of the flows' throughputs: 1 if all are equal, 1/n if one has everything (RFC 5166, 2.3)."""
    rate = pl.col("throughput_mbps")
    index = rate.sum() ** 2 / (pl.len() * (rate**2).sum())
    return evidence.flows.group_by("run").agg(index.alias("value"))


def recovery_s(evidence: Evidence) -> pl.DataFrame:
    """The time from the run's middle until the throughput of a second reaches 80 % of the bottleneck's rate; the whole
    second half if it never does."""
    runs = evidence.flows.group_by("run").agg(
        level=pl.col("bandwidth_mbps").first() * 0.8, middle=pl.col("duration_s").first() / 2
    )
    smooth = pl.col("throughput_mbps").rolling_mean(10, min_samples=10).over("run")
    of_run = evidence.throughput.sort("run", "time_s").with_columns(smooth=smooth).join(runs, on="run")
    # Only seconds that lie completely after the middle.
    reached = of_run.filter((pl.col("time_s") > pl.col("middle") + 0.95) & (pl.col("smooth") >= pl.col("level")))
    since = reached.group_by("run").agg((pl.col("time_s") - pl.col("middle")).min().alias("since"))
    return runs.join(since, on="run", how="left").select("run", pl.coalesce("since", "middle").alias("value"))


def ever_mbps(evidence: Evidence) -> pl.DataFrame:
    """The maximum throughput in any second of the run, STARTUP's too."""
    return _best_second(evidence.throughput)


def best_mbps(evidence: Evidence) -> pl.DataFrame:
    """The maximum throughput in any second after STARTUP."""
    return _best_second(evidence.throughput.filter(pl.col("time_s") > STARTUP_S))


def _best_second(later: pl.DataFrame) -> pl.DataFrame:
    smooth = later.with_columns(pl.col("throughput_mbps").rolling_mean(10, min_samples=5).over("run"))
    return smooth.group_by("run").agg(pl.col("throughput_mbps").max().alias("value"))


def _later_samples(evidence: Evidence) -> pl.DataFrame:
    return evidence.samples.filter(pl.col("time_s") > STARTUP_S)


def inflight_bdp(evidence: Evidence) -> pl.DataFrame:
    """Median of what is in flight after STARTUP, in BDPs by the control's own estimate."""
    return _later_samples(evidence).group_by("run").agg(pl.col("inflight_bdp").median().alias("value"))


def below_bdp_share(evidence: Evidence) -> pl.DataFrame:
    """Part of the samples after STARTUP with less than one BDP in flight."""
    known = _later_samples(evidence).filter(pl.col("inflight_bdp").is_not_null())
    return known.group_by("run").agg((pl.col("inflight_bdp") < 1).mean().alias("value"))


def between_1_and_2_bdp_share(evidence: Evidence) -> pl.DataFrame:
    """Part of the samples after STARTUP with one to two BDP in flight."""
    known = _later_samples(evidence).filter(pl.col("inflight_bdp").is_not_null())
    return known.group_by("run").agg(pl.col("inflight_bdp").is_between(1, 2).mean().alias("value"))


def estimate_mbps(evidence: Evidence) -> pl.DataFrame:
    """Median bandwidth estimate in the run's second half."""
    late = _second_half(evidence.samples)
    return late.group_by("run").agg(pl.col("bandwidth_estimate_mbps").median().alias("value"))


def delivery_to_pacing(evidence: Evidence) -> pl.DataFrame:
    """Median of delivery rate over pacing rate after STARTUP."""
    later = _later_samples(evidence).filter(pl.col("pacing_rate_mbps") > 0)
    ratio = pl.col("delivery_rate_mbps") / pl.col("pacing_rate_mbps")
    return later.group_by("run").agg(ratio.median().alias("value"))


def _to_link(evidence: Evidence, column: str) -> pl.DataFrame:
    late = _second_half(evidence.samples).group_by("run").agg(pl.col(column).median().alias("rate"))
    rates = evidence.runs.select("run", "bandwidth_mbps")
    return late.join(rates, on="run").select("run", (pl.col("rate") / pl.col("bandwidth_mbps")).alias("value"))


def pacing_to_link(evidence: Evidence) -> pl.DataFrame:
    """Median pacing rate in the run's second half over the bottleneck's rate."""
    return _to_link(evidence, "pacing_rate_mbps")


def delivery_to_link(evidence: Evidence) -> pl.DataFrame:
    """Median delivery rate in the run's second half over the bottleneck's rate."""
    return _to_link(evidence, "delivery_rate_mbps")


def estimate_to_link(evidence: Evidence) -> pl.DataFrame:
    """Median bandwidth estimate in the run's second half over the bottleneck's rate."""
    return _to_link(evidence, "bandwidth_estimate_mbps")


def estimate_follows_s(evidence: Evidence) -> pl.DataFrame:
    """The time from the first sample after STARTUP whose delivery rate is at most half of the estimate that STARTUP
    left, until the first whose estimate is: how long the estimate stays behind. Null if either never falls so far."""
    left = _left_startup(evidence).rename({"time_s": "left_s", "bandwidth_estimate_mbps": "found"})
    later = evidence.samples.join(left, on=["run", "flow"]).filter(pl.col("time_s") >= pl.col("left_s"))
    half = pl.col("found") / 2
    first = later.group_by("run", "flow").agg(
        delivery=pl.col("time_s").filter(pl.col("delivery_rate_mbps") <= half).min(),
        estimate=pl.col("time_s").filter(pl.col("bandwidth_estimate_mbps") <= half).min(),
    )
    return first.group_by("run").agg((pl.col("estimate") - pl.col("delivery")).median().alias("value"))


def high_gain_in_deficit(evidence: Evidence) -> pl.DataFrame:
    """The part of the samples after STARTUP with less than one BDP in flight that is paced at a gain of 2 or more."""
    low = _later_samples(evidence).filter(pl.col("inflight_bdp") < 1)
    return low.group_by("run").agg((pl.col("pacing_gain") >= 2).mean().alias("value"))


def high_gain_without_deficit(evidence: Evidence) -> pl.DataFrame:
    """The part of the samples after STARTUP with 1.1 BDP or more in flight that is paced at a gain of 2 or more."""
    enough = _later_samples(evidence).filter(pl.col("inflight_bdp") >= 1.1)
    return enough.group_by("run").agg((pl.col("pacing_gain") >= 2).mean().alias("value"))


def short_train_share(evidence: Evidence) -> pl.DataFrame:
    """Part of the packets that left the sender in trains of at most SHORT_TRAIN packets. Needs packets."""
    return evidence.trains.group_by("run").agg((pl.col("train") <= SHORT_TRAIN).mean().alias("value"))


def train_packets(evidence: Evidence) -> pl.DataFrame:
    """The train in which a packet left the sender, in packets: the mean over all packets. Needs packets."""
    return evidence.trains.group_by("run").agg(pl.col("train").mean().alias("value"))


# Each metric by name: its function, and its unit for people.
METRICS: dict[str, tuple[Callable[[Evidence], pl.DataFrame], str]] = {
    "startup_peak_mbps": (startup_peak_mbps, "Mbit/s"),
    "startup_s": (startup_s, "s"),
    "startup_found": (startup_found, ""),
    "late_mbps": (late_mbps, "Mbit/s"),
    "oracle_mbps": (oracle_mbps, "Mbit/s"),
    "oracle_one_rtt_mbps": (oracle_one_rtt_mbps, "Mbit/s"),
    "best_mbps": (best_mbps, "Mbit/s"),
    "ever_mbps": (ever_mbps, "Mbit/s"),
    "retransmit_share": (retransmit_share, ""),
    "late_retransmit_share": (late_retransmit_share, ""),
    "first_flow_mbps": (first_flow_mbps, "Mbit/s"),
    "second_flow_mbps": (second_flow_mbps, "Mbit/s"),
    "first_flow_share": (first_flow_share, ""),
    "first_flow_retransmit_share": (first_flow_retransmit_share, ""),
    "first_flow_queue_share": (first_flow_queue_share, ""),
    "first_flow_together_mbps": (first_flow_together_mbps, "Mbit/s"),
    "second_flow_together_mbps": (second_flow_together_mbps, "Mbit/s"),
    "first_flow_at_cwnd": (first_flow_at_cwnd, ""),
    "second_flow_at_cwnd": (second_flow_at_cwnd, ""),
    "queue_mean_ms": (queue_mean_ms, "ms"),
    "completion_p99_ms": (completion_p99_ms, "ms"),
    "fairness": (fairness, ""),
    "recovery_s": (recovery_s, "s"),
    "inflight_bdp": (inflight_bdp, "BDP"),
    "below_bdp_share": (below_bdp_share, ""),
    "between_1_and_2_bdp_share": (between_1_and_2_bdp_share, ""),
    "estimate_mbps": (estimate_mbps, "Mbit/s"),
    "pacing_to_link": (pacing_to_link, ""),
    "delivery_to_link": (delivery_to_link, ""),
    "estimate_to_link": (estimate_to_link, ""),
    "estimate_follows_s": (estimate_follows_s, "s"),
    "delivery_to_pacing": (delivery_to_pacing, ""),
    "high_gain_in_deficit": (high_gain_in_deficit, ""),
    "high_gain_without_deficit": (high_gain_without_deficit, ""),
    "short_train_share": (short_train_share, ""),
    "train_packets": (train_packets, "packets"),
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
    return OF_RUNS[metric] if metric in OF_RUNS else METRICS[metric][1]
