"""`brobust doctor`: what this machine can do, and cleaning up after a run that was killed."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from brobust.errors import BadInput, MissingSupport

MARKS = {"ok": ("ok", "green"), "limited": ("limited", "yellow"), "missing": ("missing", "red")}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what interrupted runs left on this host.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --clean: only list it.")] = False,
) -> None:
    """Say what this machine can do, line by line, each with its remedy. Exit status 2 if VMs cannot be run."""
    if dry_run and not clean:
        raise BadInput("--dry-run goes with --clean")
    if clean:
        _clean(as_json, dry_run)
        return
    from rich.text import Text

    from brobust.backends import doctor
    from brobust.report.console import Console

    console = Console()
    findings = []
    for finding in doctor.all_checks():
        findings.append(finding)
        if as_json:
            print(json.dumps(finding.as_dict()), flush=True)
        else:
            word, color = MARKS[finding.status]
            line = Text(f"{word:8}", style=color)
            line.append(f"{finding.check}: {finding.detail}", style="default")
            if finding.remedy and finding.status != "ok":
                line.append(f"\n        -> {finding.remedy}", style="default")
            console.print(line, soft_wrap=True)
    if not doctor.load_bearing(findings):
        lacking = ", ".join(f.check for f in findings if f.status == "missing")
        raise MissingSupport(f"the vm backend cannot work here; missing: {lacking}")


def _clean(as_json: bool, dry_run: bool) -> None:
    from brobust.cc import loader
    from brobust.host import session

    trials = [journal.name for journal in loader.abandoned()]
    found = [*(session.Leftover("congestion control", name) for name in trials), *session.leftovers()]
    if found and not dry_run:
        if os.geteuid() != 0:
            raise MissingSupport(f"--clean needs root to remove {', '.join(map(str, found))}; run it with sudo")
        loader.clean()
        _, problems = session.clean()
        problems += [f"congestion control {journal.name}" for journal in loader.abandoned()]
        if problems:
            raise MissingSupport(f"could not be removed: {'; '.join(problems)}")
    for leftover in found:
        if as_json:
            print(json.dumps({"kind": leftover.kind, "name": leftover.name, "removed": not dry_run}))
        else:
            print(f"{'would remove' if dry_run else 'removed'} {leftover}")
    if not found and not as_json:
        print("nothing left behind")
