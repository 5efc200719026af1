"""Talk to the agent in a guest (crates/guest): JSON lines over a virtio-serial port.

Several requests may be under way at once; a thread reads the replies and hands each to the caller that waits for it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any, TypeVar

from brobust.errors import RunFailed

# Our agent keeps at most 64 MiB of each output (crates/guest/src/agent/collect.rs).
MAX_REPLY_BYTES = 128 << 20

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """The exit status and the output of a command in a guest."""

    status: int
    stdout: str
    stderr: str


class Agent:
    """A connection to the agent of one guest. Times are in seconds."""

    def __init__(self, name: str, wire: socket.socket):
        self.name = name
        self._socket = wire
        self._lost = ""
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
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
                self._ask({"ping": True}, 0.5)
                return
            except RunFailed:
                if time.monotonic() >= deadline:
                    raise

    def run(self, *argv: str, timeout: float = 30) -> str:
        """Run a command to its end and return what it printed; if it fails, raise RunFailed with its last line."""
        output = self.try_run(*argv, timeout=timeout)
        if output.status != 0:
            last = (output.stderr.strip() or output.stdout.strip() or "no message").splitlines()[-1]
            raise RunFailed(f"{self.name} guest: `{' '.join(argv)}` failed with status {output.status}: {last}")
        return output.stdout

    def try_run(self, *argv: str, timeout: float = 30) -> Output:
        """Run a command to its end and return its status and output, also if it fails."""
        return self._output(self._ask({"argv": list(argv), "timeout_s": timeout}, timeout + 10))

    def spawn(self, *argv: str) -> int:
        """Start a command and return its process id in the guest."""
        reply = self._ask({"argv": list(argv), "spawn": True}, 30)
        return self._field(reply, "pid", int)

    def wait(self, pid: int, timeout: float) -> Output:
        """Wait for a spawned command. Nothing polls, so waiting costs the guest no CPU time."""
        return self._output(self._ask({"wait": pid, "timeout_s": timeout}, timeout + 10))

    def kill(self, pid: int) -> None:
        """Kill a spawned command."""
        self._ask({"kill": pid}, 10)

    def close(self) -> None:
        """Close the connection and end its thread."""
        # Closing the socket alone would not wake the reader, which keeps the descriptor open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join()

    def _output(self, reply: dict[str, Any]) -> Output:
        if reply.get("truncated"):
            raise RunFailed(f"{self.name} guest: a command printed more than 64 MiB, the most that its agent keeps")
        return Output(
            self._field(reply, "status", int), self._field(reply, "stdout", str), self._field(reply, "stderr", str)
        )

    def _field(self, reply: dict[str, Any], name: str, kind: type[T]) -> T:
        """Return a field of a reply, or refuse the reply: what a guest sends cannot be trusted."""
        value = reply.get(name)
        if not isinstance(value, kind):
            raise RunFailed(f"{self.name} guest: its agent answered without {name}")
        return value

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        number = next(self._ids)
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._lost:
                raise RunFailed(f"{self.name} guest: {self._lost}")
            self._waiting[number] = future
            try:
                self._socket.sendall(json.dumps({"id": number, **request}).encode() + b"\n")
            except OSError as error:
                raise RunFailed(f"{self.name} guest: its agent is gone ({error})") from None
        try:
            reply = future.result(timeout)
        except FutureTimeout:
            raise RunFailed(f"{self.name} guest: no answer within {timeout:g} s to {_brief(request)}") from None
        finally:
            self._waiting.pop(number, None)
        if "error" in reply:
            raise RunFailed(f"{self.name} guest: {_brief(request)}: {reply['error']}")
        return reply

    def _read(self) -> None:
        lost = "it died"
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
            waiting = list(self._waiting.values())
        for future in waiting:
            if not future.done():
                future.set_exception(RunFailed(f"{self.name} guest: {lost}"))

    def _answer(self, line: bytes) -> None:
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            return
        number = reply.get("id") if isinstance(reply, dict) else None
        future = self._waiting.get(number) if isinstance(number, int) else None
        if future is not None and not future.done():
            future.set_result(reply)


def _brief(request: dict[str, Any]) -> str:
    return " ".join(request["argv"]) if "argv" in request else json.dumps(request)
