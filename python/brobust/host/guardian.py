"""A process that takes back what another one did to the host, should that one be killed or fall silent."""

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
    """The guardian, as seen by the process that it guards."""

    def __init__(self, process: subprocess.Popen[bytes]):
        self.process = process

    @classmethod
    def start(cls, module: str, *arguments: str) -> Guardian:
        """Start a module as the guardian of this process, and wait until it calls `wait_for_end`.

        It is a program of its own in a session of its own: whatever kills this process's group leaves it alone. -P and
        the working directory: it runs as root, and must import nothing from where the user happens to stand.
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
        """Tell the guardian that this process is not stuck; refuse to go on without a guardian."""
        assert self.process.stdin is not None
        try:
            os.write(self.process.stdin.fileno(), _ALIVE)
        except BrokenPipeError:
            raise RunFailed(f"the guardian process ({self.process.pid}) has been killed; start again") from None

    def dismiss(self) -> None:
        """Tell the guardian that nothing is left to take back, and wait until it has ended."""
        with suppress(subprocess.TimeoutExpired):  # stopped by somebody: it has the message
            self.process.communicate(_DONE, timeout=10)


def wait_for_end(silence_seconds: float | None = None) -> End:
    """In the guardian: wait until the process that started it has dismissed it, or has ended without that, or has said
    nothing for `silence_seconds` (None: it may be silent) and was killed for it. Say why only after all is taken back:
    a terminal that is stopped may have been what it was stuck on."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = Owner.of(os.getppid())
    _come_first()
    with suppress(BrokenPipeError):  # killed before it could hear that: what it wrote down is taken back all the same
        os.write(sys.stdout.fileno(), _READY)
    received, silent = b"", 0.0
    pipe = sys.stdin.fileno()
    # In steps: a guardian that could not run itself, on a machine that was paused, must not call another one silent.
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
    with suppress(MissingSupport):  # what it does is taken back all the same
        owner.kill()
    return "stuck"


def _come_first() -> None:
    """Run before all that the guarded process may keep busy, real-time threads too; it is awake for moments only."""
    with suppress(OSError):  # without the right to, there is no such contention either
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(99))
