"""Load congestion controls into the running kernel, make them the default, and unload them completely.

Undoing comes first. Every change is recorded before it is made (/run/brobust-cc/NAME.json), and a control is
unregistered only when no network namespace has it as its default any more. A trial (`cc load` without --pin) has a
guardian, a process that undoes everything when the command dies; if both die, the next `brobust cc` or `brobust doctor
--clean` undoes it. Commands that run at the same time take turns, and each undoes only its own changes.
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

# Root acts on what is written here, so no environment variable may name another directory.
JOURNALS = Path("/run/brobust-cc")
_DEFAULT = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# These replace a previous default that no longer exists.
_FALLBACKS = ("cubic", "reno")


@dataclass
class Journal:
    """The record of what loading a control changes, written before the change."""

    name: str
    pinned: bool
    owner: str
    """The process that loaded it, as host/owner.py writes it."""
    defaults: dict[str, str] = field(default_factory=dict)
    """The previous default of each namespace, by the namespace's inode."""

    @property
    def file(self) -> Path:
        return JOURNALS / f"{self.name}.json"

    def write(self) -> None:
        """Write the journal, replacing the previous one."""
        scratch = self.file.with_suffix(".new")
        scratch.write_text(json.dumps(self.__dict__))
        scratch.rename(self.file)

    @classmethod
    def read(cls, name: str) -> Journal | None:
        """Return the journal of a control, or None if there is none that can be read."""
        try:
            return cls(**json.loads((JOURNALS / f"{name}.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def abandoned(self) -> bool:
        """Return whether this is a trial whose command is gone."""
        owner = Owner.parse(self.owner)
        return not self.pinned and (owner is None or not owner.lives)


@dataclass(frozen=True)
class Holder:
    """The number of connections of one namespace that use a control."""

    namespace: str
    sockets: int


def journals() -> list[Journal]:
    """Return the journals of all loaded controls."""
    names = sorted(file.stem for file in JOURNALS.glob("*.json")) if JOURNALS.is_dir() else []
    return [journal for name in names if (journal := Journal.read(name)) is not None]


def abandoned() -> list[Journal]:
    """Return the journals of trials whose command is gone and that are still loaded."""
    return [journal for journal in journals() if journal.abandoned]


def _one_at_a_time() -> contextlib.AbstractContextManager[None]:
    """Make other commands wait, because looking and then changing must be one step."""
    return locks.locked(locks.private_directory(JOURNALS) / "lock")


def may_clean() -> bool:
    """Return whether this user may undo abandoned trials. Everybody may see them."""
    return os.access(JOURNALS, os.W_OK)


def clean() -> list[str]:
    """Undo all abandoned trials, and return the names of their controls."""
    return [journal.name for journal in abandoned() if end_trial(journal) is not None]


def settings(name: str, given: Sequence[str]) -> list[tuple[str, int]]:
    """Return parameters given as NAME=VALUE in the form in which they are loaded."""
    return cc_names.settings_of(":".join([name, *given]))


def check(name: str, params: Sequence[tuple[str, int]]) -> None:
    """Refuse a control or a value that cannot be loaded, before anything is changed."""
    _or_refuse(lambda: _core.check_load(name, params))


def load(name: str, params: Sequence[tuple[str, int]], default_in: Sequence[Namespace], *, pinned: bool) -> Journal:
    """Load a control, make it the default of these namespaces, and return the journal. If a step fails, undo the
    others."""
    with _one_at_a_time():
        check(name, params)
        previous = {str(ns.inode): namespaces.inside(ns, _read_default) for ns in default_in}
        journal = Journal(name, pinned, str(Owner.current()), previous)
        journal.write()
        try:
            _or_refuse(lambda: _core.load(name, params))
            for ns in default_in:
                namespaces.inside(ns, lambda: _write_default(name))
        except BaseException:
            _undo(name)
            raise
    return journal


def end_trial(journal: Journal) -> list[Holder] | None:
    """Restore every default, unregister the control, remove the journal, and return which connections still use it.

    Return None and change nothing if another command has already done so: a control that is loaded now may be its own.
    """
    with _one_at_a_time():
        if Journal.read(journal.name) != journal:
            return None
        _undo(journal.name)
    return holders(journal.name)


def unload(name: str) -> list[Holder]:
    """Unload a control of ours, whichever command loaded it, and return which connections still use it. Refuse one that
    is not loaded or not ours."""
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
    """Restore every default, unregister the control, and remove the journal. Repeating this is harmless."""
    restore_defaults(name)
    with contextlib.suppress(_core.LoadRefused):
        _core.unload(name)
    (JOURNALS / f"{name}.json").unlink(missing_ok=True)


def restore_defaults(name: str) -> list[tuple[str, str]]:
    """Give every namespace whose default is this control its previous default back; a namespace that inherited the
    control gets the previous default of our own namespace. Return each namespace with its new default."""
    journal = Journal.read(name)
    previous = journal.defaults if journal else {}
    inherited = previous.get(str(namespaces.current().inode))
    restored = []
    # The process through which a namespace was found may end before we enter it; the next attempt finds another.
    for _ in range(3):
        if not (places := defaults_of(name)):
            break
        for ns in places:
            candidates = [previous.get(str(ns.inode)), inherited, *_FALLBACKS]
            wanted = [control for control in candidates if control and control != name]
            with contextlib.suppress(namespaces.Gone):
                restored.append((ns.name, namespaces.inside(ns, partial(_write_first, wanted))))
    return restored


def defaults_of(name: str) -> list[Namespace]:
    """Return the namespaces whose default is this control."""
    found = []
    for ns in namespaces.every():
        with contextlib.suppress(MissingSupport):
            if namespaces.inside(ns, _read_default) == name:
                found.append(ns)
    return found


def holders(name: str) -> list[Holder]:
    """Return how many connections use this control, for every namespace that has some."""
    return [Holder(ns, count[name]) for ns, count in sockets().items() if count.get(name)]


def sockets() -> dict[str, dict[str, int]]:
    """Return the number of connections by control, for every namespace that we may enter."""
    found = {}
    for ns in namespaces.every():
        with contextlib.suppress(MissingSupport, _core.LoadRefused):
            found[ns.name] = namespaces.inside(ns, _core.sockets_by_control)
    return found


def available() -> list[str]:
    """Return the controls that the kernel offers now."""
    return _AVAILABLE.read_text().split()


def start_guardian(name: str) -> Guardian:
    """Start a process that undoes the trial of this control if our process ends without having done so."""
    return Guardian.start("brobust.cc.loader", name, str(Owner.current()))


def guard(name: str, owner: str) -> None:
    """In the guardian: wait until the process that started it has ended, then undo its trial if it is still loaded."""
    guardian.wait_for_end()
    journal = Journal.read(name)
    if journal is not None and journal.owner == owner:
        end_trial(journal)


def default_in(ns: Namespace) -> str:
    """Return the default control of a namespace, which its new sockets get."""
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
    raise MissingSupport(f"the default cannot be restored: the kernel refuses {', '.join(names)}")


def _or_refuse(work: Any) -> None:
    try:
        work()
    except _core.LoadRefused as refusal:
        raise MissingSupport(str(refusal)) from None


if __name__ == "__main__":
    guard(*sys.argv[1:])
