"""Kernels for the workers of a cluster: packed where a series is asked for, unpacked by hash where runs are measured.

So a worker needs brobust, but no kernel of its own, and measures with the very kernel that the user has named.
"""

import hashlib
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from brobust.errors import MissingSupport
from brobust.host.cache import cache_directory, put_in_place, scratch_beside
from brobust.host.locks import private_directory, refuse_foreign_to_root
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.virtual import VirtualKernel


@dataclass(frozen=True)
class Packed:
    hash: str
    facts: bytes = field(compare=False)
    executable: bytes = field(compare=False)


def packed(name: str) -> Packed:
    kernel = virtual_kernels.find(name)
    facts, executable = (kernel.path.parent / "kernel.json").read_bytes(), kernel.path.read_bytes()
    return Packed(_hash(facts, executable), facts, zlib.compress(executable, 6))


def unpacked(sent: Packed) -> VirtualKernel:
    """Return the kernel that was sent; it is written into the cache unless it is there."""
    directory = cache_directory() / "sent" / sent.hash
    if not _is_whole(directory, sent.hash):
        executable = zlib.decompress(sent.executable)
        if _hash(sent.facts, executable) != sent.hash:
            raise MissingSupport("kernel: what was sent is damaged; repeat the command")
        private_directory(directory.parent)
        refuse_foreign_to_root(directory.parent, cache_directory())
        with scratch_beside(directory) as scratch:
            whole = scratch / "kernel"
            whole.mkdir(mode=0o755)
            (whole / "linux").write_bytes(executable)
            (whole / "linux").chmod(0o755)
            (whole / "kernel.json").write_bytes(sent.facts)
            put_in_place(whole, directory)  # perhaps another worker of this host has just done the same
    kernel = VirtualKernel.read(directory)
    assert kernel is not None
    virtual_kernels.check_executable(kernel)
    return kernel


def _is_whole(directory: Path, hash: str) -> bool:
    """Return whether a directory has the kernel with this hash, and not what a power cut has left of it."""
    try:
        return _hash((directory / "kernel.json").read_bytes(), (directory / "linux").read_bytes()) == hash
    except OSError:
        return False


def _hash(facts: bytes, executable: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(facts).digest() + hashlib.sha256(executable).digest()).hexdigest()[:16]
