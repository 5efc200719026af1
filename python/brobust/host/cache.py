"""The directory in which brobust keeps what it has fetched and built."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brobust import files
from brobust.errors import MissingSupport


def cache_directory() -> Path:
    """Return the directory for kernels and guest images: $BROBUST_CACHE, else brobust's in the user's cache."""
    if named := os.environ.get("BROBUST_CACHE"):
        # What is built there runs in other directories. And what a file of settings says no shell has expanded.
        return Path(os.path.expanduser(named)).absolute()  # noqa: PTH111 # pathlib's raises where there is no home
    of_user = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not of_user.is_absolute():  # the XDG Base Directory Specification ignores such a one
        try:
            of_user = Path.home() / ".cache"
        except RuntimeError:  # a user of whom this system knows nothing, without HOME
            raise MissingSupport(
                "nobody knows where kernels are to be kept: this user has no home directory; set BROBUST_CACHE to a "
                "directory of its own"
            ) from None
    return of_user / "brobust"


@contextmanager
def scratch_beside(place: Path) -> Iterator[Path]:
    """Yield a new directory for what is to be renamed to its place, so that what is half made never looks like it. Say
    so where there is no room."""
    files.make_directory(place.parent)
    with (
        files.writing_to(place.parent),
        files.temporary_directory(place.parent) as scratch,
        files.writing_to(place.parent),  # before the scratch directory is removed
    ):
        yield scratch
