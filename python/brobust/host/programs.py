"""Find programs of this host and the libraries that they need."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from brobust.errors import MissingSupport


def find_program(name: str, package: str) -> Path:
    """Return the path of a program, or name the package that has it."""
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise MissingSupport(f"{name} is not installed; run `make setup` or `apt-get install {package}`")
    return Path(found).resolve()


def shared_libraries(program: Path) -> list[Path]:
    """Return the dynamic linker and the libraries that a program needs, by the paths at which it looks for them; none
    for a static program."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        if ELFFile(file).get_section_by_name(".dynamic") is None:
            return []
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    words = [word for line in listed.splitlines() for word in line.split()]
    return [Path(word) for word in words if word.startswith("/")]
