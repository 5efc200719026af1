"""Plan what the series `kept` of plain patches changes in a kernel tree, and print it as a series to post.

kernel/patches/kept has the patches. Each of their changes replaces one line that every tree has, so one file serves
Linux 6.1 and 7.3; what is printed has the tree's own lines around each change. A name begins with the number of the
patch in the series; several files may have one number, such as those for kernels before and since Linux 7, and
NUMBER-message is the message; 0-message is the cover letter's. Virtual kernels are built from the same files
(kernels/our_files.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from brobust.errors import BadInput
from brobust.files import temporary_directory
from brobust.kernel_patch import apply
from brobust.kernel_patch.apply import Change
from brobust.kernel_patch.repairs import KEPT, RULES, read
from brobust.kernels import our_files
from brobust.kernels.sources import version_of
from brobust.kernels.tree import is_for, misfits

# What the files are that the series changes, and what it does there, in sentences.
WHAT = {
    "Documentation/networking/ip-sysctl.rst": ("the documentation of sysctls",),
    "include/linux/tcp.h": ("a socket's state", "8 bytes: the lag, and a cap that is learned from losses"),
    "include/net/netns/ipv4.h": ("a network namespace's state",),
    "include/net/tcp.h": ("what TCP's files share",),
    "include/uapi/linux/pkt_sched.h": ("fq's attributes", "new TCA_FQ_PACING_LAG, us; 0 at first: off"),
    "net/ipv4/sysctl_net_ipv4.c": ("sysctls", "new net.ipv4.tcp_pacing_lag_us; 0 at first: off"),
    "net/ipv4/tcp_bbr.c": ("BBR",),
    "net/ipv4/tcp_input.c": (
        "losses",
        "new tcp_pacing_count(): losses next to each other lower the cap on what is in flight while it catches up",
    ),
    "net/ipv4/tcp_output.c": (
        "pacing",
        "new tcp_pacing_resumes(): if only pacing kept the data and the socket is looked at too late, that is a lag",
        "tcp_update_skb_after_send(): gaps are shorter, a 16th at least, until the lag is made up for",
    ),
    "net/sched/sch_fq.c": ("fq", "new fq_flow_catch_up(): the same for flows without departure times of their own"),
}
# The file that tells whether a tree has the whole series.
MARK = "net/ipv4/sysctl_net_ipv4.c"


@dataclass(frozen=True)
class Patch:
    """One patch of a series, as it is for a tree."""

    subject: str
    message: str
    changes: tuple[Change, ...]


def plan(tree: Path) -> list[Patch]:
    """Return the patches that a tree still lacks. This itself changes nothing."""
    if not tree.is_dir():
        raise BadInput(f"{tree} is not a directory; give an unpacked Linux source")
    found = []
    now: dict[str, str] = {}
    for number, files in groupby(our_files.series(KEPT).items(), key=lambda file: file[0].partition("-")[0]):
        before = dict(now)
        for _, path in files:
            if is_for(text := path.read_text(), tree):
                now |= _patched(tree, path, text, now)
        was = {name: before.get(name, _read(tree, name)) for name in now}
        changes = [_change(name, was[name], now[name]) for name in sorted(now) if now[name] != was[name]]
        if changes:
            found.append(Patch(*_message(number), tuple(changes)))
    return found


def together(tree: Path, patches: Sequence[Patch]) -> list[Change]:
    """Return what the patches change together, each file once; of a tree that has them all, the file that tells so."""
    return _together(patches) or [_change(MARK, read(tree / MARK), read(tree / MARK))]


def marks_last(changes: Sequence[Change]) -> list[Change]:
    """Return the changes such that those come last by which `plan` tells that a tree has a patch: a tree in which only
    some of the files were replaced, because the command was killed, is refused then, and never taken for repaired."""
    texts = "".join(path.read_text() for path in our_files.series(KEPT).values())
    marks = re.findall(r"^Left out where (\S+) has: ", texts, re.MULTILINE)
    return sorted(changes, key=lambda change: change.name in marks)


def mails(patches: Sequence[Patch], author: str, date: str) -> str:
    """Return the patches in the format of `git format-patch`, one after the other, for `git am` or for posting."""
    return "".join(
        apply.mail_of(patch.changes, f"[PATCH {number}/{len(patches)}] {patch.subject}", patch.message, author, date)
        for number, patch in enumerate(patches, start=1)
    )


def cover_letter(patches: Sequence[Patch], author: str, date: str) -> str:
    """Return what goes before the patches when they are posted, as `git format-patch --cover-letter` writes it. It has
    no patch in it, at which `git am` stops unless it has the option --empty=drop."""
    subject, message = _message("0")
    name, subjects = author.partition(" <")[0], "".join(f"  {patch.subject}\n" for patch in patches)
    body = f"{message}\n{name} ({len(patches)}):\n{subjects}\n"
    return apply.letter(_together(patches), f"[PATCH 0/{len(patches)}] {subject}", body, "", author, date)


def _message(number: str) -> tuple[str, str]:
    """Return the subject and the text of a message of the series."""
    subject, _, message = (RULES / KEPT / f"{number}-message").read_text().partition("\n")
    return subject, message.lstrip("\n")


def _together(patches: Sequence[Patch]) -> list[Change]:
    whole: dict[str, Change] = {}
    for change in (change for patch in patches for change in patch.changes):
        before = whole[change.name].before if change.name in whole else change.before
        whole[change.name] = replace(change, before=before)
    return list(whole.values())


def _change(name: str, before: str, after: str) -> Change:
    what, *explanation = WHAT.get(name, (Path(name).name,))
    return Change(name, what, tuple(explanation), before, after)


def _read(tree: Path, name: str) -> str:
    """Return a file's text; empty if it is not there."""
    return read(tree / name) if (tree / name).is_file() else ""


def _patched(tree: Path, patch: Path, text: str, now: dict[str, str]) -> dict[str, str]:
    """Return the files that a patch changes, as they are afterwards; `now`: those that an earlier one has changed."""
    names = re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE)
    with temporary_directory() as scratch:
        for name in names:
            there = scratch / name
            there.parent.mkdir(parents=True, exist_ok=True)
            if content := now.get(name, _read(tree, name)):
                there.write_bytes(content.encode(errors="surrogateescape"))
        command = ["patch", "-p1", "-F0", "--batch", "--forward", "--no-backup-if-mismatch", "--reject-file=-"]
        done = apply.run([*command, "-i", str(patch.resolve())], scratch, "patch")
        if done.returncode != 0:
            raise BadInput(
                f"{tree}: kernel/patches/kept/{patch.name} does not apply to Linux {version_of(tree)}: "
                f"{misfits(done.stdout + done.stderr)}; adapt the patch to this tree"
            )
        return {name: read(scratch / name) for name in names}
