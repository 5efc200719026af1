"""Builds a User-Mode-Linux kernel: source, patches, our files, configuration, compiler, cache.

Nothing needs root and nothing is installed. A kernel is built anew only when something changed that it is built from:
the source, our files in kernel/virtual, the tick, the compiler. Two builds from the same give the same executable, byte
for byte, wherever they are built: the build string is part of what the guest's random number generator starts from.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from brobust.errors import BadInput, BrobustError, MissingSupport
from brobust.guests.kernels import cache_directory
from brobust.virtual import kernels
from brobust.virtual.kernels import VirtualKernel

# Raise it when the way of building changes, so that kernels built the old way are not taken for the new.
RECIPE = 1
PROGRAMS = {
    "gcc": "gcc", "ld": "binutils", "make": "make", "flex": "flex", "bison": "bison", "bc": "bc", "patch": "patch",
    "xz": "xz-utils", "tar": "tar",
}  # fmt: skip
USUAL_OBJECTS = 750  # compiled files of the default kernel, until a build has counted them
DISK_BYTES = 1_000_000_000  # sources without what BULK leaves out, objects, and the download

# Sources of drivers that no User-Mode Linux can have: two thirds of a tree. Their Kconfig and Makefile stay, since
# the others refer to them.
BULK = (
    "Documentation/*/*", "drivers/accel/*.[chS]", "drivers/gpu/*.[chS]", "drivers/infiniband/*.[chS]",
    "drivers/media/*.[chS]", "drivers/net/ethernet/*.[chS]", "drivers/net/wireless/*.[chS]", "drivers/scsi/*.[chS]",
    "drivers/staging/*.[chS]", "sound/*.[chS]", "tools/perf/*", "tools/testing/*", "arch/*.dts", "arch/*.dtsi", ".git",
)  # fmt: skip

# Dates, names and numbers that a build would otherwise take from its surroundings.
FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER": "brobust",
    "KBUILD_BUILD_HOST": "brobust",
    "KBUILD_BUILD_VERSION": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
    "XZ_DEFAULTS": "-T0",  # unpacks with all CPUs
}

# kbuild writes the versions of these into .config, which User-Mode Linux carries in its executable (--showconfig). No
# kernel of ours uses them, and which of them is installed would make another executable.
MAKE = ("make", "ARCH=um", "LOCALVERSION=", "RUSTC=false", "BINDGEN=false", "PAHOLE=false")


class BuildFailed(BrobustError):
    """make went wrong. `last_lines` are the end of its log."""

    def __init__(self, sentence: str, last_lines: Sequence[str]):
        super().__init__(sentence)
        self.last_lines = list(last_lines)


class Progress(Protocol):
    """Who wants to know how far a build is."""

    def phase(self, text: str) -> None: ...
    def count(self, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


class Silent:
    def phase(self, text: str) -> None: ...
    def count(self, done: int, total: int) -> None: ...
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class Order:
    """What to build: Debian's sources of a series, or else a tree."""

    name: str
    hz: int
    series: str = ""
    tree: Path | None = None

    @classmethod
    def of_debian(cls, name: str, hz: int | None = None) -> Order:
        parsed = kernels.debian_series(name)
        if parsed is None:
            raise BadInput(
                f"kernel: {name!r} cannot be built; allowed: virtual-6.12, virtual-6.1, or another series of Debian's; "
                f"a tree of your own with --source DIR"
            )
        series, hz_of_name = parsed
        if hz is not None and hz_of_name is not None and hz != hz_of_name:
            raise BadInput(f"--hz: {hz} contradicts the name {name}; leave one of them out")
        tick = kernels.check_hz(hz or hz_of_name or kernels.DEFAULT_HZ)
        return cls(kernels.with_tick(f"virtual-{series}", tick), tick, series=series)

    @classmethod
    def of_tree(cls, tree: Path, name: str | None = None, hz: int | None = None) -> Order:
        for needed in ("Makefile", "Kconfig", "arch/um/Kconfig"):
            if not (tree / needed).is_file():
                raise BadInput(f"--source: {tree} is no kernel tree, it has no {needed}; give an unpacked Linux source")
        if name is not None and kernels.debian_series(kernels.check_name(name)) is not None:
            raise BadInput(f"--name: {name} stands for Debian's sources; choose another for {tree}")
        tick = kernels.check_hz(hz or kernels.DEFAULT_HZ)
        return cls(kernels.with_tick(name or f"virtual-{version_of(tree)}", tick), tick, tree=tree.resolve())


