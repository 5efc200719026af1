"""Everything a run puts on the host, and how it is taken off again, whoever died.

A *session* is a directory /run/brobust/PID with the sockets and logs of one brobust process and a `session.json` that
names what else it made (a network namespace, QEMU processes, cgroups) or changed (a sysctl, threads of somebody's VM,
with what they were before). It is written first, so that after kill -9 the next start, or `brobust doctor --clean`,
finds all of it. Contention of our own guests needs no entry: the burner and the recorder's BPF programs die with
brobust, and a DEADLINE policy dies with its QEMU.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from brobust.errors import MissingSupport
from brobust.host.cgroups import Group
from brobust.host.threads import Former

ROOT = Path(os.environ.get("BROBUST_RUNTIME", "/run/brobust"))
SYSCTLS = Path("/proc/sys")


@dataclass(frozen=True)
class Leftover:
    """One thing of a dead session that is still on the host."""

    kind: str
    name: str
    former: Former | Group | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass
class Session:
    """This process's entry under /run/brobust. A context manager: leaving it undoes everything."""

    directory: Path
    owner_started: float
    namespace: str = ""
    processes: list[int] = field(default_factory=list)
    sysctls: dict[str, str] = field(default_factory=dict)
    threads: list[Former] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    @classmethod
    def start(cls, *, beside_others: bool = False) -> Session:
        clean()  # what a killed predecessor left would only confuse this one
        for other in ROOT.glob("*") if ROOT.is_dir() and not beside_others else []:
            if _owner_lives(other):
                raise MissingSupport(
                    f"another brobust (process {other.name}) is at work on this host, and two would disturb each "
                    "other's measurement; wait until it has ended"
                )
        session = cls(ROOT / str(os.getpid()), psutil.Process().create_time())
        session.directory.mkdir(parents=True, mode=0o700)
        session._write()
        return session

    def name_namespace(self, name: str) -> None:
        self.namespace = name
        self._write()

    def name_process(self, pid: int) -> None:
        self.processes.append(pid)
        self._write()

    def hold_thread(self, thread: int) -> None:
        """Remember what a thread of somebody else's is, before it is changed; at the end it is that again."""
        refuse_held(thread)
        self.threads.append(Former.of(thread))
        self._write()

    def name_group(self, group: Group) -> None:
        self.groups.append(group)
        self._write()

    @contextlib.contextmanager
    def sysctl(self, name: str, value: str) -> Iterator[None]:
        """Hold a sysctl (a path below /proc/sys) at a value while the context lasts."""
        file = SYSCTLS / name
        former = file.read_text().strip()
        if former == value:
            yield
            return
        self.sysctls[name] = former
        self._write()
        file.write_text(value)
        try:
            yield
        finally:
            file.write_text(former)
            del self.sysctls[name]
            self._write()

    def _write(self) -> None:
        text = json.dumps(
            {
                "owner_started": self.owner_started,
                "namespace": self.namespace,
                "processes": self.processes,
                "sysctls": self.sysctls,
                "threads": [former.as_entry() for former in self.threads],
                "groups": [group.as_entry() for group in self.groups],
            }
        )
        scratch = self.directory / "session.json.new"
        scratch.write_text(text)
        scratch.rename(self.directory / "session.json")

    def end(self) -> None:
        for leftover in _of_session(self.directory):
            _remove(leftover)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


def refuse_held(thread: int) -> None:
    """Refuse a thread that another brobust, which lives, has changed: what it is now is not what it was."""
    for directory in ROOT.glob("*") if ROOT.is_dir() else []:
        if any(former.tid == thread for former in _entry(directory).threads) and _owner_lives(directory):
            raise MissingSupport(f"thread {thread} is already under contention by process {directory.name}")


def leftovers() -> list[Leftover]:
    """What sessions whose process is gone have left on the host. Needs no privilege to look."""
    found: list[Leftover] = []
    for directory in sorted(ROOT.glob("*")) if ROOT.is_dir() else []:
        if not _owner_lives(directory):
            found += _of_session(directory)
    known = {leftover.name for leftover in found} | _namespaces_of_the_living()
    # A namespace or a QEMU of ours without a session: somebody removed /run/brobust by hand.
    found += [Leftover("process", str(p.pid)) for p in _our_qemus() if not _session_lives_for(p)]
    found += [
        Leftover("namespace", name) for name in _namespaces() if name.startswith("brobust-") and name not in known
    ]
    return list(dict.fromkeys(found))


