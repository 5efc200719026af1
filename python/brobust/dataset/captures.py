"""The capture of a run (DIR/pcap), as virtual time writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from brobust.errors import BadInput
from brobust.lazily import pl

_NANOSECONDS = 0xA1B23C4D  # the magic number of a pcap with such times


def frames(captured: bytes, run: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield of each frame when it was sent, ns after the run's start, its length, and what was kept of it."""
    at = 24
    if len(captured) < at or struct.unpack_from("<I", captured)[0] != _NANOSECONDS:
        raise BadInput(f"run {run}: its capture is damaged; measure it again")
    while at + 16 <= len(captured):
        seconds, ns, kept, length = struct.unpack_from("<4I", captured, at)
        yield seconds * 10**9 + ns, length, captured[at + 16 : at + 16 + kept]
        at += 16 + kept
    if at != len(captured):
        raise BadInput(f"run {run}: its capture is damaged; measure it again")


SYN, ACK = 2, 16  # flags of a segment


class Segment(NamedTuple):
    """What a frame says as a segment of TCP. An end is an address and a port; numbers are as on the wire."""

    here: tuple[bytes, int]
    there: tuple[bytes, int]
    seq: int
    ack: int
    flags: int
    window: int
    options: bytes


def segment(frame: bytes) -> Segment | None:
    """Return what a frame says as a segment of TCP, over either version of IP; None if it is none."""
    kind = frame[12:14]
    if kind == b"\x08\x00" and frame[23:24] == b"\x06":
        ip, tcp = 14, 14 + (frame[14] & 15) * 4
        source, target = frame[ip + 12 : ip + 16], frame[ip + 16 : ip + 20]
    elif kind == b"\x86\xdd" and frame[20:21] == b"\x06":
        tcp = 54
        source, target = frame[22:38], frame[38:54]
    else:
        return None
    if len(frame) < tcp + 20:
        return None
    from_port, to_port, seq, ack, offset, flags, window = struct.unpack_from("!HHIIBBH", frame, tcp)
    options = frame[tcp + 20 : tcp + (offset >> 4) * 4]
    return Segment((source, from_port), (target, to_port), seq, ack, flags, window, options)


def with_rows(captured: bytes, packets: pl.DataFrame, run: str) -> Iterator[tuple[int | None, int, int, bytes]]:
    """Yield of each frame its row in the run's table packets, and what `frames` does. None: it has none. Frames that
    belong to no flow, as the cross traffic's, and those after the run's end, are in the capture only."""
    columns = (packets["time_s"] * 1e9).round().cast(int), packets["frame_bytes"], packets["seq"], packets["ack"]
    table = list(zip(*columns, strict=True))
    # Where a host's CPU was away, frames of several connections leave at the same time, and ACKs are as long as others.
    for by_numbers in (True, False):
        rows = list(_rows(captured, table, run, by_numbers))
        if len(rows) - rows.count(None) == len(table):
            break
    else:
        raise BadInput(f"run {run}: its capture and its table of packets differ; measure it again")
    for row, of_frame in zip(rows, frames(captured, run), strict=True):
        yield row, *of_frame


def _rows(captured: bytes, table: list[tuple[int, int, int, int]], run: str, by_numbers: bool) -> Iterator[int | None]:
    """Yield of each frame the row that has its time and length, and with `by_numbers` its numbers of TCP."""
    first: dict[tuple[tuple[bytes, int], tuple[bytes, int]], int] = {}  # numbers of the SYNs, from which rows count
    next_row = 0
    for at_ns, length, frame in frames(captured, run):
        found = segment(frame) if by_numbers else None
        if found is not None and found.flags & SYN:
            first.setdefault((found.here, found.there), found.seq)
        is_it = next_row < len(table) and table[next_row][:2] == (at_ns, length)
        if is_it and found is not None:
            _, _, seq, ack = table[next_row]
            sent, back = first.get((found.here, found.there)), first.get((found.there, found.here))
            is_it = sent is None or (found.seq - sent - seq) % 2**32 == 0
            is_it &= back is None or not found.flags & ACK or (found.ack - back - ack) % 2**32 == 0
        yield next_row if is_it else None
        next_row += is_it
