"""What the recorder saw becomes rows of the offtimes table, counted from the start of the traffic."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from brobust.contention import during_run
from brobust.contention.during_run import driver_for
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
