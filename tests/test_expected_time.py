"""The remaining time of a series, on recorded run times: tests/run_times.json has bandwidth (Mbit/s), buffer (BDP),
share, timeslice (ms), control, and the wall time of a run of 10 s in virtual time (s), measured two at a time on 23
November 2026."""

import heapq
import itertools
import json
import random
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest

from brobust.scenario import Grid, Run
from brobust.series import expected_time
from brobust.series.expected_time import Remaining, expected_seconds

RECORDED = {tuple(row[:5]): row[5] for row in json.loads((Path(__file__).parent / "run_times.json").read_text())}
NOISE = 0.25  # of a run's time: other work of the machine


def _grid(repeat: int) -> Grid:
    bandwidths, buffers, shares, timeslices, controls = (sorted({key[axis] for key in RECORDED}) for axis in range(5))
    return Grid(
        {
            "repeat": repeat,
            "path": {"bandwidth": [f"{one:g}mbit" for one in bandwidths], "buffer": [f"{one}bdp" for one in buffers]},
            "contention": {"share": shares, "timeslice": [f"{one:g}ms" for one in timeslices]},
            "flows": [{"cc": controls}],
        }
    )


def _took(run: Run, chance: random.Random, slower: float) -> float:
    s = run.scenario
    buffer = round(s.path.buffer_bytes / (s.path.bandwidth / 8e9 * s.path.rtt))
    key = (s.path.bandwidth / 1e6, buffer, s.contention.share, s.contention.timeslice / 1e6, s.flows[0].cc)
    recorded = RECORDED.get(key) or RECORDED[(*key[:3], 10.0, key[4])]  # without contention there is one timeslice
    return recorded * slower * chance.lognormvariate(0, NOISE)


def _said(runs: list[Run], workers: int, slower: float) -> list[tuple[float, float, float]]:
    """Return, for each seventh run that ends after a hundred: when, the remaining time that is shown, and what it
    really was."""
    chance = random.Random(0)
    remaining, shown = Remaining(runs, 0.0), list[tuple[float, float | None]]()
    busy: list[tuple[float, int, float]] = []
    pending = iter(range(len(runs)))
    now = 0.0
    for ended in range(len(runs)):
        for number in itertools.islice(pending, workers - len(busy)):
            took = _took(runs[number], chance, slower)
            heapq.heappush(busy, (now + took, number, took))
        now, number, took = heapq.heappop(busy)
        remaining.ended(runs[number], took, now)
        if ended >= 100 and ended % 7 == 0:
            shown.append((now, remaining.seconds(now)))
    return [(at, seconds, now - at) for at, seconds in shown if seconds is not None]


@pytest.mark.parametrize(
    ("workers", "repeat", "slower"), [(2, 30, 1.0), (2, 12, 3.0), (1, 10, 2.0), (16, 30, 10.0), (64, 50, 20.0)]
)
def test_after_a_minute_and_a_hundred_runs_it_is_right_within_a_tenth(workers: int, repeat: int, slower: float) -> None:
    """Until less than a minute is left, or than four of the longest runs: which ones come last decides the rest."""
    least = max(60.0, 4 * slower * max(RECORDED.values()))
    runs = _grid(repeat).runs()
    random.Random(0).shuffle(runs)
    said = _said(runs, workers, slower)
    errors = [said / really - 1 for at, said, really in said if at >= 60 and really >= least]
    assert errors and max(map(abs, errors)) < 0.1


def test_before_the_first_run_has_ended_nothing_is_said() -> None:
    runs = _grid(1).runs()
    assert Remaining(runs, 0.0).seconds(5.0) is None


def test_failed_runs_take_no_time_and_do_no_harm() -> None:
    runs = _grid(1).runs()[:3]
    remaining = Remaining(runs, 0.0)
    remaining.ended(runs[0], 0.0, 1.0)
    assert remaining.seconds(1.0) is None
    for run in runs[1:]:
        remaining.ended(run, 2.0, 4.0)
    assert remaining.seconds(4.0) == 0.0


