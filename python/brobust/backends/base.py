"""What a backend is: something that can measure a run. The rest of brobust never asks which one it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from brobust.dataset import Measured, failed
from brobust.errors import RunFailed, debugging, said
from brobust.scenario import Run, Scenario

Say = Callable[[str], None]


class Backend(Protocol):
    """A context manager: entered once for a series, it leaves nothing behind."""

    # Runs that it measures well side by side. `measure` is then called from as many threads.
    parallel: int

    def __enter__(self) -> Backend: ...

    def __exit__(self, *_: object) -> None: ...

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        """Prove that the undisturbed testbed carries every path, or refuse. One record per path."""
        ...

    def measure(self, run: Run) -> Measured:
        """One run. Raises RunFailed if it could not be measured."""
        ...

    def stop(self) -> None:
        """End at once the runs that other threads are measuring, and any that is begun after; what they return or raise
        is not used."""
        ...


def measured(backend: Backend, run: Run) -> Measured:
    """What a run leaves behind; if it failed, the record of that."""
    started = datetime.now(UTC)
    try:
        return backend.measure(run)
    except RunFailed as failure:
        return failed(run, str(failure), started, failure.columns)
    except Exception as error:  # whatever one run meets, the others are measured
        if debugging():
            raise
        return failed(run, said(error), started)
