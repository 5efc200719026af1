"""The errors a user sees: one line each, exit status 2, never a traceback."""

from __future__ import annotations


class BrobustError(Exception):
    """Bad input or missing support. The text names what was wrong and how to mend it."""

    exit_status = 2


class BadInput(BrobustError):
    """A value given by the user cannot be used."""


class MissingSupport(BrobustError):
    """This machine lacks something that the request needs."""


class RunFailed(BrobustError):
    """One run could not be measured. Recorded as a failure; the series goes on."""
