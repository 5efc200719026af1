"""Standard output, which may be a full disk; and a page beside it, on a desktop."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from brobust.errors import WriteFailed, reason
from brobust.files import why_not_written

SAY_SECONDS = 60.0
"""How often a line says in a pipe how far long work is. Services for continuous integration end what is silent for ten
minutes."""


def open_closed_streams() -> None:
    """Open /dev/null in place of standard streams that were closed (`>&-`), for which Python has None: else the next
    file that is opened would get a closed one's number, and what is printed to it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123


@contextmanager
def written() -> Iterator[None]:
    """Raise WriteFailed if what the block prints cannot be written. A closed pipe and a terminal that is gone are other
    matters."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO) and _file() is None:
            raise
        raise failed(error) from None


@contextmanager
def if_anybody_reads() -> Iterator[None]:
    """Leave the block where the reader of a pipe has closed it, and go on after it: who asks for a verdict by the exit
    status, as `set -o pipefail` does, gets it although nobody reads the rest of the table."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_the_rest(sys.stdout)


def _drop_the_rest(stream: TextIO) -> None:
    """Let what is printed into a stream from now on, and what it still has in memory, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def flush() -> None:
    """Write what is printed and still in memory."""
    with written():
        sys.stdout.flush()


def has_colors() -> bool:
    """Return whether standard output shows colors, and its user wants them (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def open_page(address: str) -> None:
    """Open a page in the browser of a desktop; elsewhere, and in a pipe, there is only what was printed."""
    if sys.stdout.isatty() and (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        import webbrowser

        webbrowser.open(address)


def end() -> None:
    """Write what is left, or drop it: Python would try once more at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _drop_the_rest(stream)
        except ValueError:  # closed already
            pass


def failed(error: OSError) -> WriteFailed:
    """Return the sentence for standard output that cannot be written."""
    file = _file()
    if file is not None and (of_file := why_not_written(error, file)) is not None:
        return of_file
    return WriteFailed(f"standard output cannot be written: {reason(error)}", "make room")


def _file() -> Path | None:
    """Return the file that standard output is, if it is one."""
    return Path("/proc/self/fd/1").resolve() if stat.S_ISREG(os.fstat(1).st_mode) else None
