"""What the page shows of a recording of sockets (`brobust watch --record`)."""

from datetime import UTC, datetime
from typing import Any

import polars as pl

from brobust.dataset.recordings import SOCKET, Sweeps, stretches
from brobust.errors import BadInput
from brobust.units import show_count, show_measured
from brobust.watch import CAUSES, MEANINGS

MAX_SOCKETS = 300
SHORT_OF_CPU = ("cpu-limited", "throttled")
COLUMNS = ("rate_mbps", "pacing_rate_mbps", "delivery_rate_mbps", "inflight_bytes", "cwnd_bytes", "srtt_ms")
POINTS = 2000
"""So many of a socket's points are drawn."""


def about(recording: Sweeps) -> dict[str, Any]:
    """Return the recording's name, when it began, and its sockets: those that were short of CPU in more sweeps first,
    then those with higher rates. `key` is for `socket`."""
    since = datetime.fromtimestamp(recording.begin_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ordered = (
        recording.flows.group_by(*SOCKET, maintain_order=True)
        .agg(pl.col("cc").first(), pl.col("pod").first(), short=_is_short().sum(), rate=pl.col("rate_mbps").mean())
        .sort("short", "rate", descending=True, nulls_last=True)
    )
    sockets = []
    for row in ordered.head(MAX_SOCKETS).iter_rows(named=True):
        rate = "" if row["rate"] is None else f", {show_measured(row['rate'])} Mbit/s"
        pod = f" ({row['pod']})" if row["pod"] else ""
        sockets.append({
            "key": [row[name] for name in SOCKET],
            "name": f"{row['cc']} to {row['remote']} from {row['local']}{pod}{rate}",
        })  # fmt: skip
    return {"name": recording.name, "since": since, "sockets": sockets, "all": ordered.height}


def socket(recording: Sweeps, key: list[Any]) -> dict[str, Any]:
    """Return a socket over time, when it was short of CPU, and in words what limited it for how long."""
    if not isinstance(key, list) or [type(value) for value in key] != [str, int, str, str]:
        raise BadInput(f"a socket has {', '.join(SOCKET)}")
    flow = recording.flows.filter(pl.col(name) == value for name, value in zip(SOCKET, key, strict=True))
    if flow.is_empty():
        raise BadInput(f"{recording.name} has no such socket")
    flow = flow.join(recording.sweeps.select("sweep", "interval_s", "why"), on="sweep", how="left").sort("time_s")
    points = flow.gather_every(max(flow.height // POINTS, 1))
    verdicts = list(stretches(flow["cause"], (flow["time_s"] - flow["interval_s"]).clip(0), flow["time_s"]))
    return {
        "cc": flow["cc"][0], "duration_s": recording.end_s,
        "samples": {name: points[name].to_list() for name in ("time_s", *COLUMNS)},
        "verdicts": verdicts, "off": [one[1:] for one in verdicts if one[0] in SHORT_OF_CPU],
        "sentences": _sentences(flow),
    }  # fmt: skip


def _is_short() -> pl.Expr:
    return pl.col("cause").is_in(SHORT_OF_CPU)


def _sentences(flow: pl.DataFrame) -> list[str]:
    total = float(flow["interval_s"].sum())
    of_cause = flow.group_by("cause").agg(pl.col("interval_s").sum())
    seconds = dict(of_cause.iter_rows())
    said = [
        f"{cause} for {show_measured(seconds[cause])} of {show_measured(total)} s: "
        + MEANINGS.get(cause, "unknown to this version")
        for cause in sorted(seconds, key=lambda cause: (-seconds[cause], [*CAUSES, cause].index(cause)))
    ]
    short = flow.filter(_is_short() & pl.col("why").is_not_null())
    if not short.is_empty():
        why, times = short["why"].value_counts(sort=True, name="times").row(0)
        said.append(f"Meanwhile, in {times} of {show_count(short.height, 'sweep')}: {why}")
    return said
