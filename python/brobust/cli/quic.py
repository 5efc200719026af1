"""The command `brobust quic`: build and list QUIC stacks as senders in virtual time."""

import json
import sys
from typing import Annotated

import typer

from brobust import quic
from brobust.cli import output
from brobust.cli.lazy import group

app = group("Build and list QUIC stacks, which send and receive in virtual time.")


@app.command("build")
def build(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="A stack, such as quinn. [default: every stack]")
    ] = None,
) -> None:
    """Build QUIC stacks from their released packages, fetched with cargo and go. This does not need root.

    Examples:
      brobust quic build quinn quic-go
      brobust run --traffic quic:quinn --share 1,0.5
    """
    from brobust.quic import build as building

    stacks = [quic.find(name) for name in names or quic.STACKS]
    for stack in stacks:
        if stack.state != "built":
            building.check(stack)  # all of them before the first is built
    for stack in stacks:
        seconds = building.build(stack, lambda line: print(line, file=sys.stderr, flush=True), output.SAY_SECONDS)
        how = f"built in {seconds:.0f} s" if seconds else "nothing changed"
        print(f"{stack.name}: {stack.package} {stack.version}, {how}: {stack.program}", flush=True)


@app.command("list")
def listed(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per stack.")] = False) -> None:
    """List the QUIC stacks, their congestion controls, and what their pacers do with a missed departure. The last ones
    are no traffic, but HTTP/3 servers and clients for [programs] of a scenario (docs/servers.md)."""
    programs = {stack.name: program for program, stack in quic.WEB.items()}
    for stack in [*quic.STACKS.values(), *quic.WEB.values()]:
        about = {
            "name": stack.name, "package": stack.package, "version": stack.version, "state": stack.state,
            "cc": list(stack.controls), "late": stack.late, "source": stack.where, "program": programs.get(stack.name),
        }  # fmt: skip
        if as_json:
            print(json.dumps(about))
            continue
        named = f"; as a program {programs[stack.name]}" if stack.name in programs else ""
        print(f"{stack.name}: {stack.package} {stack.version}, {stack.state}; cc {', '.join(stack.controls)}{named}")
        print(f"    a missed departure: {stack.late} ({stack.where})")
