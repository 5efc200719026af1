"""Nothing is left on the host, whichever process dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.host import cgroups, network, session
from brobust.host.owner import Owner
from brobust.host.session import Session
from conftest import eventually

NOBODY = Owner(4_194_305, 1)
"""An owner whose id no process has."""


def namespaces() -> set[str]:
    return {entry.name for entry in Path("/run/netns").iterdir()}


class NoGuardian:
    """A guardian that does nothing, for tests that kill no process: a real one takes a second to start."""

    start = classmethod(lambda cls, *_: cls())

    def dismiss(self) -> None: ...


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(session, "Guardian", NoGuardian)
    monkeypatch.setattr(session, "ROOT", tmp_path / "run")
    monkeypatch.setattr(session, "HOST", tmp_path / "host")
    return tmp_path / "run"


@pytest.fixture
def knob(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a file that serves as a sysctl."""
    monkeypatch.setattr(session, "SYSCTLS", tmp_path)
    (tmp_path / "knob").write_text("950000\n")
    return tmp_path / "knob"


def entry_of(own: Session) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((own.directory / "session.json").read_text())
    return entry


def left_by(owner: Owner, entry: dict[str, Any]) -> Path:
    """Make a session's directory as a killed process leaves it whose guardian was killed, too."""
    empty: dict[str, Any] = {
        "namespace": "", "processes": [], "sysctls": [], "threads": [], "groups": [], "cpus": [], "roaming": 0
    }  # fmt: skip
    directory = session.ROOT / str(owner)
    directory.mkdir(parents=True)
    (directory / "session.json").write_text(json.dumps(empty | entry))
    return directory


def test_a_session_leaves_no_directory(runtime: Path) -> None:
    with Session.start() as own:
        assert own.directory.is_dir()
        assert session.leftovers() == []  # its owner lives
    assert [entry.name for entry in runtime.iterdir()] == ["lock"]


