"""iperf3 in the user space of kernels in virtual time: traffic = "iperf3", the check on our own source and sink.

The initial RAM disk holds iperf3, its libraries and the two devices they open; the kernel starts the programs itself
(programs.c). It is the same, byte for byte, for the same iperf3.
"""

from __future__ import annotations

import hashlib
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

from brobust import files
from brobust.errors import MissingSupport
from brobust.host import programs
from brobust.host.cache import cache_directory

DIRECTORIES = ("bin", "dev", "tmp")
DEVICES = {"dev/null": (1, 3), "dev/urandom": (1, 9)}


def check() -> None:
    """Refuse in one line what would keep iperf3 from running here."""
    if (reason := why_no_ptrace()) is not None:
        raise MissingSupport(
            f"traffic: iperf3 needs user space, which a kernel in virtual time gets by ptrace: {reason}; "
            "give traffic brobust, which needs none, or see `brobust doctor`"
        )
    ramdisk()


@cache
def version() -> str:
    """`3.12`"""
    program = programs.find_program("iperf3", "iperf3")
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


@cache
def ramdisk() -> Path:
    """The initial RAM disk, from the cache if it is there."""
    program = programs.find_program("iperf3", "iperf3")
    packed = {"bin/iperf3": program}
    packed |= {str(library.relative_to("/")): library for library in programs.shared_libraries(program)}
    content = archive({name: file.read_bytes() for name, file in packed.items()})
    place = cache_directory() / "images" / f"iperf3-{hashlib.sha256(content).hexdigest()[:16]}.cpio"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        files.write(place, content)
    return place


def archive(files: dict[str, bytes]) -> bytes:
    """A cpio archive as the kernel unpacks it (Documentation/driver-api/early-userspace/buffer-format.rst): without
    dates, owners and whatever else differs from machine to machine, and with devices, which only root could pack."""
    parents = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    members = [(name, stat.S_IFDIR | 0o755, b"", (0, 0)) for name in sorted({*DIRECTORIES, *parents})]
    members += [(name, stat.S_IFCHR | 0o666, b"", numbers) for name, numbers in DEVICES.items()]
    members += [(name, stat.S_IFREG | 0o755, content, (0, 0)) for name, content in sorted(files.items())]
    members.append(("TRAILER!!!", 0, b"", (0, 0)))
    return b"".join(_member(number, *member) for number, member in enumerate(members, start=1))


def _member(number: int, name: str, mode: int, content: bytes, device: tuple[int, int]) -> bytes:
    # inode, mode, uid, gid, links, mtime, size, device (2), device it is (2), length of the name, checksum
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(header) + _padded(content)


def _padded(block: bytes) -> bytes:
    return block + b"\0" * (-len(block) % 4)


# A child asks to be traced and stops; we let it go on to its next system call, as User-Mode Linux does.
_PTRACE_PROBE = """
import ctypes, os, signal, sys
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
TRACEME, KILL, SYSEMU = 0, 8, 31
child = os.fork()
if child == 0:
    if ptrace(TRACEME, 0, None, None) != 0:
        os._exit(ctypes.get_errno())
    os.kill(os.getpid(), signal.SIGSTOP)
    os.getppid()
    os._exit(0)
_, status = os.waitpid(child, 0)
if os.WIFEXITED(status):
    sys.exit(f"PTRACE_TRACEME: {os.strerror(os.WEXITSTATUS(status))}")
worked = ptrace(SYSEMU, child, None, None) == 0
reason = os.strerror(ctypes.get_errno())
os.kill(child, signal.SIGKILL)
sys.exit(0 if worked else f"PTRACE_SYSEMU: {reason}")
"""


@cache
def why_no_ptrace() -> str | None:
    """What the host says to a kernel that wants to run programs; None if it lets it."""
    # -I: with -c alone, modules of the current directory come before Python's own.
    probe = subprocess.run([sys.executable, "-I", "-c", _PTRACE_PROBE], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else (probe.stderr.strip().splitlines() or ["no message"])[-1]
