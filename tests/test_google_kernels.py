"""google's own kernels: their trees take our patches as they are, and brb_bbr3 and brb_bbr2 send what they send.

The trees are third-party patches in `../shared/kernels` beside the project (its README says what they are). Neither is
part of the project, so both parts are skipped where something is missing. Built kernels are expected under the names
virtual-google3 and virtual-google2.
"""

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from brobust.conformance import cases, packets
from brobust.kernels import our_files, toolchain
from brobust.kernels import tree as from_tree
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels

PROJECT = Path(__file__).parents[1]
GOOGLE = {"6.12": "google-bbr3-linux-6.12.patch.gz", "6.1": "google-bbr2-linux-6.1.patch.gz"}

# Of cases.VIRTUAL_QUICK, those in which not every packet is the same. docs/algorithms.md says why.
DIFFER: dict[tuple[str, str], set[str]] = {
    ("bbr", "brb_bbr3"): set(),
    ("bbr2", "brb_bbr2"): set(),
}


def _patch(series: str) -> str:
    """Return google's patch for a series."""
    for above in (PROJECT.parent, PROJECT.parents[1]):
        if (file := above / "shared/kernels" / GOOGLE[series]).is_file():
            return gzip.decompress(file.read_bytes()).decode(errors="replace")
    pytest.skip(f"there is no ../shared/kernels/{GOOGLE[series]} beside the project")


@pytest.mark.compiles
@pytest.mark.parametrize(("series", "versions"), [("6.12", {"bbr": 3}), ("6.1", {"bbr": 1, "bbr2": 2})])
def test_our_patches_fit_googles_trees(
    series: str, versions: dict[str, int], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    theirs = _patch(series)
    tarballs = sorted((vm_kernels.cache_directory() / "sources").glob(f"linux-source-{series}_*.tar.*"))
    if not tarballs:
        pytest.skip(f"the cache has no linux-source-{series}; `brobust kernel build virtual-{series}` fetches it")
    ours = our_files.copy(our_files.of_virtual_kernels(), tmp_path / "ours")
    patched = [theirs, *(path.read_text() for path in (ours / "patches").glob("*.patch"))]
    files = {line[6:].split()[0] for text in patched for line in text.splitlines() if line.startswith("--- a/")}
    subprocess.run(
        ["tar", "-xf", tarballs[-1], "--strip-components=1", *(f"linux-source-{series}/{name}" for name in
         sorted({"Makefile", "net/ipv4/Kconfig", *files}))],
        cwd=tmp_path, check=False, capture_output=True,
    )  # fmt: skip
    subprocess.run(["patch", "-p1", "--batch"], cwd=tmp_path, input=theirs, text=True, check=True, capture_output=True)
    with toolchain.Log(tmp_path / "log") as log:
        from_tree.bring_our_files(tmp_path, ours, log, toolchain.Progress())
    assert from_tree.bbr_versions(tmp_path) == versions
    bbr = (tmp_path / "net/ipv4/tcp_bbr.c").read_text()
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
