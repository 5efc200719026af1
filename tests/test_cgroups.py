"""The CPU controller of cgroup v2 is on while somebody needs it, and is then as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from brobust.errors import MissingSupport
from brobust.host import cgroups
from brobust.host.cgroups import Group

MS = 1_000_000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that behaves as a group of v2 does: a controller enabled or not, groups whose files go with them."""
    controllers = tmp_path / "cgroup.subtree_control"
    controllers.write_text("memory")
    write = Path.write_text

    def writing(path: Path, text: str) -> int:
        if path == controllers:
            now = set(path.read_text().split())
            text = " ".join(sorted(now | {text[1:]} if text[0] == "+" else now - {text[1:]}))
        if path.name == "cpu.max" and "cpu" not in controllers.read_text().split():
            raise PermissionError(13, "Permission denied", str(path))
        return write(path, text)

    def removing(path: Path) -> None:
        if (path / "cgroup.threads").read_text().split() != []:
            raise OSError(16, "Device or resource busy")
        shutil.rmtree(path)

    def moving(path: Path, text: str) -> int:
        if path.name == "cgroup.threads":  # a thread is in one group only
            for other in tmp_path.rglob("cgroup.threads"):
                write(other, " ".join(one for one in other.read_text().split() if one != text))
        return writing(path, text)

    monkeypatch.setattr(Path, "write_text", moving)
    monkeypatch.setattr(Path, "rmdir", removing)
    monkeypatch.setattr(cgroups, "_controller_of", lambda _: (True, str(tmp_path), "/"))
    monkeypatch.setattr(cgroups, "REMOVE_SECONDS", 0.05)
    return tmp_path


def controllers(home: Path) -> set[str]:
    return set((home / "cgroup.subtree_control").read_text().split())


def held(thread: int, *others: Group) -> Group:
    group = cgroups.group_for(thread, others)
    group.hold(thread, 10 * MS, 40 * MS)
    return group


def test_the_controller_is_enabled_for_one_thread_and_then_as_it_was(home: Path) -> None:
    group = held(7)
    assert controllers(home) == {"cpu", "memory"} and group.remains()
    group.remove()
    assert controllers(home) == {"memory"} and not group.remains()
    group.remove()  # once more does nothing


def test_of_two_commands_the_last_one_switches_the_controller_off(home: Path) -> None:
    first = held(7)
    second = held(8, first)
    first.remove()
    assert controllers(home) == {"cpu", "memory"}, "the other one's quota would be gone"
    assert (home / "brobust-8" / "cpu.max").read_text() == "10000 40000"
    second.remove()
    assert controllers(home) == {"memory"}


def test_a_limit_that_somebody_else_has_set_in_the_group_is_not_lost(home: Path) -> None:
    group = held(7)
    (home / "web.service").mkdir()
    (home / "web.service" / "cpu.max").write_text("50000 100000")
    group.remove()
    assert controllers(home) == {"cpu", "memory"}


def test_a_controller_that_was_on_stays_on(home: Path) -> None:
    (home / "cgroup.subtree_control").write_text("+cpu")
    held(7).remove()
    assert controllers(home) == {"cpu", "memory"}


def test_a_command_that_was_killed_between_its_two_last_steps_has_left_something(home: Path) -> None:
    group = held(7)
    shutil.rmtree(group.path)
    assert group.remains()
    group.remove()
    assert controllers(home) == {"memory"}


def test_a_group_that_cannot_be_removed_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = held(7)
    monkeypatch.setattr(Path, "rmdir", lambda _: (_ for _ in ()).throw(OSError(16, "Device or resource busy")))
    with pytest.raises(MissingSupport, match=r"brobust-7 could not be removed \(device or resource busy\)"):
        group.remove()
    assert group.remains()