def clean() -> list[Leftover]:
    """Remove all leftovers; returns what was removed."""
    removed = leftovers()
    for leftover in removed:
        _remove(leftover)
    return removed


def _owner_lives(directory: Path) -> bool:
    try:
        started = json.loads((directory / "session.json").read_text())["owner_started"]
        return bool(abs(psutil.Process(int(directory.name)).create_time() - float(started)) < 1.0)
    except (OSError, ValueError, KeyError, psutil.Error):
        return False


@dataclass(frozen=True)
class _Entry:
    """What session.json holds; empty where it cannot be read."""

    namespace: str = ""
    processes: tuple[int, ...] = ()
    sysctls: dict[str, str] = field(default_factory=dict)
    threads: tuple[Former, ...] = ()
    groups: tuple[Group, ...] = ()


def _entry(directory: Path) -> _Entry:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        entry = json.loads((directory / "session.json").read_text())
        return _Entry(
            entry["namespace"],
            tuple(entry["processes"]),
            dict(entry["sysctls"]),
            tuple(Former.from_entry(one) for one in entry.get("threads", ())),
            tuple(Group.from_entry(one) for one in entry.get("groups", ())),
        )
    return _Entry()


def _of_session(directory: Path) -> list[Leftover]:
    entry = _entry(directory)
    found = [Leftover("process", str(pid)) for pid in entry.processes if _is_qemu_of(pid, directory)]
    found += [Leftover("sysctl", f"{name}={former}") for name, former in entry.sysctls.items()]
    found += [Leftover("cgroup", group.path, group) for group in entry.groups if group.exists()]
    found += [Leftover("contention of thread", str(f.tid), f) for f in entry.threads if f.is_altered()]
    if entry.namespace in _namespaces():
        found.append(Leftover("namespace", entry.namespace))
    found.append(Leftover("directory", str(directory)))
    return found


def _remove(leftover: Leftover) -> None:
    if isinstance(leftover.former, Group):
        leftover.former.remove()
    elif isinstance(leftover.former, Former):
        leftover.former.restore()
    elif leftover.kind == "process":
        _kill(int(leftover.name))
    elif leftover.kind == "sysctl":
        name, _, former = leftover.name.partition("=")
        with contextlib.suppress(OSError):  # said by `doctor --clean`, which looks again
            (SYSCTLS / name).write_text(former)
    elif leftover.kind == "namespace":
        # Its taps and bridge, and their qdiscs, go with it.
        subprocess.run(["ip", "netns", "delete", leftover.name], capture_output=True, check=False)
    else:
        shutil.rmtree(leftover.name, ignore_errors=True)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        if not psutil.pid_exists(pid):
            return
        time.sleep(0.01)


def _is_qemu_of(pid: int, directory: Path) -> bool:
    """A process id may have been reused: only a command line that names the session's directory is ours."""
    with contextlib.suppress(psutil.Error):
        return any(str(directory) in word for word in psutil.Process(pid).cmdline())
    return False


def _our_qemus() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if (process.info["name"] or "").startswith("qemu-system")
        and any(f"{ROOT}/" in word for word in process.info["cmdline"] or [])
    ]


def _session_lives_for(process: psutil.Process) -> bool:
    words = [word for word in process.info["cmdline"] or [] if f"{ROOT}/" in word]
    owner = words[0].split(f"{ROOT}/")[1].split("/")[0]
    return _owner_lives(ROOT / owner)


def _namespaces_of_the_living() -> set[str]:
    directories = ROOT.glob("*") if ROOT.is_dir() else []
    return {_entry(directory).namespace for directory in directories if _owner_lives(directory)}


def _namespaces() -> set[str]:
    directory = Path("/run/netns")
    return {entry.name for entry in directory.iterdir()} if directory.is_dir() else set()
