"""The directory in which brobust keeps what it has fetched and built."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory for kernels and guest images: $BROBUST_CACHE, else brobust's in the user's cache."""
    if named := os.environ.get("BROBUST_CACHE"):
        return Path(named).absolute()  # what is built there runs in other directories
    of_user = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG Base Directory Specification ignores one that is empty or relative.
    return (of_user if of_user.is_absolute() else Path.home() / ".cache") / "brobust"
