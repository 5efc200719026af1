"""When the packets of a run left, and why some left late: data in, data out. report/capture.py puts it into words."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from brobust.dataset import OfRun

TRAIN_S = 1e-6
"""Packets that leave within this time of each other leave at once, as a train."""

COLUMNS: dict[str, Any] = {
    "number": pl.UInt32,  # of the packet, from 0, in the order of the table packets
    "slice": pl.Int64,  # number of the timeslice in which it left, from 1
    "slice_begin_s": pl.Float64,
    "slice_end_s": pl.Float64,
    "off_begin_s": pl.Float64,  # the off-time before that timeslice, for the first train after it
    "due_s": pl.Float64,  # when pacing would have sent it, if that fell into the off-time
    "lag_ms": pl.Float64,  # how late the flow was when this train was due after the one before
    "repaid_ms": pl.Float64,  # how much less of that is left, since it left before its gap was over
    "gap_ms": pl.Float64,  # the time from the train before to this one
    "paced_gap_ms": pl.Float64,  # what that is at the pacing rate
    "first_sent_s": pl.Float64,  # when its last byte was first sent, if it was
    "pacing_rate_mbps": pl.Float64,  # by the last sample before it
    "bandwidth_estimate_mbps": pl.Float64,
    "acted": pl.Boolean,  # whether a repair has acted since the off-time before it
}


def timeslices(run: OfRun, sender: int) -> list[tuple[float, float]]:
    """Return when a sender had its CPU, s; nothing if that was not recorded."""
    of_sender = (pl.col("sender") == sender) & (pl.col("kind") == "timeslice")
    known = run.offtimes.filter(of_sender & pl.col("start_s").is_not_null()).sort("start_s")
    return [(start, start + ms / 1e3) for start, ms in known.select("start_s", "duration_ms").iter_rows()]


def due(times: np.ndarray, sizes: np.ndarray, last: int, rate_mbps: float) -> tuple[float, float]:
    """Return when pacing sends the next packet after packet `last`, s, and the gap before it: until the whole train
    with `last` has left at the pacing rate. `times` (s) and `sizes` (bytes of payload) are of all packets."""
    train = int(np.searchsorted(times, times[last] - TRAIN_S))
    gap = float(sizes[train : last + 1].sum()) * 8e-6 / rate_mbps
    return float(times[last]) + gap, gap


@dataclass(frozen=True)
class Missed:
    """A departure that fell into an off-time."""

    packet: int
    """The row of the packet that was due."""
    due_s: float
    late_s: float
    gap_s: float
    """What pacing had set between it and the train before."""
    next_off_s: float
    """When the next off-time begins; infinity after the last one."""


def missed(data: pl.DataFrame, slices: list[tuple[float, float]], samples: pl.DataFrame) -> Iterator[Missed]:
    """Yield the departures that fell into off-times: after its last packets before an off-time, a paced flow with room
    in its window was due to send the next ones when these had left at its pacing rate. `data` are the flow's data
    packets, `samples` those with a pacing rate, both in the order of their times. Samples of every ACK are taken before
    what the flow then sends, which takes a part of that room; what others leave of it is not known."""
    times, sizes = data["time_s"].to_numpy(), data["payload_bytes"].to_numpy()
    sampled, rates = samples["time_s"].to_numpy(), samples["pacing_rate_mbps"].to_numpy()
    room = (samples["cwnd_packets"] - samples["inflight_packets"]).fill_null(0).to_numpy()
    taken = np.searchsorted(times, sampled + TRAIN_S) - np.searchsorted(times, sampled - 0.5e-9)
    next_offs = [*(end for _, end in slices[1:-1]), np.inf]
    for ((_, begin), (end, _)), next_off in zip(pairwise(slices), next_offs, strict=False):
        packet = int(np.searchsorted(times, begin, side="right"))
        sample = int(np.searchsorted(sampled, begin, side="right")) - 1
        if not 0 < packet < len(times) or sample < 0 or not rates[sample] or room[sample] <= taken[sample]:
            continue
        due_s, gap_s = due(times, sizes, packet - 1, rates[sample])
        if begin <= due_s < end:
            yield Missed(packet, due_s, float(times[packet]) - due_s, gap_s, next_off)


def of_packets(run: OfRun) -> pl.DataFrame:
    """Return the table packets and, with the columns of COLUMNS, what is known of each data packet's departure; null is
    unknown or not so.

    The timeslice needs contention; rates, what was due and what was repaid also a paced flow's samples."""
    packets = run.packets.with_row_index("number").with_columns(pl.col("connection").fill_null(0))
    data = packets.filter((pl.col("direction") == "data") & (pl.col("payload_bytes") > 0))
    found = []
    for flow in run.runs.iter_rows(named=True):
        slices = timeslices(run, flow["sender"])
        for (connection,), part in data.filter(pl.col("flow") == flow["flow"]).group_by("connection"):
            of_it = (pl.col("flow") == flow["flow"]) & (pl.col("connection").fill_null(0) == connection)
            samples = run.samples.filter(of_it & pl.col("pacing_rate_mbps").is_not_null()).sort("time_s")
            is_paced = samples["bandwidth_estimate_mbps"].drop_nulls().len() > 0
            part = part.sort("time_s", "number")
            found.append(_slices(part, slices).with_columns(first_sent_s=_first_sent(part)))
            if is_paced:
                known = _lags(part, slices, samples), _state(part, slices, samples)
                for more in known:
                    found[-1] = found[-1].update(more, on="number")
    departed = pl.concat(found) if found else pl.DataFrame(schema=COLUMNS)
    return packets.join(departed, on="number", how="left", maintain_order="left")


