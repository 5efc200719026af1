"""The interface of a backend, which measures runs. Only who needs what one backend alone has, such as recorded calls
or a debugger, asks which one it is."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from brobust import interrupts
from brobust.dataset import Measured, failed
from brobust.errors import CutShort, RunFailed, debugging, one_line
from brobust.files import why_not_written
from brobust.scenario import Run, Scenario

R = TypeVar("R")

Announce = Callable[[str], None]
"""Shows the user what is being done."""


class Backend:
    """Measures runs. A context manager: it is entered once for a series, and leaves nothing behind."""

    parallel = 1
    """How many runs it measures well at a time. `measure` is called from this many threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def calibrate(self, scenarios: Sequence[Scenario]) -> list[dict[str, Any]]:
        """Measure whether the undisturbed testbed carries every path, and refuse to go on if not. Return a record per
        path."""
        return []

    def measure(self, run: Run) -> Measured:
        """Measure one run. Raise RunFailed if it cannot be measured."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the runs that other threads are measuring, and any that begins later, at once. Nobody uses their results
        or errors. By default do nothing: Ctrl-C ends a run in the main thread."""


def measured(backend: Backend, run: Run) -> Measured:
    """Measure a run and return the result, or the record of its failure. Raise CutShort where any run would fail
    because of a full disk or the like."""
    started = datetime.now(UTC)
    try:
        return backend.measure(run)
    except RunFailed as failure:
        return failed(run, str(failure), started, failure.columns, failure.programs)
    except CutShort:
        raise
    except Exception as error:  # an error in one run must not end the series
        if isinstance(error, OSError) and (full := why_not_written(error)) is not None:
            raise full from None
        if debugging():
            raise
        return failed(run, one_line(error), started)


def in_threads(backend: Backend, function: Callable[..., R], calls: Iterable[tuple[Any, ...]]) -> Iterator[R]:
    """Call a function that measures with this backend, as many times at once as that measures well. `calls` has the
    arguments of each call. Yield the results in the same order. Whatever ends this early, such as Ctrl-C, ends the runs
    under way, and no other one begins."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(backend.parallel) as threads:
        try:
            yield from map(interrupts.result_of, [threads.submit(function, *one) for one in calls])
        except BaseException:  # the end of the block waits for the runs that are under way
            backend.stop()
            threads.shutdown(cancel_futures=True)
            raise
