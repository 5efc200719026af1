"""Every field of a scenario is described once, and all that is said about it elsewhere comes from there."""

import runpy
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
import write_field_docs
from pydantic import BaseModel

from brobust import drivers
from brobust.analysis import axes
from brobust.dataset import RUNS
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.scenario import Contention, Scenario
from brobust.scenario.defaults import RUNNING
from brobust.scenario.description import DIVISORS, PANELS
from brobust.scenario.fields import FIELDS, ROWS

ROOT = Path(__file__).parents[1]
# The tables of a scenario. Senders and the receiver have the fields of contention.
TABLES: dict[str, type[BaseModel]] = {
    "": Scenario,
    **{name: type(table) for name, table in Scenario() if isinstance(table, BaseModel) and name != "receiver"},
    "flows": type(Scenario().flows[0]),
}


def _of_the_model() -> set[str]:
    tables = {*TABLES, "senders", "receiver"}
    return {
        f"{table}.{name}" if table else name
        for table, model in TABLES.items()
        for name in model.model_fields
        if table or name not in tables
    }


def test_every_field_of_the_model_is_described_and_every_description_is_of_a_field() -> None:
    # How often a cell is measured is no part of a scenario; the receiver's share is that of its contention.
    described, made = set(FIELDS) - {"repeat", "receiver.share"}, _of_the_model()
    assert described - made == set(), "described in scenario/fields.py, and missing in scenario/tables.py and model.py"
    assert made - described == set(), "in scenario/tables.py or model.py, and not described in scenario/fields.py"
    assert len(FIELDS) == len(ROWS) == len({row.option for row in ROWS})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_description_is_whole_sentences_in_a_panel(row: Any) -> None:
    assert row.panel in PANELS
    assert row.help.endswith(".") and row.help[0].isupper()
    assert row.option.startswith("--")
    assert row.default_text(row.default) or row.if_absent


def test_columns_and_axes_have_names_of_their_own() -> None:
    columns = [row.column for row in ROWS if row.column is not None]
    assert len({column.name for column in columns}) == len(columns)
    assert {column.name for column in columns} <= set(RUNS)
    assert {column.unit for column in columns} <= set(DIVISORS)
    assert [row.name for row in ROWS if row.axis is not None and row.column is None] == []


@pytest.mark.parametrize(("table", "model"), TABLES.items(), ids=lambda part: part if isinstance(part, str) else "")
def test_every_choice_of_a_field_is_named_in_its_help(table: str, model: type[BaseModel]) -> None:
    named = 0
    for row in ROWS:
        annotation = model.model_fields[row.key].annotation if row.table == table and row.name != "repeat" else None
        choices = drivers.CHOICES if row.name == "contention.driver" else get_args(annotation)
        for choice in choices if row.table == table else ():
            if isinstance(choice, str):
                named += 1
                assert choice in row.help or choice == row.or_word
    assert named or table not in ("", "contention")


def test_a_fraction_that_figures_have_in_percent_is_one_in_words_too() -> None:
    percent = [name for name, named in axes.NAMED.items() if named.axis.percent]
    assert {axes.axis_value(name, 0.25) for name in percent} == {"25%"}
    assert axes.axis_phrase("cross_load", 0.2) == "20% cross traffic"


def test_kernels_that_no_scenario_names_are_those_that_the_help_says() -> None:
    row = FIELDS["kernel"]
    assert (row.default, row.default_on) == (
        virtual_kernels.DEFAULT,
        {"vm": vm_kernels.DEFAULT, "lab": RUNNING.DEFAULT},
    )


def test_a_number_in_place_of_which_a_word_may_stand_has_its_bounds_too() -> None:
    for key in ("phase", "stop", "alternate"):
        with pytest.raises(ValueError, match=f"{key}\n.*4000s is more than 3600s"):
            Contention.model_validate({key: "4000s"})


def test_what_is_no_number_lies_outside_of_every_bound() -> None:
    bounds = ("min", "max", "above", "below")
    bounded = [row for row in ROWS if any(getattr(row, name) is not None for name in bounds)]
    assert [row.name for row in bounded if row.outside(float("nan")) is None] == []


def test_the_pages_are_those_of_the_descriptions() -> None:
    """If this fails: make format, or .venv/bin/python scripts/write_field_docs.py."""
    pages = write_field_docs.pages()
    assert [page.name for page, text in pages.items() if page.read_text() != text] == [], "make format"
    scenario = pages[ROOT / "docs" / "scenario.md"]
    assert [row.name for row in ROWS if f"| `{row.name}` | `{row.option}` | {row.help}" not in scenario] == []


@pytest.mark.parametrize("name", [
    "write_field_docs.py", "site/build.py", "site/reference.py", "add_report.py", "pictures.py",
])  # fmt: skip
def test_a_script_that_writes_pages_only_prints_its_help_where_it_is_asked_for_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (ROOT / "docs/scenario.md").stat().st_mtime_ns
    monkeypatch.chdir(tmp_path)
    for word, status, said in (("--help", 0, "usage: "), ("--hepl", 2, "")):
        monkeypatch.setattr(sys, "argv", [name, word])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "scripts" / name), run_name="__main__")
        assert ended.value.code == status and capsys.readouterr().out.startswith(said)
    assert list(tmp_path.iterdir()) == [] and (ROOT / "docs/scenario.md").stat().st_mtime_ns == before
