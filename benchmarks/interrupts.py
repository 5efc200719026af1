"""Interrupt commands at random moments between exec and their end: do they end in time, and leave nothing behind?

    sudo .venv/bin/python benchmarks/interrupts.py [--tries 500] [--seed 1] [--only COMMAND] [--directory DIR]

Each try is one command on a terminal of its own, and one way to end it: Ctrl-C (the key, which signals all processes of
the terminal), SIGTERM, SIGHUP (to the command alone), or the terminal is closed. It must end within 2 s, without a
traceback. After that none of its processes may live, and its session, network namespaces, cgroups, sysctls, congestion
controls and temporary files must be gone; runs that it has reported must be in its dataset. The moment is drawn from
the time that the command takes undisturbed, or from its first seconds if that is long. Commands that boot VMs or
compile get fewer tries. Exit status 1 if one is late or leaves something; each such try is then described.

It needs root, /root/.cache/brobust with virtual-6.12 and debian-6.12 (`make setup`), and for `quic build` Go.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from brobust.dataset import Dataset
from brobust.kernels.virtual import cache_root, cached

BROBUST = Path(sys.executable).parent / "brobust"
LIMIT_SECONDS = 2.0
GIVE_UP_SECONDS = 20.0
WAYS = ("Ctrl-C", "SIGTERM", "SIGHUP", "closed")
SERIES = ("--bandwidth", "5mbit", "--duration", "1s", "--json")
STUDY = """
paper = "none"
figure = "short"
title = "Short runs"
[grid]
duration = "1s"
repeat = 3
path = {bandwidth = "5mbit"}
contention = {share = [1, 0.5]}
flows = [{cc = ["cubic", "bbr"]}]
[scale.quick]
repeat = 3
"""
REAL_TIME = "virtual-6.12-realtime"
NAMESPACES, SHARED = Path("/run/netns"), Path("/dev/shm")
SYSCTLS = ("kernel/sched_rt_runtime_us", "net/ipv4/tcp_congestion_control", "net/ipv4/tcp_available_congestion_control")
# Of Python itself, before any of our code runs.
PYTHONS_START = re.compile(r"Fatal Python error: init_|<frozen site>")


@dataclass(frozen=True)
class Place:
    """Where a try runs. All that it leaves there is its own."""

    directory: Path
    contended: int
    """A process for `contend`."""
    cluster: str

    @property
    def environment(self) -> dict[str, str]:
        ours = ("PATH", "LANG")
        home = Path.home()
        return {name: os.environ[name] for name in ours if name in os.environ} | {
            "HOME": str(self.directory / "home"), "TMPDIR": str(self.directory / "tmp"), "TERM": "xterm-256color",
            "BROBUST_RUNTIME": str(self.directory / "run"), "BROBUST_CACHE": str(cache_root().parent),
            "CARGO_HOME": os.environ.get("CARGO_HOME", str(home / ".cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(home / ".rustup")),
            "GOMODCACHE": str(home / "go/pkg/mod"), "GOCACHE": str(self.directory / "compiled"),
            "GOFLAGS": "-modcacherw",
        }  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command that is interrupted."""

    arguments: Callable[[Place], Sequence[str]]
    seconds: float | None = None
    """From how many first seconds the moment is drawn; None: from all that it takes."""
    weight: float = 1
    """How many tries it gets, compared with others."""
    environment: Callable[[Place], dict[str, str]] = lambda _: {}


def _builds(place: Place) -> dict[str, str]:
    """Build from the sources that are here, into a cache of its own."""
    cache = place.directory / "cache"
    cache.mkdir(exist_ok=True)
    sources = cache / "sources"
    if not sources.exists():
        sources.symlink_to(cache_root().parent / "sources")
    return {"BROBUST_CACHE": str(cache)}


def _thread(place: Place) -> list[str]:
    return ["--pid", str(place.contended), "--threads", str(place.contended)]


