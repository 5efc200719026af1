"""Run a guest: a QEMU process with a vCPU, a tap, an agent, and a console that shows whether its kernel has panicked.

QEMU processes input from a kernel that we do not trust, so it runs as nobody, without capabilities and, with KVM, under
QEMU's own seccomp filter. All that needs root is opened here and handed over: the tap, the sockets for agent and
console, the kernel's files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pwd
import re
import shutil
import socket
import stat
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brobust.errors import GuestDied, MissingSupport, RunFailed, printable
from brobust.host import cpus
from brobust.host.children import killed_with_parent
from brobust.host.session import Session
from brobust.kernels.vm import Kernel
from brobust.testbed.agent import Agent
from brobust.testbed.console import Console
from brobust.testbed.image import kernel_image

QEMU = "qemu-system-x86_64"
BOOT_SECONDS = 60.0
# Guests have priority over the host's other work, so that an undisturbed sender really is undisturbed.
NICE = "-15"
USER = "nobody"
# The programs by which a guest is started, and the Debian package of each.
PROGRAMS = {
    "nice": "coreutils",
    "setpriv": "util-linux",
    "nsenter": "util-linux",
    "taskset": "util-linux",
    QEMU: "qemu-system-x86",
}
# elevateprivileges and spawn forbid setuid and other programs; resourcecontrol forbids QEMU to change the priorities
# and CPUs that we set.
SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"

# include/uapi/linux/if_tun.h
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
_CLONE_NEWNET = 0x40000000  # include/uapi/linux/sched.h


@dataclass(frozen=True)
class GuestConfig:
    """The properties in which guests differ."""

    name: str
    tap: str
    mac: str
    memory_mb: int = 384
    vcpus: int = 1
    # Super-packets must not enter a guest that queues packets, because a bottleneck counts real packets.
    receives_super_packets: bool = True


class Guest:
    """A running guest. A context manager; leaving it kills the guest."""

    def __init__(
        self,
        config: GuestConfig,
        process: subprocess.Popen[bytes],
        wires: Wires,
        find_vcpus: Callable[[int], list[int]] | None = None,
    ):
        """`find_vcpus` returns the threads of a process that are vCPUs; None: as QEMU names them."""
        self.config = config
        self._find_vcpus = find_vcpus or vcpu_threads
        self.process = process
        # A guest that has panicked may hang instead of ending, so QEMU is killed: callers of its agent know at once.
        self.console = Console(config.name, wires.console.detach(), process.kill)
        assert process.stderr is not None
        self._stderr = Console(f"{config.name}-qemu", os.dup(process.stderr.fileno()))
        process.stderr.close()
        self.agent = Agent(f"{config.name} guest", wires.agent)
        self.vcpu_threads: list[int] = []

    @classmethod
    def start(cls, config: GuestConfig, kernel: Kernel, image: Path, accelerator: str, session: Session) -> Guest:
        """Start QEMU. The guest is ready after `wait_booted`; these are two steps, so that several guests can boot at
        once."""
        with contextlib.ExitStack() as until_started:
            wires = Wires.open(config, session.namespace, until_started)
            files = [opened(file, until_started) for file in (kernel_image(kernel), image)]
            command = _command(config, files, accelerator, session.directory, wires)
            if session.namespace:
                command = ["nsenter", f"--net=/run/netns/{session.namespace}", "--", *command]
            return cls(config, started(command, wires, files, session), wires)

    def wait_booted(self, timeout: float = BOOT_SECONDS) -> None:
        """Wait until the agent answers, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.agent.ready(1)
                break
            except RunFailed:
                if self.died():
                    what = f"the {self.config.name} guest ended at boot: {self.cause_of_death()}"
                    raise (GuestDied if self.console.panicked else MissingSupport)(what) from None
                if time.monotonic() > deadline:
                    raise MissingSupport(
                        f"the {self.config.name} guest did not boot within {timeout:g} s; "
                        f"its console: {self.cause_of_death()}"
                    ) from None
        self.vcpu_threads = self._find_vcpus(self.process.pid)
        if len(self.vcpu_threads) != self.config.vcpus:
            raise MissingSupport(
                f"of the {self.config.vcpus} vCPUs of the {self.config.name} guest QEMU gives "
                f"{len(self.vcpu_threads)} a thread, so that not each can be held; give 1 vCPU"
            )

    def died(self) -> bool:
        """Return whether the guest's kernel has panicked or its QEMU has ended. A QEMU that is about to end gets a
        second for that."""
        if not self.console.panicked and not self.agent.is_lost:
            return self.process.poll() is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
            for printed in (self._stderr, self.console):  # its last words say why
                printed.read_rest(1)
        return self.console.panicked or self.process.poll() is not None

    def cause_of_death(self) -> str:
        """Return the lines that best explain why the guest died: of QEMU's errors, else of the guest's console."""
        return error_lines(self._stderr.text) or error_lines(self.console.text) or "it printed nothing"

    def threads(self) -> list[int]:
        """Return every thread of this guest's process, including the vCPUs'."""
        return [int(task.name) for task in Path(f"/proc/{self.process.pid}/task").iterdir()]

    def stop(self) -> None:
        """Kill the guest."""
        # An orderly shutdown would save nothing, since the guest's disk is memory.
        self.process.kill()
        self.process.wait()
        self.agent.close()
        self.console.close()
        self._stderr.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def started(
    command: list[str], wires: Wires, files: list[int], session: Session, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a guest's process, which inherits its ends of the wires and these files, and which the session ends. If one
    of the programs by which it is started is not installed, refuse."""
    command = ["nice", "-n", str(int(NICE) - os.nice(0)), *command]  # `nice` adds to ours
    for program, package in PROGRAMS.items():
        if program in command and shutil.which(program) is None:
            wires.close()
            raise MissingSupport(f"{program} is not installed; run `make setup` or `apt-get install {package}`")
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        pass_fds=[*wires.theirs, *files], start_new_session=True, env=environment,
    )  # fmt: skip
    session.record_process(process.pid)
    cpus.weigh_session(process.pid, NICE)
    return process


@dataclass(frozen=True)
class Wires:
    """Our ends of the sockets to a guest's agent and console, and the descriptors for QEMU: its ends, and its tap."""

    agent: socket.socket
    console: socket.socket
    theirs: tuple[int, ...]

    @classmethod
    def open(cls, config: GuestConfig, namespace: str, until_started: contextlib.ExitStack) -> Wires:
        """Open them; the tap is in `namespace`. `until_started` closes our copies of QEMU's descriptors once QEMU has
        inherited them."""
        agent, agents = socket.socketpair()
        console, consoles = socket.socketpair()
        theirs = [until_started.enter_context(end).fileno() for end in (agents, consoles)]
        if config.tap:
            theirs.append(_tap(config.tap, namespace))
            until_started.callback(os.close, theirs[-1])
        return cls(agent, console, tuple(theirs))

    def close(self) -> None:
        """Close our ends."""
        self.agent.close()
        self.console.close()


def _tap(name: str, namespace: str) -> int:
    """Return a descriptor of a tap in the session's namespace."""

    def attach() -> int:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        request = struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR)
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        return descriptor

    def enter_and_attach() -> int:
        with Path("/run/netns", namespace).open("rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return attach()

    # A thread of its own, because a thread, not a process, enters a namespace.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(enter_and_attach).result()


def opened(file: Path, until_started: contextlib.ExitStack) -> int:
    """Return a descriptor from which QEMU, as nobody, can read the file: of the file itself if everybody may read it,
    else of a copy in memory."""
    with contextlib.ExitStack() as stack:
        original = stack.enter_context(file.open("rb"))
        if os.fstat(original.fileno()).st_mode & stat.S_IROTH:
            until_started.enter_context(stack.pop_all())
            return original.fileno()
        copy = until_started.enter_context(os.fdopen(os.memfd_create(file.name), "wb"))
        shutil.copyfileobj(original, copy)
        copy.flush()
        return copy.fileno()


def _command(config: GuestConfig, files: list[int], accelerator: str, directory: Path, wires: Wires) -> list[str]:
    name, (kernel, initrd) = config.name, files
    agent, console, *tap = wires.theirs
    device = f"virtio-net-pci,netdev=wire,mac={config.mac},rx_queue_size=1024,tx_queue_size=256,romfile="
    if not config.receives_super_packets:
        # The host then segments for this guest, so tbf and its buffer get the packets that a wire would carry.
        device += ",guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,mrg_rxbuf=off"
    network = [word for fd in tap for word in ("-device", device, "-netdev", f"tap,id=wire,fd={fd},vhost=off")]
    command = [
        QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", *_sandbox(accelerator),
        "-name", f"brobust-{name},debug-threads=on",
        "-machine", f"q35,accel={accelerator},usb=off,vmport=off",
        "-cpu", "max" if accelerator == "tcg" else "host",
        "-smp", str(config.vcpus), "-m", str(config.memory_mb),
        "-kernel", f"/proc/self/fd/{kernel}", "-initrd", f"/proc/self/fd/{initrd}",
        # This names the session, so that crates/host can find a QEMU that a killed brobust left behind.
        "-fw_cfg", f"name=opt/brobust/session,string={directory}/{name}",
        # With panic=-1 and -no-reboot a guest that panics ends. An oops is fatal, too, since it has killed a task.
        "-append", "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nowatchdog net.ifnames=0 "
                   "random.trust_cpu=on no_timer_check cryptomgr.notests",
        "-chardev", f"socket,id=console,fd={console}", "-serial", "chardev:console",
        "-chardev", f"socket,id=agent,fd={agent}",
        "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=brobust",
        *network,
    ]  # fmt: skip
    return as_nobody(accelerator, command)


def as_nobody(accelerator: str, command: list[str]) -> list[str]:
    """Return the command such that it has no privilege, and ends with us. The order matters, because a change of user
    clears the signal that the kernel sends when we end (prctl(2))."""
    # If only a group may use KVM, QEMU gets that group.
    group = Path("/dev/kvm").stat().st_gid if accelerator == "kvm" else 0
    groups = ["--groups", str(group)] if group else ["--clear-groups"]
    return [
        "setpriv", f"--reuid={USER}", f"--regid={_group()}", *groups, "--no-new-privs", "--inh-caps=-all",
        "--bounding-set=-all", "--",
        *killed_with_parent(command),
    ]  # fmt: skip


def _group() -> int:
    return pwd.getpwnam(USER).pw_gid


@cache
def _sandbox(accelerator: str) -> list[str]:
    """Return the option for QEMU's seccomp filter, if QEMU was built with it.

    Without KVM the filter is off: it would take 5 % of a CPU from every guest (measured 2026-11-22, AMD EPYC, host
    6.18), which the path guest cannot spare, and QEMU has no privilege that the filter would guard."""
    if accelerator == "tcg":
        return []
    with contextlib.suppress(OSError):
        if subprocess.run([QEMU, "-sandbox", SANDBOX, "-version"], capture_output=True, check=False).returncode == 0:
            return ["-sandbox", SANDBOX]
    return []


def error_lines(text: str) -> str:
    """Return the lines of a QEMU's or a kernel's output that say what went wrong: a kernel's bug and its place, else
    the last line with an error, else the last line."""
    lines = [re.sub(r"^\[ *[\d.]+\] *", "", line.strip()) for line in text.splitlines() if line.strip()]
    bug = [line for line in lines if re.search(r"BUG:|Oops|general protection|RIP: 0010:", line)]
    panics = [line for line in lines if "Kernel panic" in line]
    # QEMU prints registers after the line that matters.
    errors = [line for line in lines if "error" in line.lower()]
    last = panics[:1] or (errors or lines)[-1:]
    return printable("; ".join(line[:200] for line in dict.fromkeys(bug[:3] + last)))


def vcpu_threads(pid: int) -> list[int]:
    """Return the threads of a QEMU's vCPUs, by number. It names them so because of debug-threads=on."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if named := re.fullmatch(r"CPU (\d+)/[A-Za-z]+|ALL CPUs/TCG", (task / "comm").read_text().strip()):
                found.append((int(named[1] or 0), int(task.name)))
    if not found:
        raise MissingSupport(f"QEMU (process {pid}) has no thread with a vCPU's name")
    return [thread for _, thread in sorted(found)]
