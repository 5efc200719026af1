"""Nothing is left on the host, whichever process dies. crates/host has the tests of each step."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from brobust.backends import doctor
from brobust.errors import BadInput, MissingSupport
from brobust.host import network
from brobust.host.programs import host_program
from brobust.host.session import Session
from conftest import Brobust, eventually, kill_with_guardian, left_behind

# Sessions are in a directory of the test's own, but what was left of trials of congestion controls is also listed, and
# the host has one place for these (test_cc.py).
pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BROBUST_RUNTIME", str(tmp_path / "run"))
    return tmp_path / "run"


def namespaces() -> set[str]:
    return {entry.name for entry in Path("/run/netns").iterdir()}


def journal(session: Session) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((session.directory / "session.json").read_text())
    return entry


def is_empty(runtime: Path) -> bool:
    return [entry.name for entry in runtime.iterdir()] == ["lock"]


def test_a_session_leaves_no_directory(runtime: Path) -> None:
    with Session.start() as session:
        assert session.directory.parent == runtime and journal(session)["namespace"] == ""
        assert left_behind() == []  # its owner lives
        with pytest.raises(MissingSupport, match=rf"process {os.getpid()}\) is at work"):
            Session.start()
    assert is_empty(runtime)


def test_clean_finds_nothing_on_a_clean_host(brobust: Brobust) -> None:
    done = brobust("doctor", "--clean", "--dry-run")
    assert (done.returncode, done.stdout) == (0, "nothing left behind\n")


def test_doctor_calls_nothing_missing_that_it_cannot_try_beside_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor, "_CHECKS", {"tap and bridge": doctor._wire})
    with Session.start():
        (result,) = doctor.all_checks()
    assert result.status == "limited" and result.remedy == "wait until it has ended"
    assert result.detail.startswith(f"not tried: another brobust (process {os.getpid()}) is at work"), result.detail


def started(code: str) -> subprocess.Popen[str]:
    """Start a process with a session, which runs this code and then waits."""
    code = f"from brobust.host import network, session\nown = session.Session.start()\n{code}\n"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


MAKE_NAMESPACE = "print(network.create(own, ['tap-a', 'tap-b']), flush=True)"
STAY = "import time; time.sleep(600)"


@pytest.mark.root
def test_what_a_killed_process_has_made_its_guardian_removes(runtime: Path) -> None:
    with started(f"{MAKE_NAMESPACE}\n{STAY}") as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in namespaces(), name or process.communicate()
        process.kill()
        assert eventually(lambda: name not in namespaces() and is_empty(runtime))


@pytest.mark.root
def test_what_a_killed_process_and_its_killed_guardian_leave_the_next_start_removes() -> None:
    with started(f"{MAKE_NAMESPACE}\n{STAY}") as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        assert name in namespaces(), name or process.communicate()
        kill_with_guardian(process)
    assert [one.split()[0] for one in left_behind()] == ["namespace", "directory"]
    with Session.start():
        assert name not in namespaces()
    assert left_behind() == []


@pytest.mark.root
def test_a_session_takes_its_namespace_along() -> None:
    with Session.start() as session:
        name = network.create(session, ["tap-a"])
        assert session.namespace == name
        links = subprocess.run(["ip", "-n", name, "link"], capture_output=True, text=True, check=True).stdout
        assert "tap-a" in links
    assert name not in namespaces()


@pytest.mark.root
def test_a_runtime_directory_of_somebody_else_is_refused(runtime: Path) -> None:
    runtime.mkdir()
    os.chown(runtime, 65534, 65534)
    with pytest.raises(MissingSupport, match="belongs to user 65534"):
        Session.start()
    refused = subprocess.run([host_program(), "doctor", "--clean"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "belongs to user 65534" in refused.stderr
    os.chown(runtime, 0, 0)
    runtime.chmod(0o777)
    with pytest.raises(MissingSupport, match="written by others"):
        Session.start()


def test_commands_that_start_at_the_same_moment_do_not_take_each_other_for_dead(runtime: Path) -> None:
    code = (
        "from brobust.host import session\nprint(flush=True); input()\n"
        "for _ in range(2):\n"
        "    with session.Session.start(beside_others=True) as own: own.hold_cpus([])\n"
    )
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    for command in commands:
        assert command.stdout is not None and command.stdout.readline() == "\n"
    for command in commands:
        assert command.stdin is not None
        command.stdin.write("\n")
        command.stdin.flush()
    assert [command.communicate()[1] for command in commands] == [""] * len(commands)
    assert is_empty(runtime)


def test_what_cannot_be_undone_is_said_beside_what_went_wrong(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Session) -> None:
        raise MissingSupport("not undone: cgroup 7")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "end", refuse)
        with pytest.raises(MissingSupport, match="no such thread; not undone: cgroup 7"), Session.start() as session:
            raise BadInput("no such thread")
    session.end()
    assert is_empty(runtime)
