"""Record everything that a command changes on the host, and undo it, whichever process dies.

A *session* is a directory /run/brobust/PID-START for one brobust process. Its `session.json` records what the process
creates (a network namespace, QEMU processes, cgroups) and what it changes (a sysctl, threads of somebody's VM, with
their previous state), before it does so. When the process is killed, its guardian, a separate process, undoes all of
it; if both are killed, the next start or `brobust doctor --clean` does. Contention of our own guests need not be
recorded: the burner, the competitors and the recorder's BPF programs end with brobust, and a DEADLINE policy with its
QEMU.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import psutil

from brobust.errors import BadInput, BrobustError, MissingSupport, RunFailed
from brobust.host import cgroups, locks
from brobust.host.cgroups import Group
from brobust.host.guardian import Guardian
from brobust.host.owner import Owner
from brobust.host.threads import SavedThread

HOST = Path("/run/brobust")
"""The directory of locks for what exists only once per host; BROBUST_RUNTIME does not change it."""
ROOT = Path(os.environ.get("BROBUST_RUNTIME", HOST))
SYSCTLS = Path("/proc/sys")
NAMESPACES = Path("/run/netns")
BUSY_SECONDS = 2.0


@dataclass(frozen=True)
class Leftover:
    """One thing of a session that is still on the host."""

    kind: str
    name: str
    undone_by: SavedThread | Group | Owner | Sysctl | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Sysctl:
    """A sysctl (a path below /proc/sys), its previous value, and the value at which we hold it."""

    name: str
    previous: str
    held: str

    @property
    def file(self) -> Path:
        # The name comes from a file, and must not lead out of /proc/sys.
        if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)*", self.name):
            raise MissingSupport(f"{self.name!r} is not the name of a sysctl")
        return SYSCTLS / self.name

    def is_held(self) -> bool:
        """Return whether it still has our value. If somebody has written another value since, that is left alone."""
        try:
            return self.previous != self.held and self.file.read_text().strip() == self.held
        except (OSError, MissingSupport):
            return False

    def write(self, value: str) -> None:
        """Set the sysctl, and try again for a while on EBUSY. The kernel refuses to limit real-time threads while more
        bandwidth is admitted for DEADLINE threads, and counts a thread for a moment after it has left that policy."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.file.write_text(value)
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    reason = (error.strerror or str(error)).lower()
                    raise MissingSupport(f"{self.file} could not be set to {value} ({reason})") from None
            time.sleep(0.05)


