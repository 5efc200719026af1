"""The command `brobust cc module`: our congestion controls as kernel modules, for kernels without struct_ops or BTF."""

from pathlib import Path
from typing import Annotated

import typer

from brobust.cc.names import check_ours, name_of
from brobust.errors import BadInput
from brobust.kernels import modules
from brobust.kernels import vm as vm_kernels


def module(
    names: Annotated[
        list[str], typer.Argument(metavar="CONTROL", help="Our congestion controls, such as brb_bbr1_robust.")
    ],
    kdir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Build for the kernel of these headers or this prepared tree, or for debian-6.12 or debian-6.1. "
            "[default: the running kernel]",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Write NAME.ko into this directory.")] = Path(),
    guest: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --kdir debian-…: also write a guest kernel for the vm backend, with the modules, into DIR.",
        ),
    ] = None,
) -> None:
    """Build congestion controls as kernel modules (NAME.ko), from the same source as the BPF programs, for kernels
    without BTF.

    Examples:
      brobust cc module brb_bbr1_robust && sudo insmod brb_bbr1_robust.ko
    """
    if guest is not None and not (kdir or "").startswith("debian-"):
        raise BadInput("--guest adds the modules to one of Debian's guest kernels; name it with --kdir debian-6.12")
    check_ours(names)
    if settings := [name for name in names if name != name_of(name)]:
        first = name_of(settings[0])
        raise BadInput(
            f"{settings[0]!r}: insmod sets a module's parameters; give {first}, and `insmod {first}.ko NAME=N`"
        )
    built = modules.build_controls(names, modules.headers_of(kdir), out)
    for file in built.modules:
        print(f"{file}: for Linux {built.release}, unsigned; load it with insmod; `modinfo -p` lists its parameters")
    for line in built.warnings:
        print(f"  {line}")
    if guest is not None:
        kernel = vm_kernels.with_modules(vm_kernels.find(kdir or ""), built.modules, guest).name
        print(f"to measure it: brobust run --backend vm --cc {','.join(names)} --kernel {kernel}")
