"""Show `brobust watch` on a terminal: a table of the sockets, and a page for one socket with its history.

The sweeps come from an iterator that sleeps between them; a thread takes each and posts it as a message. While the view
is paused, sweeps go on and are kept until it continues, so that no history has a gap.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.message import Message
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input, Static

from brobust import interrupts
from brobust.units import show_count
from brobust.watch import MEANINGS, Flow, Sweep
from brobust.watch import text as in_text
from brobust.watch.history import ORDERS, Followed, Key, key_of

# Width of each column, including the distance to the previous column. The longest cause and the longest name of a
# congestion control (TCP_CA_NAME_MAX) fit; the rest of an 80-column terminal holds an IPv4 address with its port.
WIDTHS = {"cause": 16, "cc": 15, "Mbit/s": 8, "inflight": 9, "deficit": 8}
MIN_ADDRESS_WIDTH = 23
NUMBERS = ("Mbit/s", "inflight", "deficit")
ENDING = (signal.SIGINT, signal.SIGTERM)

KEYS = {
    "s": "sort by the next of cause, rate, inflight, deficit",
    "S, r": "reverse the order",
    "/": "show only sockets with this text in any cell; Enter keeps the filter, Escape clears it",
    "p, Space": "pause: sweeps go on, the screen does not change",
    "Enter": "show one socket: the evidence for its cause, and its history",
    "Escape": "go back",
    "q": "quit",
}

COLUMNS = {
    "Mbit/s": "data acknowledged per second, over the window",
    "inflight": "bytes in flight / BDP, median of the window; a star means that the BDP is not BBR's own estimate, "
    "but delivery rate x min RTT",
    "deficit": "part of the samples with less than one BDP in flight, of those in which it could have sent",
}


@dataclass
class Opened(Message):
    """The user asks for the page of this socket."""

    key: Key


class FlowTable(DataTable[Text]):
    """The table of the sockets. When sockets change places only the text of cells changes, so nothing flickers."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Detail")]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self.keys: list[Key] = []
        # The socket to which the user moved the cursor, and the one under the cursor after our last update.
        self.chosen: Key | None = None
        self.left_on: Key | None = None

    def _fit(self, width: int) -> None:
        """Make the columns for a terminal of this width. If both addresses do not fit, show only the other end's."""
        room = width - sum(WIDTHS.values()) - self.styles.scrollbar_size_vertical
        addresses = ("from", "to") if room >= 2 * MIN_ADDRESS_WIDTH else ("to",)
        widths = WIDTHS | {name: max(room // len(addresses), 1) for name in addresses}
        if [column.width for column in self.ordered_columns] == list(widths.values()):
            return
        self.clear(columns=True)
        for name, column_width in widths.items():
            self.add_column(self._cell(name, name, column_width), width=column_width, key=name)

    def _cell(self, name: str, text: str, width: int, style: str = "") -> Text:
        if name in NUMBERS:
            return Text(text, style, justify="right")
        return Text(f"  {in_text.cut(text, width - 2)}" if name in ("from", "to") else text, style)

    def place(self, flows: Sequence[Flow], width: int) -> None:
        """Show these sockets in this order. The cursor stays on its line until the user moves it; from then on it
        follows its socket."""
        at = self._key_at_cursor()
        if at != self.left_on:
            self.chosen = at
        self._fit(width)
        self.keys = [key_of(flow) for flow in flows]
        for number, flow in enumerate(flows):
            texts, style = in_text.cells(flow), in_text.socket_style(flow)
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
        """Open the socket that was on the line when the key was pressed, even if a sweep has moved another one there
        since."""
        self.chosen = self._key_at_cursor()
        if self.chosen is not None:
            self.post_message(Opened(self.chosen))

    def _key_at_cursor(self) -> Key | None:
        return self.keys[self.cursor_row] if self.cursor_row < len(self.keys) else None


class Shown(Screen[None]):
    """A screen that is updated with every sweep. It creates its widgets itself, since a sweep may arrive before they
    are mounted."""

    def __init__(self, followed: Followed) -> None:
        super().__init__()
        self.followed = followed
        self.summary = Static()
        self._is_to_show = False

    def show(self) -> None:
        self.summary.update(in_text.summary(self.followed))

    def show_soon(self) -> None:
        """Show what there is by then, once, however often this is called before: sweeps that come faster than they are
        drawn, on a machine with little CPU, would have keys wait until each has been."""
        if not self._is_to_show:
            self._is_to_show = self.call_later(self._show_now)

    def _show_now(self) -> None:
        self._is_to_show = False
        self.show()

    def on_screen_resume(self) -> None:
        self.show()

    def on_resize(self) -> None:
        self.show()


class Flows(Shown):
    """The screen with all sockets of a sweep."""

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
        self.caption = Static(id="caption")
        self.typed = Input(placeholder="part of a cause, a congestion control or an address", compact=True)
        self.table = FlowTable()

    def compose(self) -> ComposeResult:
        yield from (self.summary, self.caption, self.typed, self.table, Footer())

    def show(self) -> None:
        super().show()
        flows = self.followed.sweep["flows"] if self.followed.sweep else []
        typed = self.typed.value.lower()
        chosen = [flow for flow in flows if any(typed in text.lower() for text in in_text.cells(flow).values())]
        self.table.place(self.order.sort(chosen, self.is_reversed), self.size.width)
        first = self.order.first_if_reversed if self.is_reversed else self.order.first
        sockets = self.followed.sweep["sockets"] if self.followed.sweep else 0
        caption = f"{len(chosen)} of {show_count(sockets, 'socket')}, by {self.order.name}, {first}"
        if typed:
            caption += f", with {typed!r}"
        self.caption.update(Text(caption, style="dim"))

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
        """Return whether the footer names the action's key: only if the key would do something now."""
        if action == "clear_filter":
            return self.typed.has_focus or bool(self.typed.value)
        return not (action == "filter" and self.typed.has_focus)

    def on_opened(self, opened: Opened) -> None:
        self.app.push_screen(Detail(self.followed, opened.key))


class Detail(Shown):
    """The screen of one socket: the evidence for its cause, and its history."""

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
        if history is None:  # the screen stays as it is
            return
        who = in_text.flow_and_cause(history.flow)
        sweep = self.followed.sweep
        if sweep is not None and history.points[-1].sweep != sweep["sweep"]:
            who.append("\nClosed, or no longer among the sockets shown. This is its latest reading:", "yellow")
        self.who.update(who)
        self.history.update(in_text.history_lines(history, self.size.width - 1))
        self.evidence.update(in_text.in_two_columns(in_text.evidence(history.flow)))


class Help(Screen[None]):
    """The screen that explains keys, columns and causes."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,h", "app.pop_screen", "Back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            for title, lines in (("Keys", KEYS), ("Columns", COLUMNS), ("Causes", MEANINGS)):
                yield Static(Text(title, "bold"))
                yield Static(in_text.in_two_columns(lines.items()))
            yield Static(Text("`brobust watch --explain` says what to do; docs/watch.md explains everything else."))
        yield Footer()


@dataclass
class NewSweep(Message):
    """A sweep has arrived."""

    sweep: Sweep


@dataclass
class Ended(Message):
    """There are no more sweeps; `error` is the reason, if it is an error."""

    error: BaseException | None


class WatchView(App[None]):
    """The terminal program: its keys, and the thread that takes the sweeps."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p,space", "pause", "Pause", key_display="p"),
        Binding("question_mark,h", "help", "Help", key_display="?"),
        Binding("q", "quit", "Quit"),
        # With priority, so that it also works while the user types a filter.
        Binding("ctrl+c", "interrupt", "Interrupt", show=False, priority=True),
    ]
    CSS = """
    #caption, #who { background: $panel; }
    Input { padding: 0; display: none; }
    FlowTable { height: 1fr; overflow-x: hidden; }
    FlowTable, VerticalScroll { scrollbar-size-vertical: 1; }
    #who, #history { margin-bottom: 1; }
    """

    def __init__(self, sweeps: Iterator[Sweep]) -> None:
        super().__init__()
        self.sweeps = sweeps
        self.followed = Followed()
        self.error: BaseException | None = None

    def on_mount(self) -> None:
        self.push_screen(Flows(self.followed))
        loop = asyncio.get_running_loop()
        for number in ENDING:
            loop.add_signal_handler(number, self.action_interrupt)
        if self.error is not None:  # one came before
            self.exit()
        # Not a worker of textual's: the app's end waits for workers, and this one sleeps for up to an interval.
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        error: BaseException | None = None
        try:
            for sweep in self.sweeps:
                if not self.is_headless and not sys.stdin.isatty():
                    os._exit(128 + signal.SIGHUP)  # the terminal is gone, and no signal said so; see follow()
                self.post_message(NewSweep(sweep))
        except BaseException as raised:  # a panic of the Rust core is no Exception
            error = raised
        with suppress(RuntimeError):  # asyncio's loop is closed: the view has ended
            self.post_message(Ended(error))

    def on_new_sweep(self, arrived: NewSweep) -> None:
        self.followed.take(arrived.sweep)
        if not self.followed.is_paused:
            self._show()

    def on_ended(self, ended: Ended) -> None:
        self.error = ended.error
        self.exit()

    def _show(self) -> None:
        # At the end there is no screen any more, and a screen that has just been opened is not composed yet.
        if self.screen_stack and isinstance(self.screen, Shown):
            self.screen.show_soon()

    def action_pause(self) -> None:
        self.followed.toggle_pause()
        self._show()

    def action_help(self) -> None:
        self.push_screen(Help())

    def note_interrupt(self, *_: object) -> None:
        self.error = KeyboardInterrupt()

    def action_interrupt(self) -> None:
        self.note_interrupt()
        self.exit()


def follow(sweeps: Iterator[Sweep]) -> None:
    """Show the sweeps until there are no more, or the user quits. Raise what the iterator raises."""
    # A terminal that is gone need not be restored, and textual would wait for it in a busy loop for ever.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    view = WatchView(sweeps)
    for number in ENDING:  # until the view is there: textual would print an exception that is raised while it begins
        interrupts.hand_over(number, view.note_interrupt)
    view.run(mouse=False)  # so that the terminal's own selection keeps working: users copy addresses
    if view.error is not None:
        raise view.error
    if view.return_code:  # textual has printed what went wrong in the view itself
        raise SystemExit(view.return_code)
