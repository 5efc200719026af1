"""What the controller of virtual time returns, as rows and frames of a dataset."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

from brobust import _core
from brobust.cc import names as cc_names
from brobust.dataset import CALLS, PACKETS, SAMPLES, flow_columns, frame
from brobust.dataset.raw import RawTimeslices, from_bytes
from brobust.errors import RunFailed
from brobust.lazily import pl
from brobust.scenario import Run
from brobust.virtual.describe import INTERVAL_NS, start_times

# struct brobust_program_call (kernel/virtual/tree/arch/um/brobust/brobust.h), as numpy has it.
_CALL = [
    ("begin", "<i8"), ("end", "<i8"), ("result", "<i8"), ("process", "<u4"), ("thread", "<u4"), ("number", "<u4"),
    ("name", "S16"), ("unused", "<u4"),
]  # fmt: skip
# What the controller has counted of a flow by the names of the columns.
AS_COUNTED = ("rtt_mean_ms", "rtt_p99_ms", "drops", "queue_mean_ms", "skb_mean_bytes", "pacing_idle_ms")


def flow_rows(run: Run, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each flow, with what both ends and the link have counted. Raise RunFailed where an error ended
    a flow."""
    s, rows = run.scenario, []
    modelled = s.cpu.frequency is not None or bool(s.programs.work)
    busy = [ns / s.duration if modelled else None for ns in result["busy_ns"]]
    for columns, flow, start in zip(flow_columns(s), result["flows"], start_times(run), strict=True):
        if flow["errno"]:
            why = os.strerror(flow["errno"]).lower()
            number = columns["flow"]
            raise RunFailed(f"flow {number} ({columns['cc']}) ended: {why} ({errno.errorcode.get(flow['errno'])})")
        ended = flow["ended_ns"]
        columns |= {"start_s": start / 1e9, "stop_s": columns["stop_s"] if ended is None else ended / 1e9}
        seconds = columns["stop_s"] - columns["start_s"]
        received = flow["received_bytes"]
        if ended is None and columns["stop_s"] < s.duration / 1e9:
            received = _received_by(columns["stop_s"], columns, result["throughput"], s.duration / 1e9, received)
        slices = result["timeslices_ns"][columns["sender"] - 1]
        rows.append(
            {
                **columns,
                "throughput_mbps": received * 8e-6 / seconds,
                "completion_ms": None if ended is None else (ended - start) / 1e6,
                "retransmits": flow["retransmits"],
                "nic_drops": result["work"]["nic_drops"],
                **{name: flow[name] for name in AS_COUNTED},
                "cpu_busy_share": busy[columns["sender"] - 1],
                **_cpu_received(slices, s.duration, columns["driver"] != "none"),
            }
        )
    return rows


def _received_by(
    time_s: float, flow: dict[str, Any], over_time: dict[str, tuple[str, bytes]], end_s: float, received: int
) -> float:
    """Return how many bytes a flow's receiver had at a time. Buffers still hold data when a flow stops sending, which
    arrives later. Within an interval of the throughput over time, bytes are taken to arrive evenly."""
    import numpy as np

    of_flow = from_bytes(over_time).filter(pl.col("flow") == flow["flow"])
    times = flow["start_s"] + of_flow["time_s"].to_numpy()
    so_far = (of_flow["throughput_mbps"] * (INTERVAL_NS / 8e3)).cum_sum().to_numpy()
    return float(np.interp(time_s, [flow["start_s"], *times, end_s], [0, *so_far, received]))


def _cpu_received(slices: list[tuple[int, int]], duration: int, contended: bool) -> dict[str, Any]:
    """Return what a sender had of its CPU. Means are over whole timeslices: the run cuts the first and the last."""
    share = sum(end - begin for begin, end in slices) / duration
    if not contended:
        return {"effective_share": share}
    whole = [end - begin for begin, end in slices if begin > 0 and end < duration]
    off = [after[0] - before[1] for before, after in itertools.pairwise(slices)]
    return {
        "effective_share": share,
        "effective_timeslice_ms": sum(whole) / len(whole) / 1e6 if whole else None,
        "effective_offtime_ms": sum(off) / len(off) / 1e6 if off else None,
        "timeslices": len(slices),
        "lost_events": 0,
    }


def offtimes(senders: list[list[tuple[int, int]]], run: Run) -> RawTimeslices:
    """Return the timeslices (begin and end, ns) of the senders whose CPU was taken away."""
    contended = {
        number: slices for number, slices in enumerate(senders, start=1) if run.scenario.contention_of(number).active
    }
    return RawTimeslices(run.id, run.scenario.duration, contended)


def program_calls(directory: Path, origin_ns: int, run: Run) -> pl.DataFrame:
    """Return the table of the calls that programs have made: of each node, what its kernel wrote into a file of its
    name. `origin_ns`: when the run began on the kernels' clocks."""
    import numpy as np

    names = _core.syscall_names()
    every = []
    for file in sorted(directory.iterdir()):
        called = np.fromfile(file, np.dtype(_CALL))
        columns = {
            "start_s": (called["begin"] - origin_ns) / 1e9, "duration_ms": (called["end"] - called["begin"]) / 1e6,
            **{name: called[name].astype(np.int64) for name in ("process", "thread", "number", "result")},
        }  # fmt: skip
        text = pl.Series("name", [name.decode(errors="replace") for name in called["name"].tolist()], pl.String)
        every.append(pl.DataFrame(columns).with_columns(text, run=pl.lit(run.id), node=pl.lit(file.name)))
    number = pl.col("number")
    call = number.replace_strict(names, default=number.cast(pl.String), return_dtype=pl.String)
    return in_order(pl.concat(every).with_columns(call=call), CALLS) if every else frame([], CALLS)


def in_order(table: pl.DataFrame, columns: dict[str, Any]) -> pl.DataFrame:
    """Return a table with the documented columns, in their order and of their types."""
    return table.select(pl.col(name).cast(column.dtype) for name, column in columns.items())


def samples(table: dict[str, tuple[str, bytes]], run: Run) -> pl.DataFrame:
    """Return the samples of the sockets, with names in place of the controller's numbers."""
    controls = [row["cc"] for row in flow_columns(run.scenario)]
    samples = from_bytes(table).with_columns(
        pl.lit(run.id).alias("run"),
        pl.col("flow").replace_strict(dict(enumerate(controls)), return_dtype=pl.String).alias("cc"),
        pl.col("mode").replace_strict(dict(enumerate(cc_names.MODES)), default=None, return_dtype=pl.String),
        pl.col("state").replace_strict(dict(enumerate(cc_names.CA_STATES)), default=None, return_dtype=pl.String),
    )
    return in_order(samples, SAMPLES)


def packets(table: dict[str, tuple[str, bytes]], run: str) -> pl.DataFrame:
    packets = from_bytes(table).with_columns(
        pl.lit(run).alias("run"),
        pl.when("is_ack").then(pl.lit("ack")).otherwise(pl.lit("data")).alias("direction"),
        pl.when(~pl.col("is_ack")).then("queue_bytes").alias("queue_bytes"),
    )
    return in_order(packets, PACKETS)
