"""Plan what a repair changes in a kernel tree, and change it.

Coccinelle works on a copy, the copy is compiled, and only then are the tree's files replaced. So an error or Ctrl-C
before that leaves the tree unchanged.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from brobust.errors import BadInput, MissingSupport, last_line, reason
from brobust.files import temporary_directory, why_not_written
from brobust.kernel_patch.repairs import ROBUST, RULES, Bbr, read, robust

# Coccinelle usually takes a second, but may take very long for a file that is not BBR at all.
TIMEOUT_SECONDS = 60

GRAPH = 40  # signs in a line like those of `git diff --stat`

MODES = {".sh": "100755"}  # of files that a series adds, as git writes them


@dataclass(frozen=True)
class Change:
    """One file of a tree before and after the repair. Both are equal if the file was already repaired."""

    name: str
    """Its path in the tree."""
    what: str
    """What it is, in a few words."""
    explanation: tuple[str, ...]
    """What the repair does in it, in sentences."""
    before: str
    after: str

    @property
    def repaired_already(self) -> bool:
        return self.before == self.after

    @property
    def new(self) -> str:
        """Return git's line for a file that the tree does not have yet; nothing for others."""
        return "" if self.before else f"new file mode {MODES.get(Path(self.name).suffix, '100644')}\n"

    @cached_property
    def diff(self) -> str:
        """Return a unified diff with function names, the format in which patches are posted."""
        with temporary_directory() as scratch:
            for side, text in (("a", self.before), ("b", self.after)):
                (scratch / side).write_bytes(text.encode(errors="surrogateescape"))
            labels = [f"--label={side}/{self.name}" for side in "ab"]
            if not self.before:
                labels[0] = "--label=/dev/null"
            return run(["diff", "-U3", "-p", *labels, "a", "b"], scratch, "diffutils").stdout

    def count(self, sign: str) -> int:
        """Return how many lines are added (+) or removed (-)."""
        return sum(line.startswith(sign) and not line.startswith(sign * 3) for line in self.diff.splitlines())

    @property
    def stat(self) -> str:
        """Return the file's line in the format of `git diff --stat`."""
        added, removed = self.count("+"), self.count("-")
        plus, minus = (-(-lines * min(GRAPH, added + removed) // max(added + removed, 1)) for lines in (added, removed))
        return f" {self.name} | {added + removed} {'+' * plus}{'-' * minus}"


def plan(tree: Path) -> list[Change]:
    """Return what the repair `robust` changes in a tree. This itself changes nothing. For a series: series.plan()."""
    if not tree.is_dir():
        raise BadInput(f"{tree} is not a directory; give an unpacked Linux source")
    changes = []
    for bbr in robust(tree):
        before = read(tree / bbr.path)
        after = before if bbr.is_repaired(before) else _patched(bbr, before)
        changes.append(Change(bbr.path, bbr.what, bbr.explanation, before, after))
    return changes


def _patched(bbr: Bbr, before: str) -> str:
    rule = RULES / bbr.rule
    with temporary_directory() as scratch:
        copy = scratch / Path(bbr.path).name
        copy.write_bytes(before.encode(errors="surrogateescape"))
        command = ["spatch", "--very-quiet", "--in-place", "--sp-file", str(rule.resolve()), copy.name]
        try:
            done = run(command, scratch, "coccinelle")
        except subprocess.TimeoutExpired:
            raise BadInput(
                f"{bbr.path}: spatch did not end within {TIMEOUT_SECONDS} s; check that this is a kernel's source file"
            ) from None
        if done.returncode != 0:
            raise BadInput(f"{bbr.path}: spatch cannot apply {bbr.rule}: {last_line(done.stderr)}")
        after = read(copy)
    if not bbr.is_repaired(after):
        raise BadInput(
            f"{bbr.path} ({bbr.what}) does not match kernel/patches/{bbr.rule}: {bbr.main}() has to call {bbr.shape}, "
            "one after the other; adapt the semantic patch to this tree"
        )
    return after


def run(argv: Sequence[str], cwd: Path, package: str) -> subprocess.CompletedProcess[str]:
    """Run a program, and refuse if it is not installed: `package` has it."""
    if shutil.which(argv[0]) is None:
        raise MissingSupport(f"{argv[0]} is not installed; apt-get install {package}")
    return subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, encoding="utf-8", errors="surrogateescape", check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip


def write(tree: Path, changes: Sequence[Change]) -> None:
    """Replace the tree's files. Each is whole at any moment; on an error or Ctrl-C all get their old content back."""
    todo = [change for change in changes if not change.repaired_already]
    try:
        _replace(tree, [(change.name, change.after) for change in todo])
    except BaseException as error:
        full = why_not_written(error, tree) if isinstance(error, OSError) else None
        with suppress(OSError):
            _replace(tree, [(c.name, c.before) for c in todo if c.before and read(tree / c.name) != c.before])
            for change in todo:
                if not change.before:
                    (tree / change.name).unlink(missing_ok=True)
        if full is not None:
            raise full from None
        if isinstance(error, OSError):
            raise MissingSupport(f"{tree} cannot be changed: {reason(error)}") from None
        raise


def _replace(tree: Path, texts: Sequence[tuple[str, str]]) -> None:
    new: list[tuple[Path, Path]] = []
    try:
        for name, text in texts:
            file = tree / name
            file.parent.mkdir(exist_ok=True)
            handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
            new.append((Path(beside), file))
            with os.fdopen(handle, "wb") as out:
                out.write(text.encode(errors="surrogateescape"))
            if file.exists():
                shutil.copymode(file, beside)
            else:
                Path(beside).chmod(int(MODES.get(file.suffix, "100644"), 8) & 0o777)
        for beside_file, file in new:
            beside_file.replace(file)
    finally:
        for beside_file, _ in new:
            beside_file.unlink(missing_ok=True)


def mail(changes: Sequence[Change], author: str, date: str) -> str:
    """Return a patch in the format of `git format-patch`, for `git am` or for posting. `author` is NAME <ADDRESS>."""
    subject, _, body = (RULES / ROBUST / "message").read_text().partition("\n")
    about = ", ".join(Path(change.name).stem for change in changes)
    return mail_of(changes, f"[PATCH] {about}: {subject}", body.lstrip("\n"), author, date)


def mail_of(changes: Sequence[Change], subject: str, body: str, author: str, date: str) -> str:
    """Return a patch with this subject and message in the format of `git format-patch`."""
    diffs = (f"diff --git a/{change.name} b/{change.name}\n{change.new}{change.diff}" for change in changes)
    return letter(changes, subject, f"{body}---\n", "".join(diffs), author, date)


def letter(changes: Sequence[Change], subject: str, body: str, diffs: str, author: str, date: str) -> str:
    """Return a mail with this subject and text, what is changed in numbers, and then the diffs, if any."""
    added, removed = (sum(change.count(sign) for change in changes) for sign in "+-")
    files = f"{len(changes)} file{'s' if len(changes) > 1 else ''} changed"
    return "".join(
        [
            "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n",
            f"From: {author}\nDate: {date}\nSubject: {subject}\n\n",
            body,
            *(f"{change.stat}\n" for change in changes),
            f" {files}, {added} insertions(+), {removed} deletions(-)\n\n",
            diffs,
            "-- \nbrobust\n\n",
        ]
    )


def author(tree: Path) -> str:
    """Return the author of the patch as NAME <ADDRESS>, from git's configuration."""
    if shutil.which("git") is None:
        raise MissingSupport(
            "--format-patch asks git for your name, but git is not installed; install it, or use --diff, which does "
            "not need it"
        )
    done = subprocess.run(["git", "var", "GIT_AUTHOR_IDENT"], cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode != 0 or ">" not in done.stdout:
        raise BadInput(
            "--format-patch: git does not know your name; set user.name and user.email with `git config --global`"
        )
    return done.stdout.partition(">")[0] + ">"
