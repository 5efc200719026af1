"""Find guest kernels, the kernels of VMs, by name: Debian's packages, the host's own kernels, or the user's files.

- `debian-6.1`, `debian-6.12`: Debian's cloud kernel of that series, fetched with apt into the cache. Nothing is
  installed on the host.
- `host`, or a release in /boot such as `6.1.0-40-amd64`: /boot/vmlinuz-RELEASE with /lib/modules/RELEASE.
- `/path/bzImage:/path/to/lib/modules/RELEASE`: a kernel that the user has built, for example google's v2 or v3.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brobust import files
from brobust.errors import BadInput, MissingSupport, last_line
from brobust.host.cache import cache_directory, put_in_place, scratch_beside
from brobust.host.locks import locked, refuse_foreign_to_root
from brobust.host.programs import find_program
from brobust.kernels.apt import HOST, Archive, archives
from brobust.kernels.toolchain import check_room, environment
from brobust.kernels.virtual import version_key

DEFAULT = "debian-6.12"  # if it is cached or apt offers it; see default()
FETCH_SECONDS = 600.0  # how long to wait for another process that fetches the same files
_CLOUD_PACKAGE = re.compile(r"linux-image-(?P<series>[0-9]+\.[0-9]+)\.[0-9][^ ]*cloud-amd64")
# What a kernel's packages consist of: image and modules, which Debian splits since 6.19; the headers for all flavours,
# and kbuild's programs.
_PARTS = re.compile(r"linux-(binary|modules|base)-[0-9]\S+|linux-headers-\S+-common|linux-kbuild-\S+")
_MODULE_SUFFIX = re.compile(r"\.ko(\.(xz|zst|gz))?$")


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel. `modules` is the directory that holds modules.dep; its name is the kernel's release."""

    name: str
    image: Path
    modules: Path

    @property
    def release(self) -> str:
        return self.modules.name

    @property
    def fingerprint(self) -> str:
        """Return a hash that changes whenever the image or its modules change."""
        parts = [f"{p}:{p.stat().st_size}:{p.stat().st_mtime_ns}" for p in (self.image, self.modules / "modules.dep")]
        return hashlib.sha256("|".join(parts).encode()).hexdigest()[:12]

    def control_modules(self) -> dict[str, str]:
        """Return the congestion controls that are modules, the kernel's and ours (kernels/modules.py), each with the
        name of its module."""
        listed = (self.modules / "modules.dep").read_text() + (self.modules / "modules.builtin").read_text()
        names = set(re.findall(r"/tcp_([a-z0-9_]+)\.ko", listed)) - {"diag", "sigpool"}
        ours = re.findall(r"/(brb_[a-z0-9_]+)\.ko", listed)
        return {name: f"tcp_{name}" for name in names} | dict(zip(ours, ours, strict=True))

    def congestion_controls(self) -> set[str]:
        """Return the congestion controls of this kernel: built in, or modules that are loaded when needed."""
        return set(self.control_modules()) | {"reno", "cubic"}


_DEBIAN_NAME = re.compile(r"debian-[0-9]{1,3}\.[0-9]{1,3}")


def find(name: str) -> Kernel:
    """Return the kernel of that name, and fetch it first if necessary."""
    if ":" in name or "/" in name:
        return _from_files(name)
    if is_debian(name):
        kernel = _from_debian(name)
        refuse_foreign_to_root(kernel.image.parent, cache_directory())
        return kernel
    return _from_boot(name)


def is_debian(name: str) -> bool:
    """Return whether this names one of Debian's guest kernels, whether or not there is one."""
    return _DEBIAN_NAME.fullmatch(name) is not None


def check_there(name: str) -> None:
    """Refuse a name that stands for no kernel here. Nothing is fetched."""
    if not is_debian(name):
        find(name)
    elif _cached(name) is None and _debian_package(name) is None:
        raise _unknown(name)


def default() -> str:
    """Return the name of the kernel that guests boot if the user names none: DEFAULT; if apt does not offer that, the
    newest of Debian's that it offers; else the host's own."""
    if _cached(DEFAULT) is not None:
        return DEFAULT
    names = available()
    debian = [name for name in names if name.startswith("debian-")]
    if DEFAULT in debian or not names:
        return DEFAULT
    return max(debian, key=version_key) if debian else "host" if "host" in names else max(names, key=version_key)


def why_default(name: str) -> str | None:
    """Return a sentence that says why the default is this kernel; None if it is DEFAULT."""
    return None if name == DEFAULT else f"kernel: guests boot {name}, because apt does not offer {DEFAULT} here"


