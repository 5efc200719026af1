"""A run that did not have the CPU it asked for, or delivered nothing, is never ok."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brobust.contention import verdict
from brobust.contention.during_run import driver_for
from brobust.scenario import Contention
from brobust.scenario.grid import scenario

S = 10**9


def _slices(first: int, timeslice: int, period: int, until: int, since: int = 0) -> list[tuple[int, int]]:
    begins = range(since + first, until, period)
    return [(begin, min(begin + timeslice, until)) for begin in begins]


def _judged(
    fields: dict[str, Any], *slices: list[tuple[int, int]], delivered: tuple[float, ...] = (1.0,)
) -> str | None:
    requested = scenario({"duration": "10s", **fields})
    whole = [(0, requested.duration)]
    return verdict.in_virtual_time(requested, [*slices, whole] if slices else [whole, whole], delivered)


CONTENDED = {"contention": {"share": 0.25, "timeslice": "10ms"}}
AS_ASKED = _slices(0, S // 100, S // 25, 10 * S)


def test_what_was_asked_is_faithful() -> None:
    assert _judged(CONTENDED, AS_ASKED) is None
    assert _judged({}) is None


def test_a_cpu_that_never_comes_back_is_said() -> None:
    reason = _judged(CONTENDED, [(0, S)])
    assert reason is not None and reason.startswith("the sender had 10.0% of its CPU") and "25.0%" in reason


def test_a_cpu_that_is_never_taken_away_is_said() -> None:
    assert "had 100.0%" in (_judged(CONTENDED, [(0, 10 * S)]) or "")


def test_a_tenth_is_allowed_and_more_is_not() -> None:
    assert _judged(CONTENDED, _slices(0, 10_900_000, S // 25, 10 * S)) is None
    assert _judged(CONTENDED, _slices(0, 11_100_000, S // 25, 10 * S)) is not None


@pytest.mark.parametrize(
    ("times", "slices"),
    [
        ({"start": "4s"}, [(0, 4 * S), *_slices(0, S // 100, S // 25, 10 * S, since=4 * S)]),
        ({"stop": "4s"}, [*_slices(0, S // 100, S // 25, 4 * S), (4 * S, 10 * S)]),
        (
            {"alternate": "3s", "start": "1s"},
            [(0, S), *_slices(0, S // 100, S // 25, 4 * S, since=S), (4 * S, 7 * S),
             *_slices(0, S // 100, S // 25, 10 * S, since=7 * S)],
        ),
    ],
)  # fmt: skip
def test_the_share_is_that_of_the_time_in_which_the_cpu_is_taken_away(
    times: dict[str, str], slices: list[tuple[int, int]]
) -> None:
    contention = {"share": 0.25, "timeslice": "10ms", **times}
    assert _judged({"contention": contention}, slices) is None
    assert _judged({"contention": {**contention, "share": 0.3}}, slices) is not None


def test_a_run_of_few_periods_says_how_many_they_are() -> None:
    long = {"contention": {"share": 0.25, "timeslice": "1s"}, "duration": "5s"}
    reason = _judged(long, _slices(0, S, 4 * S, 5 * S)) or ""
    assert "40.0%" in reason and "5s holds 1.25 periods of 4s" in reason and "longer duration" in reason
    assert _judged({**long, "duration": "20s"}, _slices(0, S, 4 * S, 20 * S)) is None


def test_every_sender_and_the_receiver_are_looked_at() -> None:
    two = {**CONTENDED, "senders": [CONTENDED["contention"]], "flows": [{}, {"sender": 2}]}
    assert "sender 2 had 100.0%" in (_judged(two, AS_ASKED, [(0, 10 * S)], delivered=(1, 1)) or "")
    requested = scenario({"receiver": CONTENDED["contention"], "duration": "10s"})
    assert "the receiver had 0.0%" in (verdict.in_virtual_time(requested, [[(0, 10 * S)], []], [1.0]) or "")


def test_a_replay_is_held_to_its_recording(tmp_path: Path) -> None:
    def replayed(name: str, rows: str) -> dict[str, Any]:
        (tmp_path / name).write_text(f"start_s,duration_ms\n{rows}")
        return {"contention": {"replay": str(tmp_path / name)}}

    early = replayed("early.csv", "1,500\n9.5,4000\n")
    assert _judged(early, [(0, S), (3 * S // 2, 19 * S // 2)]) is None
    assert "50%" in (_judged(early, [(0, S), (3 * S // 2, 10 * S)]) or "")
    assert "no off-time in the run's 10s" in (_judged(replayed("late.csv", "10,500\n"), [(0, 10 * S)]) or "")


@pytest.mark.parametrize(("share", "ms", "is_faithful"), [
    (0.25, 8, False), (0.25, 10, True), (0.25, 20, True), (0.25, 23, False), (0.6, 40, True),
])  # fmt: skip
def test_of_two_vcpus_one_suffices_so_they_have_their_share_to_twice_as_much(
    share: float, ms: int, is_faithful: bool
) -> None:
    two = {"contention": {"share": share, "timeslice": "10ms", "vcpus": 2}}
    reason = _judged(two, _slices(0, ms * S // 1000, S // 25, 10 * S))
    assert (reason is None) == is_faithful, reason


def test_the_recordings_of_two_vcpus_that_are_never_away_together_take_no_cpu_away(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("vcpu,start_s,duration_ms\n0,1,500\n1,2,500\n")
    assert _judged({"contention": {"replay": str(tmp_path / "two.csv")}}, [(0, 10 * S)]) is None


def test_a_vcpu_is_held_to_its_recording_from_its_first_whole_timeslice_to_its_last(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("start_s,duration_ms\n0,100\n1,500\n2,500\n9,500\n")
    driver = driver_for(Contention(driver="replay", replay=str(tmp_path / "a.csv")))

    def judged(first_ms: int, begin_ns: int | None = 10 * S, slices: tuple[float, ...] = (10.1, 11.5, 12.5)) -> str:
        off = {10.0: 100, 11.0: first_ms, 12.0: 500}
        got: Any = SimpleNamespace(
            timeslice_starts_ns=[round(start * S) for start in slices],
            offtime_starts_ns=[round(start * S) for start in off],
            offtimes_ns=[ms * S // 1000 for ms in off.values()],
        )
        return verdict.of_thread(driver, got, begin_ns) or ""

    assert judged(500) == ""
    assert judged(300) == f"the vCPU was off its CPU for 80% of the time that {tmp_path}/a.csv says"
    assert judged(500, slices=()) == judged(500, begin_ns=None) == "not one whole timeslice was seen"


def test_a_vcpu_that_was_to_be_undisturbed_has_nine_tenths_of_its_cpu() -> None:
    enough, less = (SimpleNamespace(effective_share=share) for share in (0.9, 0.899))
    assert verdict.of_undisturbed(enough) is None  # type: ignore[arg-type]
    assert "undisturbed and had 89.9% of its CPU" in (verdict.of_undisturbed(less) or "")  # type: ignore[arg-type]


def test_a_run_that_delivered_nothing_is_said_however_short_its_flows() -> None:
    late = {"flows": [{"start": "9999ms"}]}
    assert _judged(late, delivered=(0,)) == "no byte reached the receiver"


def test_a_flow_without_a_byte_is_named_unless_it_had_no_time_for_one() -> None:
    late = [{"cc": "bbr"}, {"cc": "cubic", "start": "9s"}]
    assert _judged({"flows": late}, delivered=(1, 0)) is None
    early = [{"cc": "bbr"}, {"cc": "cubic", "start": "5s"}]
    assert "flow 1 (cubic)" in (_judged({"flows": early}, delivered=(1, 0)) or "")
    # Of so many flows some are locked out by the others.
    many = [{"cc": "bbr", "count": 10}]
    assert _judged({"flows": many}, delivered=(1,) * 9 + (0,)) is None
    assert "flow 9 (bbr)" in (_judged({"flows": many, "path": {"buffer": "4bdp"}}, delivered=(1,) * 9 + (0,)) or "")
    # Its SYN may be in a queue of three seconds, or its sender off its CPU for as long.
    assert _judged({"flows": early, "path": {"buffer": "7.5MB"}}, delivered=(1, 0)) is None
    slow = {"share": 0.25, "timeslice": "1s"}
    slices = [*_slices(0, S, 4 * S, 8 * S), (8 * S, 17 * S // 2)]
    assert _judged({"flows": early, "contention": slow}, slices, delivered=(1, 0)) is None


@pytest.mark.parametrize(
    ("steal", "late", "said"),
    [
        (0.1, 0.1, None),
        (0.1, None, None),
        (0.11, 0.5, "its hypervisor gave 11.0% of a CPU to others"),
        (0.0, 0.11, "11.0% of its timers were late by more than 2 ms: it, or what it runs on, was busy"),
    ],
)
def test_a_sender_of_a_lab_was_disturbed_if_its_kernel_counts_steal_or_its_timers_were_late(
    steal: float, late: float | None, said: str | None
) -> None:
    reason = verdict.of_sender(steal, late, 0.1)
    assert reason is None if said is None else said in (reason or "")


def test_a_path_host_or_receiver_that_was_busy_is_named() -> None:
    assert verdict.of_hosts({}) is None and verdict.of_hosts({"path": 0.25, "receiver": 0.1}) is None
    assert (verdict.of_hosts({"path": 0.1, "receiver": 0.3}) or "").startswith("30.0% of the timers of the receiver")
