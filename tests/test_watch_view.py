"""The terminal view of `brobust watch` with scripted sweeps, and the command in a pseudo-terminal."""

import asyncio
import fcntl
import functools
import itertools
import json
import os
import pty
import queue
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
from textual.pilot import Pilot

from brobust.cli.watch import _LastLines, _read
from brobust.errors import CutShort, MissingSupport
from brobust.watch import CAUSES, CPU_LIMITED, MEANINGS, Flow, Sweep, history, text, view
from brobust.watch.history import MAX_HISTORY_SWEEPS, Followed, History, Point
from brobust.watch.view import Detail, Flows, FlowTable, WatchView
from conftest import BROBUST


def _flow(number: int, cause: str = "network-limited", **changed: Any) -> Flow:
    flow = {
        "local": f"192.0.2.1:{40000 + number}",
        "remote": f"203.0.113.{number}:5201",
        "interface": 0,
        "netns": "",
        "uid": 1000,
        "cgroup_id": 77,
        "cgroup": "/kubepods/pod1/4e5b",
        "namespace": "shops",
        "pod": f"cart-{number}",
        "container": "app",
        "throttled_share": 0.0125,
        "cc": "bbr",
        "cause": cause,
        "rate_mbps": 10.0 * number,
        "pacing_rate_mbps": 12.5,
        "paced_share": 0.81,
        "delivery_rate_mbps": 11.25,
        "cwnd_bytes": 50000,
        "inflight_bytes": 37500,
        "bdp_bytes": 25000,
        "bdp_source": "bbr",
        "inflight_bdp": 1.5,
        "deficit_share": 0.1,
        "could_send": 9,
        "samples": 10,
        "seconds": 9.5,
        "busy_share": 0.99,
        "rwnd_limited_share": 0.02,
        "sndbuf_limited_share": 0.03,
        "data_share": 0.97,
        "retransmit_share": 0.0123,
        "srtt_ms": 15.25,
        "min_rtt_ms": 10.5,
    }
    return flow | changed


def _sweep(sweep: int, *flows: Flow, **changed: Any) -> Sweep:
    sweep = {
        "time_unix_s": 1.8e9 + sweep,
        "sweep": sweep,
        "sockets": len(flows),
        "host": {"steal_share": 0.0, "late_share": None, "busiest_share": 0.2, "pressure_share": 0.05},
        "why": None,
        "counts": [{"cc": flow["cc"], "cause": flow["cause"], "sockets": 1} for flow in flows],
        "unread": [],
        "flows": list(flows),
    }
    return sweep | changed


# The orders: by cause 1, 3, 2; by rate 3, 2, 1; by inflight 1, 2, 3; by deficit 1, 2, 3 (unknown).
THREE = (
    _flow(1, CPU_LIMITED, inflight_bdp=0.4, deficit_share=0.9),
    _flow(3, inflight_bdp=1.75, deficit_share=None, cc="cubic", bdp_source="delivery-rate"),
    _flow(2, inflight_bdp=1.25, deficit_share=0.2, netns="web"),
)


class Watched:
    """A view in textual's test terminal, and the sweeps that it gets."""

    def __init__(self, view: WatchView, pilot: Pilot[None], sweeps: queue.SimpleQueue[Sweep | None]) -> None:
        self.view, self.pilot, self.sweeps = view, pilot, sweeps

    async def sweep(self, sweep: Sweep) -> None:
        """Give the view one more sweep, and wait until the screen shows it."""
        self.sweeps.put(sweep)
        followed = self.view.followed
        for _ in range(1000):
            if followed.sweep is sweep or sweep in followed.waiting:
                break
            await self.pilot.pause(0.01)
        await self.settled()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settled()

    async def settled(self) -> None:
        """Wait until the screen has its footer and has stayed the same for some pauses.

        Pilot.pause() waits until the process uses little of the CPU. On a busy machine it also uses little when the
        CPU is another's, and the footer is only made after the screen was first drawn.
        """
        last, same = "", 0
        for _ in range(1000):
            await self.pilot.pause(0.01)
            text = self.text()
            same = same + 1 if text == last and self.view.screen.query("FooterKey") else 0
            last = text
            if same == 3:
                return
        raise AssertionError(f"the screen did not settle:\n{last}")

    def screen(self) -> list[str]:
        """Return the lines of the screen."""
        strips = self.view.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    def text(self) -> str:
        return "\n".join(self.screen())

    def rows(self) -> list[str]:
        """Return the last number of each remote address, from top to bottom."""
        return [line.split("203.0.113.")[1].split(":")[0] for line in self.screen() if "203.0.113." in line]

    def flows(self) -> Flows:
        assert isinstance(self.view.screen, Flows)
        return self.view.screen

    def table(self) -> FlowTable:
        return self.view.screen.query_one(FlowTable)


