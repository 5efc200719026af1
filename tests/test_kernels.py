"""Guest kernels are found by name, and their modules with all that these depend on."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from brobust.errors import BadInput
from brobust.kernels import vm as vm_kernels


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


def test_modules_come_with_their_dependencies_and_missing_ones_are_left_out(tree: vm_kernels.Kernel) -> None:
    names = [
        file.name for file in vm_kernels.module_files(tree, ["tcp_diag", "act-mirred".replace("-", "_"), "sch_none"])
    ]
    assert names == ["inet_diag.ko", "tcp_diag.ko", "act_mirred.ko.zst"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("debian-9.9", "does not exist; available:"),
        ("no-such-release", "does not exist; available:"),
        ("/nowhere/bzImage", "names no modules"),
        ("/nowhere/bzImage:/lib/modules/x", "is not a file"),
    ],
)
def test_an_unknown_kernel_is_refused_with_what_there_is(name: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        vm_kernels.find(name)


def test_the_newest_package_of_a_series_wins() -> None:
    names = ["linux-image-6.12.9+deb12-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64"]
    assert max(names, key=vm_kernels._version_key) == names[1]


@pytest.mark.parametrize(
    ("offered", "name"),
    [(["6.1", "6.12", "7.3"], "debian-6.12"), (["6.1"], "debian-6.1"), (["7.2", "7.3"], "debian-7.3")],
)
def test_guests_boot_the_usual_series_or_the_newest_of_debians_that_apt_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: list[str], name: str
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    packages = {series: f"linux-image-{series}.9-cloud-amd64" for series in offered}
    monkeypatch.setattr(vm_kernels, "_debian_packages", lambda: packages)
    assert vm_kernels.default() == name
    why = vm_kernels.why_default(name)
    assert why is None if name == "debian-6.12" else why is not None and name in why


def test_a_kernel_that_several_processes_ask_for_is_fetched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = []

    def unpack(packages: list[str], scratch: Path, tree: Path) -> None:
        fetched.append(packages)
        time.sleep(0.2)
        (tree / "boot").mkdir(parents=True)
        (tree / "boot/vmlinuz-6.1.0-9-cloud-amd64").write_text("a kernel")

    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path))
    monkeypatch.setattr(vm_kernels, "_debian_packages", lambda: {"6.1": "linux-image-6.1.0-9-cloud-amd64"})
    monkeypatch.setattr(vm_kernels, "_unpack", unpack)
    monkeypatch.setattr(vm_kernels, "_tool", lambda *_, **__: None)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(vm_kernels.find, ["debian-6.1"] * 2))
    assert len(fetched) == 1 and found[0] == found[1] and found[0].image.read_text() == "a kernel"
