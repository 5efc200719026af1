"""The programs of a build: which are needed, what surrounds them, and what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from brobust.errors import BrobustError, MissingSupport
from brobust.kernels import virtual as virtual_kernels

PROGRAMS = {
    "gcc": "gcc", "ld": "binutils", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "patch": "patch",
    "xz": "xz-utils", "tar": "tar",
}  # fmt: skip

# Dates, names and numbers that a build would otherwise take from its surroundings.
FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "brobust",
    "KBUILD_BUILD_HOST": "brobust",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
    "XZ_DEFAULTS": "-T0",  # unpacks with all CPUs
}


class BuildFailed(BrobustError):
    """make went wrong. `last_lines` are the end of its log."""

    def __init__(self, sentence: str, last_lines: Sequence[str]):
        super().__init__(sentence)
        self.last_lines = list(last_lines)


class Progress(Protocol):
    """Who wants to know how far a build is."""

    def phase(self, text: str) -> None: ...
    def count(self, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


class Silent:
    def phase(self, text: str) -> None: ...
    def count(self, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


def check_programs() -> None:
    if lacking := sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None}):
        raise MissingSupport(f"building a kernel needs {', '.join(lacking)}; apt-get install {' '.join(lacking)}")


def environment() -> dict[str, str]:
    """Nothing of the caller's environment but where programs and temporary files are: kbuild obeys many variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | FIXED


def log_of(name: str) -> Path:
    """Where the log of a build stays that failed."""
    return virtual_kernels.cache_root() / f"{name}.log"


class Log:
    """Everything that the programs of a build say."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> Log:
        self._file: IO[str] = self.path.open("w+")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> None:
        self._file.write(text)

    @contextmanager
    def child(self, argv: Sequence[str], cwd: Path, *, pipe: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A program whose words go to the log, or through the pipe to the caller. It does not outlive us."""
        self._file.flush()
        with subprocess.Popen(
            argv, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE if pipe else self._file, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            try:
                yield child
            except BaseException:
                child.terminate()
                raise

    def call(self, argv: Sequence[str], cwd: Path) -> int:
        with self.child(argv, cwd) as child:
            return child.wait()

    def lines(self) -> list[str]:
        self._file.flush()
        return [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]

    def tail(self, count: int = 15) -> list[str]:
        return self.lines()[-count:]

    def last_line(self) -> str:
        return (self.tail(1) or ["no message"])[0]

    def error(self) -> str:
        """The first line that names an error; make's own last words name only a target."""
        return next((line for line in self.lines() if re.search(r"\berror\b|undefined reference", line)),
                    self.last_line()).strip()  # fmt: skip

    def keep(self, path: Path) -> None:
        self._file.flush()
        shutil.copy(self.path, path)