@asynccontextmanager
async def _watched(*sweeps: Sweep, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Watched]:
    to_come: queue.SimpleQueue[Sweep | None] = queue.SimpleQueue()
    view = WatchView(iter(to_come.get, None))
    async with view.run_test(size=size) as pilot:
        watched = Watched(view, pilot, to_come)
        for sweep in sweeps:
            await watched.sweep(sweep)
        yield watched
    to_come.put(None)


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Let pytest run an async test."""
    return functools.wraps(test)(lambda: asyncio.run(test()))


@in_a_loop
async def test_a_terminal_of_80_columns_shows_what_matters() -> None:
    long = _flow(9, remote="[2001:db8:85a3:1234:5678:8a2e:370:7334]:65535", cc="brb_bbr3_robust", rate_mbps=98765.4)
    async with _watched(_sweep(1, *THREE, long)) as watched:
        screen = watched.screen()
        assert len(screen) == 24 and all(len(line) <= 80 for line in screen)
        (heading,) = [line for line in screen if line.startswith("cause")]
        assert heading.split() == ["cause", "cc", "Mbit/s", "inflight", "deficit", "to"]
        lines = [line.split() for line in screen if "203.0.113." in line or "2001" in line]
        assert lines[0] == ["cpu-limited", "bbr", "10.00", "0.40", "90%", "203.0.113.1:5201"]
        assert lines[1] == ["network-limited", "cubic", "30.00", "1.75*", "-", "203.0.113.3:5201"]
        assert lines[2] == ["network-limited", "bbr", "20.00", "1.25", "20%", "203.0.113.2:5201", "(we…"]
        assert lines[3][1:3] == ["brb_bbr3_robust", "98765"]
        assert lines[3][5].startswith("[2001:db8:") and lines[3][5].endswith("]:65535")
        for key in ("s Sort", "r Reverse", "/ Filter", "p Pause", "? Help", "q Quit", "Detail"):
            assert key in screen[-1], key

        await watched.pilot.resize_terminal(140, 40)
        await watched.settled()
        (heading,) = [line for line in watched.screen() if line.startswith("cause")]
        assert heading.split()[-2:] == ["from", "to"]
        assert "203.0.113.2:5201 (web)" in watched.text() and "192.0.2.1:40002" in watched.text()


@in_a_loop
async def test_the_host_says_why_and_what_cannot_be_read_is_always_shown() -> None:
    host = {"steal_share": 0.3, "late_share": 0.4, "busiest_share": 0.97, "pressure_share": None}
    unread = [f"network namespace {name}: permission denied" for name in ("a", "b", "c")]
    said = {"host": host, "why": "the CPU is taken away (30% steal)", "unread": unread}
    async with _watched(_sweep(1, *THREE, **said)) as watched:
        for _ in range(2):
            screen = watched.text()
            assert "3 sockets: 1 cpu-limited, 2 network-limited" in screen
            assert "steal 30.0%, late wake-ups 40%, busiest CPU 97%, PSI unknown" in screen
            assert "cpu-limited: the CPU is taken away (30% steal)" in screen
            assert "namespace a: permission" in screen and "and 1 more" in screen
            await watched.press("enter")  # in the detail, too
        await watched.sweep(_sweep(2, THREE[1], unread=["the dump was interrupted"]))
        assert "taken away" not in watched.text() and "not read: the dump was interrupted" in watched.text()


@in_a_loop
async def test_sorting_and_reversing() -> None:
    async with _watched(_sweep(1, *THREE)) as watched:
        orders = {}
        for _ in history.ORDERS:
            forwards = watched.rows()
            await watched.press("r")
            orders[watched.flows().order.name] = (forwards, watched.rows())
            await watched.press("S", "s")
        assert orders == {
            "cause": (["1", "3", "2"], ["3", "2", "1"]),
            "rate": (["3", "2", "1"], ["1", "2", "3"]),
            "inflight": (["1", "2", "3"], ["3", "2", "1"]),
            "deficit": (["1", "2", "3"], ["2", "1", "3"]),  # unknown values come last
        }
        assert watched.flows().order.name == "cause" and "by cause, cpu-limited first" in watched.text()


@in_a_loop
async def test_the_filter_is_a_part_of_any_cell() -> None:
    async with _watched(_sweep(1, *THREE)) as watched:
        await watched.press("slash", *"CUBIC")
        assert watched.rows() == ["3"] and "1 of 3 sockets" in watched.text()
        await watched.press("enter")
        await watched.sweep(_sweep(2, *THREE))
        assert watched.rows() == ["3"] and "with 'cubic'" in watched.text()
        await watched.press("escape")
        assert watched.rows() == ["1", "3", "2"] and "cubic'" not in watched.text()
        for typed, rows in (
            ("cpu", ["1"]),
            ("113.2:", ["2"]),
            ("40003", ["3"]),
            ("(web)", ["2"]),
            ("cart-3", ["3"]),
            ("sq?", []),
        ):
            watched.flows().typed.value = typed  # as the keys do, each of which takes a tenth of a second
            await watched.settled()
            assert watched.rows() == rows, typed
        await watched.press("slash", "escape")
        assert watched.rows() == ["1", "3", "2"]


@in_a_loop
async def test_while_it_is_paused_the_screen_stands_still_and_no_history_has_a_hole() -> None:
    async with _watched(_sweep(1, *THREE)) as watched:
        await watched.press("p")
        paused = watched.text()
        assert "PAUSED" in paused
        for sweep in (2, 3):
            await watched.sweep(_sweep(sweep, *(_flow(number) for number in (4, 5))))
        assert watched.text() == paused
        await watched.press("s")  # the view can be sorted while it is paused
        assert watched.rows() == ["3", "2", "1"]
        await watched.press("space")
        assert "PAUSED" not in watched.text() and watched.rows() == ["5", "4"]
        points = watched.view.followed.histories["", 0, "192.0.2.1:40004", "203.0.113.4:5201"].points
        assert [point.sweep for point in points] == [2, 3]


@in_a_loop
async def test_the_cursor_stays_on_its_socket() -> None:
    async with _watched(_sweep(1, _flow(1), _flow(2), _flow(3))) as watched:

        def under() -> str:
            return watched.table().keys[watched.table().cursor_row][3]

        # Nobody has moved the cursor, so it stays on its line.
        await watched.sweep(_sweep(2, _flow(3), _flow(2), _flow(1)))
        assert under() == "203.0.113.3:5201"
        await watched.press("down")
        assert under() == "203.0.113.2:5201"
        await watched.sweep(_sweep(3, _flow(3), _flow(4), _flow(1), _flow(2)))
        assert under() == "203.0.113.2:5201" and watched.table().cursor_row == 3
        await watched.press("s", "s", "r")
        assert under() == "203.0.113.2:5201"
        await watched.pilot.resize_terminal(140, 24)
        await watched.settled()
        assert under() == "203.0.113.2:5201"
        # When the socket disappears, the cursor keeps its line; when it returns, the cursor follows it.
        await watched.sweep(_sweep(4, _flow(1), _flow(3)))
        assert watched.rows() == ["1", "3"]
        await watched.sweep(_sweep(5, _flow(2), _flow(1), _flow(3)))
        assert under() == "203.0.113.2:5201"
        # The same addresses in another network namespace are another socket.
        await watched.sweep(_sweep(6, _flow(2, netns="web"), _flow(2), _flow(3)))
        assert watched.table().keys[watched.table().cursor_row][0] == ""


@in_a_loop
async def test_a_line_has_the_colour_of_the_socket_that_is_on_it_now() -> None:
    async with _watched(_sweep(1, _flow(1, CPU_LIMITED), _flow(2), _flow(3, "app-limited"))) as watched:
        for sweep, causes in ((2, ["app-limited", CPU_LIMITED, CPU_LIMITED]), (3, ["undecided", *CAUSES[1:3]])):
            await watched.sweep(_sweep(sweep, *(_flow(n, cause) for n, cause in enumerate(causes, 1))))
            table = watched.table()
            for row in range(table.row_count):
                cells = table.get_row_at(row)
                style = text.socket_style({"cause": cells[0].plain})
                assert {cell.style for cell in cells} == {style}, cells[0].plain
    assert [text.socket_style(_flow(1, cause)) for cause in (CPU_LIMITED, "throttled")] == ["bold red", "red"]


@in_a_loop
async def test_the_detail_shows_the_evidence_and_the_history() -> None:
    sweeps = [
        _sweep(sweep, _flow(1, CPU_LIMITED, rate_mbps=float(sweep), inflight_bdp=sweep / 10), _flow(2))
        for sweep in range(1, 9)
    ]
    async with _watched(*sweeps, size=(80, 40)) as watched:
        await watched.press("enter")
        assert isinstance(watched.view.screen, Detail)
        screen = watched.text()
        assert "192.0.2.1:40001 to 203.0.113.1:5201" in screen and MEANINGS[CPU_LIMITED] in screen
        assert "▂▃▄▅▅▆▇█" in screen
        assert "1.00 to 8.00 Mbit/s" in screen and "0.10 to 0.80 BDP" in screen and "10% to 10%" in screen
        assert "8 sweeps" in screen and "81% of what pacing would have sent" in screen
        await watched.sweep(_sweep(9, _flow(1, CPU_LIMITED, rate_mbps=17.0)))
        assert "1.00 to 17.00 Mbit/s" in watched.text()
        await watched.sweep(_sweep(10, _flow(2)))
        assert "latest reading" in watched.text() and "1.00 to 17.00 Mbit/s" in watched.text()
        await watched.press("escape")
        assert watched.rows() == ["2"]


def test_the_detail_shows_each_field_of_a_flow() -> None:
    before = _detail(_flow(1))
    for name, value in _flow(1).items():
        changed: Any = {"bdp_source": "delivery-rate", "cause": "app-limited", "interface": 3}.get(name)
        if changed is None:
            changed = f"{value}0" if isinstance(value, str) else value * 2
        assert _detail(_flow(1, **{name: changed})) != before, name
    nothing = _detail({name: None if name in CAN_BE_UNKNOWN else value for name, value in _flow(1).items()})
    assert nothing.count("unknown") == len(CAN_BE_UNKNOWN)


CAN_BE_UNKNOWN = (
    "throttled_share",
    "pacing_rate_mbps",
    "paced_share",
    "cwnd_bytes",
    "inflight_bytes",
    "bdp_bytes",
    "inflight_bdp",
    "deficit_share",
    "busy_share",
    "rwnd_limited_share",
    "sndbuf_limited_share",
    "retransmit_share",
    "srtt_ms",
    "min_rtt_ms",
)


def _detail(flow: Flow) -> str:
    return "\n".join([text.flow_and_cause(flow).plain, *map(": ".join, text.evidence(flow))])


def test_histories_reach_back_a_limited_number_of_sweeps() -> None:
    followed = Followed()
    followed.take(_sweep(1, _flow(1), _flow(2)))
    for sweep in range(2, MAX_HISTORY_SWEEPS + 1):
        followed.take(_sweep(sweep, _flow(1)))
    one, two = (("", 0, f"192.0.2.1:{40000 + n}", f"203.0.113.{n}:5201") for n in (1, 2))
    assert len(followed.histories[one].points) == MAX_HISTORY_SWEEPS and len(followed.histories[two].points) == 1
    followed.take(_sweep(MAX_HISTORY_SWEEPS + 1, _flow(1)))
    assert len(followed.histories[one].points) == MAX_HISTORY_SWEEPS and two not in followed.histories
    followed.toggle_pause()
    for sweep in range(MAX_HISTORY_SWEEPS + 2, 3 * MAX_HISTORY_SWEEPS):
        followed.take(_sweep(sweep, _flow(1)))
    followed.toggle_pause()
    assert [point.sweep for point in followed.histories[one].points] == list(
        range(2 * MAX_HISTORY_SWEEPS, 3 * MAX_HISTORY_SWEEPS)
    )


def test_bars_fit_their_place_and_show_gaps() -> None:
    assert text.bars([(1, 0.0), (2, 0.5), (3, None), (4, 1.0), (6, 2.0)], 1, 1.0) == "▁▅ █ █"
    assert text.bars([(2, 0.0), (3, 1.0), (4, 1.0), (5, 1.0)], 2, 1.0) == "▅█"
    points = [Point(sweep, 1.0, None, None) for sweep in range(7, 7 + MAX_HISTORY_SWEEPS)]
    for width in (30, 40, 80, 140, 200):
        history = History(_flow(1))
        history.points.extend(points)
        drawn = [str(cell) for cell in text.history_lines(history, width).columns[1].cells]
        assert len(drawn[0]) <= max(width - 36, 2), width
        assert drawn[3].startswith({80: "3 sweeps per bar", 200: "one sweep per bar"}.get(width, "")), width
    history.points.append(Point(points[-1].sweep + 1, 4.0, 2.0, 0.5))
    drawn = [str(cell)[-1] for cell in text.history_lines(history, 200).columns[1].cells]
    assert drawn[:3] == ["█", "█", "▅"], "a deficit is drawn on a scale to 100 %, others to their maximum"


@in_a_loop
async def test_sweeps_may_come_while_a_screen_is_opened_or_closed() -> None:
    pressed, over = threading.Event(), threading.Event()

    def sweeps() -> Iterator[Sweep]:
        for sweep in itertools.takewhile(lambda _: not pressed.is_set(), itertools.count(1)):
            time.sleep(0.005)
            yield _sweep(sweep, *THREE[: sweep % 4])
        over.wait()

    view = WatchView(sweeps())
    async with view.run_test() as pilot:
        for _ in range(4):  # a starved process needs seconds for each
            for key in ("enter", "escape", "question_mark", "escape", "down"):
                view.simulate_key(key)
                await asyncio.sleep(0.01)
        # None of the keys may come after the end: one that goes from the view to a widget, and up again, waits in the
        # queue of each, and a pause lets it go one further.
        pressed.set()
        await Watched(view, pilot, queue.SimpleQueue()).settled()
        for _ in range(10):
            await pilot.pause(0.01)
        await pilot.press("q")
    over.set()


@in_a_loop
async def test_sweeps_that_come_faster_than_they_are_drawn_keep_no_key_waiting() -> None:
    async with _watched(_sweep(1, *THREE)) as watched:
        drawn: list[int] = []
        show = Flows.show

        def slow(flows: Flows) -> None:
            assert flows.followed.sweep is not None
            drawn.append(flows.followed.sweep["sweep"])
            time.sleep(0.05)  # as on a machine with little CPU
            show(flows)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Flows, "show", slow)
            for number in range(2, 1002):
                watched.sweeps.put(_sweep(number, *THREE))
            await watched.sweep(_sweep(1002, _flow(4)))
        assert watched.rows() == ["4"] and len(drawn) < 100, len(drawn)


@in_a_loop
async def test_help_has_the_keys_and_the_causes() -> None:
    async with _watched(_sweep(1, *THREE), size=(80, 30)) as watched:
        await watched.press("question_mark")
        screen = watched.text()
        assert all(cause in screen for cause in CAUSES) and "reverse the order" in screen and "min RTT" in screen
        await watched.sweep(_sweep(2, *THREE))
        await watched.press("escape")
        assert watched.rows() == ["1", "3", "2"]


def test_addresses_are_cut_where_they_say_least() -> None:
    assert text.cut("192.168.100.200:65535", 21) == "192.168.100.200:65535"
    assert text.cut("[2001:db8:85a3:1234:5678:8a2e:370:7334]:443", 21) == "[2001:db8:…:7334]:443"
    assert text.cut("192.168.100.200:443 (web)", 21) == "192.168.100.200:443 …"
    assert text.cells(_flow(1, local="[::ffff:192.0.2.7]:443"))["from"] == "192.0.2.7:443"


def _reports(*sweeps: Sweep, error: Exception | None = None) -> Iterator[Sweep]:
    yield from sweeps
    if error is not None:
        raise error


def test_the_end_of_the_sweeps_ends_the_view_and_an_error_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(view: WatchView) -> None:
        async with view.run_test() as pilot:
            while view.is_running:
                await pilot.pause(0.01)

    monkeypatch.setattr(WatchView, "run", lambda view, mouse: asyncio.run(test(view)))
    view.follow(_reports(_sweep(1, *THREE)))
    with pytest.raises(MissingSupport, match="watch: no netlink"):
        view.follow(_reports(_sweep(1, *THREE), error=MissingSupport("watch: no netlink")))


class Terminal:
    """The command in a pseudo-terminal of 80 columns; `setsid -c` makes it the command's controlling terminal."""

    def __init__(
        self, *arguments: str, term: str = "xterm-256color", setsid: tuple[str, ...] = ("setsid", "-c")
    ) -> None:
        self.ours, self.its = pty.openpty()
        fcntl.ioctl(self.its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self.ours, False)
        self.modes = termios.tcgetattr(self.its)
        self.written = b""
        command = [*setsid, BROBUST, "watch", *arguments]
        streams = {"stdin": self.its, "stdout": self.its, "stderr": self.its}
        self.process = subprocess.Popen(command, env=os.environ | {"TERM": term}, **streams)

    def press(self, keys: bytes) -> None:
        os.write(self.ours, keys)

    def read(self) -> None:
        """Read everything that has been written."""
        with suppress(BlockingIOError):
            while True:
                self.written += os.read(self.ours, 1 << 16)
        time.sleep(0.01)

    def wait_for(self, text: bytes) -> None:
        deadline = time.monotonic() + 60
        while text not in self.written:
            assert time.monotonic() < deadline and self.process.poll() is None, self.written
            self.read()

    def read_to_the_end(self) -> None:
        deadline = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.written
            self.read()
        self.read()

    def status(self) -> int:
        """Return the exit status, and check that the terminal is restored: screen, cursor and modes."""
        self.read_to_the_end()
        assert self.written.rindex(b"\x1b[?1049l") > self.written.rindex(b"\x1b[?1049h")
        assert self.written.rindex(b"\x1b[?25h") > self.written.rindex(b"\x1b[?25l")
        assert termios.tcgetattr(self.its) == self.modes
        return self.process.wait()

    def hang_up(self) -> None:
        while self.ours >= 0:
            os.close(self.ours)
            self.ours, self.its = self.its, -1


