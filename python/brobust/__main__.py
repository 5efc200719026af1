"""The entry point of `brobust` and of `python -m brobust`.

Importing the command line may take a second, and Ctrl-C in that second must not print a traceback. So signals are taken
before anything else is imported.
"""

import _signal  # type: ignore[import-not-found] # not signal, whose import takes as long as Python's start

# A mere Ctrl-C ends the process until interrupts.catch() is called: there is nothing to clean up yet.
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> "NoReturn":
    """Run the command line."""
    import contextlib
    import os

    from brobust import interrupts

    interrupts.catch()
    if os.geteuid() == 0:
        # Root refuses a cache that others may write (host/locks.py), also one that it has made itself with umask 002.
        os.umask(os.umask(0o022) | 0o022)
    try:
        from brobust import cli

        cli.main()
    except KeyboardInterrupt:  # before cli.main() could take it, or after that
        with contextlib.suppress(OSError):  # the terminal is gone
            os.write(2, b"brobust: interrupted\n")
        os._exit(130)
    finally:
        interrupts.release()


if __name__ == "__main__":
    main()
