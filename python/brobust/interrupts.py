"""End a command by Ctrl-C, SIGTERM or SIGHUP: each raises KeyboardInterrupt in the main thread, once, where it is kept.

Python prints and forgets an exception that is raised in a `__del__` or in the callback of a weak reference, such as
every import makes. Code that is being imported may turn it into another error, and so does pydantic where it calls a
serializer; polars panics where it asks Python for a type, with a backtrace on stderr. In the start of a child it leaves
a process that nobody knows of, and in that of a thread a lock that nobody gives back, so that the thread waits for
ever. So the exception waits for the end of such code, and is raised again if it was lost.
"""

from __future__ import annotations

import signal
import sys
import time
from functools import wraps
from weakref import ref

TYPE_CHECKING = False  # as in __init__.py
if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from types import FrameType
    from typing import Any, NoReturn, ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 0.05
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 1.0
"""For so long it waits at most: a command has to end within two seconds."""

# In these functions, and in all that they call, it waits. `__exit__` cleans up, perhaps after a success.
DELICATE = frozenset({"__del__", "__exit__"})
DELICATE_METHODS = frozenset({
    "Popen.__init__", "Popen.__enter__", "Thread.start", "Condition.__enter__", "Condition._acquire_restore",
    "Condition._release_save", "_UnixSelectorEventLoop.__init__", "finished_first.<locals>.delicate",
})  # fmt: skip
DELICATE_CLASS = "TemporaryDirectory."
DELICATE_PACKAGES = frozenset({"polars", "pydantic"})
IMPORT = "<frozen importlib._bootstrap>"


class Interrupt(KeyboardInterrupt):
    """What ends the command. As long as it lives, somebody is cleaning up because of it."""


_first: float | None = None
_raised: ref[Interrupt] | None = None
_show_unraisable = sys.unraisablehook


def finished_first(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function such that an interrupt waits for its end, because half of what it does would have to be
    undone. It must take much less than a second."""

    @wraps(function)
    def delicate(*arguments: P.args, **options: P.kwargs) -> R:
        return function(*arguments, **options)

    return delicate


def started(function: Callable[..., R], *arguments: Any, **options: Any) -> Future[R]:
    """Call a function in a thread that nobody waits for when the command ends."""
    from concurrent.futures import Future
    from threading import Thread

    future: Future[R] = Future()

    def call() -> None:
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=call, daemon=True).start()
    return future


def result_of(future: Future[R], seconds: float = float("inf")) -> R:
    """Return the result of what another thread does, or raise TimeoutError after so long. It is asked for again and
    again, because a signal does not end each wait of the main thread."""
    end = time.monotonic() + seconds
    while True:
        try:
            return future.result(timeout=POLL_SECONDS)
        except TimeoutError:
            if future.done() or time.monotonic() >= end:
                raise


def catch() -> None:
    """From now on these signals end the command. One that is ignored stays so: nohup ignores SIGHUP, and a shell
    ignores SIGINT for what it starts in the background."""
    sys.unraisablehook = _note_unraisable
    signal.signal(signal.SIGALRM, _end)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end)


def release() -> None:
    """From now on these signals kill the process: it has nothing to clean up any more."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def end_quietly() -> None:
    """Raise the exception no more: the command has ended, and is about to say why. After that nobody holds it any
    longer; it would look like a lost one, and a second sentence would follow the first."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def hand_over(number: signal.Signals, handler: Callable[[int, FrameType | None], None]) -> None:
    """Have another function handle a signal from now on, unless it is ignored. One that has already come ends the
    command here."""
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)
    if _first is not None:
        _raise()


def hold_for_exec() -> None:
    """Keep these signals for the program that this process is about to become; it has to unblock them. One that has
    already come ends the command here."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    if _first is not None:
        _raise()


def _end(number: int, frame: FrameType | None) -> None:
    """Raise the exception if this is the moment for it. A timer calls this until the command has ended."""
    global _first
    now = time.monotonic()
    if _first is None:
        if number == signal.SIGALRM:
            return
        _first = now
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
    is_cleaning_up = _raised is not None and _raised() is not None
    if not is_cleaning_up and (now - _first >= PATIENCE_SECONDS or not _is_delicate(frame)):
        _raise()


def _raise() -> NoReturn:
    global _raised
    error = Interrupt()
    _raised = ref(error)
    try:
        raise error
    finally:
        del error  # this frame is in its traceback, and would keep it alive


def _is_delicate(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        name = code.co_qualname
        if code.co_filename == IMPORT or code.co_name in DELICATE or name in DELICATE_METHODS:
            return True
        if name.startswith(DELICATE_CLASS):
            return True
        if str(frame.f_globals.get("__name__")).partition(".")[0] in DELICATE_PACKAGES:
            return True
        frame = frame.f_back
    return False


def _note_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Say nothing of an interrupt that Python has lost: it is raised again."""
    if not isinstance(unraisable.exc_value, Interrupt):
        _show_unraisable(unraisable)
