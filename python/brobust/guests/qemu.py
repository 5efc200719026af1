"""One guest: a QEMU process with a vCPU, a tap, an agent, and QMP to find the vCPU's thread."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qemu.qmp import QMPClient, QMPError

from brobust.errors import MissingSupport, RunFailed
from brobust.guests.agent import Agent
from brobust.guests.kernels import Kernel
from brobust.host import cpus
from brobust.host.session import Session

QEMU = "qemu-system-x86_64"
BOOT_SECONDS = 60.0
# A guest goes before whatever else the host does: an undisturbed sender is to be undisturbed.
NICE = "-15"


@dataclass(frozen=True)
class Machine:
    """What distinguishes one guest from another."""

    name: str
    tap: str
    mac: str
    memory_mb: int = 384
    vcpus: int = 1
    # Super-packets may enter only a guest that queues none of them: a bottleneck counts real packets.
    receives_super_packets: bool = True


class Guest:
    """A running guest. A context manager; leaving it kills the guest."""

    def __init__(self, machine: Machine, process: subprocess.Popen[bytes], directory: Path):
        self.machine = machine
        self.process = process
        self._directory = directory
        self.agent: Agent
        self.vcpu_threads: list[int] = []

    @classmethod
    def start(cls, machine: Machine, kernel: Kernel, image: Path, accelerator: str, session: Session) -> Guest:
        """Start QEMU. The guest is of use after `wait_booted`, so that several can boot at once."""
        directory = session.directory
        for stale in directory.glob(f"{machine.name}.*"):  # of an earlier guest of this session
            stale.unlink()
        log = (directory / f"{machine.name}.qemu").open("wb")
        command = _command(machine, kernel, image, accelerator, directory)
        if session.namespace:
            command = ["nsenter", f"--net=/run/netns/{session.namespace}", "--", *command]
        try:
            # pdeathsig: a guest must not outlive a brobust that was killed with -9.
            process = subprocess.Popen(
                ["nice", "-n", NICE, "setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            raise MissingSupport("setpriv is not installed; run `make setup`") from None
        finally:
            log.close()
        session.name_process(process.pid)
        cpus.weigh_session(process.pid, NICE)
        return cls(machine, process, directory)

    def wait_booted(self, timeout: float = BOOT_SECONDS) -> None:
        """Wait until the agent answers, at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        path = self._directory / f"{self.machine.name}.agent"
        while True:
            try:
                self.agent = Agent(self.machine.name, path)
                break
            except (FileNotFoundError, ConnectionRefusedError):  # QEMU has not come that far
                self._check_alive()
                if time.monotonic() > deadline:
                    raise MissingSupport(f"{QEMU} did not start within {timeout:g} s") from None
                time.sleep(0.01)
        while True:
            try:
                self.agent.ready(1)
                break
            except RunFailed:
                self._check_alive()
                if time.monotonic() > deadline:
                    raise MissingSupport(
                        f"the {self.machine.name} guest did not boot within {timeout:g} s; "
                        f"its last words: {self.last_words()}"
                    ) from None
        self.vcpu_threads = [cpu["thread-id"] for cpu in self.qmp("query-cpus-fast")]

    def _check_alive(self) -> None:
        if self.process.poll() is not None:
            raise MissingSupport(f"the {self.machine.name} guest ended at boot: {self.last_words()}")

    def last_words(self) -> str:
        """What tells most of QEMU's own complaints, else of the guest's console."""
        for kind in ("qemu", "console"):
            with contextlib.suppress(OSError):
                if words := telling((self._directory / f"{self.machine.name}.{kind}").read_text(errors="replace")):
                    return words
        return "none"

    def qmp(self, command: str, **arguments: Any) -> Any:
        """One QMP command and its answer."""

        async def ask() -> Any:
            client = QMPClient(self.machine.name)
            await client.connect(str(self._directory / f"{self.machine.name}.qmp"))
            try:
                return await client.execute(command, arguments)
            finally:
                await client.disconnect()

        try:
            return asyncio.run(ask())
        except (QMPError, OSError) as error:
            raise RunFailed(f"{self.machine.name} guest: QMP {command} failed: {error}") from None

    def threads(self) -> list[int]:
        """Every thread of this guest's QEMU, the vCPUs' among them."""
        return [int(task.name) for task in Path(f"/proc/{self.process.pid}/task").iterdir()]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        # Nothing in a guest is worth an orderly shutdown: its disk is memory.
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(AttributeError):
            self.agent.close()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _command(machine: Machine, kernel: Kernel, image: Path, accelerator: str, directory: Path) -> list[str]:
    name = machine.name
    device = f"virtio-net-pci,netdev=wire,mac={machine.mac},rx_queue_size=1024,tx_queue_size=256,romfile="
    if not machine.receives_super_packets:
        # The host then segments for this guest, so tbf and its buffer see what a wire would carry.
        device += ",guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,mrg_rxbuf=off"
    network = [
        "-device",
        device,
        "-netdev",
        f"tap,id=wire,ifname={machine.tap},script=no,downscript=no,vhost=off",
    ]
    return [
        QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-name", f"brobust-{name},debug-threads=on",
        "-machine", f"q35,accel={accelerator},usb=off,vmport=off",
        "-cpu", "max" if accelerator == "tcg" else "host",
        "-smp", str(machine.vcpus), "-m", str(machine.memory_mb),
        "-kernel", str(kernel.image), "-initrd", str(image),
        # panic=-1 with -no-reboot: a guest that panics ends, and is seen to have ended.
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog net.ifnames=0 random.trust_cpu=on",
        "-serial", f"file:{directory}/{name}.console",
        "-qmp", f"unix:{directory}/{name}.qmp,server=on,wait=off",
        "-chardev", f"socket,id=agent,path={directory}/{name}.agent,server=on,wait=off",
        "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=brobust",
        *(network if machine.tap else []),
    ]  # fmt: skip


def telling(text: str) -> str:
    """Of what a QEMU or a kernel left behind: a kernel's bug and where it was, or the last line with an error in it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bug = [line for line in lines if re.search(r"BUG:|Oops|general protection|RIP:", line)]
    # QEMU dumps registers after the sentence that matters.
    errors = [line for line in lines if "error" in line.lower() or "panic" in line.lower()]
    last = (errors or lines)[-1:]
    return "; ".join(line[:200] for line in dict.fromkeys(bug[:3] + last))
