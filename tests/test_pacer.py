"""The pacer for user space (crates/pacer) and the repair's decisions (cc/repair.h): both do what the vectors say, which
Rust tests check of the crate and of bbr_steady's rule, too."""

import ctypes
import os
import re
import struct
import subprocess
import tarfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from brobust import quic

ROOT = Path(__file__).parents[1]
CRATE = ROOT / "crates/pacer"
REPAIR = ROOT / "cc/repair.h"
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", f"-I{CRATE}", f"-I{ROOT / 'cc'}")
TRAPS = pytest.mark.parametrize(
    "trap", [(), ("-fsanitize=undefined", "-fno-sanitize-recover=all")], ids=["plain", "traps"]
)


@TRAPS
def test_the_header_does_what_the_vectors_say(tmp_path: Path, trap: tuple[str, ...]) -> None:
    program = tmp_path / "vectors"
    subprocess.run(["cc", *STRICT, *trap, "-O1", "-o", program, CRATE / "tests/vectors.c"], check=True)
    done = subprocess.run([program, CRATE / "vectors.txt"], capture_output=True, text=True)
    assert done.returncode == 0 and re.fullmatch(r"\d+ checked, 0 wrong\n", done.stdout), done.stdout + done.stderr


@TRAPS
def test_the_repair_decides_what_its_vectors_say(tmp_path: Path, trap: tuple[str, ...]) -> None:
    program = tmp_path / "repair_vectors"
    subprocess.run(["cc", *STRICT, *trap, "-O1", "-o", program, ROOT / "tests/programs/repair_vectors.c"], check=True)

    def run(*words: str | Path) -> str:
        return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout

    assert run("check", CRATE / "repair-vectors.txt") == "232 checked, 0 wrong\n"
    assert run("draw", "133", "2") == (CRATE / "repair-vectors.txt").read_text()
    fresh = tmp_path / "fresh.txt"
    for seed in ("2", "3"):
        fresh.write_text(run("draw", seed, "300"))
        assert run("check", fresh) == "30330 checked, 0 wrong\n"


def test_the_vectors_notice_another_constant(tmp_path: Path) -> None:
    for name, value in {"LOSS": 6, "OVERFLOW": 21, "CUT": 7, "BETA": 180, "GROWTH": 12, "HOLD": 9500}.items():
        text, changed = re.subn(rf"(#define REPAIR_{name}\s+)\d+", rf"\g<1>{value}", REPAIR.read_text())
        assert changed == 1
        (tmp_path / "repair.h").write_text(text)
        (tmp_path / "pacer.h").write_text((CRATE / "pacer.h").read_text())  # it includes what is beside it
        program, options = tmp_path / name, ["-std=c11", f"-I{tmp_path}"]
        subprocess.run(["cc", *options, "-o", program, ROOT / "tests/programs/repair_vectors.c"], check=True)
        done = subprocess.run([program, "check", CRATE / "repair-vectors.txt"], capture_output=True, text=True)
        assert done.returncode == 1 and ", 0 wrong" not in done.stdout, name


def test_the_crate_and_the_kernel_series_have_the_constants_of_the_header() -> None:
    ours = dict(re.findall(r"#define REPAIR_(\w+)\s+(\d+)\b", REPAIR.read_text()))
    rust = dict(re.findall(r"const (\w+): u\d+ = (\d+);", (CRATE / "src/repair.rs").read_text()))
    stack = (ROOT / "kernel/patches/kept/1-stack.patch").read_text()
    series = dict(re.findall(r"#define TCP_PACING_(\w+)\s+(\d+)\b", stack))
    of_losses = {name: ours[name] for name in ("LOSS", "OVERFLOW", "CUT", "BETA", "GROWTH")}
    assert {name: rust[name] for name in ("AHEAD", "WINDOW", *of_losses)} == {
        "AHEAD": ours["AHEAD"], "WINDOW": ours["WINDOW"], **of_losses,
    }  # fmt: skip
    assert {name: series[name] for name in of_losses} == of_losses
    ahead = re.search(r"late = late \* (\d) / (\d);", stack)
    assert ahead and int(ahead[1]) * 256 == int(ours["AHEAD"]) * int(ahead[2])


@pytest.mark.parametrize("header", [CRATE / "pacer.h", REPAIR], ids=lambda path: path.name)
def test_the_header_has_no_floating_point_and_calls_nothing(header: Path) -> None:
    code = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(float|double|malloc|clock\w*|time)\b", code)
    assert re.findall(r"#include (\S+)", code) == (
        ["<stdbool.h>", "<stdint.h>", '"repair.h"'] if header != REPAIR else []
    )


