"""The command `brobust cc`: list congestion controls, load ours into the running kernel, unload and verify them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from brobust import _core, units
from brobust.cc import loader
from brobust.cc import names as cc_names
from brobust.cli import cc_module, conformance
from brobust.cli.lazy import group
from brobust.cli.options import parsed
from brobust.errors import BadInput, MissingSupport
from brobust.host import namespaces

app = group("List congestion controls, load ours into the running kernel, unload them, and verify them.")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be changed.")]


@app.command("list")
def show(as_json: Json = False) -> None:
    """List the kernel's congestion controls and ours: whether each is loaded, where it is the default, and how many
    sockets use it."""
    _clean()
    rows = _rows()
    if as_json:
        for row in rows:
            print(json.dumps(row), flush=True)
        return
    from rich.table import Table

    from brobust.report.console import Console

    table = Table(box=None, pad_edge=False)
    for column in ("name", "from", "state", "default of", "sockets"):
        table.add_column(column)
    for row in rows:
        held = ", ".join(f"{count} ({ns})" for ns, count in row["sockets"].items())
        table.add_row(row["name"], row["from"], row["state"], ", ".join(row["default_of"]), held)
    Console().print(table)


def _rows() -> list[dict[str, Any]]:
    ours = {name: pin for name, _, pin in _core.loadable()}
    available, sockets = loader.available(), loader.sockets()
    trials = {journal.name: journal for journal in loader.journals()}
    names = [*available, *(name for name in ours if name not in available)]
    rows = []
    for name in names:
        state = "available" if name in available else "not loaded"
        if name in ours and name in available:
            state = "trial" if name in trials and not trials[name].pinned else "pinned"
        rows.append(
            {
                "name": name,
                "from": "brobust" if name in ours else "kernel",
                "state": state,
                "default_of": [ns.name for ns in loader.defaults_of(name)] if name in available else [],
                "sockets": {ns: count[name] for ns, count in sockets.items() if count.get(name)},
            }
        )
    return rows


@app.command()
def params(
    name: Annotated[str, typer.Argument(help="The congestion control, such as bbr_steady.")],
    as_json: Json = False,
) -> None:
    """List the parameters of one of our congestion controls: default, range and meaning."""
    from rich.table import Table

    from brobust.report.console import Console

    found = cc_names.params(name)
    table = Table("parameter", "default", "min", "max", "meaning", box=None, pad_edge=False)
    for row in found:
        if as_json:
            # "least" and "most" are the names of "min" and "max" until the next release.
            shown = dict(zip(("name", "value", "min", "max", "help"), row, strict=True))
            print(json.dumps({**shown, "least": shown["min"], "most": shown["max"]}))
        table.add_row(*row)
    if not as_json:
        Console().print(table)


@app.command()
def programs(
    name: Annotated[str, typer.Argument(help="A congestion control that is loaded.")], as_json: Json = False
) -> None:
    """List the BPF programs of a loaded congestion control: size, number of runs and time per run. The kernel counts
    runs and time only while kernel.bpf_stats_enabled is 1."""
    try:
        found = _core.programs(name)
    except _core.LoadRefused as refusal:
        raise MissingSupport(str(refusal)) from None
    keys = ("callback", "verified_instructions", "instructions", "runs", "run_time_ns")
    if as_json:
        for program in found:
            print(json.dumps(dict(zip(keys, program, strict=True))), flush=True)
        return
    from rich.table import Table

    from brobust.report.console import Console

    table = Table(box=None, pad_edge=False)
    for column in ("callback", "verified", "instructions", "runs", "ns each"):
        table.add_column(column, justify="left" if column == "callback" else "right")
    for callback, verified, instructions, runs, nanoseconds in found:
        each = f"{nanoseconds / runs:.0f}" if runs else ""
        table.add_row(callback, f"{verified:,}", f"{instructions:,}", f"{runs:,}", each)
    Console().print(table)
    if not any(runs for *_, runs, _ in found):
        print("for the number of runs and their time: sysctl kernel.bpf_stats_enabled=1, then send traffic")


@app.command()
def load(
    name: Annotated[str, typer.Argument(help="The congestion control; `brobust cc list` lists them.")],
    param: Annotated[
        list[str] | None,
        typer.Option(help="Set a parameter: PARAMETER=VALUE; `brobust cc params NAME` lists them. May be repeated."),
    ] = None,
    default: Annotated[bool, typer.Option("--default", help="Make it the default for new sockets.")] = False,
    netns: Annotated[
        list[str] | None,
        typer.Option(help="With --default: in this network namespace (name, path or process id); may be repeated."),
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Keep it loaded until `brobust cc unload` or a reboot.")] = False,
    duration: Annotated[
        str | None, typer.Option("--for", help="Unload it after this time, such as 60s or 10m.")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Load one of our congestion controls into the running kernel.

    Without --pin this is a trial: the control is loaded only while this command runs. Everything is undone when the
    command ends: after the time of --for, on Ctrl-C, and also if the command is killed.
    """
    if netns and not default:
        raise BadInput("--netns says in which namespaces --default applies; give --default, too")
    if pin and duration:
        raise BadInput("--for excludes --pin: a pinned control stays until `brobust cc unload`; leave one of them out")
    seconds = _seconds(duration)
    _clean()
    settings = loader.settings(name, param or [])
    places = [namespaces.find(given) for given in netns or []] or [namespaces.current()] if default else []
    loader.check(name, settings)
    if default and name in cc_names.WARNINGS:
        typer.echo(f"brobust: {name} {cc_names.WARNINGS[name]}", err=True)
    if dry_run:
        _print_plan(name, settings, places, pin=pin, as_json=as_json)
        return
    if pin:
        loader.load(name, settings, places, pinned=True)
        _print(as_json, {"loaded": name, "pinned": True}, f"loaded {name}; `brobust cc unload {name}` unloads it")
        return
    _trial(name, settings, places, seconds, as_json)


