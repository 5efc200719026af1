"""Virtual kernels are built only when something has changed, found by name, and refused in one line."""

import contextlib
import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from brobust.cli import kernel as command
from brobust.errors import BadInput, BrobustError, MissingSupport
from brobust.kernels import build, our_files, sources, toolchain
from brobust.kernels import tree as from_tree
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.sources import Order
from brobust.scenario import Grid
from brobust.virtual import cpus
from conftest import Brobust

# The part of a kernel's Makefile that a build uses. It "compiles" a file that a patch may change.
MAKEFILE = """\
VERSION = 6
PATCHLEVEL = 4
SUBLEVEL = 0
EXTRAVERSION = -v3
.PHONY: linux allnoconfig
allnoconfig:
	@cp $(KCONFIG_ALLCONFIG) .config
	@sed -n 's/^\\tdefault /CONFIG_HZ=/p' arch/um/Kconfig >>.config
linux:
	@echo "  CC      net/ipv4/tcp_own.o"
	@grep -q broken init/main.c && { echo "init/main.c:1:1: error: broken"; exit 1; } || true
	@echo "net/ipv4/tcp_own.o: net/ipv4/tcp_own.c" >net/ipv4/.tcp_own.o.cmd
	@mkdir -p include/config && echo 6.4.0-v3 >include/config/kernel.release
	@cat init/main.c >linux; date >/dev/null; echo "$(KBUILD_BUILD_TIMESTAMP)" >>linux; chmod +x linux
"""
PATCH = """\
Greets.
--- a/init/main.c
+++ b/init/main.c
@@ -1,3 +1,3 @@
 one
-two
+two, patched
 three
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return tree_in(tmp_path)


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return ours_in(tmp_path, monkeypatch)


def tree_in(directory: Path) -> Path:
    """Make a tree that builds in a moment."""
    root = directory / "tree"
    for directory in ("arch/um", "init", "net/ipv4", "drivers/gpu"):
        (root / directory).mkdir(parents=True)
    (root / "Makefile").write_text(MAKEFILE)
    (root / "Kconfig").write_text("")
    (root / "arch/um/Kconfig").write_text("config HZ\n\tint\n\tdefault 100\n\nconfig NR_CPUS\n\tint\n")
    (root / "init/main.c").write_text("one\ntwo\nthree\n")
    (root / "drivers/gpu/huge.c").write_text("not for User-Mode Linux\n")
    return root


def ours_in(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test its own kernel/virtual and cache."""
    root = directory / "ours"
    (root / "patches").mkdir(parents=True)
    (root / "tree/net/ipv4").mkdir(parents=True)
    (root / "config").write_text("CONFIG_TCP_CONG_ADVANCED=y\nCONFIG_TCP_CONG_BBR=y\nCONFIG_HZ=100\n")
    (root / "patches/0001-greet.patch").write_text(PATCH)
    (root / "tree/net/ipv4/tcp_own.c").write_text("tcp_register_congestion_control(&own);\n")
    (root / "cc/controls").mkdir(parents=True)
    monkeypatch.setattr(our_files, "VIRTUAL", root)
    monkeypatch.setattr(our_files, "CC", root / "cc")
    monkeypatch.setattr(our_files, "PATCHES", root / "series")
    monkeypatch.setenv("BROBUST_CACHE", str(directory / "cache"))
    return root


@pytest.fixture
def log(tmp_path: Path) -> Iterator[toolchain.Log]:
    with toolchain.Log(tmp_path / "build.log") as opened:
        yield opened


def _built(tree: Path, **options: int | str) -> build.BuildResult:
    return build.build(Order.of_tree(tree, **options))  # type: ignore[arg-type]


def test_a_tree_is_built_with_our_patches_and_files_and_stays_as_it_was(tree: Path, ours: Path) -> None:
    before = sorted(tree.rglob("*"))
    built = _built(tree)
    assert built.kernel.name == "virtual-6.4.0-v3"
    assert built.kernel.release == "6.4.0-v3"
    assert built.kernel.path.read_text().startswith("one\ntwo, patched\nthree\nThu Jan  1 00:00:00 UTC 1970")
    assert built.kernel.congestion_controls == {"reno", "bbr", "own"}
    assert (sorted(tree.rglob("*")), (tree / "init/main.c").read_text()) == (before, "one\ntwo\nthree\n")
    assert virtual_kernels.find("virtual-6.4.0-v3") == built.kernel
    assert not list(virtual_kernels.cache_root().glob(".building-*"))


