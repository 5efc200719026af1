"""The capture of a run (DIR/pcap), as virtual time writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from brobust.errors import BadInput

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
