"""What the terminal view says of the host and of a socket: cells, evidence in words, history as bars."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from brobust import watch
from brobust.watch import CAUSES, CPU_LIMITED, Report, said
from brobust.watch.history import Followed, History

# Of what could not be read, so much is spelled out: the table needs the place.
UNREAD_SHOWN = 2

MEANINGS = {
    CPU_LIMITED: "it had data and room, and its sender did not get to send",
    "network-limited": "one BDP and more is in flight: the path is the limit",
    "rwnd-limited": "the receiver's window limits 20% of its busy time or more",
    "sndbuf-limited": "the send buffer limits 20% of its busy time or more",
    "app-limited": "for half of the time or more there was nothing to send",
    "undecided": "fewer than four samples, no estimate, or no sign of a cause",
}


def cells(flow: Report) -> dict[str, str]:
    """By heading; addresses in full."""
    rate, inflight, deficit = flow["rate_mbps"], flow["inflight_bdp"], flow["deficit_share"]
    return {
        "cause": flow["cause"],
        "cc": flow["cc"],
        "Mbit/s": f"{rate:.2f}" if rate < 1e4 else f"{rate:.0f}",
        "inflight": "-" if inflight is None else f"{inflight:.2f}{'' if flow['bdp_source'] == 'bbr' else '*'}",
        "deficit": "-" if deficit is None else f"{deficit:.0%}",
        "from": _plain_ipv4(flow["local"]),
        "to": _plain_ipv4(flow["remote"]) + (f" ({flow['netns']})" if flow["netns"] else ""),
    }


def _plain_ipv4(address: str) -> str:
    """IPv4 in a socket of IPv6 (`[::ffff:192.0.2.1]:443`) as IPv4."""
    return re.sub(r"^\[::ffff:([0-9.]+)\]", r"\1", address)


def cut(text: str, width: int) -> str:
    """An address is cut in the middle: network and port tell most of it. Sooner the network namespace after it is."""
    if len(text) <= width:
        return text
    if 0 < text.find(" ") < width:
        return f"{text[: width - 1]}…"
    end = width // 2
    return f"{text[: width - end - 1]}…{text[len(text) - end :]}"


def who_and_why(flow: Report) -> Text:
    """Which socket, and its cause."""
    owner = f"user {flow['uid']}" + (f", network namespace {flow['netns']}" if flow["netns"] else "")
    if flow["interface"]:
        owner += f", bound to device {flow['interface']}"
    return Text.assemble(
        (f"{flow['local']} to {flow['remote']}", "bold"),
        f"\n{flow['cc']}, {owner}\n",
        (flow["cause"], socket_style(flow)),
        f": {MEANINGS[flow['cause']]}",
    )


def evidence(flow: Report) -> list[tuple[str, str]]:
    """What the verdict stands on, in words: a name and what was seen."""
    source = "by BBR's own estimates" if flow["bdp_source"] == "bbr" else "by delivery rate x min RTT"
    deficit = f"{{:.0%}} of the {flow['could_send']} samples in which it could send: under 1 BDP"
    return [
        ("rate", f"{flow['rate_mbps']:.2f} Mbit/s acknowledged, {flow['samples']} samples in {flow['seconds']:.1f} s"),
        ("pacing rate", said(flow["pacing_rate_mbps"], "{:.2f} Mbit/s, latest")),
        ("keeps pace", said(flow["paced_share"], "{:.0%} of what pacing would have sent was acknowledged")),
        ("delivery rate", f"{flow['delivery_rate_mbps']:.2f} Mbit/s, latest"),
        ("min RTT", said(flow["min_rtt_ms"], "{:.3f} ms")),
        ("BDP", said(flow["bdp_bytes"], f"{{:,}} bytes {source}")),
        ("inflight", said(flow["inflight_bdp"], "{:.2f} BDP, median")),
        ("deficit", said(flow["deficit_share"], deficit)),
        ("has data", f"{flow['data_share']:.0%} of the samples: something waited, or cwnd was full"),
        ("busy", said(flow["busy_share"], "{:.0%} of the time: data in the socket or in flight")),
        ("receiver's window", said(flow["rwnd_limited_share"], "the limit {:.0%} of the time")),
        ("send buffer", said(flow["sndbuf_limited_share"], "the limit {:.0%} of the time")),
        ("sent again", said(flow["retransmit_share"], "{:.2%} of the bytes")),
    ]


def in_two_columns(words: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, meaning in words:
        table.add_row(name, meaning)
    return table


def bars(values: Sequence[tuple[int, float | None]], sweeps_per_bar: int, full: float) -> str:
    """One bar for so many sweeps, their mean; from zero to `full`. Sweeps without a value leave a gap."""
    groups: dict[int, list[float]] = {}
    for sweep, value in values:
        if value is not None:
            groups.setdefault(sweep // sweeps_per_bar, []).append(value)
    first, last = (sweep // sweeps_per_bar for sweep in (values[0][0], values[-1][0]))
    return "".join(
        "▁▂▃▄▅▆▇█"[round(min(1.0, statistics.mean(groups[number]) / full) * 7)] if number in groups else " "
        for number in range(first, last + 1)
    )


def history_lines(history: History, width: int) -> Table:
    """Rate, inflight and deficit over the sweeps, with least and greatest."""
    points = list(history.points)
    room = width - 36  # what stands beside the bars, below
    # One bar less than there is room for: the first may stand for fewer sweeps than the others.
    sweeps_per_bar = math.ceil((points[-1].sweep - points[0].sweep + 1) / max(room - 1, 1))
    table = Table.grid(padding=(0, 2))
    for name, show, full, values in (
        ("rate", "{:.2f} to {:.2f} Mbit/s", None, [(point.sweep, point.rate_mbps) for point in points]),
        ("inflight", "{:.2f} to {:.2f} BDP", None, [(point.sweep, point.inflight_bdp) for point in points]),
        ("deficit", "{:.0%} to {:.0%}", 1.0, [(point.sweep, point.deficit_share) for point in points]),
    ):
        known = [value for _, value in values if value is not None]
        extent = show.format(min(known), max(known)) if known else "unknown"
        drawn = bars(values, sweeps_per_bar, full or max(known, default=0.0) or 1.0)
        table.add_row(name, Text(drawn, "cyan"), extent)
    each = "a sweep each" if sweeps_per_bar == 1 else f"{sweeps_per_bar} sweeps each"
    table.add_row("", Text(f"{each}, newest on the right", style="dim"), Text(f"{len(points)} sweeps", style="dim"))
    return table


def socket_style(flow: Report) -> str:
    if flow["cause"] == CPU_LIMITED:
        return "bold red"
    return "dim" if flow["cause"] in ("app-limited", "undecided") else ""


def summary(followed: Followed) -> Text:
    """The host and its sockets; with it what cannot be known from this report."""
    report = followed.report
    if report is None:
        return Text("The first sweep is yet to come.")
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watch.count(report, cause)))
    host = report["host"]
    clock = time.strftime("%H:%M:%S", time.localtime(report["time_unix_s"]))
    shares = ", ".join(
        [
            f"steal {said(host['steal_share'], '{:.1%}')}",
            f"late wakes {said(host['late_share'], '{:.0%}')}",
            f"busiest CPU {said(host['busiest_share'], '{:.0%}')}",
            f"PSI {said(host['pressure_share'], '{:.0%}')}",
        ]
    )
    lines = [
        Text.assemble(
            (" PAUSED " if followed.is_paused else "", "bold reverse yellow"),
            " " if followed.is_paused else "",
            f"{clock}  {report['sockets']} sockets: {causes or 'none'}",
        ),
        Text(f"host: {shares}"),
    ]
    if watch.count(report, CPU_LIMITED):
        lines.append(Text(f"cpu-limited: {watch.why(host)}", style="bold red"))
    unread = report["unread"]
    if unread:
        rest = len(unread) - UNREAD_SHOWN
        more = f"; and {rest} more, all of them with --json" if rest > 0 else ""
        lines.append(Text(f"not read: {'; '.join(unread[:UNREAD_SHOWN])}{more}", style="yellow"))
    return Text("\n").join(lines)
