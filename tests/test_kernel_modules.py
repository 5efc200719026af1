"""Our controls are built as kernel modules with Debian's headers, and work in a guest."""

import subprocess
from pathlib import Path

import pytest

from brobust import _core
from brobust.backends.vm import VmBackend
from brobust.host.programs import ask_host_program
from brobust.kernels import modules
from conftest import Brobust
from in_vm import let_rest, rate

SEVERAL = ["brb_bbq", "brb_bbr1_steady", "brb_bbr3", "brb_vegas"]


@pytest.mark.compiles
@pytest.mark.parametrize(("kernel", "controls"), [("debian-6.1", SEVERAL), ("debian-6.12", _core.control_names())])
def test_every_control_is_a_module_without_a_warning(kernel: str, controls: list[str], tmp_path: Path) -> None:
    """Only the host for modules, cc/hosts/module, looks at the kernel's version."""
    built = modules.build_controls(controls, modules.headers_of(kernel), tmp_path)
    assert [file.name for file in built.modules] == [f"{name}.ko" for name in controls]
    assert not built.warnings
    shown = subprocess.run(["/sbin/modinfo", "-p", tmp_path / "brb_bbq.ko"], capture_output=True, text=True, check=True)
    parameters = {line.partition(":")[0] for line in shown.stdout.splitlines()}
    assert parameters == {row["name"] for row in ask_host_program("cc", "params", "brb_bbq")}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["brb_bbq:alpha=5ms", "--kdir", "debian-6.12"], "give brb_bbq, and `insmod brb_bbq.ko NAME=N`"),
        (["brb_reno", "--kdir", "/nowhere"], "not a prepared kernel tree"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(brobust: Brobust, arguments: list[str], said: str) -> None:
    done = brobust("cc", "module", *arguments)
    assert done.returncode != 0 and said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.vm
@pytest.mark.timeout(400)
def test_a_guest_with_modules_takes_them_and_the_repair_works_there(brobust: Brobust, testbed: VmBackend) -> None:
    let_rest(testbed)
    built = brobust("cc", "module", "brb_bbr1", "brb_bbr1_robust", "--kdir", "debian-6.12", "--guest", "guest")
    assert built.returncode == 0, built.stderr
    kernel = built.stdout.splitlines()[-1].partition(" --kernel ")[2]
    bbr, repaired = "brb_bbr1", "brb_bbr1_robust:robust_gain=2.5"
    carried = {cc: rate(testbed, cc, 0.5, kernel=kernel) for cc in (bbr, repaired)}
    assert testbed.ask_sender("lsmod").count("brb_bbr1") >= 2
    assert carried[repaired] >= 1.5 * carried[bbr], carried  # as in test_vm_cc.py
