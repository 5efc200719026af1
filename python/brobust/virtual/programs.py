"""Put programs into virtual kernels: what a scenario's [programs] names, with its libraries and files, becomes an
initial RAM disk, from which the kernel starts the programs (programs.c).

For the same files the RAM disk is the same, byte for byte.
"""

import hashlib
import itertools
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from brobust import quic, units
from brobust.errors import BadInput, MissingSupport, last_line
from brobust.files import read
from brobust.host import libraries
from brobust.scenario.tables import PLACEHOLDERS

DIRECTORIES = ("bin", "dev", "dev/shm", "etc", "lib", "proc", "root", "sys", "tmp")
DEVICES = {
    "dev/null": (1, 3), "dev/zero": (1, 5), "dev/full": (1, 7), "dev/random": (1, 8), "dev/urandom": (1, 9),
}  # fmt: skip
# Programs expect names for users and hosts; nothing is looked up in a network that is not there.
TEXTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": b"root:x:0:\n",
    "etc/hosts": b"127.0.0.1 localhost\n",
    "etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}
# Where distributions put servers, and what PATH of a user who is not root does not have.
OF_SERVERS = "/usr/local/sbin:/usr/sbin:/sbin"
LIBRARIES = "lib/programs"
# Ours: a client for servers, and what looks whether programs listen (crates/client).
CLIENT = Path(__file__).parent / "bin/brobust-client"
WATCHER = (f"/bin/{CLIENT.name}", "listens")
# The last one tells BoringSSL and AWS-LC, in their form, that the CPU has no RDRAND: its numbers come from no seed.
NO_RDRAND = "OPENSSL_ia32cap=~0x4000000000000000"
ENVIRONMENT = ("PATH=/bin", "HOME=/root", "TMPDIR=/tmp", f"LD_LIBRARY_PATH=/{LIBRARIES}", NO_RDRAND)
# Half of a kernel's memory holds all files, those that programs write too.
MAX_BYTES = 256 << 20
MAX_FILES = 10_000


@dataclass(frozen=True)
class Commands:
    """The programs of a scenario: their words, the first of which is a path on the RAM disk, and that disk."""

    sender: tuple[str, ...]
    receiver: tuple[str, ...]
    ramdisk: bytes
    hashes: Mapping[str, str]
    """SHA-256 of each program, by the first word."""
    files_sha256: str | None
    """SHA-256 of the given files' names and contents; None without any."""


def check_ptrace(what: str) -> None:
    """Refuse in one line if the host does not let virtual kernels run programs."""
    if (reason := why_no_ptrace()) is not None:
        raise MissingSupport(
            f"{what} in a virtual kernel only if that may use ptrace ({reason}); give kernel virtual-7.2 or traffic "
            "brobust, which do not need it, or see `brobust doctor`"
        )


def commands(sender: str, receiver: str, files: tuple[str, ...], *, watched: bool = False) -> Commands:
    """Return what runs at the two ends. `watched`: with the watcher. Refuse a program or a file that cannot."""
    watcher = (CLIENT.name,) if watched else ()
    used = [_found(shlex.split(command)[0]) for command in (sender, receiver, *watcher)]
    given = [*(Path(file) for file in used if file is not None), *(file for _, file in _given_files(files))]
    state = tuple((str(file.resolve()), file.stat().st_mtime_ns) for file in given)
    return _commands(sender, receiver, files, watcher, state, os.environ.get("LD_LIBRARY_PATH", ""))


@cache
def check_client(field: str, command: str, ip_version: int) -> None:
    """Refuse words that our own client would refuse in every run."""
    first, *words = shlex.split(command)
    if first != CLIENT.name:
        return
    address = "10.0.0.1" if ip_version == 4 else "2001:db8::1"
    for name in PLACEHOLDERS:
        value = address if name in ("receiver", "sender") else "5201" if name.endswith("port") else "1"
        words = [word.replace(f"{{{name}}}", value) for word in words]
    done = subprocess.run([CLIENT, "check", *words], capture_output=True, text=True, check=False)
    if done.returncode:  # clap's first paragraph says what is wrong, the others how the client is used
        said = " ".join(done.stderr.split("\n\n")[0].split())
        raise BadInput(f"{field}: {first}: {said.removeprefix('error: ').removeprefix(f'{first}: ')}")


def _found(first: str) -> str | None:
    """Return the file of a program: of ours, wherever the package is, or as a shell of root finds it."""
    if first == CLIENT.name:
        return shutil.which(first, path=str(CLIENT.parent))
    if first in quic.WEB:
        return quic.web_program(first)
    return shutil.which(first) or shutil.which(first, path=OF_SERVERS)


@lru_cache(maxsize=4)
def _commands(
    sender: str, receiver: str, files: tuple[str, ...], watcher: tuple[str, ...], *_state: object
) -> Commands:
    """Do what `commands` does. `_state`: what the result depends on besides; it is made again if that has changed."""
    packed: dict[str, Path] = {}
    words = [_packed("programs.sender", sender, packed), _packed("programs.receiver", receiver, packed)]
    for command in watcher:
        _packed("programs.waits", command, packed)
    given = dict(_given_files(files))
    for name, file in given.items():
        _pack("programs.files", name, file, packed)
    # A shell at one end may start several programs, such as a proxy and its server.
    for file in filter(_is_program, map(Path, files)):
        _pack_libraries("programs.files", file.resolve(), packed)
    content = dict(_contents(packed))
    hashes = {first: hashlib.sha256(content[first.lstrip("/")]).hexdigest() for first, *_ in words}
    executable = {name for name, file in packed.items() if os.access(file, os.X_OK)}
    return Commands(words[0], words[1], archive({**TEXTS, **content}, executable), hashes, _hash_of(content, given))