def test_the_example_prints_what_its_page_shows(tmp_path: Path) -> None:
    page = (CRATE.parents[1] / "docs/pacer.md").read_text()
    shown = re.search(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    subprocess.run(["cc", *STRICT, "-o", tmp_path / "example", CRATE / "example.c"], check=True)
    printed = subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True).stdout
    assert shown and printed == shown[1]


@pytest.mark.parametrize(
    "options", [("g++", "-std=c++11"), ("g++", "-std=c++20"), ("clang++", "-std=c++17")], ids=" ".join
)
def test_cpp_takes_the_headers(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Half of the QUIC stacks are of C++."""
    warnings = ("-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{CRATE}", f"-I{ROOT / 'cc'}")
    command = [*options, *warnings, "-o", tmp_path / "example", "-x", "c++", CRATE / "example.c"]
    subprocess.run(command, check=True)
    printed = subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("kept:      3310800 bytes\n")


def test_the_readme_of_the_crate_compiles_as_it_stands(tmp_path: Path) -> None:
    manifest, code = re.findall(
        r"^```(?:toml|rust)\n(.*?)^```$", (CRATE / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (tmp_path / "brobust").symlink_to(ROOT)
    (tmp_path / "stack/src").mkdir(parents=True)
    about = '[package]\nname = "stack"\nversion = "0.1.0"\nedition = "2021"\n\n'
    (tmp_path / "stack/Cargo.toml").write_text(about + manifest)
    (tmp_path / "stack/src/main.rs").write_text(f"fn main() {{\n{code}}}\n")
    command = ["cargo", "run", "--offline", "--quiet", "--target-dir", tmp_path / "target"]
    subprocess.run(command, cwd=tmp_path / "stack", check=True)


def test_the_package_of_the_crate_has_all_that_its_header_and_its_tests_need(tmp_path: Path) -> None:
    readme = (CRATE / "README.md").read_text()
    options = ["--offline", "--no-verify", "--allow-dirty", "--quiet", "--package", "brobust-pacer"]
    subprocess.run(["cargo", "package", *options, "--target-dir", tmp_path], cwd=ROOT, check=True)
    (package,) = (tmp_path / "package").glob("*.crate")
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    there = tmp_path / package.stem
    assert f"target/package/{package.stem}: " in readme
    assert (there / "repair.h").read_text() == REPAIR.read_text()
    for program in ("example.c", "tests/vectors.c"):
        subprocess.run(["cc", "-std=c11", "-o", tmp_path / "program", there / program], check=True)


def test_the_rules_that_traffic_can_name_are_those_of_the_crate() -> None:
    names = re.findall(r'"([a-z-]+)" => Rule::', (CRATE / "src/rules.rs").read_text())
    assert sorted(names) == sorted(quic.RULES)
    assert set(quic.RULES) <= set(re.findall(r"^pacer (\S+)", (CRATE / "vectors.txt").read_text(), flags=re.MULTILINE))


PATCHED = [one for one in quic.STACKS.values() if one.base]


@pytest.mark.parametrize("stack", [one for one in PATCHED if one.rules], ids=lambda one: one.name)
class TestStacksWithOurPacer:
    def test_the_rule_is_a_part_of_the_traffic(self, stack: quic.Stack) -> None:
        assert quic.traffic(f"quic:{stack.name}") == f"quic:{stack.name} rule=kept"
        assert quic.traffic(f"quic:{stack.name} gso=off rule=loop") == f"quic:{stack.name} rule=loop gso=off"
        for wrong in ("rule=all", "rule=kept rule=none"):
            with pytest.raises(ValueError, match=r"there may be one rule=, of kept, none, half-gap, quantum"):
                quic.traffic(f"quic:{stack.name} {wrong}")
        with pytest.raises(ValueError, match="after quinn there may be gso=off, or nothing"):
            quic.traffic("quic:quinn rule=kept")

    def test_little_of_the_patch_is_not_ours(self, stack: quic.Stack) -> None:
        added, removed = _changed(stack)
        assert removed < 30 and added > 80


@pytest.mark.parametrize("stack", PATCHED, ids=lambda one: one.name)
class TestPatchedStacks:
    def test_it_is_built_from_the_files_of_its_base_a_patch_and_our_pacer_if_it_has_rules(
        self, stack: quic.Stack
    ) -> None:
        more = set(stack.sources) - set(quic.STACKS[stack.base].sources)
        assert set(quic.STACKS[stack.base].sources) < set(stack.sources) and stack.patch in more
        assert (f"{quic.PACER}/src/rules.rs" in more) == bool(stack.rules) == (len(more) > 1)

    def test_a_patch_for_maintainers_adds_at_most_40_lines(self, stack: quic.Stack) -> None:
        assert stack.rules or 0 < _changed(stack)[0] <= 40

    def test_the_patch_is_of_the_version_that_the_lock_file_pins(self, stack: quic.Stack) -> None:
        package, version = stack.patched.split()
        lock = stack.sources["Cargo.lock"].read_text()
        assert re.search(rf'name = "{package}"\nversion = "{re.escape(version)}"\nsource.*\nchecksum', lock)


def _changed(stack: quic.Stack) -> tuple[int, int]:
    """Return how many lines a stack's patch adds and removes."""
    lines = stack.sources[stack.patch].read_text().splitlines()
    lines = [line for line in lines if not line.startswith(("+++", "---"))]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


class Bpf:
    """Runs tests/programs/repair.bpf.c in the kernel, by the system call alone: without maps nothing is relocated."""

    LOAD, RUN, SYSCALL_PROGRAM, SLEEPABLE = 5, 10, 31, 1 << 4  # include/uapi/linux/bpf.h
    CALL = struct.Struct("<4I2Q 4Q 5I?3x")  # struct call: the call, the memory, the bound
    COUNT, END_ROUND, FORGET, STALL = range(4)

    def __init__(self, scratch: Path) -> None:
        program = scratch / "repair.bpf.o"
        source = ROOT / "tests/programs/repair.bpf.c"
        options = ["-O2", "-mcpu=v3", "-target", "bpf", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cc'}"]
        subprocess.run(["clang", *options, "-c", source, "-o", program], check=True)
        with program.open("rb") as file:
            code = ELFFile(file).get_section_by_name("syscall").data()
        self.log = ctypes.create_string_buffer(1 << 16)
        self.kept = [ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL"), self.log]
        instructions, licence, log = map(ctypes.addressof, self.kept)
        kind, verbosity = self.SYSCALL_PROGRAM, 1
        head = struct.pack("<2I2Q", kind, len(code) // 8, instructions, licence)
        tail = struct.pack("<2IQ2I", verbosity, len(self.log), log, 0, self.SLEEPABLE)
        self.program = self._bpf(self.LOAD, head + tail)
        self.memory, self.bound = [0] * 4, [0] * 6

    def decide(
        self, what: int, lost: int = 0, delivered: int = 0, in_flight: int = 0, now: int = 0, ns: int = 0
    ) -> None:
        call = ctypes.create_string_buffer(
            self.CALL.pack(what, lost, delivered, in_flight, now, ns, *self.memory, *self.bound), self.CALL.size
        )
        # prog_fd, retval, sizes and addresses of data, repeat, duration, then the context.
        attributes = struct.pack(
            "<4I2Q4I2Q", self.program, 0, 0, 0, 0, 0, 0, 0, len(call), 0, ctypes.addressof(call), 0
        )
        self._bpf(self.RUN, attributes)
        after = self.CALL.unpack(call.raw)
        self.memory, self.bound = list(after[6:10]), list(after[10:])

    def _bpf(self, command: int, attributes: bytes) -> int:
        libc, given = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(attributes, len(attributes))
        done = int(libc.syscall(321, command, given, len(attributes)))  # __NR_bpf of x86-64
        if done < 0:
            raise OSError(ctypes.get_errno(), self.log.value.decode() or os.strerror(ctypes.get_errno()))
        return done


@pytest.mark.root
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a system call is that of x86-64")
def test_as_bpf_the_repair_decides_what_its_vectors_say(tmp_path: Path) -> None:
    bpf, in_flight, now, compared = Bpf(tmp_path), 0, 0, 0
    excess, round_max, cap = 0, 2, 3
    for number, line in enumerate((CRATE / "repair-vectors.txt").read_text().splitlines(), 1):
        match line.replace("=", "").split():
            case ["flow", packets]:
                bpf.memory, bpf.bound, in_flight, now = [0] * 4, [0] * 6, int(packets), 1_000_000_000
                bpf.decide(bpf.FORGET, now=now)
                bpf.decide(bpf.STALL, now=now, ns=10_000_000)
                bpf.bound[round_max] = in_flight
            case ["send", packets]:
                in_flight += int(packets)
                bpf.bound[round_max] = max(bpf.bound[round_max], in_flight)
            case ["timeout", packets]:
                in_flight -= int(packets)
            case ["pass", ms]:
                now += int(ms) * 1_000_000
                bpf.decide(bpf.FORGET, now=now)
            case ["ack" | "round" as what, lost, delivered, *wanted]:
                in_flight -= int(lost) + int(delivered)
                bpf.decide(bpf.COUNT, lost=int(lost), delivered=int(delivered))
                if what == "round":
                    bpf.decide(bpf.END_ROUND, in_flight=in_flight, now=now)
                assert [str(bpf.bound[excess]), str(bpf.bound[cap])] == wanted, f"line {number}: {line}"
                compared += 1
    assert compared == 230
