"""Run a guest without emulation: a kernel for virtual time as an ordinary process in real time (User-Mode Linux).

The kernel is one thread of the host: what takes a thread's CPU away takes it from this kernel as it would from a vCPU.
It has the host's clock and user space (by ptrace, a process of the host for each of its own), and its eth0 is a socket
whose other end is the other guest's eth0 (kernel/real-time/tree/arch/um/wire/wire.c).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from brobust.host.session import Session
from brobust.kernels.virtual import VirtualKernel
from brobust.testbed.qemu import Guest, GuestConfig, Wires, as_nobody, opened, started

# The kernel has no ring of descriptors: what a guest without a CPU has not read yet waits in the socket. Some 20 000
# packets of full size, since the host's kernel counts their buffers as well.
WIRE_BYTES = 64 << 20
# The kernel's user space runs in copies of its process that lack the C library's memory. If the library had registered
# its rseq area there, the host would kill them at their first page fault.
TUNABLES = "glibc.pthread.rseq=0"
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33  # include/uapi/asm-generic/socket.h


@contextlib.contextmanager
def wire() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the two ends of a wire between two guests. They inherit them; ours are closed afterwards."""
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)]
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, WIRE_BYTES)
            end.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, WIRE_BYTES)
        yield ends[0], ends[1]


def start(
    config: GuestConfig,
    kernel: VirtualKernel,
    image: Path,
    end: socket.socket,
    session: Session,
    on: Collection[int],
    parameters: Sequence[str] = (),
) -> Guest:
    """Start a guest on these CPUs; it is ready after `wait_booted`. `end`: of its wire. `parameters`: of the kernel's
    command line; with `brobust_busy=1` it keeps its CPU busy at the lowest priority when it has nothing to do."""
    with contextlib.ExitStack() as until_started:
        wires = Wires.open(config, session.namespace, until_started)
        files = [opened(file, until_started) for file in (kernel.path, image)]
        command = _command(config, files, wires, end.fileno(), f"{session.directory}/{config.name}")
        command += parameters
        # The processes of the kernel's user space are its children, and inherit its CPUs.
        pinned = ["taskset", "-c", ",".join(map(str, sorted(on))), *as_nobody("uml", command)]
        environment = {**os.environ, "GLIBC_TUNABLES": TUNABLES}
        process = started(pinned, wires, [*files, end.fileno()], session, environment)
    return Guest(config, process, wires, lambda pid: [pid])


def _command(config: GuestConfig, files: Sequence[int], wires: Wires, end: int, name: str) -> list[str]:
    kernel, initrd = files
    agent, console = wires.theirs
    os.set_inheritable(end, True)
    return [
        f"/proc/self/fd/{kernel}", f"mem={config.memory_mb}M", f"initrd=/proc/self/fd/{initrd}",
        f"brobust_wire={end}", f"con0=null,fd:{console}", f"con1=fd:{agent}", "con=null", "console=tty0",
        # init.sh reads `port`, and crates/host finds a kernel that a killed brobust left behind by `session`.
        "quiet", "oops=panic", "port=/dev/tty1", f"session={name}",
    ]  # fmt: skip
