"""The cells of benchmarks/held_out.py are those that were drawn before the repair that they judge was known."""

from pathlib import Path

import held_out
import polars as pl

ROOT = Path(__file__).parents[1]


def test_the_draw_is_the_one_that_was_committed() -> None:
    assert pl.DataFrame(held_out.draw()).write_csv() == (ROOT / "docs/data/held-out-draw.csv").read_text()


def test_every_cell_is_a_scenario_within_the_bounds_and_the_same_for_all_controls() -> None:
    cells = held_out.draw()
    for cell in cells:
        assert 20 <= cell["rate_mbps"] <= 500 and 5 <= cell["rtt_ms"] <= 100 and 0.5 <= cell["buffer_bdp"] <= 20
        assert 2 <= cell["timeslice_ms"] <= 30 and 0.12 <= cell["share"] <= 0.65 and 0 <= cell["loss"] <= 0.01
        cubic, repair = (held_out.fields(cell, control) for control in ("cubic", "bbr_robust"))
        assert {**cubic, "flows": repair["flows"]} == repair
        undisturbed = held_out.fields(cell, held_out.UNDISTURBED)
        assert {**cubic, "flows": [{"cc": "bbr"}], "contention": {"share": 1}} == undisturbed
    runs = [held_out.run_of(cell, "cubic") for cell in cells]
    assert len({run.scenario.hash for run in runs}) == held_out.CELLS == 200
