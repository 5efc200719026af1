"""A series on a dask.distributed cluster: each run in virtual time is measured by one of its workers.

The workers have brobust and its kernels; runs and results travel as Python objects, and the dataset is written here.
A worker that dies loses nothing: its runs are given to another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import brobust
from brobust import backends
from brobust.backends.base import Backend, measured
from brobust.dataset import Measured, failed
from brobust.errors import BadInput, MissingSupport
from brobust.scenario import Run
from brobust.virtual import kernels

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 5
# Runs handed to the cluster for each of its threads: enough that none waits for work, few enough that results which
# have not been written yet fit into memory.
AHEAD = 3
# The scheduler gives a task up whose worker died several times. It may be the cluster's fault, so it is asked again.
TRIES = 3


@contextmanager
def connected(address: str, kernel_names: Sequence[str]) -> Iterator[Client]:
    """A client of the scheduler at `address`, whose workers can measure with these kernels as this machine would."""
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_address, parse_host_port
    except ImportError:
        raise MissingSupport("--cluster needs dask.distributed: pip install 'brobust[cluster]'") from None
    try:
        parse_host_port(parse_address(address)[1])  # else the client fails too, and once more when it is deleted
    except ValueError as error:
        raise BadInput(f"--cluster {address}: not an address ({error}); give for example tcp://HOST:8786") from None
    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise BadInput(f"--cluster {address}: no scheduler answers there ({str(error).splitlines()[0]})") from None
    with client:
        _check_workers(client, address, kernel_names)
        yield client


def _check_workers(client: Client, address: str, kernel_names: Sequence[str]) -> None:
    ours = _what_is_here(kernel_names)
    try:
        theirs: dict[str, Any] = client.run(_what_is_here, kernel_names)
    except Exception as error:  # what a worker without brobust raises is its own affair
        raise BadInput(f"--cluster {address}: a worker cannot measure: {type(error).__name__}: {error}") from None
    if not theirs:
        raise BadInput(f"--cluster {address}: the scheduler has no workers; start some: dask worker {address}")
    for worker, has in theirs.items():
        for what, wanted in ours.items():
            if has.get(what) != wanted:
                raise BadInput(
                    f"--cluster {address}: worker {worker} has {what} {has.get(what) or 'not at all'}, this machine "
                    f"{wanted}; give both the same brobust and kernels"
                )


def _what_is_here(kernel_names: Sequence[str]) -> dict[str, str | None]:
    """Version of brobust, and the hash of each kernel."""
    found: dict[str, str | None] = {"brobust": brobust.__version__}
    for name in kernel_names:
        try:
            found[name] = kernels.find(name).sha256[:12]
        except BadInput:
            found[name] = None
    return found


@functools.cache
def _backend() -> Backend:
    """Of a worker's process, for all its runs."""
    return backends.open_backend("virtual", None, lambda _: None)


def _measured_there(run: Run) -> Measured:
    """What a worker does."""
    return measured(_backend(), run)


def measure(
    client: Client, runs: Sequence[Run], say: Callable[[str], None]
) -> Generator[tuple[Run, Measured], None, None]:
    """These runs, each as it finishes."""
    from distributed import as_completed

    pending = list(reversed(runs))
    under_way: dict[Future, tuple[Run, int]] = {}
    finished = as_completed(loop=client.loop)

    def submit(run: Run, attempt: int) -> None:
        say(run.scenario.describe())
        future = client.submit(_measured_there, run, key=f"brobust-{run.id}-{attempt}", pure=False)
        under_way[future] = run, attempt
        finished.add(future)

    try:
        while pending or under_way:
            while pending and len(under_way) < AHEAD * max(1, sum(client.nthreads().values())):
                submit(pending.pop(), 1)
            future = next(finished)
            run, attempt = under_way.pop(future)
            if future.status == "finished":
                yield run, future.result()
            elif attempt < TRIES:
                submit(run, attempt + 1)
            else:
                yield run, failed(run, f"no worker finished it: {future.exception()!r}", datetime.now(UTC))
            future.release()
    finally:
        client.cancel(list(under_way), force=True)
