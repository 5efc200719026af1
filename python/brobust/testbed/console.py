"""Read what a guest or its QEMU prints, as it is printed, so that a panic is noticed at once. Only the end is kept."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from select import select

KEPT_BYTES = 65536
"""This much of the end is kept, since a guest may print any amount."""
# A part of the first line of every oops on x86 (arch/x86/kernel/dumpstack.c), and of the first line of a panic.
PANIC = re.compile(rb"\[#\d+\]|Kernel panic - not syncing")
# The time that a guest gets to print the rest of its report. Guests that panic may hang before they end.
MAX_REPORT_SECONDS = 2.0
QUIET_SECONDS = 0.5


class Console:
    """A thread that reads a descriptor to its end. `on_panic` is called once, after the report of the panic."""

    def __init__(self, name: str, descriptor: int, on_panic: Callable[[], object] = lambda: None):
        self._descriptor = descriptor
        self._on_panic = on_panic
        self._kept = bytearray()
        self.panicked = False
        self._thread = threading.Thread(target=self._read, name=f"console-{name}", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """Return the end of what was printed."""
        return bytes(self._kept).decode(errors="replace")

    def read_rest(self, seconds: float) -> None:
        """Wait until everything is read that a writer printed which has just ended, for at most so long."""
        self._thread.join(seconds)

    def close(self) -> None:
        """Wait until everything is read. The writer must have closed its end, or be about to."""
        self._thread.join()

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb", buffering=0) as stream:
            while data := self._next(stream.fileno(), None):
                self._keep(data)
                if not self.panicked and PANIC.search(self._kept):
                    self.panicked = True
                    self._read_report(stream.fileno())
                    self._on_panic()

    def _read_report(self, stream: int) -> None:
        deadline = time.monotonic() + MAX_REPORT_SECONDS
        while (left := deadline - time.monotonic()) > 0 and (data := self._next(stream, min(left, QUIET_SECONDS))):
            self._keep(data)

    @staticmethod
    def _next(stream: int, seconds: float | None) -> bytes:
        """Return the next bytes; none at the end, or if none come in time."""
        if not select([stream], [], [], seconds)[0]:
            return b""
        try:
            return os.read(stream, 4096)
        except OSError:  # the other end was killed
            return b""

    def _keep(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-KEPT_BYTES]
