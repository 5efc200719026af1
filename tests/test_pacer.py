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


def test_the_example_on_its_page_compiles_and_prints_what_the_page_shows(tmp_path: Path) -> None:
    page = (CRATE.parents[1] / "docs/pacer.md").read_text()
    code, shown = (re.search(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) for kind in ("c", "text"))
    assert code and shown
    (tmp_path / "example.c").write_text(code[1])
    subprocess.run(["cc", *STRICT, f"-I{CRATE}", "-o", tmp_path / "example", tmp_path / "example.c"], check=True)
    assert subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True).stdout == shown[1]


def test_the_rules_that_traffic_can_name_are_those_of_the_crate() -> None:
    names = re.findall(r'"([a-z-]+)" => Rule::', (CRATE / "src/rules.rs").read_text())
    assert sorted(names) == sorted(quic.RULES)
    assert set(quic.RULES) <= set(re.findall(r"^pacer (\S+)", (CRATE / "vectors.txt").read_text(), flags=re.MULTILINE))


@pytest.mark.parametrize("stack", [one for one in quic.STACKS.values() if one.base], ids=lambda one: one.name)
class TestPatchedStacks:
    def test_the_rule_is_a_part_of_the_traffic(self, stack: quic.Stack) -> None:
        assert quic.traffic(f"quic:{stack.name}") == f"quic:{stack.name} rule=kept"
        assert quic.traffic(f"quic:{stack.name} gso=off rule=loop") == f"quic:{stack.name} rule=loop gso=off"
        for wrong in ("rule=all", "rule=kept rule=none"):
            with pytest.raises(ValueError, match=r"there may be one rule=, of kept, none, half-gap, quantum"):
                quic.traffic(f"quic:{stack.name} {wrong}")
        with pytest.raises(ValueError, match="after quinn there may be gso=off, or nothing"):
            quic.traffic("quic:quinn rule=kept")

    def test_it_is_built_from_the_files_of_its_base_our_pacer_and_a_patch(self, stack: quic.Stack) -> None:
        assert set(quic.STACKS[stack.base].sources) < set(stack.sources)
        assert {quic.PATCH, f"{quic.PACER}/src/rules.rs"} <= set(stack.sources)

    def test_the_patch_is_of_the_version_that_the_lock_file_pins(self, stack: quic.Stack) -> None:
        package, version = stack.patched.split()
        lock = stack.sources["Cargo.lock"].read_text()
        assert re.search(rf'name = "{package}"\nversion = "{re.escape(version)}"\nsource.*\nchecksum', lock)

    def test_little_of_the_patch_is_not_ours(self, stack: quic.Stack) -> None:
        lines = stack.sources[quic.PATCH].read_text().splitlines()
        removed = [line for line in lines if line.startswith("-") and not line.startswith("---")]
        assert len(removed) < 30 and sum(line.startswith("+") for line in lines) > 80
