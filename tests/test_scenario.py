"""Scenarios: grids, hashes, refusals."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brobust.errors import BadInput
from brobust.scenario import DEFAULT_GRID, Grid


def test_the_default_grid_is_three_controls_at_three_shares() -> None:
    scenarios = Grid.from_flags({}).scenarios
    assert {s.flows[0].cc for s in scenarios} == {"cubic", "bbr", "bbr_robust"}
    assert {s.contention.share for s in scenarios} == {1.0, 0.5, 0.25}
    assert len(scenarios) == 9


def test_any_list_spans_the_grid_and_repeats_multiply_it() -> None:
    grid = Grid.from_flags({"path": {"rtt": ["10ms", "40ms"]}, "flows": {"count": [1, 4]}, "repeat": 2})
    assert len(grid.scenarios) == 9 * 2 * 2
    assert len(grid.runs()) == 9 * 2 * 2 * 2
    assert len({run.id for run in grid.runs()}) == len(grid.runs())


def test_the_order_is_shuffled_and_the_seed_decides_it() -> None:
    first, again, other = (Grid.from_flags({"seed": seed, "repeat": 4}).runs() for seed in (1, 1, 2))
    assert [run.id for run in first] == [run.id for run in again]
    assert [(r.scenario.contention.share, r.repeat) for r in first] != [
        (r.scenario.contention.share, r.repeat) for r in other
    ]
    assert [run.repeat for run in first] != sorted(run.repeat for run in first)


def test_a_hash_names_the_point_however_its_numbers_are_written() -> None:
    def point(share: str, rate: str) -> str:
        flags = {"contention": {"share": share}, "path": {"bandwidth": rate}, "flows": {"cc": "bbr"}}
        return Grid.from_flags(flags).scenarios[0].hash

    assert point("25%", "20mbit") == point("0.25", "20000kbit")
    assert point("25%", "20mbit") != point("26%", "20mbit")


def test_flags_override_the_file_and_the_file_overrides_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text('duration = "3s"\n[path]\nrtt = "40ms"\nbandwidth = "50mbit"\n[[flows]]\ncc = "bbr"\n')
    grid = Grid.from_file(file, {"path": {"rtt": "20ms"}, "flows": {"count": "2"}})
    (scenario,) = {s.model_copy(update={"contention": None}) for s in grid.scenarios}
    assert scenario.path.rtt == 20_000_000
    assert scenario.path.bandwidth == 50_000_000
    assert scenario.duration == 3_000_000_000
    assert (scenario.flows[0].cc, scenario.flows[0].count) == ("bbr", 2)


def test_several_groups_of_flows_run_together() -> None:
    grid = Grid({**DEFAULT_GRID, "flows": [{"cc": "bbr"}, {"cc": ["cubic", "bbr"], "start": "2s"}]})
    assert sorted("+".join(g.cc for g in s.flows) for s in grid.scenarios if s.contention.share == 1) == [
        "bbr+bbr",
        "bbr+cubic",
    ]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path": {"bandwidth": "20"}}, ["path.bandwidth", "'20' has no unit", "20mbit"]),
        ({"path": {"bw": "20mbit"}}, ["path.bw", "no such field"]),
        ({"path": {"buffer": "100B"}}, ["less than two packets"]),
        ({"path": {"loss": "1.5"}}, ["path.loss", "1.5"]),
        ({"contention": {"share": "0"}}, ["contention.share", "greater than 0"]),
        ({"contention": {"share": ["1", "1.1"]}}, ["contention.share", "1.1", "less than or equal to 1"]),
        ({"contention": {"driver": "magic"}}, ["contention.driver", "'magic'", "deadline"]),
        ({"contention": {"driver": "none", "share": "0.5"}}, ["share 0.5", "give share 1"]),
        ({"contention": {"timeslice": "10"}}, ["contention.timeslice", "no unit"]),
        ({"flows": {"count": "many"}}, ["flows.count", "'many'"]),
        ({"flows": {"cc": "a_name_that_is_too_long"}}, ["flows.cc"]),
        ({"flows": {"start": "20s"}}, ["after the end of the run"]),
        ({"repeat": 0}, ["repeat", "0"]),
        ({"backend": "lab"}, ["backend", "'lab'"]),
        ({"surprise": 1}, ["surprise", "no such field"]),
        ({"path": {"rtt": []}}, ["empty list"]),
    ],
)
def test_bad_input_is_one_line_that_names_field_value_and_remedy(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(BadInput) as refusal:
        Grid.from_flags(fields)
    assert "\n" not in str(refusal.value)
    for word in words:
        assert word in str(refusal.value)


@given(share=st.floats(min_value=0.01, max_value=0.99), timeslice_us=st.integers(min_value=100, max_value=10**6))
def test_the_period_is_timeslice_over_share(share: float, timeslice_us: int) -> None:
    flags = {"contention": {"share": str(share), "timeslice": f"{timeslice_us}us"}, "flows": {"cc": "cubic"}}
    contention = Grid.from_flags(flags).scenarios[0].contention
    assert contention.timeslice / contention.period == pytest.approx(share, rel=1e-3)


@pytest.mark.parametrize("file", sorted((Path(__file__).parents[1] / "examples").glob("*.toml")), ids=lambda f: f.stem)
def test_every_example_is_a_scenario(file: Path) -> None:
    assert Grid.from_file(file, {}).runs()


def test_the_page_on_scenarios_names_every_field_and_its_flag() -> None:
    page = (Path(__file__).parents[1] / "docs" / "scenario.md").read_text()
    toml = page.split("```toml\n")[1].split("```")[0]
    values = [line for line in toml.splitlines() if line and not line.startswith("[")]
    assert all("# --" in line for line in values)
    fields = {**DEFAULT_GRID, **DEFAULT_GRID["path"], **DEFAULT_GRID["contention"], **DEFAULT_GRID["flows"][0]}
    for name in fields:
        assert name in toml
