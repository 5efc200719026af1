"""Programs of this host, and the libraries that each needs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from brobust.errors import MissingSupport


def find_program(name: str, package: str) -> Path:
    found = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        raise MissingSupport(f"{name} is not installed; run `make setup` or `apt-get install {package}`")
    return Path(found).resolve()


def shared_libraries(program: Path) -> list[Path]:
    """The interpreter and every library a dynamic program needs, by the paths it will look for them."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        if ELFFile(file).get_section_by_name(".dynamic") is None:
            return []
    listed = subprocess.run(["ldd", str(program)], check=True, capture_output=True, text=True).stdout
    words = [word for line in listed.splitlines() for word in line.split()]
    return [Path(word) for word in words if word.startswith("/")]