def test_nothing_is_built_twice_until_something_changes(tree: Path, ours: Path) -> None:
    assert [_built(tree).cached, _built(tree).cached] == [False, True]
    (ours / "patches/0001-greet.patch").write_text(PATCH.replace("patched", "mended"))
    with pytest.raises(MissingSupport, match=r"kernel/virtual or cc has changed.*--source .*/tree --name vir"):
        virtual_kernels.find("virtual-6.4.0-v3")
    assert [_built(tree).cached, _built(tree).cached] == [False, True]
    (tree / "init/other.c").write_text("new")
    assert not _built(tree).cached
    assert not build.build(Order.of_tree(tree), force=True).cached


def test_a_kernel_is_stale_only_after_a_change_in_what_it_is_built_from(tree: Path, ours: Path) -> None:
    for host in ("bpf", "module", "program"):
        (ours / "cc/hosts" / host).mkdir(parents=True)
    kernel = _built(tree).kernel
    for host, is_stale in (("bpf", False), ("program", False), ("module", True)):
        (ours / "cc/hosts" / host / "control.h").write_text("new")
        found = virtual_kernels.cached(kernel.name)
        assert found is not None and found.stale == is_stale, host


def test_a_wheel_has_its_own_copies_and_a_checkout_the_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = Path(__file__).parent.parent
    assert our_files.directory("kernel/virtual") == root / "kernel/virtual"
    monkeypatch.setattr(our_files, "_REPOSITORY", tmp_path)
    assert our_files.directory("kernel/virtual") == root / "python/brobust/sources/kernel/virtual"


def test_no_source_of_a_kernel_is_reached_by_a_link() -> None:
    files = our_files.of_virtual_kernels()
    assert f"{our_files.CC_IN_TREE}/controls/brb_bbr1.c" in files
    assert not [name for name, path in files.items() if path.is_symlink() or path != path.resolve()]


def test_a_kept_tree_is_built_in_place_when_only_our_files_change(tree: Path, ours: Path) -> None:
    assert not _built(tree).cached
    assert not build.build(Order.of_tree(tree), keep_tree=True).cached, "it is built again for the tree"
    (kept,) = virtual_kernels.cache_root().glob(".kept-*")
    mark = kept / "linux/left-by-the-first-build"
    mark.touch()
    (ours / "tree/net/ipv4/tcp_own.c").write_text("tcp_register_congestion_control(&own); // changed\n")
    (ours / "tree/net/ipv4/tcp_new.c").write_text("tcp_register_congestion_control(&new);\n")
    unchanged = (kept / "linux/init/main.c").stat().st_mtime_ns
    again = _built(tree)
    assert (again.cached, mark.exists(), (kept / "kept.json").exists()) == (False, True, True)
    assert "changed" in (kept / "linux/net/ipv4/tcp_own.c").read_text()
    assert (kept / "linux/init/main.c").stat().st_mtime_ns == unchanged
    assert again.kernel.congestion_controls == {"reno", "bbr", "own"}
    assert virtual_kernels.find(again.kernel.name) == again.kernel
    assert build.build(Order.of_tree(tree), keep_tree=False).cached and not kept.exists()


@pytest.mark.parametrize(
    "change", ["a patch", "the configuration", "a file is gone", "the tree", "a killed build", "--force", "--no-keep"]
)
def test_a_kept_tree_that_does_not_fit_is_built_from_the_beginning(tree: Path, ours: Path, change: str) -> None:
    build.build(Order.of_tree(tree), keep_tree=True)
    (kept,) = virtual_kernels.cache_root().glob(".kept-*")
    mark = kept / "linux/left-by-the-first-build"
    mark.touch()
    (ours / "tree/net/ipv4/tcp_own.c").write_text("tcp_register_congestion_control(&own); // changed\n")
    if change == "a patch":
        (ours / "patches/0001-greet.patch").write_text(PATCH.replace("patched", "mended"))
    elif change == "the configuration":
        (ours / "config").write_text((ours / "config").read_text() + "CONFIG_NET=y\n")
    elif change == "a file is gone":
        (ours / "tree/net/ipv4/tcp_own.c").rename(ours / "tree/net/ipv4/tcp_other.c")
    elif change == "the tree":
        (tree / "init/other.c").write_text("new")
    elif change == "a killed build":
        (kept / "kept.json").unlink()
    again = build.build(
        Order.of_tree(tree), force=change == "--force", keep_tree=False if change == "--no-keep" else None
    )
    assert not again.cached and not mark.exists()
    assert kept.exists() == (change != "--no-keep")


