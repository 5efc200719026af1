"""Locks, directories that nobody else may write, and children that end with us. crates/host has what undoes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from brobust.errors import MissingSupport
from brobust.host import children, locks
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


@pytest.mark.root
def test_root_executes_nothing_that_somebody_could_exchange_with_a_directory_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, shared = tmp_path / "home", tmp_path / "shared"
    cache = home / ".cache/brobust"
    (cache / "virtual").mkdir(parents=True)
    monkeypatch.delenv("SUDO_UID", raising=False)
    locks.refuse_foreign_to_root(cache / "virtual", cache)
    os.chown(home, 65534, 65534)
    with pytest.raises(MissingSupport, match=r"/home belongs to user 65534, who could exchange .*/home/.cache/brobust"):
        locks.refuse_foreign_to_root(cache / "virtual", cache)
    locks.refuse_foreign_to_root(cache / "virtual", cache, with_way=False)
    with monkeypatch.context() as container:
        container.setenv("HOME", str(home))
        locks.refuse_foreign_to_root(cache / "virtual", cache)
    monkeypatch.setenv("SUDO_UID", "65534")
    locks.refuse_foreign_to_root(cache / "virtual", cache)
    home.chmod(0o775)
    with pytest.raises(MissingSupport, match=r"/home may be written by others .*`chmod go-w .*/home`"):
        locks.refuse_foreign_to_root(cache / "virtual", cache)
    home.chmod(0o1777)
    locks.refuse_foreign_to_root(cache / "virtual", cache)
    # A link leads over all that it is made of.
    shared.mkdir()
    (shared / "link").symlink_to(home / ".cache")
    linked = shared / "link/brobust"
    locks.refuse_foreign_to_root(linked / "virtual", linked)
    home.chmod(0o777)
    with pytest.raises(MissingSupport, match=r"/home may be written by others"):
        locks.refuse_foreign_to_root(linked / "virtual", linked)
    home.chmod(0o755)
    os.lchown(shared / "link", 65533, 65533)
    with pytest.raises(MissingSupport, match=r"/link belongs to user 65533"):
        locks.refuse_foreign_to_root(linked / "virtual", linked)


@pytest.mark.root
def test_root_of_a_user_namespace_executes_what_the_hosts_root_has_installed() -> None:
    """A wheel's kernels in /usr belong to a user without a name there: nobody was told to remove them."""
    code = """
import ctypes, os
from pathlib import Path
from brobust.host import locks
libc = ctypes.CDLL(None)
os.setuid(65533)
libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else root has the files of /proc/self
assert libc.unshare(0x10000000) == 0  # CLONE_NEWUSER
Path("/proc/self/uid_map").write_text("0 65533 1")
assert os.geteuid() == 0 and Path("/usr").stat().st_uid == 65534
locks.refuse_foreign_to_root(Path("/usr/bin"), Path("/usr/bin"), with_way=False)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.root
def test_what_the_command_makes_as_root_is_roots_alone_whatever_the_umask(tmp_path: Path) -> None:
    code = (
        "import contextlib, sys\nfrom pathlib import Path\nfrom brobust import __main__, files\n"
        "from brobust.host import locks\n"
        "made, sys.argv[1:] = Path(sys.argv[1]), ['docs', '--help']\n"
        "with contextlib.suppress(SystemExit): __main__.main()\n"
        "files.make_directory(made / 'kernels')\n"
        "locks.refuse_foreign_to_root(made / 'kernels', made)\n"
        "(made / 'kernels' / 'linux').touch()\n"
        "print(oct((made / 'kernels' / 'linux').stat().st_mode & 0o777))"
    )
    for umask, mode in ((0o000, "0o644"), (0o002, "0o644"), (0o077, "0o600")):
        command = [sys.executable, "-c", code, str(tmp_path / f"cache-{umask}")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, umask=umask)
        assert done.stdout.splitlines()[-1] == mode


def test_a_child_ends_with_its_parent_also_if_that_ended_before_it_began(
    child: Callable[[str], subprocess.Popen[str]],
) -> None:
    parent = child(
        "import subprocess, time\nfrom brobust.host import children\n"
        "print(subprocess.Popen(children.killed_with_parent(['sleep', '1000'])).pid, flush=True); time.sleep(1000)"
    )
    pid = int(said(parent))
    assert eventually(lambda: psutil.Process(pid).name() == "sleep")
    parent.kill()
    parent.wait()
    assert eventually(lambda: not _runs(pid))
    # As if the parent were killed between fork and prctl: the process that starts the command is not the expected one.
    command = children.killed_with_parent(["true"])
    orphan = [str(os.getpid() + 1) if word == str(os.getpid()) else word for word in command]
    assert subprocess.run(orphan, check=False).returncode != 0


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