@pytest.fixture
def killed_with_a_namespace(runtime: Path) -> Callable[..., str]:
    """Kill a process that has made a network namespace, with or without its guardian; return the namespace's name."""

    def kill(*, guardian_too: bool) -> str:
        code = (
            f"from pathlib import Path\nfrom brobust.host import network, session\n"
            f"session.ROOT = Path({str(runtime)!r})\nown = session.Session.start()\n"
            "print(network.create(own, ['tap-a', 'tap-b']), own._guardian.process.pid, flush=True); input()\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        ) as dead:
            assert dead.stdout is not None
            name, guardian = dead.stdout.readline().split()
            assert name in namespaces()
            if guardian_too:
                os.kill(int(guardian), signal.SIGKILL)
            dead.send_signal(signal.SIGKILL)
        return name

    return kill


@pytest.mark.root
def test_a_killed_process_leaves_nothing_because_its_guardian_removes_it(
    killed_with_a_namespace: Callable[..., str], runtime: Path
) -> None:
    name = killed_with_a_namespace(guardian_too=False)
    assert eventually(lambda: name not in namespaces() and [entry.name for entry in runtime.iterdir()] == ["lock"])


@pytest.mark.root
def test_what_a_killed_process_and_its_killed_guardian_leave_the_next_start_removes(
    killed_with_a_namespace: Callable[..., str],
) -> None:
    name = killed_with_a_namespace(guardian_too=True)
    assert [leftover.kind for leftover in session.leftovers()] == ["namespace", "directory"]
    with Session.start():
        assert name not in namespaces()
    assert session.leftovers() == []


@pytest.mark.root
def test_a_session_takes_its_namespace_along(runtime: Path) -> None:
    with Session.start() as own:
        name = network.create(own, ["tap-a"])
        links = subprocess.run(["ip", "-n", name, "link"], capture_output=True, text=True, check=True).stdout
        assert "tap-a" in links
    assert name not in namespaces()


def test_a_sysctl_is_held_and_put_back_also_after_a_kill(knob: Path) -> None:
    with Session.start() as own:
        with own.sysctl("knob", "-1"):
            assert knob.read_text() == "-1"
            entry = entry_of(own)
        assert knob.read_text() == "950000"
        assert entry_of(own)["sysctls"] == []
    dead = left_by(NOBODY, entry)
    knob.write_text("-1")
    removed, problems = session.clean()
    assert [str(leftover) for leftover in removed] == ["sysctl knob=950000", f"directory {dead}"]
    assert knob.read_text() == "950000" and problems == [] and not dead.exists()


def test_a_sysctl_that_somebody_has_set_since_is_left_alone(knob: Path) -> None:
    left_by(NOBODY, {"sysctls": [["knob", "950000", "-1"]]})
    knob.write_text("900000")
    session.clean()
    assert knob.read_text() == "900000"


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Pretend that the kernel refuses to limit real-time threads again, as long as `refuses` is true."""
    switch = {"refuses": True}
    write = Path.write_text

    def refusing(path: Path, text: str, *rest: Any) -> int:
        if path.name == "knob" and text != "-1" and switch["refuses"]:
            raise OSError(16, "Device or resource busy")
        return write(path, text, *rest)

    monkeypatch.setattr(session, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(Path, "write_text", refusing)
    return switch


def test_a_sysctl_that_cannot_be_put_back_stays_in_the_journal_until_it_can(knob: Path, busy: dict[str, bool]) -> None:
    own = Session.start()
    with (
        pytest.raises(RunFailed, match=r"knob could not be set to 950000 \(device or resource busy\)"),
        own.sysctl("knob", "-1"),
    ):
        pass
    with pytest.raises(RunFailed), own.sysctl("knob", "-1"):  # the next run does not take -1 for the previous value
        pass
    with pytest.raises(MissingSupport, match=r"not undone: .*knob could not be set to 950000.*busy"):
        own.end()
    assert knob.read_text() == "-1" and entry_of(own)["sysctls"] == [["knob", "950000", "-1"]]
    dead = own.directory.rename(session.ROOT / str(NOBODY))
    assert [problem.split(" (")[1] for problem in session.clean()[1]] == ["device or resource busy)"]
    busy["refuses"] = False
    assert session.clean()[1] == []
    assert knob.read_text() == "950000" and not dead.exists()


def test_a_host_whose_sysctls_cannot_be_written_is_refused_in_a_sentence(
    knob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> int:
        raise OSError(30, "Read-only file system")

    with Session.start() as own:
        with monkeypatch.context() as patched:
            write = Path.write_text
            patched.setattr(Path, "write_text", lambda path, text: read_only() if path == knob else write(path, text))
            with pytest.raises((MissingSupport, RunFailed), match="read-only file system"), own.sysctl("knob", "-1"):
                pytest.fail("it cannot be held")
        with pytest.raises(MissingSupport, match="no such file"), own.sysctl("absent", "1"):
            pytest.fail("it is not there")


@pytest.mark.parametrize("name", ["/etc/passwd", "../passwd", "kernel/../../passwd", "kernel/.hidden", ""])
def test_a_journal_cannot_make_root_write_anywhere_but_to_a_sysctl(knob: Path, name: str) -> None:
    (knob.parent.parent / "passwd").write_text("mine")
    with pytest.raises(MissingSupport, match="not the name of a sysctl"):
        session.Sysctl(name, "theirs", "mine").write("theirs")


@pytest.mark.root
def test_a_runtime_directory_of_somebody_else_is_refused(runtime: Path) -> None:
    runtime.mkdir()
    os.chown(runtime, 65534, 65534)
    for look in (Session.start, session.leftovers, session.clean):
        with pytest.raises(MissingSupport, match="belongs to user 65534"):
            look()
    os.chown(runtime, 0, 0)
    runtime.chmod(0o777)
    with pytest.raises(MissingSupport, match="written by others"):
        Session.start()


def test_one_thing_that_cannot_be_undone_does_not_keep_the_rest_from_it(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SYSCTLS", tmp_path)
    (tmp_path / "last").write_text("-1")
    stuck = tmp_path / "brobust-7"
    stuck.mkdir()
    (stuck / "tasks").write_text("")  # a directory with a file cannot be removed, like a cgroup with a thread
    group = cgroups.Group(str(stuck), str(tmp_path), is_v2=False, enabled_cpu=False)
    monkeypatch.setattr(cgroups, "REMOVE_SECONDS", 0.1)
    dead = left_by(NOBODY, {"groups": [group.as_entry()], "sysctls": [["last", "0", "-1"]]})
    with Session.start() as own:  # this does not keep another command from its work
        assert own.directory.is_dir()
    assert (tmp_path / "last").read_text() == "0"
    assert (dead / "session.json").exists()
    found, (problem,) = session.clean()
    assert problem.startswith(f"cgroup {stuck}") and len(found) == 2
    shutil.rmtree(stuck)
    assert session.clean()[1] == [] and not dead.exists()


def test_two_sessions_at_once_are_refused(runtime: Path) -> None:
    with Session.start(), pytest.raises(MissingSupport, match=rf"process {os.getpid()}\) is at work"):
        Session.start()


def test_commands_that_start_at_the_same_moment_do_not_take_each_other_for_dead(runtime: Path) -> None:
    code = (
        f"from pathlib import Path\nfrom brobust.host import session\nsession.ROOT = Path({str(runtime)!r})\n"
        "print(flush=True); input()\n"
        "for _ in range(2):\n"
        "    with session.Session.start(beside_others=True) as own: own.hold_cpus([], force=True)\n"
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
    said = []
    for command in commands:
        assert command.stdin is not None
        command.stdin.write("\n")
        command.stdin.flush()
    for command in commands:
        said.append(command.communicate()[1])
    assert said == [""] * len(commands)
    assert [entry.name for entry in runtime.iterdir()] == ["lock"]


def test_a_start_shows_its_directory_only_with_its_journal(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    rename = Path.rename

    def looking(path: Path, target: Path) -> Path:
        seen.extend(entry for entry in runtime.iterdir() if Owner.parse(entry.name))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", looking)
    with Session.start():
        assert seen == [], "a directory without its journal looks like one of the dead"


def test_a_reused_process_id_is_not_mistaken_for_the_owner(runtime: Path) -> None:
    me = Owner.current()
    first, other = Owner.of(1), Owner(me.pid, me.started - 1)
    directory = left_by(other, {"processes": [str(Owner(first.pid, first.started + 1))]})
    # Process 1 lives, but is not the recorded one: only the directory is a leftover.
    assert [str(leftover) for leftover in session.leftovers()] == [f"directory {directory}"]


def test_a_live_session_is_not_taken_for_dead_when_the_clock_is_set(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session.start() as own:
        booted = psutil.boot_time()
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted + 5)
        assert session.leftovers() == []
        assert session.clean() == ([], []) and own.directory.is_dir()


def test_namespaces_of_another_runtime_directory_and_of_the_living_are_left_alone(
    runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "NAMESPACES", tmp_path / "netns")
    (tmp_path / "netns").mkdir()
    ours = session._namespace_prefix()
    names = {
        "dead": f"{ours}{NOBODY}", "alive": f"{ours}{Owner.current()}", "foreign": f"brobust-0123abcd-{NOBODY}",
        "old": f"brobust-{os.getpid()}", "other": "web",
    }  # fmt: skip
    for name in names.values():
        (tmp_path / "netns" / name).touch()
    assert [leftover.name for leftover in session.leftovers()] == [names["dead"]]


def test_only_the_qemu_of_a_session_that_is_gone_is_an_orphan(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        def __init__(self, pid: int, parent: int, *words: str, name: str = "qemu-system-x86"):
            self.pid = pid
            self.info = {"name": name, "cmdline": list(words), "ppid": parent}

    me = Owner.current()
    processes = [
        Process(11, 1, "-qmp", f"unix:{runtime}/{NOBODY}/sender.qmp,server=on"),
        Process(12, 1, "-qmp", f"unix:{runtime}/{me}/sender.qmp,server=on"),  # its session lives
        Process(13, NOBODY.pid, "-qmp", f"unix:{runtime}/{NOBODY}/sender.qmp"),  # its parent lives, elsewhere
        Process(14, 1, f"unix:{runtime}/{NOBODY}/sender.qmp", name="tail"),
        Process(15, 1, "-qmp", f"unix:{runtime}-other/{NOBODY}/sender.qmp"),
        Process(16, 1, "-name", "web"),
    ]
    monkeypatch.setattr(session.psutil, "process_iter", lambda _: processes)
    monkeypatch.setattr(Owner, "of", lambda pid: Owner(pid, 1))
    assert [leftover.name for leftover in session.leftovers()] == ["11"]


def test_a_cpu_is_left_to_the_host_also_by_several_commands_together(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.os, "sched_getaffinity", lambda _: {0, 1, 2})
    session.refuse_without_spare([1, 2])
    with pytest.raises(BadInput, match=r"3 of the host's 3 CPUs.*--force with --for"):
        session.refuse_without_spare([0, 1, 2])
    with pytest.raises(BadInput):
        session.refuse_without_spare([], roaming=3)
    with Session.start() as own:
        own.hold_cpus([2])
        session.refuse_without_spare([1, 2])
        for cpus, roaming in ([0, 1], 0), ([1], 1):
            with pytest.raises(BadInput):
                session.refuse_without_spare(cpus, roaming)
        own.hold_cpus([0, 1], force=True)
        with pytest.raises(BadInput):
            session.refuse_without_spare([2])