def available() -> dict[str, str]:
    """Return the names that `find` knows on this machine, each with its origin, for doctor and for refusals."""
    try:
        kept = sorted(path.name for path in (cache_directory() / "kernels").glob("debian-*"))
    except PermissionError:
        kept = []
    names = {name: "cached" for name in kept if _cached(name) is not None}
    for series, packages in sorted(_debian_packages().items(), key=lambda item: version_key(item[0])):
        names.setdefault(f"debian-{series}", f"apt: {packages[0]}")
    for image in sorted(Path("/boot").glob("vmlinuz-*")):
        release = image.name.removeprefix("vmlinuz-")
        if (Path("/lib/modules") / release / "modules.dep").exists():
            names[release] = "/boot"
    if os.uname().release in names:
        names["host"] = "/boot"
    return names


def _unknown(name: str) -> BadInput:
    known = ", ".join(sorted(available())) or "none on this machine"
    return BadInput(f"kernel: {name!r} does not exist; available: {known}; or give BZIMAGE:MODULES, two paths")


def _from_files(name: str) -> Kernel:
    image_text, _, modules_text = name.partition(":")
    image, modules = Path(image_text), Path(modules_text)
    if not modules_text:
        raise BadInput(f"kernel: {name!r} names no modules; write BZIMAGE:MODULES, where MODULES is a directory")
    if not files.is_file(image):
        raise BadInput(f"kernel: {image} is not a file; give the bzImage of an x86-64 kernel")
    if not files.is_file(modules / "modules.dep"):
        raise BadInput(
            f"kernel: {modules} does not hold modules.dep; give lib/modules/RELEASE after `make modules_install`"
        )
    return Kernel(name, image.resolve(), modules.resolve())


def _from_boot(name: str) -> Kernel:
    release = os.uname().release if name == "host" else name
    image, modules = Path("/boot") / f"vmlinuz-{release}", Path("/lib/modules") / release
    if not files.is_file(image) or not files.is_file(modules / "modules.dep"):
        raise _unknown(name)
    return Kernel(name, image, modules)


def _cached(name: str) -> Kernel | None:
    root = cache_directory() / "kernels" / name
    try:
        images = sorted(root.glob("boot/vmlinuz-*"))
    except PermissionError:  # the cache belongs to another user: as good as empty
        return None
    if not images:
        return None
    kernel = Kernel(name, images[0], root / "lib/modules" / images[0].name.removeprefix("vmlinuz-"))
    return kernel if _have_content(kernel.image, kernel.modules / "modules.dep") else None


def _have_content(*those: Path) -> bool:
    """Return whether these files are there and not empty. A removal that was killed, or a power cut, may have left a
    part of a directory."""
    try:
        return all(file.stat().st_size > 0 for file in those)
    except OSError:
        return False


def _from_debian(name: str) -> Kernel:
    if (cached := _cached(name)) is not None:
        return cached
    offered = _debian_package(name)
    if offered is None:
        raise _unknown(name)
    archive, package = offered
    root = cache_directory() / "kernels" / name
    with _alone(root), scratch_beside(root) as scratch:
        if (cached := _cached(name)) is not None:  # fetched by another process while this one waited
            return cached
        tree = scratch / "tree"
        _unpack(archive, package, scratch, tree)
        if not (tree / "lib").exists() and (tree / "usr/lib").exists():  # merged /usr packages, from trixie on
            (tree / "lib").symlink_to("usr/lib")
        for image in tree.glob("usr/lib/modules/*/vmlinuz"):  # from 7.1 on: where others have it in /boot
            (tree / "boot").mkdir(exist_ok=True)
            image.rename(tree / "boot" / f"vmlinuz-{image.parent.name}")
        images = sorted((tree / "boot").glob("vmlinuz-*"))
        if not images:
            raise MissingSupport(f"kernel: {package} and its parts hold no kernel; give another one")
        release = images[0].name.removeprefix("vmlinuz-")
        _tool("kmod", ["depmod", "-b", str(tree), release], scratch)
        put_in_place(tree, root)
    kernel = _cached(name)
    assert kernel is not None
    return kernel


def headers(name: str) -> Path:
    """Return the headers of one of Debian's guest kernels, for `make -C`, and fetch them first if necessary.

    The package linux-headers-RELEASE and those that it consists of are unpacked into the cache; nothing is installed.
    """
    kernel = find(name)
    root = cache_directory() / "headers" / kernel.release
    package = f"linux-headers-{kernel.release}"
    there = root / "usr/src" / package
    if not _have_content(there / "Makefile"):
        _fetch_headers(package, root, there)
    refuse_foreign_to_root(there, cache_directory())
    return there


def _fetch_headers(package: str, root: Path, there: Path) -> None:
    with _alone(root), scratch_beside(root) as scratch:
        if _have_content(there / "Makefile"):  # fetched by another process while this one waited
            return
        archive = next((one for one in archives() if one.offered(package)), HOST)
        tree = scratch / "tree"
        _unpack(archive, package, scratch, tree)
        # It refers to its other part by the path at which dpkg would have put it.
        makefile = tree / "usr/src" / package / "Makefile"
        here = "$(dir $(lastword $(MAKEFILE_LIST)))../"
        makefile.write_text(makefile.read_text().replace("/usr/src/", here))
        put_in_place(tree, root)


