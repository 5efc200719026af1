"""Measure a series: every run of a grid, in shuffled order, each written to the dataset as it finishes."""

import contextlib
import itertools
import platform
import shlex
import sys
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime
from typing import Any

from brobust import _core, backends
from brobust.analysis.summary import of_all_flows
from brobust.backends.base import measured
from brobust.backends.virtual import commands_of
from brobust.dataset import RUNS, Dataset, Measured, frame
from brobust.errors import BadInput, WriteFailed, one_line
from brobust.host import machine
from brobust.kernels import virtual as virtual_kernels
from brobust.lazily import pl
from brobust.scenario import Grid, Run, Scenario
from brobust.series.side_by_side import Ended, side_by_side


def remaining(grid: Grid, dataset: Dataset) -> list[Run]:
    """Return the runs that the dataset lacks, in the grid's shuffled order, but grouped by backend and kernel, since
    every change of the kernel costs a boot."""
    finished = dataset.finished()
    return sorted((run for run in grid.runs() if run.id not in finished), key=_order)


def other_builds(grid: Grid, dataset: Dataset) -> list[str]:
    """Return which kernels and programs of this grid, in virtual time, are not those with which runs of the dataset
    were measured: they were built again since, perhaps with a changed control."""
    if not dataset.finished():
        return []
    asked = {one.hash: one for one in grid.scenarios if one.backend == "virtual"}
    done = dataset.runs().filter(pl.col("scenario").is_in(list(asked)) & (pl.col("outcome") != "failed"))
    found = []
    kernels = done.select("kernel", "kernel_hash").drop_nulls().unique().sort("kernel", "kernel_hash")
    for name, of_runs in kernels.iter_rows():
        here = virtual_kernels.find(name).sha256
        if of_runs != here:
            found.append(f"{name} (SHA-256 {of_runs[:12]}, here {here[:12]})")
    with_programs = {name for name in done["scenario"].unique() if asked[name].traffic != "brobust"}
    if with_programs:
        runs = done.filter(pl.col("scenario").is_in(with_programs)).select("run", "scenario").unique("run")
        columns = "scenario", "command", "sha256", "files_sha256"
        ended = dataset.programs().join(runs, on="run").select(columns).unique()
        programs = {}
        for scenario, command, of_run, of_files in ended.sort("command").iter_rows():
            first, packed = shlex.split(command)[0], commands_of(asked[scenario])
            # A series that an earlier brobust began does not say what its files were.
            pairs = {first: (of_run, packed.hashes.get(first)), "programs.files": (of_files, packed.files_sha256)}
            for what, (then, now) in pairs.items():
                if then and now and then != now:
                    programs[what] = f"{what} (SHA-256 {then[:12]}, here {now[:12]})"
        found += programs.values()
    return found


def _order(run: Run) -> tuple[str, str, str]:
    return run.scenario.backend, run.scenario.kernel, run.scenario.hosts or run.scenario.accelerator


def measure(
    runs: Sequence[Run],
    dataset: Dataset,
    announce: Callable[[str], None],
    jobs: int | None = None,
    cluster: str | None = None,
) -> Generator[tuple[Run, Measured], None, None]:
    """Measure these runs; append each to the dataset, then yield it.

    One backend is open at a time. `announce` is called with what is being done. `jobs` is how many runs are measured at
    a time; None: what suits the backend. `cluster` is the address of a dask scheduler whose workers measure instead of
    this machine.
    """
    as_they_finish = (
        _on_this_host(runs, dataset, announce, jobs) if cluster is None else _on_cluster(runs, announce, cluster)
    )
    # If the caller stops reading, the runs under way are stopped, too.
    with contextlib.closing(as_they_finish) as finished:
        for ended in finished:
            _append(dataset, ended)
            yield from ended
    dataset.compact()


Finished = Generator[Ended, None, None]


