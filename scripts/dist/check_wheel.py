#!/usr/bin/env python3
"""Refuse a wheel whose name, tags and metadata do not agree, or whose description has links that lead nowhere on a
package index: `check_wheel.py WHEEL VERSION`. What an index itself refuses is `twine check --strict`'s part.
"""

import sys
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

from description import LINK
from packaging.utils import canonicalize_name, parse_wheel_filename


def problems(wheel: Path, version: str) -> Iterator[str]:
    """Yield in words what is wrong with a wheel."""
    name, named_version, _, tags = parse_wheel_filename(wheel.name)
    with ZipFile(wheel) as files:
        directories = {entry.split("/")[0] for entry in files.namelist() if ".dist-info/" in entry}
        if len(directories) != 1:
            yield f"it has {len(directories)} directories of metadata"
            return
        [directory] = directories
        has_kernels = any("/kernels/bin/" in entry for entry in files.namelist())
        metadata = Parser().parsestr(files.read(f"{directory}/METADATA").decode())
        about = Parser().parsestr(files.read(f"{directory}/WHEEL").decode())
    if canonicalize_name(metadata["Name"]) != name:
        yield f"its name is {name}, its metadata say {metadata['Name']}"
    if not str(named_version) == metadata["Version"] == version:
        yield f"its name has version {named_version}, its metadata {metadata['Version']}, Cargo.toml {version}"
    if {str(tag) for tag in tags} != set(about.get_all("Tag", [])):
        yield f"its name says {', '.join(map(str, tags))}, its file WHEEL {', '.join(about.get_all('Tag', []))}"
    for field in ("Summary", "Requires-Python", "License-Expression", "Description-Content-Type", "Keywords"):
        if not metadata[field]:
            yield f"its metadata have no {field}"
    licence = str(metadata["License-Expression"])
    if has_kernels and "GPL-2.0-only WITH Linux-syscall-note" not in licence:
        yield f"its kernels are under GPL-2.0-only WITH Linux-syscall-note, its metadata say {licence}"
    text = str(metadata.get_payload())
    if found := LINK.search(text):
        yield f"its description has a link that leads nowhere on an index: {found[0]}"
    if "not on PyPI" in text:
        yield "its description says `not on PyPI`: let README.md and docs/tutorial.md say `pip install brobust`"


def main(wheel: Path, version: str) -> None:
    found = list(problems(wheel, version))
    for problem in found:
        print(f"{wheel.name}: {problem}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
