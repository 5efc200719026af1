"""A guardian: a process that undoes what another process changed on the host if that one is killed or gets stuck."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Literal

from brobust.errors import MissingSupport, RunFailed
from brobust.host.owner import Owner

End = Literal["dismissed", "ended", "stuck"]

_READY, _ALIVE, _DONE = b"ready\n", b"alive\n", b"done\n"


class Guardian:
    """The handle of a guardian in the process that it guards."""

    def __init__(self, process: subprocess.Popen[bytes]):
        self.process = process

    @classmethod
    def start(cls, module: str, *arguments: str) -> Guardian:
        """Start a module as the guardian of this process, and wait until it calls `wait_for_end`.

        The guardian is a separate program in its own process session, so a signal to our process group does not reach
        it. It runs as root, so it must not import anything from the user's current directory: hence -P and cwd.
        """
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        with process.stdout:
            if process.stdout.readline() != _READY:
                process.kill()
                process.communicate()
                raise MissingSupport(f"the guardian process ({module}) did not start, so nothing was changed")
        process.stdout = None
        return cls(process)

    def say_alive(self) -> None:
        """Tell the guardian that this process is not stuck. Raise RunFailed if there is no guardian any more."""
        assert self.process.stdin is not None
        try:
            os.write(self.process.stdin.fileno(), _ALIVE)
        except BrokenPipeError:
            raise RunFailed(f"the guardian process ({self.process.pid}) was killed; repeat the command") from None

    def dismiss(self) -> None:
        """Tell the guardian that nothing is left to undo, and wait until it has ended."""
        with suppress(subprocess.TimeoutExpired):  # somebody has stopped it, but it will read the message
            self.process.communicate(_DONE, timeout=10)


def wait_for_end(silence_seconds: float | None = None) -> End:
    """In the guardian: wait until the guarded process has dismissed it, has ended without doing so, or has sent nothing
    for `silence_seconds` (None: for ever) and has been killed by the guardian. Return which.

    The caller must undo everything before it prints why: the process may have been stuck on a stopped terminal.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = Owner.of(os.getppid())
    _get_priority()
    with suppress(BrokenPipeError):  # the process was killed before it could read this; its changes are undone as well
        os.write(sys.stdout.fileno(), _READY)
    received, silent = b"", 0.0
    pipe = sys.stdin.fileno()
    # Silence is counted in short steps. A guardian that could not run itself, because the machine was paused, must not
    # take that time for the process's silence.
    step = 1.0 if silence_seconds is None else min(1.0, silence_seconds / 4)
    while silence_seconds is None or silent < silence_seconds:
        if not select.select([pipe], [], [], step)[0]:
            silent += step
            continue
        silent = 0.0
        chunk = os.read(pipe, 4096)
        received = (received + chunk)[-len(_DONE) :]
        if received == _DONE:
            return "dismissed"
        if not chunk:
            return "ended"
    with suppress(MissingSupport):  # its changes are undone even if it cannot be killed
        owner.kill()
    return "stuck"


def _get_priority() -> None:
    """Run before everything that may keep CPUs busy, real-time threads included. The guardian hardly runs itself."""
    with suppress(OSError):  # without the right to do so, the process cannot have caused such contention either
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(99))
