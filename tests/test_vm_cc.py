"""Our controls in real VMs: as BPF beside the kernel's own, and what each is for."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path
from typing import Any

import pytest

from brobust import _core, backends
from brobust.backends.vm import VmBackend
from brobust.conformance import calls, cases, shadow, verified
from conftest import BROBUST, json_lines

pytestmark = [pytest.mark.vm, pytest.mark.timeout(400)]


def _series(directory: Path, *arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [BROBUST, "run", *arguments, "--backend", "vm", "--json", "--out", directory / "data"],
        cwd=directory, capture_output=True, text=True, check=False, timeout=380,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json_lines(done.stdout)


PATH = ("--bandwidth", "20mbit", "--rtt", "10ms", "--buffer", "4bdp", "--duration", "5s", "--repeat", "1")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    directory = tmp_path_factory.mktemp("undisturbed")
    runs = _series(directory, *PATH, "--share", "1", "--cc", "bbr,brb_bbr1,cubic,brb_cubic,brb_bbr3")
    return {run["cc"]: run["throughput_mbps"] for run in runs}


def test_undisturbed_ours_carry_what_the_kernels_own_carry(undisturbed: dict[str, float]) -> None:
    assert undisturbed["brb_bbr1"] == pytest.approx(undisturbed["bbr"], rel=0.05)
    assert undisturbed["brb_cubic"] == pytest.approx(undisturbed["cubic"], rel=0.05)


def test_bbr_3_fills_the_link(undisturbed: dict[str, float]) -> None:
    payload_mbps = 20 * 1448 / 1514
    assert undisturbed["brb_bbr3"] >= 0.95 * payload_mbps


def test_with_half_the_cpu_the_repair_doubles_bbr_1_and_bbr_3(tmp_path: Path) -> None:
    runs = _series(
        tmp_path, *PATH, "--share", "0.5", "--cc", "brb_bbr1,brb_bbr1_robust,brb_bbr3,brb_bbr3_robust"
    )  # fmt: skip
    rate = {run["cc"]: run["throughput_mbps"] for run in runs}
    assert rate["brb_bbr1_robust"] >= 2 * rate["brb_bbr1"], rate
    assert rate["brb_bbr3_robust"] >= 2 * rate["brb_bbr3"], rate


def test_bbq_gives_the_flow_with_the_short_rtt_more_than_bbr_does(tmp_path: Path) -> None:
    share = {}
    for control in ("brb_bbr1", "brb_bbq"):
        flows = "".join(f'[[flows]]\ncc = "{control}"\nrtt = "{rtt}"\n' for rtt in ("10ms", "50ms"))
        path = '[path]\nbandwidth = "20mbit"\nbuffer = "10bdp"\n'
        file = tmp_path / f"{control}.toml"
        file.write_text(f'duration = "15s"\nrepeat = 1\n{path}[contention]\nshare = 1\n{flows}')
        directory = tmp_path / control
        directory.mkdir()
        (run,) = _series(directory, str(file))
        short, long = run["flow_throughputs_mbps"]
        share[control] = short / (short + long)
    # Of four runs each: 0.19 to 0.21 and 0.28 to 0.33.
    assert share["brb_bbq"] >= 1.2 * share["brb_bbr1"], share


def test_ours_decides_as_the_kernels_own_at_every_call() -> None:
    watched = list(shadow.watch(cases.VM_QUICK, over={"duration": "5s"}))
    assert statistics.fmean(w.acks for w in watched) > 500
    assert [w for w in watched if w.differences] == []


def test_a_shadow_can_find_a_difference() -> None:
    """With another parameter than the kernel's."""
    (watched,) = shadow.watch(["clean"], ["bbr_shadow:bbr1_cwnd_gain=3"], over={"duration": "3s"})
    assert watched.differences > 0 and watched.first is not None
    ours, kernels = watched.first["values"]["cwnd_gain"][::-1]
    assert (kernels, ours) == (512, 768)


def test_bpf_and_this_process_decide_the_same_from_the_same_source() -> None:
    replayed = list(calls.replay(["10 of 20 ms"], ["brb_bbr3_robust", "brb_cubic"], "vm", over={"duration": "4s"}))
    assert [(r.control, r.first) for r in replayed if r.differences or r.lost] == []
    assert all(r.acks > 200 for r in replayed), replayed


@pytest.mark.parametrize("kernel", ["debian-6.12"])
def test_the_verifier_has_no_more_to_look_at_than_when_it_was_recorded(kernel: str) -> None:
    controls = [name for name, *_ in _core.loadable()]
    with backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        release, counts = verified.of_vm(backend, kernel, controls)
    assert not verified.grown(counts, verified.recorded()[release])
