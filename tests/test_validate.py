"""`brobust validate` without VMs: how runs are repeated in virtual time, and how the two are compared."""

import contextlib
import itertools
import math
import signal
import threading
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from brobust import api, backends
from brobust.analysis import agreement
from brobust.backends.base import Backend
from brobust.cli.validate import _finite
from brobust.conformance import packets
from brobust.dataset import Dataset, Measured, flow_columns, scenario_columns
from brobust.errors import BrobustError, RunFailed
from brobust.report import plot
from brobust.report import validation as drawing
from brobust.scenario import Grid, Run
from brobust.scenario.grid import override, scenario
from brobust.series import validation
from conftest import Brobust

FIELDS = {
    "backend": "vm",
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
    "contention": {"share": ["1", "0.5"]},
    "flows": {"cc": "bbr", "count": 2},
    "repeat": 1,
}


@pytest.fixture
def recorded(tmp_path: Path) -> Dataset:
    return Dataset.create(tmp_path / "vm", Grid.from_flags(FIELDS), {})


def test_its_repeat_in_virtual_time_has_the_path_the_flows_and_the_recorded_offtimes(recorded: Dataset) -> None:
    contended, undisturbed = sorted(recorded.grid().runs(), key=lambda run: run.scenario.contention.share)
    repeat = validation.as_virtual(contended, recorded)
    assert repeat["contention"] == {"replay": f"{recorded.directory}#{contended.id}"}
    assert (repeat["kernel"], repeat["path"]["rtt"], repeat["path"]["buffer"]) == ("virtual-6.12", "10ms", "100000B")
    assert (repeat["flows"][0]["cc"], repeat["flows"][0]["count"], repeat["cpu"]) == ("bbr", 2, {})
    assert validation.as_virtual(undisturbed, recorded)["contention"] == {"driver": "none"}


def test_a_what_if_changes_only_what_it_says(recorded: Dataset) -> None:
    run = recorded.grid().runs()[0]
    plain, other = (
        validation.as_virtual(run, recorded, what)
        for what in (validation.WhatIf(), validation.WhatIf(10**6, "60MHz", adaptive_rx="on"))
    )
    assert (other["path"]["rtt"], other["cpu"]) == ("11ms", {"frequency": "60MHz"})
    assert other["nic"] == {"adaptive_rx": "on"}
    assert {**other, "cpu": {}, "nic": plain["nic"], "path": plain["path"]} == plain
    assert other["path"]["buffer"] == plain["path"]["buffer"]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"kernel": "debian-5.99"}, "virtual-5.99 is not built"),
        ({"flows": {"cc": "bbr_shadow"}}, "bbr_shadow"),
        ({"path": {"rtt": "0s", "buffer": "60kB"}}, "virtual time needs at least 200us of round-trip time"),
    ],
)
def test_what_virtual_time_cannot_repeat_is_refused_before_it_is_measured(more: dict[str, Any], named: str) -> None:
    scenarios = Grid.from_flags(override(FIELDS, more)).scenarios
    with pytest.raises(BrobustError, match=named):
        validation.check(scenarios)
    validation.check(Grid.from_flags(FIELDS).scenarios)


def test_of_a_kernel_only_its_owner_has_named_a_report_says_that_it_is_their_own() -> None:
    public = ("debian-6.12", "host", "virtual-6.12-hz1000-realtime", "virtual-6.12-stock")
    assert [drawing._public(name) for name in (*public, "virtual-acme")] == [*public, "own"]


def rows(*throughputs: float, outcome: str = "ok") -> pl.DataFrame:
    return pl.DataFrame(
        {
            "run": [f"r{number}" for number in range(len(throughputs))],
            "flow": 0, "kernel": "debian-6.12", "cc": "bbr", "timeslice_ms": 10.0, "share": 0.5, "outcome": outcome,
            "throughput_mbps": throughputs, "settled_mbps": [rate * 2 for rate in throughputs],
            "retransmits": 3, "rtt_mean_ms": 12.0, "accelerator": "tcg", "bandwidth_mbps": 20.0, "rtt_ms": 10.0,
            "buffer_bytes": 100_000, "duration_s": 5.0, "driver": "deadline",
        }
    )  # fmt: skip


