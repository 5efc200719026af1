"""The parts that every record on the host needs: owners, locks, directories, guardians."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from brobust.errors import MissingSupport
from brobust.host import children, locks
from brobust.host.owner import Owner
from conftest import eventually


@pytest.fixture
def child() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start Python programs that talk by pipes, and end them."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_an_owner_is_known_by_its_start_too(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Owner.current()
    assert me.lives and Owner.parse(str(me)) == me
    assert not Owner(me.pid, me.started + 1).lives, "a later process of the same id"
    assert not Owner.of(4_194_305).lives, "an id that no process has"
    assert [Owner.parse(text) for text in ("", "12", "12-", "x-1", "lock", "-1-5")] == [None] * 6


def test_an_owner_lives_on_when_the_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil computes start times from the boot time by the wall clock, which changes when the clock is set."""
    me = Owner.current()
    booted = psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted + 5)
    assert me.lives and Owner.current() == me


def test_only_one_at_a_time_holds_a_lock_and_a_refusal_names_it(
    tmp_path: Path, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    file = tmp_path / "lock"
    holder = child(
        f"from brobust.host import locks\nfrom pathlib import Path\n"
        f"with locks.locked(Path({str(file)!r})): print('held', flush=True); input()"
    )
    assert said(holder) == "held"
    with pytest.raises(MissingSupport, match=f"locked by process {holder.pid}"), locks.locked(file, seconds=0):
        pass
    holder.kill()
    with locks.locked(file):
        assert file.read_text() == str(os.getpid())


def test_a_lock_whose_file_was_removed_by_who_has_it_is_no_lock(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    with locks.locked(file):
        file.unlink()
        with locks.locked(file, seconds=0), pytest.raises(locks.Locked, match=f"process {os.getpid()}"):
            locks.locked(file, seconds=0).__enter__()


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "created")
    with pytest.raises(MissingSupport, match="cannot be locked"), locks.locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "created").exists()


def test_a_directory_where_others_may_write_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "own"
    assert locks.private_directory(own) == own and own.stat().st_mode & 0o777 == 0o755
    own.chmod(0o777)
    with pytest.raises(MissingSupport, match="written by others"):
        locks.private_directory(own)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(MissingSupport, match="is not a directory"):
            locks.private_directory(tmp_path / name)


@pytest.mark.root
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(MissingSupport, match="belongs to user 65534"):
        locks.private_directory(tmp_path)


GUARDED = """
import sys, time
from brobust.host.guardian import Guardian
guardian = Guardian.start({module!r}, *{arguments!r})
print(guardian.process.pid, flush=True)
for line in sys.stdin:
    if line == "alive\\n":
        guardian.say_alive()
    if line == "done\\n":
        guardian.dismiss()
        print("dismissed", flush=True)
"""


@pytest.fixture
def guarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: Callable[[str], subprocess.Popen[str]]
) -> Callable[[float | None], tuple[subprocess.Popen[str], Path]]:
    """Start a process with a guardian that records how the process ended."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "guarding.py").write_text(
        "import sys\nfrom pathlib import Path\nfrom brobust.host import guardian\n"
        "silence = float(sys.argv[2]) or None\nPath(sys.argv[1]).write_text(guardian.wait_for_end(silence))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))

    def start(silence: float | None) -> tuple[subprocess.Popen[str], Path]:
        end = tmp_path / "end"
        process = child(GUARDED.format(module="guarding", arguments=(str(end), str(silence or 0))))
        assert said(process).isdigit()
        return process, end

    return start


Guarded = Callable[[float | None], tuple[subprocess.Popen[str], Path]]


def test_a_guardian_that_is_dismissed_takes_nothing_back(guarded: Guarded) -> None:
    process, end = guarded(None)
    process.communicate("alive\ndone\n")
    assert end.read_text() == "dismissed"


def test_a_guardian_is_there_when_its_process_is_killed(guarded: Guarded) -> None:
    process, end = guarded(None)
    process.send_signal(signal.SIGKILL)
    assert eventually(lambda: end.exists() and end.read_text() == "ended")


def test_a_guardian_ends_a_process_that_was_stopped(guarded: Guarded) -> None:
    process, end = guarded(1.0)
    process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: end.exists() and end.read_text() == "stuck")
    assert process.wait() == -signal.SIGKILL


def test_a_guardian_runs_nothing_of_the_directory_that_the_user_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, child: Callable[[str], subprocess.Popen[str]]
) -> None:
    (tmp_path / "brobust").mkdir()
    for name in ("brobust/__init__.py", "brobust/loading.py", "signal.py", "select.py"):
        (tmp_path / name).write_text("open('hijacked', 'w')\nprint('HIJACKED')\n")
    code = GUARDED.format(module="brobust.cc.loader", arguments=("brb_none", "1-1"))
    code = code.replace("guardian = ", f"import os; os.chdir({str(tmp_path)!r}); guardian = ")
    child(code).communicate()
    assert not (tmp_path / "hijacked").exists()


def test_a_child_ends_with_its_parent_also_if_that_ended_before_it_began(
    child: Callable[[str], subprocess.Popen[str]],
) -> None:
    parent = child(
        "import subprocess, time\nfrom brobust.host import children\n"
        "print(subprocess.Popen(children.ends_with_us(['sleep', '1000'])).pid, flush=True); time.sleep(1000)"
    )
    pid = int(said(parent))
    assert eventually(lambda: psutil.Process(pid).name() == "sleep")
    parent.kill()
    parent.wait()
    assert eventually(lambda: not Owner.of(pid).lives)
    # As if the parent were killed between fork and prctl: the process that starts the command is not the expected one.
    orphan = [str(os.getpid() + 1) if word == str(os.getpid()) else word for word in children.ends_with_us(["true"])]
    assert subprocess.run(orphan, check=False).returncode != 0
