"""Congestion controls in the running kernel: loaded, made the default, and taken out again without a trace.

Undoing is the first feature. What is to be changed is written down before it is changed (/run/brobust-cc/NAME.json),
and a control is unregistered only when no network namespace has it as its default any more. A trial (`cc load` without
--pin) has a guardian, a process of its own, that takes everything back when the command dies; if both die, the next
`brobust cc` or `brobust doctor --clean` does. Commands that run at once take turns, and each takes back only its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from brobust import _core
from brobust.cc import names as cc_names
from brobust.errors import BadInput, MissingSupport
from brobust.host import guardian, locks, namespaces
from brobust.host.guardian import Guardian
from brobust.host.namespaces import Namespace
from brobust.host.owner import Owner

# What is written here is believed, and acted on, by root: so nobody but root may say where it is.
JOURNALS = Path("/run/brobust-cc")
_DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# In place of a former default that is no longer there.
_ALWAYS_GOOD = ("cubic", "reno")


@dataclass
class Journal:
    """What loading a control changes, written before it does."""

    name: str
    pinned: bool
    owner: str
    """The process that wrote it, as host/owner.py names it."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Former default of a namespace, by its inode."""

    @property
    def file(self) -> Path:
        return JOURNALS / f"{self.name}.json"

    def write(self) -> None:
        scratch = self.file.with_suffix(".new")
        scratch.write_text(json.dumps(self.__dict__))
        scratch.rename(self.file)

    @classmethod
    def read(cls, name: str) -> Journal | None:
        try:
            return cls(**json.loads((JOURNALS / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def abandoned(self) -> bool:
        """A trial whose command is gone."""
        owner = Owner.parse(self.owner)
        return not self.pinned and (owner is None or not owner.lives)


@dataclass(frozen=True)
class Holder:
    """Connections of one namespace that have a control."""

    namespace: str
    sockets: int


def journals() -> list[Journal]:
    names = sorted(file.stem for file in JOURNALS.glob("*.json")) if JOURNALS.is_dir() else []
    return [journal for name in names if (journal := Journal.read(name)) is not None]


def abandoned() -> list[Journal]:
    """Trials that nobody has taken back."""
    return [journal for journal in journals() if journal.abandoned]


def _one_at_a_time() -> contextlib.AbstractContextManager[None]:
    """Let other commands wait: what is looked at and what is then changed belong together."""
    return locks.locked(locks.private_directory(JOURNALS) / "lock")


def may_clean() -> bool:
    """Return whether this user may take back what is abandoned; everybody may see it."""
    return os.access(JOURNALS, os.W_OK)


def clean() -> list[str]:
    """Take back every abandoned trial, and return the names."""
    return [journal.name for journal in abandoned() if take_back(journal) is not None]


def settings(name: str, given: Sequence[str]) -> list[tuple[str, int]]:
    """--param NAME=VALUE, as the kernel takes them."""
    return cc_names.settings_of(":".join([name, *given]))


def check(name: str, params: Sequence[tuple[str, int]]) -> None:
    """Refuse what could not be loaded, before anything is changed."""
    _or_refuse(lambda: _core.check_load(name, params))


def load(name: str, params: Sequence[tuple[str, int]], default_in: Sequence[Namespace], *, pinned: bool) -> Journal:
    """Load, and make it the default of these namespaces. What was done is undone if a part of it fails."""
    with _one_at_a_time():
        check(name, params)
        formers = {str(ns.inode): namespaces.inside(ns, _read_default) for ns in default_in}
        journal = Journal(name, pinned, str(Owner.current()), formers)
        journal.write()
        try:
            _or_refuse(lambda: _core.load(name, params))
            for ns in default_in:
                namespaces.inside(ns, lambda: _write_default(name))
        except BaseException:
            _undo(name)
            raise
    return journal


def take_back(journal: Journal) -> list[Holder] | None:
    """Put every default back, unregister, forget, and return who still has the control.

    Return None, and change nothing, where another command has done so: what is loaded now may be that one's.
    """
    with _one_at_a_time():
        if Journal.read(journal.name) != journal:
            return None
        _undo(journal.name)
    return holders(journal.name)


def unload(name: str) -> list[Holder]:
    """Do the same whoever loaded it, and refuse what is not loaded or not ours."""
    known = {known: is_loaded for known, is_loaded, _ in _core.loadable()}
    if name not in known or not (known[name] or Journal.read(name)):
        loaded = ", ".join(control for control, is_loaded in known.items() if is_loaded)
        raise BadInput(f"{name!r} is not loaded by brobust; loaded: {loaded or 'none'}")
    with _one_at_a_time():
        restore_defaults(name)
        if known[name]:
            _or_refuse(lambda: _core.unload(name))
        _undo(name)
    return holders(name)


def _undo(name: str) -> None:
    """Put every default back, unregister, forget. May be repeated."""
    restore_defaults(name)
    with contextlib.suppress(_core.LoadRefused):
        _core.unload(name)
    (JOURNALS / f"{name}.json").unlink(missing_ok=True)


def restore_defaults(name: str) -> list[tuple[str, str]]:
    """In every namespace whose default it is; where that was inherited, this one's former. (namespace, new default)"""
    journal = Journal.read(name)
    formers = journal.defaults if journal else {}
    inherited = formers.get(str(namespaces.current().inode))
    restored = []
    # A process by which a namespace was found may end before it is entered; it is found again by another.
    for _ in range(3):
        if not (places := defaults_of(name)):
            break
        for ns in places:
            former = [formers.get(str(ns.inode)), inherited, *_ALWAYS_GOOD]
            wanted = [control for control in former if control and control != name]
            with contextlib.suppress(namespaces.Gone):
                restored.append((ns.name, namespaces.inside(ns, partial(_write_first, wanted))))
    return restored


def defaults_of(name: str) -> list[Namespace]:
    """Namespaces whose default it is."""
    found = []
    for ns in namespaces.every():
        with contextlib.suppress(MissingSupport):
            if namespaces.inside(ns, _read_default) == name:
                found.append(ns)
    return found


def holders(name: str) -> list[Holder]:
    """Connections that have it, in every namespace."""
    return [Holder(ns, count[name]) for ns, count in sockets().items() if count.get(name)]


def sockets() -> dict[str, dict[str, int]]:
    """Connections by control, of every namespace that can be looked into."""
    found = {}
    for ns in namespaces.every():
        with contextlib.suppress(MissingSupport, _core.LoadRefused):
            found[ns.name] = namespaces.inside(ns, _core.sockets_by_control)
    return found


def available() -> list[str]:
    return _AVAILABLE.read_text().split()


def start_guardian(name: str) -> Guardian:
    """Start a process that takes the control back when this one ends without having done so."""
    return Guardian.start("brobust.cc.loader", name, str(Owner.current()))


def guard(name: str, owner: str) -> None:
    """Wait for the end of the process that started this guardian, and take back what it left, if anything."""
    guardian.wait_for_end()
    journal = Journal.read(name)
    if journal is not None and journal.owner == owner:
        take_back(journal)


def default_in(ns: Namespace) -> str:
    """The control that new sockets of a namespace get."""
    return namespaces.inside(ns, _read_default)


def _read_default() -> str:
    return _DEFAULT.read_text().strip()


def _write_default(name: str) -> None:
    _DEFAULT.write_text(name)


def _write_first(names: Sequence[str]) -> str:
    for name in names:
        with contextlib.suppress(OSError):
            _write_default(name)
            return name
    raise MissingSupport(f"none of {', '.join(names)} can be made the default again")


def _or_refuse(work: Any) -> None:
    try:
        work()
    except _core.LoadRefused as refusal:
        raise MissingSupport(str(refusal)) from None


if __name__ == "__main__":
    guard(*sys.argv[1:])
