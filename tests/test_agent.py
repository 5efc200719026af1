"""The host's client talks to the real agent, over a unix socket instead of a virtio port."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from brobust.errors import MissingSupport, RunFailed
from brobust.host.programs import host_program
from brobust.host.session import Session
from brobust.testbed import agent as agents
from brobust.testbed import console as consoles
from brobust.testbed import qemu
from brobust.testbed.agent import Agent
from brobust.testbed.console import Console
from conftest import eventually, have_ended, killed_at_end

OOPS = b"""\
[   60.9] Oops: double fault: 0000 [#1] PREEMPT SMP NOPTI
[   60.9] RIP: 0010:kmem_cache_alloc_node_noprof+0x12/0x340
"""


def _connected(path: Path) -> socket.socket:
    """Return a connection to the agent. Its socket has its name a moment before the agent listens."""
    wire = socket.socket(socket.AF_UNIX)
    assert eventually(lambda: wire.connect_ex(str(path)) == 0)
    return wire


@contextlib.contextmanager
def _started(directory: Path) -> Iterator[tuple[Agent, subprocess.Popen[str]]]:
    path = directory / "agent"
    with killed_at_end([host_program(), "lab", "agent", path]) as process:
        client = Agent("test guest", _connected(path))
        client.ready(30)
        yield client, process
        client.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with _started(tmp_path) as (client, _):
        yield client


def test_a_command_runs_and_its_output_comes_back(agent: Agent) -> None:
    assert agent.run("echo", "hello") == "hello\n"


def test_large_output_arrives_whole(agent: Agent) -> None:
    assert len(agent.run("bash", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")) == 3_000_000


def test_a_failing_command_is_quoted(agent: Agent) -> None:
    with pytest.raises(RunFailed, match="test guest: `bash -c echo no >&2; exit 3` failed with status 3: no"):
        agent.run("bash", "-c", "echo no >&2; exit 3")


def test_a_missing_program_is_an_error_not_silence(agent: Agent) -> None:
    with pytest.raises(RunFailed, match=r": cannot start no-such-program: No such file or directory$"):
        agent.run("no-such-program")


def test_a_spawned_command_is_waited_for_while_others_run(agent: Agent) -> None:
    pid = agent.spawn("bash", "-c", "sleep 0.3; echo late")
    assert agent.run("echo", "early") == "early\n"
    assert agent.wait(pid, 30).stdout == "late\n"


def test_a_command_that_takes_too_long_is_stopped(agent: Agent) -> None:
    with pytest.raises(RunFailed, match=r"test guest: `sleep 60` did not end within 0\.2 s$"):
        agent.run("sleep", "60", timeout=0.2)


def test_many_commands_in_quick_succession_all_answer(agent: Agent) -> None:
    assert [agent.run("echo", str(n)) for n in range(100)] == [f"{n}\n" for n in range(100)]


def test_a_guest_that_dies_fails_the_request_at_once(tmp_path: Path) -> None:
    with _started(tmp_path) as (client, process):
        pid = client.spawn("sleep", "60")
        process.kill()
        begun = time.monotonic()
        with pytest.raises(RunFailed, match="test guest"):
            client.wait(pid, 60)
        assert time.monotonic() - begun < 30


def test_a_guest_to_which_nothing_can_be_sent_is_lost_before_the_reader_has_seen_it() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.shutdown(socket.SHUT_RD)  # what we read goes on, so the reader sees no end
        agent = Agent("test guest", ours)
        with pytest.raises(RunFailed, match="test guest: its agent is gone"):
            agent.ping(30)
        assert agent.is_lost
        agent.close()


def test_who_waits_for_a_peer_that_died_gives_up_at_once(agent: Agent) -> None:
    """A sender would wait until its time is over for a receiver that is gone."""
    ours, receivers = socket.socketpair()
    receiver = Agent("receiver", ours)
    agent.give_up_with(receiver)
    pid = agent.spawn("sleep", "600")

    def dies() -> None:
        assert eventually(lambda: agent._waiting != {})
        receivers.close()

    threading.Thread(target=dies).start()
    with pytest.raises(RunFailed, match="receiver: it died"):
        agent.wait(pid, 200)
    agent.kill(pid)  # it answers as before
    receiver.close()


def test_what_a_dead_guest_leaves_behind_tells_where_it_was() -> None:
    console = (
        "booted\n[ 60.9] BUG: kernel NULL pointer dereference, address: 08\n[ 60.9] RIP: 0010:tcp_ack+0x12\nR12: 0\n"
    )
    said = qemu.error_lines(console + "[ 60.9] Kernel panic - not syncing: Fatal exception in interrupt\n")
    assert "NULL pointer" in said and "tcp_ack" in said and said.endswith("in interrupt")
    assert qemu.error_lines("qemu: error: no such disk\nEAX=0\n") == "qemu: error: no such disk"
    assert qemu.error_lines("only this\n") == "only this"
    assert qemu.error_lines(" \n") == ""
    assert qemu.error_lines("error: \x1b[2J\n") == "error: \\x1b[2J"


def _answered(*replies: bytes) -> Agent:
    """Return a client whose guest sends these lines, whatever the request."""
    ours, theirs = socket.socketpair()
    client = Agent("test guest", ours)

    def answer() -> None:
        with theirs:
            theirs.recv(4096)
            for reply in replies:
                theirs.sendall(reply)
            theirs.recv(1)

    threading.Thread(target=answer, daemon=True).start()
    return client


def test_a_reply_longer_than_a_guest_could_honestly_give_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MAX_REPLY_BYTES", 1 << 20)
    client = _answered(b"x" * (1 << 20))
    with pytest.raises(RunFailed, match="answered with more than 1 MiB"):
        client.run("true", timeout=60)
    with pytest.raises(RunFailed, match="more than 1 MiB"):  # and it gets no more requests
        client.run("true")
    client.close()


@pytest.mark.parametrize(
    "nonsense",
    [b"[" * 100_000, b"[]", b'{"id": []}', b'{"id": {}}', b"\xff\xfe", b"null", b'{"id": 1e999}', b"1" * 5000],
    ids=lambda line: line[:12].decode(errors="replace"),
)
def test_what_is_no_reply_is_passed_over(nonsense: bytes) -> None:
    good = json.dumps({"id": 1, "status": 0, "stdout": "it", "stderr": ""}).encode()
    client = _answered(nonsense + b"\n", good + b"\n")
    assert client.run("true", timeout=60) == "it"
    client.close()


@pytest.mark.parametrize("reply", [{"status": 0}, {"status": "0", "stdout": "", "stderr": ""}, {"stdout": 1}])
def test_a_reply_that_lacks_what_was_asked_for_fails_the_request(reply: dict[str, object]) -> None:
    client = _answered(json.dumps({"id": 1, **reply}).encode() + b"\n")
    with pytest.raises(RunFailed, match="test guest: its agent answered without"):
        client.run("true", timeout=60)
    client.close()


def test_of_a_long_error_a_reader_gets_both_ends() -> None:
    """64 MiB of it would be printed for minutes, and stand in the dataset."""
    client = _answered(json.dumps({"id": 1, "error": f"no such {'x' * 100_000} program"}).encode() + b"\n")
    with pytest.raises(RunFailed) as failure:
        client.run("true", timeout=60)
    client.close()
    assert len(str(failure.value)) < 2100
    assert str(failure.value).startswith("test guest: `true`: no such x") and str(failure.value).endswith("x program")


def _console(monkeypatch: pytest.MonkeyPatch) -> tuple[Console, int, threading.Event]:
    """Return a console, the end to which a guest writes, and an event that is set at a panic."""
    monkeypatch.setattr(consoles, "QUIET_SECONDS", 0.1)
    reads, writes = os.pipe()
    told = threading.Event()
    return Console("test", reads, told.set), writes, told


def test_an_oops_on_the_console_is_told_at_once_with_what_follows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    console, guest, told = _console(monkeypatch)
    os.write(guest, OOPS[:30])
    assert not told.wait(0.3)
    # More than is read at once, and all of it is there: this thread may wait for its CPU between two lines.
    between = b"[   60.9]  ? asm_exc_page_fault+0x26/0x30\n" * 200
    last = b"[   60.9] Kernel panic - not syncing: Fatal exception in interrupt\n"
    os.write(guest, OOPS[30:] + between + last)
    assert told.wait(60) and console.panicked  # although the guest hangs, with its end still open
    said = qemu.error_lines(console.text)
    assert said.startswith("Oops: double fault") and "kmem_cache_alloc_node_noprof" in said
    assert said.endswith("Kernel panic - not syncing: Fatal exception in interrupt")
    os.close(guest)
    console.close()


@pytest.mark.parametrize(
    "line",
    [b"general protection fault, maybe for address 0x1: 0000 [#1] SMP", b"invalid opcode: 0000 [#2] PREEMPT SMP",
     b"Kernel panic - not syncing: No working init found."],
)  # fmt: skip
def test_each_way_in_which_a_kernel_dies_is_told(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    console, guest, told = _console(monkeypatch)
    os.write(guest, line + b"\n")
    assert told.wait(60)
    os.close(guest)
    console.close()


def test_what_a_healthy_kernel_prints_is_no_panic_and_is_not_kept_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    console, guest, told = _console(monkeypatch)
    line = b"[    1.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s! panic=-1 oops=panic\n"
    for _ in range(3 * consoles.KEPT_BYTES // len(line)):
        os.write(guest, line)
    os.write(guest, b"the end")
    os.close(guest)
    console.close()
    assert not told.is_set() and not console.panicked
    assert len(console.text) == consoles.KEPT_BYTES and console.text.endswith("the end")


def _stand_in(script: str) -> qemu.Guest:
    """Return a guest with a program of ours in the place of QEMU, and the same wires."""
    stack = contextlib.ExitStack()
    wires = qemu.Wires.open(qemu.GuestConfig("test", tap="", mac=""), "", stack)
    command = [sys.executable, "-c", script, *map(str, wires.theirs)]
    with stack:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=wires.theirs)
    return qemu.Guest(qemu.GuestConfig("test", tap="", mac=""), process, wires)


def test_a_guest_that_panics_and_hangs_is_dead_at_once_and_says_why() -> None:
    hangs = f"import os, sys, time; os.write(int(sys.argv[2]), {OOPS!r}); time.sleep(100)"
    with _stand_in(hangs) as guest:
        begun = time.monotonic()
        with pytest.raises(RunFailed, match="test guest"):
            guest.agent.wait(1, 60)
        assert time.monotonic() - begun < 30
        assert guest.died()
        assert guest.cause_of_death().startswith("Oops: double fault")


def test_a_guest_whose_qemu_ends_is_dead_at_once_and_says_why() -> None:
    with _stand_in("import sys; sys.exit('qemu: error: no such machine')") as guest:
        with pytest.raises(RunFailed, match="test guest"):
            guest.agent.wait(1, 60)
        assert guest.died() and guest.cause_of_death() == "qemu: error: no such machine"


def test_a_guest_that_is_only_slow_is_not_dead() -> None:
    asked: dict[str, dict[str, Any]] = {
        "a ping": {"ping": True},
        "waiting for process 7": {"wait": 7},
        "`ip link`": {"argv": ["ip", "link"]},
    }
    with _stand_in("import time; time.sleep(100)") as guest:
        for words, request in asked.items():
            with pytest.raises(RunFailed, match=f"no answer within 0.1 s to {words}$"):
                guest.agent._ask(request, 0.1)
        assert not guest.died()


@pytest.mark.parametrize(("lacks", "package"), [("setpriv", "util-linux"), (qemu.QEMU, "qemu-system-x86")])
def test_a_guest_without_a_program_that_starts_it_is_refused_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str, package: str
) -> None:
    for program in {"nice", "setpriv", qemu.QEMU} - {lacks}:
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with contextlib.ExitStack() as stack:
        wires = qemu.Wires.open(qemu.GuestConfig("test", tap="", mac=""), "", stack)
        with pytest.raises(MissingSupport, match=rf"^{lacks} is not installed; .*`apt-get install {package}`$"):
            qemu.started(["setpriv", "--", qemu.QEMU], wires, [], cast(Session, None))


STARTS_AND_WAITS = """
import subprocess, sys, time
from brobust.testbed import qemu
print(subprocess.Popen(qemu.as_nobody("tcg", ["sleep", "100"])).pid, flush=True)
time.sleep(100)
"""


@pytest.mark.root
def test_a_qemu_has_no_privilege_and_ends_with_the_brobust_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_AND_WAITS], stdout=subprocess.PIPE, text=True) as brobust:
        assert brobust.stdout is not None
        started = psutil.Process(int(brobust.stdout.readline()))
        assert eventually(lambda: started.name() == "sleep")
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{started.pid}/status").read_text().splitlines())
        assert 0 not in started.uids() and 0 not in started.gids() and status["Groups"].strip() == ""
        assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"
        brobust.kill()
    assert eventually(lambda: have_ended([started]))


def test_a_kernel_that_only_its_owner_may_read_is_handed_over_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "private").write_bytes(b"kernel")
    (tmp_path / "private").chmod(0o600)
    (tmp_path / "public").write_bytes(b"kernel")
    (tmp_path / "public").chmod(0o644)
    with contextlib.ExitStack() as stack:
        for name in ("private", "public"):
            descriptor = qemu.opened(tmp_path / name, stack)
            assert os.fstat(descriptor).st_mode & 0o004, name
            assert Path(f"/proc/self/fd/{descriptor}").read_bytes() == b"kernel"
