"""Find the network namespaces of this host, and run code inside one."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from brobust.errors import BadInput, MissingSupport

T = TypeVar("T")

_NAMED = Path("/run/netns")
_MOUNTS = Path("/proc/self/mountinfo")
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h


class Gone(MissingSupport):
    """A namespace does not exist any more."""


@dataclass(frozen=True)
class Namespace:
    """A network namespace. `path` is the file through which it is entered; `inode` identifies it."""

    path: str
    inode: int
    name: str

    @classmethod
    def of(cls, path: Path, name: str) -> Namespace:
        """Return the namespace to which a path leads."""
        return cls(str(path), path.stat().st_ino, name)


def current() -> Namespace:
    """Return this process's namespace."""
    return Namespace.of(Path("/proc/self/ns/net"), "this one")


def find(given: str) -> Namespace:
    """Return a namespace by its name in `ip netns`, the id of a process in it, or its path."""
    if given.isdigit():
        path, name = Path(f"/proc/{given}/ns/net"), f"process {given}"
    else:
        path, name = (Path(given) if "/" in given else _NAMED / given), given
    try:
        return Namespace.of(path, name)
    except OSError as error:
        names = ", ".join(sorted(p.name for p in _NAMED.iterdir())) if _NAMED.is_dir() else ""
        raise BadInput(
            f"--netns: {given!r} is not a network namespace ({(error.strerror or '').lower()}); give a process id, a "
            f"path, or a name in `ip netns`: {names or 'there are none'}"
        ) from None


def every() -> list[Namespace]:
    """Return every namespace that has a name, a process or a mount. One that only an open file keeps alive has no path,
    so it is not found."""
    found: dict[int, Namespace] = {}
    here = current()
    found[here.inode] = here
    for path in sorted(_NAMED.iterdir()) if _NAMED.is_dir() else []:
        _note(found, path, path.name)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            _note(found, entry / "ns/net", f"process {entry.name}")
    for path in mounted(_MOUNTS.read_text(errors="surrogateescape")):
        _note(found, path, str(path))
    return list(found.values())


def mounted(mountinfo: str) -> list[Path]:
    """Return the paths at which network namespaces are mounted. Container engines do not use ip-netns(8)'s directory.

    In a line of mountinfo (proc_pid_mountinfo(5)) the fourth word is what is mounted, and the fifth the path, with
    spaces written as \\040.
    """
    lines = [line.split() for line in mountinfo.splitlines()]
    return [
        Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4]))
        for words in lines
        if len(words) > 4 and words[3].startswith("net:[")
    ]


def _note(found: dict[int, Namespace], path: Path, name: str) -> None:
    try:
        namespace = Namespace.of(path, name)
    except OSError:  # it has ended, or we may not look into it
        return
    found.setdefault(namespace.inode, namespace)


def _enter(namespace: Namespace) -> None:
    """Move this thread into a namespace."""
    gone = Gone(f"network namespace {namespace.name} does not exist any more")
    try:
        with Path(namespace.path).open("rb") as file:
            # The process id may now belong to another process, in another namespace.
            if os.fstat(file.fileno()).st_ino != namespace.inode:
                raise gone
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    except (FileNotFoundError, ProcessLookupError):
        raise gone from None


def inside(namespace: Namespace, work: Callable[[], T]) -> T:
    """Run a function in a namespace and return its result. It runs in a new thread, because a thread, not a process,
    enters a namespace."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            _enter(namespace)
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if errors:
        if isinstance(errors[0], OSError):
            raise MissingSupport(f"network namespace {namespace.name}: {errors[0].strerror}; run this as root")
        raise errors[0]
    return results[0]
