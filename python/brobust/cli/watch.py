"""`brobust watch`: which sockets of this host are short of CPU."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from brobust import units, watching
from brobust.errors import BadInput
from brobust.watching import CAUSES, CPU_LIMITED, Filter, Report

HEADINGS = ("cause", "cc", "Mbit/s", "inflight", "deficit", "from", "to")


def watch(
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
) -> None:
    """Follow all TCP sockets of this host, and name what limits each: CPU, network, windows, application.

    Reads the kernel's socket diagnosis, as `ss` does, and changes nothing. Needs no privilege for sockets of its own
    network namespace. Every BBR flow is judged by its own estimate of the path, others by delivery rate x min RTT.
    """
    if explain:
        print(watching.EXPLANATION, end="")
        return
    seconds = {"interval": _seconds("interval", interval), "window": _seconds("window", window)}
    if seconds["window"] < 4 * seconds["interval"]:
        raise BadInput(f"--window: {window} is less than four intervals of {interval}, too few to judge by; give more")
    if once:
        if count is not None:
            raise BadInput("--once looks for one window; --count does not go with it")
        count = round(seconds["window"] / seconds["interval"])
    which = Filter.parse(filter_) if filter_ else Filter()
    reports = watching.sweeps(seconds["interval"], seconds["window"], count, top, which, netns)
    if not once:
        _follow(reports, as_json)
        return
    *_, last = reports
    _print(last, as_json)
    if watching.count(last, CPU_LIMITED):
        raise typer.Exit(1)


def _seconds(option: str, text: str) -> float:
    try:
        seconds = units.nanoseconds(text) / 1e9
    except ValueError as error:
        raise BadInput(f"--{option}: {error}") from None
    if not 0.05 <= seconds <= 3600:
        raise BadInput(f"--{option}: {text} is not between 50ms and 3600s")
    return seconds


def _follow(reports: Iterator[Report], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        for report in reports:
            _print(report, as_json)
        return
    with Live(console=Console(), auto_refresh=False, screen=True) as live:
        for report in reports:
            live.update(_table(report), refresh=True)


def _print(report: Report, as_json: bool) -> None:
    """Whole lines, each flushed: a reader of the pipe never waits for more."""
    if as_json:
        print(json.dumps(report), flush=True)
        return
    print(summary(report), flush=True)
    for flow in report["flows"]:
        print("  " + "  ".join(_cells(flow)), flush=True)


def summary(report: Report) -> str:
    """One line."""
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watching.count(report, cause)))
    host = report["host"]
    line = f"{report['sockets']} sockets: {causes or 'none'}; steal {host['steal_share']:.1%}"
    if watching.count(report, CPU_LIMITED):
        line += f"; {watching.why(host)}"
    return "; ".join([line, *report["unread"]])


def _cells(flow: Report) -> tuple[str, ...]:
    inflight, deficit = flow["inflight_bdp"], flow["deficit_share"]
    return (
        flow["cause"],
        flow["cc"],
        f"{flow['rate_mbps']:.2f}",
        "-" if inflight is None else f"{inflight:.2f}{'' if flow['bdp_source'] == 'bbr' else '*'}",
        "-" if deficit is None else f"{deficit:.0%}",
        flow["local"],
        flow["remote"] + (f" ({flow['netns']})" if flow["netns"] else ""),
    )


def _table(report: Report) -> Table:
    table = Table(title=summary(report), caption="inflight in BDP (*: delivery rate x min RTT); Ctrl-C ends", box=None)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 2 <= number <= 4 else "left", no_wrap=True)
    for flow in report["flows"]:
        style = "bold red" if flow["cause"] == CPU_LIMITED else ""
        table.add_row(*_cells(flow), style=style)
    return table
