"""Get the source of a kernel: the distribution's source package of a series, or a copy of the user's tree."""

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from brobust import files, units
from brobust.errors import BadInput, MissingSupport
from brobust.host.cache import cache_directory
from brobust.host.locks import refuse_foreign_to_root
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.apt import HOST, Archive, archives
from brobust.kernels.toolchain import Log, Progress

# Sources of drivers that User-Mode Linux cannot have, two thirds of a tree, are left out. Their Kconfig files and
# Makefiles stay, because others refer to them.
BULK = (
    "Documentation/*/*", "drivers/accel/*.[chS]", "drivers/gpu/*.[chS]", "drivers/infiniband/*.[chS]",
    "drivers/media/*.[chS]", "drivers/net/ethernet/*.[chS]", "drivers/net/wireless/*.[chS]", "drivers/scsi/*.[chS]",
    "drivers/staging/*.[chS]", "sound/*.[chS]", "tools/perf/*", "tools/testing/*", "arch/*.dts", "arch/*.dtsi", ".git",
)  # fmt: skip


MIN_SERIES = "6.1"  # the oldest series that our patches fit
USUAL_SERIES = virtual_kernels.DEFAULT.removeprefix("virtual-")
_PACKAGE = re.compile(r"linux-source-(?P<series>[0-9]+\.[0-9]+)(\.0)?")  # Ubuntu writes 6.8.0 of the series 6.8


@dataclass(frozen=True)
class Order:
    """What to build: Debian's source of a series, or the user's tree."""

    name: str
    hz: int
    series: str = ""
    tree: Path | None = None

    @classmethod
    def of_debian(cls, name: str, hz: int | None = None) -> Self:
        """Return the order for a name such as virtual-6.12 or virtual-6.12-hz1000."""
        series = virtual_kernels.debian_series(name)
        if series is None:
            raise BadInput(
                f"kernel: {name!r} cannot be built; give virtual-6.12, virtual-6.1 or another series of Debian's, or "
                f"your own tree with --source DIR"
            )
        tick = _tick(name, hz)
        plain = f"virtual-{series}{virtual_kernels.end(name)}"
        return cls(virtual_kernels.with_tick(plain, tick), tick, series=series)

    @classmethod
    def of_default(cls, hz: int | None = None) -> Self:
        """Return the order for the default kernel; if apt does not offer its source, for the newest that it offers."""
        if hz is not None:
            virtual_kernels.check_hz(hz)
        series = obtainable()
        chosen = USUAL_SERIES if USUAL_SERIES in series or not series else series[0]
        return cls.of_debian(f"virtual-{chosen}", hz)

    @classmethod
    def of_tree(cls, tree: Path, name: str | None = None, hz: int | None = None) -> Self:
        if name is not None and virtual_kernels.debian_series(virtual_kernels.check_name(name)) is not None:
            raise BadInput(f"--name: {name} stands for Debian's source; choose another name for {tree}")
        for needed in ("Makefile", "Kconfig", "arch/um/Kconfig"):
            if not (tree / needed).is_file():
                raise BadInput(
                    f"--source: {tree} is not a kernel tree: it has no {needed}; give an unpacked Linux source"
                )
        name = virtual_kernels.check_name(name or f"virtual-{version_of(tree)}")
        tick = _tick(name, hz)
        return cls(virtual_kernels.with_tick(name, tick), tick, tree=tree.resolve())


def _tick(name: str, hz: int | None) -> int:
    """Return the tick of a kernel of this name: `hz`, else what the end of the name says; refuse two that differ."""
    of_name = virtual_kernels.tick_of(name)
    if hz is not None and of_name is not None and hz != of_name:
        raise BadInput(f"--hz: {hz} contradicts the name {name}; leave one of them out")
    asked = of_name if hz is None else hz
    return virtual_kernels.DEFAULT_HZ if asked is None else virtual_kernels.check_hz(asked)


# Of a tree that is copied: Linux 6.12 has 86,000 files, and built with everything and debugging data tens of gigabytes.
MAX_TREE_FILES = 1_000_000
MAX_TREE_BYTES = 100_000_000_000


