"""Every number of a scenario, at zero, at its bounds and just beyond them: it is refused in one line that names its
field, or a short run starts and ends, and says why if it was not ok.

HYPOTHESIS_PROFILE=deep also tries several such numbers at a time.
"""

import copy
import math
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brobust import backends
from brobust.backends.base import measured
from brobust.errors import BrobustError
from brobust.scenario import Grid
from brobust.scenario.description import COUNT, FRACTION, FREQUENCY, NUMBER, RATE, SIZE, TIME, Field
from brobust.scenario.fields import ROWS

UNITS = {RATE: "bit", TIME: "ns", SIZE: "B", FREQUENCY: "Hz"}
NUMERIC = {row.name: row for row in ROWS if row.kind in (COUNT, FRACTION, FREQUENCY, NUMBER, RATE, SIZE, TIME)}

# A run of a second in which little is sent, whatever the rate is.
BASE: dict[str, Any] = {
    "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "60kB"},
    "flows": {"cc": "bbr", "bytes": "300kB"},
    "contention": {"share": 0.5, "timeslice": "10ms"},
    "duration": "1s",
    "repeat": 1,
}
# What a field needs beside it to have an effect.
BESIDE: dict[str, dict[str, Any]] = {
    "path.burst": {"path": {"burst": "15kB"}},
    "path.second_buffer": {"path": {"second_bandwidth": "10mbit"}},
    "cross_traffic": {"cross_traffic": {"load": 0.2, "size": "200kB"}},
    "cpu": {"cpu": {"frequency": "576MHz"}},
    "flows.sender": {"senders": [{"share": 0.5}]},
    "programs": {"programs": {"sender": "true", "receiver": "true"}, "flows": {"cc": "bbr", "bytes": None}},
    "samples": {"flows": {"cc": "bbr", "bytes": "30kB"}},
}
# With these a run takes many seconds, as it should: a program that has to be waited for, 64 kernels.
LONG = {("programs.linger", 3_600_000_000_000), ("flows.sender", 64)}


def _numbers(row: Field) -> list[float]:
    """Return zero, the smallest and the largest number that are allowed, and those just beyond."""
    is_whole = row.kind not in (FRACTION, NUMBER)
    found: set[float] = {0}
    for bound, outwards in ((row.min, -1), (row.max, 1), (row.above, 1), (row.below, -1)):
        if bound is not None:
            beside = bound + outwards if is_whole else math.nextafter(bound, outwards * math.inf)
            found |= {number for number in (bound, beside) if number >= 0}
    if row.max is None and row.below is None:
        found |= {1, 10**12, 2**63}
    return sorted(found)


def _fields(numbers: dict[str, float]) -> dict[str, Any]:
    fields = copy.deepcopy(BASE)
    for name in numbers:
        for beside in (name, name.partition(".")[0]):
            for table, values in BESIDE.get(beside, {}).items():
                known = fields.get(table)
                fields[table] = {**known, **values} if isinstance(known, dict) else copy.deepcopy(values)
    for name, number in numbers.items():
        row = NUMERIC[name]
        written: Any = number if row.kind in (COUNT, NUMBER) else f"{number}{UNITS.get(row.kind, '')}"
        table = fields.setdefault(row.table, {}) if row.table else fields
        table[row.key] = number if row.kind is FRACTION else written
    return fields


def test_the_fields_of_one_number_have_nothing_of_another() -> None:
    assert _fields({"cpu.timer_cycles": 7})["cpu"]["timer_cycles"] == 7
    assert "timer_cycles" not in _fields({"cpu.frequency": 10**9})["cpu"]


def _refused_or_measured(numbers: dict[str, float], backend: Any) -> str:
    """Return how it ended: refused, or the run's outcome."""
    try:
        grid = Grid.from_flags(_fields(numbers))
        if any((name, number) in LONG for name, number in numbers.items()):
            return "long"
        if len(grid.runs()) > 1:
            return "many"
        backends.check(grid, 1)
        (run,) = grid.runs()
    except BrobustError as refusal:
        said = str(refusal)
        assert "\n" not in said and "mistake in brobust" not in said, said
        words = {word for name in numbers for word in (name, name.rpartition(".")[2], name.partition(".")[0])}
        assert any(word in said for word in words), (numbers, said)
        return "refused"
    first = measured(backend, run).runs[0]
    if first["outcome"] != "ok":
        assert first["reason"] and "\n" not in first["reason"] and "Error" not in first["reason"], first["reason"]
    return str(first["outcome"])


ENDS = {"refused", "ok", "unfaithful", "failed", "long", "many"}


@pytest.mark.virtual
@pytest.mark.timeout(250)
def test_a_run_with_the_bounds_of_any_field_is_refused_or_ends() -> None:
    with backends.opened("virtual", lambda _: None) as backend:
        ended = {
            (name, number): _refused_or_measured({name: number}, backend)
            for name, row in NUMERIC.items()
            for number in _numbers(row)
        }
    assert set(ended.values()) <= ENDS
    for name, row in NUMERIC.items():  # what is allowed is not refused for being out of bounds, and the other way round
        for number in _numbers(row):
            if row.outside(number) is not None:
                assert ended[name, number] == "refused", (name, number)


@pytest.mark.virtual
@pytest.mark.timeout(7200)
@pytest.mark.skipif(os.environ.get("HYPOTHESIS_PROFILE") != "deep", reason="minutes: HYPOTHESIS_PROFILE=deep")
@settings(max_examples=int(os.environ.get("BROBUST_EXAMPLES", "500")))
@given(
    st.dictionaries(st.sampled_from(sorted(NUMERIC)), st.integers(0, 9), min_size=2, max_size=4).map(
        lambda chosen: {
            name: _numbers(NUMERIC[name])[place % len(_numbers(NUMERIC[name]))] for name, place in chosen.items()
        }
    )
)
def test_a_run_with_several_of_them_is_refused_or_ends(numbers: dict[str, float]) -> None:
    with backends.opened("virtual", lambda _: None) as backend:
        assert _refused_or_measured(numbers, backend) in ENDS
