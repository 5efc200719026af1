"""`brobust watch` names what limits the sockets of this host, and explains it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brobust import _core, watch
from brobust.cli import watch as cli
from brobust.errors import BadInput
from brobust.watch import CAUSES, CPU_LIMITED, Filter
from conftest import BROBUST, json_lines, refused

Brobust = Callable[..., subprocess.CompletedProcess[str]]
FAST = ("--interval", "100ms", "--window", "1s")


@contextmanager
def connection(receive_buffer: int | None = None) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a TCP connection over loopback: the client's, and the server's."""
    with socket.socket() as listener:
        if receive_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as server:
            yield client, server


def _flow(sweeps: list[dict[str, Any]]) -> dict[str, Any]:
    (flow,) = sweeps[-1]["flows"]
    assert isinstance(flow, dict)
    return flow


def test_an_idle_connection_and_one_whose_receiver_does_not_read(brobust: Brobust) -> None:
    with connection(receive_buffer=4096) as (client, server):
        port = str(server.getsockname()[1])
        client.sendall(b"hello")
        sweeps = json_lines(brobust("watch", "--json", *FAST, "--count", "12", "--filter", f"dport {port}").stdout)
        assert len(sweeps) == 12 and sweeps[0]["sweep"] == 1
        flow = _flow(sweeps)
        assert flow["cause"] == "app-limited" and flow["remote"].endswith(f":{port}")
        assert flow["samples"] >= 10 and flow["seconds"] == pytest.approx(1, abs=0.15)

        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                client.send(bytes(100_000))
        flow = _flow(json_lines(brobust("watch", "--json", *FAST, "--count", "12", "--filter", f"dport {port}").stdout))
        assert flow["cause"] == "rwnd-limited" and flow["rwnd_limited_share"] > 0.9


def test_once_says_what_it_saw_and_finds_nothing_wrong_with_a_sender_that_has_its_cpu(brobust: Brobust) -> None:
    with connection() as (client, server):
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                client.sendall(bytes(1 << 16))
            client.shutdown(socket.SHUT_WR)

        def read() -> None:
            while server.recv(1 << 20):
                pass

        threads = [threading.Thread(target=work, daemon=True) for work in (write, read)]
        for thread in threads:
            thread.start()
        try:
            said = brobust("watch", "--once", *FAST, "--filter", f"dport {server.getsockname()[1]}")
        finally:
            done.set()
            for thread in threads:
                thread.join(10)
    assert re.match(r"1 sockets: 1 [a-z-]+; steal", said.stdout), said.stdout
    assert said.returncode == (1 if CPU_LIMITED in said.stdout else 0)