def test_cells_are_compared_by_their_medians() -> None:
    cells = agreement.compare(rows(1.0, 2.0, 9.0), rows(1.0, 4.0, 8.0))
    (cell,) = cells.iter_rows(named=True)
    assert (cell["n"], cell["vm_throughput_mbps"], cell["virtual_throughput_mbps"]) == (3, 2.0, 4.0)
    assert cell["ratio"] == cell["settled_ratio"] == 2.0
    found = agreement.agreement(cells)
    assert found.median == found.p90 == pytest.approx(math.log(2))


def test_bandwidths_and_what_else_the_options_may_list_are_cells_of_their_own() -> None:
    twice = pl.Series("bandwidth_mbps", [10.0, 10.0, 10.0, 50.0, 50.0, 50.0])
    real = rows(1.0, 1.0, 1.0, 9.0, 9.0, 9.0).with_columns(twice)
    cells = agreement.compare(real, rows(1.0, 1.0, 1.0, 18.0, 18.0, 18.0))
    assert cells.select("bandwidth_mbps", "n", "ratio").rows() == [(10.0, 3, 1.0), (50.0, 3, 2.0)]
    assert "rtt_ms" not in cells.columns
    whole = agreement.agreement(cells)
    shown = drawing.render(cells, whole, whole)
    assert (shown.columns[0].header, list(shown.columns[0].cells)) == ("bandwidth", ["Mbit/s", "10", "50"])
    assert [drawing._as_report(cell, "vm")["bandwidth_mbps"] for cell in cells.iter_rows(named=True)] == [10.0, 50.0]


def test_the_figure_names_every_kernel_and_the_runs_of_every_cell() -> None:
    both = [rows(1.0, 1.0), rows(1.0, 1.0, 1.0).with_columns(kernel=pl.lit("debian-6.1"))]
    cells = pl.concat([agreement.compare(one, one) for one in both])
    said = drawing.caption(cells, agreement.agreement(cells), "vm")
    assert said.startswith("Medians of each cell's runs (n = 2-3), debian-6.1 and debian-6.12 on vm;")


@pytest.mark.filterwarnings("error")
def test_a_cell_in_which_one_backend_carried_nothing_is_infinitely_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved = rows(0.0).with_columns(pl.lit(None, pl.Float64).alias("settled_mbps"), rtt_mean_ms=None)
    cells = agreement.compare(starved, rows(1.0))
    whole = agreement.agreement(cells)
    assert whole.median == whole.p90 == math.inf
    assert drawing.render(cells, whole, whole).row_count == 2
    assert all(file.exists() for file in drawing.draw(cells, whole, tmp_path))
    many = pl.concat([cells.with_columns(cc=pl.lit(f"c{number}")) for number in range(9)])
    points: list[str] = []
    monkeypatch.setattr(plot, "save", lambda figure, *_: points.extend(figure.axes[0].get_legend_handles_labels()[1]))
    drawing.draw(many, whole, tmp_path)
    assert points == [f"c{number}" for number in range(9)]
    assert _finite(cells.row(0, named=True))["ratio"] is None
    with pytest.raises(RunFailed, match="no run carried anything after its first seconds"):
        agreement.agreement(cells, "settled_ratio")
    neither = agreement.agreement(agreement.compare(rows(0.0), rows(0.0)))
    assert neither.median == 0


def test_nothing_measured_is_said() -> None:
    with pytest.raises(RunFailed, match="nothing to compare"):
        agreement.compare(rows(1.0, outcome="failed"), rows(1.0))


def test_settled_leaves_out_the_beginning() -> None:
    over_time = pl.DataFrame({"flow": [0, 0, 0], "time_s": [1.0, 2.5, 3.0], "throughput_mbps": [100.0, 2.0, 4.0]})
    assert agreement.settled(over_time, "r").rows() == [(0, 3.0, "r")]


def test_table_and_figure(tmp_path: Path) -> None:
    cells = agreement.compare(rows(1.0, 2.0), rows(1.1, 2.1))
    found = agreement.agreement(cells)
    assert "1 cell:" in drawing.sentence(found)
    table = drawing.render(cells, found, found)
    assert table.row_count == 2
    png, svg = drawing.draw(cells, found, tmp_path)
    assert png.stat().st_size > 1000
    assert "throughput in virtual time [Mbit/s]" in svg.read_text()


