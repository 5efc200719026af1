"""Programs that end with the process that starts them."""

from __future__ import annotations

import os
from collections.abc import Sequence

# The parent may be killed after the fork and before the prctl, and then no signal comes: so ask who the parent is.
_IF_PARENT_LIVES = 'p=$1; shift; [ "$PPID" = "$p" ] && exec "$@"'


def ends_with_us(command: Sequence[str]) -> list[str]:
    """Return the command, such that it is killed as soon as the thread that starts it ends, also by kill -9."""
    guard = ["sh", "-c", _IF_PARENT_LIVES, "sh", str(os.getpid())]
    return ["setpriv", "--pdeathsig", "KILL", "--", *guard, *command]