def _trial(
    name: str,
    settings: Sequence[tuple[str, int]],
    places: Sequence[namespaces.Namespace],
    seconds: float | None,
    as_json: bool,
) -> None:
    signal.signal(signal.SIGHUP, _interrupt)
    guardian, journal = loader.start_guardian(name), None
    try:
        journal = loader.load(name, settings, places, pinned=False)
        until = f"in {seconds:g} s, or with Ctrl-C" if seconds is not None else "with Ctrl-C"
        _print(as_json, {"loaded": name, "pinned": False}, f"loaded {name}; it is unloaded {until}")
        deadline = None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            time.sleep(0.1 if deadline is None else min(0.1, max(0.0, deadline - time.monotonic())))
    except KeyboardInterrupt:
        pass
    finally:
        if journal is not None:
            _print_holders(name, loader.end_trial(journal), as_json)
        guardian.dismiss()


@app.command()
def unload(
    name: Annotated[str | None, typer.Argument(help="The congestion control.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Unload all congestion controls that brobust has loaded.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Unload a congestion control. First every network namespace in which it is the default gets its previous default
    back, then the control is unregistered."""
    if every == (name is not None):
        raise BadInput("give the name of one congestion control, or --all")
    _clean()
    names = [name] if name is not None else [known for known, loaded, _ in _core.loadable() if loaded]
    for one in names:
        if dry_run:
            where = [ns.name for ns in loader.defaults_of(one)]
            text = f"would unload {one}" + (f", after restoring the default of {', '.join(where)}" if where else "")
            _print(as_json, {"would_unload": one, "default_of": where}, text)
        else:
            _print_holders(one, loader.unload(one), as_json)
    if not names:
        _print(as_json, {"unloaded": None}, "no congestion control of brobust is loaded")


for command in (cc_module.module, conformance.compare, conformance.replay, conformance.shadow):
    app.command()(command)
app.command("same", hidden=True)(conformance.same)  # the former name of compare, for one release


def _clean() -> None:
    if not loader.may_clean():
        for journal in loader.abandoned():
            left = f"{journal.name} is still loaded from a trial whose command was killed"
            typer.echo(f"brobust: {left}; `sudo brobust cc list` unloads it", err=True)
        return
    for name in loader.clean():
        typer.echo(f"brobust: unloaded {name}, left by a trial whose command was killed", err=True)


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else parsed("for", duration, units.nanoseconds) / 1e9


def _print(as_json: bool, record: dict[str, Any], text: str) -> None:
    print(json.dumps(record) if as_json else text, flush=True)


def _print_plan(
    name: str,
    settings: Sequence[tuple[str, int]],
    places: Sequence[namespaces.Namespace],
    *,
    pin: bool,
    as_json: bool,
) -> None:
    defaults = [{"namespace": ns.name, "from": loader.default_in(ns), "to": name} for ns in places]
    lines = [f"would register {name}" + "".join(f", {key} = {value}" for key, value in settings)]
    lines.append(f"would pin it at /sys/fs/bpf/brobust/{name}" + ("" if pin else " until the command ends"))
    lines += [
        f"would change net.ipv4.tcp_congestion_control of {d['namespace']} from {d['from']} to {name}" for d in defaults
    ]
    _print(as_json, {"would_load": name, "params": dict(settings), "defaults": defaults, "pin": pin}, "\n".join(lines))


def _print_holders(name: str, holders: Sequence[loader.Holder] | None, as_json: bool) -> None:
    if holders is None:
        _print(as_json, {"unloaded": None}, f"another command has already unloaded {name}")
        return
    held = {holder.namespace: holder.sockets for holder in holders}
    text = f"unloaded {name}; nothing of it is left"
    if held:
        where = ", ".join(f"{count} ({ns})" for ns, count in held.items())
        text = f"unloaded {name}; connections that use it until they close: {where}"
    _print(as_json, {"unloaded": name, "held_by": held}, text)


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
