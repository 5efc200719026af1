"""The capture of a run (DIR/pcap), as virtual time writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from brobust.errors import BadInput

if TYPE_CHECKING:
    import polars as pl

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


def with_rows(captured: bytes, packets: pl.DataFrame, run: str) -> Iterator[tuple[int | None, int, int, bytes]]:
    """Yield of each frame its row in the run's table packets, and what `frames` does. None: it has none. Frames that
    belong to no flow, as the cross traffic's, and those after the run's end, are in the capture only."""
    known = enumerate(zip((packets["time_s"] * 1e9).round().cast(int), packets["frame_bytes"], strict=True))
    expected = next(known, None)
    for at_ns, length, frame in frames(captured, run):
        row = None
        if expected is not None and expected[1] == (at_ns, length):
            row, expected = expected[0], next(known, None)
        yield row, at_ns, length, frame
    if expected is not None:
        raise BadInput(f"run {run}: its capture and its table of packets differ; measure it again")