def test_a_run_on_hosts_is_repeated_with_their_networks_rtt_and_their_kernel_where_it_is_built(tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        '[sender]\nssh = "a"\naddress = "10.0.0.1"\n[receiver]\nssh = "b"\naddress = "10.0.0.2"\n'
        '[hypervisor]\nssh = "c"\npid = 7\n'
    )
    file = str(tmp_path / "lab.toml")
    recorded = Dataset.create(tmp_path / "lab", Grid.from_flags({**FIELDS, "backend": "lab", "hosts": file}), {})
    for rtt_ms in (3.0, 0.4):
        recorded.note_calibration({"file": file, "network_rtt_ms": rtt_ms, "hosts": {"sender": {"cpu": "X"}}})
    assert validation.network_rtts(recorded) == {file: 400_000}
    assert validation.hosts_of(recorded) == {"sender": {"cpu": "X"}}
    run = recorded.grid().runs()[0]
    repeat = validation.as_virtual(run, recorded, network_rtt=400_000, release="6.12.30-cloud-amd64")
    assert (repeat["kernel"], repeat["path"]["rtt"], repeat["path"]["buffer"]) == ("virtual-6.12", "10.4ms", "100000B")
    assert validation.as_virtual(run, recorded, release="2.6.32")["kernel"] == "virtual-6.12"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--duration", "5s,2s"], "duration: 2s is too short to compare what follows the first 2 s; give 3s or more"),
        (["--backend", "virtual"], "--backend: 'virtual' is nothing to compare virtual time with; give vm or lab"),
        (["--backend", "vm,lab"], "--backend: 'vm,lab' is nothing to compare"),
        (["--backend", "lab"], "name them in a file, and give it with --hosts FILE"),
        (["--added-rtt", "5"], "--added-rtt: '5'"),
        (["--cpu-frequency", "fast"], "cpu.frequency: 'fast'"),
        (["--adaptive-rx", "yes"], "nic.adaptive_rx: 'yes'"),
    ],
)
def test_a_what_if_is_refused_before_any_vm(brobust: Brobust, tmp_path: Path, arguments: list[str], named: str) -> None:
    done = brobust("validate", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and named in line
    assert list(tmp_path.iterdir()) == []


class _Stuck(Backend):
    """A backend whose runs end only when it is stopped; the user presses Ctrl-C meanwhile."""

    parallel = 2

    def __init__(self) -> None:
        self.begun, self.stopped, self.waited_too_long = itertools.count(), threading.Event(), False

    def measure(self, run: Run) -> Measured:
        if next(self.begun) == 0:  # once, as `brobust` itself sees to
            time.sleep(0.3)  # by now the main thread waits; a signal that another thread takes does not wake it
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        self.waited_too_long |= not self.stopped.wait(timeout=60)
        raise RunFailed("interrupted")

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> _Stuck:
    backend = _Stuck()
    monkeypatch.setattr(backends, "opened", lambda *_: contextlib.nullcontext(backend))
    monkeypatch.setattr(backends, "check", lambda *_, **__: None)
    return backend


def test_an_interrupt_ends_the_runs_that_are_repeated(recorded: Dataset, stuck: _Stuck) -> None:
    for run in recorded.grid().runs():
        known = {**scenario_columns(run), "outcome": "ok", "kernel_release": "6.12"}
        recorded.append(run.id, Measured([{**known, **columns} for columns in flow_columns(run.scenario)]))
    with pytest.raises(KeyboardInterrupt), contextlib.closing(validation.replay_in_virtual_time(recorded)) as repeated:
        next(repeated)
    assert stuck.stopped.is_set() and not stuck.waited_too_long


def test_an_interrupt_ends_the_runs_that_an_explanation_tries(stuck: _Stuck) -> None:
    requested = Run(scenario=scenario({"duration": "2s"}), repeat=0)
    changes: list[api.Change] = [(f"--cc {cc}", {"flows": {"cc": cc}}) for cc in ("reno", "bbr")]
    with pytest.raises(KeyboardInterrupt):
        api._tried(requested, 0, changes, stuck)
    assert stuck.stopped.is_set() and not stuck.waited_too_long


def test_an_interrupt_ends_the_runs_that_are_compared(stuck: _Stuck) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(packets.compare([("bbr", "brb_bbr1")] * 4, ["20mbit 10ms"]))
    assert not stuck.waited_too_long
