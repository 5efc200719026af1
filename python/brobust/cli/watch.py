"""`brobust watch`: which sockets of this host are short of CPU."""

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
from brobust.watch import CAUSES, CPU_LIMITED, Filter, Report, said

if TYPE_CHECKING:
    from brobust.watch.metrics import Address

MOST_SWEEPS = 1000
"""In a window. 8 bytes are kept of each for every socket."""


def command(
    interval: Annotated[str, typer.Option(help="Time between sweeps.")] = "1s",
    window: Annotated[str, typer.Option(help="How far back a verdict looks.")] = "10s",
    count: Annotated[int | None, typer.Option(help="Sweeps; default: until Ctrl-C.", min=1)] = None,
    filter_: Annotated[
        str, typer.Option("--filter", help="Which sockets: 'dport 443', 'sport 80', or both with and.")
    ] = "",
    netns: Annotated[
        str | None, typer.Option(help="Network namespace: a name of ip-netns(8), or all [our own].")
    ] = None,
    top: Annotated[int, typer.Option(help="Sockets to show: CPU-limited first, then by rate.", min=0)] = 20,
    once: Annotated[
        bool, typer.Option("--once", help="Look for one window; exit 1 if a socket is CPU-limited.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what the causes mean and what to do.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per sweep.")] = False,
    serve: Annotated[
        str | None,
        typer.Option(
            help="Serve each sweep to Prometheus, on 127.0.0.1:9775 say, until Ctrl-C.", metavar="ADDRESS:PORT"
        ),
    ] = None,
    per_socket: Annotated[
        bool,
        typer.Option(
            "--per-socket",
            help="With --serve: series of the --top sockets, too. Prometheus keeps three for each connection that was "
            "ever among them, long after its end; and anyone who asks sees who is connected.",
        ),
    ] = False,
) -> None:
    """Follow all TCP sockets of this host, and name what limits each: CPU, network, windows, application.

    Reads the kernel's socket diagnosis, as `ss` does, and changes nothing. Needs no privilege for sockets of its own
    network namespace. Every BBR flow is judged by its own estimate of the path, others by delivery rate x min RTT.
    """
    if explain:
        print(watch.EXPLANATION, end="")
        return
    seconds = {"interval": _seconds("interval", interval), "window": _seconds("window", window)}
    if seconds["window"] < 4 * seconds["interval"]:
        raise BadInput(f"--window: {window} is less than four intervals of {interval}, too few to judge by; give more")
    if seconds["window"] > MOST_SWEEPS * seconds["interval"]:
        raise BadInput(
            f"--window: {window} is more than {MOST_SWEEPS} intervals of {interval}, and each is remembered for every "
            "socket; give a shorter window, or a longer --interval"
        )
    if once:
        if count is not None:
            raise BadInput("--once looks for one window; --count does not go with it")
        count = round(seconds["window"] / seconds["interval"])
    address = _address(serve, as_json, once, per_socket)
    which = Filter.parse(filter_) if filter_ else Filter()
    if address is not None and not per_socket:
        top = 0  # nobody would see them
    reports = watch.sweeps(seconds["interval"], seconds["window"], count, top, which, netns)
    if address is not None:
        from brobust.watch import metrics

        metrics.serve(reports, address, per_socket)
        return
    if not once:
        _follow(reports, as_json)
        return
    *_, last = reports
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
            raise BadInput("--per-socket is about the series of --serve; give that, too")
        return None
    if as_json or once:
        raise BadInput(f"--serve shows every sweep to Prometheus; {'--json' if as_json else '--once'} is another way")
    from brobust.watch.metrics import Address

    return Address.parse(serve)


def _follow(reports: Iterator[Report], as_json: bool) -> None:
    # Keys come in by the first of them, and textual draws on the last.
    are_terminals = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if are_terminals and os.environ.get("TERM", "dumb") != "dumb" and not as_json:
        from brobust.watch import view  # textual: half a second that only a terminal is worth

        view.follow(reports)
        return
    for report in reports:
        _print(report, as_json)


def _print(report: Report, as_json: bool) -> None:
    """Whole lines, each flushed: a reader of the pipe never waits for more."""
    if as_json:
        print(json.dumps(report), flush=True)
        return
    from brobust.watch.words import cells

    print(summary(report), flush=True)
    for flow in report["flows"]:
        print("  " + "  ".join(cells(flow).values()), flush=True)


def summary(report: Report) -> str:
    """One line."""
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watch.count(report, cause)))
    host = report["host"]
    line = f"{report['sockets']} sockets: {causes or 'none'}; steal {said(host['steal_share'], '{:.1%}')}"
    if watch.count(report, CPU_LIMITED):
        line += f"; {watch.why(host)}"
    return "; ".join([line, *report["unread"]])
