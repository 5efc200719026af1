"""A series opens one backend at a time, measures several runs at a time if that is possible, and stops at once."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pytest

import brobust
import made_up
from brobust import backends
from brobust.cli import app, measuring
from brobust.dataset import Dataset, Measured
from brobust.errors import BadInput, BrobustError, RunFailed, WriteFailed
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Grid, Run, Scenario
from brobust.scenario import grid as scenario_grid
from brobust.series import expected_time, runner
from brobust.study import STUDIES
from conftest import Brobust

WAIT = 60  # s, far longer than a thread waits for its CPU


class Pretended:
    """A backend whose runs end only when `parallel` of them are under way."""

    def __init__(self, name: str, parallel: int = 1) -> None:
        self.name = name
        self.parallel = parallel
        self.stopped = threading.Event()
        self.hanging = threading.Event()
        self.threads: list[str] = []
        self.open = 0
        self.calibrated: list[Scenario] = []
        self.fail = False
        self.error: Exception | None = None
        self.hang_after: int | None = None
        self._begun = itertools.count(1)
        self._together: threading.Barrier | None = None

    def __enter__(self) -> Self:
        self.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.open -= 1

    def wait_for(self, runs: int) -> None:
        self._together = threading.Barrier(runs)

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        self.calibrated += scenarios
        return [{"backend": self.name}]

    def measure(self, run: Run) -> Measured:
        number = next(self._begun)
        self.threads.append(threading.current_thread().name)
        assert self.open == 1
        if self._together is not None:
            self._together.wait(WAIT)
        if self.hang_after is not None and number > self.hang_after:
            self.hanging.set()
            assert self.stopped.wait(WAIT)
            raise RunFailed("stopped")
        if self.fail:
            raise RunFailed("no luck")
        if self.error is not None and number == 2:
            raise self.error
        return Measured(made_up.rows(run))

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> dict[str, Pretended]:
    """Replace both backends."""
    both = {"virtual": Pretended("virtual", parallel=3), "vm": Pretended("vm")}

    monkeypatch.setattr(backends, "opened", lambda name, _: both[name])
    monkeypatch.setattr(backends, "check", lambda *_, **__: None)
    return both


def _grid(backend: object = "virtual", **more: object) -> Grid:
    flags = {"backend": backend, "contention": {"share": 1}, "flows": {"cc": "bbr"}, "repeat": 6, **more}
    return Grid.from_flags(flags)


def _dataset(directory: Path, grid: Grid) -> Dataset:
    return Dataset.create(directory / "data", grid, {})


def _silent(_: str) -> None: ...


def test_runs_go_side_by_side_and_each_is_in_the_dataset_when_it_is_reported(
    pretended: dict[str, Pretended], tmp_path: Path
) -> None:
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    pretended["virtual"].wait_for(3)  # no run ends before three are under way
    for run, _ in runner.measure(grid.runs(), dataset, _silent):
        assert run.id in dataset.finished()
    assert len(dataset.finished()) == 6
    assert "MainThread" not in pretended["virtual"].threads
    assert not pretended["virtual"].stopped.is_set()
    assert pretended["virtual"].open == 0


def test_jobs_say_how_many(pretended: dict[str, Pretended], tmp_path: Path) -> None:
    grid = _grid()
    pretended["virtual"].wait_for(6)
    assert len(list(runner.measure(grid.runs(), _dataset(tmp_path, grid), _silent, jobs=6))) == 6


def test_a_grid_of_both_backends_opens_one_after_the_other(pretended: dict[str, Pretended], tmp_path: Path) -> None:
    grid = _grid(["vm", "virtual"], repeat=2)
    dataset = _dataset(tmp_path, grid)
    seen = []
    for run, _ in runner.measure(runner.remaining(grid, dataset), dataset, _silent):
        seen.append(run.scenario.backend)
        assert [backend.open for backend in pretended.values()].count(1) == 1
    assert seen == ["virtual", "virtual", "vm", "vm"]
    assert pretended["vm"].threads == ["MainThread"] * 2
    assert {s.backend for s in pretended["vm"].calibrated} == {"vm"}
    assert len((dataset.directory / "calibration.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("odd"), "ValueError: odd (a mistake in brobust"),
        (OSError(13, "Permission denied", "/tmp/x"), "/tmp/x: permission denied"),
        (BadInput("kernel: it is being built"), "kernel: it is being built"),
    ],
)
def test_whatever_one_run_meets_the_others_are_measured(
    pretended: dict[str, Pretended], tmp_path: Path, error: Exception, reason: str
) -> None:
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    pretended["virtual"].error = error
    assert len(list(runner.measure(grid.runs(), dataset, _silent))) == 6
    assert len(dataset.finished()) == 5
    (said,) = dataset.runs().filter(outcome="failed")["reason"]
    assert said.startswith(reason)


def test_a_full_disk_ends_the_series_and_what_was_measured_is_written(
    pretended: dict[str, Pretended], tmp_path: Path
) -> None:
    """One on which runs put what they need for a while: every other run would fail, too."""
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    pretended["virtual"].error = OSError(28, "No space left on device", str(tmp_path / "packets.pcap"))
    with pytest.raises(WriteFailed, match=r"packets.pcap cannot be written: no room is left on .*; make room, then"):
        list(runner.measure(grid.runs(), dataset, _silent, jobs=1))
    assert len(dataset.finished()) == 1 and dataset.runs().height == 1


def test_a_failed_run_is_written_down_and_the_series_goes_on(pretended: dict[str, Pretended], tmp_path: Path) -> None:
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    pretended["virtual"].fail = True
    assert len(list(runner.measure(grid.runs(), dataset, _silent))) == 6
    assert dataset.runs()["reason"].to_list() == ["no luck"] * 6
    assert dataset.finished() == set()


def test_whoever_stops_reading_stops_the_runs_under_way(pretended: dict[str, Pretended], tmp_path: Path) -> None:
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    pretended["virtual"].hang_after = 2
    runs = runner.measure(grid.runs(), dataset, _silent)
    next(runs)
    next(runs)
    assert pretended["virtual"].hanging.wait(WAIT)
    runs.close()
    assert len(dataset.finished()) == 2
    assert pretended["virtual"].stopped.is_set()
    assert pretended["virtual"].open == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("run")]


def test_ctrl_c_stops_the_runs_under_way(pretended: dict[str, Pretended], tmp_path: Path) -> None:
    grid = _grid()
    virtual = pretended["virtual"]
    virtual.hang_after = 0

    def press_ctrl_c() -> None:
        virtual.hanging.wait(WAIT)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c).start()
    with pytest.raises(KeyboardInterrupt):
        list(runner.measure(grid.runs(), _dataset(tmp_path, grid), _silent))
    assert virtual.stopped.is_set()
    assert virtual.open == 0


def test_runs_side_by_side_are_refused_where_there_is_only_one() -> None:
    runner.check_jobs(4, _grid().scenarios)
    runner.check_jobs(1, _grid("vm").scenarios)
    with pytest.raises(BadInput, match="--jobs: 2 is not allowed: backend vm"):
        runner.check_jobs(2, _grid(["virtual", "vm"]).scenarios)


def test_from_python_a_scenario_gives_frames_and_no_dataset(
    pretended: dict[str, Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    got = brobust.run({"flows": [{"cc": "bbr", "count": 2}], "seed": 5}, repeat=2)
    assert got.run.seed == 7 and brobust.run({"seed": 5}, repeat=np.int64(2)).run.id.endswith("-2")
    assert got.runs["throughput_mbps"].to_list() == [1.0, 1.0]
    assert got.packets.is_empty()
    assert list(tmp_path.iterdir()) == []
    assert brobust.run(Scenario(backend="vm")).runs["backend"].item() == "vm"


@pytest.mark.parametrize(
    ("fields", "repeat", "words"),
    [
        ({"flow": []}, 0, "no such field"),
        ({"seed": [1, 2]}, 0, "seed: .*; brobust.run measures one scenario: call it for each value of a list"),
        ({"contention": {"share": [1, 0.5]}}, 0, "contention.share: .*; brobust.run measures one scenario"),
        ({"contention": {"share": [2]}}, 0, r"contention.share: '\[2\]' is not a fraction; write for example .* 25%$"),
        ({"repeat": 3}, 0, r"brobust.run\(fields, repeat=N\) measures repeat N"),
        ("scenario.toml", 0, "'scenario.toml' is not allowed"),
        ({}, -1, "repeat: -1 is not"),
        ({}, 10**30, "whole number from"),
    ],
)
def test_from_python_bad_input_is_an_exception(fields: dict[str, Any], repeat: int, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        brobust.run(fields, repeat=repeat)


def test_from_python_there_are_paths_and_any_whole_number_and_no_other_names(
    pretended: dict[str, Pretended], tmp_path: Path
) -> None:
    recording = tmp_path / "off.csv"
    recording.write_text("start_s,duration_ms\n0.5,10\n")
    files = {"sender": "/bin/true {receiver}", "receiver": "/bin/true", "files": [recording]}
    scenario = brobust.run({"contention": {"replay": recording}, "programs": files}).run.scenario
    assert (scenario.contention.replay, scenario.programs.files) == (str(recording), (str(recording),))
    result = brobust.run({})
    assert isinstance(result, brobust.Result)
    with pytest.raises(BadInput, match="table: 'run' is none of a dataset's"):
        result.table("run")
    for flow in ("0", 1.5, True, 1):
        with pytest.raises(brobust.errors.BrobustError, match=rf"flow: {flow!r} is not in the run, which has flows 0"):
            result.explain(flow)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        brobust.rnu  # type: ignore[attr-defined] # noqa: B018


def test_a_type_checker_knows_the_names_of_the_package_and_no_others(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import brobust\ndef draw(result: brobust.Result) -> str:\n    return brobust.__version__\nbrobust.rnu\n"
    )
    options = ["--config-file=", "--cache-dir=/dev/null", "--follow-imports=skip", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(script), str(brobust.__file__)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(brobust.__file__).parents[1])
    assert done.stdout == f'{script}:4: error: Module has no attribute "rnu"  [attr-defined]\n', done


def test_from_python_a_run_that_fails_is_an_exception(pretended: dict[str, Pretended]) -> None:
    pretended["virtual"].fail = True
    with pytest.raises(RunFailed, match="no luck"):
        brobust.run({})


@pytest.mark.parametrize(
    "command",
    [
        ["run", "--share", "1", "--cc", "bbr"],
        ["run", "--share", "1", "--cc", "bbr", "--json"],
        ["demo", "--backend", "virtual"],
        ["sweep", str(STUDIES / "2brobust" / "figure-01.toml"), "--scale", "smoke"],
        ["reproduce", "2brobust", "--figure", "1", "--scale", "smoke"],
        ["validate", "--cc", "bbr", "--share", "1", "--repeat", "1"],
    ],
)
def test_a_series_of_which_every_run_failed_does_not_end_well(
    pretended: dict[str, Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(virtual_kernels, "find", lambda: None)
    monkeypatch.setattr(expected_time, "_probe", lambda _: (0.0, 0.0))
    for backend in pretended.values():
        backend.fail = True
    with pytest.raises(BrobustError, match=r"no run is ok \(\d+ failed\)") as refusal:
        app(command, standalone_mode=False)
    assert refusal.value.exit_status == 1


@pytest.mark.virtual
def test_a_series_is_not_completed_with_another_kernel_than_it_was_begun_with(brobust: Brobust, tmp_path: Path) -> None:
    """As after `brobust kernel build` with a changed control. What is complete is only said to be of another."""
    (tmp_path / "mine.toml").write_text(SWEPT.replace("[grid]", '[grid]\nduration = "1s"'))
    sweep = ["sweep", "mine.toml", "--scale", "smoke", "--out", "data"]
    assert brobust(*sweep).returncode == 0
    (file,) = (tmp_path / "data/runs").glob("*.parquet")
    pl.read_parquet(file).with_columns(kernel_hash=pl.lit("0" * 64)).write_parquet(file)
    complete = brobust(*sweep)
    assert complete.returncode == 0 and "which are not measured again" in complete.stderr, complete.stderr
    pl.read_parquet(file)[1:].write_parquet(file)
    before = (tmp_path / "data/scenario.toml").read_text()
    (tmp_path / "mine.toml").write_text((tmp_path / "mine.toml").read_text().replace('"bbr"]', '"bbr", "reno"]'))
    for again in (sweep, ["run", "--resume", "--out", "data"]):
        refused = brobust(*again)
        assert refused.returncode == 2 and "another build of virtual-" in refused.stderr, refused.stderr
    assert (tmp_path / "data/scenario.toml").read_text() == before


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("changed", "says"), [("sleeps", "another build of /bin/sleeps ("), ("conf", "another build of programs.files (")]
)
def test_a_series_is_not_completed_with_another_program_or_file_than_it_was_begun_with(
    changed: str, says: str, brobust: Brobust, tmp_path: Path
) -> None:
    (tmp_path / "p.toml").write_text(
        'duration = "1s"\nrepeat = 2\n[programs]\nsender = "./sleeps 0.1"\nreceiver = "sleep 0.1"\nfiles = ["conf"]\n'
        "[contention]\nshare = 1\n"
    )
    (tmp_path / "conf").write_text("two workers")
    shutil.copy(shutil.which("sleep") or "", tmp_path / "sleeps")
    brobust("run", "p.toml", "--out", "data")
    (file,) = (tmp_path / "data/runs").glob("*.parquet")
    pl.read_parquet(file)[1:].write_parquet(file)
    with (tmp_path / changed).open("ab") as program:
        program.write(b"x")
    refused = brobust("run", "--resume", "--out", "data")
    assert refused.returncode == 2 and says in refused.stderr, refused.stderr


SWEPT = """
paper = "mine"
figure = "1"
title = "t"
[grid]
flows = [{ cc = ["cubic", "bbr"] }]
[scale.smoke]
repeat = 3
"""


@pytest.fixture
def swept(pretended: dict[str, Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Pretended]:
    """The study mine.toml in an empty current directory, and the backends that measure it. Nobody tries how long a run
    takes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(expected_time, "_probe", lambda _: (0.0, 0.0))
    Path("mine.toml").write_text(SWEPT)
    return pretended


