"""Guest kernels are found by name, and their modules with all that these depend on."""

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest

from brobust import quic
from brobust.backends import doctor, vm
from brobust.errors import BadInput, MissingSupport
from brobust.host.cache import cache_directory
from brobust.kernels import apt, sources
from brobust.kernels import vm as vm_kernels
from brobust.kernels.apt import HOST, Archive
from brobust.kernels.toolchain import Log, Progress
from brobust.scenario import Flows, Scenario
from brobust.testbed import accelerator

Offered = Callable[..., None]


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offered:
    """Return what sets the packages that apt and Debian's backports offer; None: there is no network. Nothing is in the
    cache."""

    def put(host: list[str], backports: list[str] | None = None) -> None:
        newer = None if backports is None else Archive(("-onewer=yes",))
        known = {HOST: host, newer: backports or []}
        monkeypatch.setattr(apt, "_backports", lambda: newer)
        monkeypatch.setattr(
            Archive, "dependencies", lambda self, package: ["<linux-base-7.2.9>" if "7.2.9" in package else "<dracut>"]
        )
        monkeypatch.setattr(Archive, "names", lambda self, prefix: [n for n in known[self] if n.startswith(prefix)])
        monkeypatch.setattr(
            Archive, "offered", lambda self, package: ("7.2.11-1", 5) if package in known[self] else None
        )

    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path / "cache"))
    vm_kernels._debian_package.cache_clear()
    vm_kernels._debian_packages.cache_clear()
    return put


CLOUD = "linux-image-{}.9-cloud-amd64"


def test_a_kernel_that_only_debians_backports_have_is_taken_from_there(offered: Offered) -> None:
    there = [CLOUD.format("6.1"), CLOUD.format("7.2"), "linux-image-7.2.7-cloud-amd64", "linux-image-7.2.8-cloud-amd64"]
    offered([CLOUD.format("6.1")], there)
    assert vm_kernels._debian_package("debian-6.1") == (HOST, CLOUD.format("6.1"))
    newer = vm_kernels._debian_package("debian-7.2")
    assert newer is not None and newer[1] == "linux-image-7.2.8-cloud-amd64", "7.2.9 is there without its parts"
    assert newer[0].download("package")[:2] == ["apt-get", "-onewer=yes"]
    vm_kernels.check_there("debian-7.2")
    with pytest.raises(BadInput, match=r"'debian-9\.9' does not exist"):
        vm_kernels.check_there("debian-9.9")


def test_a_kernel_that_is_not_there_is_refused_before_anything_starts_also_for_quic(
    offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered([CLOUD.format("6.12")])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(accelerator, "qemu_version", lambda: "7.2")
    monkeypatch.setattr(quic, "commands", lambda *_: None)
    with pytest.raises(BadInput, match=r"'debian-9\.9' does not exist"):
        vm.check([Scenario(backend="vm", kernel="debian-9.9", traffic="quic:quinn", flows=(Flows(cc="bbr"),))])
    of_uml = {"backend": "vm", "accelerator": "uml", "kernel": "virtual-9.9-realtime", "traffic": "quic:quinn"}
    with pytest.raises(MissingSupport, match=r"virtual-9\.9-realtime is not built"):
        vm.check([Scenario.model_validate({**of_uml, "flows": [{"cc": "bbr"}]})])


def test_a_host_without_veth_is_a_finding_of_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 2, "", "Error: Unknown device type.\n")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(doctor.Session, "start", nullcontext)
    monkeypatch.setattr(doctor.network, "create", lambda *_: "namespace")
    monkeypatch.setattr(subprocess, "run", lambda *_, check, **__: refused if not check else refused.check_returncode())
    assert doctor._wire()[:2] == ("missing", "no veth: Error: Unknown device type.")


