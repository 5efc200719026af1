"""Compile repaired files as modules outside their kernel tree, so that a trial does not change the tree."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BrobustError
from brobust.files import temporary_directory
from brobust.kernel_patch.apply import Change
from brobust.kernels import modules as cc_modules
from brobust.kernels.modules import is_prepared, keep, make, release_of
from brobust.kernels.sources import version_of


@dataclass(frozen=True)
class Compiled:
    objects: list[str]
    release: str
    """The release of the kernel whose headers were used."""
    warnings: list[str]
    seconds: float
    modules: list[Path]
    """The linked modules; empty if none were requested."""
    has_btf: bool
    """Whether the modules have BTF, which BPF programs need to call their functions."""


def headers_for(tree: Path, given: str | None) -> Path | str:
    """Return the headers to compile with: the given ones, else the tree's own if it is prepared, else the installed
    headers of its version. If there are none, return a sentence that says what is missing."""
    if given is not None:
        return cc_modules.headers_of(given)
    if is_prepared(tree):
        return tree.resolve()
    for build in sorted(cc_modules.MODULES.glob("*/build")):
        if is_prepared(build) and _same_version(tree, build.parent.name):
            return build.resolve()
    remedy = "give the headers of its kernel with --kdir DIR, or those of a guest kernel with --kdir debian-6.12"
    if (tree / ".config").is_file():
        return f"{tree} is configured but not prepared: run `make modules_prepare` there, or {remedy}"
    return f"{tree} is not configured: run `make defconfig modules_prepare` there, or {remedy}"


def _same_version(tree: Path, release: str) -> bool:
    try:
        version = version_of(tree)
    except (BrobustError, OSError):  # a tree with hardly more than the files that the patch changes
        return False
    return release == version or release.startswith((f"{version}-", f"{version}+"))


def compile_changes(
    tree: Path, changes: Sequence[Change], kdir: Path, modules: Path | None, *, built_in: bool
) -> Compiled:
    """Compile each repaired file. With `modules`, a directory, also link tcp_bbr.ko into it. `built_in`: as a part of
    the kernel, since not every file can be a module. The tree is only read."""
    begun = time.monotonic()
    # What a series adds below tools/ is no part of the kernel.
    sources = [change for change in changes if change.name.endswith(".c") and not change.name.startswith("tools/")]
    headers = [change for change in changes if change.name.endswith(".h")]
    names = [Path(change.name).stem for change in sources]
    with temporary_directory() as scratch:
        here = scratch / "module"
        here.mkdir()
        for file, change in [(here / Path(c.name).name, c) for c in sources] + [(here / c.name, c) for c in headers]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(change.after.encode(errors="surrogateescape"))
        objects = [f"{name}.o" for name in names]
        # google's versions include "tcp_dctcp.h", which lies beside them.
        beside = f"ccflags-y := -I{tree.resolve()}/net/ipv4\n"
        # This directory is searched before those of LINUXINCLUDE, so a changed header replaces the kernel's own.
        before = f"NOSTDINC_FLAGS += -I{here}/include -I{here}/include/uapi\n" if headers else ""
        (here / "Kbuild").write_text(f"obj-{'y' if built_in else 'm'} := {' '.join(objects)}\n{beside}{before}")
        warnings = make(kdir, here, objects, *([] if modules is None else [cc_modules.modules()]))
        built = [keep(here / f"{name}.ko", modules) for name in names] if modules is not None else []
        has_btf = modules is not None and all(b"\0.BTF\0" in file.read_bytes() for file in built)
    return Compiled(objects, release_of(kdir), warnings, time.monotonic() - begun, built, has_btf)
