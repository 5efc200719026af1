"""Write files that are kept. Each is either whole or absent, whenever the writing process or its machine dies."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from brobust.errors import BadInput

SCRATCH = ".brobust-*.new"
"""The name of a file while it is written. If one is left over, the process that wrote it was killed."""


MAX_DEPTH = 20  # of nested tables and lists in a user's TOML file


@contextmanager
def replaced(file: Path) -> Iterator[BinaryIO]:
    """Open a new file for writing, and give it the name `file` when the block ends without an error.

    The file and its name are then on the disk: after a power cut either the old file is there or the new one. It is
    written in the same directory under a name that nobody can guess, and no link is followed, since root may write to
    directories in which other users can create links.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(file.lstat().st_mode):  # a rename would replace even /dev/null by a file
            raise FileExistsError(errno.EEXIST, "this name belongs to something other than a regular file", str(file))
    scratch = file.with_name(SCRATCH.replace("*", secrets.token_hex(8)))
    descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        scratch.replace(file)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _sync_directory(file.parent)


def write(file: Path, content: bytes | memoryview | str) -> None:
    """Write a file as a whole; text is encoded as UTF-8."""
    with replaced(file) as out:
        out.write(content.encode() if isinstance(content, str) else content)


def read_toml(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file, or refuse it in one line."""
    try:
        found = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, a number of 5000 digits, deep nesting
        raise BadInput(f"{file}: not a TOML file ({error})") from None
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise BadInput(f"{file}: tables and lists are nested more than {MAX_DEPTH} deep; no field needs that")
    return found


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def is_file(path: str | Path) -> bool:
    """Return whether this is a file. For an impossible name, of 400 letters or with a NUL, pathlib would raise; this
    returns False."""
    return os.path.isfile(path)  # noqa: PTH113


def is_directory(path: str | Path) -> bool:
    """Return whether this is a directory, with `is_file`'s answer for impossible names."""
    return os.path.isdir(path)  # noqa: PTH112


def make_directory(directory: Path) -> None:
    """Make a directory and its parents if they are missing, such that they survive a power cut."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def remove_scratch(directory: Path) -> None:
    """Remove the half-written files that killed processes left in this directory. The caller must know that no other
    process is writing there."""
    for scratch in directory.glob(SCRATCH):
        scratch.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
