"""A series on a dask.distributed cluster: each run in virtual time is measured by one of its workers.

The workers have brobust and its kernels; runs and results travel as Python objects (pickle), and the dataset is written
here. So who may speak to the scheduler has all the machines: it is reached over TLS or a private network only. A worker
that dies loses nothing: its runs are given to another.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import brobust
from brobust import backends
from brobust.backends.base import Backend, measured
from brobust.dataset import Measured, failed
from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 5
# How long a cluster may be without workers, or without its scheduler, before the series gives up.
WITHOUT_WORKERS_SECONDS = 60.0
# Runs handed to the cluster for each of its threads: enough that none waits for work, few enough that results which
# have not been written yet fit into memory.
AHEAD = 3
# The scheduler gives a task up whose worker died several times. It may be the cluster's fault, so it is asked again.
TRIES = 3


def refuse_exposed(address: str) -> None:
    """Refuse a scheduler that is spoken to without TLS over a network that may be anybody's."""
    scheme, separator, rest = address.rpartition("://")
    if separator and scheme in ("tls", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]") or rest
    try:
        found = {ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return  # it cannot be connected to either, which is said there
    if exposed := sorted(str(one) for one in found if not one.is_private):
        raise BadInput(
            f"--cluster {address}: {exposed[0]} is no private address, and without TLS whoever is in between can run "
            "programs on this machine and the workers; give tls://HOST:8786, or --insecure if that is meant"
        )


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
            found[name] = virtual_kernels.find(name).sha256[:12]
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
    workers_seen = time.monotonic()

    def wait() -> None:
        """Until a run has finished; for ever only while there are workers."""
        nonlocal workers_seen
        while not finished.has_ready():
            if _threads(client):
                workers_seen = time.monotonic()
            elif time.monotonic() - workers_seen > WITHOUT_WORKERS_SECONDS:
                raise RunFailed(
                    f"--cluster: no worker has been there for {WITHOUT_WORKERS_SECONDS:.0f} s; start some, and give "
                    "the same command again: it goes on where it was"
                )
            time.sleep(0.1)

    def submit(run: Run, attempt: int) -> None:
        say(run.scenario.describe())
        future = client.submit(_measured_there, run, key=f"brobust-{run.id}-{attempt}", pure=False)
        under_way[future] = run, attempt
        finished.add(future)

    try:
        while pending or under_way:
            while pending and len(under_way) < AHEAD * max(1, _threads(client)):
                submit(pending.pop(), 1)
            wait()
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


def _threads(client: Client) -> int:
    """Return how many threads all workers have together; 0 also where the scheduler does not answer."""
    try:
        return sum(client.nthreads().values())
    except (OSError, TimeoutError):
        return 0
