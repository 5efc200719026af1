"""Every command refuses what can be refused by reading the user's words before it looks at the host, the cache, a
kernel or the network: each of these is replaced by something that fails loudly."""

import os
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl  # what is imported may look at the host while it is
import pytest

from brobust import extras, quic
from brobust.analysis import compare
from brobust.backends import memory
from brobust.cli import COMMANDS
from brobust.cli.cc import OF_HOST_PROGRAM
from brobust.conformance import calls, packets, shadow
from brobust.contention import during_run
from brobust.dataset import Dataset
from brobust.host import cache, programs
from brobust.kernels import apt, build, modules, sources
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.report import explanation, html
from brobust.report import study as drawing
from brobust.scenario import Grid
from brobust.series import cluster, runner
from brobust.study import model
from brobust.testbed import accelerator
from brobust.virtual import programs as virtual_programs
from conftest import refused

IMPORTED = (pl, compare, calls, packets, shadow, explanation, html, drawing, model, cluster)

WORLD: list[tuple[Any, str]] = [
    (os, "geteuid"), (os, "sched_getaffinity"), (os, "uname"), (os, "execv"), (socket, "getaddrinfo"),
    (subprocess, "Popen"), (virtual_kernels.VirtualKernel, "read"), (virtual_kernels, "default"),
    (virtual_kernels, "find"), (virtual_kernels, "available"), (vm_kernels, "default"), (vm_kernels, "find"),
    (vm_kernels, "available"), (vm_kernels, "headers"), (vm_kernels, "_cached"), (sources, "obtainable"),
    (apt, "archives"),
    (build, "build"), (modules, "headers_of"), (cache, "cache_directory"), (memory, "available"), (runner, "host"),
    (during_run, "plan"), (during_run, "check"), (accelerator, "qemu_version"), (quic, "commands"),
    (virtual_programs, "why_no_ptrace"), (extras, "missing"),
]  # fmt: skip
PLACES = ("/proc/", "/sys/", "/boot", "/lib/modules", "/run/", "/var/", str(cache.cache_directory()))
EVENTS = ("subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect", "socket.getaddrinfo")
_watched = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    touched = event in EVENTS
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
        touched = os.fsdecode(arguments[0]).startswith(PLACES)
    if touched:
        raise AssertionError(f"the world was touched: {event} {arguments}")


sys.addaudithook(_watch)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's directory: datasets of other runs, and a directory with something else. Nothing is changed in it."""
    home = tmp_path_factory.mktemp("home")
    for name in ("runs", "other/virtual", "other/vm", "other/data"):
        Dataset.create(home / name, Grid.from_flags({"repeat": 7, "kernel": "virtual-6.12"}), {})
    (home / "foreign").mkdir()
    (home / "foreign" / "thesis.tex").touch()
    (home / "unsampled.toml").write_text(
        'paper = "own"\nfigure = "1"\ntitle = "t"\n[scale.quick]\n'
        '[[figures]]\nname = "f"\ntitle = "t"\nkind = "model"\n'
    )
    return home


