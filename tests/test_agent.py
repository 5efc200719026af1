"""The wire to a guest: the host's client against the real agent, over a unix socket instead of a virtio port."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from brobust.errors import RunFailed
from brobust.guests import image, qemu
from brobust.guests.agent import Agent


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    socket = tmp_path / "agent"
    with subprocess.Popen([image.AGENT, "agent", socket]) as process:
        while not socket.exists():
            assert process.poll() is None
            time.sleep(0.01)
        client = Agent("test", socket)
        client.ready(5)
        yield client
        client.close()
        process.kill()


def test_a_command_runs_and_its_output_comes_back(agent: Agent) -> None:
    assert agent.run("echo", "hello") == "hello\n"


def test_large_output_arrives_whole(agent: Agent) -> None:
    assert len(agent.run("bash", "-c", "printf 'x%.0s' {1..1000000}")) == 1_000_000


def test_a_failing_command_is_quoted(agent: Agent) -> None:
    with pytest.raises(RunFailed, match="test guest: `bash -c echo no >&2; exit 3` failed with status 3: no"):
        agent.run("bash", "-c", "echo no >&2; exit 3")


def test_a_missing_program_is_an_error_not_silence(agent: Agent) -> None:
    with pytest.raises(RunFailed, match="no-such-program"):
        agent.run("no-such-program")


def test_a_spawned_command_is_waited_for_while_others_run(agent: Agent) -> None:
    pid = agent.spawn("bash", "-c", "sleep 0.3; echo late")
    assert agent.run("echo", "early") == "early\n"
    assert agent.wait(pid, 5).stdout == "late\n"


def test_a_command_that_takes_too_long_is_stopped(agent: Agent) -> None:
    output = agent.try_run("sleep", "60", timeout=0.2)
    assert output.status != 0


def test_many_commands_in_quick_succession_all_answer(agent: Agent) -> None:
    assert [agent.run("echo", str(n)) for n in range(100)] == [f"{n}\n" for n in range(100)]


def test_a_guest_that_dies_fails_the_request_at_once(tmp_path: Path) -> None:
    socket = tmp_path / "agent"
    with subprocess.Popen([image.AGENT, "agent", socket]) as process:
        while not socket.exists():
            time.sleep(0.01)
        client = Agent("test", socket)
        client.ready(5)
        pid = client.spawn("sleep", "5")
        process.kill()
        begun = time.monotonic()
        with pytest.raises(RunFailed, match="test guest"):
            client.wait(pid, 30)
        assert time.monotonic() - begun < 5
        client.close()


def test_what_a_dead_guest_leaves_behind_tells_where_it_was() -> None:
    console = (
        "booted\n[ 60.9] BUG: kernel NULL pointer dereference, address: 08\n[ 60.9] RIP: 0010:tcp_ack+0x12\nR12: 0\n"
    )
    said = qemu.telling(console + "[ 60.9] Kernel panic - not syncing: Fatal exception in interrupt\n")
    assert "NULL pointer" in said and "tcp_ack" in said and said.endswith("in interrupt")
    assert qemu.telling("qemu: error: no such disk\nEAX=0\n") == "qemu: error: no such disk"
    assert qemu.telling("only this\n") == "only this"
    assert qemu.telling(" \n") == ""
