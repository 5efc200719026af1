"""Put the host and its sockets into text for the terminal view: cells, evidence, and history as bars."""

import math
import re
import statistics
import time
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from brobust import watch
from brobust.units import show_count
from brobust.watch import CAUSES, CPU_LIMITED, MEANINGS, Flow, formatted
from brobust.watch.history import Followed, History

# At most this many of the things that could not be read are named: the table needs the lines.
MAX_UNREAD_SHOWN = 2


def cells(flow: Flow) -> dict[str, str]:
    """Return the text of each cell by the heading of its column, with addresses in full. The table has no room for
    the owner, but the filter finds it."""
    rate, inflight, deficit = flow["rate_mbps"], flow["inflight_bdp"], flow["deficit_share"]
    return {
        "cause": flow["cause"],
        "cc": flow["cc"],
        "Mbit/s": f"{rate:.2f}" if rate < 1e4 else f"{rate:.0f}",
        "inflight": "-" if inflight is None else f"{inflight:.2f}{'' if flow['bdp_source'] == 'bbr' else '*'}",
        "deficit": "-" if deficit is None else f"{deficit:.0%}",
        "from": _plain_ipv4(flow["local"]),
        "to": _plain_ipv4(flow["remote"]) + (f" ({flow['netns']})" if flow["netns"] else ""),
        "owner": "/".join(flow[name] for name in ("namespace", "pod", "container") if flow[name]),
    }


def _plain_ipv4(address: str) -> str:
    """Return an IPv4 address in an IPv6 socket (`[::ffff:192.0.2.1]:443`) as a plain IPv4 address."""
    return re.sub(r"^\[::ffff:([0-9.]+)\]", r"\1", address)


def cut(text: str, width: int) -> str:
    """Return an address in at most this many letters. The network namespace behind it is cut first, then the middle of
    the address: its beginning (the network) and its end (the port) say the most."""
    if len(text) <= width:
        return text
    if 0 < text.find(" ") < width:
        return f"{text[: width - 1]}…"
    end = width // 2
    return f"{text[: width - end - 1]}…{text[len(text) - end :]}"


def flow_and_cause(flow: Flow) -> Text:
    owner = f"user {flow['uid']}" + (f", network namespace {flow['netns']}" if flow["netns"] else "")
    if flow["interface"]:
        owner += f", bound to device {flow['interface']}"
    kinds = {"namespace": "namespace", "pod": "pod", "container": "container", "cgroup": "cgroup", "cgroup_id": "id"}
    whose = ", ".join(f"{kind} {flow[name]}" for name, kind in kinds.items() if flow[name] is not None)
    return Text.assemble(
        (f"{flow['local']} to {flow['remote']}", "bold"),
        f"\n{flow['cc']}, {owner}\n{whose or 'cgroup unknown'}\n",
        (flow["cause"], socket_style(flow)),
        f": {MEANINGS[flow['cause']]}",
    )


