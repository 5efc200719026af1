"""What a kernel is built from: the distribution's source package of a series, or a tree of the user's, as a tree of
our own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from brobust.errors import BadInput, MissingSupport
from brobust.host.cache import cache_directory
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.toolchain import Log, Progress

# Sources of drivers that no User-Mode Linux can have: two thirds of a tree. Their Kconfig and Makefile stay, since
# the others refer to them.
BULK = (
    "Documentation/*/*", "drivers/accel/*.[chS]", "drivers/gpu/*.[chS]", "drivers/infiniband/*.[chS]",
    "drivers/media/*.[chS]", "drivers/net/ethernet/*.[chS]", "drivers/net/wireless/*.[chS]", "drivers/scsi/*.[chS]",
    "drivers/staging/*.[chS]", "sound/*.[chS]", "tools/perf/*", "tools/testing/*", "arch/*.dts", "arch/*.dtsi", ".git",
)  # fmt: skip


OLDEST = "6.1"  # of the series that our patches fit
_PACKAGE = re.compile(r"linux-source-(?P<series>[0-9]+\.[0-9]+)(\.0)?")  # Ubuntu writes 6.8.0 of the series 6.8


@dataclass(frozen=True)
class Order:
    """What to build: Debian's sources of a series, or else a tree."""

    name: str
    hz: int
    series: str = ""
    tree: Path | None = None

    @classmethod
    def of_debian(cls, name: str, hz: int | None = None) -> Order:
        parsed = virtual_kernels.debian_series(name)
        if parsed is None:
            raise BadInput(
                f"kernel: {name!r} cannot be built; allowed: virtual-6.12, virtual-6.1, or another series of Debian's; "
                f"a tree of your own with --source DIR"
            )
        series, hz_of_name = parsed
        if hz is not None and hz_of_name is not None and hz != hz_of_name:
            raise BadInput(f"--hz: {hz} contradicts the name {name}; leave one of them out")
        tick = virtual_kernels.check_hz(hz or hz_of_name or virtual_kernels.DEFAULT_HZ)
        return cls(virtual_kernels.with_tick(f"virtual-{series}", tick), tick, series=series)

    @classmethod
    def of_default(cls, hz: int | None = None) -> Order:
        """The series of the default kernel, or where its source is not offered the newest that is."""
        usual = virtual_kernels.debian_series(virtual_kernels.DEFAULT)
        assert usual is not None
        series = obtainable()
        chosen = usual[0] if usual[0] in series or not series else series[0]
        return cls.of_debian(f"virtual-{chosen}", hz)

    @classmethod
    def of_tree(cls, tree: Path, name: str | None = None, hz: int | None = None) -> Order:
        for needed in ("Makefile", "Kconfig", "arch/um/Kconfig"):
            if not (tree / needed).is_file():
                raise BadInput(f"--source: {tree} is no kernel tree, it has no {needed}; give an unpacked Linux source")
        if name is not None and virtual_kernels.debian_series(virtual_kernels.check_name(name)) is not None:
            raise BadInput(f"--name: {name} stands for Debian's sources; choose another for {tree}")
        tick = virtual_kernels.check_hz(hz or virtual_kernels.DEFAULT_HZ)
        return cls(virtual_kernels.with_tick(name or f"virtual-{version_of(tree)}", tick), tick, tree=tree.resolve())


@dataclass(frozen=True)
class Source:
    """Where a tree comes from. `identity` changes whenever its contents may have."""

    description: str
    identity: str
    tarball: Path | None = None


def version_of(tree: Path) -> str:
    """VERSION.PATCHLEVEL.SUBLEVEL of a tree with all that it appends, as `make kernelversion` says."""
    makefile = (tree / "Makefile").read_text(errors="replace")
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)", makefile, re.MULTILINE))
    if not found.get("VERSION") or not found.get("PATCHLEVEL"):
        raise BadInput(f"--source: {tree}/Makefile names no VERSION and PATCHLEVEL; give an unpacked Linux source")
    numbers = [found[part] for part in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if found.get(part)]
    return f"{'.'.join(numbers)}{found.get('EXTRAVERSION', '')}"


def identity_of_tree(tree: Path) -> str:
    """Names, sizes and dates of its files: reading them all would take longer than it is worth."""
    digest = hashlib.sha256()
    for directory, subdirectories, names in os.walk(tree):
        subdirectories[:] = sorted(set(subdirectories) - {".git"})
        for name in sorted(names):
            path = os.path.join(directory, name)  # noqa: PTH118 (eighty thousand times)
            status = os.lstat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return f"{tree} {digest.hexdigest()[:16]}"


def obtainable() -> list[str]:
    """Return the series whose source is in the cache or offered by apt, newest first, from OLDEST on."""
    named = [_package_of_tarball(path) for path in _store().glob("linux-source-*.tar.*")]
    if shutil.which("apt-cache") is not None:
        command = ["apt-cache", "pkgnames", "linux-source-"]
        named += subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    series = {match["series"] for name in named if (match := _PACKAGE.fullmatch(name))}
    supported = [one for one in series if virtual_kernels.series_key(one) >= virtual_kernels.series_key(OLDEST)]
    return sorted(supported, key=virtual_kernels.series_key, reverse=True)


