"""Network namespaces of this host: which there are, and work done inside one."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from brobust.errors import BadInput, MissingSupport

T = TypeVar("T")

_NAMED = Path("/run/netns")
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h


@dataclass(frozen=True)
class Namespace:
    """A network namespace. `path` leads into it; `inode` is what it is known by."""

    path: str
    inode: int
    name: str

    @classmethod
    def of(cls, path: Path, name: str) -> Namespace:
        return cls(str(path), path.stat().st_ino, name)


def current() -> Namespace:
    return Namespace.of(Path("/proc/self/ns/net"), "this one")


def find(given: str) -> Namespace:
    """By the name of `ip netns`, the number of a process, or a path."""
    if given.isdigit():
        path, name = Path(f"/proc/{given}/ns/net"), f"process {given}"
    else:
        path, name = (Path(given) if "/" in given else _NAMED / given), given
    try:
        return Namespace.of(path, name)
    except OSError as error:
        names = ", ".join(sorted(p.name for p in _NAMED.iterdir())) if _NAMED.is_dir() else ""
        raise BadInput(
            f"--netns: {given!r} is no network namespace ({(error.strerror or '').lower()}); give a process id, a "
            f"path, or a name of `ip netns`: {names or 'there are none'}"
        ) from None


def every() -> list[Namespace]:
    """Every namespace that has a name or a process."""
    found: dict[int, Namespace] = {}
    here = current()
    found[here.inode] = here
    for path in sorted(_NAMED.iterdir()) if _NAMED.is_dir() else []:
        _note(found, path, path.name)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            _note(found, entry / "ns/net", f"process {entry.name}")
    return list(found.values())


def _note(found: dict[int, Namespace], path: Path, name: str) -> None:
    try:
        namespace = Namespace.of(path, name)
    except OSError:  # gone, or not ours to look into
        return
    found.setdefault(namespace.inode, namespace)


def inside(namespace: Namespace, work: Callable[[], T]) -> T:
    """Do something in a namespace: in a thread of its own, since only a thread can change over."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter() -> None:
        try:
            with Path(namespace.path).open("rb") as file:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
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
