"""The commands `brobust cc compare`, `replay` and `shadow`: verify our congestion controls on this machine."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer

from brobust import _core
from brobust.cli import output
from brobust.cli.options import listed
from brobust.errors import BadInput
from brobust.units import show_count

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Case = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Use only this case, of those in --list; may be repeated.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Use only one case of each kind.")]
ListCases = Annotated[bool, typer.Option("--list", help="List the cases and exit.")]


def compare(
    first: Annotated[str | None, typer.Argument(metavar="ONE", help="A congestion control.")] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="OTHER", help="The congestion control that should send the same packets.")
    ] = None,
    case: Case = None,
    quick: Quick = False,
    list_cases: ListCases = False,
    kernel: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Virtual kernel for both controls, or two, A,B: A for ONE and B for OTHER. [default: virtual-6.12]",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two congestion controls in virtual time: do they send the same packets at the same times?

    Without names, compare each of our controls that is meant to be equivalent to one of the kernel's with that one.
    The exit status is 1 if a packet differs.

    Examples:
      brobust cc compare --quick
      brobust cc compare bbr brb_bbr1
      brobust cc compare bbr bbr --kernel virtual-6.1,virtual-6.12
    """
    from brobust.conformance import cases, packets

    if list_cases:
        print("\n".join(cases.VIRTUAL))
        return
    if (first is None) != (second is None):
        raise BadInput("give two congestion controls, or none to compare all of ours that have a kernel equivalent")
    pairs = [(first, second)] if first is not None and second is not None else list(packets.EQUIVALENTS.items())
    names = _chosen(case, quick, cases.VIRTUAL, cases.VIRTUAL_QUICK)
    kernels: Sequence[str | None] = [None] if kernel is None else listed("--kernel", kernel)
    if len(kernels) > 2:
        raise BadInput(f"--kernel: {kernel!r} are more than two; give one for both controls, or ONE,OTHER")
    compared = packets.compare(pairs, names, (kernels[0], kernels[-1]))
    differ = 0
    for result in _counted(compared, len(pairs) * len(names)):
        differ += result.difference is not None
        text = f"{result.first} and {result.second}, {result.case}: {result.difference}"
        _print(as_json, result, text if result.difference is not None else None, differ)
    done = f"{show_count(len(pairs) * len(names), 'comparison')} in {show_count(len(names), 'case')}"
    _end(as_json, f"{done}, {_differ(differ)}", differ)


def replay(
    controls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CONTROL", help="Our congestion controls, such as brb_bbq or brb_bbq:alpha=5ms. [default: all]"
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Record the kernel module in virtual time (virtual) or the BPF program in VMs (vm)."
        ),
    ] = "virtual",
    case: Case = None,
    quick: Quick = False,
    list_cases: ListCases = False,
    kernel: Annotated[
        str | None, typer.Option(metavar="NAME", help="A kernel of the backend. [default: the backend's]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify that a congestion control decides the same in a kernel and in this process, from the same C.

    Record every call of the control in the kernel, make each call again in this process, and compare the decisions.
    The exit status is 1 if a bit differs.
    """
    if backend not in ("virtual", "vm"):
        raise BadInput(f"--backend: {backend!r} is not allowed; give virtual or vm")
    from brobust.cc.names import check_ours
    from brobust.conformance import calls, cases

    every, few = (cases.VM, cases.VM_QUICK) if backend == "vm" else (cases.VIRTUAL, cases.VIRTUAL_QUICK)
    if list_cases:
        print("\n".join(every))
        return
    chosen = controls or _core.control_names()
    check_ours(chosen)
    names = _chosen(case, quick, every, few)
    differ = total = 0
    for result in _counted(calls.replay(names, chosen, backend, {"kernel": kernel}), len(chosen) * len(names)):
        differ += result.differences
        total += result.calls
        lost = f"{show_count(result.lost, 'record')} did not fit"
        found = f"different: {result.differences} of {show_count(result.calls, 'call')}; {lost}"
        text = f"{result.control}, {result.case}: {found}; {result.first or ''}"
        _print(as_json, result, text if result.differences or result.lost else None, differ)
    why = "; cc/ has changed since the C in this process was compiled: `make setup` compiles it again"
    why = why if differ and calls.is_older_than_cc() else ""
    of = f"{show_count(len(chosen), 'control')} in {show_count(len(names), 'case')}"
    _end(as_json, f"{total:,} calls of {of}, {_differ(differ)}{why}", differ)


def shadow(
    control: Annotated[
        str | None, typer.Argument(metavar="CONTROL", help="bbr_shadow or cubic_shadow. [default: both]")
    ] = None,
    case: Case = None,
    list_cases: ListCases = False,
    kernel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Guest kernel of the VMs. [default: the backend's]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify in VMs that brb_bbr1 and brb_cubic decide at every call as the kernel's bbr and cubic do.

    The kernel's control drives the socket. Ours runs beside it on a copy of the socket's state, and the two decisions
    are compared. The exit status is 1 if a decision differs.
    """
    from brobust.conformance import cases
    from brobust.conformance import shadow as shadows

    if list_cases:
        print("\n".join(cases.VM))
        return
    if control is not None and control not in shadows.CONTROLS:
        raise BadInput(f"{control!r} runs beside no control of the kernel; give {' or '.join(shadows.CONTROLS)}")
    chosen, names = [control] if control is not None else list(shadows.CONTROLS), case or list(cases.VM)
    differ = acks = 0
    for result in _counted(shadows.compare(names, chosen, {"kernel": kernel}), len(chosen) * len(names)):
        differ += result.differences
        acks += result.acks
        found = f"different: {result.differences} of {show_count(result.calls, 'call')}"
        text = f"{result.control}, {result.case}: {found}; first: {result.first}"
        _print(as_json, result, text if result.differences else None, differ)
    _end(as_json, f"{acks:,} ACKs in {show_count(len(names), 'case')}, {_differ(differ)}", differ)


def _differ(count: int) -> str:
    """Return how many comparisons or calls differ, as the end of a sentence."""
    return f"{count} differs" if count == 1 else f"{count} differ"


def _chosen(case: list[str] | None, quick: bool, every: Iterable[str], few: Iterable[str]) -> list[str]:
    if case and quick:
        raise BadInput("--quick: --case says which cases to use; leave one of them out")
    return case or list(few if quick else every)


def _counted(results: Iterator[Any], total: int) -> Iterator[Any]:
    """Yield the results, and show a progress bar if stderr is a terminal."""
    from rich.progress import track

    from brobust.report.console import Console

    console = Console(stderr=True)
    return iter(track(results, "comparing", total, console=console, transient=True, disable=not console.is_interactive))


def _print(as_json: bool, result: Any, text: str | None, differ: int) -> None:
    """Print a result, as a person reads it if it says something. Where the reader has read enough, the verdict is known
    if something differs so far."""
    try:
        if as_json:
            print(json.dumps(result.__dict__), flush=True)
        elif text is not None:
            print(text, flush=True)
    except BrokenPipeError:
        if not differ:
            raise
        raise typer.Exit(1) from None


def _end(as_json: bool, text: str, differ: int) -> None:
    if not as_json:
        with output.if_anybody_reads():
            print(text)
    if differ:
        raise typer.Exit(1)