@dataclass
class Session:
    """The session of this process. A context manager: leaving it undoes everything."""

    directory: Path
    namespace: str = ""
    processes: list[Owner] = field(default_factory=list)
    sysctls: dict[str, Sysctl] = field(default_factory=dict)
    threads: list[SavedThread] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    """CPUs that our contention may keep busy."""
    roaming: int = 0
    """How many more CPUs it may keep busy, chosen by the scheduler."""
    _guardian: Guardian | None = None

    @classmethod
    def start(cls, *, beside_others: bool = False, silence_seconds: float | None = None) -> Session:
        """Begin a session of this process, and start its guardian. If `silence_seconds` is given, the guardian takes
        the process for stuck, and kills it, when it has not called `say_alive` for this long."""
        locks.private_directory(ROOT)
        with _locked():
            for problem in _clean()[1]:  # what a killed command left could disturb this one
                print(f"brobust: left behind by a command that was killed: {problem}", file=sys.stderr)
            for owner, _ in _sessions():
                if owner.lives and not beside_others:
                    raise MissingSupport(
                        f"another brobust (process {owner.pid}) is at work on this host, and two would disturb each "
                        "other's measurements; wait until it has ended"
                    )
            session = cls(ROOT / str(Owner.current()))
            session._appear()
        try:
            session._guardian = Guardian.start(
                "brobust.host.session_guardian", str(session.directory), str(silence_seconds or 0)
            )
        except BaseException:
            session.end()
            raise
        return session

    def say_alive(self) -> None:
        """Tell the guardian that this process is not stuck."""
        if self._guardian is not None:
            self._guardian.say_alive()

    def record_namespace(self) -> str:
        """Record that this session has a network namespace, and return the name that it must get."""
        self.namespace = f"{_namespace_prefix()}{self.directory.name}"
        self._write()
        return self.namespace

    def record_process(self, pid: int) -> None:
        """Record a process that must end with this session."""
        self.processes.append(Owner.of(pid))
        self._write()

    def hold_threads(self, threads: Sequence[SavedThread]) -> None:
        """Record the state of somebody else's threads before they are changed; the end of the session restores it."""
        with _locked():
            for thread in threads:
                refuse_held(thread.tid)
                thread.refuse_another()
            self.threads += threads
            self._write()

    def hold_cpus(self, cpus: Collection[int], roaming: int = 0, *, force: bool = False) -> None:
        """Record which CPUs our contention may keep busy, and how many more that the scheduler chooses. Refuse it if no
        CPU would be left for the host, unless `force`."""
        with _locked():
            if not force:
                refuse_without_spare(cpus, roaming)
            self.cpus, self.roaming = sorted({*self.cpus, *cpus}), self.roaming + roaming
            self._write()

    def hold_groups(self, threads: Iterable[int], timeslice_ns: int, period_ns: int) -> list[Group]:
        """Put each thread into a new cgroup with this quota, and return the cgroups."""
        made = []
        try:
            for thread in threads:
                with _locked():
                    others = [group for _, directory in _sessions() for group in _entry(directory).groups]
                    group = cgroups.group_for(thread, others)
                    self.groups.append(group)
                    self._write()
                    group.hold(thread, timeslice_ns, period_ns)
                made.append(group)
        except BaseException:
            self.release_groups(made)
            raise
        return made

    def release_groups(self, groups: Iterable[Group]) -> None:
        """Remove these cgroups; the threads return to their previous ones."""
        problems = []
        with _locked():
            for group in groups:
                try:
                    group.remove()
                    self.groups.remove(group)
                except MissingSupport as problem:
                    problems.append(str(problem))
            self._write()
        if problems:
            raise RunFailed("; ".join(problems))

    @contextlib.contextmanager
    def sysctl(self, name: str, value: str) -> Iterator[None]:
        """Hold a sysctl (a path below /proc/sys) at a value while the context lasts. Only one process of the host can
        do so at a time, because a second one would take the first one's value for the previous value."""
        locks.private_directory(HOST)
        with locks.locked(HOST / "sysctl.lock"):
            try:
                previous = (SYSCTLS / name).read_text().strip()
            except OSError as error:
                raise MissingSupport(f"{SYSCTLS / name}: {(error.strerror or str(error)).lower()}") from None
            # If it could not be restored the last time, the session has its true previous value, not the file.
            held = Sysctl(name, self.sysctls[name].previous if name in self.sysctls else previous, value)
            if held.previous == value:
                yield
                return
            self.sysctls[name] = held
            self._write()
            try:
                held.write(value)
                yield
            finally:
                try:
                    held.write(held.previous)
                except MissingSupport as problem:  # it stays recorded
                    raise RunFailed(str(problem)) from None
                del self.sysctls[name]
                self._write()

    def _appear(self) -> None:
        """Make the session's directory appear with its content: one without session.json would look abandoned."""
        scratch = ROOT / f".{self.directory.name}.new"
        scratch.mkdir(mode=0o700)
        (scratch / "session.json").write_text(self._text())
        scratch.rename(self.directory)

    def _text(self) -> str:
        return json.dumps(
            {
                "namespace": self.namespace,
                "processes": [str(owner) for owner in self.processes],
                "sysctls": [[held.name, held.previous, held.held] for held in self.sysctls.values()],
                "threads": [thread.as_entry() for thread in self.threads],
                "groups": [group.as_entry() for group in self.groups],
                "cpus": self.cpus,
                "roaming": self.roaming,
            }
        )

    def _write(self) -> None:
        scratch = self.directory / "session.json.new"
        scratch.write_text(self._text())
        scratch.rename(self.directory / "session.json")

    def end(self) -> None:
        """Undo everything. If something cannot be undone, it stays recorded, and MissingSupport names it."""
        problems = undo(self.directory)
        if self._guardian is not None:
            self._guardian.dismiss()
        if problems:
            raise MissingSupport(f"not undone: {'; '.join(problems)}; `brobust doctor --clean` tries again")

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        except MissingSupport as problem:
            if isinstance(value, BrobustError):  # the user must see both
                raise MissingSupport(f"{value}; {problem}") from None
            raise


