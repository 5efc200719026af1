"""What a guest, or its QEMU, prints: read as it comes, so that a panic is known at once, and never kept whole."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from select import select

KEPT_BYTES = 65536
"""Of the end. A guest may print as much as it likes."""
# What every oops of x86 has in its first line (arch/x86/kernel/dumpstack.c), and the first line of a panic.
PANIC = re.compile(rb"\[#\d+\]|Kernel panic - not syncing")
# For the rest of what it says. A guest that panicked was seen to hang before it could end itself.
LAST_WORDS_SECONDS = 2.0
QUIET_SECONDS = 0.5


class Console:
    """A thread that reads from a descriptor until its end. `on_panic` is called once, when the guest has said why."""

    def __init__(self, name: str, descriptor: int, on_panic: Callable[[], object] = lambda: None):
        self._descriptor = descriptor
        self._on_panic = on_panic
        self._kept = bytearray()
        self.panicked = False
        self._thread = threading.Thread(target=self._read, name=f"console-{name}", daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """Return the last of what was printed."""
        return bytes(self._kept).decode(errors="replace")

    def close(self) -> None:
        """Wait until the other end, which must be closed or about to be, has been read to its end."""
        self._thread.join()

    def _read(self) -> None:
        with os.fdopen(self._descriptor, "rb", buffering=0) as stream:
            while data := self._next(stream.fileno(), None):
                self._keep(data)
                if not self.panicked and PANIC.search(self._kept):
                    self.panicked = True
                    self._hear_out(stream.fileno())
                    self._on_panic()

    def _hear_out(self, stream: int) -> None:
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        while (left := deadline - time.monotonic()) > 0 and (data := self._next(stream, min(left, QUIET_SECONDS))):
            self._keep(data)

    @staticmethod
    def _next(stream: int, seconds: float | None) -> bytes:
        """Return what is there; nothing at the end, or if nothing came in time."""
        if not select([stream], [], [], seconds)[0]:
            return b""
        try:
            return os.read(stream, 4096)
        except OSError:  # the other end was killed
            return b""

    def _keep(self, data: bytes) -> None:
        self._kept += data
        del self._kept[:-KEPT_BYTES]
