"""What the repair would make of a kernel tree, and making it so.

Coccinelle works on a copy, the copy is compiled, and only then are the tree's files replaced: whatever goes wrong
before, and Ctrl-C, leave the tree as it was.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from brobust.errors import BadInput, MissingSupport

RULES = Path(__file__).parent / "rules"  # in a checkout a link to kernel/patches; in a wheel the files themselves
REPAIR = "bbr_has_inflight_deficit"
"""The function that the semantic patches add: a file that has it is repaired."""

# A second is usual. A file that is no BBR at all may keep Coccinelle thinking.
SECONDS = 60


@dataclass(frozen=True)
class Version:
    """A version of BBR, and what its semantic patch looks for."""

    number: int
    gain: str
    main: str
    shape: str

    @property
    def rule(self) -> Path:
        return RULES / f"bbr{self.number}.cocci"


VERSIONS = {
    1: Version(1, "2.887", "bbr_main", "bbr_set_pacing_rate() and then bbr_set_cwnd()"),
    2: Version(2, "2.887", "bbr2_main", "bbr_set_pacing_rate(), bbr_set_cwnd(), bbr2_bound_cwnd_for_inflight_model()"),
    3: Version(3, "2.773", "bbr_main", "bbr_set_pacing_rate(), bbr_set_cwnd(), bbr_bound_cwnd_for_inflight_model()"),
}


@dataclass(frozen=True)
class Change:
    """One file of a tree before and after. They are equal where the file was repaired already."""

    name: str
    """Its path in the tree."""
    version: Version
    before: str
    after: str

    @property
    def repaired_already(self) -> bool:
        return self.before == self.after

    @cached_property
    def diff(self) -> str:
        """Unified, with the functions' names, as patches are posted."""
        with tempfile.TemporaryDirectory(prefix="brobust-patch-") as scratch:
            for side, text in (("a", self.before), ("b", self.after)):
                (Path(scratch) / side).write_bytes(text.encode(errors="surrogateescape"))
            labels = [f"--label={side}/{self.name}" for side in "ab"]
            return _run(["diff", "-U3", "-p", *labels, "a", "b"], Path(scratch), "diffutils").stdout

    def count(self, sign: str) -> int:
        """Lines added (+) or removed (-)."""
        return sum(line.startswith(sign) and not line.startswith(sign * 3) for line in self.diff.splitlines())

    @property
    def stat(self) -> str:
        """A line as `git diff --stat` has it."""
        added, removed = self.count("+"), self.count("-")
        return f" {self.name} | {added + removed} {'+' * added}{'-' * removed}"

    @property
    def words(self) -> list[str]:
        """What the change does, for people."""
        return [
            f"new {REPAIR}(): in PROBE_BW, the application not the limit, less than one BDP in flight",
            f"{self.version.main}(): on such an ACK the pacing rate is {self.version.gain} times the bandwidth,"
            " until the next ACK",
            "as before: the model, cwnd, pacing_gain, and all modes but PROBE_BW; TSO bursts grow with the rate",
        ]


def plan(tree: Path) -> list[Change]:
    """What is to be changed in a tree. Changes nothing."""
    changes = []
    for name, version in _files(tree):
        before = _read(tree / name)
        changes.append(
            Change(name, version, before, before if _is_repaired(name, before) else _patched(name, version, before))
        )
    return changes


def _is_repaired(name: str, text: str) -> bool:
    """All of the repair: the function, and its use."""
    found = len(re.findall(rf"\b{REPAIR}\(", text))
    if found == 1:
        raise BadInput(f"{name}: {REPAIR}() stands there, but nothing calls it; take it out, or put its call back")
    return found > 1


def _files(tree: Path) -> list[tuple[str, Version]]:
    """The files of a tree that hold a BBR, by their path in it, with its version."""
    if not tree.is_dir():
        raise BadInput(f"{tree} is not a directory; give an unpacked Linux source")
    found = []
    if (tree / "net/ipv4/tcp_bbr.c").is_file():
        found.append(("net/ipv4/tcp_bbr.c", version_of_bbr(_read(tree / "net/ipv4/tcp_bbr.c"))))
    if (tree / "net/ipv4/tcp_bbr2.c").is_file():
        found.append(("net/ipv4/tcp_bbr2.c", VERSIONS[2]))
    if not found:
        raise BadInput(f"{tree} has no net/ipv4/tcp_bbr.c; give an unpacked Linux source")
    return found