@contextmanager
def _terminal(*arguments: str, **options: Any) -> Iterator[Terminal]:
    terminal = Terminal(*arguments, **options)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        terminal.hang_up()


FAST = ("--interval", "100ms", "--window", "1s")


def test_q_does_not_wait_for_the_next_sweep() -> None:
    with _terminal("--interval", "600s", "--window", "3600s") as terminal:
        terminal.wait_for(b"Quit")
        terminal.press(b"q")
        assert terminal.status() == 0


@pytest.mark.parametrize(
    "how", [b"\x03", b"/\x03", signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "Ctrl-C in the filter", "INT", "TERM"]
)
def test_an_interrupt_ends_it_as_it_ends_other_commands(how: bytes | signal.Signals) -> None:
    with _terminal(*FAST) as terminal:
        terminal.wait_for(b"host: steal")
        if isinstance(how, bytes):
            terminal.press(how)
        else:
            terminal.process.send_signal(how)
        assert terminal.status() == 130


@pytest.mark.parametrize("setsid", [("setsid", "-c"), ("setsid",)], ids=["with SIGHUP", "without"])
def test_it_goes_with_its_terminal(setsid: tuple[str, ...]) -> None:
    with _terminal(*FAST, setsid=setsid) as terminal:
        terminal.wait_for(b"host: steal")
        terminal.hang_up()
        assert terminal.process.wait(60) in (-signal.SIGHUP, 128 + signal.SIGHUP)


