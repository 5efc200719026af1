"""Find the kernels of the backend `virtual` by name, in the cache or in the wheel.

- `virtual-6.12`, `virtual-6.1`: Debian's or Ubuntu's source of that series with our files, as a User-Mode Linux
  executable.
- `virtual-6.12-hz1000`: the same with another tick than Debian's 250 Hz.
- `virtual-6.12-realtime`: the same with what it takes to run in real time as well (accelerator uml of the vm backend).
- `virtual-6.12-debug`: the same with the kernel's own sanitizers.
- any other name that begins with virtual-: the user's tree, built with `brobust kernel build --source DIR`.

build.py builds them. Each kernel has a directory with three files: `linux`, its `config`, and `kernel.json`.
"""

import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, Self

from brobust import files
from brobust.errors import BadInput, MissingSupport
from brobust.host.cache import cache_directory
from brobust.host.locks import refuse_foreign_to_root
from brobust.kernels import our_files

DEFAULT = "virtual-6.12"  # if it is built; see default()
REAL_TIME = "-realtime"  # the end of the name of a kernel that runs in real time, too
STOCK = "-stock"  # the end of the name of a kernel without the series kept
# The ends of names, and the directories of kernel/ with what they have beside others.
KINDS = {REAL_TIME: "real-time", "-debug": "debug", STOCK: our_files.WITHOUT_KEPT}
DEFAULT_HZ = 250  # Debian's CONFIG_HZ, which the vm backend's guests have, too
TICKS = (100, 250, 300, 1000)  # the choices in kernel/Kconfig.hz
MINUTES = 3  # what messages say about the time of a build, on two cores; docs/kernels.md has measurements

_FROM_WHEEL = Path(__file__).parent / "bin"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_DEBIAN_NAME = re.compile(r"virtual-(?P<series>[0-9]+\.[0-9]+)(-hz[0-9]+)?(-realtime|-debug|-stock)?")
# The option and the control have different names (net/ipv4/Kconfig, and .name in net/ipv4/tcp_highspeed.c).
_CONTROL_OF_OPTION = {"hstcp": "highspeed"}
_CONTROL_OPTION = re.compile(r"^CONFIG_TCP_CONG_([A-Z0-9_]+)=y$", re.MULTILINE)


@dataclass(frozen=True)
class VirtualKernel:
    """A built kernel. `path` is the executable `linux`; it boots as an ordinary process."""

    name: str
    path: Path
    release: str
    hz: int
    sha256: str
    congestion_controls: frozenset[str]
    source: str
    """The source package with its version, or the tree it was built from."""
    our_files: str
    """Hash of the files in kernel/virtual and cc that it was built with."""
    key: str
    """Hash of everything that it was built from; see build.py."""
    objects: int
    """The number of compiled files: the total for the next build's progress."""
    bbr_versions: Mapping[str, int]
    """The version of each of the tree's own BBR controls, by its name."""

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """Return the kernel in a directory, or None if there is no complete one."""
        try:
            facts = files.read_json(directory / "kernel.json")
            kernel = cls(**{**facts, "congestion_controls": frozenset(facts["congestion_controls"])},
                         path=directory / "linux")  # fmt: skip
        except (BadInput, OSError, ValueError, TypeError, KeyError):  # missing, or of another version of brobust
            return None
        return kernel if kernel.path.is_file() else None

    def write(self) -> None:
        facts = asdict(self) | {"congestion_controls": sorted(self.congestion_controls)}
        del facts["path"]
        files.write(self.path.parent / "kernel.json", json.dumps(facts, indent=1) + "\n")

    @cached_property
    def stale(self) -> bool:
        """Return whether our files have changed since this kernel was built."""
        return self.our_files != our_files.hash_of(our_files.of_virtual_kernels(kind(self.name)))

    @property
    def where(self) -> Literal["cache", "wheel"]:
        return "wheel" if _FROM_WHEEL in self.path.parents else "cache"

    @property
    def build_command(self) -> str:
        return build_command(self.name, self.source)


def default() -> str:
    """Return the name of the kernel that runs if the user names none: DEFAULT, or, if that is not built, the newest
    built one of the distribution's series."""
    if any(VirtualKernel.read(directory) is not None for directory in _places(DEFAULT)):
        return DEFAULT
    plain = [one for one in available() if debian_series(one.name) is not None and kind(one.name) is None]
    built = [kernel.name for kernel in plain if not kernel.stale]
    return max(built, key=_newest, default=DEFAULT)


