"""Find our own files that kernels are built from (cc/, kernel/virtual, kernel/real-time and kernel/patches), and hash
those of a virtual kernel."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from brobust.errors import MissingSupport

_REPOSITORY = Path(__file__).parents[3]
_IN_WHEEL = Path(__file__).parents[1] / "sources"  # crates/python/build.rs and pyproject.toml put them there


def directory(name: str) -> Path:
    """Return a directory of the repository: in a checkout the directory itself, elsewhere the wheel's copy."""
    root = _REPOSITORY if (_REPOSITORY / "cc/cc.h").is_file() else _IN_WHEEL
    return root / name


CC = directory("cc")
VIRTUAL = directory("kernel/virtual")
REAL_TIME = directory("kernel/real-time")
PATCHES = directory("kernel/patches")

# The place of cc/ in a virtual kernel's tree, and the parts of cc/ from which no kernel is built.
CC_IN_TREE = "tree/arch/um/brobust/cc"
NOT_IN_KERNELS = ("hosts/bpf/", "hosts/program/")


def of_virtual_kernels(*, real_time: bool = False) -> dict[str, Path]:
    """Return every file of ours that a virtual kernel is built from, by its path in kernel/virtual. Files of cc/ get
    the paths that they have in the kernel's tree. `real_time`: with those of a kernel that also runs in real time."""
    if not (VIRTUAL / "config").is_file():
        raise MissingSupport(f"{VIRTUAL / 'config'} is missing: brobust's installation is incomplete; install it again")
    files = {"config": VIRTUAL / "config"}
    for part in ("patches", "tree"):
        files |= {f"{part}/{name}": path for name, path in below(VIRTUAL / part).items()}
    files |= {f"{CC_IN_TREE}/{name}": path for name, path in below(CC).items() if not name.startswith(NOT_IN_KERNELS)}
    if real_time:
        files |= {f"real-time-{name}" if name == "config" else name: path for name, path in below(REAL_TIME).items()}
    return files


def below(root: Path) -> dict[str, Path]:
    """Return the files below a directory, sorted by their relative paths, without those that editors and patch(1) leave
    behind."""
    found = {
        str((Path(directory) / name).relative_to(root)): Path(directory) / name
        for directory, _, names in os.walk(root)
        for name in names
        if not name.startswith(".") and not name.endswith(("~", ".orig", ".rej"))
    }
    return dict(sorted(found.items()))


def hash_of(files: Mapping[str, Path]) -> str:
    """Return a hash of the files' names, contents and permission to execute; dates do not matter."""
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{path.stat().st_mode & 0o111 != 0}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def copy(files: Mapping[str, Path], to: Path) -> Path:
    """Copy the files into a directory, each to the path under which it is listed, and return the directory."""
    for name, path in files.items():
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to / name)
    return to
