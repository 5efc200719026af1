"""The host's end of the wire to a guest's agent (crates/guest): JSON lines over a virtio-serial port.

Several requests may be under way at once; a thread reads the replies and hands each to whoever waits for it.
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
from pathlib import Path
from typing import Any

from brobust.errors import RunFailed


@dataclass(frozen=True)
class Output:
    """How a command in a guest ended."""

    status: int
    stdout: str
    stderr: str


class Agent:
    """A connection to one guest. Times in seconds."""

    def __init__(self, name: str, path: Path):
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"agent-{name}", daemon=True)
        self._reader.start()

    def ready(self, timeout: float) -> None:
        """Wait until the agent answers. Bytes sent before the guest opened its port may be lost, so ask again."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._ask({"ping": True}, 0.5)
                return
            except RunFailed:
                if time.monotonic() >= deadline:
                    raise

    def run(self, *argv: str, timeout: float = 30) -> str:
        """Run a command to its end and return what it printed; failing is an error that quotes it."""
        output = self.try_run(*argv, timeout=timeout)
        if output.status != 0:
            last = (output.stderr.strip() or output.stdout.strip() or "no message").splitlines()[-1]
            raise RunFailed(f"{self.name} guest: `{' '.join(argv)}` failed with status {output.status}: {last}")
        return output.stdout

    def try_run(self, *argv: str, timeout: float = 30) -> Output:
        reply = self._ask({"argv": list(argv), "timeout_s": timeout}, timeout + 10)
        return Output(reply["status"], reply["stdout"], reply["stderr"])

    def spawn(self, *argv: str) -> int:
        """Start a command and return its process id in the guest."""
        return int(self._ask({"argv": list(argv), "spawn": True}, 30)["pid"])

    def wait(self, pid: int, timeout: float) -> Output:
        """Wait for a spawned command. The guest sleeps meanwhile: nothing polls."""
        reply = self._ask({"wait": pid, "timeout_s": timeout}, timeout + 10)
        return Output(reply["status"], reply["stdout"], reply["stderr"])

    def kill(self, pid: int) -> None:
        self._ask({"kill": pid}, 10)

    def close(self) -> None:
        # Closing alone leaves the reader in its read, and the descriptor open with it.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._reader.join()

    def _ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        number = next(self._ids)
        future: Future[dict[str, Any]] = Future()
        with self._lock:
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
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._answer(line)
        except (OSError, ValueError):
            pass
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(RunFailed(f"{self.name} guest: it died"))

    def _answer(self, line: bytes) -> None:
        try:
            reply = json.loads(line)
        except ValueError:
            return  # half a line from before a reconnect
        future = self._waiting.get(reply.get("id"))
        if future is not None and not future.done():
            future.set_result(reply)


def _brief(request: dict[str, Any]) -> str:
    return " ".join(request["argv"]) if "argv" in request else json.dumps(request)
