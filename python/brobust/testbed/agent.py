"""Talk to the agent in a guest, or on a host of backend lab (crates/guest): JSON lines, over a virtio-serial port or
ssh.

Several requests may be under way at once; a thread reads the replies and hands each to the caller that waits for it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar

from brobust.errors import RunFailed, last_line

# Our agent keeps at most 64 MiB of each output (crates/guest/src/agent/collect.rs).
MAX_REPLY_BYTES = 128 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """The exit status and the output of a command, and whether it was ended because its time was up."""

    status: int
    stdout: str
    stderr: str
    timed_out: bool


class Agent:
    """A connection to the agent of one machine. Times are in seconds. The command `brobust` is our own program there
    (crates/command/src/lab.rs), wherever it is."""

    def __init__(self, name: str, wire: socket.socket, when_lost: str = "it died"):
        """`name`: what refusals call the machine, such as "sender guest". `when_lost`: what they say when the
        connection ends."""
        self.name = name
        self._program = ["brobust-host", "lab"]
        self._when_lost = when_lost
        self._socket = wire
        self._lost = ""
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._peers: list[Agent] = []
        self._reader = threading.Thread(target=self._read, name=f"agent-{name}", daemon=True)
        self._reader.start()

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is broken, so that no reply will come any more."""
        return bool(self._lost)

    def ready(self, timeout: float) -> None:
        """Wait until the agent answers. Requests are repeated, since the guest loses what is sent before it has opened
        its port."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.ping(0.5)
                return
            except RunFailed:
                if time.monotonic() >= deadline:
                    raise

    def ping(self, timeout: float) -> None:
        """Wait until the agent answers; raise RunFailed if it does not within this time."""
        self._ask({"ping": True}, timeout)

    def run(self, *argv: str, timeout: float = 30) -> str:
        """Run a command to its end and return what it printed; if it fails, raise RunFailed with its last line."""
        output = self.try_run(*argv, timeout=timeout)
        if output.timed_out:
            raise RunFailed(f"{self.name}: `{' '.join(argv)}` did not end within {timeout:g} s")
        if output.status != 0:
            last = last_line(output.stderr.strip() or output.stdout)
            raise RunFailed(f"{self.name}: `{' '.join(argv)}` failed with status {output.status}: {last}")
        return output.stdout

    def try_run(self, *argv: str, timeout: float = 30) -> Output:
        """Run a command to its end and return its status and output, also if it fails."""
        return self._output(self._ask({"argv": list(argv), "timeout_s": timeout}, timeout + 10))

    def spawn(self, *argv: str) -> int:
        """Start a command and return its process id there."""
        reply = self._ask({"argv": list(argv), "spawn": True}, 30)
        return self._field(reply, "pid", int)

    def wait(self, pid: int, timeout: float) -> Output:
        """Wait for a spawned command. Nothing polls, so waiting costs the machine no CPU time."""
        return self._output(self._ask({"wait": pid, "timeout_s": timeout}, timeout + 10))

    def kill(self, pid: int) -> None:
        """Kill a spawned command."""
        self._ask({"kill": pid}, 10)

    def record(self, change: str, *undo: str) -> None:
        """Have the agent undo a change by this command when it ends, however it ends. Call this before the change is
        made. `undo` must succeed where nothing is left to undo."""
        self._ask({"change": change, "undo": list(undo)}, 10)

    def give_up_with(self, peer: Agent) -> None:
        """When the peer's connection ends, fail what waits for this machine at that moment: a sender whose receiver has
        died would wait until its time is over."""
        peer._peers.append(self)

    def close(self) -> None:
        """Close the connection and end its thread."""
        # Closing the socket alone would not wake the reader, which keeps the descriptor open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join()

    def _output(self, reply: dict[str, Any]) -> Output:
        if reply.get("truncated"):
            raise RunFailed(f"{self.name}: a command printed more than 64 MiB, the most that its agent keeps")
        return Output(
            status=self._field(reply, "status", int),
            stdout=self._field(reply, "stdout", str),
            stderr=self._field(reply, "stderr", str),
            timed_out=bool(reply.get("timed_out")),
        )

    def _field(self, reply: dict[str, Any], name: str, kind: type[T]) -> T:
        """Return a field of a reply, or refuse the reply: what a guest sends cannot be trusted."""
        value = reply.get(name)
        if not isinstance(value, kind):
            raise RunFailed(f"{self.name}: its agent answered without {name}")
        return value

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        if request.get("argv", [""])[0] == "brobust":
            request = {**request, "argv": [*self._program, *request["argv"][1:]]}
        number = next(self._ids)
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._lost:
                raise RunFailed(f"{self.name}: {self._lost}")
            self._waiting[number] = future
            try:
                self._socket.sendall(json.dumps({"id": number, **request}).encode() + b"\n")
            except OSError as error:
                # The reader finds this out, too, but may not have come to it yet.
                self._lost = self._when_lost
                raise RunFailed(f"{self.name}: its agent is gone ({error})") from None
        try:
            reply = future.result(timeout)
        except FutureTimeout:
            raise RunFailed(f"{self.name}: no answer within {timeout:g} s to {_brief(request)}") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in reply:
            raise RunFailed(f"{self.name}: {_brief(request)}: {reply['error']}")
        return reply

    def _read(self) -> None:
        lost = self._when_lost
        try:
            with self._socket.makefile("rb") as lines:
                while line := lines.readline(MAX_REPLY_BYTES):
                    if len(line) == MAX_REPLY_BYTES:
                        lost = f"its agent answered with more than {MAX_REPLY_BYTES >> 20} MiB"
                        break
                    self._answer(line)
        except (OSError, ValueError):
            pass
        with self._lock:
            self._lost = lost
        for agent in (self, *self._peers):
            agent._give_up(f"{self.name}: {lost}")

    def _give_up(self, why: str) -> None:
        with self._lock:
            waiting = list(self._waiting.values())
        for future in waiting:
            with contextlib.suppress(InvalidStateError):  # it was answered
                future.set_exception(RunFailed(why))

    def _answer(self, line: bytes) -> None:
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            return
        number = reply.get("id") if isinstance(reply, dict) else None
        future = self._waiting.get(number) if isinstance(number, int) else None
        if future is not None:
            with contextlib.suppress(InvalidStateError):  # it was given up
                future.set_result(reply)


class Within(Agent):
    """The same agent, whose commands run by way of another one, such as `ip netns exec NAME`. `program`: the path of
    our program on that machine, and the words before its commands."""

    def __init__(self, agent: Agent, name: str, prefix: Sequence[str], program: Sequence[str]):
        self.name = name
        self._agent, self._prefix, self._program = agent, list(prefix), list(program)

    @property
    def is_lost(self) -> bool:
        return self._agent.is_lost

    def record(self, change: str, *undo: str) -> None:
        self._agent.record(f"{change} of {self.name}", *self._prefix, *undo)

    def close(self) -> None:
        """Do nothing: the connection is the other one's."""

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        if "argv" in request:
            program, *arguments = request["argv"]
            first = self._program if program == "brobust" else [program]
            request = {**request, "argv": [*self._prefix, *first, *arguments]}
        return self._agent._ask(request, timeout)


def _brief(request: dict[str, Any]) -> str:
    """Return what a request asks for, in words."""
    if "argv" in request:
        return f"`{' '.join(request['argv'])}`"
    if "wait" in request:
        return f"waiting for process {request['wait']}"
    if "kill" in request:
        return f"killing process {request['kill']}"
    return f"noting {request['change']}" if "change" in request else "a ping"
