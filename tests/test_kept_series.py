"""The series `kept` for kernel trees: it applies, once, and what it prints can be posted.

Each of its changes replaces one line, so skeletons stand for the kernels' files that have those lines only. What the
rule does is tested in virtual time (test_virtual.py), since every virtual kernel has it.
"""

import contextlib
import csv
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brobust.backends import virtual
from brobust.errors import BadInput
from brobust.kernel_patch import apply, series
from brobust.kernels import our_files
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Scenario
from conftest import Brobust

REPOSITORY = Path(__file__).parents[1]
UNTIL_6, SINCE_7 = "until-6", "since-7"


@pytest.fixture(params=[UNTIL_6, SINCE_7])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Make a tree whose files have the lines that the series looks for, as they are before Linux 7 or since."""
    return _skeleton(tmp_path / "linux", request.param)


def _skeleton(root: Path, generation: str) -> Path:
    (root / "net").mkdir(parents=True)
    (root / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 117\nEXTRAVERSION =\n")
    other = SINCE_7 if generation == UNTIL_6 else UNTIL_6
    for name, path in our_files.series("kept").items():
        if other in name:
            continue
        text = path.read_text()
        for file, hunks in re.findall(r"^--- a/(\S+)\n\+\+\+ .*\n((?:[@ +\\-].*\n|\n)+?)(?=--- |\Z)", text, re.M):
            lines = [line[1:] for line in hunks.splitlines() if line[:1] in ("-", " ", "")]
            there = root / file
            there.parent.mkdir(parents=True, exist_ok=True)
            with there.open("a") as out:
                out.write("".join(f"{line}\n" for line in lines) + "/* elsewhere */\n")
    if generation == SINCE_7:  # what tells the generations apart
        for file, mark in (
            ("include/net/tcp.h", "static inline void tcp_mstamp_refresh_inline(struct tcp_sock *tp)\n"),
            ("tools/testing/selftests/net/Makefile", "# end of TEST_GEN_PROGS\n"),
        ):
            with (root / file).open("a") as out:
                out.write(mark)
    return root


def _content(tree: Path) -> dict[str, str]:
    return {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}


def test_it_applies_once_and_check_changes_nothing(tree: Path, brobust: Brobust) -> None:
    before = _content(tree)
    checked = brobust("kernel", "patch", str(tree), "--repair", "kept", "--check")
    assert (checked.returncode, _content(tree)) == (0, before)
    assert "net/sched/sch_fq.c (fq): the repair applies" in checked.stdout
    done = brobust("kernel", "patch", str(tree), "--repair", "kept")
    assert done.returncode == 0, done.stderr
    after = _content(tree)
    assert after["include/net/netns/ipv4.h"].count("sysctl_tcp_pacing_lag_us") == 1
    hooked = [name for name, text in after.items() if "tcp_pacing_resumes(tp, val);" in text]
    assert hooked == ["include/net/tcp.h" if "inline" in before["include/net/tcp.h"] else "net/ipv4/tcp_output.c"]
    again = brobust("kernel", "patch", str(tree), "--repair", "kept")
    assert "already repaired" in again.stdout
    assert _content(tree) == after


def test_a_virtual_kernel_is_built_from_the_same_files() -> None:
    names = our_files.series("kept")
    applied = {name: path for name, path in our_files.of_virtual_kernels().items() if our_files.KEPT in name}
    in_kernel = {name for name in names if not name.startswith(("1-documentation", "4-"))}
    assert applied == {f"patches/{our_files.KEPT}{name}": names[name] for name in in_kernel}
    first = min(name for name in our_files.of_virtual_kernels() if name.startswith("patches/"))
    assert first in applied


def test_a_stock_kernel_lacks_the_series_only_and_cannot_be_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "virtual-6.12-stock"
    stock, usual = our_files.of_virtual_kernels(virtual_kernels.kind(name)), our_files.of_virtual_kernels()
    assert {file for file in usual if file not in stock} == {file for file in usual if our_files.KEPT in file}
    assert stock.items() <= usual.items()
    kernel = virtual_kernels.VirtualKernel(
        name, virtual_kernels.cache_root(), "6.12.117", 250, "", frozenset({"bbr"}), "", "", "", 0, {}
    )
    monkeypatch.setattr(virtual_kernels, "find_again", lambda _: kernel)
    flows = {"kernel": name, "flows": [{"cc": "bbr"}]}
    virtual.check([Scenario.model_validate(flows)])
    with pytest.raises(
        BadInput, match=r"^pacing: 'kept' needs the series kept, which .* without; give kernel virtual-6\.12$"
    ):
        virtual.check([Scenario.model_validate({**flows, "pacing": "kept"})])


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("cover", [False, True])
def test_git_takes_the_series_and_it_makes_the_same_tree(tree: Path, tmp_path: Path, cover: bool) -> None:
    def git(*arguments: str) -> str:
        settings = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *settings, *arguments], cwd=tree, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "tree")
    patches = series.plan(tree)
    author = ("A <a@example.org>", "Mon, 23 Nov 2026 00:00:00 +0000")
    letter = series.cover_letter(patches, *author) if cover else ""
    (tmp_path / "mbox").write_text(letter + series.mails(patches, *author))
    git("am", "-q", *(["--empty=drop"] if cover else []), str(tmp_path / "mbox"))
    subjects = git("log", "--format=%s", "--reverse").splitlines()[1:]
    assert subjects == [patch.subject for patch in patches]
    assert all(re.match(r"(tcp|net_sched: sch_fq|tcp_bbr|selftests: net): ", subject) for subject in subjects)
    assert series.plan(tree) == []
    for change in series.together(tree, patches):
        assert (tree / change.name).read_text() == change.after


def test_a_cover_letter_says_what_follows_and_its_table_is_what_was_measured(tree: Path, brobust: Brobust) -> None:
    whole = series.plan(tree)
    letter = series.cover_letter(whole, "A <a@example.org>", "Mon, 23 Nov 2026 00:00:00 +0000")
    assert f"Subject: [PATCH 0/{len(whole)}] tcp, sch_fq: " in letter
    listed = "".join(f"  {patch.subject}\n" for patch in whole)
    changes = series.together(tree, whole)
    added = sum(change.count("+") for change in changes)
    assert f"\nA ({len(whole)}):\n{listed}\n {changes[0].name} | " in letter
    assert f" {len(changes)} files changed, {added} insertions(+), " in letter
    assert "diff --git" not in letter
    assert max(map(len, (our_files.PATCHES / "kept/0-message").read_text().splitlines())) <= 74

    told = re.findall(r"^    bbr(, this series)? +([0-9]+) +([0-9]+) +([0-9.]+) +([0-9.]+) +([0-9]+)$", letter, re.M)
    with (REPOSITORY / "docs/data/repair-newest/cells.csv").open() as sheet:
        cells = [row for row in csv.DictReader(sheet) if row["control"] in ("bbr", "bbr/kept")]
    columns = ("0.8 of CUBIC", "0.6", "median", "worst", "at most 1 % resent")
    for loss, rows in (("none", told[:2]), ("1.0%", told[2:])):
        of_loss = [row for row in cells if row["random loss"] == loss]
        assert [row[1:] for row in rows] == [tuple(row[column] for column in columns) for row in of_loss]

    refused = brobust("kernel", "patch", str(tree), "--repair", "kept", "--cover-letter")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("brobust: --cover-letter goes before a series")


def test_a_tree_without_one_of_the_lines_is_refused_and_stays_as_it_was(tree: Path, brobust: Brobust) -> None:
    file = tree / "net/sched/sch_fq.c"
    file.write_text(file.read_text().replace("\tq->stat_throttled++;\n", ""))
    before = _content(tree)
    done = brobust("kernel", "patch", str(tree), "--repair", "kept")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "kernel/patches/kept/2-fq.patch does not apply to Linux 6.12.117: net/sched/sch_fq.c (hunk" in line
    assert _content(tree) == before


def test_a_failure_removes_the_files_that_are_new(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _content(tree)
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        done = replace(self, target)
        if target.name == "pacing_lag.c":
            monkeypatch.setattr(Path, "replace", replace)
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        apply.write(tree, series.together(tree, series.plan(tree)))
    assert _content(tree) == before


class _Killed(BaseException):
    """As if the process were killed: what restores the files is not done either."""


def test_a_tree_of_which_some_files_were_repaired_is_refused_or_completed_and_never_taken_for_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _skeleton(tmp_path / "whole", UNTIL_6)
    apply.write(whole, series.together(whole, series.plan(whole)))
    replace, refused = Path.replace, 0
    for survived in range(0, 100, 2):
        tree = _skeleton(tmp_path / str(survived), UNTIL_6)
        changes = series.marks_last(series.together(tree, series.plan(tree)))
        left = iter(range(survived))

        def killed(file: Path, target: Path, left: Iterator[int] = left) -> Path:
            if next(left, None) is None:
                raise _Killed
            return replace(file, target)

        with monkeypatch.context() as patched, contextlib.suppress(_Killed):
            patched.setattr(Path, "replace", killed)
            apply.write(tree, changes)
        try:
            apply.write(tree, series.together(tree, series.plan(tree)))
        except BadInput as refusal:
            assert "does not apply" in str(refusal)
            refused += 1
        else:
            assert _content(tree) == _content(whole), survived
        if survived > len(changes):
            break
    assert refused > 3


def test_what_is_no_tree_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a directory"):
        series.plan(tmp_path / "none")


@pytest.mark.compiles
@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed")
def test_checkpatch_has_nothing_to_say(linux_source: Callable[[str], Path]) -> None:
    """Run the tree's own scripts/checkpatch.pl --strict on the series for a real tree."""
    tree = linux_source("6.12")
    patches = series.plan(tree)
    assert len(patches) >= 3
    for number, patch in enumerate(patches):
        (tree / "patch").write_text(series.mails([patch], "A <a@example.org>", "Mon, 23 Nov 2026 00:00:00 +0000"))
        # `git am -s` signs off. checkpatch asks about the maintainers of each new file; its directory has some.
        options = ["--strict", "--no-tree", "--no-signoff", "--ignore", "FILE_PATH_CHANGES"]
        check = ["perl", "scripts/checkpatch.pl", *options, "patch"]
        done = subprocess.run(check, cwd=tree, capture_output=True, text=True, check=False)
        assert "total: 0 errors, 0 warnings, 0 checks" in done.stdout, f"{number}: {done.stdout}"
