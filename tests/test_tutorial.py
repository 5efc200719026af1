"""docs/tutorial.md shows what its commands print: they are run in the order of the page, with the files that it says to
write. What it does on the reader's own host (`brobust watch`) is not part of this."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brobust.kernels import virtual as virtual_kernels

PAGE = (Path(__file__).parent.parent / "docs/tutorial.md").read_text()
MEASURING = ("brobust demo", "brobust run", "brobust explain", "brobust plot")


def _steps() -> Iterator[tuple[str, str]]:
    """Yield what the page has the reader do: ("run", command), ("toml", text), ("text", what is shown)."""
    for language, fenced, command in re.findall(
        r"^```(\w+)\n(.*?)^```$|^    (\S[^\n]*)$", PAGE, re.DOTALL | re.MULTILINE
    ):
        if language or command.startswith(MEASURING):
            yield (language, fenced) if language else ("run", command)


def _rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.virtual
def test_the_tutorial_shows_what_its_commands_print(tmp_path: Path) -> None:
    kernel = virtual_kernels.find()
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed, shown = "", 0
    for kind, text in _steps():
        if kind == "run":
            printed += subprocess.run(
                ["sh", "-c", text], cwd=tmp_path, env={**os.environ, "PATH": programs, "COLUMNS": "100"},
                capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip
        elif kind == "toml":
            (tmp_path / "slices.toml").write_text(text)
        elif kind == "text" and kernel.release.startswith("6.12.117-"):
            assert [row for row in _rows(text) if row not in _rows(printed)] == []
            shown += 1
    assert shown == 5 or not kernel.release.startswith("6.12.117-")