def _on_this_host(runs: Sequence[Run], dataset: Dataset, announce: Callable[[str], None], jobs: int | None) -> Finished:
    for name, of_backend in itertools.groupby(sorted(runs, key=_order), key=lambda run: run.scenario.backend):
        group = list(of_backend)
        with backends.opened(name, announce) as backend:
            for record in backend.calibrate([run.scenario for run in group]):
                dataset.note_calibration(record)
            if name in backends.ALONE:
                for run in group:
                    announce(run.scenario.describe())
                    yield [(run, measured(backend, run))]
            else:
                yield from side_by_side(backend, group, announce, jobs or backend.parallel)


def _on_cluster(runs: Sequence[Run], announce: Callable[[str], None], address: str) -> Finished:
    from brobust.series import cluster

    if runs:
        with cluster.connected(address) as client:
            yield from cluster.measure(client, runs, announce)


def check_cluster(address: str) -> None:
    """Refuse a cluster that does not answer, or whose workers cannot measure."""
    from brobust.series import cluster

    with cluster.connected(address):
        pass


def check_jobs(jobs: int | None, scenarios: Sequence[Scenario], cluster: str | None = None) -> None:
    """Refuse --jobs below 1, several jobs on a backend that measures one run at a time, and such a backend on a
    cluster."""
    if cluster is not None and jobs is not None:
        raise BadInput("--jobs: a cluster measures as many runs at a time as its workers have threads; omit --jobs")
    alone = sorted({scenario.backend for scenario in scenarios} & backends.ALONE)
    if cluster is not None and alone:
        raise BadInput(f"--cluster: backend {alone[0]} measures only from this host; omit --cluster")
    if jobs is not None and jobs < 1:
        raise BadInput(f"--jobs: {jobs} is not allowed: give 1 or more")
    if jobs is not None and jobs > 1 and alone:
        raise BadInput(f"--jobs: {jobs} is not allowed: backend {alone[0]} measures one run at a time; give 1")


def _append(dataset: Dataset, ended: Ended) -> None:
    try:
        dataset.append_all([(run.id, found) for run, found in ended])
    except OSError as error:  # for example, the disk is mounted for reading only since it failed
        raise WriteFailed(one_line(error), f"let {dataset.directory} be written again") from None


def host() -> dict[str, Any]:
    """Return what a reader of the data must know about this machine."""
    return {
        "begun_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv[1:],
        "host_kernel": platform.release(),
        "host_hz": _core.hz(),
        "cpu": machine.cpu(),
    }


OF_ITS_PACKETS = ("queue_mean_ms", "rtt_p99_ms")
"""Columns that say something of one flow's packets, which no sum or mean says of all."""


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the object that `--json` prints for a run: the columns in which all flows are the same, null where nothing
    was measured, and what tables say of them together (analysis/summary.py). Flows of several senders may differ in all
    that is said of a CPU."""
    table = frame(list(rows), RUNS)
    rows = table.to_dicts()
    same = {key: value for key, value in rows[0].items() if all(row[key] == value for row in rows)}
    whole = {**same, **table.select(of_all_flows()).row(0, named=True)}
    if whole["outcome"] == "failed":
        whole["throughput_mbps"] = None
    whole["cc"] = "+".join(dict.fromkeys(row["cc"] for row in rows))
    whole["flow_throughputs_mbps"] = [row.get("throughput_mbps") for row in rows]
    if any(row.get("completion_ms") is not None for row in rows):
        whole["flow_completions_ms"] = [row.get("completion_ms") for row in rows]
    if "share" not in same:
        whole["flow_shares"] = [row["share"] for row in rows]
    if len(rows) > 1:  # these columns describe a flow, not the run
        for key in ("sender", "flow_rtt_ms", "pattern", "bbr_version", "flow_bytes", "completion_ms", *OF_ITS_PACKETS):
            whole.pop(key, None)
    for key in ("flow", "start_s", "stop_s"):
        whole.pop(key, None)
    whole["started_at"] = whole["started_at"].isoformat(timespec="milliseconds")
    return whole
