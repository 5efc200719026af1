"""The oracle of study repair: what the best possible sender carries in given timeslices."""

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
import repair_cells
from hypothesis import given
from hypothesis import strategies as st

from brobust import units
from brobust.analysis import oracle
from brobust.analysis.metrics import Evidence, Tables, when_it_ran
from brobust.dataset import Dataset
from conftest import Brobust

RATE_MBPS = 100.0
FRAME_S = units.FRAME_BYTES * 8e-6 / RATE_MBPS
WHOLE_MBPS = units.goodput_ceiling_mbps(100_000_000)


def _slices(timeslice_s: float, period_s: float, periods: int) -> list[tuple[float, float]]:
    return [(n * period_s, n * period_s + timeslice_s) for n in range(periods)]


def _bdps(rtt_s: float, number: float) -> float:
    return RATE_MBPS * rtt_s / 8e-6 * number


def _scripted(slices: list[tuple[float, float]], buffer_bytes: float, until_s: float) -> tuple[float, int]:
    """Send frame by frame as the oracle does, over a queue as in crates/virtual/src/link.rs. Return the Mbit/s of
    payload that left the link, and the number of frames that did not fit."""
    waiting: deque[float] = deque()  # when the transmission of each queued frame begins
    free_at, left, dropped = 0.0, 0, 0
    for begin, end in slices:
        now = begin
        while now < end:
            while waiting and waiting[0] <= now:
                waiting.popleft()
            room = buffer_bytes - len(waiting) * units.FRAME_BYTES
            if free_at > now and room < units.FRAME_BYTES:
                now = waiting[0] if waiting else free_at
                continue
            begins = max(free_at, now)
            dropped += begins > now and room < units.FRAME_BYTES
            if begins > now:
                waiting.append(begins)
            free_at = begins + FRAME_S
            left += free_at <= until_s
    return left * units.PAYLOAD_BYTES * 8e-6 / until_s, dropped


@pytest.mark.parametrize(("timeslice", "period", "rtt"), [(0.001, 0.004, 0.01), (0.01, 0.1, 0.01), (0.02, 0.08, 0.04)])
@pytest.mark.parametrize("buffer_bdp", [0.5, 1, 12])
def test_a_scripted_sender_carries_what_the_oracle_promises_and_loses_nothing(
    timeslice: float, period: float, rtt: float, buffer_bdp: float
) -> None:
    slices = _slices(timeslice, period, round(2 / period))
    carried, dropped = _scripted(slices, _bdps(rtt, buffer_bdp), 2)
    promised = oracle.carried_mbps(slices, RATE_MBPS, _bdps(rtt, buffer_bdp), 0, 2)
    assert dropped == 0
    # It may end a timeslice or a buffer with a part of a frame: two frames of each timeslice.
    assert promised * (1 - 2 * FRAME_S / timeslice) <= carried <= promised * (1 + 1e-9)


def test_it_is_the_timeslice_and_the_buffer_of_each_period() -> None:
    slices = _slices(0.02, 0.2, 50)
    of_one_bdp = oracle.carried_mbps(slices, RATE_MBPS, _bdps(0.01, 1), 0, 10)
    assert of_one_bdp == pytest.approx(WHOLE_MBPS * (0.02 + 0.01 + FRAME_S) / 0.2)
    assert oracle.carried_mbps(slices, RATE_MBPS, _bdps(0.01, 20), 0, 10) == pytest.approx(WHOLE_MBPS)
    # A bound of one round trip takes away what a deep buffer could hold.
    assert oracle.carried_mbps(slices, RATE_MBPS, _bdps(0.01, 20), 0, 10, 0.01) == pytest.approx(of_one_bdp)


def test_with_all_of_its_cpu_it_carries_what_the_link_does() -> None:
    assert oracle.carried_mbps([(0, 10)], RATE_MBPS, 0, 5, 10) == pytest.approx(WHOLE_MBPS)


@given(
    st.lists(st.tuples(st.floats(0.001, 0.1), st.floats(0.001, 0.1)), min_size=1, max_size=30),
    st.floats(0, 0.3),
    st.floats(0, 0.3),
)
def test_more_to_send_ahead_never_carries_less(lengths: list[tuple[float, float]], first: float, second: float) -> None:
    slices, now = [], 0.0
    for on, off in lengths:
        slices.append((now, now + on))
        now += on + off
    less, more = sorted([first, second])
    carried = [oracle.carried_mbps(slices, RATE_MBPS, 1e9, 0, now, ahead) for ahead in (less, more)]
    assert carried[0] <= carried[1] <= WHOLE_MBPS * (1 + 1e-9)


