"""`brobust run --gdb`: virtual time stands until a debugger has attached to a kernel, and the run is the same run."""

import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from brobust.errors import BadInput
from brobust.scenario import Grid, Scenario
from brobust.virtual import debugger
from conftest import BROBUST

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000


def _scenario(**more: Any) -> Scenario:
    given = {"duration": "2s", "flows": [{"cc": "bbr"}], "contention": {"share": 1}, **more}
    return Grid.from_flags(given).scenarios[0]


class TestStops:
    @pytest.mark.parametrize(
        ("given", "node", "at"),
        [
            ("sender@1.5s", "sender 1", 1_500_000_000),
            ("sender2@0s", "sender 2", 0),
            ("receiver@20ms", "receiver", 20_000_000),
        ],
    )  # fmt: skip
    def test_a_kernel_and_a_time(self, given: str, node: str, at: int) -> None:
        scenario = _scenario(flows=[{"cc": "bbr"}, {"cc": "bbr", "sender": 2}])
        assert debugger.stop(given, scenario) == debugger.Stop(node, at)

    @pytest.mark.parametrize(
        ("given", "more", "words"),
        [
            ("sender", {}, r"'sender' is not a kernel and a time; give for example sender@1\.5s"),
            ("path@1s", {}, r"'path@1s' is not a kernel and a time"),
            ("sender2@1s", {}, r"sender2 is not there; the scenario has 1 sender"),
            ("bottleneck@1s", {}, r"a kernel only with --aqm"),
            ("sender@2s", {}, r"2s is not before the run's end, 2s"),
            ("sender@soon", {}, r"--gdb: 'soon'"),
            ("sender@1s", {"backend": "vm"}, r"backend virtual only; this scenario has backend vm"),
        ],
    )  # fmt: skip
    def test_what_names_none_is_refused(self, given: str, more: dict[str, Any], words: str) -> None:
        with pytest.raises(BadInput, match=words):
            debugger.stop(given, _scenario(**more))

    def test_it_is_for_one_run(self, tmp_path: Path) -> None:
        command = [BROBUST, "run", "--cc", "bbr,cubic", "--share", "1", "--repeat", "1", "--gdb", "sender@1s"]
        refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert refused.returncode == 2 and "it is for one run, and these are 2" in refused.stderr
        assert not list(tmp_path.iterdir())


@pytest.mark.virtual
def test_the_run_is_the_same_with_a_debugger(tmp_path: Path) -> None:
    command = [BROBUST, "run", "--cc", "bbr", "--share", "0.5", "--duration", "1s", "--repeat", "1", "--json"]
    plain, looked_at = tmp_path / "plain", tmp_path / "looked_at"
    subprocess.run([*command, "--out", plain], capture_output=True, check=True)
    with subprocess.Popen(
        [*command, "--out", looked_at, "--gdb", "sender@0.5001s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    ) as run:  # fmt: skip
        assert run.stderr is not None
        line = run.stderr.readline()
        said = re.search(r"stands at 0\.5001 s; sender 1 is process (\d+)", line)
        assert said is not None, line
        time.sleep(0.5)
        assert run.poll() is None
        _look_at(int(said[1]))
    assert run.returncode == 0
    hashes = [pl.read_parquet(out / "runs")["packet_hash"].to_list() for out in (plain, looked_at)]
    assert hashes[0] == hashes[1]


@pytest.mark.virtual
def test_an_interrupt_while_time_stands_leaves_nothing(tmp_path: Path) -> None:
    """A dataset without a run would be the one that --resume completes."""
    command = [BROBUST, "run", "--cc", "bbr", "--share", "1", "--duration", "1s", "--repeat", "1", "--gdb", "sender@0s"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None and "stands at 0" in run.stderr.readline()
        run.send_signal(signal.SIGINT)
        assert run.stderr.read() == "brobust: interrupted\n"
    assert run.returncode == 130 and not list(tmp_path.glob("brobust-data/*"))


def _look_at(process: int) -> None:
    """Attach to a process as a debugger does, and let it go on."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    assert ptrace(PTRACE_SEIZE, process, None, None) == 0
    time.sleep(0.5)
    if ptrace(PTRACE_INTERRUPT, process, None, None) == 0:  # else it has ended
        os.waitpid(process, WALL)
        ptrace(PTRACE_DETACH, process, None, None)
