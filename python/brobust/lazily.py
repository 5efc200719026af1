"""Polars, imported at its first use: importing it takes as long as a short run takes altogether.

The modules that a run needs before it is measured take `pl` from here. All others import polars as usual.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
else:

    class _Polars:
        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module("polars"), name)
            setattr(self, name, found)  # so this is called once for each name
            return found

    pl = _Polars()

__all__ = ["load_polars", "pl"]


def load_polars() -> None:
    """Import polars, where there is time to do so before it is needed."""
    importlib.import_module("polars")
