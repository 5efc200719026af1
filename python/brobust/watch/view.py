"""The terminal view of `brobust watch`: a table of the sockets, and one socket with its history.

The reports come from an iterator that sleeps between sweeps; a thread takes them and posts each as a message.
Sweeps go on while the view is paused: what they bring waits, so that no window and no history has a hole.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from brobust.watch import Report
from brobust.watch.history import ORDERS, Followed, Key, key_of
from brobust.watch.words import (
    MEANINGS,
    cells,
    cut,
    evidence,
    history_lines,
    in_two_columns,
    socket_style,
    summary,
    who_and_why,
)

# Width of each column, its distance to the one before included. The longest cause and the longest name of a
# congestion control (TCP_CA_NAME_MAX) fit; what an 80-column terminal has left is an IPv4 address with its port.
WIDTHS = {"cause": 16, "cc": 15, "Mbit/s": 8, "inflight": 9, "deficit": 8}
ADDRESS_WIDTH = 23
NUMBERS = ("Mbit/s", "inflight", "deficit")

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
        self.evidence.update(in_two_columns(evidence(history.flow)))


class Help(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,h", "app.pop_screen", "Back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for title, words in (("Keys", KEYS), ("Columns", COLUMNS), ("Causes", MEANINGS)):
                yield Static(Text(title, "bold"))
                yield Static(in_two_columns(words.items()))
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