KERNEL = "virtual-6.12"


class Measured:
    """A dataset of ten runs of 10 s at 20 Mbit/s on each of two backends, with these wall times, s. In virtual time
    they are of KERNEL."""

    def __init__(self, **wall_s: float):
        self._rows = [
            {
                "run": f"{backend}{number}", "backend": backend, "wall_s": each, "duration_s": 10.0,
                "bandwidth_mbps": 20.0, "traffic": "brobust",
                "kernel": KERNEL if backend == "virtual" else "debian-6.12",
            }
            for backend, each in wall_s.items()
            for number in range(10)
        ]  # fmt: skip

    def runs(self) -> pl.DataFrame:
        return pl.DataFrame(self._rows)


def test_each_backends_runs_cost_what_those_of_the_same_backend_have_cost() -> None:
    both = {"path": {"bandwidth": "20mbit"}, "duration": "10s", "repeat": 3, "contention": {"share": "0.5"}}
    of_each = [Grid({**both, **backend}).runs() for backend in ({"kernel": KERNEL}, {"backend": "vm"})]
    seconds = expected_seconds([*of_each[0], *of_each[1]], Measured(virtual=0.5, vm=12.0), jobs=1)  # type: ignore[arg-type]
    assert seconds == pytest.approx(3 * 0.5 + 3 * 12.0)


def test_no_more_runs_are_measured_at_a_time_than_there_are() -> None:
    (run,) = Grid({"path": {"bandwidth": "20mbit"}, "duration": "10s", "kernel": KERNEL}).runs()
    assert expected_seconds([run], Measured(virtual=30.0), jobs=64) == pytest.approx(30.0)  # type: ignore[arg-type]


def test_what_runs_of_another_size_cost_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of short runs at low rates grows by long ones at high rates."""
    monkeypatch.setattr(expected_time, "_probe", lambda _: (0.5, 0.001))
    fields = {"path": {"bandwidth": "200mbit"}, "duration": "60s", "repeat": 2, "contention": {"share": 0.5}}
    larger = expected_seconds(Grid({**fields, "kernel": KERNEL}).runs(), Measured(virtual=0.5, vm=15.0), jobs=1)  # type: ignore[arg-type]
    assert larger == pytest.approx(2 * (0.5 + 0.001 * 200 * 60))
    on_vm = Grid({**fields, "backend": "vm"}).runs()
    assert expected_seconds(on_vm, Measured(virtual=0.5, vm=15.0), jobs=1) == pytest.approx(2 * 15 * 6)  # type: ignore[arg-type]
    assert expected_seconds(on_vm, None, jobs=1) == 2 * 60  # they have begun in no time


def test_the_probe_tells_what_a_run_costs_from_what_its_frames_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_time.backends, "opened", lambda *_: nullcontext())
    other_work = itertools.cycle([0.3, 0.0, 0.1])
    monkeypatch.setattr(
        expected_time, "_timed", lambda _, run: 0.5 + 0.002 * run.scenario.duration / 1e7 + next(other_work)
    )
    assert expected_time._probe(KERNEL) == pytest.approx((0.5, 0.002))  # 100 Mbit in each second


def test_runs_on_a_kernel_cost_what_those_on_the_same_kernel_have_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that looks for mistakes, as virtual-6.12-debug does, takes several times as long as others."""
    probed = {KERNEL: (0.0, 0.002), f"{KERNEL}-debug": (0.0, 0.02)}
    monkeypatch.setattr(expected_time, "_probe", probed.__getitem__)
    fields = {"path": {"bandwidth": "20mbit"}, "duration": "10s", "repeat": 4, "kernel": list(probed)}
    runs = Grid(fields).runs()
    assert expected_seconds(runs, None, jobs=1) == pytest.approx(4 * 0.4 + 4 * 4.0)
    assert expected_seconds(runs, Measured(virtual=0.5), jobs=2) == pytest.approx((4 * 0.5 + 4 * 4.0) / 2)  # type: ignore[arg-type]
