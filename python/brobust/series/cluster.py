"""Measure a series on a dask.distributed cluster, each run in virtual time by one of its workers.

The workers have brobust. Kernels and programs travel to them by hash, runs and results as Python objects (pickle), and
the dataset is written here. So anybody who can connect to the scheduler controls all the machines, and we connect to it
only over TLS or a private network. If a worker dies, other workers measure its runs.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import itertools
import socket
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import brobust
from brobust import interrupts
from brobust.backends.base import measured
from brobust.backends.virtual import VirtualBackend, commands_of
from brobust.dataset import Measured, failed
from brobust.errors import BadInput, BrobustError, CutShort, MissingSupport, Remark, RunFailed, one_line
from brobust.kernels import sent
from brobust.scenario import Run
from brobust.series.side_by_side import BATCH_SECONDS, Ended
from brobust.virtual.programs import Commands

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 5
ANSWER_SECONDS = 300.0  # of all workers, which import brobust first; then a scheduler gives up one that is silent
# A series gives up when the cluster has had no workers, or no scheduler, for this long.
MAX_SECONDS_WITHOUT_WORKERS = 60.0
# Runs handed to the cluster for each of its threads: enough that no thread waits for work, few enough that the results
# that are not written yet fit into memory.
RUNS_PER_THREAD = 3
POLL_SECONDS = 0.02
ASK_SECONDS = 0.5
# The scheduler gives up a task whose worker has died several times. The cluster may be to blame, so we try again.
MAX_ATTEMPTS = 3
# Of a client whose scheduler has not answered for CONNECT_SECONDS.
CLOSED = ("closing", "closed")


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
def connected(address: str) -> Iterator[Client]:
    """Connect to the scheduler at `address`; refuse it unless its workers have this machine's brobust."""
    from distributed import Client
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        parse_host_port(parse_address(address)[1])  # the client would fail, too, and once more when it is deleted
    except ValueError as error:
        raise BadInput(f"--cluster {address}: not an address ({error}); give for example tcp://HOST:8786") from None
    try:
        # An interrupted client would first close itself, for ten seconds if the scheduler is silent: it is left alone.
        connecting = interrupts.started(Client, address, timeout=CONNECT_SECONDS, set_as_default=False)
        client = interrupts.result_of(connecting)
    except (OSError, ValueError, TypeError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]  # a timeout need not say anything
        raise BadInput(f"--cluster {address}: no scheduler answers there ({why}); start one: dask scheduler") from None
    with client:
        _check_workers(client, address)
        yield client


def _check_workers(client: Client, address: str) -> None:
    ours = _version()
    try:
        asked = interrupts.started(client.run, _version)
        theirs: dict[str, str] = interrupts.result_of(asked, ANSWER_SECONDS)
    except TimeoutError:
        raise BadInput(
            f"--cluster {address}: a worker or its scheduler says nothing for {ANSWER_SECONDS:.0f} s; start it again"
        ) from None
    except Exception as error:  # a worker without brobust may raise anything
        raise BadInput(f"--cluster {address}: a worker cannot measure: {type(error).__name__}: {error}") from None
    if not theirs:
        raise BadInput(f"--cluster {address}: the scheduler has no workers; start some: dask worker {address}")
    for worker, version in theirs.items():
        if version != ours:
            raise BadInput(
                f"--cluster {address}: worker {worker} has brobust {version}, this machine {ours}; install the same"
            )


def _version() -> str:
    return brobust.__version__


@functools.cache
def _backend() -> VirtualBackend:
    """Return the backend of a worker's process, the same one for all its runs."""
    return VirtualBackend(lambda _: None)


_unpacked = functools.cache(sent.unpacked)


class Unfit(BrobustError):
    """A worker cannot measure this run, nor any other: its disk is full, or it has joined with another brobust."""

    def __init__(self, worker: str, why: str):
        super().__init__(worker, why)
        self.worker, self.why = worker, why

    def __str__(self) -> str:
        return f"worker {self.worker} cannot measure: {self.why}"


def _measured_there(run: Run, kernel: sent.Packed, commands: Commands | None, version: str) -> Measured:
    """Measure a run; a worker calls this. `commands`: what its programs are on the machine that asks. `version`: that
    of its brobust."""
    from distributed import get_worker

    try:
        if version != _version():
            raise MissingSupport(f"it has brobust {_version()}, the machine that asks {version}; install the same")
        backend = _backend()
        backend.sent[run.scenario.kernel] = _unpacked(kernel)
        if commands is not None:
            backend.commands[run.scenario.hash] = commands
        return measured(backend, run)
    except Exception as error:  # of a run alone it would be in the run's record
        why = f"{error.what}; {error.remedy}" if isinstance(error, CutShort) else one_line(error)
        raise Unfit(str(get_worker().address), why) from None


def _as_it_is(content: Any) -> Any:
    return content


