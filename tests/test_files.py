"""A file is whole or absent under its name, whichever process is killed, and whatever the directory holds."""

import errno
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from brobust import files
from brobust.errors import BadInput
from brobust.host import cache


def test_a_file_that_could_not_be_written_leaves_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a"
    files.write(file, "before")
    with pytest.raises(ZeroDivisionError), files.replaced(file) as out:
        out.write(b"half")
        raise ZeroDivisionError
    assert file.read_text() == "before"
    assert [*tmp_path.iterdir()] == [file]


def test_a_file_that_cannot_be_made_is_named_as_the_user_knows_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        files.write(tmp_path / "nowhere/run.perfetto-trace", "")
    assert error.value.filename == str(tmp_path / "nowhere/run.perfetto-trace")


def test_a_directory_that_cannot_be_synchronised_takes_files_and_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_files = os.fsync

    def as_on_cifs(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        of_files(descriptor)

    monkeypatch.setattr(os, "fsync", as_on_cifs)
    files.make_directory(tmp_path / "data")
    files.write(tmp_path / "data" / "a", "whole")
    assert (tmp_path / "data" / "a").read_text() == "whole"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("theirs")
    link.symlink_to(victim)
    with pytest.raises(OSError, match="something other than a regular file"):
        files.write(link, "mine")
    assert victim.read_text() == "theirs"
    assert link.is_symlink()


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="something other than a regular file"):
        files.write(tmp_path / "pipe", "mine")


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    files.write(tmp_path / "a", "")
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_a_writer_that_is_killed_leaves_no_half_file(tmp_path: Path) -> None:
    """A process that only writes is killed at any point."""
    program = f"""
import itertools
from pathlib import Path
from typing import Any
from brobust import files
print("ready", flush=True)
for number in itertools.count():
    files.write(Path({str(tmp_path)!r}) / str(number % 3), bytes([number % 256]) * 100_000)
"""
    for number in range(8):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
            while not [*tmp_path.glob("[012]")]:
                assert writer.poll() is None
            time.sleep(number / 300)  # after the first one it is killed while it writes another
            writer.send_signal(signal.SIGKILL)
        for file in tmp_path.glob("[012]"):
            content = file.read_bytes()
            assert len(content) == 100_000 and len(set(content)) == 1
    files.remove_scratch(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} <= {"0", "1", "2"}


@pytest.mark.parametrize("what", ["files.temporary_directory()", "cache.scratch_beside(Path('{place}/kernel'))"])
def test_the_next_process_removes_the_temporary_directory_of_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    what = what.format(place=tmp_path)
    program = f"""
from pathlib import Path
from brobust import files
from brobust.host import cache
with {what} as directory:
    print(directory, flush=True)
    input()
"""
    begin = [sys.executable, "-c", program]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with (
        subprocess.Popen(begin, env=environment, **pipes) as killed,
        subprocess.Popen(begin, env=environment, **pipes) as lives,
    ):
        left, used = (Path(process.stdout.readline().strip()) for process in (killed, lives))
        killed.kill()
        killed.wait()
        for directory in (left, used):
            os.utime(directory, (0, 0))
        just_begun = tmp_path / f"{left.name}-2"  # by a process that has not locked it yet
        just_begun.mkdir()
        files._remove_temporary_of_killed.cache_clear()
        begun = files.temporary_directory() if "files" in what else cache.scratch_beside(tmp_path / "kernel")
        with begun as ours:
            assert sorted(tmp_path.iterdir()) == sorted([just_begun, used, ours])
        lives.communicate("\n")
    assert list(tmp_path.iterdir()) == [just_begun]


@pytest.mark.parametrize(
    "content", [b"a = = b", b"\xff", "a = 1".encode("utf-16"), b"a = " + b"9" * 5000, b"a = " + b"[" * 5000, b"\0"]
)
def test_what_is_not_toml_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(content)
    with pytest.raises(BadInput, match="not a TOML file") as refusal:
        files.read_toml(file)
    assert "\n" not in str(refusal.value)


def test_toml_with_the_mark_that_some_editors_put_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert files.read_toml(tmp_path / "a.toml") == {"a": 1}


def test_a_directory_or_a_loop_of_links_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for file, why in (
        (Path("/dev/zero"), "is a character device"),
        (tmp_path, "is a directory"),
        (loop, "cannot be read"),
    ):
        with pytest.raises(BadInput, match=why):
            files.read_toml(file)


def test_a_limit_on_files_is_said_and_the_file_before_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    program = f"""
import resource
from pathlib import Path
from typing import Any
from brobust import files
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    files.write(Path({str(tmp_path / "a")!r}), bytes(10_000))
except files.WriteFailed as failed:
    print(failed, failed.exit_status)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a cannot be written: no file may have more than 5 kB (ulimit -f); raise this limit" in done.stdout
    assert done.stdout.endswith("then repeat the command 1\n")
    assert (tmp_path / "a").read_text() == "before" and [*tmp_path.iterdir()] == [tmp_path / "a"]


def test_of_a_copy_the_new_file_is_the_one_without_room(tmp_path: Path) -> None:
    failed = files.why_not_written(OSError(errno.ENOSPC, "No space left on device", "/proc/x", None, tmp_path / "new"))
    assert str(failed).startswith(f"{tmp_path / 'new'} cannot be written: no room is left on ")


@pytest.mark.root
def test_a_full_disk_is_named_and_nothing_half_is_left(tmp_path: Path) -> None:
    program = f"""