def evidence(flow: Flow) -> list[tuple[str, str]]:
    source = "from BBR's own estimates" if flow["bdp_source"] == "bbr" else "from delivery rate x min RTT"
    samples = show_count(flow["samples"], "sample")
    deficit = f"less than 1 BDP in flight in {{:.0%}} of the {flow['could_send']} samples in which it could send"
    return [
        ("rate", f"{flow['rate_mbps']:.2f} Mbit/s acknowledged, {samples} in {flow['seconds']:.1f} s"),
        ("pacing rate", formatted(flow["pacing_rate_mbps"], "{:.2f} Mbit/s, latest")),
        ("keeps pace", formatted(flow["paced_share"], "acknowledged {:.0%} of what pacing would have sent")),
        ("delivery rate", f"{flow['delivery_rate_mbps']:.2f} Mbit/s, latest"),
        ("RTT", formatted(flow["srtt_ms"], "{:.3f} ms, smoothed")),
        ("min RTT", formatted(flow["min_rtt_ms"], "{:.3f} ms")),
        ("cwnd", formatted(flow["cwnd_bytes"], "{:,} bytes")),
        ("in flight", formatted(flow["inflight_bytes"], "{:,} bytes, latest")),
        ("BDP", formatted(flow["bdp_bytes"], f"{{:,}} bytes {source}")),
        ("inflight", formatted(flow["inflight_bdp"], "{:.2f} BDP, median")),
        ("deficit", formatted(flow["deficit_share"], deficit)),
        ("has data", f"data waited, or cwnd was full, in {flow['data_share']:.0%} of the samples"),
        ("busy", formatted(flow["busy_share"], "data in the socket or in flight {:.0%} of the time")),
        ("receiver's window", formatted(flow["rwnd_limited_share"], "the limit {:.0%} of the time")),
        ("send buffer", formatted(flow["sndbuf_limited_share"], "the limit {:.0%} of the time")),
        ("CPU limit", formatted(flow["throttled_share"], "throttled its application {:.0%} of the time")),
        ("retransmitted", formatted(flow["retransmit_share"], "{:.2%} of the bytes")),
    ]


def in_two_columns(lines: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, meaning in lines:
        table.add_row(name, meaning)
    return table


def bars(values: Sequence[tuple[int, float | None]], sweeps_per_bar: int, full: float) -> str:
    """Return one bar per `sweeps_per_bar` sweeps: their mean, on a scale from zero to `full`. Sweeps without a value
    leave a gap."""
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
    """Return rate, inflight and deficit over the sweeps as bars, with their minimum and maximum."""
    points = list(history.points)
    room = width - 36  # the text beside the bars takes the rest, see below
    # There is one bar fewer than fits, because the first bar may stand for fewer sweeps than the others.
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
    each = "one sweep per bar" if sweeps_per_bar == 1 else f"{sweeps_per_bar} sweeps per bar"
    count = show_count(len(points), "sweep")
    table.add_row("", Text(f"{each}, newest on the right", style="dim"), Text(count, style="dim"))
    return table


def socket_style(flow: Flow) -> str:
    """Return the style of a socket's line: those that are short of CPU stand out, those without a limit recede."""
    if flow["cause"] == CPU_LIMITED:
        return "bold red"
    if flow["cause"] == "throttled":
        return "red"
    return "dim" if flow["cause"] in ("app-limited", "undecided") else ""


def summary(followed: Followed) -> Text:
    """Return the lines above the table: the host, the number of sockets by cause, and what could not be read."""
    sweep = followed.sweep
    if sweep is None:
        return Text("Waiting for the first sweep.")
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watch.count(sweep, cause)))
    host = sweep["host"]
    clock = time.strftime("%H:%M:%S", time.localtime(sweep["time_unix_s"]))
    shares = ", ".join(
        [
            f"steal {formatted(host['steal_share'], '{:.1%}')}",
            f"late wake-ups {formatted(host['late_share'], '{:.0%}')}",
            f"busiest CPU {formatted(host['busiest_share'], '{:.0%}')}",
            f"PSI {formatted(host['pressure_share'], '{:.0%}')}",
        ]
    )
    lines = [
        Text.assemble(
            (" PAUSED " if followed.is_paused else "", "bold reverse yellow"),
            " " if followed.is_paused else "",
            f"{clock}  {show_count(sweep['sockets'], 'socket')}: {causes or 'none'}",
        ),
        Text(f"host: {shares}"),
    ]
    if sweep["why"] is not None:
        lines.append(Text(f"cpu-limited: {sweep['why']}", style="bold red"))
    unread = sweep["unread"]
    if unread:
        rest = len(unread) - MAX_UNREAD_SHOWN
        more = f"; and {rest} more (--json names all)" if rest > 0 else ""
        lines.append(Text(f"not read: {'; '.join(unread[:MAX_UNREAD_SHOWN])}{more}", style="yellow"))
    return Text("\n").join(lines)