def test_a_build_that_is_killed_while_it_removes_its_tree_leaves_none_that_looks_whole(
    tree: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(directory: Path, **_: object) -> None:
        if (directory / "linux").exists():
            (directory / "linux/Makefile").unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", killed)
        build.build(Order.of_tree(tree))
    (left,) = virtual_kernels.cache_root().glob(".building-*")
    assert (left / "linux/init").exists() and not (left / "kept.json").exists(), "the next build begins anew"
    (ours / "tree/net/ipv4/tcp_own.c").write_text("tcp_register_congestion_control(&own); // changed\n")
    assert not build.build(Order.of_tree(tree)).cached and not left.exists()


def test_where_two_names_cannot_be_exchanged_a_kept_tree_serves_again_and_again(
    tree: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS. What was replaced lies beside the tree, which stays."""
    as_on_nfs = SimpleNamespace(renameat2=lambda *_: -1, syncfs=lambda _: 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: as_on_nfs)
    for number in range(3):
        (ours / "tree/net/ipv4/tcp_own.c").write_text(f"tcp_register_congestion_control(&own); // {number}\n")
        built = build.build(Order.of_tree(tree), keep_tree=True)
        assert not built.cached and virtual_kernels.find(built.kernel.name) == built.kernel


def test_a_tree_that_may_only_be_read_is_built_as_any_other(tree: Path, ours: Path) -> None:
    (tree / "init").chmod(0o555)
    (tree / "init/main.c").chmod(0o444)
    try:
        assert _built(tree, name="virtual-readable").kernel.release == "6.4.0-v3"
        build.build(Order.of_tree(tree, name="virtual-readable"), keep_tree=True)
        (kept,) = virtual_kernels.cache_root().glob(".kept-*/linux/init")
        assert (kept.stat().st_mode & 0o200, (kept / "main.c").stat().st_mode & 0o200) == (0o200, 0o200)
    finally:
        (tree / "init").chmod(0o755)


def test_a_build_that_fails_keeps_its_tree_for_the_next(tree: Path, ours: Path) -> None:
    """Make leaves no half-written object where a file has an error: that is what changes most while one works."""
    (ours / "tree/init").mkdir()
    build.build(Order.of_tree(tree), keep_tree=True)
    (kept,) = virtual_kernels.cache_root().glob(".kept-*")
    (kept / "linux/left-by-the-first-build").touch()
    (ours / "tree/init/main.c").write_text("broken\n")
    with pytest.raises(toolchain.BuildFailed):
        _built(tree)
    (ours / "tree/init/main.c").write_text("whole again\n")
    assert _built(tree).kernel.path.read_text().startswith("whole again")
    assert (kept / "linux/left-by-the-first-build").exists()


def test_the_tick_is_settable_and_names_the_kernel(tree: Path, ours: Path) -> None:
    default, fast = _built(tree).kernel, _built(tree, hz=1000).kernel
    assert (default.name, default.hz) == ("virtual-6.4.0-v3", 250)
    assert (fast.name, fast.hz) == ("virtual-6.4.0-v3-hz1000", 1000)
    assert "CONFIG_HZ=1000\n" in (fast.path.parent / "config").read_text()
    assert [kernel.name for kernel in virtual_kernels.available()] == [default.name, fast.name]


def test_a_name_says_the_tick_of_a_tree_too_and_is_what_a_refusal_repeats(tree: Path, ours: Path) -> None:
    built = _built(tree, name="virtual-mine-hz1000").kernel
    assert (built.name, built.hz) == ("virtual-mine-hz1000", 1000)
    assert "CONFIG_HZ=1000\n" in (built.path.parent / "config").read_text()
    # Who follows a refusal gets the kernel that was there.
    assert built.build_command == f"brobust kernel build --source {tree} --name virtual-mine-hz1000"
    for name, hz, words in (("hz1000", 250, "250 contradicts"), ("hz77", None, "no tick of 77"), ("a", 0, "tick of 0")):
        with pytest.raises(BadInput, match=words):
            Order.of_tree(tree, f"virtual-mine-{name}", hz)


def test_the_key_knows_source_files_tick_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(hz: int = 250, source: str = "6.12.1", files: str = "a") -> str:
        return build.key(Order.of_debian("virtual-6.12", hz), source, files)

    monkeypatch.setattr(build, "compiler", lambda: "gcc 12")
    keys = {key(), key(hz=1000), key(source="6.12.2"), key(files="b")}
    monkeypatch.setattr(build, "compiler", lambda: "gcc 14")
    assert len(keys | {key()}) == 5


def test_an_option_with_a_prompt_is_left_to_the_configuration(tree: Path) -> None:
    kconfig = tree / "arch/um/Kconfig"
    from_tree.make_tick_settable(kconfig, 1000)
    assert "default 1000\n\nconfig NR_CPUS" in kconfig.read_text()
    asking = 'config HZ\n\tint "Timer frequency"\n\tdefault 100\n'
    kconfig.write_text(asking)
    from_tree.make_tick_settable(kconfig, 1000)
    assert kconfig.read_text() == asking


def test_a_log_is_kept_if_any_program_has_said_something(log: toolchain.Log, tmp_path: Path) -> None:
    log.keep(tmp_path / "kept.log")
    assert not (tmp_path / "kept.log").exists()
    log.write("said\n")
    log.keep(tmp_path / "kept.log")
    assert (tmp_path / "kept.log").read_text() == "said\n"


def test_a_patch_that_does_not_fit_is_refused_by_its_name_and_place(tree: Path, ours: Path, log: toolchain.Log) -> None:
    (ours / "patches/0002-more.patch").write_text(
        "--- a/init/main.c\n+++ b/init/main.c\n@@ -1,3 +1,3 @@\n four\n-five\n+6\n six\n"
        "--- a/kernel/no.c\n+++ b/kernel/no.c\n@@ -1 +1 @@\n-a\n+b\n"
    )
    with pytest.raises(BadInput) as refusal:
        from_tree.bring_our_files(tree, ours, log, toolchain.Progress())
    assert str(refusal.value) == (
        "kernel: kernel/virtual/patches/0002-more.patch does not apply to Linux 6.4.0-v3: init/main.c (hunk 1 "
        "at line 1), kernel/no.c (not in this tree); adapt the patch or give another tree"
    )
    assert (tree / "init/main.c").read_text() == "one\ntwo, patched\nthree\n"  # 0001 did fit


def test_a_patch_says_for_which_trees_it_is(tree: Path, ours: Path, log: toolchain.Log) -> None:
    misfit = "\n--- a/init/main.c\n+++ b/init/main.c\n@@ -1 +1 @@\n-four\n+five\n"
    (ours / "patches/0002-others.patch").write_text(f"Only where init/main.c has: nothing of the kind\n{misfit}")
    (ours / "patches/0003-gone.patch").write_text(f"Only where init/none.c has: one\n{misfit}")
    (ours / "patches/0004-has-it.patch").write_text(f"Left out where init/main.c has: three\n{misfit}")
    from_tree.bring_our_files(tree, ours, log, toolchain.Progress())
    assert (tree / "init/main.c").read_text() == "one\ntwo, patched\nthree\n"
    (ours / "patches/0001-greet.patch").write_text(f"Only where init/main.c has: three\n{misfit}")
    with pytest.raises(BadInput, match=r"0001-greet\.patch does not apply"):
        from_tree.bring_our_files(tree, ours, log, toolchain.Progress())


def test_a_trees_own_controls_are_built_and_its_versions_of_bbr_are_known(tree: Path, ours: Path) -> None:
    source = 'static struct tcp_congestion_ops ops = {\n\t.name\t\t= "%s",\n};\n'
    (tree / "net/ipv4/Kconfig").write_text("config TCP_CONG_ADVANCED\n\tbool\nconfig TCP_CONG_BBR2\n\ttristate\n")
    (tree / "net/ipv4/tcp_bbr.c").write_text("#define BBR_VERSION\t\t3\n" + source % "bbr")
    (tree / "net/ipv4/tcp_bbr2.c").write_text("info->bbr2.bbr_version\t\t= (__u8)2;\n" + source % "bbr2")
    kernel = _built(tree).kernel
    assert kernel.bbr_versions == {"bbr": 3, "bbr2": 2}
    assert kernel.congestion_controls == {"reno", "bbr", "bbr2", "own"}
    assert "bbr (version 3) bbr2 (version 2)" in command.render([kernel], width=80)
    (tree / "net/ipv4/tcp_bbr.c").write_text(source % "bbr")
    assert from_tree.bbr_versions(tree)["bbr"] == 1


def test_a_patch_that_is_applied_already_is_called_so(tree: Path, ours: Path, log: toolchain.Log) -> None:
    (tree / "init/main.c").write_text("one\ntwo, patched\nthree\n")
    with pytest.raises(BadInput, match=r"0001-greet\.patch does not apply to .*: init/main\.c \(already applied\)"):
        from_tree.bring_our_files(tree, ours, log, toolchain.Progress())


def test_a_failed_build_names_the_error_and_keeps_its_log(tree: Path, ours: Path) -> None:
    (tree / "init/main.c").write_text("one\ntwo\nthree\nbroken\n")
    with pytest.raises(toolchain.BuildFailed, match=r"init/main\.c:1:1: error: broken; whole log: (.*)") as failure:
        _built(tree)
    kept = Path(str(failure.value).rpartition(": ")[2])
    assert "  CC      net/ipv4/tcp_own.o" in kept.read_text()
    assert any("Error 1" in line for line in failure.value.last_lines)
    with pytest.raises(BadInput, match="not a kernel of the virtual backend"):
        virtual_kernels.find("virtual-6.4.0-v3")


def test_controls_are_those_of_the_configuration() -> None:
    config = (
        "CONFIG_TCP_CONG_ADVANCED=y\nCONFIG_TCP_CONG_BBR=y\nCONFIG_TCP_CONG_HSTCP=y\nCONFIG_TCP_CONG_CUBIC=m\n"
        '# CONFIG_TCP_CONG_BIC is not set\nCONFIG_DEFAULT_TCP_CONG="bbr"\n'
    )
    assert virtual_kernels.controls_of_config(config) == {"reno", "bbr", "highspeed"}


def test_options_that_a_tree_does_not_have_are_told() -> None:
    wanted = ["CONFIG_NET=y", "CONFIG_GONE=y", "# CONFIG_IPV6 is not set", "# CONFIG_RANDOM is not set", "# prose"]
    assert from_tree.options_lacking(wanted, "CONFIG_NET=y\nCONFIG_IPV6=y\n") == ["CONFIG_GONE=y", "CONFIG_IPV6 off"]


@pytest.mark.parametrize("of", ["a pipe", "a device", "nested lists"])
def test_what_cannot_be_read_to_an_end_in_the_cache_is_no_kernel_and_no_stack(tmp_path: Path, of: str) -> None:
    """As root, `brobust kernel list` looks at a cache before anything tells it whose that is."""
    made = {"a pipe": os.mkfifo, "a device": lambda file: file.symlink_to("/dev/zero"),
            "nested lists": lambda file: file.write_text("[" * 200_000)}  # fmt: skip
    for file in ("virtual/virtual-6.12/kernel.json", "quic/quinn/built.json"):
        (tmp_path / file).parent.mkdir(parents=True)
        made[of](tmp_path / file)
    code = "from brobust import quic; from brobust.kernels import virtual as kernels\n"
    code += "print(kernels.cached('virtual-6.12'), quic.STACKS['quinn'].state)"
    limited = ["sh", "-c", 'ulimit -v 8000000; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(
        limited, env={**os.environ, "BROBUST_CACHE": str(tmp_path)}, capture_output=True, text=True, check=False,
        timeout=20,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("None missing\n", "")


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("virtual-6.12", MissingSupport, r"^kernel: virtual-6.12 is not built; .*`brobust kernel build virtual-6.12` "),
        ("virtual-6.1-hz1000", MissingSupport, r"built here: .*; `brobust kernel build virtual-6.1-hz1000` builds it"),
        ("debian-6.12", BadInput, "'debian-6.12' is not a kernel of the virtual backend; built here: none"),
        (
            "../kernels",
            BadInput,
            "not a kernel of the virtual backend; .* --source DIR --name virtual-NAME` your own",
        ),
        ("virtual-mine", BadInput, "`brobust kernel build --source DIR --name virtual-mine` your own"),
    ],
)
def test_a_kernel_that_is_not_there_is_refused_with_the_command_that_builds_it(
    ours: Path, name: str, error: type[BrobustError], words: str
) -> None:
    with pytest.raises(error, match=words):
        virtual_kernels.find(name)


def test_a_kernel_that_this_place_does_not_let_run_is_refused(tree: Path, ours: Path) -> None:
    built = _built(tree).kernel
    built.path.chmod(0o644)  # what a file system that is mounted noexec looks like
    with pytest.raises(MissingSupport, match="noexec"):
        virtual_kernels.find(built.name)


def test_a_kernel_that_a_wheel_brought_is_found_after_the_cache(
    tree: Path, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _built(tree).kernel
    wheel = tmp_path / "bin"
    wheel.mkdir()
    monkeypatch.setattr(virtual_kernels, "_FROM_WHEEL", wheel)
    built.path.parent.rename(wheel / built.name)
    assert virtual_kernels.find(built.name).where == "wheel"
    _built(tree)
    cached = virtual_kernels.find(built.name)
    assert cached.where == "cache" and len(virtual_kernels.available()) == 1
    with cached.path.open("a") as executable:
        executable.write("x")
    assert virtual_kernels.find(built.name).where == "wheel", "a damaged one does not hide it"
    (wheel / built.name / "linux").unlink()
    with pytest.raises(MissingSupport, match="has changed since it was built"):
        virtual_kernels.find(built.name)


def test_the_list_shows_every_kernel_within_80_columns(tree: Path, ours: Path) -> None:
    names = [f"BRB_A_NAME_OF_{number}" for number in range(20)]  # as long as the longest of our names
    (ours / "config").write_text("".join(f"CONFIG_TCP_CONG_{name}=y\n" for name in names))
    kernel = _built(tree).kernel
    said = command.render(virtual_kernels.available(), 80)
    for word in (kernel.name, f"{kernel.release},", "HZ=250,", "cache", *kernel.congestion_controls):
        assert word in said.split()
    assert kernel.sha256[:8] in said
    assert all(len(line) <= 80 for line in said.splitlines())


def test_an_empty_list_says_how_to_fill_it(brobust: Brobust, tmp_path: Path) -> None:
    environment = {**os.environ, "BROBUST_CACHE": str(tmp_path / "empty")}
    assert brobust("kernel", "list", "--json", env=environment).stdout == ""
    assert "brobust kernel build virtual-6.12" in brobust("kernel", "list", env=environment).stdout


def test_build_says_what_it_built_and_its_phases_beside(
    tree: Path, ours: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.build(None, tree, "virtual-mine", 1000, False, True)
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert (said["name"], said["hz"], said["cached"]) == ("virtual-mine-hz1000", 1000, False)
    command.build(None, tree, "virtual-mine", 1000, False)
    kernel = virtual_kernels.find("virtual-mine-hz1000")
    assert capsys.readouterr().out == (
        f"virtual-mine-hz1000: Linux {kernel.release}, HZ=1000, nothing changed: {kernel.path}\n"
    )
    assert "virtual-mine-hz1000: applying patches: 1" in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["debian-6.12"], ["'debian-6.12'", "virtual-6.12", "--source"]),
        (["virtual-6.12", "--hz", "200"], ["--hz", "200", "100, 250, 300, 1000"]),
        (["virtual-6.12-hz100", "--hz", "1000"], ["--hz", "contradicts"]),
        (["--source", "/nowhere"], ["--source", "/nowhere", "not a kernel tree"]),
        (["--name", "virtual-mine"], ["--name", "virtual-mine", "--source"]),
    ],
)
def test_bad_input_is_refused_in_one_line(brobust: Brobust, arguments: list[str], words: list[str]) -> None:
    done = brobust("kernel", "build", *arguments)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    for word in words:
        assert word in line


def test_where_the_usual_kernel_is_not_built_the_newest_that_is_runs_and_says_why(
    tree: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(name: str) -> None:
        build.build(Order(name, 250, tree=tree))

    assert virtual_kernels.default() == "virtual-6.12"  # no kernel is built: the refusal names the default one
    for name in ("virtual-6.1", "virtual-6.8", "virtual-7.3-own"):
        built(name)
    grid = Grid.from_flags({})
    assert {scenario.kernel for scenario in grid.scenarios} == {"virtual-6.8"} == {grid.fields["kernel"]}
    assert grid.notes == [
        "kernel: using virtual-6.8, because virtual-6.12 is not built here; `brobust kernel build virtual-6.12` builds "
        "it if apt offers its source"
    ]
    assert Grid.from_flags({"kernel": "virtual-6.1"}).notes == []
    built("virtual-6.12")
    assert virtual_kernels.default() == "virtual-6.12" and Grid.from_flags({}).notes == []
    assert Grid(grid.fields).scenarios == grid.scenarios  # a series is completed with the kernel with which it began


@pytest.mark.parametrize(
    ("offered", "series"),
    [
        (["linux-source-6.1", "linux-source-6.12", "linux-source-7.3"], "6.12"),
        (["linux-source", "linux-source-6.1"], "6.1"),
        (["linux-source-6.8.0"], "6.8"),
        (["linux-source-7.2", "linux-source-7.3", "linux-source-5.15"], "7.3"),
        (["linux-source-5.15.0"], "6.12"),  # our patches fit none of them: the refusal names the default series
    ],
)
def test_what_is_built_is_the_usual_series_or_the_newest_that_apt_offers(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: list[str], series: str
) -> None:
    programs_of_test = tmp_path / "bin"
    programs_of_test.mkdir()
    (programs_of_test / "apt-cache").write_text("#!/bin/sh\nprintf '%s\\n' " + " ".join(offered) + "\n")
    (programs_of_test / "apt-cache").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs_of_test}:{os.environ['PATH']}")
    order = Order.of_default()
    assert order.name == f"virtual-{series}"
    why = sources.why_default(order)
    assert why is None if series == "6.12" else why is not None and series in why


def test_an_executable_that_is_not_the_one_that_was_built_is_refused(tree: Path, ours: Path) -> None:
    kernel = _built(tree).kernel
    assert virtual_kernels.find(kernel.name) == kernel
    with kernel.path.open("a") as executable:
        executable.write("x")
    with pytest.raises(
        MissingSupport, match=r"linux has changed since it was built \(its SHA-256 .* virtual-6.4.0-v3` builds it again"
    ):
        virtual_kernels.find(kernel.name)
    assert not _built(tree).cached and virtual_kernels.find(kernel.name) == kernel


@pytest.mark.root
def test_root_runs_no_kernel_that_others_could_replace(tree: Path, ours: Path) -> None:
    kernel = _built(tree).kernel
    kernel.path.parent.chmod(0o777)
    with pytest.raises(MissingSupport, match=r"may be written by others than its owner"):
        virtual_kernels.find(kernel.name)


def test_where_nothing_can_be_kept_nothing_is_built(
    tree: Path, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path / "file"))
    with pytest.raises(MissingSupport, match=r"cannot be built: /\S+/file/virtual: not a directory$"):
        _built(tree)


@pytest.mark.root
def test_root_builds_in_no_tree_that_others_could_change(tree: Path, ours: Path) -> None:
    build.build(Order.of_tree(tree), keep_tree=True)
    os.chown(virtual_kernels.cache_root() / ".kept-virtual-6.4.0-v3", 65534, 65534)
    (ours / "config").write_text("CONFIG_HZ=100\n")
    with pytest.raises(MissingSupport, match=r"\.kept-virtual-6\.4\.0-v3 belongs to user 65534, who could put"):
        build.build(Order.of_tree(tree))


@pytest.mark.root
def test_root_follows_no_link_that_others_have_put_into_the_cache(tree: Path, ours: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("of root")
    lock = virtual_kernels.cache_root() / ".virtual-6.4.0-v3.lock"
    lock.parent.mkdir(parents=True)
    lock.symlink_to(tmp_path / "file")
    with pytest.raises(MissingSupport, match=r"lock cannot be locked"):
        _built(tree)
    os.chown(lock.parent, 65534, 65534)
    with pytest.raises(MissingSupport, match=r"belongs to user 65534"):
        _built(tree)
    assert (tmp_path / "file").read_text() == "of root"


@pytest.mark.root
def test_root_builds_from_no_source_that_others_could_change(ours: Path, log: toolchain.Log, tmp_path: Path) -> None:
    store = tmp_path / "cache/sources"
    store.mkdir(parents=True)
    (store / "linux-source-6.12_6.12.9-1.tar.xz").touch()
    order = Order.of_debian("virtual-6.12")
    assert sources.fetch(order, tmp_path, log, toolchain.Progress()).description == "linux-source-6.12 6.12.9-1"
    store.chmod(0o777)
    with pytest.raises(MissingSupport, match=f"{store} may be written by others"):
        sources.fetch(order, tmp_path, log, toolchain.Progress())


def test_a_kernel_is_replaced_without_a_moment_in_which_there_is_none(
    tree: Path, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = _built(tree).kernel.name
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        assert virtual_kernels.cached(name) is not None, f"after {self} was renamed"
        return moved

    monkeypatch.setattr(Path, "rename", watched)
    assert not build.build(Order.of_tree(tree), force=True).cached


def test_no_link_of_others_is_followed_where_cpus_are_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "brobust-cpus"
    directory.mkdir()
    directory.chmod(0o777)  # somebody else made it before us
    for cpu in os.sched_getaffinity(0):
        (directory / str(cpu)).symlink_to(tmp_path / "created")
    monkeypatch.setattr(cpus, "lock_directory", lambda: directory)
    with cpus.Cpus().one() as cpu:
        assert cpu in os.sched_getaffinity(0)
    directory.chmod(0o755)  # it is ours, but holds links
    with cpus.Cpus().one():
        pass
    assert not (tmp_path / "created").exists()


def test_runs_of_several_processes_take_different_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "lock_directory", lambda: tmp_path / "locks")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with cpus.Cpus().one() as first, cpus.Cpus().one() as second:
        assert {first, second} == {0, 1}


def test_runs_of_more_processes_than_there_are_cpus_share_them_evenly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs side by side, or threads that call brobust.run: all but the first of each CPU were on the first CPU."""
    monkeypatch.setattr(cpus, "lock_directory", lambda: tmp_path / "locks")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    with contextlib.ExitStack() as held:
        taken = [held.enter_context(cpus.Cpus().one()) for _ in range(9)]
    assert Counter(taken) == {0: 3, 1: 3, 2: 3}


def test_a_run_needs_no_directory_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)  # as in a container whose file systems are read-only
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with cpus.Cpus().one() as cpu:
        assert cpu in os.sched_getaffinity(0)


def test_who_has_no_home_runs_the_kernels_of_the_wheel(
    tree: Path, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user of any number: what was built elsewhere needs no directory of his."""
    built = _built(tree).kernel
    for name in ("HOME", "XDG_CACHE_HOME", "BROBUST_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # of no user in /etc/passwd
    monkeypatch.setattr(virtual_kernels, "_FROM_WHEEL", tmp_path / "wheel")
    with pytest.raises(BadInput, match=r"is not a kernel of the virtual backend; built here: none"):
        virtual_kernels.find(built.name)
    shutil.copytree(built.path.parent, tmp_path / "wheel" / built.name)
    assert virtual_kernels.find(built.name).where == "wheel"
    assert [kernel.name for kernel in virtual_kernels.available()] == [built.name]


def test_names_stand_for_directories_and_for_debians_series_alone(tree: Path) -> None:
    with pytest.raises(BadInput, match="cannot name a kernel"):
        Order.of_tree(tree, "a/b")
    with pytest.raises(BadInput, match="stands for Debian's source"):
        Order.of_tree(tree, "virtual-6.12")


@pytest.mark.virtual
def test_the_default_kernel_is_there_with_what_the_measurements_need() -> None:
    kernel = virtual_kernels.find(virtual_kernels.DEFAULT)
    assert kernel.hz == 250
    assert {"cubic", "bbr", "bbr_robust", "reno"} <= kernel.congestion_controls
    said = subprocess.run([kernel.path, "--version"], capture_output=True, text=True, check=False, timeout=20).stdout
    assert said.split()[0] == kernel.release