def _hash_of(content: Mapping[str, bytes], names: Collection[str]) -> str | None:
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(os.fsencode(name) + f"\0{len(content[name])}\0".encode() + content[name])
    return digest.hexdigest() if names else None


def _contents(packed: Mapping[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each file; refuse more than fits into the RAM disk, before it is read."""
    left = MAX_BYTES
    for name, file in packed.items():
        try:
            content = read(file, left)
        except BadInput as refusal:
            allowed = f"the programs and their files may have {units.show_size(MAX_BYTES)} together"
            raise BadInput(f"programs: {refusal}; {allowed}") from None
        left -= len(content)
        yield name, content


def _packed(field: str, command: str, packed: dict[str, Path]) -> tuple[str, ...]:
    """Add a command's program and its libraries, and return the command's words."""
    first, *rest = shlex.split(command)
    found = _found(first)
    if found is None and first == CLIENT.name:
        raise MissingSupport(f"{field}: brobust's own program {first} was not built; run `make setup`")
    if found is None and first in quic.WEB:
        how = f"brobust quic build {quic.WEB[first].name}"
        raise MissingSupport(f"{field}: {first} is not built, or of other files than are here now; run `{how}`")
    if found is None:
        what = "is not executable" if Path(first).is_file() else "was not found"
        where = f" in {_from_here()}" if "/" in first and not Path(first).exists() and first[0] != "/" else ""
        raise BadInput(f"{field}: the program {first!r} {what}{where}; give a path, or a name that is in PATH")
    program = Path(found).resolve()
    name = f"bin/{Path(first).name}"
    _pack(field, name, program, packed)
    _pack_libraries(field, program, packed)
    if not libraries.read(program).is_program:  # the kernel would start it, and it would end with SIGSEGV
        raise BadInput(f"{field}: {program} is a shared library; give a program for Linux on x86-64")
    return f"/{name}", *rest


def _is_program(file: Path) -> bool:
    if not file.is_file() or not os.access(file, os.X_OK):
        return False
    with file.open("rb") as content:
        return content.read(4) == b"\x7fELF"


def _pack_libraries(field: str, program: Path, packed: dict[str, Path]) -> None:
    try:
        needed = libraries.shared_libraries(program)
    except BadInput as refusal:
        with program.open("rb") as content:
            is_script = content.read(2) == b"#!"
        instead = ": its interpreter, with the script behind it and among files" if is_script else ""
        raise BadInput(f"{field}: {refusal}{instead}") from None
    for library, file in needed.items():
        _pack(field, library.lstrip("/") if "/" in library else f"{LIBRARIES}/{library}", file, packed)


def _pack(field: str, name: str, file: Path, packed: dict[str, Path]) -> None:
    other = packed.setdefault(name, file)
    if other != file and other.resolve() != file.resolve():
        raise BadInput(f"{field}: {file} and {other} would both be /{name} for the programs; rename one of them")


def _given_files(files: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield the given files, and those in given directories, with the names that they have for the programs: programs
    start in /, so a relative path is the same there. Refuse directories with more than a RAM disk is made of."""
    seen = itertools.count(1)
    for given in files:
        path = Path(given)
        if not path.name:
            all_of = "this machine" if path.is_absolute() else "this directory"
            raise BadInput(f"programs.files: {given!r} is all of {all_of}; name what the programs read of it")
        if ".." in path.parts:
            raise BadInput(f"programs.files: {given!r} is not below this directory; give it as an absolute path")
        if not path.exists():
            where = "" if path.is_absolute() else f" in {_from_here()}"
            raise BadInput(f"programs.files: {given!r} does not exist{where}")
        if not path.is_dir() and not path.is_file():
            raise BadInput(f"programs.files: {given!r} is neither a file nor a directory")
        for file in sorted(_below(path, seen)) if path.is_dir() else [path]:
            if file.is_file():
                if not os.access(file, os.R_OK):
                    raise BadInput(f"programs.files: {str(file)!r} cannot be read")
                yield str(file).lstrip("/"), file


def _from_here() -> str:
    return f"{Path.cwd()}, from where this command was started"


def _below(directory: Path, seen: Iterator[int]) -> Iterator[Path]:
    for above, directories, names in os.walk(directory):
        for name in (*directories, *names):
            if next(seen) > MAX_FILES:
                raise BadInput(f"programs.files: {str(directory)!r} has more than {MAX_FILES} files; give fewer")
            yield Path(above, name)


def archive(files: Mapping[str, bytes], executable: set[str]) -> bytes:
    """Return a cpio archive that the kernel can unpack (Documentation/driver-api/early-userspace/buffer-format.rst).

    It holds no dates, owners or anything else that differs between machines. It holds devices, which cpio(1) could pack
    only as root.
    """
    parents = {str(parent) for name in files for parent in Path(name).parents} - {"."}
    members = [(name, stat.S_IFDIR | 0o755, b"", (0, 0)) for name in sorted({*DIRECTORIES, *parents})]
    members += [(name, stat.S_IFCHR | 0o666, b"", numbers) for name, numbers in DEVICES.items()]
    for name, content in sorted(files.items()):
        mode = 0o755 if name in executable or name.startswith(LIBRARIES) else 0o644
        members.append((name, stat.S_IFREG | mode, content, (0, 0)))
    members.append(("TRAILER!!!", 0, b"", (0, 0)))
    return b"".join(_member(number, *member) for number, member in enumerate(members, start=1))


def _member(number: int, name: str, mode: int, content: bytes, device: tuple[int, int]) -> bytes:
    encoded = os.fsencode(name) + b"\0"
    # inode, mode, uid, gid, links, mtime, size, the device it lies on (2), the device it is (2), name length in bytes,
    # checksum
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
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
    return None if probe.returncode == 0 else last_line(probe.stderr)
