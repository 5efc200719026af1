"""brobust: measure, explain, detect and repair TCP BBR's collapse when the sender's CPU is taken away.

`brobust.run({"contention": {"share": 0.5}, "flows": [{"cc": "bbr"}]}).runs` is one measured run as a polars frame.
"""

# Nothing is imported here, not even typing, which takes as long as Python's own start: before __main__.py is there,
# Ctrl-C prints a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event
    from typing import Any

    from brobust import errors
    from brobust.api import Result
    from brobust.scenario import Scenario

    __version__: str

__all__ = ["SCHEMA_VERSION", "Result", "__version__", "errors", "run"]

SCHEMA_VERSION = 6
"""Of the columns and files of a dataset."""


def run(scenario: "Scenario | Mapping[str, Any]", *, repeat: int = 0, stop: "Event | None" = None) -> "Result":
    """Measure one scenario, or its fields (docs/scenario.md); return its tables (docs/data.md). No dataset is written.

    `repeat` is the number of the repeat, from 0: each draws other random numbers, and in virtual time the same one
    always the same. Raise brobust.errors.BrobustError if it cannot be measured.

    `stop`: for a run in virtual time that another thread measures, which Ctrl-C and asyncio's cancel() do not reach:
    once it is set, the run ends within a second, by brobust.errors.RunFailed.
    """
    from brobust import api  # imports polars and pydantic, which takes long: only when something is measured

    return api.run(scenario, repeat=repeat, stop=stop)


if not TYPE_CHECKING:  # else a type checker would take any slip for a name of this package

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from importlib.metadata import version  # takes as long to import as everything else here

            found = version("brobust")
        elif name == "errors":
            from importlib import import_module

            found = import_module("brobust.errors")
        elif name == "Result":
            from brobust.api import Result as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found  # kept: looking the version up takes 1 ms, in every run
        return found
