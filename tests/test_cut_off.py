"""What a killed process, a power cut or a full disk has left of a file in the cache is refused in one line, or made
again by the command that made it, and never used."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from brobust import quic
from brobust.errors import BrobustError
from brobust.host.cache import cache_directory
from brobust.kernels import apt, build, sent, sources, toolchain
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.kernels.apt import Archive
from brobust.kernels.sources import Order
from brobust.quic import build as quic_build
from test_virtual_kernels import ours_in, tree_in

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@dataclass
class Kept:
    """Something in the cache. `make` is the command that makes it, `use` returns what another command gets of it.
    `marks`: the only files by which it is believed, and which may not be empty; none: every damage is found."""

    make: Callable[[], object]
    use: Callable[[], object]
    marks: tuple[str, ...] = ()


def _virtual_kernel(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    order = Order.of_tree(tree_in(place))
    ours_in(place, monkeypatch)
    return Kept(lambda: build.build(order), lambda: virtual_kernels.find(order.name).path.read_bytes())


def _kept_tree(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    order = Order.of_tree(tree_in(place))
    control = ours_in(place, monkeypatch) / "tree/net/ipv4/tcp_own.c"
    build.build(order, keep_tree=True)

    def make() -> str:
        control.write_text(control.read_text() + "// changed\n")
        return build.build(order).kernel.sha256

    return Kept(make, make, ("kept.json",))


def _quic_stack(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    release = "$CARGO_TARGET_DIR/release"
    (place / "bin").mkdir()
    (place / "bin/cargo").write_text(f'#!/bin/sh\nmkdir -p "{release}"\ncp "$3" "{release}/brobust-quinn"\n')
    (place / "bin/cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}/bin:/usr/bin:/bin")
    stack = quic.STACKS["quinn"]

    def use() -> bytes:
        quic.check_built([stack])
        return stack.program.read_bytes()

    return Kept(lambda: quic_build.build(stack, lambda _: None), use)


def _sent_kernel(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    order = Order.of_tree(tree_in(place))
    ours_in(place, monkeypatch)
    packed = sent.packed(build.build(order).kernel.name)
    monkeypatch.setenv("BROBUST_CACHE", str(place / "of a worker"))

    def make() -> tuple[str, bytes]:
        kernel = sent.unpacked(packed)
        return kernel.sha256, kernel.path.read_bytes()

    return Kept(make, make)


def _offered_by_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let apt offer a kernel and its headers, which consist of some files."""

    def unpack(_: Archive, package: str, scratch: Path, tree: Path) -> None:
        for name in (
            ("boot/vmlinuz-6.1.9", "lib/modules/6.1.9/modules.dep", "lib/modules/6.1.9/modules.builtin")
            if package.startswith("linux-image")
            else (f"usr/src/{package}/Makefile",)
        ):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(f"what {name} says")

    monkeypatch.setattr(vm_kernels, "_unpack", unpack)
    monkeypatch.setattr(vm_kernels, "_tool", lambda *_, **__: None)
    monkeypatch.setattr(vm_kernels, "_debian_package", lambda name: (apt.HOST, "linux-image-6.1.9-cloud-amd64"))
    monkeypatch.setattr(vm_kernels, "archives", list)


def _guest_kernel(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    _offered_by_debian(monkeypatch)

    def make() -> list[bytes]:
        kernel = vm_kernels.find("debian-6.1")
        return [file.read_bytes() for file in (kernel.image, kernel.modules / "modules.dep")]

    return Kept(make, make, ("vmlinuz-6.1.9", "modules.dep"))


def _headers(place: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    _offered_by_debian(monkeypatch)

    def make() -> bytes:
        return (vm_kernels.headers("debian-6.1") / "Makefile").read_bytes()

    return Kept(make, make, ("Makefile",))


KINDS = (_virtual_kernel, _kept_tree, _quic_stack, _sent_kernel, _guest_kernel, _headers)


def _or_refused(use: Callable[[], object]) -> object:
    """Return what another command gets; None: it is refused, in one line."""
    try:
        return use()
    except BrobustError as refusal:
        assert "\n" not in str(refusal)
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_of_a_file_in_the_cache_is_made_again_and_not_used(
    kind: Callable[[Path, pytest.MonkeyPatch], Kept], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path / "cache"))
    kept = kind(tmp_path, monkeypatch)
    kept.make()
    whole, tried = kept.use(), 0
    copy = shutil.copytree(cache_directory(), tmp_path / "copy")
    for file in sorted(path for path in copy.rglob("*") if path.is_file()):
        for name, damage in DAMAGES.items():
            if kept.marks and not (file.name in kept.marks and name in ("missing", "empty")):
                continue
            shutil.rmtree(cache_directory())
            shutil.copytree(copy, cache_directory())
            there = cache_directory() / file.relative_to(copy)
            there.unlink()
            if (left := damage(file.read_bytes())) is not None:
                there.write_bytes(left)
                shutil.copymode(file, there)
            said = f"{name}: {file.relative_to(copy)}"
            assert _or_refused(kept.use) in (None, whole), said
            if kept.make != kept.use:
                kept.make()
            assert kept.use() == whole, said
            tried += 1
    assert tried >= 2


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_left_of_a_source_package_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    monkeypatch.setattr(sources, "_offer", lambda names: None)
    package = tmp_path / "sources/linux-source-6.12_6.12.9-1.tar.xz"
    package.parent.mkdir()
    (tmp_path / "linux-source-6.12").mkdir()
    (tmp_path / "linux-source-6.12/Makefile").write_text("VERSION = 6\n")
    with toolchain.Log(tmp_path / "log") as log:
        assert log.call(["tar", "-cJf", str(package), "linux-source-6.12"], cwd=tmp_path) == 0
        left = DAMAGES[damage](package.read_bytes())
        package.unlink() if left is None else package.write_bytes(left)
        order, progress = Order.of_debian("virtual-6.12"), toolchain.Progress()
        with pytest.raises(BrobustError, match=r"cannot be unpacked|neither apt nor"):
            sources.unpack(order, sources.fetch(order, tmp_path, log, progress), tmp_path, log, progress)


@pytest.mark.parametrize("state", ["", "[]", "7", '{"key": 5}', json.dumps({"key": "x", "files": 5, "controls": []})])
def test_a_kept_tree_of_which_nothing_is_known_is_built_from_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    kept = _kept_tree(tmp_path, monkeypatch)
    (directory,) = virtual_kernels.cache_root().glob(".kept-*")
    (directory / "kept.json").write_text(state)
    (directory / "linux/of-before").touch()
    kept.make()
    assert not (directory / "linux/of-before").exists()