class _Sent:
    """What workers need for a run, as tasks that return it: dask hands it on from worker to worker, and has it again if
    a worker dies."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kernels: dict[str, Future] = {}
        self._programs: dict[str, Future] = {}

    def for_run(self, run: Run) -> tuple[Future, Future | None]:
        name = run.scenario.kernel
        if name not in self._kernels:
            kernel = sent.packed(name)
            self._kernels[name] = self._client.submit(_as_it_is, kernel, key=f"brobust-kernel-{kernel.hash}")
        if run.scenario.traffic == "brobust":
            return self._kernels[name], None
        commands = commands_of(run.scenario)
        key = f"brobust-programs-{hashlib.sha256(repr((commands.sender, commands.receiver)).encode()).hexdigest()[:16]}"
        key += hashlib.sha256(commands.ramdisk).hexdigest()[:16]
        if key not in self._programs:
            self._programs[key] = self._client.submit(_as_it_is, commands, key=key)
        return self._kernels[name], self._programs[key]


def measure(client: Client, runs: Sequence[Run], announce: Callable[[str], None]) -> Generator[Ended, None, None]:
    """Measure these runs on the cluster. Yield those that have ended, at once if nothing has been for a while, else a
    second after those before."""
    from distributed import as_completed

    pending = list(reversed(runs))
    under_way: dict[Future, tuple[Run, int]] = {}
    # Results are fetched as runs end, beside each other: waiting for one at a time would leave workers without work.
    finished = as_completed(loop=client.loop, with_results=True, raise_errors=False)
    workers, to_send, version = _Workers(client), _Sent(client), _version()
    numbers = itertools.count()  # a key that was used before would return what it returned
    ended: list[tuple[Run, Measured]] = []
    last = -BATCH_SECONDS

    def submit(run: Run, attempt: int) -> None:
        announce(run.scenario.describe())
        needs = to_send.for_run(run)
        key = f"brobust-{run.id}-{next(numbers)}"
        future = client.submit(_measured_there, run, *needs, version, key=key, pure=False)
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
                elif isinstance(error := _error(result), Unfit):
                    workers.leave_out(error)
                    submit(run, attempt)
                elif attempt < MAX_ATTEMPTS:
                    submit(run, attempt + 1)
                else:
                    ended.append((run, failed(run, f"no worker finished it: {_why(error)}", datetime.now(UTC))))
                future.release()
    except GeneratorExit:  # the caller stops reading, perhaps because it cannot write
        raise
    except BaseException:  # Ctrl-C, or no run can be measured any more
        if ended:
            yield ended
        if client.status in CLOSED:
            raise RunFailed(
                "--cluster: its scheduler is gone; start it and workers again, then repeat the command: it measures "
                "the runs that are missing"
            ) from None
        raise
    finally:
        if client.status not in CLOSED:
            client.cancel(list(under_way), force=True)


def _error(result: Any) -> BaseException:
    """Return why a task did not end: of what `sys.exc_info` returns, or alone, as dask has it without a scheduler."""
    error: BaseException = result[1] if isinstance(result, tuple) else result
    return error


def _why(error: BaseException) -> str:
    last = getattr(error, "last_worker", None)  # of dask's KilledWorker
    return one_line(error) if last is None else f"each died, the last one was {last.address}, whose log may say why"


class _Workers:
    """The workers of a cluster, asked for twice a second at most."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked = -ASK_SECONDS
        self._seen = time.monotonic()
        self._threads = 0
        self._unfit: set[str] = set()

    def _nthreads(self) -> dict[str, int]:
        """Return how many threads each worker has. TimeoutError: the scheduler is there, and says nothing."""
        found: dict[str, int] = self._client.nthreads(callback_timeout=CONNECT_SECONDS)
        return found

    def leave_out(self, unfit: Unfit) -> None:
        """Have the scheduler retire a worker, which else would take run after run, since it fails faster than others
        measure; give up if it is the last one."""
        self._unfit.add(unfit.worker)
        with suppress(TimeoutError):  # whether the scheduler is silent for too long, `threads` finds out
            if not set(self._nthreads()) - self._unfit:
                raise RunFailed(
                    f"--cluster: {unfit}; no other worker is left; mend that, start workers, then repeat the command: "
                    "it measures the runs that are missing"
                )
            warnings.warn(f"{unfit}; it is retired, and others measure its runs", Remark, stacklevel=2)
            self._client.retire_workers([unfit.worker], callback_timeout=CONNECT_SECONDS)

    def threads(self) -> int:
        """Return how many threads all workers have together; give up if there have been none for too long, or if the
        scheduler has not answered."""
        now = time.monotonic()
        if now - self._asked >= ASK_SECONDS:
            self._asked = now
            self._threads = 0
            with suppress(OSError, TimeoutError):
                self._threads = sum(self._nthreads().values())
        if self._threads:
            self._seen = now
        elif now - self._seen > MAX_SECONDS_WITHOUT_WORKERS:
            raise RunFailed(
                f"--cluster: there has been no worker for {MAX_SECONDS_WITHOUT_WORKERS:.0f} s, or its scheduler has "
                "said nothing; start some, then repeat the command: it measures the runs that are missing"
            )
        return self._threads
