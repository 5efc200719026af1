"""The command `brobust watch`: which sockets of this host are short of CPU."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from brobust import units, watch
from brobust.cli.options import parsed
from brobust.errors import BadInput
from brobust.watch import CAUSES, CPU_LIMITED, Filter, Sweep, formatted

if TYPE_CHECKING:
    from brobust.watch.metrics import Address

MAX_WINDOW_SWEEPS = 1000
"""A window spans at most this many sweeps: for each of them, 8 bytes are kept per socket."""


def command(
    interval: Annotated[str, typer.Option(help="Time between two sweeps, 50ms to 3600s.")] = "1s",
    window: Annotated[str, typer.Option(help="Find each cause from the samples of this time; 4 intervals or more.")] = (
        "10s"
    ),
    count: Annotated[int | None, typer.Option(help="End after this many sweeps. [default: never]", min=1)] = None,
    filter_: Annotated[
        str,
        typer.Option("--filter", help="Watch only these ports: 'dport 443', 'sport 80', or both with and."),
    ] = "",
    netns: Annotated[
        str | None,
        typer.Option(help="Watch this network namespace (a name of ip-netns(8)), or all. [default: our own]"),
    ] = None,
    top: Annotated[
        int, typer.Option(help="Show at most this many sockets, CPU-limited ones first, then by rate.", min=0)
    ] = 20,
    once: Annotated[
        bool, typer.Option("--once", help="Watch for one window, then exit with status 1 if a socket is CPU-limited.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Explain what cpu-limited means and what to do about it, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sweep.")] = False,
    serve: Annotated[
        str | None,
        typer.Option(
            help="Serve the sweeps to Prometheus at this address, such as 127.0.0.1:9775, until Ctrl-C.",
            metavar="ADDRESS:PORT",
        ),
    ] = None,
    per_socket: Annotated[
        bool,
        typer.Option(
            "--per-socket",
            help="With --serve: also serve time series for the --top sockets. Prometheus keeps three for every "
            "connection that was ever among them, long after its end, and anyone who can connect sees the addresses.",
        ),
    ] = False,
) -> None:
    """Follow all TCP sockets of this host and say what limits each: CPU, network, windows or application.

    The command reads the kernel's socket diagnosis, as `ss` does, and changes nothing. Sockets of its own network
    namespace need no privilege. A BBR flow is judged by its own estimate of the path's bandwidth-delay product, any
    other flow by delivery rate x min RTT.
    """
    if explain:
        print(watch.EXPLANATION, end="")
        return
    seconds = {"interval": _seconds("interval", interval), "window": _seconds("window", window)}
    if seconds["window"] < 4 * seconds["interval"]:
        raise BadInput(
            f"--window: {window} is less than four intervals of {interval}, too few samples to find a cause; "
            "give a longer window"
        )
    if seconds["window"] > MAX_WINDOW_SWEEPS * seconds["interval"]:
        raise BadInput(
            f"--window: {window} is more than {MAX_WINDOW_SWEEPS} intervals of {interval}, and every socket needs "
            "memory for each; give a shorter window, or a longer --interval"
        )
    if once:
        if count is not None:
            raise BadInput("--once watches for exactly one window, so it excludes --count; leave one of them out")
        count = round(seconds["window"] / seconds["interval"])
    address = _address(serve, as_json, once, per_socket)
    which = Filter.parse(filter_) if filter_ else Filter()
    if address is not None and not per_socket:
        top = 0  # nobody would see the sockets
    sweeps = watch.sweeps(seconds["interval"], seconds["window"], count, top, which, netns)
    if address is not None:
        from brobust.watch import metrics

        metrics.serve(sweeps, address, per_socket)
        return
    if not once:
        _follow(sweeps, as_json)
        return
    *_, last = sweeps
    _print(last, as_json)
    if watch.count(last, CPU_LIMITED):
        raise typer.Exit(1)


def _seconds(option: str, text: str) -> float:
    seconds = parsed(option, text, units.nanoseconds) / 1e9
    if not 0.05 <= seconds <= 3600:
        raise BadInput(f"--{option}: {text} is not between 50ms and 3600s")
    return seconds


def _address(serve: str | None, as_json: bool, once: bool, per_socket: bool) -> Address | None:
    if serve is None:
        if per_socket:
            raise BadInput("--per-socket adds time series to what --serve shows; give --serve, too")
        return None
    if as_json or once:
        other = "--json" if as_json else "--once"
        raise BadInput(f"--serve and {other} exclude each other: both say where the sweeps go; leave one of them out")
    from brobust.watch.metrics import Address

    return Address.parse(serve)


def _follow(sweeps: Iterator[Sweep], as_json: bool) -> None:
    # The view reads keys from standard input, and textual draws on standard error.
    are_terminals = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if are_terminals and os.environ.get("TERM", "dumb") != "dumb" and not as_json:
        from brobust.watch import view  # imports textual, which takes half a second: only for a terminal

        view.follow(sweeps)
        return
    for sweep in sweeps:
        _print(sweep, as_json)


def _print(sweep: Sweep, as_json: bool) -> None:
    """Print whole lines and flush each, so that a reader of the pipe gets them at once."""
    if as_json:
        print(json.dumps(sweep), flush=True)
        return
    from brobust.watch.text import cells

    print(summary(sweep), flush=True)
    for flow in sweep["flows"]:
        print("  " + "  ".join(cells(flow).values()), flush=True)


def summary(sweep: Sweep) -> str:
    """Return a sweep in one line: the number of sockets by cause, steal, and the reason for a deficit."""
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watch.count(sweep, cause)))
    host = sweep["host"]
    line = f"{sweep['sockets']} sockets: {causes or 'none'}; steal {formatted(host['steal_share'], '{:.1%}')}"
    if watch.count(sweep, CPU_LIMITED):
        line += f"; {watch.why(host)}"
    return "; ".join([line, *sweep["unread"]])