def test_doctor_looks_at_guest_kernels_that_are_here_and_fetches_none(
    offered: Offered, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered([CLOUD.format("6.12")])
    monkeypatch.setattr(vm_kernels, "_unpack", lambda *_: pytest.fail("it fetches a kernel"))
    assert doctor._qdiscs()[0] in ("limited", "ok")  # ok with a kernel of this host's own


def test_a_guest_kernel_that_is_yet_to_be_fetched_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_guest_kernel", lambda: None)
    for check in (doctor._qdiscs, doctor._kvm, doctor._tcg):
        status, _, remedy = check()
        assert status == "limited" and "`brobust run --backend vm` fetches one" in remedy


def test_a_source_that_only_debians_backports_have_is_taken_from_there(offered: Offered, tmp_path: Path) -> None:
    order = sources.Order.of_debian("virtual-7.2")
    offered(["linux-source-6.12"], ["linux-source-7.2"])
    offer = sources._offer(["linux-source-7.2", "linux-source-7.2.0"])
    assert offer is not None and (offer.archive.options, offer.version) == (("-onewer=yes",), "7.2.11-1")
    offered(["linux-source-6.12"])
    with Log(tmp_path / "log") as log, pytest.raises(MissingSupport, match=r"backports offer linux-source-7\.2; try"):
        sources.fetch(order, tmp_path, log, Progress())


def test_backports_have_lists_of_their_own_that_are_fetched_once_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, called, cache = tmp_path / "apt-get", tmp_path / "called", tmp_path / "cache"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("BROBUST_CACHE", str(cache))
    monkeypatch.setattr(apt, "KEYS", program)
    ask = apt._backports.__wrapped__  # each process asks once

    def updates(status: int) -> int:
        program.write_text(f'#!/bin/sh\necho "$*" >>{called}\nexit {status}\n')
        program.chmod(0o755)
        archive = ask()
        assert archive is None or f"-oDir::State::Lists={cache}/backports/lists" in archive.options
        found = [line for line in called.read_text().splitlines() if line.endswith(" update")]
        assert all(f"-oDir::State::Lists={cache}/backports/lists" in line for line in found)
        return len(found) if archive is not None else -len(found)

    assert [updates(100), updates(0), updates(100)] == [-1, 2, 2], "without network, with it, and on the same day"
    os.utime(cache / "backports/fetched", (1, 1))
    assert updates(100) == 3, "the lists of another day are better than none"
    monkeypatch.setattr(apt, "KEYS", tmp_path / "none")
    assert ask() is None


@pytest.mark.root
def test_root_takes_no_kernel_and_no_headers_that_others_could_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    for file in ("boot/vmlinuz-6.12-cloud", "lib/modules/6.12-cloud/modules.dep"):
        (tmp_path / "kernels/debian-6.12" / file).parent.mkdir(parents=True)
        (tmp_path / "kernels/debian-6.12" / file).write_text("whole")
    there = tmp_path / "headers/6.12-cloud/usr/src/linux-headers-6.12-cloud"
    there.mkdir(parents=True)
    (there / "Makefile").write_text("whole")
    assert vm_kernels.headers("debian-6.12") == there
    for directory, ask in ((there.parent, vm_kernels.headers), (tmp_path / "kernels", vm_kernels.find)):
        os.chown(directory, 65534, 65534)
        with pytest.raises(MissingSupport, match=f"{directory} belongs to user 65534"):
            ask("debian-6.12")
    monkeypatch.setattr(vm_kernels, "_debian_package", lambda name: (HOST, "linux-image"))
    monkeypatch.setattr(vm_kernels, "_unpack", lambda *_: pytest.fail("it is fetched to a place of others"))
    with pytest.raises(MissingSupport, match=r"kernels belongs to user 65534"):
        vm_kernels.find("debian-6.1")


@pytest.mark.root
@pytest.mark.parametrize("of", ["a tree", "a tarball"])
def test_nobody_else_may_write_the_tree_that_root_builds_in(tmp_path: Path, of: str) -> None:
    """Whoever packed it may have had the number of a user here, who cannot reach the original."""
    (tmp_path / "linux/arch/um").mkdir(parents=True)
    for name in ("Makefile", "Kconfig", "arch/um/Kconfig"):
        (tmp_path / "linux" / name).write_text("VERSION = 6\nPATCHLEVEL = 12\n")
    os.chown(tmp_path / "linux/Makefile", 65534, 65534)
    (tmp_path / "linux/Kconfig").chmod(0o666)
    (tmp_path / "linux/arch").chmod(0o777)
    order, scratch = sources.Order.of_tree(tmp_path / "linux", "virtual-mine"), tmp_path / "scratch"
    scratch.mkdir()
    tarball = None
    if of == "a tarball":
        tarball = tmp_path / "linux_6.12.tar.gz"
        subprocess.run(["tar", "-czf", tarball, "-C", tmp_path, "linux"], check=True)
    with Log(scratch / "log") as log:
        tree = sources.unpack(order, sources.Source("", "", tarball), scratch, log, Progress())
    found = {(path.stat().st_uid, path.stat().st_mode & 0o022) for path in (tree, *tree.rglob("*"))}
    assert found == {(0, 0)} and (tree / "arch/um/Kconfig").is_file()


def test_a_user_without_a_home_has_to_say_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "BROBUST_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # of no user in /etc/passwd
    with pytest.raises(MissingSupport, match=r"no home directory; set BROBUST_CACHE"):
        cache_directory()
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("BROBUST_CACHE", "~/kernels")  # as files with settings of continuous integration have it
    assert cache_directory() == Path("/home/somebody/kernels")


def test_depmod_is_found_by_a_user_whose_path_has_no_sbin(
    tree: vm_kernels.Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "brb_bbr1.ko"
    module.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with_it = vm_kernels.with_modules(tree, [module], tmp_path / "out")
    assert (with_it.modules / "modules.dep").read_text().count("brb_bbr1.ko") == 1


def test_downloads_go_through_the_proxy_that_the_user_has_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("ARCH", "sparc")
    with Log(tmp_path / "log") as log:
        assert log.call(["sh", "-c", 'echo "$http_proxy, $ARCH"'], cwd=tmp_path) == 0
        assert log.lines() == ["http://proxy.invalid:3128, "]


def test_apt_is_understood_in_every_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apt-cache"
    program.write_text('#!/bin/sh\n[ "$LC_ALL" = C ] && word=Depends || word="Hängt ab von"\necho "  $word: kmod"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in (("LC_ALL", "de_DE.UTF-8"), ("LANGUAGE", "de")):
        monkeypatch.setenv(name, value)
    assert HOST.dependencies("linux-image") == ["kmod"]


@pytest.fixture
def tree(tmp_path: Path) -> vm_kernels.Kernel:
    modules = tmp_path / "6.4.0-v3"
    modules.mkdir()
    (modules / "modules.dep").write_text(
        "kernel/net/ipv4/tcp_bbr.ko.xz:\n"
        "kernel/net/ipv4/tcp_diag.ko: kernel/net/ipv4/inet_diag.ko\n"
        "kernel/net/ipv4/inet_diag.ko:\n"
        "kernel/net/sched/act_mirred.ko.zst:\n"
    )
    (modules / "modules.builtin").write_text("kernel/net/ipv4/tcp_cubic.ko\n")
    image = tmp_path / "bzImage"
    image.write_text("kernel")
    return vm_kernels.find(f"{image}:{modules}")


def test_a_kernel_of_ones_own_is_image_and_module_directory(tree: vm_kernels.Kernel) -> None:
    assert tree.release == "6.4.0-v3"


def test_its_congestion_controls_are_built_in_ones_and_modules(tree: vm_kernels.Kernel) -> None:
    assert tree.congestion_controls() == {"reno", "cubic", "bbr"}
    with (tree.modules / "modules.dep").open("a") as listed:
        listed.write("updates/tcp_fancy_cc2.ko:\n")
    assert tree.control_modules() == {"bbr": "tcp_bbr", "cubic": "tcp_cubic", "fancy_cc2": "tcp_fancy_cc2"}


def test_modules_come_with_their_dependencies_and_missing_ones_are_left_out(tree: vm_kernels.Kernel) -> None:
    names = [
        file.name for file in vm_kernels.module_files(tree, ["tcp_diag", "act-mirred".replace("-", "_"), "sch_none"])
    ]
    assert names == ["inet_diag.ko", "tcp_diag.ko", "act_mirred.ko.zst"]


def test_a_list_of_modules_that_lacks_a_needed_one_is_refused_by_its_name(tree: vm_kernels.Kernel) -> None:
    (tree.modules / "modules.dep").write_text("kernel/net/ipv4/tcp_diag.ko: kernel/net/ipv4/inet_diag.ko\n")
    with pytest.raises(BadInput, match=r"^kernel: \S+/modules\.dep has no line for kernel/net/ipv4/inet_diag\.ko"):
        vm_kernels.module_files(tree, ["tcp_diag"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("debian-9.9", "does not exist; available:"),
        ("no-such-release", "does not exist; available:"),
        ("/nowhere/bzImage", "names no modules"),
        ("/nowhere/bzImage:/lib/modules/x", "is not a file"),
    ],
)
def test_an_unknown_kernel_is_refused_with_what_there_is(offered: Offered, name: str, words: str) -> None:
    offered([])
    with pytest.raises(BadInput, match=words):
        vm_kernels.find(name)


def test_the_newest_package_of_a_series_wins(offered: Offered) -> None:
    names = ["linux-image-6.12.9+deb12-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64"]
    offered(names)
    assert vm_kernels._debian_package("debian-6.12") == (HOST, names[1])


@pytest.mark.parametrize(
    ("series", "name"),
    [(["6.1", "6.12", "7.3"], "debian-6.12"), (["6.1"], "debian-6.1"), (["7.2", "7.3"], "debian-7.3")],
)
def test_guests_boot_the_usual_series_or_the_newest_of_debians_that_apt_offers(
    offered: Offered, series: list[str], name: str
) -> None:
    offered([CLOUD.format(one) for one in series])
    assert vm_kernels.default() == name
    why = vm_kernels.why_default(name)
    assert why is None if name == "debian-6.12" else why is not None and name in why


@pytest.mark.parametrize("image", ["boot/vmlinuz-6.1.9", "usr/lib/modules/6.1.9/vmlinuz"])  # the latter from 7.1 on
def test_a_kernel_that_several_processes_ask_for_is_fetched_once(
    offered: Offered, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    fetched = []

    def unpack(_: Archive, package: str, scratch: Path, tree: Path) -> None:
        fetched.append(package)
        time.sleep(0.2)
        (tree / image).parent.mkdir(parents=True)
        (tree / image).write_text("a kernel")
        (tree / "lib/modules/6.1.9").mkdir(parents=True, exist_ok=True)
        (tree / "lib/modules/6.1.9/modules.dep").write_text("tcp_bbr.ko:")

    offered([CLOUD.format("6.1")])
    monkeypatch.setattr(vm_kernels, "_unpack", unpack)
    monkeypatch.setattr(vm_kernels, "_tool", lambda *_, **__: None)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(vm_kernels.find, ["debian-6.1"] * 2))
    assert len(fetched) == 1 and found[0] == found[1] and found[0].image.read_text() == "a kernel"


def test_a_package_without_a_kernel_is_refused_in_one_line(offered: Offered, monkeypatch: pytest.MonkeyPatch) -> None:
    offered([CLOUD.format("6.1")])
    monkeypatch.setattr(vm_kernels, "_unpack", lambda archive, package, scratch, tree: tree.mkdir())
    with pytest.raises(MissingSupport, match=r"linux-image-6\.1\.9-cloud-amd64 and its parts hold no kernel"):
        vm_kernels.find("debian-6.1")
