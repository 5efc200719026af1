"""Where brobust keeps what it fetched and built for itself."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Where kernels and guest images are kept: $BROBUST_CACHE, else the user's cache directory."""
    if "BROBUST_CACHE" in os.environ:
        return Path(os.environ["BROBUST_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "brobust"
