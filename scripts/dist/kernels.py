#!/usr/bin/env python3
"""Put kernels for virtual time into a directory, with what the GPL asks of who passes them on.

scripts/dist/kernels.py DIRECTORY NAME...
"""

import hashlib
import shutil
import sys
from pathlib import Path

from brobust.errors import BrobustError
from brobust.host.cache import cache_directory
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.virtual import VirtualKernel

SOURCES = """\
Sources of these kernels
========================

The executables in this directory are the Linux kernel, version 2 of the GNU General Public License (GPL-2.0-only.txt
among the licences of this package), linked statically with the GNU C library (LGPL-2.1-or-later).

Each was built from Debian's source package, unchanged, and from our patches and files. The latter are in this package:
brobust/sources/kernel and brobust/sources/cc. The configuration is the file `config` beside each executable.

{kernels}
The exact Debian packages stay at https://snapshot.debian.org/package/linux/ (binary package linux-source-SERIES of the
version above). `brobust kernel build NAME` builds an executable again: with the same compiler, the same bytes.

Offer, valid for three years from the date of this package: its publisher gives anybody who asks the complete
corresponding source on a medium customary for software interchange, for no more than the cost of doing so. Ask where
you got the package.
"""


def bring(kernel: VirtualKernel, directory: Path) -> str:
    """Copy a kernel, and return what there is to say about its source."""
    to = directory / kernel.name
    to.mkdir(parents=True)
    for name in ("linux", "config", "kernel.json"):
        shutil.copy(kernel.path.parent / name, to / name)
    package, version = kernel.source.split()
    lines = [f"{kernel.name}: Linux {kernel.release}", f"    package  {package} {version}"]
    tarballs = sorted((cache_directory() / "sources").glob(f"{package}_{version}.tar.*"))
    if tarballs:
        digest = hashlib.sha256(tarballs[0].read_bytes()).hexdigest()
        lines.append(f"    tarball  {package}.tar{tarballs[0].suffix} in it, SHA-256 {digest}")
    return "\n".join([*lines, f"    linux    SHA-256 {kernel.sha256}", ""])


def main(directory: Path, names: list[str]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    said = [bring(virtual_kernels.find(name), directory) for name in names]
    (directory / "SOURCES.txt").write_text(SOURCES.format(kernels="\n".join(said)))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2:])
    except BrobustError as error:
        sys.exit(f"dist: {error}")