@dataclass(frozen=True)
class Built:
    kernel: VirtualKernel
    seconds: float
    cached: bool
    """Nothing had changed, so nothing was built."""


@dataclass(frozen=True)
class Source:
    """Where a tree comes from. `identity` changes whenever its contents may have."""

    description: str
    identity: str
    tarball: Path | None = None


def build(order: Order, progress: Progress | None = None, *, force: bool = False) -> Built:
    """The kernel that was ordered: from the cache where nothing it is built from has changed, else built.

    `force` builds in any case, from the newest source package that apt offers.
    """
    try:
        return _build(order, progress or Silent(), force)
    except OSError as error:  # a full disk, a cache that may not be written
        raise MissingSupport(f"kernel: {order.name} cannot be built: {error}") from None


def _build(order: Order, progress: Progress, force: bool) -> Built:
    begun = time.monotonic()
    check_programs()
    our_files = kernels.hash_of_files(kernels.OUR_FILES)
    with _alone(order.name, progress):
        earlier = kernels.cached(order.name)
        if earlier is not None and not force and earlier.key == key(order, _identity_now(order, earlier), our_files):
            return Built(earlier, time.monotonic() - begun, cached=True)
        with _scratch(order.name) as scratch, _Log(scratch / "build.log") as log:
            try:
                source = fetch(order, scratch, log, progress, newest=force)
                tree = unpack(order, source, scratch, log, progress)
                # Of files that somebody is writing, the kernel and its hash must be of the same moment.
                ours = shutil.copytree(kernels.OUR_FILES, scratch / "ours")
                controls = bring_our_files(tree, ours, log, progress)
                configure(tree, ours, order.hz, log, progress)
                objects = compile_kernel(tree, order.name, log, progress)
                kernel = keep(order, source, tree, ours, controls, objects, scratch)
            except BuildFailed:
                log.keep(log_of(order.name))
                raise
        log_of(order.name).unlink(missing_ok=True)
        return Built(kernel, time.monotonic() - begun, cached=False)


# --- what a kernel is built from -------------------------------------------------------------------------------------


def key(order: Order, source_identity: str, our_files: str) -> str:
    """Hash of all that decides what the executable will be."""
    parts = {
        "recipe": RECIPE,
        "source": source_identity,
        "our files": our_files,
        "hz": order.hz,
        "compiler": compiler(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def compiler() -> str:
    """Compiler, linker and C library: the executable is linked statically."""
    first_lines = [
        subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]
        for program in ("gcc", "ld")
    ]
    return "; ".join([*first_lines, os.confstr("CS_GNU_LIBC_VERSION") or ""])


def check_programs() -> None:
    if lacking := sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None}):
        raise MissingSupport(f"building a kernel needs {', '.join(lacking)}; apt-get install {' '.join(lacking)}")


def version_of(tree: Path) -> str:
    """VERSION.PATCHLEVEL.SUBLEVEL of a tree with all that it appends, as `make kernelversion` says."""
    makefile = (tree / "Makefile").read_text(errors="replace")
    found = dict(re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)", makefile, re.MULTILINE))
    if not found.get("VERSION") or not found.get("PATCHLEVEL"):
        raise BadInput(f"--source: {tree}/Makefile names no VERSION and PATCHLEVEL; give an unpacked Linux source")
    numbers = [found[part] for part in ("VERSION", "PATCHLEVEL", "SUBLEVEL") if found.get(part)]
    return f"{'.'.join(numbers)}{found.get('EXTRAVERSION', '')}"


def _identity_now(order: Order, earlier: VirtualKernel) -> str:
    """Of Debian's sources the version that was built counts: newer ones are taken with `force` only."""
    return earlier.source if order.tree is None else _identity_of_tree(order.tree)