@dataclass(frozen=True)
class Source:
    """Where a tree comes from. `identity` changes whenever the content may have changed."""

    description: str
    identity: str
    tarball: Path | None = None


def version_of(tree: Path) -> str:
    """Return the version of a tree as `make kernelversion` prints it: VERSION.PATCHLEVEL.SUBLEVEL and EXTRAVERSION."""
    makefile = files.read(tree / "Makefile", files.MAX_TEXT).decode(errors="replace")
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)", makefile, re.MULTILINE))
    if not found.get("VERSION") or not found.get("PATCHLEVEL"):
        raise BadInput(f"--source: {tree}/Makefile has no VERSION and PATCHLEVEL; give an unpacked Linux source")
    numbers = [found[part] for part in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if found.get(part)]
    return f"{'.'.join(numbers)}{found.get('EXTRAVERSION', '')}"


def identity_of_tree(tree: Path) -> str:
    """Return a hash of the names, sizes and dates of a tree's files. Reading their contents would take too long. Refuse
    a tree that could not be copied: with more than a kernel has, or with pipes, sockets or devices in it."""
    digest, number, size = hashlib.sha256(), 0, 0
    for directory, subdirectories, names in os.walk(tree):
        subdirectories[:] = sorted(set(subdirectories) - {".git"})
        for name in sorted(names):
            path = os.path.join(directory, name)  # noqa: PTH118 (it is called eighty thousand times)
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
                raise BadInput(f"--source: {path} is neither a file nor a link; give an unpacked Linux source")
            number, size = number + 1, size + status.st_size
            if number > MAX_TREE_FILES or size > MAX_TREE_BYTES:
                raise BadInput(
                    f"--source: {tree} has more than {MAX_TREE_FILES} files or {units.show_size(MAX_TREE_BYTES)}; give "
                    "an unpacked Linux source"
                )
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return f"{tree} {digest.hexdigest()[:16]}"


def obtainable() -> list[str]:
    """Return the series from MIN_SERIES on whose source is in the cache or offered by apt, newest first."""
    named = [_package_of_tarball(path) for path in _store().glob("linux-source-*.tar.*")]
    named += HOST.names("linux-source-")
    series = {match["series"] for name in named if (match := _PACKAGE.fullmatch(name))}
    supported = [one for one in series if virtual_kernels.version_key(one) >= virtual_kernels.version_key(MIN_SERIES)]
    return sorted(supported, key=virtual_kernels.version_key, reverse=True)


def why_default(order: Order) -> str | None:
    """Return a sentence that says why this order is built if the user names none; None for the default kernel."""
    if order.series == USUAL_SERIES:
        return None
    return f"apt does not offer linux-source-{USUAL_SERIES} here; building {order.series}, the newest that it offers"


def fetch(order: Order, scratch: Path, log: Log, progress: Progress, *, newest: bool = False) -> Source:
    """Return the source of an order: the user's tree, or the distribution's package, downloaded into the cache."""
    if order.tree is not None:
        return Source(str(order.tree), identity_of_tree(order.tree))
    names = (f"linux-source-{order.series}", f"linux-source-{order.series}.0")
    store = _store()
    tarballs = sorted(
        (path for name in names for path in store.glob(f"{name}_*.tar.*")), key=lambda path: path.stat().st_mtime
    )
    if newest or not tarballs:
        offer = _offer(names)
        if offer is None and not tarballs:
            others = ", ".join(f"virtual-{series}" for series in obtainable())
            instead = f"`brobust kernel build` with one of {others}" if others else "`apt-get update`"
            raise MissingSupport(
                f"kernel: neither apt nor Debian's backports offer {names[0]}; try {instead}, or give an unpacked "
                "Linux source with --source DIR"
            )
        if offer is not None:
            tarballs = [path for path in tarballs if _version_of_tarball(path) == offer.version]
            tarballs = tarballs or [_download(offer, store, scratch, log, progress)]
    refuse_foreign_to_root(store, cache_directory())
    description = f"{_package_of_tarball(tarballs[-1])} {_version_of_tarball(tarballs[-1])}"
    return Source(description, description, tarballs[-1])


