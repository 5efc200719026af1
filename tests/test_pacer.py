"""The pacer for user space (crates/pacer): its C header does what the vectors say, which its Rust tests check too."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from brobust import quic

CRATE = Path(__file__).parents[1] / "crates/pacer"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


@pytest.mark.parametrize("trap", [(), ("-fsanitize=undefined", "-fno-sanitize-recover=all")], ids=["plain", "traps"])
def test_the_header_does_what_the_vectors_say(tmp_path: Path, trap: tuple[str, ...]) -> None:
    program = tmp_path / "vectors"
    subprocess.run(["cc", *STRICT, *trap, "-O1", "-o", program, CRATE / "tests/vectors.c"], check=True)
    done = subprocess.run([program, CRATE / "vectors.txt"], capture_output=True, text=True)
    assert done.returncode == 0 and re.fullmatch(r"\d+ checked, 0 wrong\n", done.stdout), done.stdout + done.stderr


def test_the_header_has_no_floating_point_and_calls_nothing() -> None:
    code = re.sub(r"/\*.*?\*/", "", (CRATE / "pacer.h").read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(float|double|malloc|clock\w*|time)\b", code)
    assert re.findall(r"#include <(\w+)\.h>", code) == ["stdbool", "stdint"]
