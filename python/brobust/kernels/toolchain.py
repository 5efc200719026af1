"""Run the programs of a build: check that they are installed, fix their environment, and keep their output."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Self

from brobust import files
from brobust.errors import BrobustError, MissingSupport
from brobust.host import children
from brobust.kernels import virtual as virtual_kernels

PROGRAMS = {
    "gcc": "gcc", "ld": "binutils", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "patch": "patch",
    "xz": "xz-utils", "tar": "tar",
}  # fmt: skip

# Dates, names and numbers that a build would otherwise take from its environment.
FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "brobust",
    "KBUILD_BUILD_HOST": "brobust",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
    "XZ_DEFAULTS": "-T0",  # unpack with all CPUs
}


# Where programs and temporary files are, and how apt gets out of this network.
KEPT = ("PATH", "HOME", "TMPDIR", "APT_CONFIG", "http_proxy", "https_proxy", "all_proxy", "no_proxy")


class BuildFailed(BrobustError):
    """A build failed. `last_lines` are the end of its log."""

    def __init__(self, sentence: str, last_lines: Sequence[str]):
        super().__init__(sentence)
        self.last_lines = list(last_lines)


class Progress:
    """Shows the progress of a build: nothing, unless a class derived from this one does."""

    def phase(self, text: str) -> None:
        """Begin a phase."""

    def count(self, done: int, total: int) -> None:
        """Show how much of the phase is done."""

    def note(self, text: str) -> None:
        """Show a line that stays."""


def check_programs() -> None:
    """Refuse to build a kernel if a program that this needs is not installed."""
    if lacking := sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None}):
        raise MissingSupport(f"a kernel's build needs {', '.join(lacking)}; apt-get install {' '.join(lacking)}")


def environment() -> dict[str, str]:
    """Return the environment for a build. It takes from ours only what KEPT names, because kbuild obeys many
    variables."""
    return {name: os.environ[name] for name in KEPT if name in os.environ} | FIXED


def check_room(said: str, *places: Path) -> None:
    """Refuse in a sentence that names the file system if this is why a program has failed, which said this, and wrote
    to these directories and to that for temporary files."""
    if (full := files.not_written_by_program(said, *places, Path(tempfile.gettempdir()))) is not None:
        raise full from None


def log_of(name: str) -> Path:
    return virtual_kernels.cache_root() / f"{name}.log"


class Log:
    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> Self:
        self._file: IO[str] = self.path.open("w+")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # if the disk is full, this is not what the user has to hear
            self._file.close()

    def write(self, text: str) -> None:
        self._file.write(text)

    @contextmanager
    def child(self, argv: Sequence[str], cwd: Path, *, pipe: bool = False) -> Iterator[subprocess.Popen[str]]:
        """Run a program whose output goes to the log, or to the caller through a pipe. An error or Ctrl-C in the
        context ends it, and all that it has started."""
        self._file.flush()
        with children.group(
            argv, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipe else self._file, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            yield child

    def call(self, argv: Sequence[str], cwd: Path) -> int:
        with self.child(argv, cwd) as child:
            return child.wait()

    def lines(self) -> list[str]:
        with suppress(OSError):  # if the disk is full, the rest is lost
            self._file.flush()
        return [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]

    def said(self) -> str:
        return "\n".join(self.lines())

    def tail(self, count: int = 15) -> list[str]:
        return self.lines()[-count:]

    def last_line(self) -> str:
        return (self.tail(1) or ["no message"])[0]

    def error(self) -> str:
        """Return the first line that names an error. The last line would not do: it is make's, and names only a
        target."""
        return next((line for line in self.lines() if re.search(r"\berror\b|undefined reference", line)),
                    self.last_line()).strip()  # fmt: skip

    def keep(self, path: Path) -> None:
        """Copy the log to a file that outlives the build, if any program has said something."""
        self._file.flush()
        if self.path.stat().st_size:
            shutil.copy(self.path, path)