def _identity_of_tree(tree: Path) -> str:
    """Names, sizes and dates of its files: reading them all would take longer than it is worth."""
    digest = hashlib.sha256()
    for directory, subdirectories, names in os.walk(tree):
        subdirectories[:] = sorted(set(subdirectories) - {".git"})
        for name in sorted(names):
            path = os.path.join(directory, name)  # noqa: PTH118 (eighty thousand times)
            status = os.lstat(path)
            digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return f"{tree} {digest.hexdigest()[:16]}"


# --- the source ------------------------------------------------------------------------------------------------------


def fetch(order: Order, scratch: Path, log: _Log, progress: Progress, *, newest: bool = False) -> Source:
    """The source of an order: the tree that was given, or Debian's package as a tarball in the cache."""
    if order.tree is not None:
        return Source(str(order.tree), _identity_of_tree(order.tree))
    package = f"linux-source-{order.series}"
    store = cache_directory() / "sources"
    tarballs = sorted(store.glob(f"{package}_*.tar.*"), key=lambda path: path.stat().st_mtime)
    offered = _offered(package)
    if newest and offered is not None:
        tarballs = [path for path in tarballs if _version_of_tarball(path) == offered[0]]
    if not tarballs:
        if offered is None:
            raise MissingSupport(
                f"kernel: apt offers no {package}; `apt-get update`, or give an unpacked Linux source with --source DIR"
            )
        tarballs = [_download(package, *offered, store, scratch, log, progress)]
    description = f"{package} {_version_of_tarball(tarballs[-1])}"
    return Source(description, description, tarballs[-1])


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


def _download(package: str, version: str, size: int, store: Path, scratch: Path, log: _Log, progress: Progress) -> Path:
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
    unpacked = next(here.glob("usr/src/**/linux-source-*.tar.*"), None)
    if unpacked is None:
        raise MissingSupport(f"the package {package} holds no tarball; give an unpacked Linux source with --source DIR")
    store.mkdir(parents=True, exist_ok=True)
    tarball = store / f"{package}_{version}.tar{unpacked.suffix}"
    unpacked.rename(tarball)
    shutil.rmtree(here)
    return tarball


def unpack(order: Order, source: Source, scratch: Path, log: _Log, progress: Progress) -> Path:
    """A tree of our own, without BULK; the user's stays as it is."""
    tree = scratch / "linux"
    tree.mkdir()
    if source.tarball is not None:
        progress.phase(f"unpacking {source.description}")
        left_out = [f"--exclude=linux-source-{order.series}/{pattern}" for pattern in BULK]
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


# --- our patches and files -------------------------------------------------------------------------------------------


def bring_our_files(tree: Path, ours: Path, log: _Log, progress: Progress) -> frozenset[str]:
    """Apply the patches and copy the files of kernel/virtual. Returns the congestion controls that are new by it."""
    patches = [path for path in kernels.files_below(ours / "patches") if path.suffix == ".patch"]
    progress.phase(f"applying patches: {len(patches)}")
    for patch in patches:
        _apply(patch, tree, log)
    return _copy_files(ours / "tree", tree)


def _apply(patch: Path, tree: Path, log: _Log) -> None:
    """Each is tried before it is applied: a tree that does not take one is refused by its name."""
    command = ["patch", "-p1", "--batch", "--forward", "--no-backup-if-mismatch", "--reject-file=-", "-i", str(patch)]
    trial = subprocess.run([*command, "--dry-run"], cwd=tree, capture_output=True, text=True, check=False, env=_env())
    log.write(f"{patch.name}:\n{trial.stdout}{trial.stderr}")
    if trial.returncode != 0:
        raise BadInput(
            f"kernel: Linux {version_of(tree)} does not take kernel/virtual/patches/{patch.name}: "
            f"{misfits(trial.stdout + trial.stderr)}; mend the patch or give another tree"
        )
    subprocess.run(command, cwd=tree, capture_output=True, check=True, env=_env())


def misfits(said: str) -> str:
    """Files and places that patch(1) complained about."""
    file, found = "", []
    for line in said.splitlines():
        if match := re.match(r"(?:checking|patching) file '?([^']+)'?$", line):
            file = match[1]
        elif match := re.match(r"Hunk #([0-9]+) FAILED at ([0-9]+)", line):
            found.append(f"{file} (hunk {match[1]} at line {match[2]})")
        elif match := re.match(r"\|\+\+\+ [^/]+/(\S+)", line):
            found.append(f"{match[1]} (not in this tree)")
        elif "previously applied" in line:
            found.append(f"{file} (already applied)" if file else "already applied")
    return ", ".join(found) or (said.strip().splitlines() or ["no message"])[-1].removeprefix("patch: **** ")