def refuse_held(thread: int) -> None:
    """Refuse a thread that another running brobust has changed, since its state now is not its own."""
    for owner, directory in _sessions():
        if owner.lives and any(saved.tid == thread for saved in _entry(directory).threads):
            raise MissingSupport(f"thread {thread} is already under contention by process {owner.pid}")


def refuse_without_spare(cpus: Collection[int], roaming: int = 0) -> None:
    """Refuse contention on these CPUs, and on `roaming` more that the scheduler chooses, if it and other brobusts would
    leave no CPU for the host's other work."""
    host = os.sched_getaffinity(1)  # the CPUs of ordinary processes; isolated CPUs are not among them
    entries = [_entry(directory) for owner, directory in _sessions() if owner.lives]
    taken = {*cpus, *(cpu for entry in entries for cpu in entry.cpus)} & host
    roaming += sum(entry.roaming for entry in entries)
    if len(host) - len(taken) - roaming < 1:
        raise BadInput(
            f"this contention may keep {len(host)} of the host's {len(host)} CPUs busy at a time, so that none is left "
            "to end it; name fewer --threads, give --driver quota, or --force with --for"
        )


def leftovers() -> list[Leftover]:
    """Return what sessions whose process is gone have left on the host. This needs no privilege."""
    found: list[Leftover] = []
    for session_owner, directory in _sessions():
        if not session_owner.lives:
            found += _of_session(directory)
    # If somebody has removed /run/brobust by hand, our namespaces and QEMUs have no session.
    found += [Leftover("process", str(orphan.pid), orphan) for orphan in _orphaned_qemus()]
    found += [
        Leftover("namespace", name)
        for name in _namespaces()
        if (owner := Owner.parse(name.removeprefix(_namespace_prefix()))) and not owner.lives
    ]
    return list(dict.fromkeys(found))


def clean() -> tuple[list[Leftover], list[str]]:
    """Remove all leftovers. Return what was found, and what could not be removed, with the reason."""
    if not ROOT.is_dir() and not leftovers():
        return [], []
    locks.private_directory(ROOT)
    with _locked():
        return _clean()


def _clean() -> tuple[list[Leftover], list[str]]:
    found = leftovers()
    problems = []
    for owner, directory in _sessions():
        if not owner.lives:
            problems += _undo(directory)
    problems += _remove_all([one for one in leftovers() if one.kind != "directory"])
    for scratch in ROOT.glob(".*.new"):  # left by a process that was killed at its start; no other starts now
        shutil.rmtree(scratch, ignore_errors=True)
    return found, list(dict.fromkeys(problems))


def undo(directory: Path) -> list[str]:
    """Undo a session. Return what could not be undone, with the reason; then the session stays recorded."""
    with _locked(directory.parent):
        return _undo(directory)


def _undo(directory: Path) -> list[str]:
    problems = _remove_all(_of_session(directory)[:-1])
    problems += [f"{left} (it is still there)" for left in _of_session(directory)[:-1] if not problems]
    if not problems:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
    return problems


def _remove_all(leftovers: Iterable[Leftover]) -> list[str]:
    """Remove each of these even if others cannot be removed. Return what could not be removed, with the reason."""
    problems = []
    for leftover in leftovers:
        try:
            _remove(leftover)
        except BrobustError as error:  # its message names the leftover
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{leftover} ({error})")
    return problems