@pytest.fixture
def no_world(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[None]:
    """Nothing is there but the user's words and files."""
    global _watched
    monkeypatch.chdir(home)

    def touched(*arguments: Any, **_: Any) -> Any:
        raise AssertionError(f"the world was touched: {arguments}")

    for owner, name in WORLD:
        monkeypatch.setattr(owner, name, touched)
    _watched = True
    yield
    _watched = False


REFUSED = {
    "run --share 0": "share",
    "run nowhere.toml": "nowhere.toml: cannot be read (",
    "run /dev/zero": "is a character device",
    "run --cc reno2": "'reno2'",
    "run --backend vm --cc reno2": "is a congestion control neither of Linux nor of brobust; did you mean reno?",
    "run --backend vm --kernel debian-6.12 --cc brb_bbq:gain=2": "gain",
    "run --backend vm --cc bbr,brb_bbq:alpha": "'alpha'",
    "run --backend vm --driver late": "contention.driver: 'late' says what another host would do; for this one give",
    "run --backend vm --duration 2.5s": "whole seconds",
    "run --backend vm --accelerator uml --vcpus 2 --share 0.5": "contention.vcpus",
    "run --backend lab --share 1": "--hosts FILE",
    "run --backend lab --share 1 --hosts nowhere.toml": "nowhere.toml",
    "run --replay nowhere.csv": "nowhere.csv",
    "run --backend vm --share 1 --replay foreign": "holds no dataset",
    "run --jobs 0": "--jobs",
    "run --out foreign": "thesis.tex",
    "run --out runs": "already holds a dataset of another scenario: repeat is 3 here and 7 there; give another --out",
    "run --out runs --repeat 7": "already holds a dataset; add --resume to complete it",
    "run --out unsampled.toml": "unsampled.toml is no directory",
    "sweep unsampled.toml --out unsampled.toml/data": "unsampled.toml is no directory",
    "run --without runs": "--without",
    "run --at-least fast": "--at-least",
    "run --gdb sender": "--gdb",
    "run --cc bbr --share 1 --repeat 1 --gdb sender": "--gdb",
    "run --gdb sender@1s --resume": "--resume completes one",
    "run --resume --out foreign": "holds no dataset",
    "run --resume --out runs --share 0.3": "another scenario: contention.share is 0.3 here and 1,",
    "run --resume --out runs --repeat 7 --duration 20s": "another scenario: duration is 20s here and 10s there",
    "run --resume": "no dataset",
    "sweep nowhere.toml": "nowhere.toml",
    "reproduce nobody": "'nobody'",
    "reproduce 2brobust --figure 99": "--figure",
    "reproduce 2brobust --set nowhere=1": "--set",
    "reproduce 2brobust --backend qemu": "backend",
    "reproduce unsampled.toml --insecure": "--insecure",
    "reproduce unsampled.toml --jobs 0": "--jobs",
    "reproduce 2brobust --cluster 203.0.113.7:8786 --set path.rtt=fast": "rtt",
    "reproduce unsampled.toml --cluster 203.0.113.7:8786 --jobs 2": "omit --jobs",
    "reproduce 2brobust --figure 9 --out other": "other studies",
    "reproduce unsampled.toml --out unsampled.toml": "unsampled.toml is no directory",
    "reproduce unsampled.toml": "needs samples",
    "reproduce unsampled.toml --dry-run": "needs samples",
    "reproduce unsampled.toml --backend lab": "--set hosts=FILE",
    "reproduce unsampled.toml --backend lab --set hosts=nowhere.toml": "nowhere.toml",
    "validate --cc reno2": "'reno2'",
    "validate --added-rtt soon": "--added-rtt",
    "validate --cpu-frequency fast": "cpu.frequency",
    "validate --adaptive-rx perhaps": "adaptive_rx",
    "validate --out other": "other runs",
    "demo --backend qemu": "'--backend': 'qemu' is not one of",
    "demo --out other": "other runs",
    "demo --out unsampled.toml": "unsampled.toml is no directory",
    "plot nowhere --out figures": "nowhere",
    "plot runs --out unsampled.toml": "unsampled.toml is no directory",
    "trace nowhere": "nowhere",
    "explain nowhere": "nowhere",
    "explore nowhere": "nowhere",
    "compare nowhere runs": "nowhere",
    "compare runs runs --tolerance 7": "'--tolerance': give 1 or less (given: 7",
    "report nowhere": "nowhere",
    "doctor --dry-run": "--clean",
    "docs nowhere": "'nowhere'",
    "kernel build nowhere": "'nowhere'",
    "kernel build --hz 7": "--hz",
    "kernel build --source nowhere": "nowhere",
    "kernel build --source foreign --name own": "--name",
    "kernel patch nowhere": "nowhere",
    "kernel patch foreign --repair hope": "--repair",
    "kernel patch foreign --check --diff": "--check",
    "kernel patch foreign --guest here": "--guest",
    "kernel list --nothing": "--nothing",
    "quic build nowhere": "'nowhere'",
    "quic list --nothing": "--nothing",
    "cc compare reno2 cubic": "'reno2'",
    "cc compare --case nowhere": "'nowhere'; --list lists them",
    "cc compare --quick --case 'loss 1%'": "--quick: --case says",
    "kernel build virtual-6.12 --hz 100 --hz 300": "--hz is given twice",
    "cc compare cubic": "two congestion controls",
    "cc compare --kernel ,": "--kernel: ',' has an empty element",
    "cc compare --kernel virtual-6.1,virtual-6.12,virtual-7.2": "are more than two",
    "run --sender-program a --receiver-program b --program-files a,,b": "programs.files: 'a,,b' has an empty name",
    "cc replay cubic": "'cubic'",
    "cc replay --backend qemu": "--backend",
    "cc replay --case nowhere": "'nowhere'",
    "cc shadow cubic": "'cubic'",
    "cc shadow --case nowhere": "'nowhere'",
    "cc module nowhere": "'nowhere' is no congestion control of ours",
    "cc module brb_bbq --guest here": "name it with --kdir debian-6.12",
}
OF_PROGRAM = {
    "watch --interval soon": "--interval",
    "watch --window 1ms": "--window",
    "watch --window -5s": "invalid value '-5s' for '--window",
    "watch --top -1": "invalid value '-1' for '--top",
    "watch --filter sometimes": "sometimes",
    "watch --serve nowhere": "nowhere",
    "watch --per-socket": "--serve",
    "watch --serve 127.0.0.1:0 --top 5": "--top",
    "watch --explain --json": "--explain",
    "contend --pid 4194305 --share 2": "--share",
    "contend --pid python --share 0.5": "invalid value 'python' for '--pid <PID>': no process id",
    "contend --pid 4194305 --share -50%": "invalid value '-50%' for '--share",
    "contend --pid 4194305 --share 0.5 --driver fear": "--driver",
    "contend --pid 4194305 --share 0.5 --for ever": "--for",
    "contend --pid 4194305 --share 0.5 --out trace.txt": "--out",
    "contend --pid 4194305 --share 0.5 --force": "--force needs --for",
    "contend --pid 4194305 --replay /dev/zero": "is a character device",
    "contend --pid 4194305 --replay trace.csv --timeslice 5ms": "--timeslice",
    "contend --pid 4194305 --driver competitor --share 0.5 --timeslice 5ms": "--driver competitor",
    "contend record --pid 4194305 --out trace.txt": "--out",
    "contend record --pid 4194305 --out trace.parquet --for ever": "--for",
    "cc load reno2": "reno2",
    "cc load brb_bbq --param alpha": "--param",
    "cc load brb_bbq --param alpha=3": "--param",
    "cc load brb_bbq --for ever": "--for",
    "cc load brb_bbq --timeout 5": "unexpected argument '--timeout' found\n",
    "cc load brb_bbq --for -5s": "invalid value '-5s' for '--for",
    "cc load brb_bbq --netns web": "--default",
    "cc load brb_bbq --pin --for 1s": "--pin",
    "cc unload reno2": "reno2",
    "cc unload": "--all",
    "cc params reno2": "reno2",
    "cc programs reno2": "reno2",
    "cc list --nothing": "--nothing",
    "doctor --dry-run": "--clean",
    "doctor --report machine.toml": "the Python package",
}


@pytest.mark.parametrize("command", REFUSED)
@pytest.mark.usefixtures("no_world")
def test_words_are_read_before_the_world_is_looked_at(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert REFUSED[command] in refused(capsys, *shlex.split(command))


@pytest.mark.parametrize("command", OF_PROGRAM)
def test_so_does_the_program_for_operators(tmp_path: Path, command: str) -> None:
    # The process does not exist, since pid_max is lower. One descriptor is left, which the dynamic linker needs: of the
    # host, nothing can be opened beside a directory or a socket.
    done = subprocess.run(
        [programs.host_program(), *shlex.split(command)], capture_output=True, text=True, cwd=tmp_path, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)),
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done
    assert OF_PROGRAM[command] in done.stderr


def test_every_command_is_among_these() -> None:
    named = {" ".join(word for word in line.split()[:2] if not word.startswith("-")) for line in REFUSED | OF_PROGRAM}
    groups = {"cc", "kernel", "quic"}
    assert {name.split()[0] for name in named} == set(COMMANDS)
    assert {f"cc {name}" for name in OF_HOST_PROGRAM} <= named
    from brobust.cli import cc, kernel
    from brobust.cli import quic as of_quic

    for group, app in (("cc", cc.app), ("kernel", kernel.app), ("quic", of_quic.app)):
        assert group in groups
        own = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback and not one.hidden}
        assert {f"{group} {name}" for name in own} <= named
