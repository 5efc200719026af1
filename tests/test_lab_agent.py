"""The agent of backend lab, without ssh: it undoes everything when whoever asks it is gone, or says nothing."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Self

import psutil
import pytest

from brobust.host.programs import host_program
from conftest import eventually, killed_at_end


class Asked:
    """An agent, and what it answers."""

    def __init__(self, runtime: Path, *before: str, silence_seconds: int = 60):
        self.process = subprocess.Popen(
            [*before, host_program(), "lab", "agent", "--silence", str(silence_seconds)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "BROBUST_RUNTIME": str(runtime)},
        )  # fmt: skip

    def __enter__(self) -> Self:
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
    with Asked(runtime, silence_seconds=8 if end == "says nothing" else 60) as agent:
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
        status = agent.process.wait(60)
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


@contextmanager
def _before_all_others() -> Iterator[None]:
    """Meanwhile this thread runs as soon as it wakes up, whatever else wants the CPU."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(10))
    except PermissionError:
        pytest.skip("this host gives nobody a priority ahead of ordinary tasks")
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.root
@pytest.mark.host
def test_a_cpu_that_is_away_makes_timers_late_also_where_nobody_reports_steal() -> None:
    load = [host_program(), "lab", "load"]
    with ExitStack() as stack:
        with _before_all_others():
            observers = [stack.enter_context(killed_at_end(load, stdout=subprocess.PIPE)) for _ in range(2)]
            for _ in range(30):
                time.sleep(0.04)
                observers[0].send_signal(signal.SIGSTOP)
                time.sleep(0.1)
                observers[0].send_signal(signal.SIGCONT)
            for observer in observers:
                observer.terminate()
        taken, left = (json.loads(observer.communicate()[0])["late_share"] for observer in observers)
    assert [observer.returncode for observer in observers] == [0, 0]
    # At each stop one is late, of the three that there are between two. Of the others, those are late for which this
    # machine's own hypervisor takes the CPU away, of both observers: a few in a hundred, or many.
    assert 1 - taken < 0.92 * (1 - left), (taken, left)