def test_a_count_ends_it() -> None:
    with _terminal(*FAST, "--count", "3") as terminal:
        assert terminal.status() == 0


def test_that_the_program_was_killed_is_one_line() -> None:
    program = ["sh", "-c", "kill -KILL $$"]
    with (
        subprocess.Popen(program, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as killed,
        pytest.raises(CutShort, match="brobust-host was killed by SIGKILL; ") as ended,
    ):
        list(_read(killed, _LastLines(killed.stderr)))
    assert ended.value.exit_status == 1


@pytest.mark.parametrize("arguments", [("--netns", "no-such"), ("--interval", "fast"), ("--no-such-option",)])
def test_a_refusal_is_one_line_and_no_table(arguments: tuple[str, ...]) -> None:
    with _terminal(*arguments) as terminal:
        terminal.read_to_the_end()
        assert terminal.process.wait() == 2 and b"\x1b" not in terminal.written
        assert terminal.written.count(b"\n") == 1 and terminal.written.startswith(b"brobust: "), terminal.written
        assert arguments[-1].encode() in terminal.written


def test_a_dumb_terminal_gets_lines() -> None:
    with _terminal(*FAST, "--count", "2", term="dumb") as terminal:
        terminal.read_to_the_end()
        assert terminal.written.count(b"; steal ") == 2 and b"\x1b" not in terminal.written


def test_a_program_that_complains_more_than_a_pipe_holds_goes_on() -> None:
    script = "yes not read | head -c 300000 >&2; echo '{}'; exit 2"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        sweeps = _read(process, _LastLines(process.stderr))
        assert next(sweeps) == {}
        with pytest.raises(MissingSupport, match="not read"):
            next(sweeps)


def test_names_that_a_terminal_would_act_on_are_escaped() -> None:
    line = json.dumps({"flows": [{"pod": "a\x1b]0;owned\x07", "cgroup": None}], "unread": ["b\x1b[2J"], "sockets": 1})
    with subprocess.Popen(["echo", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        (sweep,) = _read(process, _LastLines(process.stderr))
    assert sweep == {"flows": [{"pod": r"a\x1b]0;owned\x07", "cgroup": None}], "unread": [r"b\x1b[2J"], "sockets": 1}


@pytest.mark.timeout(30)
def test_an_interrupt_that_comes_before_the_view_is_there_ends_it() -> None:
    to_come: queue.Queue[Sweep | None] = queue.Queue()
    shown = WatchView(iter(to_come.get, None))
    shown.note_interrupt()
    shown.run(headless=True)
    to_come.put(None)  # the end of its thread
    assert isinstance(shown.error, KeyboardInterrupt)
