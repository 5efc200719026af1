"""Record everything that a command changes on the host, and undo it, whichever process dies (crates/host).

A session's directory is in /run/brobust, or where BROBUST_RUNTIME says.
"""

from types import TracebackType
from typing import Self

from brobust import _core
from brobust.errors import BrobustError, MissingSupport
from brobust.host.programs import host_program

# What is said where another process has a session (crates/host/src/session.rs).
ANOTHER = "another brobust"


class Session(_core.Session):
    """The session of this process. A context manager: leaving it undoes everything."""

    @classmethod
    def start(cls, *, beside_others: bool = False) -> Self:
        """Begin a session of this process, and start its guardian."""
        return cls(str(host_program()), beside_others)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.end()
        except MissingSupport as problem:
            if isinstance(value, BrobustError):  # the user must see both
                raise MissingSupport(f"{value}; {problem}") from None
            raise
