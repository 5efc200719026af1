"""Measure a series on a dask.distributed cluster, each run in virtual time by one of its workers.

The workers have brobust and its kernels; runs and results travel as Python objects (pickle), and the dataset is written
here. So anybody who can connect to the scheduler controls all the machines, and we connect to it only over TLS or a
private network. If a worker dies, other workers measure its runs.
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
from brobust.errors import BadInput, RunFailed
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run
from brobust.series.side_by_side import BATCH_SECONDS, Ended

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 5
# A series gives up when the cluster has had no workers, or no scheduler, for this long.
MAX_SECONDS_WITHOUT_WORKERS = 60.0
# Runs handed to the cluster for each of its threads: enough that no thread waits for work, few enough that the results
# that are not written yet fit into memory.
RUNS_PER_THREAD = 3
POLL_SECONDS = 0.02
ASK_SECONDS = 0.5
# The scheduler gives up a task whose worker has died several times. The cluster may be to blame, so we try again.
MAX_ATTEMPTS = 3


def refuse_exposed(address: str) -> None:
    """Refuse to connect to a scheduler without TLS over a network that is not private."""
    scheme, separator, rest = address.rpartition("://")
    if separator and scheme in ("tls", "inproc"):
        return
    host = rest.rpartition(":")[0].strip("[]") or rest
    try:
        found = {ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return  # connecting will fail, too, and say why
    if exposed := sorted(str(one) for one in found if not one.is_private):
        raise BadInput(
            f"--cluster {address}: {exposed[0]} is not a private address, and without TLS anybody on the network in "
            "between can run programs on this machine and on the workers; give tls://HOST:8786, or --insecure to "
            "accept that"
        )


@contextmanager
def connected(address: str, kernel_names: Sequence[str]) -> Iterator[Client]:
    """Connect to the scheduler at `address`; refuse it unless its workers have this machine's brobust and kernels."""
    from distributed import Client
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        parse_host_port(parse_address(address)[1])  # the client would fail, too, and once more when it is deleted
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
    except Exception as error:  # a worker without brobust may raise anything
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
    """Return the version of brobust and the hash of each kernel on this machine."""
    found: dict[str, str | None] = {"brobust": brobust.__version__}
    for name in kernel_names:
        try:
            found[name] = virtual_kernels.find(name).sha256[:12]
        except BadInput:
            found[name] = None
    return found


@functools.cache
def _backend() -> Backend:
    """Return the backend of a worker's process, the same one for all its runs."""
    return backends.open_backend("virtual", None, lambda _: None)


def _measured_there(run: Run) -> Measured:
    """Measure a run; a worker calls this."""
    return measured(_backend(), run)


def measure(client: Client, runs: Sequence[Run], announce: Callable[[str], None]) -> Generator[Ended, None, None]:
    """Measure these runs on the cluster. Yield those that have ended, at once if nothing has been for a while, else a
    second after those before."""
    from distributed import as_completed

    pending = list(reversed(runs))
    under_way: dict[Future, tuple[Run, int]] = {}
    # Results are fetched as runs end, beside each other: waiting for one at a time would leave workers without work.
    finished = as_completed(loop=client.loop, with_results=True, raise_errors=False)
    workers = _Workers(client)
    ended: list[tuple[Run, Measured]] = []
    last = -BATCH_SECONDS

    def submit(run: Run, attempt: int) -> None:
        announce(run.scenario.describe())
        future = client.submit(_measured_there, run, key=f"brobust-{run.id}-{attempt}", pure=False)
        under_way[future] = run, attempt
        finished.add(future)

    try:
        while pending or under_way or ended:
            while pending and len(under_way) < RUNS_PER_THREAD * max(1, workers.threads()):
                submit(pending.pop(), 1)
            if ended and (time.monotonic() - last >= BATCH_SECONDS or not under_way):
                last = time.monotonic()
                yield ended
                ended = []
            elif not finished.has_ready():
                workers.threads()
                time.sleep(POLL_SECONDS)
            for future, result in finished.next_batch(block=False):
                run, attempt = under_way.pop(future)
                if future.status == "finished":
                    ended.append((run, result))
                elif attempt < MAX_ATTEMPTS:
                    submit(run, attempt + 1)
                else:
                    ended.append((run, failed(run, f"no worker finished it: {result[1]!r}", datetime.now(UTC))))
                future.release()
    finally:
        client.cancel(list(under_way), force=True)


class _Workers:
    """The workers of a cluster, asked for twice a second at most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked = -ASK_SECONDS
        self._seen = time.monotonic()
        self._threads = 0

    def threads(self) -> int:
        """Return how many threads all workers have together; give up if there have been none for too long, or if the
        scheduler has not answered."""
        now = time.monotonic()
        if now - self._asked >= ASK_SECONDS:
            self._asked = now
            self._threads = self._ask()
        if self._threads:
            self._seen = now
        elif now - self._seen > MAX_SECONDS_WITHOUT_WORKERS:
            raise RunFailed(
                f"--cluster: there has been no worker for {MAX_SECONDS_WITHOUT_WORKERS:.0f} s; start some, then "
                "repeat the command: it measures the runs that are missing"
            )
        return self._threads

    def _ask(self) -> int:
        try:
            return sum(self._client.nthreads().values())
        except (OSError, TimeoutError):
            return 0
