"""Shared fixtures. Tests that need root or VMs have a marker, and are skipped with the reason where they cannot run."""

import gzip
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

import forked
from brobust import backends, cli
from brobust.backends.vm import VmBackend
from brobust.host import locks, programs
from brobust.kernels import our_files
from brobust.kernels import vm as vm_kernels

BROBUST = Path(sys.executable).parent / "brobust"
Brobust = Callable[..., subprocess.CompletedProcess[str]]
"""What the fixture `brobust` is: the command."""

# Few inputs, the same each time; with HYPOTHESIS_PROFILE=deep many, and different ones each time. There is no deadline,
# because machines may be busy.
EVERY = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("quick", max_examples=30, derandomize=True, **EVERY)  # type: ignore[arg-type]
settings.register_profile("deep", max_examples=2000, **EVERY)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A shell that starts the tests in the background makes them, and all that they start, ignore SIGINT, and nohup SIGHUP.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Some tests look at modes of files, and some have other users read or other programs take them.
os.umask(0o022)

# What `alone_on_the_host` would let run one after the other anyway is one worker's, so that no other waits for it.
ON_THE_HOST = "a file with tests marked host"


class ByFile(LoadScopeScheduling):
    """Give a worker all tests of a file, and one worker all files with tests marked `host`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return ON_THE_HOST if _has(self.config.rootpath / file, "host") else file


@cache
def _has(file: Path, marker: str) -> bool:
    return f"mark.{marker}" in file.read_text()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only files that have tests of the stage that is asked for: all of them take each worker five seconds."""
    stage = re.fullmatch(r"(vm|virtual|compiles)( and not \w+)*", config.option.markexpr)
    return True if stage and collection_path.suffix == ".py" and not _has(collection_path, stage[1]) else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return ByFile(config, log)