def _copy_files(from_tree: Path, tree: Path) -> frozenset[str]:
    controls = set()
    for path in kernels.files_below(from_tree):
        relative = path.relative_to(from_tree)
        there = tree / relative
        is_control = re.fullmatch(r"net/ipv4/tcp_([a-z0-9_]+)\.c", str(relative))
        if is_control and not there.exists() and b"tcp_register_congestion_control" in path.read_bytes():
            controls.add(is_control[1])
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    return frozenset(controls)


# --- configuration ---------------------------------------------------------------------------------------------------


def configure(tree: Path, ours: Path, hz: int, log: _Log, progress: Progress) -> None:
    """allnoconfig with our fragment over it."""
    progress.phase(f"configuring, HZ={hz}")
    fragment = (ours / "config").read_text()
    wanted = [line for line in fragment.splitlines() if not re.match(r"(# )?CONFIG_HZ(_[0-9]+)?\b", line)]
    make_tick_settable(tree / "arch/um/Kconfig", hz)
    # CONFIG_HZ_… is asked too, for a tree that chooses by kernel/Kconfig.hz; others ignore it.
    lines = [*wanted, f"CONFIG_HZ={hz}", f"CONFIG_HZ_{hz}=y"]
    (tree.parent / "wanted.config").write_text("\n".join(lines) + "\n")
    if log.call([*MAKE, "-s", "KCONFIG_ALLCONFIG=../wanted.config", "allnoconfig"], cwd=tree) != 0:
        raise BuildFailed(f"kernel: make allnoconfig failed: {log.last_line()}", log.tail())
    config = (tree / ".config").read_text()
    if f"CONFIG_HZ={hz}\n" not in config:
        raise BadInput(f"--hz: this tree's arch/um/Kconfig does not let HZ be {hz}; give config HZ a prompt there")
    if missing := not_taken(wanted, config):
        progress.note(f"Linux {version_of(tree)} does not know or allow: {', '.join(missing)}")


def make_tick_settable(kconfig: Path, hz: int) -> None:
    """arch/um knows one tick and does not ask. Where no patch has given the option a prompt, its default is it."""
    text = kconfig.read_text()
    block = re.search(r"^config HZ\n(?:[ \t]+\S.*\n)+", text, re.MULTILINE)
    if block is not None and not re.search(r'^\s+(prompt\b|int\s+")', block[0], re.MULTILINE):
        with_tick = re.sub(r"(default )[0-9]+", rf"\g<1>{hz}", block[0])
        kconfig.write_text(text.replace(block[0], with_tick))


def not_taken(wanted: Sequence[str], config: str) -> list[str]:
    """Lines of the fragment that the resulting .config does not have."""
    have = set(config.splitlines())
    missing = [line for line in wanted if line.startswith("CONFIG_") and line not in have]
    unset = [line.split()[1] for line in wanted if re.match(r"# CONFIG_\w+ is not set", line)]
    return missing + [f"{option} off" for option in unset if any(line.startswith(f"{option}=") for line in have)]


# --- compiling -------------------------------------------------------------------------------------------------------


