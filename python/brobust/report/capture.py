"""A run's packets as pcapng for Wireshark, each with a comment: its timeslice, and why it is late.

Three kinds of blocks of draft-ietf-opsawg-pcapng are written, by hand: Python's packages for the format are bindings
to C or no longer maintained.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from brobust import files
from brobust.analysis import departures
from brobust.dataset import OfRun
from brobust.dataset.captures import with_rows
from brobust.errors import BadInput

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_COMMENT, _RESOLUTION, _APPLICATION = 1, 9, 4  # codes of options; 4 is for a section
_LEAST_REPAID_MS = 0.001


def write(run: OfRun, file: Path) -> dict[str, int]:
    """Write the capture, and return the number of its `packets`, and of those with `comments`. Refuse a run without
    packets."""
    captured, table = run.pcap, run.packets
    name = run.runs["run"][0]
    if captured is None or table.is_empty():
        raise BadInput(f"run {name} has no packets; `brobust run --packets` records them")
    comments = _comments(run)
    packets = written = 0
    with files.replaced(file) as out:
        section = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        _block(out, _SECTION, section, {_COMMENT: f"run {name}", _APPLICATION: "brobust"})
        _block(out, _INTERFACE, struct.pack("<HHI", 1, 0, 0), {_RESOLUTION: b"\x09"})
        for row, at_ns, length, frame in with_rows(captured, table, name):
            comment = None if row is None else comments[row]
            body = struct.pack("<5I", 0, at_ns >> 32, at_ns & 0xFFFFFFFF, len(frame), length) + _padded(frame)
            _block(out, _PACKET, body, {_COMMENT: comment} if comment else {})
            packets, written = packets + 1, written + bool(comment)
    return {"packets": packets, "comments": written}


def _block(out: BinaryIO, kind: int, body: bytes, options: dict[int, str | bytes]) -> None:
    encoded = b"".join(
        struct.pack("<HH", code, len(value)) + _padded(value)
        for code, text in options.items()
        for value in (text.encode() if isinstance(text, str) else text,)
    )
    end = b"\0\0\0\0" if options else b""
    length = struct.pack("<I", 12 + len(body) + len(encoded) + len(end))
    out.write(struct.pack("<I", kind) + length + body + encoded + end + length)


def _padded(value: bytes) -> bytes:
    return value + bytes(-len(value) % 4)


def _comments(run: OfRun) -> list[str | None]:
    """Return for each row of the table packets what is worth saying of it."""
    buffer, second_mbps = run.runs.select("buffer_bytes", "second_bandwidth_mbps").row(0)
    room = f", and the buffer has {buffer}" if second_mbps is None else " at both bottlenecks"
    said = []
    for packet in departures.of_packets(run).iter_rows(named=True):
        parts = list(_said(packet))
        if packet["dropped"]:
            queued = packet["queue_bytes"]
            had = "" if queued is None else f"; {queued} bytes were queued{room}"
            parts.append(f"does not arrive: lost, or dropped at the bottleneck{had}")
        said.append(". ".join(parts) or None)
    return said


def _said(of: dict[str, Any]) -> Iterator[str]:
    """Yield a sentence, without its full stop, for each thing that is known of a departure."""
    time_s = of["time_s"]
    if of["first_sent_s"] is not None:
        ago = (time_s - of["first_sent_s"]) * 1e3
        yield f"retransmission: first sent {ago:.2f} ms before, at {of['first_sent_s']:.6f} s"
    if of["slice"] is None:
        return
    into = max((time_s - of["slice_begin_s"]) * 1e3, 0)  # both are rounded
    yield f"timeslice {of['slice']}: {of['slice_begin_s']:.6f} to {of['slice_end_s']:.6f} s, {into:.2f} ms into it"
    if of["off_begin_s"] is not None:
        away = f"the CPU was away from {of['off_begin_s']:.6f} to {of['slice_begin_s']:.6f} s"
        if of["due_s"] is None:
            yield f"first after an off-time: {away}"
        else:
            yield f"{of['lag_ms']:.2f} ms late: due at {of['due_s']:.6f} s, but {away}"
    if of["acted"]:
        paced, estimate = of["pacing_rate_mbps"], of["bandwidth_estimate_mbps"]
        rates = "" if estimate is None else f": paced at {paced:.1f} Mbit/s, bandwidth estimate {estimate:.1f}"
        yield f"the repair acted in this timeslice{rates}"
    if of["repaid_ms"] is not None and of["repaid_ms"] >= _LEAST_REPAID_MS:
        yield (
            f"repays {of['repaid_ms']:.2f} of {of['lag_ms']:.2f} ms of lag: {of['gap_ms']:.2f} ms after the packets "
            f"before it, where its pacing rate has {of['paced_gap_ms']:.2f}"
        )
