"""What guests boot faster than a bzImage: the executable in it."""

import gzip
import lzma
import os
import struct
import subprocess
from pathlib import Path

import pytest

from brobust.errors import BadInput
from brobust.kernels import compression
from brobust.kernels.vm import Kernel
from brobust.testbed import image

SIZE_APPENDED = b"\0\0\0\1"  # by the kernel's build, except after gzip


def _zstd(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


def _elf(note: bytes) -> bytes:
    """An ELF file with one segment, of notes."""
    header = b"\x7fELF\x02\x01".ljust(32, b"\0") + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 1)
    segment = struct.pack("<II4Q", 4, 4, 120, 0, 0, len(note))
    return header.ljust(64, b"\0") + segment.ljust(56, b"\0") + note


ENTRY = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", 0x1000000)
ANOTHER = struct.pack("<III4sI", 4, 4, 3, b"GNU\0", 0)


def _bz_image(payload: bytes, version: int = 0x20F) -> bytes:
    setup = bytearray(1024)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, version)
    struct.pack_into("<II", setup, 0x248, 16, len(payload))
    return bytes(setup) + bytes(16) + payload + b"what follows"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, _zstd, bytes])
def test_modules_are_uncompressed_however_they_are_compressed(compress: object) -> None:
    assert callable(compress)
    assert compression.uncompressed(compress(b"a module")) == b"a module"


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, _zstd, lambda _: b""])
def test_half_of_a_module_is_refused(compress: object) -> None:
    assert callable(compress)
    half = compress(b"a module")[:-9]
    with pytest.raises(BadInput, match="one of its modules is cut off or damaged"):
        compression.uncompressed(half)


def test_a_kernel_that_says_where_to_enter_it_is_taken_out_of_its_image() -> None:
    kernel = _elf(ENTRY)
    assert compression.executable(_bz_image(gzip.compress(kernel))) == kernel
    assert compression.executable(_bz_image(lzma.compress(kernel) + SIZE_APPENDED)) == kernel
    assert compression.executable(_bz_image(_zstd(kernel) + SIZE_APPENDED)) == kernel


def test_any_other_image_is_booted_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _bz_image(gzip.compress(_elf(ENTRY)))
    others = {
        "without the note": _bz_image(gzip.compress(_elf(ANOTHER))),
        "no ELF": _bz_image(gzip.compress(b"a kernel")),
        "compressed by what we do not know": _bz_image(b"\x02!L\x18" + bytes(100)),
        "old": _bz_image(gzip.compress(_elf(ENTRY)), 0x207),
        "cut off": whole[:1060],
        "broken": whole.replace(b"\x1f\x8b\x08", b"\x1f\x8b\xff"),
        "empty": b"",
    }
    assert {name: compression.executable(one) for name, one in others.items()} == dict.fromkeys(others)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "modules.dep").touch()
    kernel = Kernel("mine", tmp_path / "bzImage", tmp_path)
    kernel.image.write_bytes(others["old"])
    assert image.kernel_image(kernel) == kernel.image
    kernel.image.write_bytes(whole)
    unpacked = image.kernel_image(kernel)
    assert unpacked.read_bytes() == _elf(ENTRY)
    os.utime(unpacked, (1, 1))
    assert image.kernel_image(kernel) == unpacked and unpacked.stat().st_mtime > 1, "it is used"
