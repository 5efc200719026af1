"""The directory in which brobust keeps what it has fetched and built."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory for kernels and guest images: $BROBUST_CACHE, else brobust's in the user's cache."""
    if "BROBUST_CACHE" in os.environ:
        return Path(os.environ["BROBUST_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "brobust"
