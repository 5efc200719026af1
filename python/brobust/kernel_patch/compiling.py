"""Compiles a repaired file as a module of its own, outside the tree, so that the tree need not be touched to try."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BadInput, BrobustError, MissingSupport
from brobust.guests import kernels as guest_kernels
from brobust.kernel_patch.apply import Change
from brobust.virtual.programs import BuildFailed, Log
from brobust.virtual.sources import version_of

# A tree does not remember for what and by what it was built: make is told again.
TOLD_BY_ENVIRONMENT = ("ARCH", "CROSS_COMPILE", "CC", "LLVM")
MODULES = Path("/lib/modules")


@dataclass(frozen=True)
class Against:
    """What is compiled against: a prepared tree, or the headers of a built kernel."""

    directory: Path

    @property
    def release(self) -> str:
        generated = self.directory / "include/generated/utsrelease.h"
        return generated.read_text().split('"')[1] if generated.is_file() else str(self.directory)


@dataclass(frozen=True)
class Compiled:
    """Objects of the changed files."""

    objects: list[str]
    release: str
    """Of the kernel they were compiled against."""
    warnings: list[str]
    seconds: float
    modules: list[Path]
    """Where modules were asked for."""
    has_btf: bool
    """Whether the modules tell BPF programs of their functions."""

    def module(self, name: str) -> Path:
        return next(file for file in self.modules if file.stem == name)


def against(tree: Path, given: str | None) -> Against | str:
    """What to compile against: what was given, else the tree if it is prepared, else the installed headers of its
    version. Else a sentence that says what is missing."""
    if given is not None:
        return Against(_given(given))
    if _is_prepared(tree):
        return Against(tree.resolve())
    for build in sorted(MODULES.glob("*/build")):
        with_headers = _is_prepared(build) and _same_version(tree, build.parent.name)
        if with_headers:
            return Against(build.resolve())
    remedy = "give the headers of its kernel with --kdir DIR, or --kdir debian-6.12 for those of that guest kernel"
    if (tree / ".config").is_file():
        return f"{tree} is configured but not prepared: `make modules_prepare` there, or {remedy}"
    return f"{tree} is not configured: `make defconfig modules_prepare` there, or {remedy}"


def _given(text: str) -> Path:
    if text.startswith("debian-"):
        return guest_kernels.headers(text)
    if not _is_prepared(Path(text)):
        raise BadInput(
            f"--kdir: {text!r} is no prepared kernel tree (no include/generated/autoconf.h or scripts/mod/modpost); "
            "give one after `make modules_prepare`, a headers package's directory, or debian-6.12"
        )
    return Path(text).resolve()


def _is_prepared(directory: Path) -> bool:
    needed = ("Makefile", "include/generated/autoconf.h", "scripts/mod/modpost")
    return all((directory / file).is_file() for file in needed)


def _same_version(tree: Path, release: str) -> bool:
    try:
        version = version_of(tree)
    except (BrobustError, OSError):  # as little of a tree as a patch needs
        return False
    return release == version or release.startswith((f"{version}-", f"{version}+"))


def compile_changes(tree: Path, changes: Sequence[Change], kdir: Against, modules: Path | None = None) -> Compiled:
    """Compile each file, repaired. With `modules`, link tcp_bbr.ko and put it there. The tree is only read."""
    begun = time.monotonic()
    if shutil.which("make") is None:
        raise MissingSupport("make is not installed; apt-get install make gcc")
    names = [Path(change.name).stem for change in changes]
    with tempfile.TemporaryDirectory(prefix="brobust-patch-") as scratch:
        here = Path(scratch) / "module"  # a log in kbuild's own directory would be in its way
        here.mkdir()
        for change in changes:
            (here / Path(change.name).name).write_bytes(change.after.encode(errors="surrogateescape"))
        objects = [f"{name}.o" for name in names]
        # google's include "tcp_dctcp.h", which stands beside them.
        beside = f"ccflags-y := -I{tree.resolve()}/net/ipv4\n"
        (here / "Kbuild").write_text(f"obj-m := {' '.join(objects)}\n{beside}")
        with Log(Path(scratch) / "log") as log:
            _make(kdir, here, objects, log)
            if modules is not None:
                without_btf = [] if shutil.which("pahole") else ["CONFIG_DEBUG_INFO_BTF_MODULES="]
                _make(kdir, here, ["modules", *without_btf], log)
            warnings = [line for line in log.lines() if "warning:" in line]
        built = [_keep(here / f"{name}.ko", modules) for name in names] if modules is not None else []
        has_btf = modules is not None and all(b"\0.BTF\0" in file.read_bytes() for file in built)
    return Compiled(objects, kdir.release, warnings, time.monotonic() - begun, built, has_btf)


def _make(kdir: Against, here: Path, targets: Sequence[str], log: Log) -> None:
    told = [f"{name}={os.environ[name]}" for name in TOLD_BY_ENVIRONMENT if os.environ.get(name)]
    if log.call(["make", "-C", str(kdir.directory), f"M={here}", *told, *targets], cwd=here) != 0:
        error = log.error().removeprefix(f"{here}/")
        raise BuildFailed(
            f"kernel: {targets[0]} cannot be compiled against Linux {kdir.release}: {error}; the tree is as it was",
            log.tail(),
        )


def _keep(built: Path, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(built, directory / built.name))