VM = ("--duration", "3s", "--bandwidth", "20mbit", "--share", "0.5", "--cc", "cubic")
COMMANDS = {
    "run": Command(lambda _: ["run", *SERIES, "--cc", "cubic,bbr", "--share", "1,0.5", "--out", "out"], weight=3),
    "run programs": Command(lambda _: ["run", *SERIES, "--traffic", "iperf3", "--share", "1", "--out", "out"]),
    "run vm": Command(lambda _: ["run", "--backend", "vm", *VM, "--json", "--out", "out"], 25, 0.5),
    "run uml": Command(
        lambda _: ["run", "--backend", "vm", "--accelerator", "uml", *VM, "--json", "--out", "out"], 15, 0.5
    ),
    "reproduce": Command(lambda _: ["reproduce", "2brobust", "--figure", "10", "--scale", "smoke", "--out", "out"]),
    "sweep": Command(lambda place: ["sweep", str(place.directory / "short.toml"), "--out", "out"]),
    "sweep --cluster": Command(
        lambda place: ["sweep", str(place.directory / "short.toml"), "--out", "out", "--cluster", place.cluster]
    ),
    "validate": Command(lambda _: ["validate", "--duration", "3s", "--out", "out"], 25, 0.5),
    "demo": Command(lambda _: ["demo", "--backend", "virtual", "--out", "out"]),
    "demo vm": Command(lambda _: ["demo", "--backend", "vm", "--out", "out"], 25, 0.3),
    "cc load": Command(lambda _: ["cc", "load", "brb_vegas", "--for", "2s"]),
    "contend": Command(lambda place: ["contend", *_thread(place), "--share", "50%", "--for", "2s"]),
    "contend quota": Command(
        lambda place: ["contend", *_thread(place), "--share", "50%", "--driver", "quota", "--for", "2s"]
    ),
    "contend burner": Command(
        lambda place: ["contend", *_thread(place), "--share", "50%", "--driver", "burner", "--for", "2s"]
    ),
    "contend record": Command(lambda place: ["contend", "record", *_thread(place), "--for", "2s", "-o", "out.parquet"]),
    "watch": Command(lambda _: ["watch"], 3),
    "watch --json": Command(lambda _: ["watch", "--json"], 2),
    "quic build": Command(lambda _: ["quic", "build", "quic-go"], 8, 0.5, environment=_builds),
    "kernel build": Command(lambda _: ["kernel", "build"], 60, 0.3, environment=_builds),
}


@dataclass
class Try:
    """One command that was interrupted, and what came of it."""

    name: str
    way: str
    moment: float
    seconds: float = 0
    """From the interrupt to the end."""
    status: int | None = None
    had_ended: bool = False
    reported: int = 0
    problems: list[str] = field(default_factory=list)
    said: str = ""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, arguments: Sequence[str], place: Place, environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.said = b""
        self.process = subprocess.Popen(
            [str(BROBUST), *arguments], stdin=slave, stdout=slave, stderr=slave, cwd=place.directory / "work",
            env=environment, start_new_session=True,
            preexec_fn=_with_terminal,
        )  # fmt: skip
        os.close(slave)

    def read_until(self, moment: float) -> None:
        """Read what it says until then, or until it has ended and all is read."""
        while (left := moment - time.monotonic()) > 0:
            if self._master < 0:
                if self.process.poll() is not None:
                    return
                time.sleep(min(0.005, left))
                continue
            readable, _, _ = select.select([self._master], [], [], min(0.005, left))
            if readable:
                try:
                    self.said += os.read(self._master, 65536)
                except OSError:  # nobody has it open any more
                    if self.process.poll() is not None:
                        return
                    time.sleep(min(0.005, left))
            elif self.process.poll() is not None:
                return

    def interrupt(self, way: str) -> None:
        if way == "Ctrl-C":
            os.write(self._master, b"\x03")
        elif way == "closed":
            self.close()
        else:
            self.process.send_signal(signal.Signals[way])

    def close(self) -> None:
        if self._master >= 0:
            os.close(self._master)
            self._master = -1


