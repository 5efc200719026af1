"""Start programs that end with the process that started them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

END_SECONDS = 0.5
"""What a group of programs has to remove its half-written files."""

# The parent may be killed between the fork and the prctl, and then no signal comes. So the child checks its parent.
_IF_PARENT_LIVES = 'p=$1; shift; [ "$PPID" = "$p" ] && exec "$@"'


def killed_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command such that the kernel kills it as soon as the thread that started it ends, even by kill -9."""
    guard = ["sh", "-c", _IF_PARENT_LIVES, "sh", str(os.getpid())]
    return ["setpriv", "--pdeathsig", "KILL", "--", *guard, *command]


@contextlib.contextmanager
def group(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a program in a process group of its own. An error or Ctrl-C in the context ends the group: a compiler goes on
    when only the make that started it ends."""
    with subprocess.Popen(command, process_group=0, text=True, errors="replace", **options) as leader:
        try:
            yield leader
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    leader.wait(END_SECONDS)
                os.killpg(leader.pid, signal.SIGKILL)
            raise
