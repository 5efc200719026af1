"""The vCPU threads of a running VM of any hypervisor, known by the names of its threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import psutil

from brobust.errors import BadInput, printable
from brobust.host.owner import start_time

PROC = Path("/proc")


@dataclass(frozen=True)
class Hypervisor:
    """Names of a program and of its vCPU threads, as patterns (/proc/PID/comm, at most 15 characters)."""

    name: str
    program: str
    thread: str
    """Its group is the vCPU's number, where there is one."""


HYPERVISORS = (
    # accel/kvm/kvm-accel-ops.c, accel/tcg/tcg-accel-ops-*.c; only with -name ...,debug-threads=on, which libvirt gives
    Hypervisor("QEMU", r"qemu-.*|kvm|qemu", r"CPU (\d+)/[A-Za-z]+|ALL CPUs/TCG"),
    # src/VBox/VMM/VMMR3/VM.cpp: a number only where there are several
    Hypervisor("VirtualBox", r"VBoxHeadless|VirtualBoxVM|VirtualBox|VBox.*", r"EMT(?:-(\d+))?"),
    Hypervisor("VMware", r"vmware-vmx.*|vmx.*", r"vmx-vcpu-(\d+)"),
    Hypervisor("Firecracker", r"firecracker.*|fc_.*", r"fc_vcpu (\d+)"),  # src/vmm/src/vstate/vcpu.rs
    Hypervisor("cloud-hypervisor", r"cloud-hyperviso.*", r"vcpu(\d+)"),  # vmm/src/cpu.rs
)


@dataclass(frozen=True)
class Vcpu:
    """A thread that is to be put under contention."""

    tid: int
    name: str
    number: int | None = None
    """Number of the vCPU; None if the thread was named by its id."""
    started: int | None = None
    """Start of the thread in clock ticks since boot, since a later thread may have its id."""

    @property
    def lives(self) -> bool:
        """Whether this thread, not a later one with its id, still exists."""
        return self.started is not None and start_time(self.tid) == self.started


@dataclass(frozen=True)
class Machine:
    """A process and its vCPU threads."""

    pid: int
    program: str
    name: str
    """Name of the VM, where its command line says it."""
    vcpus: tuple[Vcpu, ...]
    is_known: bool
    """Whether it is a known hypervisor: contention for any other process reaches only that process itself."""


def find(
    *, qemu: str | None = None, libvirt: str | None = None, pid: int | None = None, threads: str = "auto"
) -> Machine:
    """Return the machine that one of the first three parameters names, with its vCPU threads, or with those whose ids
    `threads` lists."""
    given = {"--qemu": qemu, "--libvirt": libvirt, "--pid": pid}
    if sum(value is not None for value in given.values()) != 1:
        raise BadInput("say which VM, by one of --qemu NAME, --libvirt DOMAIN, --pid PID")
    if pid is None:
        pid = _qemu_named("--qemu" if qemu is not None else "--libvirt", qemu or libvirt or "")
    names = _threads(pid)
    if not names:
        raise BadInput(f"--pid: there is no process {pid}")
    started = {tid: start_time(tid) for tid in names}
    program = _comm(PROC / str(pid)) or "?"
    hypervisor = next((one for one in HYPERVISORS if re.fullmatch(one.program, program)), None)
    found = tuple(_vcpus(hypervisor, names) if threads == "auto" else _named(threads, pid, names))
    if not found:
        raise BadInput(_nothing_found(pid, program, hypervisor, names))
    found = tuple(replace(vcpu, started=started[vcpu.tid]) for vcpu in found)
    return Machine(pid, hypervisor.name if hypervisor else program, _name(pid), found, hypervisor is not None)


def _vcpus(hypervisor: Hypervisor | None, names: dict[int, str]) -> Iterator[Vcpu]:
    # A wrapper may have renamed the process: its threads identify it too.
    patterns = [hypervisor.thread] if hypervisor else [one.thread for one in HYPERVISORS]
    for pattern in patterns:
        matches = [(tid, match) for tid, name in names.items() if (match := re.fullmatch(pattern, name))]
        numbers = (Vcpu(tid, match[0], int(match[1] or 0) if match.re.groups else 0) for tid, match in matches)
        if matches:
            yield from sorted(numbers, key=lambda vcpu: (vcpu.number or 0, vcpu.tid))
            return


def _named(threads: str, pid: int, names: dict[int, str]) -> Iterator[Vcpu]:
    for word in threads.split(","):
        if not word.strip().isdigit():
            raise BadInput(f"--threads: {word.strip()!r} is no thread id; give auto, or ids as in 4711,4712")
        tid = int(word)
        if tid not in names:
            raise BadInput(f"--threads: {tid} is no thread of process {pid}; its threads are {_list(names)}")
        yield Vcpu(tid, names[tid])


def _nothing_found(pid: int, program: str, hypervisor: Hypervisor | None, names: dict[int, str]) -> str:
    if hypervisor and hypervisor.name == "QEMU":
        return (
            f"process {pid} ({program}) does not name its threads; start it with -name NAME,debug-threads=on, or give "
            f"--threads with the thread-id of each vCPU (QMP: query-cpus-fast); its threads are {_list(names)}"
        )
    return (
        f"process {pid} ({program}) has no thread with a vCPU's name; give --threads with some of its threads: "
        f"{_list(names)}"
    )


def _list(names: dict[int, str]) -> str:
    shown = [f"{tid} ({name})" for tid, name in sorted(names.items())[:8]]
    return ", ".join(shown) + (", ..." if len(names) > 8 else "")


def _qemu_named(option: str, name: str) -> int:
    found, known = [], set()
    for process in psutil.process_iter(["name", "cmdline"]):
        if not re.fullmatch(HYPERVISORS[0].program, process.info["name"] or ""):
            continue
        called, is_libvirts = _guest_name(process.info["cmdline"] or [])
        if option == "--libvirt" and not is_libvirts:
            continue
        known.add(called or "one without a name")
        if called == name:
            found.append(process.pid)
    if len(found) == 1:
        return found[0]
    if found:
        raise BadInput(f"{option}: several VMs are called {name!r}; give --pid with one of {sorted(found)}")
    there = ", ".join(sorted(known)) or "none"
    raise BadInput(f"{option}: no running VM is called {name!r}; there is {there}")


def _guest_name(command: list[str]) -> tuple[str, bool]:
    """Return QEMU's -name, and whether it is written as libvirt writes it (guest=NAME,debug-threads=on)."""
    for option, value in pairwise(command):
        if option in ("-name", "--name"):
            fields = value.split(",")
            named = [field.removeprefix("guest=") for field in fields if field.startswith("guest=")]
            return (named[0], True) if named else (fields[0], False)
    return "", False


def _name(pid: int) -> str:
    try:
        return printable(_guest_name(psutil.Process(pid).cmdline())[0])
    except psutil.Error:
        return ""


def _threads(pid: int) -> dict[int, str]:
    """Return names by thread id; none where there is no such process."""
    try:
        tasks = list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return {}
    return {int(task.name): name for task in tasks if (name := _comm(task)) is not None}


def _comm(directory: Path) -> str | None:
    try:
        return printable((directory / "comm").read_text(errors="surrogateescape").removesuffix("\n"))
    except OSError:  # it has ended
        return None