def _newest(name: str) -> tuple[list[int], bool]:
    """Return a key that sorts names by series; within a series the default tick comes last."""
    series = debian_series(name)
    assert series is not None
    return version_key(series), tick_of(name) is None


def version_key(name: str) -> list[int]:
    """Return a key that sorts `6.1`, `6.8` and `6.12` in this order, and names by the numbers in them."""
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]


def series_of(release: str) -> str:
    """Return the series of a kernel's release: 6.12 of 6.12.117-brobust."""
    return ".".join(re.findall(r"[0-9]+", release)[:2])


def why_default(name: str) -> str | None:
    """Return a sentence that says why the default is this kernel; None if it is DEFAULT."""
    if name == DEFAULT:
        return None
    remedy = f"`{build_command(DEFAULT)}` builds it if apt offers its source"
    return f"kernel: using {name}, because {DEFAULT} is not built here; {remedy}"


def find(name: str | None = None) -> VirtualKernel:
    """Return the built kernel of that name, or the default one. This builds nothing."""
    name = name or default()
    found = [kernel for directory in _places(name) if (kernel := VirtualKernel.read(directory)) is not None]
    refusals = []
    for kernel in found:
        if not kernel.stale:
            try:
                check_executable(kernel)
            except MissingSupport as refusal:  # a damaged one in the cache does not hide the wheel's
                refusals.append(refusal)
            else:
                return kernel
    if refusals:
        raise refusals[0]
    if found:
        raise MissingSupport(
            f"kernel: kernel/virtual or cc has changed since {name} was built; "
            f"`{found[0].build_command}` builds it again (about {MINUTES} minutes)"
        )
    built = ", ".join(kernel.name for kernel in available()) or "none"
    if _DEBIAN_NAME.fullmatch(name):
        raise MissingSupport(
            f"kernel: {name} is not built; built here: {built}; `{build_command(name)}` builds it (about {MINUTES} "
            "minutes) if apt offers its source"
        )
    own = name if name.startswith("virtual-") and _NAME.fullmatch(name) else "virtual-NAME"
    raise BadInput(
        f"kernel: {name!r} is not a kernel of the virtual backend; built here: {built}; `{build_command(DEFAULT)}` "
        f"builds the default one, `{build_command(own)}` your own"
    )


TRUSTED_SECONDS = 5.0
_found_at: dict[str, tuple[float, VirtualKernel]] = {}


def find_again(name: str) -> VirtualKernel:
    """Return what `find` returns; for a few seconds, what it has returned before, unless that has gone.

    To compare a kernel with the files that it was built from takes 6 ms, a twentieth of a short run."""
    at, kernel = _found_at.get(name, (-TRUSTED_SECONDS, None))
    if kernel is None or time.monotonic() - at >= TRUSTED_SECONDS or VirtualKernel.read(kernel.path.parent) != kernel:
        at, kernel = time.monotonic(), find(name)
        _found_at[name] = at, kernel
    return kernel


def check_executable(kernel: VirtualKernel) -> None:
    """Refuse an executable that cannot run here, or has changed since it was built: its hash identifies runs. As root,
    also refuse one that another user could have put there."""
    is_cached = kernel.where == "cache"  # who could exchange a wheel's directory could exchange this file, too
    refuse_foreign_to_root(kernel.path.parent, cache_directory() if is_cached else _FROM_WHEEL, with_way=is_cached)
    if not os.access(kernel.path, os.X_OK):  # false on a file system that is mounted so, too
        raise MissingSupport(
            f"kernel: {kernel.path} cannot be executed here: its file system is mounted noexec, or its mode has "
            "changed; install brobust elsewhere, or set BROBUST_CACHE to a directory that allows programs, and build it"
        )
    if (found := hash_now(kernel)) != kernel.sha256:
        raise MissingSupport(
            f"kernel: {kernel.path} has changed since it was built (its SHA-256 begins with {found[:12]}, kernel.json "
            f"has {kernel.sha256[:12]}); `{kernel.build_command}` builds it again"
        )


def hash_now(kernel: VirtualKernel) -> str:
    """Return the SHA-256 that the executable has now; `kernel.sha256` is the one that it had when it was built."""
    status = kernel.path.stat()
    return _sha256(kernel.path, status.st_ino, status.st_size, status.st_mtime_ns)


