"""The errors a user sees: one line each, exit status 2, never a traceback."""

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST = 2000  # letters of a refusal, or of the reason of a failed run


def meant(name: str, known: Iterable[str]) -> str | None:
    """Return the one of these names of which this is probably a slip: bbr_steady for bbr_stedy, but not brb_reno for
    brb_copa. None if there is none."""
    import difflib  # only a refusal needs it

    return next(iter(difflib.get_close_matches(name, known, 1, 0.75)), None)


class BrobustError(Exception):
    """Bad input or missing support. The text names what is wrong and how to mend it."""

    exit_status = 2
    last_lines: Sequence[str] = ()
    """What a program said last that failed, to be shown before the text."""


class BadInput(BrobustError):
    """A value given by the user cannot be used."""


class Interrupted(BrobustError):
    """The user pressed Ctrl-C, and the text says what is kept."""

    exit_status = 130


class MissingSupport(BrobustError):
    """This machine lacks something that the request needs."""


class CutShort(BrobustError):
    """Something ended early although nothing is wrong with the request. What was complete before still is. `remedy` is
    what the user has to do before `then`."""

    exit_status = 1

    def __init__(self, what: str, remedy: str, then: str = "repeat the command"):
        super().__init__(what, remedy, then)
        self.what, self.remedy, self.then = what, remedy, then

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}, then {self.then}"


class WriteFailed(CutShort):
    """Something could not be written: a disk is full or broken, or a limit is reached."""


class HostLost(CutShort):
    """A host that measures no longer answers."""


class RunFailed(BrobustError):
    """One run could not be measured. Its record gets the outcome `failed`, and `columns` with what is known of the run
    nevertheless; the series goes on. `programs`: rows of the table programs, where one of these is the reason."""

    def __init__(self, reason: str, programs: Sequence[dict[str, Any]] = (), **columns: Any):
        # Programs in Rust put a number behind the system's words. A guest may say half a character; no file takes one.
        said = shortened(reason).encode(errors="replace").decode()
        super().__init__(re.sub(r" \(os error \d+\)", "", said))
        self.columns, self.programs = columns, programs


class GuestDied(RunFailed):
    """A guest's kernel panicked, or its QEMU ended. The request may be repeated with a new guest."""


class Remark(UserWarning):
    """Something that the user must know although the command goes on."""


class UnreadableFile(Remark):
    """A file of a dataset cannot be read and is left out."""


def debugging() -> bool:
    """Return whether the environment variable BROBUST_DEBUG asks for tracebacks."""
    return bool(os.environ.get("BROBUST_DEBUG"))


def one_line(error: BaseException) -> str:
    """Return any exception as one line, also one that is not a BrobustError."""
    if isinstance(error, BrobustError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {reason(error)}" if error.filename is not None else error.strerror
    return f"{type(error).__name__}: {error} (a mistake in brobust; BROBUST_DEBUG=1 shows where)"


def reason(error: Exception) -> str:
    """Return what the system says about an error, without its number: `permission denied`."""
    return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()


def last_line(said: str, otherwise: str = "no message") -> str:
    """Return the last line of what a program said, which says why it failed; without the name with which ours begin."""
    return (said.strip().splitlines() or [otherwise])[-1].removeprefix("brobust: ")


def shortened(text: str) -> str:
    """Return the text, without its middle if it is too long to be read: what a host or a guest says may have 64 MiB."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def printable(text: str) -> str:
    """Return the text with control characters and invisible ones written as in Python. A name may come from somebody
    else, and a terminal would act on escape sequences in it."""
    return "".join(letter if _is_harmless(letter) else letter.encode("unicode_escape").decode() for letter in text)


def _is_harmless(letter: str) -> bool:
    # Harmful categories: Cc control characters; Cf, which can change the direction of text; Cs, half characters from
    # file names that are not UTF-8.
    return letter.isprintable() or unicodedata.category(letter) == "Zs"