def _slices(data: pl.DataFrame, slices: list[tuple[float, float]]) -> pl.DataFrame:
    """Return the rows with the timeslice of each packet, and the off-time before it for the first train after one."""
    times = data["time_s"].to_numpy()
    # A packet may leave at the very beginning: both are whole ns, of which a float keeps not quite all.
    at = np.searchsorted(np.array([begin for begin, _ in slices]), times + 0.5e-9, side="right") - 1
    rows = []
    before, first_s = -1, -np.inf
    for number, time, index in zip(data["number"], times, at, strict=True):
        row: dict[str, Any] = {"number": number}
        if index >= 0:
            if index != before:  # none of the flow's own first packets has waited
                first_s = time if before >= 0 else -np.inf
            row |= {"slice": int(index) + 1, "slice_begin_s": slices[index][0], "slice_end_s": slices[index][1]}
            if time - first_s <= TRAIN_S and index > 0:
                row["off_begin_s"] = slices[index - 1][1]
        before = int(index)
        rows.append(row)
    return pl.DataFrame(rows, schema=COLUMNS)


def _first_sent(data: pl.DataFrame) -> pl.Series:
    """Return when the last byte of each packet was first sent; null for what was not sent before."""
    ends = (data["seq"] + data["payload_bytes"]).to_numpy()
    highest = np.maximum.accumulate(ends)
    is_new = np.concatenate([[True], ends[1:] > highest[:-1]])
    new_ends, new_times = ends[is_new], data["time_s"].to_numpy()[is_new]
    first = new_times[np.searchsorted(new_ends, ends)]
    is_tcp = (data["seq"] > 0).to_numpy()
    times = [None if new or not tcp else at for new, tcp, at in zip(is_new, is_tcp, first, strict=True)]
    return pl.Series(times, dtype=pl.Float64)  # where nothing was sent again, too


def _state(data: pl.DataFrame, slices: list[tuple[float, float]], samples: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the rates at each departure, and whether a repair has acted since the last off-time began."""
    columns = ("time_s", "pacing_rate_mbps", "bandwidth_estimate_mbps", "deficit_acks")
    state = data.select("number", "time_s").join_asof(samples.select(columns), on="time_s")
    begins = pl.Series("off_s", [end for _, end in slices[:-1]], dtype=pl.Float64)
    # What had been counted when the off-time before each timeslice began.
    before = samples.select("time_s", before="deficit_acks").set_sorted("time_s")
    off_times = begins.to_frame().join_asof(before, left_on="off_s", right_on="time_s").drop("time_s", strict=False)
    state = state.join_asof(off_times, left_on="time_s", right_on="off_s")
    return state.select(
        "number", "pacing_rate_mbps", "bandwidth_estimate_mbps", acted=pl.col("deficit_acks") > pl.col("before")
    )


def _lags(data: pl.DataFrame, slices: list[tuple[float, float]], samples: pl.DataFrame) -> pl.DataFrame:
    """Return rows for the packets that missed their departure, and for those that then left before their gap was over.

    The lag begins with a missed departure, and grows less with each train that leaves earlier after the one before than
    pacing would have it. It is forgotten at the next off-time, as a new departure is missed or not."""
    times, sizes = data["time_s"].to_numpy(), data["payload_bytes"].to_numpy()
    sampled, rates = samples["time_s"].to_numpy(), samples["pacing_rate_mbps"].to_numpy()
    numbers = data["number"].to_list()
    rows = []
    for one in missed(data, slices, samples):
        first, lag = one.packet, one.late_s
        train = {"due_s": one.due_s, "lag_ms": lag * 1e3}
        for packet in range(first, len(times)):
            time = float(times[packet])
            if time >= one.next_off_s:
                break
            if packet > first and time - times[packet - 1] > TRAIN_S:  # a new train
                rate = rates[max(int(np.searchsorted(sampled, times[packet - 1], side="right")) - 1, 0)]
                if lag <= 0 or not rate:
                    break
                next_s, gap = due(times, sizes, packet - 1, rate)
                repaid = min(max(next_s - time, 0.0), lag)
                taken = (time - float(times[packet - 1])) * 1e3
                train = {"lag_ms": lag * 1e3, "repaid_ms": repaid * 1e3, "gap_ms": taken, "paced_gap_ms": gap * 1e3}
                lag -= repaid
            rows.append({"number": numbers[packet], **train})
    columns = ("number", "due_s", "lag_ms", "repaid_ms", "gap_ms", "paced_gap_ms")
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in columns})
