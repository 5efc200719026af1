"""`brobust cc module`: our controls as kernel modules, for kernels that take none from BPF."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from brobust.errors import BadInput
from brobust.kernels import modules
from brobust.kernels import vm as vm_kernels
from brobust.kernels.toolchain import BuildFailed


def module(
    names: Annotated[list[str], typer.Argument(help="Controls of ours, such as brb_bbr1_robust.")],
    kdir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Headers or prepared tree of the kernel that is to load them, or debian-6.12, debian-6.1 "
            "[the running kernel's headers].",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where NAME.ko is put.")] = Path(),
    guest: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="With --kdir debian-…: make that guest kernel with the modules in it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Build controls as kernel modules (NAME.ko), for kernels without BTF: the same source as the BPF programs."""
    if guest is not None and not (kdir or "").startswith("debian-"):
        raise BadInput("--guest: it takes one of Debian's guest kernels; name it with --kdir debian-6.12")
    try:
        built = modules.build_controls(names, modules.against(kdir), out)
    except BuildFailed as error:
        for line in error.last_lines:
            print(f"  {line}", file=sys.stderr)
        raise
    kernel = None
    if guest is not None:
        kernel = vm_kernels.with_modules(vm_kernels.find(kdir or ""), built.modules, guest).name
    if as_json:
        files = [str(file) for file in built.modules]
        told = {"modules": files, "release": built.release, "warnings": built.warnings, "seconds": built.seconds}
        print(json.dumps({**told, "kernel": kernel}))
        return
    for file in built.modules:
        print(f"{file}: for Linux {built.release}, not signed; insmod loads it, `modinfo -p` lists its parameters")
    for line in built.warnings:
        print(f"  {line}")
    if kernel is not None:
        print(f"measure it: brobust run --backend vm --cc {','.join(names)} --kernel {kernel}")
