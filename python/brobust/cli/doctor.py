"""The command `brobust doctor`: what this machine can do, and removing what a killed run left behind."""

import json
from pathlib import Path
from typing import Annotated

import typer

from brobust.cli.options import report_option
from brobust.errors import BadInput, MissingSupport

COLORS = {"ok": "green", "limited": "yellow", "missing": "red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per check.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove what killed commands left on this host.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --clean: only list what would be removed.")] = False,
    report: Annotated[Path | None, report_option("what this machine is and can do")] = None,
) -> None:
    """Say what this machine can do, and how to get what it lacks; exit with status 2 if it cannot run VMs."""
    if dry_run and not clean:
        raise BadInput("--dry-run lists what --clean would remove; give --clean, too")
    if report and clean:
        raise BadInput("--report says what this machine can do, and --clean removes things from it; give one of them")
    if clean:
        from brobust.host.programs import become_host_program

        given = {"--dry-run": dry_run, "--json": as_json}
        become_host_program(["doctor", "--clean", *(option for option, is_given in given.items() if is_given)])
    from brobust.host import machine

    if report:
        machine.check(report)
    from rich.text import Text

    from brobust.backends import doctor
    from brobust.report.console import Console

    console = Console()
    results = []
    for result in doctor.all_checks():
        results.append(result)
        if as_json:
            print(json.dumps(result.__dict__), flush=True)
        else:
            line = Text(f"{result.status:8}", style=COLORS[result.status])
            line.append(f"{result.check}: {result.detail}", style="default")
            if result.remedy and result.status != "ok":
                line.append(f"\n        -> {result.remedy}", style="default")
            console.print(line, soft_wrap=True)
    if report:
        machine.write(report, checks=doctor.for_report(results))
        if not as_json:
            console.print(f"{report}: written; docs/fidelity.md says where to send it", soft_wrap=True)
    if lacking := ", ".join(result.check for result in results if result.status == "missing"):
        raise MissingSupport(f"this machine cannot run the vm backend; missing: {lacking}")
