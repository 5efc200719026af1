"""Start programs that end with the process that started them."""

from __future__ import annotations

import os
from collections.abc import Sequence

# The parent may be killed between the fork and the prctl, and then no signal comes. So the child checks its parent.
_IF_PARENT_LIVES = 'p=$1; shift; [ "$PPID" = "$p" ] && exec "$@"'


def ends_with_us(command: Sequence[str]) -> list[str]:
    """Return the command such that the kernel kills it as soon as the thread that started it ends, even by kill -9."""
    guard = ["sh", "-c", _IF_PARENT_LIVES, "sh", str(os.getpid())]
    return ["setpriv", "--pdeathsig", "KILL", "--", *guard, *command]