def compile_kernel(tree: Path, name: str, log: _Log, progress: Progress) -> int:
    """make. Returns how many files were compiled."""
    jobs = len(os.sched_getaffinity(0))
    progress.phase(f"compiling with {jobs} jobs")
    total = max([kernel.objects for kernel in kernels.available() if kernel.name == name], default=USUAL_OBJECTS)
    done = 0
    # In the tree itself all names are relative; the map is for options that would write the whole path all the same.
    command = [*MAKE, f"KCFLAGS=-ffile-prefix-map={tree}=.", f"-j{jobs}", "linux"]
    with log.child(command, cwd=tree, pipe=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            log.write(line)
            if line.startswith("  CC "):
                done += 1
                progress.count(done, max(total, done))
    if child.returncode != 0:
        raise BuildFailed(f"kernel: {name} cannot be compiled: {log.error()}; all of it: {log_of(name)}", log.tail())
    return done


# --- the result ------------------------------------------------------------------------------------------------------


def keep(
    order: Order, source: Source, tree: Path, ours: Path, new_controls: frozenset[str], objects: int, scratch: Path
) -> VirtualKernel:
    """Move what was built to its place in the cache, whole."""
    whole, final = scratch / "whole", kernels.cache_root() / order.name
    whole.mkdir()
    shutil.copy(tree / "linux", whole / "linux")
    shutil.copy(tree / ".config", whole / "config")
    our_files = kernels.hash_of_files(ours)
    compiled = {control for control in new_controls if _was_compiled(tree, control)}
    kernel = VirtualKernel(
        name=order.name,
        path=whole / "linux",
        release=(tree / "include/config/kernel.release").read_text().strip(),
        hz=order.hz,
        sha256=hashlib.sha256((whole / "linux").read_bytes()).hexdigest(),
        congestion_controls=kernels.controls_of_config((whole / "config").read_text()) | compiled,
        source=source.description,
        our_files=our_files,
        key=key(order, source.identity, our_files),
        objects=objects,
    )
    kernel.write()
    if final.exists():
        final.rename(scratch / "replaced")
    whole.rename(final)
    return kernel.in_directory(final)


def _was_compiled(tree: Path, control: str) -> bool:
    """Whether net/ipv4/tcp_CONTROL.c went into an object, its own or one that includes it, by kbuild's dependencies."""
    return any(
        f"net/ipv4/tcp_{control}.c" in dependencies.read_text(errors="replace")
        for dependencies in (tree / "net/ipv4").glob(".*.o.cmd")
    )


def log_of(name: str) -> Path:
    """Where the log of a build stays that failed."""
    return kernels.cache_root() / f"{name}.log"


@contextmanager
def _alone(name: str, progress: Progress) -> Iterator[None]:
    """One build of a name at a time; a second waits and then finds what the first one built."""
    root = kernels.cache_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / f".{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.phase(f"waiting for another build of {name}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _scratch(name: str) -> Iterator[Path]:
    """A directory beside the final place, so that the result is renamed and never half there."""
    scratch = kernels.cache_root() / f".building-{name}"
    shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
    scratch.mkdir()
    free = shutil.disk_usage(scratch).free
    try:
        if free < DISK_BYTES:
            raise MissingSupport(
                f"{kernels.cache_root()} has {free / 1e9:.1f} GB free, building needs {DISK_BYTES / 1e9:.1f}; "
                f"make room, or name another directory with BROBUST_CACHE"
            )
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _env() -> dict[str, str]:
    """Nothing of the caller's environment but where programs and temporary files are: kbuild obeys many variables."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return kept | FIXED


class _Log:
    """Everything that the programs of a build say."""

    def __init__(self, path: Path):
        self.path = path

    def __enter__(self) -> _Log:
        self._file: IO[str] = self.path.open("w+")
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, text: str) -> None:
        self._file.write(text)

    @contextmanager
    def child(self, argv: Sequence[str], cwd: Path, *, pipe: bool = False) -> Iterator[subprocess.Popen[str]]:
        """A program whose words go to the log, or through the pipe to the caller. It does not outlive us."""
        self._file.flush()
        with subprocess.Popen(
            argv, cwd=cwd, env=_env(), stdin=subprocess.DEVNULL, text=True, errors="replace",
            stdout=subprocess.PIPE if pipe else self._file, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            try:
                yield child
            except BaseException:
                child.terminate()
                raise

    def call(self, argv: Sequence[str], cwd: Path) -> int:
        with self.child(argv, cwd) as child:
            return child.wait()

    def lines(self) -> list[str]:
        self._file.flush()
        return [line for line in self.path.read_text(errors="replace").splitlines() if line.strip()]

    def tail(self, count: int = 15) -> list[str]:
        return self.lines()[-count:]

    def last_line(self) -> str:
        return (self.tail(1) or ["no message"])[0]

    def error(self) -> str:
        """The first line that names an error; make's own last words name only a target."""
        return next((line for line in self.lines() if re.search(r"\berror\b|undefined reference", line)),
                    self.last_line()).strip()  # fmt: skip

    def keep(self, path: Path) -> None:
        self._file.flush()
        shutil.copy(self.path, path)
