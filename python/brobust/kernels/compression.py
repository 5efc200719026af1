"""Uncompress modules, and the executable that a bzImage holds.

A bzImage is a small program that uncompresses the kernel, which an emulated CPU is slow at. QEMU can start the
executable itself if the kernel was built with CONFIG_PVH, as Debian's are. Sources: Documentation/arch/x86/boot.rst
(the header), include/xen/interface/elfnote.h (the note).
"""

import gzip
import lzma
import struct
import subprocess
import zlib

from brobust.errors import BadInput

_GZIP, _XZ, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
_FIRST_WITH_PAYLOAD = 0x208  # the version of the boot protocol from which on the header says where the payload is
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, subprocess.CalledProcessError)
_PT_NOTE, _PHYS32_ENTRY = 4, 18


def uncompressed(module: bytes) -> bytes:
    """Return the content of a module that gzip, xz or zstd has compressed; of another one, as it is. Refuse one that is
    cut off: a guest would only say that it lacks it."""
    try:
        if module:
            return _uncompressed(module)
    except _DAMAGED:
        pass
    raise BadInput("kernel: one of its modules is cut off or damaged; install them again, or give another kernel")


def _uncompressed(data: bytes) -> bytes:
    if data.startswith(_GZIP):
        return gzip.decompress(data)
    if data.startswith(_XZ):
        return lzma.decompress(data)
    if data.startswith(_ZSTD):  # Python's standard library has zstd only from 3.14 on
        return subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=True).stdout
    return data


def executable(image: bytes) -> bytes | None:
    """Return the kernel that a bzImage holds, if QEMU can start it without the image."""
    try:
        found = _payload(image)
        return found if found is not None and _says_where_to_enter(found) else None
    except (struct.error, *_DAMAGED):
        return None  # QEMU says what is wrong with it


def _payload(image: bytes) -> bytes | None:
    if image[0x202:0x206] != b"HdrS" or struct.unpack_from("<H", image, 0x206)[0] < _FIRST_WITH_PAYLOAD:
        return None
    offset, size = struct.unpack_from("<II", image, 0x248)
    payload = image[(image[0x1F1] + 1) * 512 + offset :][:size]
    # The kernel's build appends the size, which gzip's own format ends with anyway.
    return _uncompressed(payload if payload.startswith(_GZIP) else payload[:-4])


def _says_where_to_enter(kernel: bytes) -> bool:
    """Return whether an ELF file of 64 bits has the note that CONFIG_PVH adds."""
    if not kernel.startswith(b"\x7fELF\x02\x01"):
        return False
    (headers,) = struct.unpack_from("<Q", kernel, 32)
    size, count = struct.unpack_from("<HH", kernel, 54)
    note = struct.pack("<I", _PHYS32_ENTRY) + b"Xen\0"
    for at in range(headers, headers + size * count, size):
        (kind,) = struct.unpack_from("<I", kernel, at)
        offset, _, _, length = struct.unpack_from("<QQQQ", kernel, at + 8)
        if kind == _PT_NOTE and note in kernel[offset : offset + length]:
            return True
    return False
