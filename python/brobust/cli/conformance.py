"""`brobust cc same`, `replay` and `shadow`: whether our controls are what they say, shown on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from brobust import _core
from brobust.errors import BadInput

Json = Annotated[bool, typer.Option("--json", help="JSON, one object per line.")]
Case = Annotated[list[str] | None, typer.Option(help="Only this case; may be repeated.")]
Quick = Annotated[bool, typer.Option("--quick", help="One case of each kind.")]
ListCases = Annotated[bool, typer.Option("--list", help="Show the cases.")]


def same(
    first: Annotated[str | None, typer.Argument(help="A control.")] = None,
    second: Annotated[str | None, typer.Argument(help="The one that is to send the same packets.")] = None,
    case: Case = None,
    quick: Quick = False,
    list_cases: ListCases = False,
    kernel: Annotated[
        str | None, typer.Option(help="Kernel of backend virtual; ONE,OTHER: of the first control, of the second.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show whether two controls send the same packets at the same times, in virtual time.

    Without names: each of ours that is to equal one of the kernel's. Exit status 1 where a packet differs.
    """
    from brobust.conformance import cases, packets

    if list_cases:
        print("\n".join(cases.VIRTUAL))
        return
    if (first is None) != (second is None):
        raise BadInput("give two controls, or none for all of ours that have a twin in the kernel")
    pairs = [(first, second)] if first is not None and second is not None else list(packets.TWINS.items())
    names = case or (list(cases.VIRTUAL_QUICK) if quick else list(cases.VIRTUAL))
    one, _, other = (kernel or "").partition(",")
    compared = packets.compare(pairs, names, (one or None, other or one or None))
    differ = 0
    for result in _counted(compared, len(pairs) * len(names)):
        differ += result.difference is not None
        text = f"{result.first} and {result.second}, {result.case}: {result.difference}"
        _say(as_json, result, text if result.difference is not None else None)
    _end(as_json, f"{len(pairs) * len(names)} comparisons in {len(names)} cases, {differ} differ", differ)


def replay(
    controls: Annotated[
        list[str] | None, typer.Argument(help="Controls of ours, with parameters; all if none.")
    ] = None,
    backend: Annotated[str, typer.Option(help="virtual: the module; vm: the BPF program.")] = "virtual",
    case: Case = None,
    quick: Quick = False,
    list_cases: ListCases = False,
    kernel: Annotated[str | None, typer.Option(help="A kernel of the backend.")] = None,
    as_json: Json = False,
) -> None:
    """Show whether a control decides the same in a kernel and in this process, from the same C.

    Records every call of the control in the kernel, makes the calls again here, and compares all that it decided.
    Exit status 1 where a bit differs.
    """
    if backend not in ("virtual", "vm"):
        raise BadInput(f"--backend: {backend!r} is not allowed; give virtual or vm")
    from brobust.conformance import calls, cases

    every, few = (cases.VM, cases.VM_QUICK) if backend == "vm" else (cases.VIRTUAL, cases.VIRTUAL_QUICK)
    if list_cases:
        print("\n".join(every))
        return
    chosen = controls or _core.control_names()
    names = case or (list(few) if quick else list(every))
    differ = total = 0
    for result in _counted(calls.replay(names, chosen, backend, kernel), len(chosen) * len(names)):
        wrong = result.differences or result.lost
        differ += result.differences
        total += result.calls
        found = f"{result.differences} of {result.calls} differ, {result.lost} records did not fit"
        text = f"{result.control}, {result.case}: {found}; {result.first or ''}"
        _say(as_json, result, text if wrong else None)
    _end(as_json, f"{total:,} calls of {len(chosen)} controls in {len(names)} cases, {differ} differ", differ)


def shadow(
    control: Annotated[str | None, typer.Argument(help="bbr_shadow or cubic_shadow; both if none.")] = None,
    case: Case = None,
    list_cases: ListCases = False,
    kernel: Annotated[str | None, typer.Option(help="Kernel of the VMs.")] = None,
    as_json: Json = False,
) -> None:
    """Show whether brb_bbr1 and brb_cubic decide as the kernel's own at every call, in VMs.

    The kernel's control runs the socket; ours runs beside it on a copy of the socket, and what the two decide is
    compared. Exit status 1 where it differs.
    """
    from brobust.conformance import cases
    from brobust.conformance import shadow as shadows

    if list_cases:
        print("\n".join(cases.VM))
        return
    chosen, names = [control] if control is not None else list(shadows.CONTROLS), case or list(cases.VM)
    differ = acks = 0
    over = {} if kernel is None else {"kernel": kernel}
    for result in _counted(shadows.watch(names, chosen, over), len(chosen) * len(names)):
        differ += result.differences
        acks += result.acks
        text = f"{result.control}, {result.case}: {result.differences} of {result.calls} differ; first: {result.first}"
        _say(as_json, result, text if result.differences else None)
    _end(as_json, f"{acks:,} ACKs in {len(names)} cases, {differ} calls differ", differ)


def _counted(results: Iterator[Any], total: int) -> Iterator[Any]:
    """With a bar and an ETA on a terminal, nothing in a pipe."""
    from rich.progress import track

    from brobust.report.console import Console

    console = Console(stderr=True)
    return iter(track(results, "comparing", total, console=console, transient=True, disable=not console.is_terminal))


def _say(as_json: bool, result: Any, text: str | None) -> None:
    if as_json:
        print(json.dumps(result.__dict__), flush=True)
    elif text is not None:
        print(text, flush=True)


def _end(as_json: bool, text: str, differ: int) -> None:
    if not as_json:
        print(text)
    if differ:
        raise typer.Exit(1)
