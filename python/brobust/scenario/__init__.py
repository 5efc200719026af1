"""What to measure: one scenario type for every backend, and the grid that a file or command line spans.

A *grid* is what the user writes: any field may be a list. A *scenario* is one point of it, with plain numbers.
fields.py describes every field, without pydantic: what follows is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brobust.scenario.grid import Grid
    from brobust.scenario.model import TSO_RTT_LOG, Run, Scenario
    from brobust.scenario.specs import Pattern
    from brobust.scenario.tables import Contention, Flows, Path

__all__ = ["TSO_RTT_LOG", "Contention", "Flows", "Grid", "Path", "Pattern", "Run", "Scenario"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("specs", "tables", "model", "grid"):
            found = importlib.import_module(f"brobust.scenario.{module}")
            if hasattr(found, name):
                return getattr(found, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