def _default_signals() -> None:
    """A shell that starts this in the background has made it ignore SIGINT, and nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _with_terminal() -> None:
    _default_signals()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def state(place: Place) -> dict[str, set[str]]:
    """Return what of the host a command may change."""
    directory, run = place.directory, place.directory / "run"
    groups = {str(path) for path in Path("/sys/fs/cgroup").rglob("brobust-*")}
    found = {
        "sessions": {path.name for path in run.iterdir() if path.name != "lock"} if run.is_dir() else set(),
        "network namespaces": {path.name for path in NAMESPACES.iterdir()} if NAMESPACES.is_dir() else set(),
        "cgroups": groups,
        "temporary files": {str(path) for path in (directory / "tmp").iterdir()},
        "files of kernels": {str(path) for path in (directory / "home").rglob("*") if ".uml" in path.parts},
        "scratch": {str(path) for path in (directory / "cache/quic").glob("*/build-*")},
        "scheduling": {f"{os.sched_getscheduler(place.contended)} {os.sched_getaffinity(place.contended)}"},
        "sysctls": {f"{name} = {_sorted((Path('/proc/sys') / name).read_text())}" for name in SYSCTLS},
    }
    # Named by us: others use this directory, too.
    found["shared memory"] = {path.name for path in SHARED.iterdir() if "brobust" in path.name}
    doctor = subprocess.run(
        [BROBUST, "doctor", "--clean", "--dry-run", "--json"], env=place.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    found["doctor"] = {line for line in doctor.stdout.splitlines() if str(run) in line}
    return found


def _sorted(text: str) -> str:
    return " ".join(sorted(text.split()))


def processes_of(place: Place) -> dict[int, str]:
    """Return the processes that run in this place: their environment or their command names it. Not those that were
    there before."""
    found, name = {}, os.fsencode(place.directory)
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):
            proc = Path(f"/proc/{process.pid}")
            command = (proc / "cmdline").read_bytes()
            if process.pid != os.getpid() and (name in (proc / "environ").read_bytes() or name in command):
                found[process.pid] = command.replace(b"\0", b" ").decode(errors="replace")[:120]
    return found


def attempt(name: str, way: str, moment: float, place: Place) -> Try:
    """Start a command, interrupt it at the moment, and see what it leaves."""
    command, done = COMMANDS[name], Try(name, way, moment)
    for scratch in ("work", "tmp", "home"):
        shutil.rmtree(place.directory / scratch, ignore_errors=True)
        (place.directory / scratch).mkdir()
    shutil.rmtree(place.directory / "compiled", ignore_errors=True)
    before, there = state(place), processes_of(place)
    terminal = Terminal(command.arguments(place), place, place.environment | command.environment(place))
    begun = time.monotonic()
    terminal.read_until(begun + moment)
    done.had_ended = terminal.process.poll() is not None
    shot = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        terminal.interrupt(way)
    terminal.read_until(shot + GIVE_UP_SECONDS)
    done.status, done.seconds = terminal.process.poll(), time.monotonic() - shot
    if done.status is None:
        done.problems.append(f"it had not ended after {GIVE_UP_SECONDS:.0f} s")
        terminal.process.kill()
        terminal.process.wait()
    # Until then all that the command has started must be gone, too; a busy machine may need longer to remove it.
    while (left := {pid: said for pid, said in processes_of(place).items() if pid not in there}) and (
        time.monotonic() < shot + max(LIMIT_SECONDS, done.seconds + 0.5)
    ):
        time.sleep(0.02)
    done.problems += [f"process {pid} lives: {said}" for pid, said in left.items()]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    after = state(place)
    done.problems += [
        f"{what}: {', '.join(sorted(after[what] ^ before[what]))}" for what in before if after[what] != before[what]
    ]
    terminal.close()
    done.said = terminal.said.decode(errors="replace")
    _judge(done, place)
    return done


def _judge(done: Try, place: Place) -> None:
    said = done.said
    for word in ("Traceback", "a mistake in brobust", "Exception ignored", "panicked at"):
        if word in said and not PYTHONS_START.search(said):
            done.problems.append(f"it said {word!r}")
    if not done.had_ended and done.seconds > LIMIT_SECONDS:
        done.problems.append(f"it took {done.seconds:.1f} s to end")
    # 1: found something; a signal: it came before there was anything to undo, or the terminal of `watch` is gone
    if done.status not in (0, 1, 130, 129, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, None):
        done.problems.append(f"its exit status was {done.status}")
    out = place.directory / "work/out"
    reported = set(re.findall(r'\{"run": "([0-9a-f]+-[0-9]+)"', said))
    done.reported = len(reported)
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    if files and not any((data / "dataset.json").exists() for data in (out, *out.glob("*/"))):
        done.problems.append(f"no dataset, but {files}")
    if (out / "dataset.json").exists() and reported - Dataset.open(out).finished():
        done.problems.append("a run that it reported is not in the dataset")
    if reported and not out.exists():
        done.problems.append("runs were reported, and the dataset is gone")


def undisturbed_seconds(name: str, place: Place) -> float:
    """Return how long the command takes when nobody interrupts it."""
    command = COMMANDS[name]
    if command.seconds is not None:
        return command.seconds
    shutil.rmtree(place.directory / "work", ignore_errors=True)
    (place.directory / "work").mkdir()
    terminal = Terminal(command.arguments(place), place, place.environment | command.environment(place))
    begun = time.monotonic()
    terminal.read_until(begun + 120)
    seconds = time.monotonic() - begun
    if terminal.process.poll() not in (0, 1):
        terminal.process.kill()
        sys.exit(f"{name}: it does not run here: {terminal.said.decode(errors='replace')[-500:]}")
    terminal.close()
    return seconds


@contextlib.contextmanager
def placed(directory: Path | None) -> Iterator[Place]:
    """Yield a place with a process to take the CPU from and a cluster of one worker."""
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interrupts-", dir=directory)))
        for name in ("work", "tmp", "home", "run"):
            (root / name).mkdir()
        root.chmod(0o755)  # guests are nobody's
        (root / "short.toml").write_text(STUDY)

        def started(*command: str) -> subprocess.Popen[bytes]:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(command, start_new_session=True, cwd="/", **quiet)  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process  # type: ignore[no-any-return]

        contended = started("sleep", "1000000")
        file = root / "scheduler.json"
        dask = (sys.executable, "-m")
        at = ("--no-dashboard", "--scheduler-file", str(file))
        started(*dask, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *at)
        while not file.exists():
            time.sleep(0.1)
        started(*dask, "distributed.cli.dask_worker", *at, "--nthreads", "1", "--no-nanny")
        time.sleep(3)
        yield Place(root, contended.pid, json.loads(file.read_text())["address"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=500, help="of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=sorted(COMMANDS), help="may be given again")
    parser.add_argument("--way", action="append", choices=WAYS, help="may be given again")
    parser.add_argument("--directory", type=Path, help="where the tries run [a temporary directory]")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("interrupts: it changes the host and boots VMs; run it as root")
    names, ways, draw = list(given.only or COMMANDS), given.way or WAYS, random.Random(given.seed)
    weight = sum(COMMANDS[name].weight for name in names)
    done: list[Try] = []
    with placed(given.directory) as place:
        if "run uml" in names and cached(REAL_TIME) is None:
            print(f"run uml: left out, since {REAL_TIME} is not built", file=sys.stderr)
            names.remove("run uml")
        for name in names:
            seconds = undisturbed_seconds(name, place)
            for _ in range(max(1, round(given.tries * COMMANDS[name].weight / weight))):
                one = attempt(name, ways[len(done) % len(ways)], draw.uniform(0, seconds), place)
                done.append(one)
                for problem in one.problems:
                    print(f"{one.name}, {one.way} at {one.moment:.3f} s: {problem}", file=sys.stderr)
                if one.problems:
                    print(f"    it said: {one.said[-600:]!r}", file=sys.stderr, flush=True)
            print(f"{name}: {len(done)} tries", file=sys.stderr, flush=True)
    print("| command | way | tries | before its end | max s | with problems | runs reported |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for name in names:
        for way in ways:
            of = [one for one in done if (one.name, one.way) == (name, way)]
            if of:
                early = [one for one in of if not one.had_ended]
                longest = f"{max(one.seconds for one in early):.2f}" if early else ""
                bad, reported = sum(bool(one.problems) for one in of), sum(one.reported for one in of)
                print(f"| {name} | {way} | {len(of)} | {len(early)} | {longest} | {bad} | {reported} |")
    bad = sum(bool(one.problems) for one in done)
    print(f"{len(done)} tries, {bad} with problems")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
