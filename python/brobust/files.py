"""Read files that a user names, within bounds, and write files that are kept: each is either whole or absent, whenever
the writing process or its machine dies. What cannot be written is said in one sentence that names the file system."""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import itertools
import json
import os
import re
import resource
import secrets
import shutil
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from brobust import units
from brobust.errors import BadInput, WriteFailed, reason
from brobust.lazily import pl

SCRATCH = ".brobust-*.new"
"""The name of a file while it is written. If one is left over, the process that wrote it was killed."""

_TEMPORARY = ".brobust-temporary-"
_SECONDS_TO_LOCK = 60  # far more than a process takes from making a directory to locking it

MAX_DEPTH = 20  # of nested tables and lists in a user's TOML file
# What is read of a file of each kind. A sparse file says that it has a terabyte, and /dev/zero never ends.
MAX_TEXT = 4_000_000  # bytes: scenarios, studies, what a dataset says about itself
MAX_PICTURE = 100_000_000  # bytes: a figure of a study
MAX_TABLE = 64_000_000_000  # bytes: a table of a dataset, which is read in parts
MAX_RECORDING = 1_000_000_000  # bytes: some ten million off-times as CSV
MAX_RECORDING_ROWS = 20_000_000  # a small Parquet file may hold any number of equal rows
MAX_RECORDING_S = 1e8  # three years: in ns such times, and sums of them, fit into 64 bits

_KINDS = {
    stat.S_IFDIR: "a directory", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device", stat.S_IFBLK: "a block device",
}  # fmt: skip

# A key of more than MAX_DEPTH names, a.b.c...: tomllib's time for one grows with the square of their number.
_NAME = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?:^|[\[{{,])[ \t]*+(?:{_NAME}\.[ \t]*+){{{MAX_DEPTH},}}", re.MULTILINE)


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
    with writing_to(file):
        try:
            descriptor = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            error.filename = str(file)  # the name that the user knows
            raise
    try:
        with os.fdopen(descriptor, "w+b") as out:
            yield out
            out.flush()
            os.fsync(descriptor)
        scratch.replace(file)
    except BaseException as error:
        failed = why_not_written(error, file) if isinstance(error, OSError) else None  # while the disk is still full
        with suppress(OSError):  # the disk may be broken
            scratch.unlink(missing_ok=True)
        if failed is not None:
            raise failed from None
        raise
    _sync_directory(file.parent)


def write(file: Path, content: bytes | memoryview | str) -> None:
    """Write a file as a whole; text is encoded as UTF-8."""
    with replaced(file) as out:
        out.write(content.encode() if isinstance(content, str) else content)


def write_table(file: Path, table: pl.DataFrame) -> None:
    """Write a table as a Parquet file, as a whole. polars writes into memory, because it does not say why a file could
    not be written."""
    content = io.BytesIO()
    table.write_parquet(content)
    write(file, content.getbuffer())


@contextmanager
def temporary_directory(place: Path | None = None) -> Iterator[Path]:
    """Yield a directory that is gone afterwards, in this place, else in that of all temporary files. Our process keeps
    it locked: one that nobody has locked belonged to a process that was killed, and is removed here."""
    place = place or Path(tempfile.gettempdir())
    _remove_temporary_of_killed(place)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY, dir=place) as name, opened(name, os.O_DIRECTORY) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield Path(name)


@functools.cache  # once per process is enough
def _remove_temporary_of_killed(place: Path) -> None:
    for directory in place.glob(f"{_TEMPORARY}*"):
        # Somebody else's is left alone, and so are one that is locked and one that is gone by now.
        with suppress(OSError), opened(directory, os.O_DIRECTORY | os.O_NOFOLLOW) as descriptor:
            found = os.fstat(descriptor)
            if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _SECONDS_TO_LOCK:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory)


@contextmanager
def opened(path: str | Path, flags: int) -> Iterator[int]:
    """Yield the descriptor of a file or a directory, open for reading while the block lasts."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def writing_to(place: Path) -> Iterator[None]:
    """Raise WriteFailed if the block cannot write to this file, or below this directory, because there is no room, or
    for another reason that is not the request's."""
    try:
        yield
    except OSError as error:
        if (failed := why_not_written(error, place)) is not None:
            raise failed from None
        raise


