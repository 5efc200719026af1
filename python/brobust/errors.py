"""The errors a user sees: one line each, exit status 2, never a traceback."""

from __future__ import annotations

import os
import unicodedata
from typing import Any


class BrobustError(Exception):
    """Bad input or missing support. The text names what was wrong and how to mend it."""

    exit_status = 2


class BadInput(BrobustError):
    """A value given by the user cannot be used."""


class MissingSupport(BrobustError):
    """This machine lacks something that the request needs."""


class RunFailed(BrobustError):
    """One run could not be measured. Recorded as a failure, with what is known of the run all the same as columns of
    its record; the series goes on."""

    def __init__(self, reason: str, **columns: Any):
        super().__init__(reason)
        self.columns = columns


class GuestDied(RunFailed):
    """A guest's kernel panicked, or its QEMU ended. What was asked of it may be asked of a new one."""


class UnreadableFile(UserWarning):
    """A file of a dataset is left out."""


def debugging() -> bool:
    """Return whether BROBUST_DEBUG asks for tracebacks."""
    return bool(os.environ.get("BROBUST_DEBUG"))


def said(error: BaseException) -> str:
    """Say in one line what an exception says that is no refusal of ours."""
    if isinstance(error, BrobustError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}" if error.filename is not None else error.strerror
    return f"{type(error).__name__}: {error} (a mistake in brobust; BROBUST_DEBUG=1 shows where)"


def printable(text: str) -> str:
    """Return the text with what a terminal would act on, or not show, written as in Python: a name may hold escape
    sequences, and be somebody else's."""
    return "".join(letter if _is_harmless(letter) else letter.encode("unicode_escape").decode() for letter in text)


def _is_harmless(letter: str) -> bool:
    # Cc: control, Cf: also the ones that turn the direction, Cs: half a character, of a file name that is no UTF-8
    return letter.isprintable() or unicodedata.category(letter) == "Zs"
