"""What the repair would make of a kernel tree, and making it so.

Coccinelle works on a copy, the copy is compiled, and only then are the tree's files replaced: whatever goes wrong
before, and Ctrl-C, leave the tree as it was.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from brobust.errors import BadInput, MissingSupport
from brobust.kernel_patch.repairs import REPAIRS, RULES, File, read

# A second is usual. A file that is no BBR at all may keep Coccinelle thinking.
SECONDS = 60


@dataclass(frozen=True)
class Change:
    """One file of a tree before and after. They are equal where the file was repaired already."""

    file: File
    before: str
    after: str

    @property
    def name(self) -> str:
        """Its path in the tree."""
        return self.file.path

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


def plan(tree: Path, repair: str = "robust") -> list[Change]:
    """What a repair (repairs.REPAIRS) is to change in a tree. Changes nothing."""
    if not tree.is_dir():
        raise BadInput(f"{tree} is not a directory; give an unpacked Linux source")
    changes = []
    for file in REPAIRS[repair].files(tree):
        before = read(tree / file.path)
        changes.append(Change(file, before, before if file.is_repaired(before) else _patched(file, before)))
    return changes


def _patched(file: File, before: str) -> str:
    rule = RULES / file.rule
    with tempfile.TemporaryDirectory(prefix="brobust-patch-") as scratch:
        copy = Path(scratch) / Path(file.path).name
        copy.write_bytes(before.encode(errors="surrogateescape"))
        command = ["spatch", "--very-quiet", "--in-place", "--sp-file", str(rule.resolve()), copy.name]
        try:
            done = _run(command, Path(scratch), "coccinelle")
        except subprocess.TimeoutExpired:
            raise BadInput(f"{file.path}: spatch found no end in {SECONDS} s; is it a kernel's?") from None
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise BadInput(f"{file.path}: spatch cannot work on it with {file.rule}: {last}")
        after = read(copy)
    if not file.is_repaired(after):
        raise BadInput(
            f"{file.path} ({file.what}) is not as kernel/patches/{file.rule} knows it: {file.shape}; mend the semantic "
            "patch for this tree"
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
            _replace(tree, [(c.name, c.before) for c in todo if read(tree / c.name) != c.before])
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


def mail(changes: Sequence[Change], repair: str, author: str, date: str) -> str:
    """A patch as `git format-patch` writes it, for `git am` or for posting. `author` is NAME <ADDRESS>."""
    todo = [change for change in changes if not change.repaired_already]
    subject, _, body = (RULES / repair / "message").read_text().partition("\n")
    about = REPAIRS[repair].subsystem or ", ".join(Path(change.name).stem for change in todo)
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
