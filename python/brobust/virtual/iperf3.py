"""Run iperf3 in virtual kernels (traffic = "iperf3"), as a check on our own source and sink.

The initial RAM disk holds iperf3, its libraries and the two devices that they open; the kernel itself starts the
programs (programs.c). For the same iperf3 the RAM disk is the same, byte for byte.
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
    """Refuse in one line if iperf3 cannot run in virtual kernels here."""
    if (reason := why_no_ptrace()) is not None:
        raise MissingSupport(
            f"traffic: iperf3 runs in a virtual kernel only if that may use ptrace ({reason}); give traffic brobust, "
            "which does not need it, or see `brobust doctor`"
        )
    ramdisk()


@cache
def version() -> str:
    """Return iperf3's version, such as `3.12`."""
    program = programs.find_program("iperf3", "iperf3")
    return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]


@cache
def ramdisk() -> Path:
    """Return the initial RAM disk, and make it first if the cache does not have it."""
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
    """Return a cpio archive that the kernel can unpack (Documentation/driver-api/early-userspace/buffer-format.rst).

    It holds no dates, owners or anything else that differs between machines. It holds devices, which cpio(1) could pack
    only as root.
    """
    parents = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    members = [(name, stat.S_IFDIR | 0o755, b"", (0, 0)) for name in sorted({*DIRECTORIES, *parents})]
    members += [(name, stat.S_IFCHR | 0o666, b"", numbers) for name, numbers in DEVICES.items()]
    members += [(name, stat.S_IFREG | 0o755, content, (0, 0)) for name, content in sorted(files.items())]
    members.append(("TRAILER!!!", 0, b"", (0, 0)))
    return b"".join(_member(number, *member) for number, member in enumerate(members, start=1))


def _member(number: int, name: str, mode: int, content: bytes, device: tuple[int, int]) -> bytes:
    # inode, mode, uid, gid, links, mtime, size, the device it lies on (2), the device it is (2), name length, checksum
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(header) + _padded(content)


def _padded(block: bytes) -> bytes:
    return block + b"\0" * (-len(block) % 4)


# The child asks to be traced and stops; we let it continue to its next system call, as User-Mode Linux does.
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
    """Return why the host does not let a virtual kernel run programs; None if it does."""
    # With -c but without -I, Python would import modules from the current directory first.
    probe = subprocess.run([sys.executable, "-I", "-c", _PTRACE_PROBE], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else (probe.stderr.strip().splitlines() or ["no message"])[-1]
