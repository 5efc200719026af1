"""What the recorder saw becomes rows of the offtimes table, counted from the start of the traffic; and what the machine
under the guests lacked spoils a run."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from brobust.contention import during_run
from brobust.contention.during_run import driver_for
from brobust.host import cpus
from brobust.scenario import Contention

MS = 1_000_000


@pytest.fixture
def got(monkeypatch: pytest.MonkeyPatch) -> during_run.ContentionOutcome:
    monkeypatch.setattr(during_run.time, "monotonic_ns", lambda: 5_000 * MS)
    got = during_run.ContentionOutcome(driver_for(Contention(share=0.25, driver="burner")))
    seen = SimpleNamespace(
        timeslices_ns=[10 * MS], timeslice_starts_ns=[5_020 * MS],
        offtimes_ns=[30 * MS, 31 * MS], offtime_starts_ns=[4_990 * MS, 5_030 * MS],
    )  # fmt: skip
    got.summaries = [cast(Any, seen)]
    return got


def test_timeslices_and_off_times_stand_in_order_and_count_from_the_traffics_start(
    got: during_run.ContentionOutcome,
) -> None:
    got.note_begin()
    rows = [(row["kind"], row["start_s"], row["duration_ms"], row["sender"]) for row in got.rows("a-0")]
    assert rows == [("off", -0.01, 30.0, 1), ("timeslice", 0.02, 10.0, 1), ("off", 0.03, 31.0, 1)]


def test_without_a_known_start_it_is_null(got: during_run.ContentionOutcome) -> None:
    assert {row["start_s"] for row in got.rows("a-0")} == {None}


def test_a_machine_whose_hypervisor_takes_its_cpus_away_spoils_a_run_and_is_named_beside_what_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stolen, undisturbed = (
        "this machine's hypervisor gave 12.5% of a CPU to others", during_run.ContentionOutcome(None),
    )  # fmt: skip
    assert [undisturbed.columns()[name] for name in ("outcome", "reason", "steal_share")] == ["ok", None, 0.0]
    undisturbed.steal = 0.125
    assert [undisturbed.columns()[name] for name in ("outcome", "reason")] == ["unfaithful", stolen]
    monkeypatch.setattr(during_run.verdict, "of_undisturbed", lambda _: "the vCPU was disturbed")
    undisturbed.summaries = [cast(Any, SimpleNamespace())]
    assert undisturbed._reason() == f"the vCPU was disturbed; {stolen}"


def test_steal_is_that_of_the_cpu_that_lost_most() -> None:
    before, after = (
        "cpu  9 9 9 9 9 9 9 9\ncpu0 100 0 0 0 0 0 0 50 7 7\ncpu1 0 0 0 100 0 0 0 0\nintr 5\n",
        "cpu  9 9 9 9 9 9 9 9\ncpu0 130 0 0 60 0 0 0 60 7 7\ncpu1 75 0 0 100 0 0 0 25\ncpu2 0 0 0 0 0 0 0 9\n",
    )
    assert cpus.times(before) == {"cpu0": (50, 150), "cpu1": (0, 100)}
    assert cpus.steal(cpus.times(before), cpus.times(after)) == 0.25  # cpu2 was not there before
    assert cpus.steal(cpus.times(before), cpus.times(before)) == 0.0
