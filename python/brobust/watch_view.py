"""The terminal view of `brobust watch`: a table of the sockets, and one socket with its history.

The reports come from an iterator that sleeps between sweeps; a thread takes them and posts each as a message.
Sweeps go on while the view is paused: what they bring waits, so that no window and no history has a hole.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import signal
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from brobust import watching
from brobust.watching import CAUSES, CPU_LIMITED, Report

# Sweeps of which a socket's history is kept.
HISTORY = 120

# Of what could not be read, so much is spelled out: the table needs the place.
UNREAD_SHOWN = 2

# Width of each column, its distance to the one before included. The longest cause and the longest name of a
# congestion control (TCP_CA_NAME_MAX) fit; what an 80-column terminal has left is an IPv4 address with its port.
WIDTHS = {"cause": 16, "cc": 15, "Mbit/s": 8, "inflight": 9, "deficit": 8}
ADDRESS_WIDTH = 23
NUMBERS = ("Mbit/s", "inflight", "deficit")

MEANINGS = {
    CPU_LIMITED: "it had data and room, and its sender did not get to send",
    "network-limited": "one BDP and more is in flight: the path is the limit",
    "rwnd-limited": "the receiver's window limits 20% of its busy time or more",
    "sndbuf-limited": "the send buffer limits 20% of its busy time or more",
    "app-limited": "for half of the time or more there was nothing to send",
    "undecided": "fewer than four samples, no estimate, or no sign of a cause",
}

KEYS = {
    "s": "sort by cause, rate, inflight, deficit",
    "S, r": "the other way round",
    "/": "filter by a part of any cell; Enter keeps the filter, Escape clears it",
    "p, Space": "pause: sweeps go on, the screen stays",
    "Enter": "one socket: what its cause stands on, and its history",
    "Escape": "go back",
    "q": "quit",
}

COLUMNS = {
    "Mbit/s": "acknowledged per second, over the window",
    "inflight": "bytes in flight over the BDP, median of the window; a star where the BDP is not BBR's own "
    "estimate but delivery rate x min RTT",
    "deficit": "of the samples in which it could have sent: under one BDP in flight",
}

Key = tuple[str, str, str]
"""A socket: network namespace, local and remote address."""


def key_of(flow: Report) -> Key:
    return flow["netns"], flow["local"], flow["remote"]


@dataclass(frozen=True)
class Point:
    """What the history keeps of one sweep."""

    sweep: int
    rate_mbps: float
    inflight_bdp: float | None
    deficit_share: float | None


@dataclass
class History:
    """A socket as it was seen last, and before."""

    flow: Report
    points: deque[Point] = field(default_factory=deque)


@dataclass
class Followed:
    """What is shown: the latest report, or the one at which the view was paused."""

    report: Report | None = None
    histories: dict[Key, History] = field(default_factory=dict)
    is_paused: bool = False
    # What came while paused; older reports would not be in any history.
    waiting: deque[Report] = field(default_factory=lambda: deque(maxlen=HISTORY))

    def take(self, report: Report) -> None:
        if self.is_paused:
            self.waiting.append(report)
        else:
            self._show(report)

    def toggle_pause(self) -> None:
        self.is_paused = not self.is_paused
        while self.waiting:
            self._show(self.waiting.popleft())

    def _show(self, report: Report) -> None:
        self.report = report
        for flow in report["flows"]:
            history = self.histories.setdefault(key_of(flow), History(flow))
            history.flow = flow
            point = Point(report["sweep"], flow["rate_mbps"], flow["inflight_bdp"], flow["deficit_share"])
            history.points.append(point)
        for key, history in list(self.histories.items()):
            while history.points and history.points[0].sweep <= report["sweep"] - HISTORY:
                history.points.popleft()
            if not history.points:
                del self.histories[key]


@dataclass(frozen=True)
class Order:
    """A way to sort: what matters most comes first."""

    name: str
    value: Callable[[Report], float | None]
    first: str
    first_if_reversed: str

    def sort(self, flows: Sequence[Report], is_reversed: bool) -> list[Report]:
        """Those without the value come last, also when reversed. Equal ones stay as they were."""
        known = [(value, flow) for flow in flows if (value := self.value(flow)) is not None]
        known.sort(key=lambda pair: pair[0], reverse=is_reversed)
        return [flow for _, flow in known] + [flow for flow in flows if self.value(flow) is None]


def _negative(value: float | None) -> float | None:
    return None if value is None else -value


ORDERS = (
    Order("cause", lambda flow: CAUSES.index(flow["cause"]), "cpu-limited first", "cpu-limited last"),
    Order("rate", lambda flow: -flow["rate_mbps"], "greatest first", "least first"),
    Order("inflight", lambda flow: flow["inflight_bdp"], "least first", "greatest first"),
    Order("deficit", lambda flow: _negative(flow["deficit_share"]), "greatest first", "least first"),
)


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
    return Text.assemble(
        (f"{flow['local']} to {flow['remote']}", "bold"),
        f"\n{flow['cc']}, {owner}\n",
        (flow["cause"], socket_style(flow)),
        f": {MEANINGS[flow['cause']]}",
    )


def _said(value: float | None, words: str) -> str:
    return "unknown" if value is None else words.format(value)


def evidence(flow: Report) -> list[tuple[str, str]]:
    """What the verdict stands on, in words: a name and what was seen."""
    source = "by BBR's own estimates" if flow["bdp_source"] == "bbr" else "by delivery rate x min RTT"
    deficit = f"{{:.0%}} of the {flow['could_send']} samples in which it could send: under 1 BDP"
    return [
        ("rate", f"{flow['rate_mbps']:.2f} Mbit/s acknowledged, {flow['samples']} samples in {flow['seconds']:.1f} s"),
        ("pacing rate", _said(flow["pacing_rate_mbps"], "{:.2f} Mbit/s, latest")),
        ("keeps pace", _said(flow["paced_share"], "{:.0%} of what pacing would have sent was acknowledged")),
        ("delivery rate", f"{flow['delivery_rate_mbps']:.2f} Mbit/s, latest"),
        ("min RTT", _said(flow["min_rtt_ms"], "{:.3f} ms")),
        ("BDP", _said(flow["bdp_bytes"], f"{{:,}} bytes {source}")),
        ("inflight", _said(flow["inflight_bdp"], "{:.2f} BDP, median")),
        ("deficit", _said(flow["deficit_share"], deficit)),
        ("has data", f"{flow['data_share']:.0%} of the samples: something waited, or cwnd was full"),
        ("busy", _said(flow["busy_share"], "{:.0%} of the time: data in the socket or in flight")),
        ("receiver's window", _said(flow["rwnd_limited_share"], "the limit {:.0%} of the time")),
        ("send buffer", _said(flow["sndbuf_limited_share"], "the limit {:.0%} of the time")),
        ("sent again", _said(flow["retransmit_share"], "{:.2%} of the bytes")),
    ]


def _in_two_columns(words: Iterable[tuple[str, str]]) -> Table:
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
    causes = ", ".join(f"{number} {cause}" for cause in CAUSES if (number := watching.count(report, cause)))
    host = report["host"]
    clock = time.strftime("%H:%M:%S", time.localtime(report["time_unix_s"]))
    shares = ", ".join(
        [
            f"steal {host['steal_share']:.1%}",
            f"late wakes {_said(host['late_share'], '{:.0%}')}",
            f"busiest CPU {host['busiest_share']:.0%}",
            f"PSI {_said(host['pressure_share'], '{:.0%}')}",
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
    if watching.count(report, CPU_LIMITED):
        lines.append(Text(f"cpu-limited: {watching.why(host)}", style="bold red"))
    unread = list(report["unread"])
    if interrupted := report.get("interrupted"):
        unread.append(f"{interrupted} dumps were not consistent: sockets may be missing")
    if unread:
        rest = len(unread) - UNREAD_SHOWN
        more = f"; and {rest} more, all of them with --json" if rest > 0 else ""
        lines.append(Text(f"not read: {'; '.join(unread[:UNREAD_SHOWN])}{more}", style="yellow"))
    return Text("\n").join(lines)


class Opened(Message):
    """Of this socket the detail was asked for."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key


