"""Build a User-Mode Linux kernel: source, patches, our files, configuration, compiler, cache.

This needs no root and installs nothing. A kernel is built again only if something changed that it is built from: the
source, our files, the tick or the compiler. Two builds from the same files give the same executable, byte for byte, on
any machine: the kernel's build string is part of the seed of its random number generator.
"""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from brobust import files
from brobust.errors import BadInput, MissingSupport, WriteFailed, one_line
from brobust.host.cache import cache_directory, put_in_place
from brobust.host.locks import locked_after_others, refuse_foreign_to_root
from brobust.kernels import kept_tree, our_files
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.sources import Order, Source, fetch, identity_of_tree, unpack
from brobust.kernels.toolchain import BuildFailed, Log, Progress, check_programs, check_room, log_of
from brobust.kernels.tree import bbr_versions, bring_our_files, compile_kernel, configure
from brobust.kernels.virtual import VirtualKernel

# Raise this when the way of building changes, so that kernels built the old way are built again.
RECIPE = 1

MIN_FREE_BYTES = 1_000_000_000  # for the sources without BULK, the objects, and the download


@dataclass(frozen=True)
class BuildResult:
    kernel: VirtualKernel
    seconds: float
    cached: bool
    """Whether nothing had changed, so that nothing was built."""


def build(
    order: Order, progress: Progress | None = None, *, force: bool = False, keep_tree: bool | None = None
) -> BuildResult:
    """Return the kernel of this order: from the cache if nothing that it is built from has changed, else built now.

    `force` builds it in any case, completely and from the newest source package that apt offers. `keep_tree` leaves the
    tree for the next build of this kernel (kept_tree.py); None: only if the previous build has left one.
    """
    try:
        with files.writing_to(virtual_kernels.cache_root()):
            return _build(order, progress or Progress(), force, keep_tree)
    except OSError as error:  # a cache directory that we may not write
        raise MissingSupport(f"kernel: {order.name} cannot be built: {one_line(error)}") from None


def _build(order: Order, progress: Progress, force: bool, keep_tree: bool | None) -> BuildResult:
    begun = time.monotonic()
    check_programs()
    sources = our_files.of_virtual_kernels(virtual_kernels.kind(order.name))
    hashed = our_files.hash_of(sources)
    with _alone(order.name, progress):
        earlier = virtual_kernels.cached(order.name)
        tree_is_wanted = keep_tree is True and not _kept(order.name).exists()
        if keep_tree is False:
            kept_tree.remove(_kept(order.name))
        if earlier is not None and not force and not tree_is_wanted:
            # Of Debian's sources the version that was built counts: a newer one is used only with `force`.
            identity = earlier.source if order.tree is None else identity_of_tree(order.tree)
            is_whole = virtual_kernels.hash_now(earlier) == earlier.sha256  # a power cut may have left half of it
            if is_whole and earlier.key == key(order, identity, hashed):
                return BuildResult(earlier, time.monotonic() - begun, cached=True)
        with (
            _scratch(order.name, keep_tree, force) as scratch,
            files.writing_to(scratch),  # before it is removed
            Log(scratch / "build.log") as log,
        ):
            try:
                source = fetch(order, scratch, log, progress, newest=force)
                # Somebody may be editing our files: kernel and hash must be made from the same copy.
                ours = our_files.copy(sources, scratch / "ours")
                tree, controls, objects = _compiled(order, source, ours, scratch, log, progress)
                kernel = keep(order, source, tree, ours, controls, objects, scratch)
            except (BuildFailed, MissingSupport, BadInput, subprocess.CalledProcessError):
                check_room(log.said(), scratch)
                log.keep(log_of(order.name))
                raise
        log_of(order.name).unlink(missing_ok=True)
        return BuildResult(kernel, time.monotonic() - begun, cached=False)


def _compiled(
    order: Order, source: Source, ours: Path, scratch: Path, log: Log, progress: Progress
) -> tuple[Path, dict[str, Path], int]:
    """Compile the kernel, starting from a tree that an earlier build has kept if that fits. Return the tree, the
    congestion controls that our files add, and how many files a complete build compiles."""
    tree, built_by = scratch / "linux", kept_tree.key([RECIPE, source.identity, order.hz, compiler()], ours)
    controls = kept_tree.update(scratch, built_by, ours)
    complete, stays = controls is None, scratch == _kept(order.name)
    if controls is None:
        shutil.rmtree(tree, ignore_errors=True)
        tree = unpack(order, source, scratch, log, progress)
        controls = bring_our_files(tree, ours, log, progress)
        configure(tree, ours, order.hz, log, progress)
    try:
        objects = compile_kernel(tree, order.name, log, progress)
    except BuildFailed:  # make has removed what it could not complete
        kept_tree.keep(scratch, built_by, ours, controls, stays=stays)
        raise
    kept_tree.keep(scratch, built_by, ours, controls, stays=stays)
    earlier = virtual_kernels.cached(order.name)
    return tree, controls, objects if complete or earlier is None else earlier.objects


