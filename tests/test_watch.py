"""`brobust watch` names what limits the sockets of this host, and explains it."""

import fcntl
import os
import re
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brobust.watch import CAUSES, CPU_LIMITED
from conftest import BROBUST, Brobust, json_lines, refused_by_program

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
        # A second's samples, or the last four: a busy machine makes its sweeps late.
        assert 4 <= flow["samples"] <= 12 and (flow["seconds"] <= 1.01 or flow["samples"] == 4), flow

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
                thread.join(60)
    host = r"steal [^,]+, late wake-ups [^,]+, busiest CPU [^,]+, PSI [^,]+"
    assert re.match(rf"1 socket: 1 [a-z-]+; {host}\n  cause +cc +Mbit/s +inflight/BDP ", said.stdout), said.stdout
    assert said.returncode == (1 if CPU_LIMITED in said.stdout else 0)


def test_lines_come_one_by_one_into_a_pipe() -> None:
    with subprocess.Popen([BROBUST, "watch", *FAST], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = next(line for line in process.stdout if " socket" in line)
        process.terminate()
        assert "steal" in first and process.wait(60) in (0, 130)


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--window", "2s"], ["--window", "2s", "four intervals"]),
        (["--window", "3600s", "--interval", "50ms"], ["--window", "3600s", "1000 intervals"]),
        (["--once", "--count", "3"], ["--once", "--count"]),
        (["--count", "0"], ["--count", "'0'", "1 or more"]),
        (["--netns", "no-such", "--count", "1", *FAST], ["no-such", "ip netns"]),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(brobust: Brobust, arguments: list[str], words: list[str]) -> None:
    line = refused_by_program(brobust, "watch", *arguments)
    assert line.startswith("brobust: ") and all(word in line for word in words), line


def test_who_stops_reading_ends_it_without_waiting_for_the_next_sweep() -> None:
    command = [BROBUST, "watch", "--json", "--interval", "600s", "--window", "3600s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 0 and process.stderr.read() == b""


def test_who_is_asked_to_end_does_not_wait_for_a_reader_that_does_not_read() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    # What it says of its end goes there, too.
    with subprocess.Popen([BROBUST, "watch", "--json", *FAST], stdout=writing, stderr=writing) as process:
        waiting = [-1, 0]
        while waiting[-1] != waiting[-2] or waiting[-1] == 0:
            time.sleep(1)
            waiting.append(int.from_bytes(fcntl.ioctl(reading, termios.FIONREAD, bytes(4)), "little"))
        process.terminate()
        try:
            assert process.wait(30) == 130
        finally:
            process.kill()
    os.close(writing)
    os.close(reading)


@pytest.mark.root
def test_all_namespaces_are_watched(brobust: Brobust) -> None:
    program = (
        "import socket; s = socket.create_server(('127.0.0.1', 4)); c = socket.create_connection(s.getsockname());"
        "a = s.accept(); print(s.getsockname()[1], flush=True); input()"  # a port to which nothing here is connected
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


@pytest.mark.root
def test_once_is_not_sure_of_namespaces_that_it_may_not_read() -> None:
    # Root without capabilities: what other processes of root have is hidden from it.
    command = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all", BROBUST, "watch", "--once", *FAST]

    def once(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [*command, "--filter", "dport 1", *more]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    own, every = once(), once("--netns", "all")
    assert own.returncode == 0 and own.stderr == "", own
    assert every.returncode == 2 and "short of CPU is unknown" in every.stderr, every
    assert every.stderr.count("\n") == 1 and "not read: the network namespaces of" in every.stdout, every


def test_explain_says_what_the_causes_mean_and_what_to_do(brobust: Brobust) -> None:
    said = brobust("watch", "--explain").stdout
    assert all(f"sudo brobust cc load {repair} --dry-run" in said for repair in ("bbr_robust", "bbr_steady"))
    assert all(f"\n{cause} " in f"\n{said}" for cause in CAUSES)
