"""`--cluster`: a sweep on a real dask scheduler with two workers, over TLS, has the same results as on this machine,
even if a worker dies. The workers have no kernel: it is sent to them."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from brobust.dataset import Dataset
from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.kernels import sent
from brobust.scenario import Grid
from brobust.series import cluster as clusters
from conftest import BROBUST, Brobust, eventually, json_lines, refused

WAIT = 120  # s; what a worker imports takes long on a busy machine
STUDY = """
paper = "mine"
figure = "1"
title = "BBR at half of a CPU"
[grid]
duration = "2s"
path = { bandwidth = "50mbit", buffer = "4bdp" }
contention = { share = [0.5, 0.25] }
flows = [{ cc = ["bbr", "cubic"] }]
[scale.quick]
repeat = 4
"""


@dataclass
class Cluster:
    address: str
    workers: list[subprocess.Popen[bytes]]
    caches: list[Path]
    scheduler: subprocess.Popen[bytes]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "study.toml"
    file.write_text(STUDY)
    return file


PAGE = Path(__file__).parents[1] / "docs" / "studies.md"


def _tls(directory: Path) -> dict[str, str]:
    """Make the certificates with the commands of the documentation, and return its environment."""
    commands = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    openssl ")]
    settings = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("    export DASK_")]
    assert len(commands) == 2 and len(settings) >= 4
    script = "\n".join([*commands, *settings, "env -0"])
    done = subprocess.run(["bash", "-ec", script], cwd=directory, capture_output=True, check=True)
    pairs = [entry.partition("=") for entry in done.stdout.decode().split("\0") if entry.startswith("DASK_")]
    return {name: value for name, _, value in pairs}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Start a scheduler and two workers with one thread each, as separate processes with empty caches."""
    processes: list[subprocess.Popen[bytes]] = []
    tls = _tls(tmp_path)
    for name, value in tls.items():
        monkeypatch.setenv(name, value)
    import dask

    dask.config.refresh()
    caches = [tmp_path / "cache-one", tmp_path / "cache-two"]

    def start(*arguments: str, cache: Path | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{arguments[0]}", *arguments[1:]]
        environment = os.environ | ({} if cache is None else {"BROBUST_CACHE": str(cache)})
        with (tmp_path / "cluster.log").open("ab") as log:
            processes.append(subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log, env=environment))
        return processes[-1]

    try:
        options = ["--scheduler-file", "s.json", "--no-dashboard"]
        start("dask_scheduler", *options, "--protocol", "tls", "--port", "0", "--host", "127.0.0.1")
        assert eventually((tmp_path / "s.json").exists), (tmp_path / "cluster.log").read_text()
        options += ["--nthreads", "1", "--no-nanny"]
        workers = [start("dask_worker", *options, "--name", cache.name, cache=cache) for cache in caches]
        from distributed import Client

        with Client(scheduler_file=str(tmp_path / "s.json"), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=WAIT)
            address = client.scheduler.address
        yield Cluster(address, workers, caches, processes[0])
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        for name in tls:
            monkeypatch.delenv(name, raising=False)
        dask.config.refresh()


