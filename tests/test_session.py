"""Nothing is left on the host, whoever died."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from brobust.errors import MissingSupport
from brobust.host import network, session


def namespaces() -> set[str]:
    return {entry.name for entry in Path("/run/netns").iterdir()}


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session, "ROOT", tmp_path / "run")
    return tmp_path / "run"


def test_a_session_leaves_no_directory(runtime: Path) -> None:
    with session.Session.start() as own:
        assert own.directory.is_dir()
        assert session.leftovers() == []  # its owner lives
    assert list(runtime.iterdir()) == []


@pytest.mark.root
def test_a_killed_process_leaves_a_namespace_that_the_next_one_removes(runtime: Path) -> None:
    code = (
        f"from pathlib import Path\nfrom brobust.host import network, session\nsession.ROOT = Path({str(runtime)!r})\n"
        "own = session.Session.start(); print(network.create(own, ['tap-a', 'tap-b']), flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as dead:
        assert dead.stdout is not None
        name = dead.stdout.readline().strip()
        assert name in namespaces()
        dead.send_signal(signal.SIGKILL)
    kinds = [leftover.kind for leftover in session.leftovers()]
    assert kinds == ["namespace", "directory"]
    session.clean()
    assert name not in namespaces()
    assert session.leftovers() == []


@pytest.mark.root
def test_a_session_takes_its_namespace_along(runtime: Path) -> None:
    with session.Session.start() as own:
        name = network.create(own, ["tap-a"])
        links = subprocess.run(["ip", "-n", name, "link"], capture_output=True, text=True, check=True).stdout
        assert "tap-a" in links
    assert name not in namespaces()


def test_a_sysctl_is_held_and_put_back_also_after_a_kill(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SYSCTLS", tmp_path)
    knob = tmp_path / "knob"
    knob.write_text("950000\n")
    with session.Session.start() as own:
        with own.sysctl("knob", "-1"):
            assert knob.read_text() == "-1"
            entry = (own.directory / "session.json").read_text()
        assert knob.read_text() == "950000"
    # As it stood when the process was killed: under an id that no process has.
    dead = runtime / "4194305"
    dead.mkdir(parents=True)
    (dead / "session.json").write_text(entry)
    knob.write_text("-1")
    assert [str(leftover) for leftover in session.clean()] == ["sysctl knob=950000", f"directory {dead}"]
    assert knob.read_text() == "950000"


def test_two_sessions_at_once_are_refused(runtime: Path) -> None:
    with session.Session.start(), pytest.raises(MissingSupport, match=rf"process {os.getpid()}\) is at work"):
        session.Session.start()


def test_a_reused_process_id_is_not_mistaken_for_the_owner(runtime: Path) -> None:
    directory = runtime / str(os.getpid())
    directory.mkdir(parents=True)
    (directory / "session.json").write_text('{"owner_started": 1.0, "namespace": "", "processes": [1], "sysctls": {}}')
    # Process 1 lives but is no QEMU of this directory: only the directory is a leftover.
    assert [str(leftover) for leftover in session.leftovers()] == [f"directory {directory}"]