@cache
def _sha256(path: Path, inode: int, size: int, mtime_ns: int) -> str:
    """Return the hash of a file. It is computed once per process, and again if the file changes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def available() -> list[VirtualKernel]:
    """Return the built kernels of this machine, sorted by name. If two have the same name, return the one that `find`
    prefers."""
    by_name: dict[str, VirtualKernel] = {}
    for root in _roots():
        for directory in sorted(root.glob("[!.]*/")):
            kernel = VirtualKernel.read(directory)
            if kernel is not None and (kernel.name not in by_name or by_name[kernel.name].stale):
                by_name[kernel.name] = kernel
    return [by_name[name] for name in sorted(by_name)]


def build_command(name: str, source: str = "") -> str:
    if _DEBIAN_NAME.fullmatch(name):
        return f"brobust kernel build {name}"
    return f"brobust kernel build --source {shlex.quote(source or 'DIR')} --name {name}"


def cache_root() -> Path:
    return cache_directory() / "virtual"


def cached(name: str) -> VirtualKernel | None:
    """Return the kernel of this name that was built here, if any."""
    return VirtualKernel.read(cache_root() / name)


def _places(name: str) -> Iterator[Path]:
    if _NAME.fullmatch(name):  # so that it cannot be a path
        yield from (root / name for root in _roots())


def _roots() -> Iterator[Path]:
    with suppress(MissingSupport):  # of a user without a home directory, who needs none to run what the wheel brings
        yield cache_root()
    yield _FROM_WHEEL


def check_name(name: str) -> str:
    """Return the name, or refuse one that a kernel cannot have. It becomes a directory's name, too."""
    if not _NAME.fullmatch(name):
        raise BadInput(f"--name: {name!r} cannot name a kernel; use letters, digits, and . _ + -")
    if not name.startswith("virtual-"):  # which distinguishes them from guest kernels in a scenario
        raise BadInput(f"--name: {name!r} does not begin with virtual-; write virtual-{name}")
    return name


def check_hz(hz: int) -> int:
    if hz not in TICKS:
        raise BadInput(f"--hz: Linux has no tick of {hz}; allowed: {', '.join(map(str, TICKS))}")
    return hz


def debian_series(name: str) -> str | None:
    """Return "6.12" for `virtual-6.12-hz1000`; None for a name that is not one of Debian's series."""
    match = _DEBIAN_NAME.fullmatch(name)
    return None if match is None else match["series"]


def tick_of(name: str) -> int | None:
    """Return 1000 for `virtual-mine-hz1000`; None for a name that says no tick, and stands for the default one."""
    match = re.search(r"-hz([0-9]+)$", name.removesuffix(end(name)))
    return None if match is None else int(match[1])


def kind(name: str) -> str | None:
    """Return the kind of a kernel of this name, for our_files.of_virtual_kernels(); None for an ordinary one."""
    return KINDS.get(end(name))


def end(name: str) -> str:
    """Return the end of a name that says its kind: "" for an ordinary kernel."""
    return next((one for one in KINDS if name.endswith(one)), "")


def with_tick(name: str, hz: int) -> str:
    """Return the name of a kernel with this tick: unless it is the default, a suffix names it."""
    suffix, plain = f"-hz{hz}", name.removesuffix(end(name))
    return name if hz == DEFAULT_HZ or plain.endswith(suffix) else plain + suffix + end(name)


def controls_of_config(config: str) -> frozenset[str]:
    """Return the congestion controls that are built into a kernel with this .config. Reno always is."""
    options = {option.lower() for option in _CONTROL_OPTION.findall(config)} - {"advanced"}
    return frozenset(_CONTROL_OF_OPTION.get(option, option) for option in options) | {"reno"}


def summary(kernel: VirtualKernel) -> dict[str, Any]:
    """Return what `kernel list --json` and `kernel build --json` print for a kernel."""
    return {
        "name": kernel.name, "release": kernel.release, "hz": kernel.hz,
        "congestion_controls": sorted(kernel.congestion_controls), "sha256": kernel.sha256,
        "bytes": kernel.path.stat().st_size, "path": str(kernel.path), "source": kernel.source,
        "where": kernel.where, "stale": kernel.stale, "bbr_versions": dict(kernel.bbr_versions),
    }  # fmt: skip
