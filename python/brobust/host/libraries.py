"""Find the libraries of a program as the dynamic linker would, by reading: nothing of the program is executed."""

import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brobust.errors import BadInput, reason

# Where glibc and musl look on x86-64, whatever the configuration says, in Debian's, Fedora's and Alpine's order.
DEFAULT_DIRECTORIES = (
    "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib",
)  # fmt: skip
CONFIGURATION = "/etc/ld.so.conf"
# Linkers write some 15 segments and 30 tags; a header may say that there are four thousand million.
MAX_SEGMENTS, MAX_TAGS = 1000, 10_000
# glibc loads it when a thread ends early, and no header names it.
LOADED_LATER = {"libc.so.6": "libgcc_s.so.1"}


@dataclass(frozen=True)
class Elf:
    """What the headers of an x86-64 program or library say of where it starts, and of others that it needs."""

    entry: int
    """Address at which it starts; 0: at none."""
    interpreter: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]

    @property
    def is_program(self) -> bool:
        """Return whether the kernel can start it. Without a dynamic linker, what needs libraries would miss them, and
        what has no address to start at is a library itself."""
        return self.interpreter is not None or (self.entry != 0 and not self.needed)


def shared_libraries(program: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the dynamic linker and the libraries that a program needs, by the names under which it looks for them: a
    path for the linker, a name for a library. None for a static program. Refuse what is not an x86-64 program, and a
    library that is not here."""
    first = read(program)
    if first.interpreter is None:
        return {}
    found = {first.interpreter: Path(first.interpreter).resolve()}
    if not found[first.interpreter].is_file():
        raise BadInput(f"{program}: its dynamic linker {first.interpreter} is not installed; link it statically")
    read(found[first.interpreter])  # a header may name any file of the host, which is no reason to hand it over
    of_environment = [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part]
    nothing: tuple[Path, ...] = ()
    waiting = [(program, first, nothing)]
    while waiting:
        file, elf, inherited = waiting.pop(0)
        rpath = () if elf.runpath else (*_directories(elf.rpath, file), *inherited)
        search = [*rpath, *of_environment, *_directories(elf.runpath, file), *_system_directories()]
        later = [LOADED_LATER[name] for name in elf.needed if name in LOADED_LATER]
        for name in (*elf.needed, *later):
            if name in found or name == Path(first.interpreter).name:
                continue
            place = Path(name) if "/" in name else _found(name, search)
            if place is None and name in later:
                continue
            if place is None or not place.is_file():
                raise BadInput(
                    f"{program}: it needs the library {name}, which is not here; install it, or give its directory in "
                    "LD_LIBRARY_PATH"
                )
            found[name] = place
            waiting.append((place, read(place), rpath))
    return found


def read(file: Path) -> Elf:
    """Return what the headers of a program or library say; refuse what is not one for x86-64."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSegment
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    try:
        with file.open("rb") as content:
            if (start := content.read(80))[:4] != b"\x7fELF":
                raise BadInput(f"{file} is {_kind(start)}; give a program for Linux on x86-64 (ELF)")
            content.seek(0)
            elf = ELFFile(content)
            if elf.elfclass != 64 or elf["e_machine"] != "EM_X86_64":
                machine = str(elf["e_machine"]).removeprefix("EM_")
                raise BadInput(
                    f"{file} is a program for {machine} of {elf.elfclass} bits; give one for Linux on x86-64 (64 bits)"
                )
            if elf["e_ident"]["EI_OSABI"] not in ("ELFOSABI_SYSV", "ELFOSABI_LINUX"):
                system = str(elf["e_ident"]["EI_OSABI"]).removeprefix("ELFOSABI_")
                raise BadInput(f"{file} is a program for {system}; give one for Linux on x86-64")
            if elf["e_type"] not in ("ET_EXEC", "ET_DYN"):
                raise BadInput(f"{file} is an object file or a dump; give a program for Linux on x86-64")
            interpreter, tags = None, []
            if (segments := elf.num_segments()) > MAX_SEGMENTS:
                raise BadInput(f"{file} has {segments} segments; give a program with at most {MAX_SEGMENTS}")
            for segment in elf.iter_segments():
                if isinstance(segment, InterpSegment):
                    interpreter = segment.get_interp_name()
                elif isinstance(segment, DynamicSegment):
                    tags = list(itertools.islice(segment.iter_tags(), MAX_TAGS))
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({reason(error)})") from None
    except (ELFError, ValueError, KeyError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise BadInput(f"{file} is a damaged program ({type(error).__name__} in its headers); build it again") from None

    def all_of(kind: str, name: str) -> tuple[str, ...]:
        return tuple(getattr(tag, name) for tag in tags if tag.entry.d_tag == kind)

    def paths(kind: str, name: str) -> tuple[str, ...]:
        return tuple(part for text in all_of(kind, name) for part in text.split(":") if part)

    needed, rpath, runpath = all_of("DT_NEEDED", "needed"), paths("DT_RPATH", "rpath"), paths("DT_RUNPATH", "runpath")
    return Elf(elf["e_entry"], interpreter, needed, rpath, runpath)


def _kind(start: bytes) -> str:
    if start.startswith(b"#!"):
        interpreter = start[2:].partition(b"\n")[0].decode(errors="replace").strip()
        return f"a script of {interpreter or 'nothing'}"
    return "empty" if not start else "no program"


def _directories(written: tuple[str, ...], file: Path) -> list[Path]:
    origin = str(file.resolve().parent)
    return [Path(path.replace("$ORIGIN", origin).replace("${ORIGIN}", origin)) for path in written]


def _found(name: str, search: list[Path]) -> Path | None:
    for directory in search:
        file = directory / name
        if file.is_file():
            try:
                read(file)
            except BadInput:  # of another machine: the linker goes on
                continue
            return file
    return None


@cache
def _system_directories() -> tuple[Path, ...]:
    configured = [Path(line) for line in _configured(CONFIGURATION, 0)]
    return tuple(dict.fromkeys([*configured, *map(Path, DEFAULT_DIRECTORIES)]))


def _configured(file: str, depth: int) -> Iterator[str]:
    try:
        lines = Path(file).read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in (line.split("#")[0].strip() for line in lines):
        if line.startswith("include ") and depth < 8:
            pattern = line.removeprefix("include ").strip().removeprefix("/etc/")
            for included in sorted(Path("/etc").glob(pattern)) if not pattern.startswith("/") else ():
                yield from _configured(str(included), depth + 1)
        elif line.startswith("/"):
            yield line