class FlowTable(DataTable[Text]):
    """A line of it is a place, not a socket: when sockets change places, cells change, and nothing flickers."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Detail")]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self.keys: list[Key] = []
        # The socket that was chosen by moving the cursor, and the one we left the cursor on.
        self.chosen: Key | None = None
        self.left_on: Key | None = None

    def _fit(self, width: int) -> None:
        """Columns for a terminal of this width: where there is no room for both addresses, the other end's."""
        room = width - sum(WIDTHS.values()) - self.styles.scrollbar_size_vertical
        addresses = ("from", "to") if room >= 2 * ADDRESS_WIDTH else ("to",)
        widths = WIDTHS | {name: max(room // len(addresses), 1) for name in addresses}
        if [column.width for column in self.ordered_columns] == list(widths.values()):
            return
        self.clear(columns=True)
        for name, column_width in widths.items():
            self.add_column(self._cell(name, name, column_width), width=column_width, key=name)

    def _cell(self, name: str, text: str, width: int, style: str = "") -> Text:
        if name in NUMBERS:
            return Text(text, style, justify="right")
        return Text(f"  {cut(text, width - 2)}" if name in ("from", "to") else text, style)

    def place(self, flows: Sequence[Report], width: int) -> None:
        """These sockets in this order. The cursor stays on its line until it is moved, and then on its socket."""
        at = self._key_at_cursor()
        if at != self.left_on:
            self.chosen = at
        self._fit(width)
        self.keys = [key_of(flow) for flow in flows]
        for number, flow in enumerate(flows):
            texts, style = cells(flow), socket_style(flow)
            row = [
                self._cell(str(column.key.value), texts[str(column.key.value)], column.width, style)
                for column in self.ordered_columns
            ]
            if number >= self.row_count:
                self.add_row(*row)
                continue
            for position, cell in enumerate(row):
                place = Coordinate(number, position)
                before = self.get_cell_at(place)
                if (before.plain, before.style) != (cell.plain, cell.style):
                    self.update_cell_at(place, cell)
        while self.row_count > len(flows):
            self.remove_row(self.ordered_rows[-1].key)
        if self.chosen in self.keys:
            self.move_cursor(row=self.keys.index(self.chosen))
        self.left_on = self._key_at_cursor()

    def action_select_cursor(self) -> None:
        """The socket that was on the line when the key came, not one that a sweep put there since."""
        self.chosen = self._key_at_cursor()
        if self.chosen is not None:
            self.post_message(Opened(self.chosen))

    def _key_at_cursor(self) -> Key | None:
        return self.keys[self.cursor_row] if self.cursor_row < len(self.keys) else None


class Shown(Screen[None]):
    """A screen that shows what was followed. It keeps its widgets: a sweep may come before they are mounted."""

    def __init__(self, followed: Followed) -> None:
        super().__init__()
        self.followed = followed
        self.summary = Static()

    def show(self) -> None:
        self.summary.update(summary(self.followed))

    def on_screen_resume(self) -> None:
        self.show()

    def on_resize(self) -> None:
        self.show()


class Flows(Shown):
    """All sockets of a report."""

    AUTO_FOCUS = "FlowTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("S,r", "reverse", "Reverse", key_display="r"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "Clear"),
    ]

    def __init__(self, followed: Followed) -> None:
        super().__init__(followed)
        self.order = ORDERS[0]
        self.is_reversed = False
        self.said = Static(id="said")
        self.typed = Input(placeholder="part of a cause, a congestion control or an address", compact=True)
        self.table = FlowTable()

    def compose(self) -> ComposeResult:
        yield from (self.summary, self.said, self.typed, self.table, Footer())

    def show(self) -> None:
        super().show()
        flows = self.followed.report["flows"] if self.followed.report else []
        typed = self.typed.value.lower()
        chosen = [flow for flow in flows if any(typed in text.lower() for text in cells(flow).values())]
        self.table.place(self.order.sort(chosen, self.is_reversed), self.size.width)
        first = self.order.first_if_reversed if self.is_reversed else self.order.first
        sockets = self.followed.report["sockets"] if self.followed.report else 0
        said = f"{len(chosen)} of {sockets} sockets, by {self.order.name}, {first}"
        if typed:
            said += f", with {typed!r}"
        self.said.update(Text(said, style="dim"))

    def action_sort(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.is_reversed = False
        self.show()

    def action_reverse(self) -> None:
        self.is_reversed = not self.is_reversed
        self.show()

    def action_filter(self) -> None:
        self.typed.display = True
        self.typed.focus()

    def action_clear_filter(self) -> None:
        self.typed.value = ""
        self.on_input_submitted()

    def on_input_changed(self) -> None:
        self.show()

    def on_input_submitted(self) -> None:
        self.typed.display = False
        self.table.focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """The footer names the keys that do something here and now."""
        if action == "clear_filter":
            return self.typed.has_focus or bool(self.typed.value)
        return not (action == "filter" and self.typed.has_focus)

    def on_opened(self, opened: Opened) -> None:
        self.app.push_screen(Detail(self.followed, opened.key))


class Detail(Shown):
    """One socket: what its verdict stands on, and its history."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back")]

    def __init__(self, followed: Followed, key: Key) -> None:
        super().__init__(followed)
        self.key = key
        self.who, self.history, self.evidence = Static(id="who"), Static(id="history"), Static()

    def compose(self) -> ComposeResult:
        yield from (self.summary, VerticalScroll(self.who, self.history, self.evidence), Footer())

    def show(self) -> None:
        super().show()
        history = self.followed.histories.get(self.key)
        if history is None:  # what was there stays
            return
        who = who_and_why(history.flow)
        report = self.followed.report
        if report is not None and history.points[-1].sweep != report["sweep"]:
            who.append("\nClosed, or no more among the sockets that are shown; as it was last seen:", "yellow")
        self.who.update(who)
        self.history.update(history_lines(history, self.size.width - 1))
        self.evidence.update(_in_two_columns(evidence(history.flow)))


class Help(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,h", "app.pop_screen", "Back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for title, words in (("Keys", KEYS), ("Columns", COLUMNS), ("Causes", MEANINGS)):
                yield Static(Text(title, "bold"))
                yield Static(_in_two_columns(words.items()))
            yield Static(Text("What to do: brobust watch --explain; the rest: docs/watch.md"))
        yield Footer()


class Swept(Message):
    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


class Ended(Message):
    """There are no more sweeps; with the reason, if it is an error."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error


class WatchView(App[None]):
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        # In the filter's input too.
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True),
    ]
    CSS = """
    #said, #who { background: $panel; }
    Input { padding: 0; display: none; }
    FlowTable { height: 1fr; overflow-x: hidden; }
    FlowTable, VerticalScroll { scrollbar-size-vertical: 1; }
    #who, #history { margin-bottom: 1; }
    """

    def __init__(self, reports: Iterator[Report]) -> None:
        super().__init__()
        self.reports = reports
        self.followed = Followed()
        self.error: BaseException | None = None

    def on_mount(self) -> None:
        self.push_screen(Flows(self.followed))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.action_interrupt)
        # No worker of textual's: the end would wait for it, and it sleeps for up to an interval.
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        error: BaseException | None = None
        try:
            for report in self.reports:
                if not self.is_headless and not sys.stdin.isatty():
                    os._exit(128 + signal.SIGHUP)  # the terminal is gone, and nobody told us; see below
                self.post_message(Swept(report))
        except BaseException as raised:  # a panic of the Rust core is no Exception
            error = raised
        self.post_message(Ended(error))

    def on_swept(self, swept: Swept) -> None:
        self.followed.take(swept.report)
        if not self.followed.is_paused:
            self._show()

    def on_ended(self, ended: Ended) -> None:
        self.error = ended.error
        self.exit()

    def _show(self) -> None:
        # At the end there is no screen any more; and one that has just been opened is yet to be composed.
        if self.screen_stack and isinstance(self.screen, Shown):
            self.screen.call_later(self.screen.show)

    def action_pause(self) -> None:
        self.followed.toggle_pause()
        self._show()

    def action_help(self) -> None:
        self.push_screen(Help())

    def action_interrupt(self) -> None:
        self.error = KeyboardInterrupt()
        self.exit()


def follow(reports: Iterator[Report]) -> None:
    """Show reports until there are no more or the person has had enough. Raises what they raise."""
    # In a terminal that is gone there is nothing to put in order, and textual would wait for it without end, busily.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    view = WatchView(reports)
    view.run(mouse=False)  # the terminal's own selection goes on working: addresses are there to be copied
    if view.error is not None:
        raise view.error
    if view.return_code:  # textual has printed what went wrong in the view itself
        raise SystemExit(view.return_code)