def key(order: Order, source_identity: str, hash_of_our_files: str) -> str:
    """Return a hash of everything that decides the content of the executable."""
    parts = {
        "recipe": RECIPE,
        "source": source_identity,
        "our files": hash_of_our_files,
        "hz": order.hz,
        "compiler": compiler(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def compiler() -> str:
    """Return the versions of compiler, linker and C library; the last counts because the link is static."""
    first_lines = [
        subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.partition("\n")[0]
        for program in ("gcc", "ld")
    ]
    return "; ".join([*first_lines, os.confstr("CS_GNU_LIBC_VERSION") or ""])


def keep(
    order: Order, source: Source, tree: Path, ours: Path, new_controls: dict[str, Path], objects: int, scratch: Path
) -> VirtualKernel:
    """Move the built kernel as a whole to its place in the cache."""
    whole, final = scratch / "whole", virtual_kernels.cache_root() / order.name
    whole.mkdir()
    shutil.copy(tree / "linux", whole / "linux")
    shutil.copy(tree / ".config", whole / "config")
    hashed = our_files.hash_of(our_files.below(ours))
    compiled = {control for control, source in new_controls.items() if _was_compiled(tree, source)}
    kernel = VirtualKernel(
        name=order.name,
        path=whole / "linux",
        release=(tree / "include/config/kernel.release").read_text().strip(),
        hz=order.hz,
        sha256=hashlib.sha256((whole / "linux").read_bytes()).hexdigest(),
        congestion_controls=virtual_kernels.controls_of_config((whole / "config").read_text()) | compiled,
        source=source.description,
        our_files=hashed,
        key=key(order, source.identity, hashed),
        objects=objects,
        bbr_versions=bbr_versions(tree),
    )
    kernel.write()
    put_in_place(whole, final)
    return replace(kernel, path=final / "linux")


def _was_compiled(tree: Path, source: Path) -> bool:
    """Return whether a file is part of an object, its own or that of a file that includes it, as kbuild's dependency
    files say."""
    needs = (file.read_text(errors="replace") for file in (tree / source.parent).glob(".*.o.cmd"))
    return any(str(source) in text for text in needs)


@contextmanager
def _alone(name: str, progress: Progress) -> Iterator[None]:
    """Let only one process build this kernel at a time; a second one waits, and then finds what the first has built."""
    root = virtual_kernels.cache_root()
    root.mkdir(parents=True, exist_ok=True)
    refuse_foreign_to_root(root, cache_directory())
    with locked_after_others(root / f".{name}.lock", lambda _: progress.phase(f"waiting for another build of {name}")):
        yield


def _kept(name: str) -> Path:
    """Return the directory that stays from one build to the next if the tree is kept."""
    return virtual_kernels.cache_root() / f".kept-{name}"


@contextmanager
def _scratch(name: str, keep_tree: bool | None, force: bool) -> Iterator[Path]:
    """Yield a directory beside the final place, so that the result appears there whole, by renaming. It stays for the
    next build if its tree is kept."""
    stays = _kept(name).exists() if keep_tree is None else keep_tree
    scratch = _kept(name) if stays else virtual_kernels.cache_root() / f".building-{name}"
    if (scratch / kept_tree.STATE).exists() and not force:
        for leftover in ("ours", "whole", "whole.replaced", "package"):
            shutil.rmtree(scratch / leftover, ignore_errors=True)
    else:
        kept_tree.remove(scratch)  # it may be left by a build that was interrupted
    scratch.mkdir(mode=0o755, exist_ok=True)
    refuse_foreign_to_root(scratch, cache_directory())
    free = shutil.disk_usage(scratch).free
    try:
        if free < MIN_FREE_BYTES and not (scratch / kept_tree.STATE).exists():
            mount, kind = files.mounted_at(scratch)
            raise WriteFailed(
                f"a kernel's build needs {files.size(MIN_FREE_BYTES)}, and {mount} ({kind}), where its cache "
                f"{virtual_kernels.cache_root()} is, has {files.size(free)} left",
                "make room, or set BROBUST_CACHE to another directory",
            )
        yield scratch
    except KeyboardInterrupt:
        raise  # removing 46,000 files takes longer than Ctrl-C may; the next build does it
    except BaseException:
        _remove(scratch, stays)
        raise
    else:
        _remove(scratch, stays)


def _remove(scratch: Path, stays: bool) -> None:
    if not (stays and (scratch / kept_tree.STATE).exists()):
        kept_tree.remove(scratch)