@pytest.mark.usefixtures("swept")
def test_a_sweep_of_more_cells_and_fewer_repeats_leaves_no_run_without_its_scenario() -> None:
    for text in (SWEPT, SWEPT.replace('"bbr"]', '"bbr", "reno"]').replace("repeat = 3", "repeat = 1"), SWEPT):
        Path("mine.toml").write_text(text)
        app(["sweep", "mine.toml", "--scale", "smoke", "--out", "data"], standalone_mode=False)
        dataset = Dataset.open("data")
        assert set(dataset.runs()["run"]) == {run.id for run in dataset.grid().runs()}
    assert dataset.runs().height == 2 * 3 + 1


@pytest.mark.usefixtures("swept")
def test_where_nothing_is_left_to_measure_it_is_said_and_where_the_data_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sweep = ["sweep", "mine.toml", "--scale", "smoke", "--out", "data", "--json"]
    app(sweep, standalone_mode=False)
    capsys.readouterr()
    app(sweep, standalone_mode=False)
    again = capsys.readouterr()
    assert (again.out, again.err) == ("", "nothing is left to measure: data holds all runs of 2 cells\n")


def test_a_study_of_which_every_run_failed_leaves_the_others_their_claims(
    pretended: dict[str, Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(expected_time, "_probe", lambda _: (0.0, 0.0))
    claim = '[[claims]]\nid = "X{0}"\ntext = "t"\nchecks = [{{ rule = "at_least", value = 0.5 }}]\n'
    figure = '[[figures]]\nname = "f"\ntitle = "t"\nkind = "bars"\n'
    Path("studies").mkdir()
    for number, cc in ((1, "reno"), (2, "bbr")):
        text = SWEPT.replace('"1"', f'"{number}"').replace('["cubic", "bbr"]', f'"{cc}"')
        (tmp_path / f"studies/{number}.toml").write_text(text + figure + claim.format(number))
    measure = Pretended.measure

    def without_reno(backend: Pretended, run: Run) -> Measured:
        if run.scenario.flows[0].cc == "reno":
            raise RunFailed("no luck")
        return measure(backend, run)

    monkeypatch.setattr(Pretended, "measure", without_reno)
    app(["reproduce", "studies", "--scale", "smoke", "--out", "out", "--json"], standalone_mode=False)
    verdicts = [json.loads(line)["verdict"] for line in capsys.readouterr().out.splitlines()]
    assert verdicts == ["not measurable", "holds"]
    assert pl.read_csv("out/cells.csv")["figure"].to_list() == [2] and (tmp_path / "out/report.html").exists()


@pytest.mark.usefixtures("swept")
def test_a_reproduction_without_a_run_that_is_ok_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none_ok(_: Pretended, run: Run) -> Measured:
        if run.scenario.flows[0].cc == "bbr":
            raise RunFailed("no luck")
        return Measured(made_up.rows(run, outcome="unfaithful", reason="too late"))

    monkeypatch.setattr(Pretended, "measure", none_ok)
    with pytest.raises(measuring.NoSuccess, match=r"no run is ok \(3 failed, 3 unfaithful\)"):
        app(["reproduce", "mine.toml", "--scale", "smoke", "--out", "out", "--json"], standalone_mode=False)
    assert "runs failed" not in capsys.readouterr().err


UNDISTURBED_TOO = """
paper = "mine"
figure = "{number}"
title = "t"
[grid]
flows = [{{ cc = "bbr" }}]
contention = {{ share = [1, 0.5], timeslice = "{number}ms" }}
kernel = "virtual-6.12"
[scale.smoke]
repeat = 1
[[figures]]
name = "nowhere"
title = "t"
where = {{ rtt_ms = 77 }}
[[claims]]
id = "X{number}"
text = "t"
checks = [{{ rule = "at_least", value = 0.5, where = {{ share = 1 }} }}]
"""


def test_an_undisturbed_cell_of_two_studies_is_measured_once_and_is_evidence_of_both(
    pretended: dict[str, Pretended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where their timeslices are others: it has none. And their scenarios are made once, which takes seconds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(expected_time, "_probe", lambda _: (0.0, 0.0))
    Path("studies").mkdir()
    for number in (1, 2):
        (tmp_path / f"studies/{number}.toml").write_text(UNDISTURBED_TOO.format(number=number))
    made, make = [], scenario_grid.scenario
    monkeypatch.setattr(scenario_grid, "scenario", lambda *given, **more: made.append(given) or make(*given, **more))
    reproduce = ["reproduce", "studies", "--scale", "smoke", "--out", "out"]
    app([*reproduce, "--dry-run"], standalone_mode=False)
    said = capsys.readouterr()
    assert said.out.startswith("3 runs of 3 cells") and len(made) == 4
    not_drawn = "figure nowhere is not drawn: its where selects none of these runs"
    assert said.err.splitlines() == [f"mine-1: {not_drawn}", f"mine-2: {not_drawn}"]
    app([*reproduce, "--json"], standalone_mode=False)
    assert [json.loads(line)["verdict"] for line in capsys.readouterr().out.splitlines()] == ["holds", "holds"]
    assert pl.read_csv("out/cells.csv")["figure"].to_list() == [1, 1, 2, 2]


@pytest.mark.parametrize(("outcomes", "ends_well"), [
    (["ok", "failed", "unfaithful"], True), (["unfaithful", "failed"], False), (["unfaithful"], False),
])  # fmt: skip
def test_one_run_that_is_ok_is_enough(
    tmp_path: Path, outcomes: list[str], ends_well: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = _grid()
    dataset = _dataset(tmp_path, grid)
    for run, outcome in zip(grid.runs(), outcomes, strict=False):
        dataset.append(run.id, Measured([{"run": run.id, "flow": flow, "outcome": outcome} for flow in range(2)]))
    if ends_well:
        measuring.require_ok(grid, dataset)
    else:
        with pytest.raises(measuring.NoSuccess, match="1 unfaithful"):
            measuring.require_ok(grid, dataset)
    assert bool(capsys.readouterr().err) == ends_well, "the refusal says how many failed"


@pytest.mark.parametrize(
    ("words", "again", "resume"),
    [
        (["run", "--share", "1", "--repeat", "2", "--json"], "`brobust run --resume --out data`", ["run", "--resume"]),
        (["sweep", "mine.toml", "--scale", "smoke"], "the same command", ["sweep", "mine.toml", "--scale", "smoke"]),
    ],
)
def test_the_last_line_of_a_series_says_how_many_runs_failed_and_how_to_repeat_them(
    swept: dict[str, Pretended], capsys: pytest.CaptureFixture[str], words: list[str], again: str, resume: list[str]
) -> None:
    swept["virtual"].error = RunFailed("no luck")
    app([*words, "--out", "data"], standalone_mode=False)
    assert capsys.readouterr().err.splitlines()[-1] == f"1 of 6 runs failed; {again} measures it again"
    app([*resume, "--out", "data"], standalone_mode=False)
    assert "failed" not in capsys.readouterr().err


def test_a_run_that_another_thread_measures_ends_when_its_caller_says_so(pretended: dict[str, Pretended]) -> None:
    """Ctrl-C is raised in the main thread, and asyncio cannot cancel a thread."""
    pretended["virtual"].hang_after = 0
    stop = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(brobust.run, {"kernel": "virtual-6.12"}, stop=stop)
        assert pretended["virtual"].hanging.wait(WAIT)
        stop.set()
        with pytest.raises(RunFailed, match="stopped"):
            run.result(WAIT)
    with pytest.raises(RunFailed, match="stopped"):
        brobust.run({"kernel": "virtual-6.12"}, stop=stop)
    with pytest.raises(BadInput, match="stop: Ctrl-C ends a run on backend vm, and nothing else"):
        brobust.run({"backend": "vm"}, stop=stop)