# A worker has all tests of a file. These files take longest: they begin first, so that all workers end together.
LONGEST = (
    "test_contend.py",
    "test_study.py",
    "test_virtual.py",
    "test_tutorial.py",
    "test_kernel_modules.py",
    "test_cc_packets.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: (
            "testbed" in item.fixturenames,  # type: ignore[attr-defined]
            LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST),
        )
    )
    for item in items:
        if item.get_closest_marker("vm"):
            item.add_marker(pytest.mark.root)
            if shutil.which("qemu-system-x86_64") is None:
                item.add_marker(pytest.mark.skip(reason="qemu-system-x86_64 is not installed"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(autouse=True)
def alone_on_the_host(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let only one test marked `host` run at a time, among all workers and all checkouts: these tests change, or need
    for themselves, what exists only once per host."""
    is_root, is_alone = os.geteuid() == 0, request.node.get_closest_marker("host") is not None
    if is_root and "PYTEST_XDIST_WORKER" in os.environ:
        # They look at when threads run: the tests of other workers, and what these start, give way to them.
        os.setpriority(os.PRIO_PROCESS, 0, 0 if is_alone else 10)
    if not (is_root and is_alone):
        yield
        return
    with locks.locked(locks.private_directory(Path("/run/brobust-tests")) / "lock", seconds=280):
        yield


@pytest.fixture
def brobust(tmp_path: Path) -> Brobust:
    """Run the command in a new directory; with other options of subprocess.run, run the installed one."""

    def call(*arguments: str, cwd: Path = tmp_path, **options: Any) -> subprocess.CompletedProcess[str]:
        if not options:
            return forked.run(arguments, cwd, timeout=280)
        return subprocess.run([BROBUST, *arguments], cwd=cwd, capture_output=True, text=True, timeout=280, **options)

    return call


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the pages and their data."""
    import evidence  # which imports polars

    for directory in ("docs", "benchmarks", "python/brobust/explore"):  # whose page shows cells
        shutil.copytree(evidence.ROOT / directory, tmp_path / "copy" / directory)
    monkeypatch.setattr(evidence, "ROOT", tmp_path / "copy")
    monkeypatch.setattr(evidence, "DATA", tmp_path / "copy/docs/data")
    return tmp_path / "copy"


@pytest.fixture
def linux_source(tmp_path: Path) -> Callable[[str], Path]:
    """Return, of Debian's source of a series, a tree with what tests look at. Reading the whole archive takes ten
    seconds: it is done once for all tests of all clones."""

    def make(series: str) -> Path:
        archives = sorted((vm_kernels.cache_directory() / "sources").glob(f"linux-source-{series}_*.tar.*"))
        if not archives:
            pytest.skip(f"the cache has no linux-source-{series}; `brobust kernel build virtual-{series}` fetches it")
        files = sorted(f"linux-source-{series}/{name}" for name in _looked_at(series))
        digest = hashlib.sha256("\n".join(files).encode()).hexdigest()[:8]
        kept = locks.private_directory(vm_kernels.cache_directory() / "tests") / f"{archives[-1].name}.{digest}"
        with locks.locked(kept.parent / f"{archives[-1].name}.lock", seconds=280):
            if not kept.is_dir():
                for other in kept.parent.glob(f"{archives[-1].name}.*/"):  # of other files
                    shutil.rmtree(other)
                unpacked = Path(tempfile.mkdtemp(dir=kept.parent))
                # Not every series has all of them, which tar calls a mistake.
                command = ["tar", "-xf", archives[-1], "--strip-components=1", "--occurrence=1", *files]
                subprocess.run(command, cwd=unpacked, check=False, capture_output=True)
                assert (unpacked / "net/ipv4/tcp_bbr.c").is_file(), archives[-1]
                unpacked.rename(kept)
        return Path(shutil.copytree(kept, tmp_path / f"linux-source-{series}"))

    return make


def _looked_at(series: str) -> set[str]:
    """Return what our patches change, and Google's, and what checks them."""
    ours = [path for path in our_files.of_virtual_kernels().values() if path.suffix == ".patch"]
    texts = [path.read_text() for path in (*ours, *our_files.series("kept").values())]
    changed = re.findall(r"^--- a/(\S+)", "\n".join([*texts, googles_patch(series) or ""]), re.MULTILINE)
    checking = {f"scripts/{name}" for name in ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch")}
    return {"Makefile", "net/ipv4/Kconfig", *checking, *changed}


def googles_patch(series: str) -> str | None:
    """Return what makes Google's tree of a series: `../shared/kernels` beside the project has it, or not."""
    file = {"6.12": "google-bbr3-linux-6.12.patch.gz", "6.1": "google-bbr2-linux-6.1.patch.gz"}[series]
    for above in Path(__file__).parents[2:4]:
        if (found := above / "shared/kernels" / file).is_file():
            return gzip.decompress(found.read_bytes()).decode(errors="replace")
    return None


@pytest.fixture(scope="session")
def testbed() -> Iterator[VmBackend]:
    """Real VMs, which all tests share that do not boot their own. Those that do come before."""
    with backends.opened("vm", lambda _: None) as backend:
        assert isinstance(backend, VmBackend)
        yield backend


def scheduling_of(tid: int) -> tuple[object, ...]:
    """Return what contention may change of a thread, beside its cgroup."""
    policy, parameters = os.sched_getscheduler(tid), os.sched_getparam(tid)
    nice = os.getpriority(os.PRIO_PROCESS, tid)
    return os.sched_getaffinity(tid), policy, parameters.sched_priority, nice


def left_behind() -> list[str]:
    """Return kind and name of what killed commands have left on the host."""
    doctor = [programs.host_program(), "doctor", "--clean", "--dry-run", "--json"]
    listed = subprocess.run(doctor, capture_output=True, text=True, check=True).stdout
    return [f"{one['kind']} {one['name']}" for one in json_lines(listed)]


@contextmanager
def killed_at_end(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command while the context lasts, with these options of subprocess.Popen; at its end it is killed, if it
    still runs."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def kill_with_guardian(process: subprocess.Popen[Any]) -> None:
    """Kill a command and its guardian. The command is stopped before, else it may notice that its guardian is gone, and
    undo all by itself."""
    (guardian,) = [child for child in psutil.Process(process.pid).children() if "guard" in child.cmdline()]
    process.send_signal(signal.SIGSTOP)
    guardian.kill()
    process.kill()


def have_ended(processes: Iterable[psutil.Process]) -> bool:
    """Return whether none of these runs any more. One that has ended is a zombie until its parent looks at it, which
    the first process of a container, to which it falls when its own is gone, need never do."""

    def has_ended(process: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        return True

    return all(map(has_ended, processes))


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line with which the command refuses; its exit status must be 2. It runs in this process, since a
    separate one takes a second to start."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    out, line = capsys.readouterr()
    assert (ended.value.code, out) == (2, "") and line.count("\n") == 1, (out, line)
    return line


def refused_by_program(brobust: Brobust, *arguments: str) -> str:
    """Return the one line with which the program for operators refuses; its exit status must be 2."""
    done = brobust(*arguments)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr.count("\n") == 1, done
    return done.stderr


def eventually(condition: Callable[[], bool], seconds: float = 60, pause: float = 0.02) -> bool:
    """Return whether it becomes true. Only if it does not, this takes the whole time."""
    patience = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > patience:
            return False
        time.sleep(pause)
    return True
