"""google's own kernels: their trees take our patches as they are, and brb_bbr3 and brb_bbr2 send what they send.

The trees are third-party patches in `../shared/kernels` beside the project (its README says what they are). Neither is
part of the project, so both parts are skipped where something is missing. Built kernels are expected under the names
virtual-google3 and virtual-google2.
"""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from brobust.conformance import cases, packets
from brobust.kernels import our_files, toolchain
from brobust.kernels import tree as from_tree
from brobust.kernels import virtual as virtual_kernels
from conftest import googles_patch

# Of cases.VIRTUAL_QUICK, those in which not every packet is the same. docs/algorithms.md says why.
DIFFER: dict[tuple[str, str], set[str]] = {("bbr", "brb_bbr3"): set(), ("bbr2", "brb_bbr2"): set()}


@pytest.mark.compiles
@pytest.mark.parametrize(("series", "versions"), [("6.12", {"bbr": 3}), ("6.1", {"bbr": 1, "bbr2": 2})])
def test_our_patches_fit_googles_trees(
    series: str, versions: dict[str, int], linux_source: Callable[[str], Path], tmp_path: Path
) -> None:
    if (theirs := googles_patch(series)) is None:
        pytest.skip(f"there is no patch of Google's for Linux {series} in ../shared/kernels beside the project")
    tree = linux_source(series)
    ours = our_files.copy(our_files.of_virtual_kernels(), tmp_path / "ours")
    subprocess.run(["patch", "-p1", "--batch"], cwd=tree, input=theirs, text=True, check=True, capture_output=True)
    with toolchain.Log(tmp_path / "log") as log:
        from_tree.bring_our_files(tree, ours, log, toolchain.Progress())
    assert from_tree.bbr_versions(tree) == versions
    bbr = (tree / "net/ipv4/tcp_bbr.c").read_text()
    assert bbr.index("module_exit(bbr_unregister);") < bbr.index("tcp_bbr_view.c") < bbr.index("MODULE_AUTHOR")


def _kernel(name: str) -> virtual_kernels.VirtualKernel:
    kernel = virtual_kernels.cached(name)
    if kernel is None or kernel.stale:
        why = "not built" if kernel is None else "built from other files of kernel/virtual or cc"
        pytest.skip(f"{name} is {why}; `brobust kernel build --source TREE --name {name}`, see docs/kernels.md")
    return kernel


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("virtual-google3", ("bbr", "brb_bbr3")),
        ("virtual-google2", ("bbr2", "brb_bbr2")),
        ("virtual-google2", ("bbr", "brb_bbr1")),
    ],
)
def test_ours_send_the_same_packets_as_googles(name: str, pair: tuple[str, str]) -> None:
    _kernel(name)
    compared = packets.compare([pair], cases.VIRTUAL_QUICK, (name, name))
    assert {one.case for one in compared if one.difference is not None} == DIFFER.get(pair, set())


@pytest.mark.virtual
@pytest.mark.parametrize(("name", "cc", "version"), [("virtual-google3", "bbr", 3), ("virtual-google2", "bbr2", 2)])
def test_a_run_says_which_version_of_bbr_a_kernel_has(name: str, cc: str, version: int) -> None:
    import brobust
    from brobust.analysis import summary

    _kernel(name)
    runs = brobust.run({"kernel": name, "flows": [{"cc": cc}], "duration": "1s"}).runs
    assert runs["bbr_version"].to_list() == [version]
    assert summary.kernels(runs).endswith(f", {cc} is version {version}")