@pytest.mark.virtual
def test_workers_measure_what_this_machine_would_and_one_that_dies_loses_no_run(
    cluster: Cluster, brobust: Brobust, study: Path, tmp_path: Path
) -> None:
    here = brobust("sweep", str(study), "--out", "here", cwd=tmp_path)
    assert here.returncode == 0, here.stderr
    command = [BROBUST, "sweep", str(study), "--out", "there", "--cluster", cluster.address]
    with subprocess.Popen([*command, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as sweep:
        assert sweep.stdout is not None
        first = [sweep.stdout.readline() for _ in range(4)]
        victim = psutil.Process(cluster.workers[0].pid)
        victim.kill()
        rest = sweep.stdout.read()  # not communicate(), which does not know what readline() has read ahead
        sweep.wait(timeout=WAIT)
    assert sweep.returncode == 0
    rows = json_lines("".join(first) + rest)
    assert len(rows) == 16 and {row["outcome"] for row in rows} == {"ok"}
    datasets = [Dataset.open(tmp_path / name) for name in ("here", "there")]
    hashes = [dict(dataset.runs().select("run", "packet_hash").rows()) for dataset in datasets]
    assert hashes[0] == hashes[1]
    assert cluster.address.startswith("tls://")
    for cache in cluster.caches:
        assert [path.name for path in cache.iterdir()] == ["sent"] and len(list((cache / "sent").iterdir())) == 1


@pytest.mark.virtual
def test_a_worker_that_cannot_measure_is_retired_and_costs_no_run(
    cluster: Cluster, study: Path, tmp_path: Path
) -> None:
    """It fails sooner than others measure, so it would take most of the runs."""
    cluster.caches[1].write_text("")  # no directory, so the kernel cannot be written there
    command = [BROBUST, "sweep", str(study), "--out", "there", "--cluster", cluster.address, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and {row["outcome"] for row in json_lines(done.stdout)} == {"ok"}, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("brobust: ")]
    assert re.match(r"brobust: worker tls://\S+ cannot measure: .*; it is retired, and others measure its runs$", line)
    assert str(cluster.caches[1]) in line
    assert len(Dataset.open(tmp_path / "there").finished()) == 16


def test_a_worker_that_has_joined_with_another_brobust_does_not_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.get_worker", lambda: SimpleNamespace(address="tls://10.0.0.2:9"))
    run = Grid.from_flags({}).runs()[0]
    with pytest.raises(
        clusters.Unfit, match=r"^worker tls://10.0.0.2:9 cannot measure: it has brobust .*, the machine"
    ):
        clusters._measured_there(run, sent.Packed("", b"", b""), None, "0.0")


@pytest.mark.root
def test_a_worker_of_root_writes_nothing_into_a_cache_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROBUST_CACHE", str(tmp_path / "theirs/cache"))
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    whole = sent.Packed(sent._hash(b"{}", b"linux"), b"{}", zlib.compress(b"linux"))
    with pytest.raises(MissingSupport, match="/theirs belongs to user 65534"):
        sent.unpacked(whole)
    assert list((tmp_path / "theirs/cache/sent").iterdir()) == []


def test_without_any_worker_that_can_measure_the_series_ends() -> None:
    client: Any = SimpleNamespace(nthreads=lambda **_: {"tls://10.0.0.2:9": 1})
    with pytest.raises(RunFailed, match=r"^--cluster: worker tls://10.0.0.2:9 cannot measure: why; no other worker"):
        clusters._Workers(client).leave_out(clusters.Unfit("tls://10.0.0.2:9", "why"))


@pytest.mark.virtual
def test_if_the_scheduler_dies_what_was_measured_is_kept_and_the_command_says_what_to_do(
    cluster: Cluster, study: Path, tmp_path: Path
) -> None:
    study.write_text(STUDY.replace("repeat = 4", "repeat = 100"))
    command = [BROBUST, "sweep", str(study), "--out", "there", "--cluster", cluster.address, "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stdout is not None and sweep.stderr is not None
        sweep.stdout.readline()
        cluster.scheduler.kill()
        out, said = sweep.stdout.read(), sweep.stderr.read()  # not communicate(), as above
    assert sweep.returncode == 2 and "its scheduler is gone; start it" in said, said
    assert len(Dataset.open(tmp_path / "there").finished()) >= 1 and len(json_lines(out)) < 400


@pytest.mark.virtual
def test_a_scheduler_that_says_nothing_any_more_is_given_up(cluster: Cluster, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("repeat = 4", "repeat = 100"))
    code = "from brobust import __main__ as m; from brobust.series import cluster as c; c.CONNECT_SECONDS = 1; "
    code += "c.MAX_SECONDS_WITHOUT_WORKERS = 5.0; m.main()"
    options = ["--out", "there", "--cluster", cluster.address, "--json"]
    command = [sys.executable, "-c", code, "sweep", str(study), *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stdout is not None and sweep.stderr is not None
        sweep.stdout.readline()
        cluster.scheduler.send_signal(signal.SIGSTOP)
        has_ended = eventually(lambda: sweep.poll() is not None, WAIT)
        sweep.kill()
        said = sweep.stderr.read()
    assert has_ended and sweep.returncode == 2 and "its scheduler has said nothing; start some" in said, said


def test_a_cluster_that_cannot_measure_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, study: Path, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 0.5)
    for arguments, words in (
        (["--cluster", "tcp://127.0.0.1:9"], ["--cluster tcp://127.0.0.1:9", "no scheduler"]),
        (["--cluster", "nonsense"], ["--cluster nonsense", "tcp://HOST:8786"]),
        (["--cluster", "tcp://8.8.8.8:8786"], ["8.8.8.8", "tls://", "--insecure"]),
    ):
        line = refused(capsys, "sweep", str(study), *arguments, "--out", "none")
        assert all(word in line for word in words), line
        assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("error", "why"), [(OSError("no\nroute"), "no"), (TimeoutError(), "TimeoutError")])
def test_why_no_scheduler_answers_is_said_also_where_the_error_says_nothing(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("distributed.Client", unreachable)
    with (
        pytest.raises(BadInput, match=re.escape(f"no scheduler answers there ({why})")),
        clusters.connected("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "is_exposed"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("127.0.0.1:8786", False),
        ("tcp://10.1.2.3:8786", False),
        ("tcp://[fd00::1]:8786", False),
        ("tls://8.8.8.8:8786", False),
        ("tcp://8.8.8.8:8786", True),
        ("8.8.8.8:8786", True),
        ("ws://8.8.8.8:8786", True),
        ("tcp://[2a00::1]:8786", True),
    ],
)
def test_without_tls_only_a_private_network_is_used(address: str, is_exposed: bool) -> None:
    if not is_exposed:
        clusters.refuse_exposed(address)
        return
    with pytest.raises(BadInput, match="is not a private address"):
        clusters.refuse_exposed(address)


def test_nobody_without_the_certificate_is_let_in_and_without_workers_nobody_waits_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, study: Path, tmp_path: Path
) -> None:
    from distributed import Client

    of_strangers = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
    code = "from brobust import __main__ as m; from brobust.series import cluster as c; c.CONNECT_SECONDS = 1; m.main()"
    command = [sys.executable, "-c", code, "sweep", str(study), "--cluster", cluster.address, "--out", "none"]
    done = subprocess.run(command, cwd=tmp_path, env=of_strangers, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and f"--cluster {cluster.address}: no scheduler" in done.stderr, done.stderr
    monkeypatch.setattr(clusters, "MAX_SECONDS_WITHOUT_WORKERS", 1.0)
    with Client(cluster.address, set_as_default=False) as client:
        for worker in cluster.workers:
            worker.kill()
        with pytest.raises(RunFailed, match="there has been no worker"):
            next(clusters.measure(client, Grid.from_flags({}).runs(), lambda _: None))


def test_an_interrupt_while_the_scheduler_says_nothing_ends_the_command(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        command = [BROBUST, "reproduce", "2brobust", "--figure", "10", "--scale", "smoke", "--cluster", address]
        with subprocess.Popen([*command, "--out", tmp_path / "out"], stderr=subprocess.PIPE, text=True) as process:
            silent.settimeout(60)
            connection, _ = silent.accept()
            time.sleep(1)
            process.terminate()
            asked = time.monotonic()
            said = process.communicate(timeout=60)[1]
    connection.close()
    assert (process.returncode, said) == (130, "brobust: interrupted\n")
    assert time.monotonic() - asked < 5