def _store() -> Path:
    return cache_directory() / "sources"


def _package_of_tarball(path: Path) -> str:
    return path.name.partition("_")[0]


@dataclass(frozen=True)
class _Offer:
    """A source package that can be downloaded, with its size in bytes."""

    archive: Archive
    package: str
    version: str
    size: int


def _offer(names: Sequence[str]) -> _Offer | None:
    """Return the first of these packages that the host's lists or Debian's backports offer."""
    for archive in archives():
        for name in names:
            if (found := archive.offered(name)) is not None:
                return _Offer(archive, name, *found)
    return None


def _version_of_tarball(path: Path) -> str:
    return path.name.partition("_")[2].partition(".tar.")[0]


def _download(offer: _Offer, store: Path, scratch: Path, log: Log, progress: Progress) -> Path:
    package = offer.package
    progress.phase(f"fetching {package} {offer.version} ({offer.size / 1e6:.0f} MB)")
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise MissingSupport(f"{program} is not installed; give an unpacked Linux source with --source DIR")
    here = scratch / "package"
    here.mkdir()
    with log.child(offer.archive.download(f"{package}={offer.version}"), cwd=here) as child:
        while child.poll() is None:
            progress.count(sum(path.stat().st_size for path in here.glob("*.deb*")), offer.size)
            time.sleep(0.2)
    if child.returncode != 0:
        raise MissingSupport(
            f"apt-get download {package} failed: {log.last_line()}; check the network and `apt-get update`"
        )
    if log.call(["dpkg-deb", "-x", str(next(here.glob("*.deb"))), str(here)], cwd=here) != 0:
        raise MissingSupport(f"dpkg-deb -x {package} failed: {log.last_line()}")
    # Ubuntu's package has the tarball in a subdirectory, and a link to it.
    unpacked = next((path for path in here.glob("usr/src/**/linux-source-*.tar.*") if not path.is_symlink()), None)
    if unpacked is None:
        raise MissingSupport(
            f"the package {package} does not hold a tarball; give an unpacked Linux source with --source DIR"
        )
    store.mkdir(parents=True, exist_ok=True)
    tarball = store / f"{package}_{offer.version}.tar{unpacked.suffix}"
    files.sync(unpacked)
    unpacked.rename(tarball)
    shutil.rmtree(here)
    return tarball


# As root, tar would restore who owns a file and who may write it; nobody else may write what root builds from.
TAR = ("tar", "-x", "--no-same-owner", "--no-same-permissions")


def unpack(order: Order, source: Source, scratch: Path, log: Log, progress: Progress) -> Path:
    """Make a tree of our own without BULK, and return its directory. The user's tree is not changed."""
    tree = scratch / "linux"
    tree.mkdir()
    if source.tarball is not None:
        progress.phase(f"unpacking {source.description}")
        left_out = [f"--exclude={_package_of_tarball(source.tarball)}/{pattern}" for pattern in BULK]
        status = log.call(
            [*TAR, "--anchored", "--wildcards", *left_out, "--strip-components=1", "-f", str(source.tarball)],
            cwd=tree,
        )  # fmt: skip
        if status != 0:
            raise MissingSupport(
                f"{source.tarball} cannot be unpacked: {log.last_line()}; remove it, and it is downloaded again"
            )
        return tree
    progress.phase(f"copying {order.tree}")
    left_out = [f"--exclude=./{pattern}" for pattern in BULK]
    # A tree that may only be read could neither be patched nor removed.
    copy = 'tar -c --mode=u+rwX --anchored --wildcards "$@" -C "$0" . | ' + " ".join(TAR)
    if log.call(["bash", "-o", "pipefail", "-c", copy, str(order.tree), *left_out], cwd=tree) != 0:
        raise MissingSupport(f"{order.tree} cannot be copied to {tree}: {log.last_line()}")
    if (tree / ".config").exists() or (tree / "include/config").exists():
        # A kernel was built in this tree. The headers generated for x86 would be found before our own.
        for architecture in ("x86_64", "um"):
            log.call(["make", "-s", f"ARCH={architecture}", "mrproper"], cwd=tree)
    return tree
