"""Files that are kept: each is whole or absent, whenever the process that writes it or its machine dies."""

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
"""What a file is called while it is written; one that is left over was written by a process that was killed."""


DEEPEST = 20  # of tables and lists in each other, in a file of the user's


@contextmanager
def replaced(file: Path) -> Iterator[BinaryIO]:
    """Give a file to write to, which takes the name `file` when the block ends without an error.

    It is on the disk then, with its name: after a power cut either the old file is there or the new one. It is written
    in the same directory, under a name that cannot be foreseen, and no link is followed: root may write where others
    can.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(file.lstat().st_mode):  # a rename would put a file in the place of /dev/null
            raise FileExistsError(errno.EEXIST, "something else than an ordinary file has this name", str(file))
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
    """Write a whole file; text in UTF-8."""
    with replaced(file) as out:
        out.write(content.encode() if isinstance(content, str) else content)


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file; one that is none is refused in one line."""
    try:
        found = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, not TOML, 5000 digits, lists in lists in lists
        raise BadInput(f"{file}: not a TOML file ({error})") from None
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise BadInput(f"{file}: tables and lists in each other, more than {DEEPEST} deep; nothing here needs that")
    return found


def _inside(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def is_file(path: str | Path) -> bool:
    """Say whether this is a file. What cannot be a name, with 400 letters or a NUL, is none; pathlib raises."""
    return os.path.isfile(path)  # noqa: PTH113


def is_directory(path: str | Path) -> bool:
    """Say whether this is a directory, as `is_file` does."""
    return os.path.isdir(path)  # noqa: PTH112


def make_directory(directory: Path) -> None:
    """Make a directory with its parents, where it is not there, so that it stays after a power cut."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def remove_scratch(directory: Path) -> None:
    """Remove what processes that were killed left while they wrote into this directory. Only for who knows that no
    other process is writing there."""
    for scratch in directory.glob(SCRATCH):
        scratch.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
