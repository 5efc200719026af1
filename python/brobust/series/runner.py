"""A series: every run of a grid, measured in shuffled order and written down as it finishes."""

from __future__ import annotations

import contextlib
import errno
import itertools
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brobust import _core, backends
from brobust.backends.base import Backend, measured
from brobust.dataset import Dataset, Measured
from brobust.errors import BadInput, BrobustError
from brobust.scenario import Grid, Run, Scenario

LOOKS_UP = 0.2  # s


@dataclass(frozen=True)
class Progress:
    """One finished run, and how far the series is."""

    run: Run
    measured: Measured
    done: int
    total: int


class DiskFull(BrobustError):
    """The dataset can take no more; what it has is whole."""


def remaining(grid: Grid, dataset: Dataset) -> list[Run]:
    """Runs still to be done, in the grid's shuffled order but backend by backend and kernel by kernel: another kernel
    is another boot."""
    finished = dataset.finished()
    runs = [run for run in grid.runs() if run.id not in finished]
    if runs:
        dataset.check_completable()
    return sorted(runs, key=_order)


def _order(run: Run) -> tuple[str, str, str]:
    return run.scenario.backend, run.scenario.kernel, run.scenario.accelerator


def measure(
    runs: Sequence[Run],
    dataset: Dataset,
    say: Callable[[str], None],
    jobs: int | None = None,
    cluster: str | None = None,
) -> Iterator[Progress]:
    """Measure these runs, appending each to the dataset before it is reported.

    One backend is open at a time. `jobs` is how many runs are measured side by side; None: what suits the backend.
    `cluster` is the address of a dask scheduler whose workers measure instead of this machine.
    """
    as_they_finish = _on_this_host(runs, dataset, say, jobs) if cluster is None else _on_cluster(runs, say, cluster)
    # Whoever stops reading from this stops the runs under way too.
    with contextlib.closing(as_they_finish) as finished:
        for done, (run, found) in enumerate(finished, start=1):
            _append(dataset, run, found)
            yield Progress(run, found, done, len(runs))


Finished = Generator[tuple[Run, Measured], None, None]


def _on_this_host(runs: Sequence[Run], dataset: Dataset, say: Callable[[str], None], jobs: int | None) -> Finished:
    for name, of_backend in itertools.groupby(sorted(runs, key=_order), key=lambda run: run.scenario.backend):
        group = list(of_backend)
        with backends.opened(name, say) as backend:
            for record in backend.calibrate([run.scenario for run in group]):
                dataset.note_calibration(record)
            if name in backends.ON_HOST:
                yield from _one_by_one(backend, group, say)
            else:
                yield from _side_by_side(backend, group, say, jobs or backend.parallel)


def _on_cluster(runs: Sequence[Run], say: Callable[[str], None], address: str) -> Finished:
    from brobust.series import cluster

    if runs:
        with cluster.connected(address, sorted({run.scenario.kernel for run in runs})) as client:
            yield from cluster.measure(client, runs, say)


def check_cluster(address: str, scenarios: Sequence[Scenario]) -> None:
    """Refuse a cluster that does not answer, or whose workers could not measure these."""
    from brobust.series import cluster

    with cluster.connected(address, sorted({scenario.kernel for scenario in scenarios})):
        pass


def check_jobs(jobs: int | None, scenarios: Sequence[Scenario], cluster: str | None = None) -> None:
    """Refuse no runs, several side by side where there can be only one, and a cluster for what needs this host."""
    if cluster is not None and jobs is not None:
        raise BadInput("--jobs: a cluster measures as many runs as its workers have threads; leave --jobs out")
    if cluster is not None and (here := sorted({scenario.backend for scenario in scenarios} & backends.ON_HOST)):
        raise BadInput(f"--cluster: backend {here[0]} measures on this host only; leave --cluster out")
    if jobs is not None and jobs < 1:
        raise BadInput(f"--jobs: {jobs} is not allowed: give 1 or more")
    alone = sorted({scenario.backend for scenario in scenarios} & backends.ON_HOST)
    if jobs is not None and jobs > 1 and alone:
        raise BadInput(f"--jobs: {jobs} is not allowed: backend {alone[0]} measures one run at a time; give 1")


def _one_by_one(backend: Backend, runs: Sequence[Run], say: Callable[[str], None]) -> Finished:
    for run in runs:
        say(run.scenario.describe())
        yield run, measured(backend, run)


def _side_by_side(backend: Backend, runs: Sequence[Run], say: Callable[[str], None], jobs: int) -> Finished:
    """Runs in threads, each handed over as it finishes. The next is begun only when one has been taken away, so that
    no more results than threads are in memory."""
    pending = list(reversed(runs))
    under_way: dict[Future[Measured], Run] = {}
    threads = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="run")
    try:
        while pending or under_way:
            while pending and len(under_way) < jobs:
                run = pending.pop()
                say(run.scenario.describe())
                under_way[threads.submit(measured, backend, run)] = run
            # Not for ever: a Ctrl-C that arrives just before the wait begins is seen only when it ends.
            ended, _ = wait(under_way, timeout=LOOKS_UP, return_when=FIRST_COMPLETED)
            for future in ended:
                yield under_way.pop(future), future.result()
    except BaseException:  # Ctrl-C, a full disk, a reader that has had enough: what is under way ends too
        backend.stop()
        raise
    finally:
        threads.shutdown(cancel_futures=True)


def _append(dataset: Dataset, run: Run, measured: Measured) -> None:
    try:
        dataset.append(run.id, measured)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no room left for {dataset.directory}; free some, then give the same command again "
                "(`brobust run` with --resume)"
            ) from None
        raise


def host() -> dict[str, Any]:
    """What a reader of the data must know of the machine."""
    model = "unknown"
    with Path("/proc/cpuinfo").open() as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "host_kernel": platform.release(),
        "host_hz": _core.hz(),
        "cpu": model,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One object per run for `--json`: the flows' shared columns, retransmits and drops summed over them, and the
    throughput of all together: their payload over the run's whole duration, since one that sends for a part of it
    counts for less of it."""
    first = dict(rows[0])
    measured = [row for row in rows if row.get("throughput_mbps") is not None]
    first["throughput_mbps"] = sum(r["throughput_mbps"] * _sent_for(r) / r["duration_s"] for r in measured)
    for total in ("retransmits", "drops"):
        known = [row[total] for row in measured if row.get(total) is not None]
        first[total] = sum(known) if known else None
    if not measured:
        first["throughput_mbps"] = None
    first["cc"] = "+".join(dict.fromkeys(row["cc"] for row in rows))
    first["flow_throughputs_mbps"] = [row.get("throughput_mbps") for row in rows]
    if len(rows) > 1:  # of one flow, not of the run
        for key in ("sender", "flow_rtt_ms", "pattern", "queue_mean_ms"):
            first.pop(key, None)
    for key in ("flow", "start_s", "stop_s"):
        first.pop(key, None)
    first["started_at"] = first["started_at"].isoformat(timespec="milliseconds")
    return first


def _sent_for(row: dict[str, Any]) -> float:
    """s"""
    stop = row.get("stop_s")
    return float((row["duration_s"] if stop is None else stop) - row["start_s"])
