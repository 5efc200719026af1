"""What a backend is: something that can measure a run. The rest of brobust never asks which one it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from brobust.dataset import Measured
from brobust.scenario import Run, Scenario

Say = Callable[[str], None]


class Backend(Protocol):
    """A context manager: entered once for a series, it leaves nothing behind."""

    def __enter__(self) -> Backend: ...

    def __exit__(self, *_: object) -> None: ...

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        """Prove that the undisturbed testbed carries every path, or refuse. One record per path."""
        ...

    def measure(self, run: Run) -> Measured:
        """One run. Raises RunFailed if it could not be measured."""
        ...