def _locked(root: Path | None = None) -> AbstractContextManager[None]:
    """Hold the lock without which no process changes sessions."""
    return locks.locked((root or ROOT) / "lock")


def _sessions() -> list[tuple[Owner, Path]]:
    if not ROOT.is_dir():
        return []
    locks.refuse_foreign(ROOT)
    found = [(Owner.parse(entry.name), entry) for entry in ROOT.iterdir()]
    return sorted((owner, directory) for owner, directory in found if owner is not None)


@dataclass(frozen=True)
class _Entry:
    """The content of a session.json; empty if the file cannot be read."""

    namespace: str = ""
    processes: tuple[Owner, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()
    threads: tuple[SavedThread, ...] = ()
    groups: tuple[Group, ...] = ()
    cpus: tuple[int, ...] = ()
    roaming: int = 0


def _entry(directory: Path) -> _Entry:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        entry = json.loads((directory / "session.json").read_text())
        return _Entry(
            entry["namespace"],
            tuple(owner for text in entry["processes"] if (owner := Owner.parse(text))),
            tuple(Sysctl(*held) for held in entry["sysctls"]),
            tuple(SavedThread.from_entry(one) for one in entry["threads"]),
            tuple(Group.from_entry(one) for one in entry["groups"]),
            tuple(entry["cpus"]),
            int(entry["roaming"]),
        )
    return _Entry()


def _of_session(directory: Path) -> list[Leftover]:
    """Return what a session has left, in the order in which it must be undone, with its directory last. Threads come
    before sysctls, because the kernel refuses to limit real-time threads again while more DEADLINE bandwidth is
    admitted than the limit allows."""
    entry = _entry(directory)
    found = [Leftover("process", str(owner.pid), owner) for owner in entry.processes if owner.lives]
    found += [Leftover("contention of thread", str(f.tid), f) for f in entry.threads if f.is_altered()]
    found += [Leftover("cgroup", group.path, group) for group in entry.groups if group.remains()]
    found += [Leftover("sysctl", f"{s.name}={s.previous}", s) for s in entry.sysctls if s.is_held()]
    if entry.namespace in _namespaces():
        found.append(Leftover("namespace", entry.namespace))
    found.append(Leftover("directory", str(directory)))
    return found


def _remove(leftover: Leftover) -> None:
    match leftover.undone_by:
        case Group() as group:
            group.remove()
        case SavedThread() as thread:
            thread.restore()
        case Owner() as owner:
            owner.kill()
        case Sysctl() as sysctl:
            sysctl.write(sysctl.previous)
        case None:  # a namespace; its taps, bridge and qdiscs disappear with it
            done = subprocess.run(["ip", "netns", "delete", leftover.name], capture_output=True, text=True, check=False)
            if leftover.name in _namespaces():
                raise MissingSupport(f"{leftover} could not be removed ({done.stderr.strip() or 'no reason given'})")


def _orphaned_qemus() -> list[Owner]:
    """Return QEMUs of sessions whose brobust is gone. They should have ended with it, but have not."""
    found = []
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        if (process.info["name"] or "").startswith("qemu-system"):
            paths = [word.split(f"{ROOT}/", 1)[1] for word in process.info["cmdline"] or [] if f"{ROOT}/" in word]
            owner = Owner.parse(paths[0].split("/")[0]) if paths else None
            if owner is not None and not owner.lives and process.info["ppid"] != owner.pid:
                found.append(Owner.of(process.pid))
    return found


def _namespace_prefix() -> str:
    """Return the prefix of the names of our sessions' network namespaces. It differs for another BROBUST_RUNTIME and
    for another PID namespace, whose processes we cannot see."""
    where = f"{ROOT} {Path('/proc/self/ns/pid').readlink()}"
    return f"brobust-{hashlib.sha256(where.encode()).hexdigest()[:8]}-"


def _namespaces() -> set[str]:
    return {entry.name for entry in NAMESPACES.iterdir()} if NAMESPACES.is_dir() else set()