def version_of_bbr(text: str) -> Version:
    """The version of a tcp_bbr.c: by its own word, else by what only one version has."""
    if said := re.search(r"^#define\s+BBR_VERSION\s+([0-9]+)", text, re.MULTILINE):
        number = int(said[1])
    elif "lt_use_bw" in text:  # the policer detector, which version 2 dropped
        number = 1
    elif "bbr_bound_cwnd_for_inflight_model" in text:
        number = 3
    else:
        raise BadInput(
            "net/ipv4/tcp_bbr.c is no BBR that is known here: it defines no BBR_VERSION and has neither version 1's "
            "lt_use_bw nor version 3's bbr_bound_cwnd_for_inflight_model()"
        )
    if number not in (1, 3):
        raise BadInput(f"net/ipv4/tcp_bbr.c: BBR_VERSION is {number}; the repair is written for 1 and 3")
    return VERSIONS[number]


def _read(file: Path) -> str:
    """Text that is written back as it was, whatever its encoding."""
    try:
        return file.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from None


def _patched(name: str, version: Version, before: str) -> str:
    with tempfile.TemporaryDirectory(prefix="brobust-patch-") as scratch:
        file = Path(scratch) / Path(name).name
        file.write_bytes(before.encode(errors="surrogateescape"))
        command = ["spatch", "--very-quiet", "--in-place", "--sp-file", str(version.rule.resolve()), file.name]
        try:
            done = _run(command, Path(scratch), "coccinelle")
        except subprocess.TimeoutExpired:
            raise BadInput(f"{name}: spatch found no end in {SECONDS} s; is it a kernel's?") from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BadInput(f"{name}: spatch cannot work on it with {version.rule.name}: {last}")
        after = _read(file)
    if not _is_repaired(name, after):
        raise BadInput(
            f"{name} (BBR version {version.number}) is not as kernel/patches/{version.rule.name} knows it: "
            f"{version.main}() has to call {version.shape}, one after the other; mend the semantic patch for this tree"
        )
    return after


def _run(argv: Sequence[str], cwd: Path, package: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(argv[0]) is None:
        raise MissingSupport(f"{argv[0]} is not installed; apt-get install {package}")
    return subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, encoding="utf-8", errors="surrogateescape", check=False,
        timeout=SECONDS,
    )  # fmt: skip


def write(tree: Path, changes: Sequence[Change]) -> None:
    """Replace the tree's files. Each is whole at any moment, and on Ctrl-C all are as they were."""
    todo = [change for change in changes if not change.repaired_already]
    try:
        _replace(tree, [(change.name, change.after) for change in todo])
    except BaseException as error:
        with suppress(OSError):
            _replace(tree, [(c.name, c.before) for c in todo if _read(tree / c.name) != c.before])
        if isinstance(error, OSError):
            raise MissingSupport(f"{tree} cannot be changed: {error.strerror}") from None
        raise


def _replace(tree: Path, texts: Sequence[tuple[str, str]]) -> None:
    new: list[tuple[Path, Path]] = []
    try:
        for name, text in texts:
            file = tree / name
            handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
            new.append((Path(beside), file))
            with os.fdopen(handle, "wb") as out:
                out.write(text.encode(errors="surrogateescape"))
            shutil.copymode(file, beside)
        for beside_file, file in new:
            beside_file.replace(file)
    finally:
        for beside_file, _ in new:
            beside_file.unlink(missing_ok=True)


def mail(changes: Sequence[Change], author: str, date: str) -> str:
    """A patch as `git format-patch` writes it, for `git am` or for posting. `author` is NAME <ADDRESS>."""
    todo = [change for change in changes if not change.repaired_already]
    subject, _, body = (RULES / "message").read_text().partition("\n")
    about = ", ".join(Path(change.name).stem for change in todo)
    added, removed = (sum(change.count(sign) for change in todo) for sign in "+-")
    files = f"{len(todo)} file{'s' if len(todo) > 1 else ''} changed"
    return "".join(
        [
            "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n",
            f"From: {author}\nDate: {date}\nSubject: [PATCH] {about}: {subject}\n",
            f"{body}---\n",
            *(f"{change.stat}\n" for change in todo),
            f" {files}, {added} insertions(+), {removed} deletions(-)\n\n",
            *(f"diff --git a/{change.name} b/{change.name}\n{change.diff}" for change in todo),
            "-- \nbrobust\n",
        ]
    )


def author(tree: Path) -> str:
    """NAME <ADDRESS> of whoever posts, as git knows it."""
    if shutil.which("git") is None:
        raise MissingSupport("--format-patch asks git for your name, and git is not installed; --diff does without")
    said = subprocess.run(["git", "var", "GIT_AUTHOR_IDENT"], cwd=tree, capture_output=True, text=True, check=False)
    if said.returncode != 0 or ">" not in said.stdout:
        raise BadInput("--format-patch: git does not know your name; git config --global user.name and user.email")
    return said.stdout.partition(">")[0] + ">"
