"""The agent of backend lab, without ssh: it undoes everything when whoever asks it is gone, or says nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from brobust.host.programs import host_program
from conftest import eventually


class Asked:
    """An agent, and what it answers."""

    def __init__(self, runtime: Path, *before: str, silence_seconds: int = 60):
        self.process = subprocess.Popen(
            [*before, host_program(), "lab", "agent", "--silence", str(silence_seconds)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "BROBUST_RUNTIME": str(runtime)},
        )  # fmt: skip

    def __enter__(self) -> Asked:
        self.process.__enter__()
        return self

    def __exit__(self, *of_error: Any) -> None:
        self.process.kill()
        self.process.__exit__(*of_error)

    def said(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        pipe: IO[bytes] | None = self.process.stdin
        assert pipe is not None
        pipe.write(json.dumps({"id": 1, **request}).encode() + b"\n")
        pipe.flush()
        return self.said()


@pytest.mark.root
def test_where_no_thread_can_be_started_nothing_is_begun(tmp_path: Path) -> None:
    with Asked(tmp_path / "run", "env", f"RUST_MIN_STACK={1 << 50}") as agent:
        said = agent.process.communicate(timeout=30)
    assert (agent.process.returncode, said[0]) == (2, b"")
    assert said[1] == b"brobust: no thread can be started here (resource temporarily unavailable)\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.root
@pytest.mark.parametrize("end", ["hangs up", "says nothing", "agent is killed"])
def test_an_agent_undoes_everything_and_ends_what_it_started(tmp_path: Path, end: str) -> None:
    runtime, log = tmp_path / "run", tmp_path / "log"
    with Asked(runtime, silence_seconds=3 if end == "says nothing" else 60) as agent:
        assert agent.said() == {"ready": f"/proc/{agent.process.pid}/exe"}
        for word in ("first", "second"):
            undo = ["sh", "-c", f"echo {word} >>{log}"]
            assert agent.ask(change=word, undo=undo) == {"id": 1, "recorded": True}
        started = psutil.Process(agent.ask(spawn=True, argv=["sleep", "600"])["pid"])
        assert (
            "another brobust"
            in subprocess.run(agent.process.args, capture_output=True, text=True, env=_of(runtime)).stderr
        )
        if end == "hangs up":
            assert agent.process.stdin is not None
            agent.process.stdin.close()
        elif end == "agent is killed":
            agent.process.kill()
        status = agent.process.wait(30)
        assert status == (-signal.SIGKILL if end == "agent is killed" else 0)
    assert eventually(lambda: [entry.name for entry in runtime.iterdir()] == ["lock"])
    assert log.read_text() == "second\nfirst\n"
    assert eventually(lambda: not started.is_running() or started.status() == psutil.STATUS_ZOMBIE)


def _of(runtime: Path) -> dict[str, str]:
    return {**os.environ, "BROBUST_RUNTIME": str(runtime)}


@pytest.mark.root
def test_an_agent_without_root_says_that_it_needs_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with Asked(tmp_path / "run", "setpriv", "--reuid", "65534", "--clear-groups") as agent:
        _, said = agent.process.communicate(timeout=60)
    assert agent.process.returncode == 2
    assert said.decode() == "brobust: measuring here needs root; log in as root, or let sudo need no password\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.root
@pytest.mark.host
def test_a_cpu_that_is_away_makes_timers_late_also_where_nobody_reports_steal() -> None:
    def late_share(away: signal.Signals) -> float:
        with subprocess.Popen([host_program(), "lab", "load"], stdout=subprocess.PIPE) as observer:
            for _ in range(10):
                time.sleep(0.04)
                observer.send_signal(away)
                time.sleep(0.1)
                observer.send_signal(signal.SIGCONT)
            observer.terminate()
            said, _ = observer.communicate()
        assert observer.returncode == 0
        share: float = json.loads(said)["late_share"]
        return share

    # A third of the few that it has between two stops are late; this machine's own hypervisor makes a few in a hundred.
    taken, left = late_share(signal.SIGSTOP), late_share(signal.SIGCONT)
    assert taken > 2 * left, (taken, left)