set -e
mount -t tmpfs -o size=20k tmpfs {tmp_path}
{sys.executable} -c 'from pathlib import Path; from brobust import files
try: files.write(Path("{tmp_path}/a"), bytes(100_000))
except files.WriteFailed as failed: print(failed)'
ls -A {tmp_path}
"""
    done = subprocess.run(["unshare", "--mount", "bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"{tmp_path}/a cannot be written: no room is left on {tmp_path} (tmpfs), where 0 B of 20.48 kB are free; "
        "make room, then repeat the command\n"
    )


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("tar: x: Cannot write: No space left on device\n", "no room is left on "),
        ("cc1: write error: Input/output error", "reports input/output errors"),
        ("x.c:1: error: expected ;", None),
    ],
)
def test_a_program_that_could_not_write_says_so(tmp_path: Path, said: str, words: str | None) -> None:
    failed = files.not_written_by_program(said, tmp_path)
    assert (failed is None) if words is None else (words in str(failed))


def test_what_never_ends_or_waits_is_not_read(tmp_path: Path) -> None:
    pipe, sparse, small = tmp_path / "pipe", tmp_path / "sparse", tmp_path / "small"
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    small.write_text("1234")
    assert files.read(small, 4) == b"1234"
    assert files.read(Path("/proc/self/stat"), 4000)  # its size is said to be 0
    refused = {
        pipe: "is a named pipe; give a regular file", sparse: "give a file of at most 4kB", small: "has 4B",
        Path("/proc/self/smaps"): "does not end after 3B", Path("/dev/null"): "is a character device",
    }  # fmt: skip
    for file, why in refused.items():
        with pytest.raises(BadInput, match=why):
            files.read(file, 4000 if file == sparse else 3)


@pytest.mark.parametrize("deep", ["x = " + "[" * 100_000, "a." * 500_000 + "b = 1", "[" + "'a' . " * 100_000 + "b]"])
def test_toml_that_is_nested_deep_is_refused_at_once(tmp_path: Path, deep: str) -> None:
    (file := tmp_path / "deep.toml").write_text(deep)
    with pytest.raises(BadInput, match="nested more than 20 deep"):
        files.read_toml(file)


def test_a_directory_into_which_nothing_could_be_written_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.check_directory("--out", tmp_path / "new" / "below")
    (tmp_path / "file").touch()
    for name, words in (("file", "is no directory"), ("file/below", "file is no directory"), ("x" * 400, "too long")):
        with pytest.raises(BadInput, match=words):
            files.check_directory("--out", tmp_path / name)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(BadInput, match=f"--out {tmp_path}/new: {tmp_path} cannot be written; give another directory"):
        files.check_directory("--out", tmp_path / "new")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def _file_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


@pytest.mark.parametrize("many", [0, 100])
def test_all_that_a_directory_holds_comes_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("whole")
    (tmp_path / "a/link").symlink_to("b/file")
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(_file_of(descriptor)))
    monkeypatch.setattr(files, "_MANY", many)
    files.sync(tmp_path / "a")
    assert synced == ([tmp_path / "a/b/file", tmp_path / "a/b"] if many else [])


def test_what_is_made_is_on_the_disk_before_it_has_its_name_and_a_mark_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(files, "sync", lambda made: done.append(f"sync {made.name}"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append(str(_file_of(descriptor))))
    rename = Path.rename

    def renamed(file: Path, target: Path) -> Path:
        done.append(f"rename {file.name}")
        return rename(file, target)

    monkeypatch.setattr(Path, "rename", renamed)
    (tmp_path / "made").mkdir()
    cache.put_in_place(tmp_path / "made", tmp_path / "kept")
    (tmp_path / "kept/mark").touch()
    files.remove_mark(tmp_path / "kept/mark")
    files.remove_mark(tmp_path / "kept/mark")  # that it is gone is what was wanted
    assert done == ["sync made", "rename made", str(tmp_path / "kept")]


def test_a_file_that_was_made_in_the_cache_is_on_the_disk_when_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(files, "sync", synced.append)
    for name in ("made", "not made"):
        with cache.scratch_beside(tmp_path / name) as scratch:
            (scratch / "image").touch()
            if name == "made":
                (scratch / "image").rename(tmp_path / name)
    assert synced == [tmp_path / "made"]


def test_a_directory_takes_the_place_of_another_which_is_left_in_its_own(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    cache.put_in_place(tmp_path / "new", tmp_path / "old")
    assert [(tmp_path / name / "file").read_text() for name in ("old", "new")] == ["new", "old"]
