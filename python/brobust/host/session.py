"""Everything a run puts on the host, and how it is taken off again, whoever died.

A *session* is a directory /run/brobust/PID-START with the sockets and logs of one brobust process and a `session.json`
that names what else it made (a network namespace, QEMU processes, cgroups) or changed (a sysctl, threads of somebody's
VM, with what they were before). It is written first. When the process is killed its guardian, a process of its own,
takes all of it back; if both are killed, the next start or `brobust doctor --clean` does. Contention of our own guests
needs no entry: the burner, the competitors and the recorder's BPF programs die with brobust, and a DEADLINE policy dies
with its QEMU.
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
"""Where what a host has only one of is locked, whatever BROBUST_RUNTIME says."""
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
    """A sysctl (a path below /proc/sys), what it was, and what it is held at."""

    name: str
    former: str
    held: str

    @property
    def file(self) -> Path:
        # From a journal: it must not lead out of /proc/sys.
        if not re.fullmatch(r"[a-z0-9_]+(/[a-z0-9_]+)*", self.name):
            raise MissingSupport(f"{self.name!r} is not the name of a sysctl")
        return SYSCTLS / self.name

    def is_held(self) -> bool:
        """Whether it still is what we made it; what somebody has written since is theirs."""
        try:
            return self.former != self.held and self.file.read_text().strip() == self.held
        except (OSError, MissingSupport):
            return False

    def write(self, value: str) -> None:
        """Write it. EBUSY is waited for: the kernel counts the bandwidth of a DEADLINE thread for a moment after it has
        left that policy, and limits real-time threads only when all of it fits."""
        patience = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.file.write_text(value)
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > patience:
                    reason = (error.strerror or str(error)).lower()
                    raise MissingSupport(f"{self.file} could not be set to {value} ({reason})") from None
            time.sleep(0.05)


@dataclass
class Session:
    """This process's entry under /run/brobust. A context manager: leaving it undoes everything."""

    directory: Path
    namespace: str = ""
    processes: list[Owner] = field(default_factory=list)
    sysctls: dict[str, Sysctl] = field(default_factory=dict)
    threads: list[SavedThread] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    """CPUs that our contention may keep busy."""
    roaming: int = 0
    """How many CPUs more, wherever the scheduler puts the threads."""
    _guardian: Guardian | None = None

    @classmethod
    def start(cls, *, beside_others: bool = False, silence_seconds: float | None = None) -> Session:
        """Write down a session of this process, with a guardian, which takes it for stuck, and kills it, when it has
        not called `say_alive` for `silence_seconds`."""
        locks.private_directory(ROOT)
        with _locked():
            for problem in _clean()[1]:  # what a killed predecessor left would only confuse this one
                print(f"brobust: left behind by a command that was killed: {problem}", file=sys.stderr)
            for owner, _ in _sessions():
                if owner.lives and not beside_others:
                    raise MissingSupport(
                        f"another brobust (process {owner.pid}) is at work on this host, and two would disturb each "
                        "other's measurement; wait until it has ended"
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
        """Return the name of this session's network namespace, which is written down."""
        self.namespace = f"{_namespace_prefix()}{self.directory.name}"
        self._write()
        return self.namespace

    def record_process(self, pid: int) -> None:
        self.processes.append(Owner.of(pid))
        self._write()

    def hold_threads(self, threads: Sequence[SavedThread]) -> None:
        """Remember what threads of somebody else's are, before they are changed; at the end they are that again."""
        with _locked():
            for thread in threads:
                refuse_held(thread.tid)
                thread.refuse_another()
            self.threads += threads
            self._write()

    def hold_cpus(self, cpus: Collection[int], roaming: int = 0, *, force: bool = False) -> None:
        """Write down which CPUs our contention may keep busy, and how many more anywhere, unless that would leave the
        host none (`force`: even then)."""
        with _locked():
            if not force:
                refuse_without_spare(cpus, roaming)
            self.cpus, self.roaming = sorted({*self.cpus, *cpus}), self.roaming + roaming
            self._write()

    def hold_groups(self, threads: Iterable[int], timeslice_ns: int, period_ns: int) -> list[Group]:
        """Give each thread a group of its own with this quota."""
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
        """Remove these groups again; the threads are then where they were."""
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
        """Hold a sysctl (a path below /proc/sys) at a value while the context lasts. One process of the host at a
        time: two that overlap would each take the other's value for the former one."""
        locks.private_directory(HOST)
        with locks.locked(HOST / "sysctl.lock"):
            try:
                former = (SYSCTLS / name).read_text().strip()
            except OSError as error:
                raise MissingSupport(f"{SYSCTLS / name}: {(error.strerror or str(error)).lower()}") from None
            # If it could not be put back the last time, the journal knows better than the file what it was.
            held = Sysctl(name, self.sysctls[name].former if name in self.sysctls else former, value)
            if held.former == value:
                yield
                return
            self.sysctls[name] = held
            self._write()
            try:
                held.write(value)
                yield
            finally:
                try:
                    held.write(held.former)
                except MissingSupport as problem:  # it stays in the journal
                    raise RunFailed(str(problem)) from None
                del self.sysctls[name]
                self._write()

    def _appear(self) -> None:
        """Make the directory, whole at once: one without its journal would look like a dead one's."""
        scratch = ROOT / f".{self.directory.name}.new"
        scratch.mkdir(mode=0o700)
        (scratch / "session.json").write_text(self._text())
        scratch.rename(self.directory)

    def _text(self) -> str:
        return json.dumps(
            {
                "namespace": self.namespace,
                "processes": [str(owner) for owner in self.processes],
                "sysctls": [[held.name, held.former, held.held] for held in self.sysctls.values()],
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
        """Undo everything. What could not be undone stays written down, and is said."""
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
            if isinstance(value, BrobustError):  # both are worth a word
                raise MissingSupport(f"{value}; {problem}") from None
            raise


def refuse_held(thread: int) -> None:
    """Refuse a thread that another brobust, which lives, has changed: what it is now is not what it was."""
    for owner, directory in _sessions():
        if owner.lives and any(saved.tid == thread for saved in _entry(directory).threads):
            raise MissingSupport(f"thread {thread} is already under contention by process {owner.pid}")


def refuse_without_spare(cpus: Collection[int], roaming: int = 0) -> None:
    """Refuse contention on these CPUs, and on `roaming` more anywhere, if it would not leave one CPU to everything
    else of the host, beside what other brobusts keep busy."""
    host = os.sched_getaffinity(1)  # where ordinary processes of this host run: not where CPUs are isolated
    entries = [_entry(directory) for owner, directory in _sessions() if owner.lives]
    taken = {*cpus, *(cpu for entry in entries for cpu in entry.cpus)} & host
    roaming += sum(entry.roaming for entry in entries)
    if len(host) - len(taken) - roaming < 1:
        raise BadInput(
            f"this contention may keep {len(host)} of the host's {len(host)} CPUs busy at a time, and whoever wants to "
            "end it finds none; name fewer --threads, give --driver quota, or --force with --for"
        )


def leftovers() -> list[Leftover]:
    """Return what sessions whose process is gone have left on the host. Needs no privilege to look."""
    found: list[Leftover] = []
    for session_owner, directory in _sessions():
        if not session_owner.lives:
            found += _of_session(directory)
    # A namespace or a QEMU of ours without a session: somebody removed /run/brobust by hand.
    found += [Leftover("process", str(orphan.pid), orphan) for orphan in _orphaned_qemus()]
    found += [
        Leftover("namespace", name)
        for name in _namespaces()
        if (owner := Owner.parse(name.removeprefix(_namespace_prefix()))) and not owner.lives
    ]
    return list(dict.fromkeys(found))


def clean() -> tuple[list[Leftover], list[str]]:
    """Remove all leftovers. Return what there was, and what could not be removed, with the reason."""
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
    for scratch in ROOT.glob(".*.new"):  # of one that was killed while it began; nobody else begins now
        shutil.rmtree(scratch, ignore_errors=True)
    return found, list(dict.fromkeys(problems))


def undo(directory: Path) -> list[str]:
    """Undo a session. Return what could not be, with the reason; as long as there is such, its journal stays."""
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
    """Remove each whatever becomes of the others; return what could not be, with the reason."""
    problems = []
    for leftover in leftovers:
        try:
            _remove(leftover)
        except BrobustError as error:  # names it
            problems.append(str(error))
        except OSError as error:
            problems.append(f"{leftover} ({error})")
    return problems


def _locked(root: Path | None = None) -> AbstractContextManager[None]:
    """One process at a time looks at the sessions to change something."""
    return locks.locked((root or ROOT) / "lock")


def _sessions() -> list[tuple[Owner, Path]]:
    if not ROOT.is_dir():
        return []
    locks.refuse_foreign(ROOT)
    found = [(Owner.parse(entry.name), entry) for entry in ROOT.iterdir()]
    return sorted((owner, directory) for owner, directory in found if owner is not None)


@dataclass(frozen=True)
class _Entry:
    """What session.json holds; empty where it cannot be read."""

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
    """What there is of it, in the order in which it is undone, its directory last. Threads before sysctls: the kernel
    refuses to limit real-time threads again while more DEADLINE bandwidth is admitted than the limit allows."""
    entry = _entry(directory)
    found = [Leftover("process", str(owner.pid), owner) for owner in entry.processes if owner.lives]
    found += [Leftover("contention of thread", str(f.tid), f) for f in entry.threads if f.is_altered()]
    found += [Leftover("cgroup", group.path, group) for group in entry.groups if group.remains()]
    found += [Leftover("sysctl", f"{s.name}={s.former}", s) for s in entry.sysctls if s.is_held()]
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
            sysctl.write(sysctl.former)
        case None:  # Its taps and bridge, and their qdiscs, go with a namespace.
            done = subprocess.run(["ip", "netns", "delete", leftover.name], capture_output=True, text=True, check=False)
            if leftover.name in _namespaces():
                raise MissingSupport(f"{leftover} could not be removed ({done.stderr.strip() or 'no reason given'})")


def _orphaned_qemus() -> list[Owner]:
    """QEMUs with a socket in a session's directory whose brobust is not their parent any more. They are ended when it
    is killed; this one was not."""
    found = []
    for process in psutil.process_iter(["name", "cmdline", "ppid"]):
        if (process.info["name"] or "").startswith("qemu-system"):
            paths = [word.split(f"{ROOT}/", 1)[1] for word in process.info["cmdline"] or [] if f"{ROOT}/" in word]
            owner = Owner.parse(paths[0].split("/")[0]) if paths else None
            if owner is not None and not owner.lives and process.info["ppid"] != owner.pid:
                found.append(Owner.of(process.pid))
    return found


def _namespace_prefix() -> str:
    """How the network namespaces of our sessions begin. Others have theirs: those of another BROBUST_RUNTIME, and those
    of another PID namespace, where a process that we do not see may live."""
    where = f"{ROOT} {Path('/proc/self/ns/pid').readlink()}"
    return f"brobust-{hashlib.sha256(where.encode()).hexdigest()[:8]}-"


def _namespaces() -> set[str]:
    return {entry.name for entry in NAMESPACES.iterdir()} if NAMESPACES.is_dir() else set()
