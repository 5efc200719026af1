"""Accelerator uml: a real sender in real time without QEMU. `brobust validate` and docs/fidelity.md have the rest.

CI builds no kernel for it: `brobust kernel build virtual-6.12-realtime` does.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from brobust.errors import BrobustError
from brobust.host.session import Session
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels.virtual import VirtualKernel
from brobust.scenario.defaults import REAL_TIME
from brobust.testbed import image, uml
from brobust.testbed.qemu import Guest, GuestConfig
from conftest import BROBUST, eventually, json_lines

pytestmark = [pytest.mark.vm, pytest.mark.timeout(200)]
RUN = [
    BROBUST, "run", "--backend", "vm", "--accelerator", "uml", "--bandwidth", "20mbit", "--buffer", "4bdp",
    "--driver", "burner",
]  # fmt: skip


@pytest.fixture(scope="module")
def kernel() -> VirtualKernel:
    try:
        return virtual_kernels.find(REAL_TIME.DEFAULT)
    except BrobustError as error:
        pytest.skip(str(error))


def kernels() -> list[int]:
    """Return the processes of guests, and those of their user space."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith("brobust_wire=") for word in process.cmdline()):
                found.append(process.pid)
    return found


def test_half_the_cpu_costs_bbr_more_than_cubic(kernel: VirtualKernel, tmp_path: Path) -> None:
    series = ["--cc", "cubic,bbr", "--share", "0.5", "--duration", "3s", "--repeat", "1", "--samples", "10ms", "--json"]
    done = subprocess.run([*RUN, *series], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    runs = {run["cc"]: run for run in json_lines(done.stdout)}
    assert runs["cubic"]["throughput_mbps"] >= 1.5 * runs["bbr"]["throughput_mbps"]
    for run in runs.values():
        assert (run["accelerator"], run["kernel"], run["qemu"]) == ("uml", kernel.name, None)
        assert 0.4 < run["effective_share"] < 0.6 + run["steal_share"], run
        more = run["steal_share"] * 10 / run["share"]  # as in test_vm.py: it passes in the timeslices of each period
        assert 8 < run["effective_timeslice_ms"] < 12 + more, run
    assert kernels() == []


@contextlib.contextmanager
def guest(kernel: VirtualKernel) -> Iterator[Guest]:
    config = GuestConfig("sender", tap="", mac="")
    with (
        Session.start() as session,
        uml.wire() as (end, _),
        uml.start(config, kernel, image.build(kernel), end, session, os.sched_getaffinity(0)) as booted,
    ):
        booted.wait_booted()
        yield booted


def test_a_panic_is_the_end_of_a_guest_and_says_why(kernel: VirtualKernel) -> None:
    with guest(kernel) as booted:
        booted.process.send_signal(signal.SIGSEGV)  # to its kernel that is a fault of its own
        with pytest.raises(BrobustError):
            booted.agent.run("sleep", "30", timeout=20)
        assert booted.died()
        assert "panic" in booted.cause_of_death().lower()
    assert kernels() == []


def test_nothing_lives_on_when_brobust_is_killed(kernel: VirtualKernel, tmp_path: Path) -> None:
    with subprocess.Popen([*RUN, "--cc", "cubic", "--share", "1", "--duration", "30s"], cwd=tmp_path) as run:
        assert eventually(lambda: len(kernels()) >= 2)
        run.send_signal(signal.SIGKILL)
    assert eventually(lambda: kernels() == [])
    clean = subprocess.run([BROBUST, "doctor", "--clean"], capture_output=True, text=True, check=False)
    assert clean.returncode == 0, clean.stderr
