"""Measure several runs of a series at a time, each in its own thread, while another one writes what has been measured.

Threads are enough: a run in virtual time is a few processes of its own and a controller in Rust, which holds no lock of
Python's while it runs.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence

from brobust.backends.base import Backend, measured
from brobust.dataset import Measured
from brobust.lazily import load_polars
from brobust.scenario import Run

POLL_SECONDS = 0.2
BATCH_SECONDS = 1.0
"""Runs that end within this time are written together: writing one takes as long as writing twenty. So much of the
series is measured again at most after `kill -9`."""
MAX_WAITING_BYTES = 512_000_000
"""No run begins while so much has been measured and not been written yet."""

Ended = Sequence[tuple[Run, Measured]]


def side_by_side(
    backend: Backend, runs: Sequence[Run], announce: Callable[[str], None], jobs: int
) -> Generator[Ended, None, None]:
    """Measure runs in threads. Yield those that have ended: at once if none have for a while, else a second after those
    before."""
    crew = _Crew(backend, runs, announce)
    threads = [threading.Thread(target=crew.work, name=f"run-{number}") for number in range(min(jobs, len(runs)))]
    left, last = len(runs), -BATCH_SECONDS
    try:
        for thread in threads:
            thread.start()
        load_polars()  # here, since what writes the first run needs it, and importing it takes as long as that run
        while left:
            ended = crew.ended(no_earlier_than=last + BATCH_SECONDS, at_most=left)
            last = time.monotonic()
            yield ended
            left -= len(ended)
    except GeneratorExit:  # the caller stops reading, perhaps because it cannot write
        crew.stop()
        backend.stop()
        raise
    except BaseException:  # Ctrl-C, or no run can be measured any more
        last_ones = crew.complete()
        crew.stop()
        backend.stop()
        if last_ones:
            yield last_ones
        raise
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()


class _Crew:
    """What the threads and their reader share."""

    def __init__(self, backend: Backend, runs: Sequence[Run], announce: Callable[[str], None]) -> None:
        self._backend = backend
        self._announce = announce
        self._pending = iter(runs)
        self._ended: queue.SimpleQueue[tuple[Run, Measured] | BaseException] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._taken: list[tuple[Run, Measured]] = []
        self._stopped = False

    def work(self) -> None:
        """Measure runs until there are none. A thread calls this."""
        try:
            while (run := self._next()) is not None:
                self._announce(run.scenario.describe())
                found = measured(self._backend, run)
                with self._room:
                    self._waiting_bytes += found.bytes
                self._ended.put((run, found))
        except BaseException as error:
            self._ended.put(error)

    def _next(self) -> Run | None:
        with self._room:
            self._room.wait_for(lambda: self._stopped or self._waiting_bytes < MAX_WAITING_BYTES)
            return None if self._stopped else next(self._pending, None)

    def ended(self, no_earlier_than: float, at_most: int) -> Ended:
        """Return the runs that have ended, at least one."""
        found: list[tuple[Run, Measured]] = []
        self._taken = found
        while len(found) < at_most:
            left = no_earlier_than - time.monotonic()
            if found and left <= 0 and self._ended.empty():
                break
            try:
                # With a timeout, because a Ctrl-C that arrives just before the wait begins is seen only when it ends.
                one = self._ended.get(timeout=min(POLL_SECONDS, left) if found and left > 0 else POLL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(one, BaseException):
                raise one
            found.append(one)
            with self._room:
                full = self._waiting_bytes >= MAX_WAITING_BYTES
            if full:
                break
        with self._room:
            self._waiting_bytes -= sum(measured.bytes for _, measured in found)
            self._room.notify_all()
        self._taken = []
        return found

    def complete(self) -> Ended:
        """Return the runs that have ended and were not returned yet, without those that failed, perhaps because the
        user pressed Ctrl-C."""
        while not self._ended.empty():
            one = self._ended.get()
            if not isinstance(one, BaseException):
                self._taken.append(one)
        return [(run, found) for run, found in self._taken if found.runs[0].get("outcome") != "failed"]

    def stop(self) -> None:
        """Begin no further run."""
        with self._room:
            self._stopped = True
            self._room.notify_all()