def _alone(root: Path) -> AbstractContextManager[None]:
    """Hold the lock of a directory in the cache, so that processes that need its files at once fetch them only once."""
    files.make_directory(root.parent)
    refuse_foreign_to_root(root.parent, cache_directory())
    return locked(root.with_name(f".{root.name}.lock"), FETCH_SECONDS)


def _unpack(archive: Archive, package: str, scratch: Path, tree: Path) -> None:
    """Fetch a package and its parts from Debian's archive and unpack them over each other. Nothing is installed."""
    parts = [one for one in archive.dependencies(package) if _PARTS.fullmatch(one)]
    _tool("apt", archive.download(package, *parts), scratch, remedy="check the network and `apt-get update`")
    for deb in sorted(scratch.glob("*.deb")):
        _tool("dpkg", ["dpkg-deb", "-x", str(deb), str(tree)], scratch)


def with_modules(kernel: Kernel, added: Sequence[Path], directory: Path) -> Kernel:
    """Write a copy of the kernel's modules with these added to DIRECTORY/lib/modules/RELEASE, and return the kernel
    with them. An added module replaces the kernel's own of the same name."""
    modules = directory.resolve() / "lib/modules" / kernel.release
    if modules.exists():
        raise BadInput(f"{modules} already exists; remove it or give another directory")
    # The directory appears only when it is complete: without an added module it must not pass for a kernel.
    with scratch_beside(modules) as scratch:
        copy = scratch / "lib/modules" / kernel.release
        leave_out = shutil.ignore_patterns("build", "source")  # these links would be broken
        shutil.copytree(kernel.modules, copy, symlinks=True, ignore=leave_out)
        for module in added:
            name = _MODULE_SUFFIX.sub("", module.name)
            own = [file for file in module_files(kernel, [name]) if _MODULE_SUFFIX.sub("", file.name) == name]
            place = own[0].parent if own else Path("extra")
            (copy / place).mkdir(exist_ok=True)
            for file in own:
                (copy / file).unlink()
            shutil.copy(module, copy / place / f"{name}.ko")
        _tool("kmod", ["depmod", "-b", str(scratch), kernel.release], scratch)
        files.sync(copy)
        copy.rename(modules)
    return _from_files(f"{kernel.image}:{modules}")


@cache
def _debian_package(name: str) -> tuple[Archive, str] | None:
    """Return the newest package of one of Debian's guest kernels, and who offers it: the host's lists or Debian's
    backports. Of what is no longer the newest there, backports keep some packages without their parts."""
    for archive in archives():
        for package in _debian_packages(archive).get(name.removeprefix("debian-"), []):
            lacking = [part for part in archive.dependencies(package) if part.startswith("<")]
            if not any(_PARTS.fullmatch(part.strip("<>")) for part in lacking):
                return archive, package
    return None


@cache
def _debian_packages(archive: Archive = HOST) -> dict[str, list[str]]:
    """Return the signed cloud kernels of each series, newest first. apt is asked only once per process, because a grid
    has hundreds of scenarios."""
    found: dict[str, list[str]] = {}
    for name in sorted(archive.names("linux-image-"), key=version_key, reverse=True):
        if match := _CLOUD_PACKAGE.fullmatch(name):
            found.setdefault(match["series"], []).append(name)
    return found


def _tool(package: str, argv: list[str], cwd: Path, remedy: str = "repeat the command") -> None:
    """Run a program of this package, wherever it is: PATH of a user who is not root has no /sbin."""
    program = shutil.which(argv[0]) or find_program(argv[0], package)
    done = subprocess.run(
        argv, executable=program, cwd=cwd, capture_output=True, text=True, check=False, env=environment()
    )  # fmt: skip
    if done.returncode != 0:
        check_room(done.stderr, cwd)
        raise MissingSupport(f"{' '.join(argv[:3])} failed: {last_line(done.stderr)}; {remedy}")


def module_files(kernel: Kernel, names: list[str]) -> list[Path]:
    """Return the files of these modules and of all that they depend on, relative to `kernel.modules`.

    Modules that are built in, or that this kernel does not have, are left out: a guest that needs one will say so.
    """
    depends: dict[str, list[str]] = {}
    for line in (kernel.modules / "modules.dep").read_text().splitlines():
        file, _, needed = line.partition(":")
        depends[file] = needed.split()
    by_name = {_MODULE_SUFFIX.sub("", Path(file).name).replace("-", "_"): file for file in depends}
    wanted = [by_name[name] for name in names if name in by_name]
    found: set[str] = set()
    while wanted:
        file = wanted.pop()
        if file not in depends:
            listing = kernel.modules / "modules.dep"
            raise BadInput(f"kernel: {listing} has no line for {file}, which another module needs; run depmod for it")
        if file not in found:
            found.add(file)
            wanted.extend(depends[file])
    return sorted(Path(file) for file in found)
