"""A driver is one file that is found by being there, and every page, option and refusal that names drivers names it."""

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from brobust import drivers
from brobust.backends import support
from brobust.drivers import Driver, schedules
from brobust.drivers.modelled import Modelled
from brobust.scenario import Contention
from brobust.scenario.grid import scenario

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("driver", drivers.BY_NAME.values())
def test_a_driver_has_a_file_of_its_name_and_says_what_it_takes_and_promises(driver: type[Driver]) -> None:
    assert driver.__module__ == f"brobust.drivers.{driver.name}", "a driver's file is called as the driver"
    assert driver.takes
    assert driver.promise in ("share", "timeslices", "timeslices at ticks", "recording", None)


@pytest.mark.parametrize("page", ["contend.md", "scenario.md", "data.md"])
def test_the_documentation_names_every_driver(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    how = "write its row into the table of drivers" if page == "contend.md" else "`make format` writes it"
    assert [name for name in drivers.BY_NAME if not re.search(rf"\b{name}\b", text)] == [], how


@pytest.mark.parametrize("command", ["run", "contend"])
def test_the_help_names_every_driver(brobust: Callable[..., CompletedProcess[str]], command: str) -> None:
    said = brobust(command, "--help").stdout
    lacking = [name for name in drivers.BY_NAME if name not in said]
    assert lacking == [], "`brobust contend` has the drivers of crates/command/src/contend/request.rs: see its Driver"


BURNERS = {"phase": "5ms", "start_jitter": 0.1, "length_jitter": 0.1}


@pytest.mark.parametrize("name", drivers.BY_NAME)
def test_what_a_driver_does_not_take_is_refused_with_the_one_that_does(name: str) -> None:
    share: dict[str, Any] = {"start_jitter": 0, **({"replay": "a.csv"} if name == "replay" else {"share": 0.5})}
    takes = drivers.BY_NAME[name].takes - ({"phase"} if name == "deadline" else set())  # it takes words, and no time
    for field, value in BURNERS.items():
        refused = dict(drivers.refusals(Contention(driver=name, **{**share, field: value})))
        assert set(refused) == {field} - takes
        assert all("burner" in why for why in refused.values())


def test_a_driver_that_virtual_time_does_not_model_is_not_taken_for_exact_timeslices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(drivers.BY_NAME, "new", drivers.BY_NAME["burner"])
    monkeypatch.setattr(drivers, "CHOICES", (*drivers.CHOICES, "new"))
    given = scenario({"contention": {"driver": "new", "share": 0.5}})
    assert str(support.unsupported(given)).startswith("contention.driver: 'new' is for backend vm; in virtual time")


def test_a_competitor_takes_the_share_of_one_of_n_equals() -> None:
    def refused(share: float) -> list[str]:
        return [field for field, _ in drivers.refusals(Contention(driver="competitor", start_jitter=0, share=share))]

    assert (refused(0.25), refused(0.4)) == ([], ["share"])


@pytest.mark.parametrize(
    ("driver", "more"),
    [
        ("deadline", {"kind": "deadline", "tick": 4_000_000}),
        ("quota:hz=1000", {"kind": "quota", "tick": 1_000_000}),
        ("competitor", {"kind": "fair", "tick": 4_000_000}),
        ("deadline:idle", {"kind": "on_wake_up"}),
        ("late:chance=10%:timers", {"kind": "late", "chance": 0.1, "timers": True}),
    ],
)
def test_virtual_time_follows_a_hosts_scheduler_as_its_settings_say(driver: str, more: dict[str, Any]) -> None:
    of_each = {"timeslice": 10_000_000, "period": 40_000_000, "seed": 7}
    assert schedules.schedule(Contention(share=0.25, driver=driver), 7) == {**of_each, **more}


@pytest.mark.parametrize(("phase", "ns"), [("5ms", 5_000_000), ("random", None), ("in", None), ("out", None)])
def test_a_phase_is_a_time_or_a_word_for_what_is_drawn(phase: str, ns: int | None) -> None:
    assert schedules.schedule(Contention(share=0.25, phase=phase), 7)["phase"] == ns


@pytest.mark.parametrize("chance", ["10%", "0.7%", "12.345678%", "99.9999999%", "0.00000001%"])
def test_the_chance_of_a_late_wake_up_is_read_as_it_was_given(chance: str) -> None:
    late = Modelled.parse(f"late:chance={chance}:timers")
    assert str(late) == f"late:chance={chance}:timers" and Modelled.parse(str(late)) == late