def why_not_written(error: OSError, place: Path | None = None) -> WriteFailed | None:
    """Return the sentence for a full or broken disk, or for a limit that is reached; None for any other error. `place`
    is where something was to be written, if the error does not say so."""
    number = error.errno
    if isinstance(error, shutil.Error):  # of copytree(); it has the messages of several errors
        number = _number_in(str(error))
    if number == errno.EMFILE:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return WriteFailed(f"no more than {allowed} files may be open at a time (ulimit -n)", "raise this limit")
    if number not in _OF_DISKS:
        return None
    named = error.filename if error.filename2 is None else error.filename2  # of a copy the second is the new file
    file = Path(os.fsdecode(named)) if isinstance(named, (str, bytes, os.PathLike)) else place
    if file is None:
        return WriteFailed(error.strerror or os.strerror(number), _remedy(number))
    return WriteFailed(f"{file} cannot be written: {_why(number, file)}", _remedy(number))


def not_written_by_program(output: str, *places: Path) -> WriteFailed | None:
    """Return the sentence of `why_not_written` for a program that failed, from what it printed; None if it failed for
    another reason. It has written to these places; the one with least room is named."""
    number = _number_in(output)
    there = min((_existing(place) for place in places), key=lambda place: shutil.disk_usage(place).free)
    if number is None and shutil.disk_usage(there).free < _NO_ROOM_BYTES:
        number = errno.ENOSPC  # a linker dies of SIGBUS; others say nothing of it
    return None if number is None else WriteFailed(_why(number, there), _remedy(number))


_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_NO_ROOM_BYTES = 65536


def _number_in(text: str) -> int | None:
    return next((number for number in _OF_DISKS if os.strerror(number) in text), None)


def _why(number: int, place: Path) -> str:
    mount, kind = mounted_at(place)
    where = f"{mount} ({kind})"
    match number:
        case errno.EDQUOT:
            return f"your quota on {where} is used up"
        case errno.EIO:
            return f"{where} reports input/output errors"
        case errno.EFBIG:
            limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
            if limit != resource.RLIM_INFINITY:
                return f"no file may have more than {size(limit)} (ulimit -f)"
            return f"{where} cannot hold so large a file"
    found = os.statvfs(mount)
    if found.f_files and not found.f_favail:
        return f"{where} has as many files as it can hold, {found.f_files}"
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return f"no room is left on {where}, where {size(free)} of {size(total)} are free"


def _remedy(number: int) -> str:
    return {errno.EIO: "check the disk (dmesg)", errno.EFBIG: "raise this limit"}.get(number, "make room")


