"""Compiles a repaired file as a module of its own, outside the tree, so that the tree need not be touched to try."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BrobustError
from brobust.kernel_patch.apply import Change
from brobust.kernels import modules as cc_modules
from brobust.kernels.modules import Against, is_prepared, keep, make
from brobust.kernels.sources import version_of
from brobust.kernels.toolchain import Log


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
        return cc_modules.against(given)
    if is_prepared(tree):
        return Against(tree.resolve())
    for build in sorted(cc_modules.MODULES.glob("*/build")):
        with_headers = is_prepared(build) and _same_version(tree, build.parent.name)
        if with_headers:
            return Against(build.resolve())
    remedy = "give the headers of its kernel with --kdir DIR, or --kdir debian-6.12 for those of that guest kernel"
    if (tree / ".config").is_file():
        return f"{tree} is configured but not prepared: `make modules_prepare` there, or {remedy}"
    return f"{tree} is not configured: `make defconfig modules_prepare` there, or {remedy}"


def _same_version(tree: Path, release: str) -> bool:
    try:
        version = version_of(tree)
    except (BrobustError, OSError):  # as little of a tree as a patch needs
        return False
    return release == version or release.startswith((f"{version}-", f"{version}+"))


def compile_changes(tree: Path, changes: Sequence[Change], kdir: Against, modules: Path | None = None) -> Compiled:
    """Compile each file, repaired. With `modules`, link tcp_bbr.ko and put it there. The tree is only read."""
    begun = time.monotonic()
    sources = [change for change in changes if change.name.endswith(".c")]
    headers = [change for change in changes if change.name.endswith(".h")]
    names = [Path(change.name).stem for change in sources]
    with tempfile.TemporaryDirectory(prefix="brobust-patch-") as scratch:
        here = Path(scratch) / "module"  # a log in kbuild's own directory would be in its way
        here.mkdir()
        for file, change in [(here / Path(c.name).name, c) for c in sources] + [(here / c.name, c) for c in headers]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(change.after.encode(errors="surrogateescape"))
        objects = [f"{name}.o" for name in names]
        # google's include "tcp_dctcp.h", which stands beside them.
        beside = f"ccflags-y := -I{tree.resolve()}/net/ipv4\n"
        # What LINUXINCLUDE finds comes after: a changed header is taken in place of the kernel's own.
        before = f"NOSTDINC_FLAGS += -I{here}/include\n" if headers else ""
        (here / "Kbuild").write_text(f"obj-m := {' '.join(objects)}\n{beside}{before}")
        with Log(Path(scratch) / "log") as log:
            make(kdir, here, objects, log)
            if modules is not None:
                make(kdir, here, cc_modules.modules(), log)
            warnings = [line for line in log.lines() if "warning:" in line]
        built = [keep(here / f"{name}.ko", modules) for name in names] if modules is not None else []
        has_btf = modules is not None and all(b"\0.BTF\0" in file.read_bytes() for file in built)
    return Compiled(objects, kdir.release, warnings, time.monotonic() - begun, built, has_btf)
