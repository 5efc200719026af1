"""Build kernel modules outside a kernel tree: find the headers to compile with, and build our controls as modules.

A control is built from its only source (cc/controls) and the host for modules (cc/hosts/module). Modules are for
kernels that accept no control from BPF, and for users who prefer modules.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BadInput, MissingSupport
from brobust.files import temporary_directory
from brobust.kernels import our_files
from brobust.kernels import vm as vm_kernels
from brobust.kernels.toolchain import BuildFailed, Log, check_room

# A tree does not remember its architecture and compiler, so make gets these from our environment.
MAKE_VARIABLES = ("ARCH", "CROSS_COMPILE", "CC", "LLVM")
MODULES = Path("/lib/modules")


@dataclass(frozen=True)
class BuildResult:
    modules: list[Path]
    release: str
    warnings: list[str]


def headers_of(given: str | None) -> Path:
    """Return the headers in a directory (a prepared tree, or those of a built kernel) or of a guest kernel; None: those
    of the running kernel."""
    if given is None:
        build = MODULES / os.uname().release / "build"
        if not is_prepared(build):
            raise MissingSupport(
                f"{build} does not hold the running kernel's headers; install them with apt-get install "
                "linux-headers-$(uname -r), or give others with --kdir DIR or, for a guest kernel, --kdir debian-6.12"
            )
        return build.resolve()
    if given.startswith("debian-"):
        return vm_kernels.headers(given)
    if not is_prepared(Path(given)):
        raise BadInput(
            f"--kdir: {given!r} is not a prepared kernel tree (it lacks include/generated/autoconf.h or "
            "scripts/mod/modpost); give a tree after `make modules_prepare`, the directory of a headers package, or "
            "debian-6.12"
        )
    return Path(given).resolve()


def is_prepared(directory: Path) -> bool:
    """Return whether modules can be compiled with the files in this directory."""
    needed = ("Makefile", "include/generated/autoconf.h", "scripts/mod/modpost")
    return all((directory / file).is_file() for file in needed)


def release_of(kdir: Path) -> str:
    generated = kdir / "include/generated/utsrelease.h"
    return generated.read_text().split('"')[1] if generated.is_file() else str(kdir)


def build_controls(names: Sequence[str], kdir: Path, directory: Path) -> BuildResult:
    """Build NAME.ko for each of these controls and put it into the directory."""
    with temporary_directory() as scratch:
        here = scratch / "module"
        shutil.copytree(our_files.CC, here / "cc")
        lines = [f"ccflags-y := -I{here}/cc/hosts/module", *(f"obj-m += {name}.o" for name in names)]
        lines += [f"{name}-y := cc/controls/{name}.o" for name in names]
        (here / "Kbuild").write_text("\n".join(lines) + "\n")
        warnings = make(kdir, here, modules())
        return BuildResult([keep(here / f"{name}.ko", directory) for name in names], release_of(kdir), warnings)


def modules() -> list[str]:
    """Return make's arguments for modules; without pahole they get no BTF."""
    return ["modules", *([] if shutil.which("pahole") else ["CONFIG_DEBUG_INFO_BTF_MODULES="])]


def make(kdir: Path, here: Path, *goals: Sequence[str]) -> list[str]:
    """Run kbuild in this directory, with the headers of `kdir`, once for each of these lists of targets. Return the
    compiler's warnings. The log is beside the directory, since it would be in kbuild's way there."""
    if shutil.which("make") is None:
        raise MissingSupport("make is not installed; apt-get install make gcc")
    variables = [f"{name}={os.environ[name]}" for name in MAKE_VARIABLES if os.environ.get(name)]
    command = ["make", f"-j{len(os.sched_getaffinity(0))}", "-C", str(kdir), f"M={here}", *variables]
    with Log(here.with_name("log")) as log:
        for targets in goals:
            if log.call([*command, *targets], cwd=here) != 0:
                check_room(log.said(), here)
                what, error = f"{targets[0]} cannot be compiled for Linux", log.error().removeprefix(f"{here}/")
                raise BuildFailed(f"kernel: {what} {release_of(kdir)}: {error}", log.tail())
        return [line for line in log.lines() if "warning:" in line]


def keep(built: Path, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(built, directory / built.name))
