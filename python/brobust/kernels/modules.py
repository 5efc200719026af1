"""Kernel modules built outside their tree: what they are compiled against, and our controls as such modules.

A control's one source (cc/controls) with the module's glue (kernel/control): for kernels that take no control from BPF,
and for those who would rather have a module.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BadInput, MissingSupport
from brobust.kernels import vm as vm_kernels
from brobust.kernels.toolchain import BuildFailed, Log

# A tree does not remember for what and by what it was built: make is told again.
TOLD_BY_ENVIRONMENT = ("ARCH", "CROSS_COMPILE", "CC", "LLVM")
MODULES = Path("/lib/modules")
# The virtual kernel's directory has links to cc/ and kernel/control, and a wheel has their files there.
SOURCES = Path(__file__).parent / "virtual/source/tree/arch/um/brobust"
GLUE = ("control.h", "connection.h", "cc_host.h")


@dataclass(frozen=True)
class Against:
    """What is compiled against: a prepared tree, or the headers of a built kernel."""

    directory: Path

    @property
    def release(self) -> str:
        generated = self.directory / "include/generated/utsrelease.h"
        return generated.read_text().split('"')[1] if generated.is_file() else str(self.directory)


@dataclass(frozen=True)
class Built:
    """Modules, and what they were built for."""

    modules: list[Path]
    release: str
    warnings: list[str]
    seconds: float


def against(given: str | None) -> Against:
    """By a directory, or a guest kernel's name; without either, the running kernel's headers."""
    if given is None:
        build = MODULES / os.uname().release / "build"
        if not is_prepared(build):
            raise MissingSupport(
                f"there are no headers of the running kernel at {build}: apt-get install linux-headers-$(uname -r), "
                "or give others with --kdir DIR, or --kdir debian-6.12 for those of that guest kernel"
            )
        return Against(build.resolve())
    if given.startswith("debian-"):
        return Against(vm_kernels.headers(given))
    if not is_prepared(Path(given)):
        raise BadInput(
            f"--kdir: {given!r} is no prepared kernel tree (no include/generated/autoconf.h or scripts/mod/modpost); "
            "give one after `make modules_prepare`, a headers package's directory, or debian-6.12"
        )
    return Against(Path(given).resolve())


def is_prepared(directory: Path) -> bool:
    needed = ("Makefile", "include/generated/autoconf.h", "scripts/mod/modpost")
    return all((directory / file).is_file() for file in needed)


def build_controls(names: Sequence[str], kdir: Against, directory: Path) -> Built:
    """NAME.ko of each control, put into the directory."""
    from brobust import _core  # setup builds a kernel, by way of this file, before it is compiled

    if unknown := [name for name in names if name not in _core.control_names()]:
        raise BadInput(f"there is no control named {unknown[0]}; there are: {', '.join(_core.control_names())}")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="brobust-module-") as scratch:
        here = Path(scratch) / "module"  # a log in kbuild's own directory would be in its way
        shutil.copytree(SOURCES / "cc", here / "cc")
        for file in GLUE:
            shutil.copy(SOURCES / file, here / file)
        lines = [f"ccflags-y := -I{here}", *(f"obj-m += {name}.o" for name in names)]
        lines += [f"{name}-y := cc/controls/{name}.o" for name in names]
        (here / "Kbuild").write_text("\n".join(lines) + "\n")
        with Log(Path(scratch) / "log") as log:
            make(kdir, here, modules(), log)
            warnings = [line for line in log.lines() if "warning:" in line]
        kept = [keep(here / f"{name}.ko", directory) for name in names]
    return Built(kept, kdir.release, warnings, time.monotonic() - begun)


def modules() -> list[str]:
    """Make's words for modules, with BTF where it can be made."""
    return ["modules", *([] if shutil.which("pahole") else ["CONFIG_DEBUG_INFO_BTF_MODULES="])]


def make(kdir: Against, here: Path, targets: Sequence[str], log: Log) -> None:
    """Kbuild in a directory of ours."""
    if shutil.which("make") is None:
        raise MissingSupport("make is not installed; apt-get install make gcc")
    told = [f"{name}={os.environ[name]}" for name in TOLD_BY_ENVIRONMENT if os.environ.get(name)]
    if log.call(["make", "-C", str(kdir.directory), f"M={here}", *told, *targets], cwd=here) != 0:
        error = log.error().removeprefix(f"{here}/")
        raise BuildFailed(f"kernel: {targets[0]} cannot be compiled against Linux {kdir.release}: {error}", log.tail())


def keep(built: Path, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(built, directory / built.name))
