"""Standard output, which may be a full disk."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brobust.errors import WriteFailed
from brobust.files import why_not_written


@contextmanager
def written() -> Iterator[None]:
    """Raise WriteFailed if what the block prints cannot be written. A closed pipe is another matter: its reader has
    what it wanted."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise failed(error) from None


def flush() -> None:
    """Write what is printed and still in memory."""
    if sys.stdout is not None:
        with written():
            sys.stdout.flush()


def end() -> None:
    """Write what is left, or drop it: Python would try once more when it ends, and print a traceback."""
    try:
        flush()
    except (WriteFailed, OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def failed(error: OSError) -> WriteFailed:
    """Return the sentence for standard output that cannot be written."""
    place = None
    if stat.S_ISREG(os.fstat(1).st_mode):
        place = Path("/proc/self/fd/1").resolve()
    if place is not None and (of_file := why_not_written(error, place)) is not None:
        return of_file
    why = (error.strerror or str(error)).lower()
    return WriteFailed(f"standard output cannot be written: {why}", "make room")
