"""What a program says of its connection in qlog: its records are taken out of what it printed, and its metrics become
samples. The format is qlog's sequence of JSON texts (RFC 7464), each between a record separator and a newline."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from brobust import units
from brobust.lazily import pl
from brobust.quic import Qlog

SEPARATOR = b"\x1e"
RECORD = re.compile(rb"\x1e[^\x1e\n]*\n?")
# What qlog's recovery:metrics_updated names, in whose unit, and the column of samples that it becomes.
BYTES = {
    "congestion_window": "cwnd_packets", "ssthresh": "ssthresh_packets", "bytes_in_flight": "inflight_packets",
}  # fmt: skip
RATES = {"pacing_rate": "pacing_rate_mbps", "cf_delivery_rate": "delivery_rate_mbps"}
# What the format calls times since the event before: in older drafts, and in newer ones.
SINCE_THE_LAST = ("delta", "relative_to_previous_event")
MAX_NUMBER = 2.0**64
TIMES = {"min_rtt": "min_rtt_ms", "smoothed_rtt": "srtt_ms", "latest_rtt": "rtt_ms"}


def split(output: bytes) -> tuple[bytes, list[bytes]]:
    """Return what a program printed without its qlog, and the records of this."""
    # A record may follow a line that has no end yet, such as that of a progress bar.
    return RECORD.sub(b"", output), RECORD.findall(output)


def samples(records: list[bytes], *, began_s: float, units_of: Qlog | None = None) -> pl.DataFrame:
    """Return a sample for each of the metrics' updates. A record names only what has changed.

    `began_s`: when the connection's first packet was sent, which is when the first event is taken to have been.
    `units_of`: those of the program, where they are not the format's.
    """
    units_of = units_of or Qlog()
    rows: list[dict[str, Any]] = []
    state: dict[str, Any] = {}
    first_ms = None
    for time_ms, name, data in _events(records):
        first_ms = time_ms if first_ms is None else first_ms
        if not name.endswith("metrics_updated"):
            continue
        told = {key: number for key, value in data.items() if (number := _number(value)) is not None}
        state |= {column: int(told[key] // units.PAYLOAD_BYTES) for key, column in BYTES.items() if key in told}
        state |= {column: told[key] * units_of.bits * 1e-6 for key, column in RATES.items() if key in told}
        state |= {column: told[key] * units_of.milliseconds for key, column in TIMES.items() if key in told}
        rows.append({"time_s": began_s + (time_ms - first_ms) / 1e3, **state})
    columns = {"time_s": pl.Float64} | dict.fromkeys(BYTES.values(), pl.Int64)
    schema = columns | dict.fromkeys([*RATES.values(), *TIMES.values()], pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def at_intervals(taken: pl.DataFrame, seconds: float) -> pl.DataFrame:
    """Return the last sample before the end of each interval, with the end as its time."""
    ends = ((pl.col("time_s") / seconds).floor() + 1) * seconds
    return taken.with_columns(ends.alias("time_s")).unique("time_s", keep="last", maintain_order=True)


def _number(value: object) -> float | None:
    """Return a metric's value; None if it is no number that a column can have. Large integers may be texts (the
    format's uint64 in JSON)."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= MAX_NUMBER else None  # false of NaN, too


def _events(records: list[bytes]) -> Iterator[tuple[float, str, dict[str, Any]]]:
    """Yield time (ms), name and data of each event. The last record may be cut off, where a program was ended."""
    adds, time_ms = False, 0.0
    for record in records:
        try:
            event = json.loads(record.lstrip(SEPARATOR))
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        if isinstance(trace := event.get("trace"), dict):
            common = trace.get("common_fields")
            adds = isinstance(common, dict) and common.get("time_format") in SINCE_THE_LAST
        elif (time := _number(event.get("time"))) is not None and isinstance(event.get("data"), dict):
            time_ms = time + (time_ms if adds else 0)
            yield time_ms, str(event.get("name", "")), event["data"]