def size(count: int) -> str:
    """Return a number of bytes for people: 61.44 kB."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 1000)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count} B"


def mounted_at(place: Path) -> tuple[Path, str]:
    """Return the mount point of the file system that holds a file or directory, or is to hold it, and its kind."""
    there = _existing(place)
    found = Path("/"), "unknown"
    # mount point and kind: the fifth field, and the first after a dash (proc_pid_mountinfo(5))
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        mount = Path(re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape[1], 8)), before.split()[4]))
        if there.is_relative_to(mount) and len(mount.parts) >= len(found[0].parts):  # a later one hides an earlier one
            found = mount, after.split()[0]
    return found


def _existing(place: Path) -> Path:
    there = place.resolve()
    while not os.access(there, os.F_OK):
        there = there.parent
    return there


def check(file: Path, at_most: int) -> int:
    """Return the size of a regular file; refuse in one line what is none, or is larger than `at_most` bytes."""
    try:
        found = file.stat()
    except (OSError, ValueError) as error:  # ValueError: the name has a NUL
        raise BadInput(f"{file}: cannot be read ({reason(error)})") from None
    return _checked(file, found, at_most)


def _checked(file: Path, found: os.stat_result, at_most: int) -> int:
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{file}: is {_KINDS.get(stat.S_IFMT(found.st_mode), 'no file')}; give a regular file")
    if found.st_size > at_most:
        raise BadInput(f"{file}: has {units.show_size(found.st_size)}; {_allowed(at_most)}")
    return found.st_size


def _allowed(at_most: int) -> str:
    return f"give a file of at most {units.show_size(at_most)}"


def read(file: Path, at_most: int) -> bytes:
    """Return the content of a regular file; refuse in one line what `check` refuses, and what cannot be read. A file of
    the kernel may have more than its size says, and may be one that waits; neither is waited for."""
    check(file, at_most)  # before it is opened: opening a device may do something
    content = bytearray()
    try:
        with opened(file, os.O_NONBLOCK | os.O_NOCTTY) as descriptor:
            _checked(file, os.fstat(descriptor), at_most)
            while block := os.read(descriptor, 1 << 20):
                content += block
                if len(content) > at_most:
                    raise BadInput(f"{file}: does not end after {units.show_size(at_most)}; {_allowed(at_most)}")
    except OSError as error:
        raise BadInput(f"{file}: cannot be read ({reason(error)})") from None
    return bytes(content)


def read_json(file: Path) -> Any:
    try:
        return json.loads(read(file, MAX_TEXT))
    except (ValueError, RecursionError):
        raise BadInput(f"{file}: not a JSON file") from None


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return toml(read(file, MAX_TEXT).decode("utf-8-sig"))
    except ValueError as error:
        raise BadInput(f"{file}: not a TOML file ({error})") from None


def toml(text: str) -> dict[str, Any]:
    """Return what TOML says. ValueError: it is none, or tables and lists are nested too deep for any field."""
    deep = f"tables and lists are nested more than {MAX_DEPTH} deep; no field needs that"
    if _LONG_KEY.search(text):
        raise ValueError(deep)
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ValueError(deep) from None
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
    if level:
        raise ValueError(deep)
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
    with writing_to(directory):
        directory.mkdir(exist_ok=True)
        _sync_directory(directory.parent)


def check_directory(option: str, directory: Path) -> None:
    """Refuse an option's directory into which nothing could be written, or which cannot be made. Nothing is made."""
    try:
        nearest = next(one for one in (directory, *directory.parents) if one.exists())
    except OSError as error:  # a name of 400 letters
        raise BadInput(f"{option} {directory}: cannot be written ({reason(error)})") from None
    if not nearest.is_dir():
        raise BadInput(f"{option} {directory}: {nearest} is no directory; give another name")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(f"{option} {directory}: {nearest} cannot be written; give another directory")


def sync(made: Path) -> None:
    """Wait until what was made under another name is on the disk, a file or all that a directory holds. Who believes a
    name must find its content also after a power cut, and the name alone may come to the disk first."""
    below = (path for path in made.rglob("*") if path.is_file() and not path.is_symlink())
    every = [made] if made.is_file() else list(itertools.islice(below, _MANY + 1))
    if len(every) > _MANY:
        _sync_file_system(made)
        return
    for file in every:
        with opened(file, os.O_NOFOLLOW) as descriptor:
            os.fsync(descriptor)
    for directory in {file.parent for file in every}:
        _sync_directory(directory)


def _sync_file_system(directory: Path) -> None:
    """Wait until all of a directory's file system is on the disk."""
    import ctypes  # seldom needed, and the help waits for it

    with opened(directory, os.O_DIRECTORY) as descriptor:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            if number not in _CANNOT_SYNC:
                raise OSError(number, os.strerror(number), str(directory))


def remove_mark(file: Path) -> None:
    """Remove a file that says that what is beside it is whole, before that is changed or removed: it must not come back
    after a power cut."""
    with suppress(FileNotFoundError):
        file.unlink()
        _sync_directory(file.parent)


def remove_scratch(directory: Path) -> None:
    """Remove the half-written files that killed processes left in this directory. The caller must know that no other
    process is writing there."""
    for scratch in directory.glob(SCRATCH):
        scratch.unlink(missing_ok=True)


_MANY = 100
"""For more files it is quicker to write all of their file system than one after the other."""
_CANNOT_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES)


def _sync_directory(directory: Path) -> None:
    """Wait until a directory's names are on the disk. Some file systems, such as CIFS, do this for files only, and who
    may write to a directory may not be allowed to read it: what was made there is there all the same."""
    try:
        with opened(directory, os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
