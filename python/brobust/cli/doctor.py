"""The command `brobust doctor`: what this machine can do, and removing what a killed run left behind."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from brobust.errors import BadInput, MissingSupport

MARKS = {"ok": ("ok", "green"), "limited": ("limited", "yellow"), "missing": ("missing", "red")}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what killed commands left on this host.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --clean: only list what would be removed.")] = False,
) -> None:
    """Say what this machine can do, and how to get what it lacks; exit with status 2 if it cannot run VMs."""
    if dry_run and not clean:
        raise BadInput("--dry-run lists what --clean would remove; give --clean, too")
    if clean:
        _clean(as_json, dry_run)
        return
    from rich.text import Text

    from brobust.backends import doctor
    from brobust.report.console import Console

    console = Console()
    results = []
    for result in doctor.all_checks():
        results.append(result)
        if as_json:
            print(json.dumps(result.as_dict()), flush=True)
        else:
            mark, color = MARKS[result.status]
            line = Text(f"{mark:8}", style=color)
            line.append(f"{result.check}: {result.detail}", style="default")
            if result.remedy and result.status != "ok":
                line.append(f"\n        -> {result.remedy}", style="default")
            console.print(line, soft_wrap=True)
    if not doctor.can_run_vms(results):
        lacking = ", ".join(result.check for result in results if result.status == "missing")
        raise MissingSupport(f"this machine cannot run the vm backend; missing: {lacking}")


def _clean(as_json: bool, dry_run: bool) -> None:
    from brobust import _core
    from brobust.cc import loader

    trials = [journal.name for journal in loader.abandoned()]
    found = [*(("congestion control", name) for name in trials), *_core.leftovers()]
    if found and not dry_run:
        if os.geteuid() != 0:
            raise MissingSupport(f"--clean needs root to remove {', '.join(map(' '.join, found))}; run it with sudo")
        loader.clean()
        problems = _core.clean()
        problems += [f"congestion control {journal.name}" for journal in loader.abandoned()]
        if problems:
            raise MissingSupport(f"these could not be removed: {'; '.join(problems)}")
    for kind, name in found:
        if as_json:
            print(json.dumps({"kind": kind, "name": name, "removed": not dry_run}))
        else:
            print(f"{'would remove' if dry_run else 'removed'} {kind} {name}")
    if not found and not as_json:
        print("nothing left behind")
