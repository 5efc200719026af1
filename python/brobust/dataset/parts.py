"""The Parquet files of one table: each is a part, which holds one or many runs; small ones are merged into larger ones.

    part-0000007-0000007.parquet   the rows that were added together as number 7
    part-0000001-0000064.parquet   a merged file: it holds all that numbers 1 to 64 held, and takes their place

A merged file takes its name in one step, and only then are the files that it replaces removed. Whoever reads leaves out
every file whose numbers are within those of another one. So a process may be killed at any moment: a row is there once.

Each row has the number with which it was added, in the column `part`, which only the files have. If a run was measured
again, because it had failed or a file was damaged, its rows with the highest number count.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from brobust import files
from brobust.errors import BadInput, WriteFailed, debugging
from brobust.lazily import pl

PART = "part"
"""The column with a row's number. It is in the files, and is not handed out."""

MANY = 64
"""While a series is being measured, small files are merged when there are so many of them."""
MAX_BYTES = 64_000_000
"""No merged file is larger, so that merging needs little memory."""
TIMES_AS_LARGE = 4
"""A file is merged with the newer ones unless it is so many times as large as they are together. So no row is written
again and again, and few files are left."""

_NAME = re.compile(r"part-([0-9]{7,18})-([0-9]{7,18})\.parquet")  # more digits are no integer of a column
_OTHER_NAME = "it has no name of brobust 0.2.0 or later"
_TRIES = 10
_BYTES_OF_VALUE = 8  # in memory, of a number or of what stands for a short text

Unreadable = dict[Path, str]
"""Files that were left out, each with the reason."""


@dataclass(frozen=True)
class Part:
    """A file, and the numbers of what it holds, from `first` to `last`."""

    first: int
    last: int
    file: Path

    @property
    def is_whole(self) -> bool:
        """Whether the Parquet file has its end: the last four letters, after the length of the footer."""
        try:
            files.check(self.file, files.MAX_TABLE)
            with self.file.open("rb") as content:
                content.seek(-4, io.SEEK_END)
                return content.read() == b"PAR1"
        except (BadInput, OSError):
            return False


def name(first: int, last: int) -> str:
    return f"part-{first:07}-{last:07}.parquet"


def current(directory: Path) -> list[Part]:
    """Return the parts that count, oldest first."""
    found = _listed(directory)
    # A directory that changes while it is listed may show neither a merged file nor those that it has replaced.
    while found and (again := _listed(directory)) != found:
        found = again
    return _without_replaced(found)


def replaced(directory: Path) -> list[Part]:
    """Return the parts that a merged file has replaced, but that were not removed, since the process was killed."""
    found = _listed(directory)
    count = set(_without_replaced(found))
    return [part for part in found if part not in count]


def _listed(directory: Path) -> list[Part]:
    found = []
    for file in directory.glob("*.parquet"):
        if numbers := _NAME.fullmatch(file.name):
            first, last = map(int, numbers.groups())
            found.append(Part(first, last, file))
    return sorted(found, key=lambda part: (part.first, -part.last))


def _without_replaced(found: Sequence[Part]) -> list[Part]:
    counting: list[Part] = []
    for part in found:  # sorted such that a merged file comes before what it replaces
        if not counting or part.last > counting[-1].last:
            counting.append(part)
    return counting


Normalised: TypeAlias = "Callable[[pl.DataFrame], pl.DataFrame]"
"""Returns a file's rows with the documented columns; raises ValueError if that is impossible."""


def read(
    directory: Path, normalised: Normalised, columns: Sequence[str], runs: Iterable[str] | None = None
) -> tuple[list[pl.DataFrame], list[Part], Unreadable]:
    """Return the rows of a table with their `part`, the parts that they are of, and the files that cannot be read.
    `columns`: those of these that a file has; `runs`: only the rows of these."""
    for _ in range(_TRIES):
        good = current(directory)
        unreadable = {file: _OTHER_NAME for file in directory.glob("*.parquet") if not _NAME.fullmatch(file.name)}
        try:
            return [normalised(_rows(good, columns, runs))] if good else [], good, unreadable
        except _unreadable():
            pass  # some of them cannot be read: try each by itself
        frames: list[pl.DataFrame] = []
        found, good = good, []
        for part in found:
            try:
                frames.append(normalised(_rows([part], columns, runs, sum(frame.height for frame in frames))))
                good.append(part)
            except _unreadable() as error:
                unreadable[part.file] = (str(error).splitlines() or ["no reason given"])[0][:200]
        if all(file.exists() for file in unreadable):  # else another process has merged them meanwhile
            break
    return frames, good, unreadable


def _unreadable() -> tuple[type[BaseException], ...]:
    """Return what is raised where a file cannot be read. When polars' Rust code fails, that is no Exception."""
    return (BadInput, OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def _rows(
    parts: Sequence[Part], columns: Sequence[str], runs: Iterable[str] | None = None, beside: int = 0
) -> pl.DataFrame:
    """Return the rows of these parts; refuse more than there is memory for, `beside` those that are read already: a
    stranger's file of some kilobytes may hold any number of equal rows, and any number of other columns."""
    for part in parts:
        files.check(part.file, files.MAX_TABLE)
    with _in_ascii(parts[0].file.parent) as directory:
        found = pl.scan_parquet([directory / part.file.name for part in parts], glob=False)
        present = found.collect_schema()
        wanted = [name for name in (*columns, PART) if name in present]
        most = _memory_bytes() // (max(len(wanted), 1) * _BYTES_OF_VALUE)
        rows = found.select(pl.len()).collect().item() + beside
        if runs is not None:
            found = found.filter(pl.col("run").is_in(list(runs)))
            if rows > most:  # those of all runs, which the files' ends say; these may have fewer
                rows = found.select(pl.len()).collect().item() + beside
        if rows > most:
            raise BadInput(f"its {rows:,} rows need more memory than this machine has")
        return found.select(wanted).collect()


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def _in_ascii(directory: Path) -> Iterator[Path]:
    """Yield a path of this directory that polars can open. It takes text only, and where the locale is not UTF-8,
    Python holds the letters of a path that are not ASCII as escaped bytes."""
    if str(directory).isascii():
        yield directory
        return
    with files.opened(directory, os.O_PATH | os.O_DIRECTORY) as descriptor:
        yield Path(f"/proc/self/fd/{descriptor}")


def merge(directory: Path, normalised: Normalised, columns: Sequence[str], at_least: int, counting: pl.Expr) -> None:
    """Merge the newest files into one if there are so many that should be, with the rows that count, and these columns.
    Files that cannot be read stay as they are."""
    newest = _to_merge(current(directory))
    if len(newest) < at_least:
        return
    try:
        rows = normalised(_rows(newest, columns)).filter(counting).sort("run", maintain_order=True)
    except _unreadable():
        if debugging():
            raise
        return
    target = directory / name(newest[0].first, newest[-1].last)
    try:
        files.write_table(target, rows)
    except WriteFailed:  # there is room for the rows, but not for the rows twice: they stay where they are
        return
    for part in newest:
        if part.file != target:
            part.file.unlink(missing_ok=True)


def _to_merge(parts: Sequence[Part]) -> list[Part]:
    """Return the newest parts, as far back as it pays to merge them."""
    newest: list[Part] = []
    size = 0
    for part in reversed(parts):
        own = part.file.stat().st_size
        if size + own > MAX_BYTES or (newest and own > TIMES_AS_LARGE * size):
            break
        newest.append(part)
        size += own
    return newest[::-1]