def why_default(order: Order) -> str | None:
    """Return why this is what is built where no name is given, in a sentence, where it is not the default kernel."""
    usual = virtual_kernels.debian_series(virtual_kernels.DEFAULT)
    assert usual is not None
    if order.series == usual[0]:
        return None
    return f"apt offers no linux-source-{usual[0]} here; taking {order.series}, the newest that it offers"


def fetch(order: Order, scratch: Path, log: Log, progress: Progress, *, newest: bool = False) -> Source:
    """The source of an order: the tree that was given, or the distribution's package as a tarball in the cache."""
    if order.tree is not None:
        return Source(str(order.tree), identity_of_tree(order.tree))
    names = (f"linux-source-{order.series}", f"linux-source-{order.series}.0")
    store = _store()
    tarballs = sorted(
        (path for name in names for path in store.glob(f"{name}_*.tar.*")), key=lambda path: path.stat().st_mtime
    )
    package, offered = next(((name, found) for name in names if (found := _offered(name))), (names[0], None))
    if newest and offered is not None:
        tarballs = [path for path in tarballs if _version_of_tarball(path) == offered[0]]
    if not tarballs:
        if offered is None:
            others = ", ".join(f"virtual-{series}" for series in obtainable())
            instead = f"`brobust kernel build` with one of {others}" if others else "`apt-get update`"
            raise MissingSupport(
                f"kernel: apt offers no {package}; {instead}, or give an unpacked Linux source with --source DIR"
            )
        tarballs = [_download(package, *offered, store, scratch, log, progress)]
    description = f"{_package_of_tarball(tarballs[-1])} {_version_of_tarball(tarballs[-1])}"
    return Source(description, description, tarballs[-1])


def _store() -> Path:
    return cache_directory() / "sources"


def _package_of_tarball(path: Path) -> str:
    return path.name.partition("_")[0]


def _offered(package: str) -> tuple[str, int] | None:
    """Version and bytes of the package that apt would download."""
    if shutil.which("apt-cache") is None:
        return None
    shown = subprocess.run(
        ["apt-cache", "show", "--no-all-versions", package], capture_output=True, text=True, check=False
    ).stdout
    fields = dict(re.findall(r"^(Version|Size): (\S+)$", shown, re.MULTILINE))
    return (fields["Version"], int(fields["Size"])) if len(fields) == 2 else None


def _version_of_tarball(path: Path) -> str:
    return path.name.partition("_")[2].partition(".tar.")[0]


def _download(package: str, version: str, size: int, store: Path, scratch: Path, log: Log, progress: Progress) -> Path:
    progress.phase(f"fetching {package} {version} ({size / 1e6:.0f} MB)")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise MissingSupport(f"{program} is not here; give an unpacked Linux source with --source DIR")
    here = scratch / "package"
    here.mkdir()
    # apt's own download user may not be able to write here: it then says so and downloads as us.
    with log.child(["apt-get", "download", "-q", f"{package}={version}"], cwd=here) as child:
        while child.poll() is None:
            progress.count(sum(path.stat().st_size for path in here.glob("*.deb*")), size)
            time.sleep(0.2)
    if child.returncode != 0:
        raise MissingSupport(
            f"apt-get download {package} failed: {log.last_line()}; check the network and `apt-get update`"
        )
    if log.call(["dpkg-deb", "-x", str(next(here.glob("*.deb"))), str(here)], cwd=here) != 0:
        raise MissingSupport(f"dpkg-deb -x {package} failed: {log.last_line()}; is the disk full?")
    # Ubuntu has it in a directory of its own, with a link to it.
    unpacked = next((path for path in here.glob("usr/src/**/linux-source-*.tar.*") if not path.is_symlink()), None)
    if unpacked is None:
        raise MissingSupport(f"the package {package} holds no tarball; give an unpacked Linux source with --source DIR")
    store.mkdir(parents=True, exist_ok=True)
    tarball = store / f"{package}_{version}.tar{unpacked.suffix}"
    unpacked.rename(tarball)
    shutil.rmtree(here)
    return tarball


def unpack(order: Order, source: Source, scratch: Path, log: Log, progress: Progress) -> Path:
    """A tree of our own, without BULK; the user's stays as it is."""
    tree = scratch / "linux"
    tree.mkdir()
    if source.tarball is not None:
        progress.phase(f"unpacking {source.description}")
        left_out = [f"--exclude={_package_of_tarball(source.tarball)}/{pattern}" for pattern in BULK]
        status = log.call(
            ["tar", "-x", "--anchored", "--wildcards", *left_out, "--strip-components=1", "-f", str(source.tarball)],
            cwd=tree,
        )  # fmt: skip
        if status != 0:
            raise MissingSupport(f"{source.tarball} cannot be unpacked: {log.last_line()}; remove it to fetch it anew")
        return tree
    progress.phase(f"copying {order.tree}")
    left_out = [f"--exclude=./{pattern}" for pattern in BULK]
    copy = 'tar -c --anchored --wildcards "$@" -C "$0" . | tar -x'
    if log.call(["bash", "-o", "pipefail", "-c", copy, str(order.tree), *left_out], cwd=tree) != 0:
        raise MissingSupport(f"{order.tree} cannot be copied to {tree}: {log.last_line()}")
    if (tree / ".config").exists() or (tree / "include/config").exists():
        # Somebody built in it. Headers generated for x86 would be found before our own.
        for architecture in ("x86_64", "um"):
            log.call(["make", "-s", f"ARCH={architecture}", "mrproper"], cwd=tree)
    return tree