def test_what_is_needed_ahead_is_enough_and_no_more() -> None:
    slices, link = _slices(0.01, 0.1, 100), (RATE_MBPS, _bdps(0.01, 12), 0.0, 10.0)
    needed = repair_cells.ahead_needed_s(slices, *link, 80)
    assert needed is not None
    assert oracle.carried_mbps(slices, *link, needed) == pytest.approx(80)
    assert needed == pytest.approx(80 / WHOLE_MBPS * 0.1 - 0.01 - FRAME_S, rel=1e-6)
    assert repair_cells.ahead_needed_s(slices, RATE_MBPS, _bdps(0.01, 1), 0, 10, 80) is None


def test_runs_over_one_wire_have_an_oracle_which_has_its_cpu_always_if_one_of_the_senders_has() -> None:
    path = {
        "backend": "virtual", "sender": 1, "duration_s": 10.0, "bandwidth_mbps": RATE_MBPS, "buffer_bytes": 1_000_000,
        "burst_bytes": 0, "rtt_ms": 20.0, "second_bandwidth_mbps": None, "ip_version": 4,
    }  # fmt: skip
    others = {"vm": {"backend": "vm"}, "bucket": {"burst_bytes": 1}, "second": {"second_bandwidth_mbps": 50.0}}
    of_each = [("contended", {}), ("undisturbed", {}), ("beside", {}), ("beside", {"sender": 2}), *others.items()]
    slices = [
        {"run": run, "sender": 1, "start_s": start_s, "duration_ms": 100.0}
        for run in ("contended", "beside", *others)
        for start_s in (6.0, 0.0)
    ]
    made: Any = SimpleNamespace(
        flows=pl.DataFrame([{"run": run, **path, **other} for run, other in of_each]),
        timeslices=pl.DataFrame(slices),
        runs=pl.DataFrame({"run": ["contended"]}),
    )
    found = {run: (ran, path["from_s"], path["to_s"]) for run, ran, path in when_it_ran(made)}
    second_half = 4.99, 9.99  # of what arrives: half a round trip before, it passes the bottleneck
    whole = [(0.0, 10.0)]
    ran = [(0.0, 0.1), (6.0, 6.1)]
    assert found == {
        "contended": (ran, *second_half), "undisturbed": (whole, *second_half), "beside": (whole, *second_half)
    }  # fmt: skip
    for metric, ahead_s in (("oracle_mbps", None), ("oracle_one_rtt_mbps", 0.02)):
        carried = oracle.carried_mbps(ran, RATE_MBPS, 1_000_000, *second_half, ahead_s)
        assert Evidence.values(made, metric)["value"].to_list() == [pytest.approx(carried)], metric


@pytest.mark.virtual
def test_no_control_carries_more_and_cubic_with_a_deep_buffer_nearly_as_much(brobust: Brobust, tmp_path: Path) -> None:
    brobust(
        "run", "--cc", "cubic,bbr_steady", "--bandwidth", "100mbit", "--share", "0.1,0.25", "--buffer", "1bdp,12bdp",
        "--repeat", "1", "--duration", "4s", "--out", str(tmp_path / "data"), check=True,
    )  # fmt: skip
    dataset = Dataset.open(tmp_path / "data")
    evidence = Evidence(Tables(dataset), [run.id for run in dataset.grid().runs()])
    late = evidence.values("late_mbps").select("run", "cc", "share", "buffer_bdp", late="value")
    both = late.join(evidence.values("oracle_mbps").select("run", oracle="value"), on="run")
    assert both.height == 8
    for row in both.iter_rows(named=True):
        # The throughput is counted in intervals of 0.1 s, and data behind a gap arrive with what fills it.
        assert row["late"] <= 1.03 * row["oracle"], row
        # With 10 % of a CPU its window still grows in the fourth second.
        if row["cc"] == "cubic" and row["buffer_bdp"] == 12 and row["share"] == 0.25:
            assert row["late"] >= 0.85 * row["oracle"], row