def test_lines_come_one_by_one_into_a_pipe() -> None:
    with subprocess.Popen([BROBUST, "watch", *FAST], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = next(line for line in process.stdout if "sockets:" in line)
        process.terminate()
        assert "steal" in first and process.wait(10) in (0, 130)


def test_every_field_of_a_sweep_is_in_the_documentation(brobust: Brobust) -> None:
    with connection():
        sweep = json_lines(brobust("watch", "--json", *FAST, "--count", "1").stdout)[0]
    page = (Path(__file__).parents[1] / "docs" / "watch.md").read_text()
    documented = set(re.findall(r"`([a-z_.]+)`", page))
    assert set(sweep) - {"host"} <= documented
    assert {f"host.{name}" for name in sweep["host"]} <= documented
    assert {f"flows.{name}" for name in sweep["flows"][0]} <= documented
    assert set(CAUSES) <= set(re.findall(r"`([a-z-]+)`", page))
    assert sum(line["sockets"] for line in sweep["counts"]) == sweep["sockets"]


def test_the_documentation_states_the_thresholds_that_the_verdicts_use() -> None:
    page = (Path(__file__).parents[1] / "docs" / "watch.md").read_text()
    rows = "\n".join(line for line in page.splitlines() if re.match(r"\| `[a-z]+(-limited)?` \|", line))
    shown = {
        "min_samples": "fewer than {:g} samples",
        "majority_share": "more than {:.0%}",
        "limited_share": "more than {:.0%} of the busy time",
        "deficit_bdp": "less than {:g} BDP",
        "away_share": "more than {:.0%} of the time",
        "kept_pace_share": "`paced_share` below {:g}",
        "no_queue_bdp": "less than {:g} BDP",
    }
    assert shown.keys() == _core.CAUSE_THRESHOLDS.keys()
    for name, threshold in _core.CAUSE_THRESHOLDS.items():
        words = shown[name].format(threshold).replace("%", " %")
        assert words in rows, f"{name}: docs/watch.md does not say {words!r}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "fast"], ["--interval", "'fast'"]),
        (["--interval", "1ms"], ["--interval", "1ms", "50ms"]),
        (["--window", "2s"], ["--window", "2s", "four intervals"]),
        (["--window", "3600s", "--interval", "50ms"], ["--window", "3600s", "1000 intervals"]),
        (["--filter", "port 80"], ["--filter", "'port 80'", "dport PORT"]),
        (["--filter", "dport 0"], ["--filter", "dport 0"]),
        (["--once", "--count", "3"], ["--once", "--count"]),
        (["--netns", "no-such", "--count", "1", *FAST], ["no-such", "ip netns"]),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    line = refused(capsys, "watch", *arguments)
    assert all(word in line for word in words), line


def test_filters() -> None:
    assert Filter.parse("dport 443") == Filter(remote_port=443)
    assert Filter.parse("sport 80 and dport = :5201") == Filter(80, 5201)
    with pytest.raises(BadInput):
        Filter.parse("dport 1 and dport 2")


@pytest.mark.root
def test_all_namespaces_are_watched(brobust: Brobust) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname());"
        "a = s.accept(); print(s.getsockname()[1], flush=True); input()"
    )
    # In the new network namespace the loopback device must be brought up first.
    command = ["unshare", "--net", "bash", "-c", f'ip link set lo up; exec python3 -c "{program}"']
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        port = other.stdout.readline().strip()
        alone = json_lines(brobust("watch", "--json", *FAST, "--count", "1", "--filter", f"dport {port}").stdout)[0]
        all_of_them = brobust("watch", "--json", *FAST, "--count", "1", "--netns", "all", "--filter", f"dport {port}")
        other.stdin.close()
    assert alone["sockets"] == 0
    (flow,) = json_lines(all_of_them.stdout)[0]["flows"]
    assert flow["netns"].startswith("pid ")


def test_explain_says_what_to_do(brobust: Brobust) -> None:
    said = brobust("watch", "--explain").stdout
    assert "brobust cc load bbr_robust --dry-run" in said and "brobust cc load bbr_steady --dry-run" in said


def _report(host: dict[str, Any], *causes: str) -> dict[str, Any]:
    calm = {"steal_share": 0.0, "late_share": None, "busiest_share": 0.2, "pressure_share": None}
    counts = [{"cc": "bbr", "cause": cause, "sockets": causes.count(cause)} for cause in dict.fromkeys(causes)]
    return {"sockets": len(causes), "host": calm | host, "counts": counts, "unread": []}


def test_the_host_says_why() -> None:
    assert "taken away (30% steal)" in cli.summary(_report({"steal_share": 0.3}, CPU_LIMITED))
    assert "taken away (40% of our wake-ups were late)" in cli.summary(_report({"late_share": 0.4}, CPU_LIMITED))
    busy = {"late_share": 0.24, "busiest_share": 0.97}
    undecided = cli.summary(_report(busy, CPU_LIMITED))
    full = cli.summary(_report({"busiest_share": 0.97}, CPU_LIMITED, "app-limited"))
    there = cli.summary(_report({}, CPU_LIMITED))
    assert all(word in undecided for word in ("busy", "24%", "taken away"))
    assert "busy (97%)" in full and "taken away" not in full
    assert not any(word in there for word in ("busy", "taken away"))
    unread = {"steal_share": None, "busiest_share": None}
    said = cli.summary(_report(unread, CPU_LIMITED))
    assert "steal unknown" in said and "could not be read" in said and "was available" not in said
    assert cli.summary(_report({"steal_share": 0.3}, "app-limited")) == "1 sockets: 1 app-limited; steal 30.0%"
    assert watch.count(_report({}, CPU_LIMITED, CPU_LIMITED), CPU_LIMITED) == 2
    assert json.dumps(_report({}))
