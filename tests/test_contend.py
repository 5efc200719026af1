"""`brobust contend`: which threads it finds, what it refuses, what it does to a thread, and that it is undone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import psutil
import pytest

from brobust import _core
from brobust.contention import any_vm, recordings, vcpus
from brobust.drivers.burner import phases_of
from brobust.errors import BadInput
from brobust.host import locks
from conftest import BROBUST, eventually, json_lines, refused, scheduling_of

Brobust = Callable[..., subprocess.CompletedProcess[str]]

# Threads as the hypervisors name them, beside some that are none of ours: (program, its threads) -> the vCPUs' names.
RECORDED = {
    ("qemu-system-x86", ("qemu-system-x86", "IO mon_iothread", "CPU 1/KVM", "CPU 0/KVM", "worker")): [
        "CPU 0/KVM",
        "CPU 1/KVM",
    ],
    ("qemu-kvm", ("qemu-kvm", "call_rcu", "CPU 0/TCG")): ["CPU 0/TCG"],
    ("qemu-system-x86", ("qemu-system-x86", "ALL CPUs/TCG")): ["ALL CPUs/TCG"],
    ("VBoxHeadless", ("VBoxHeadless", "EMT-10", "EMT-2", "EMT-0", "VDMA", "TAP")): ["EMT-0", "EMT-2", "EMT-10"],
    ("VirtualBoxVM", ("VirtualBoxVM", "EMT", "nspr-3")): ["EMT"],
    ("vmware-vmx", ("vmware-vmx", "vmx-mks", "vmx-vcpu-0", "vmx-vcpu-1")): ["vmx-vcpu-0", "vmx-vcpu-1"],
    ("firecracker", ("firecracker", "fc_api", "fc_vcpu 0", "fc_vcpu 1")): ["fc_vcpu 0", "fc_vcpu 1"],
    ("cloud-hyperviso", ("cloud-hyperviso", "vmm", "vcpu0", "vcpu1", "_net0_qp0")): ["vcpu0", "vcpu1"],
    # The jailer of Firecracker may have renamed the process: its threads tell.
    ("vm-4711", ("vm-4711", "fc_api", "fc_vcpu 0")): ["fc_vcpu 0"],
}


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Makes a /proc with a process of these threads."""
    monkeypatch.setattr(vcpus, "PROC", tmp_path)

    def process(program: str, *names: str) -> int:
        pid = 900_000_000  # beyond every real one
        for number, name in enumerate(names):
            task = tmp_path / str(pid) / "task" / str(pid + number)
            task.mkdir(parents=True)
            (task / "comm").write_text(f"{name}\n")
        (tmp_path / str(pid) / "comm").write_text(f"{program}\n")
        return pid

    return process


@pytest.mark.parametrize(("program", "names"), RECORDED)
def test_vcpus_are_known_by_their_names(proc: Callable[..., int], program: str, names: tuple[str, ...]) -> None:
    machine = vcpus.find(pid=proc(program, *names))
    assert [vcpu.name for vcpu in machine.vcpus] == RECORDED[program, names]
    assert machine.is_known == (program != "vm-4711")


def test_a_machine_whose_threads_tell_nothing_is_refused_with_the_remedy(proc: Callable[..., int]) -> None:
    pid = proc("qemu-system-x86", "qemu-system-x86", "qemu-system-x86")
    with pytest.raises(BadInput, match=r"debug-threads=on.*--threads"):
        vcpus.find(pid=pid)
    machine = vcpus.find(pid=pid, threads=str(pid + 1))
    assert [vcpu.tid for vcpu in machine.vcpus] == [pid + 1]
    with pytest.raises(BadInput, match=rf"5 is no thread of process {pid}"):
        vcpus.find(pid=pid, threads="5")


def test_another_process_is_refused_with_its_threads(proc: Callable[..., int]) -> None:
    with pytest.raises(BadInput, match=r"\(nginx\) has no thread with a vCPU's name.*900000000 \(nginx\)"):
        vcpus.find(pid=proc("nginx", "nginx"))


def test_vms_are_known_by_the_names_that_they_were_started_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command lines as of libvirt 9.0 and QEMU 7.2."""
    started = {
        11: ["/usr/bin/qemu-system-x86_64", "-name", "guest=web-1,debug-threads=on", "-S"],
        12: ["qemu-system-x86_64", "-m", "64", "-name", "lab"],
        13: ["qemu-system-x86_64", "-name", "twin"],
        14: ["qemu-system-x86_64", "-name", "twin,debug-threads=on"],
        15: ["qemu-system-x86_64", "-m", "64"],
    }
    processes = [
        SimpleNamespace(pid=pid, info={"name": "qemu-system-x86", "cmdline": command})
        for pid, command in started.items()
    ]
    monkeypatch.setattr(vcpus.psutil, "process_iter", lambda _: processes)
    monkeypatch.setattr(vcpus, "_threads", lambda pid: {pid: "qemu-system-x86", pid + 100: "CPU 0/KVM"})
    assert vcpus.find(libvirt="web-1").pid == vcpus.find(qemu="web-1").pid == 11
    assert vcpus.find(qemu="lab").vcpus == (vcpus.Vcpu(112, "CPU 0/KVM", 0),)
    with pytest.raises(BadInput, match=r"--libvirt: no running VM is called 'lab'; there is web-1"):
        vcpus.find(libvirt="lab")
    with pytest.raises(BadInput, match=r"several VMs are called 'twin'; give --pid with one of \[13, 14\]"):
        vcpus.find(qemu="twin")
    with pytest.raises(BadInput, match=r"there is lab, one without a name, twin, web-1"):
        vcpus.find(qemu="db")


def test_each_thread_gets_a_cpu_of_its_own_or_none_does() -> None:
    assert any_vm.own_cpus({7: [0, 1, 2], 8: [2]}) == {7: 1, 8: 2}
    with pytest.raises(BadInput, match="CPU for itself"):
        any_vm.own_cpus({7: [0], 8: [0]})


def test_phases() -> None:
    assert phases_of(0, False, 3, 30, 1) == [0, 0, 0]
    assert phases_of("random", True, 3, 30, 1) == [0, 10, 20]
    drawn = phases_of("random", False, 3, 1_000_000, 1)
    assert len(set(drawn)) == 3 and max(drawn) < 1_000_000


def test_histograms_hold_every_length() -> None:
    assert any_vm.histogram([]) is None
    for lengths in ([5_000_000], [1_000_000, 2_000_000, 4_000_000], [10_000, 500_000, 400_000_000]):
        spread = any_vm.histogram(lengths)
        assert spread is not None and sum(spread["counts"]) == spread["count"] == len(lengths)
        assert spread["edges_ms"][-1] == max(lengths) / 1e6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["--qemu NAME", "--libvirt DOMAIN", "--pid PID"]),
        (["--qemu", "no-such"], ["--qemu", "'no-such'"]),
        (["--libvirt", "no-such"], ["--libvirt", "'no-such'"]),
        (["--pid", "999999999"], ["--pid", "999999999"]),
        (["--pid", "1", "--qemu", "x"], ["one of"]),
        (["--share", "0.25", "--driver", "magic"], ["--driver", "'magic'", "burner"]),
        (["--share", "1.5"], ["--share", "1.5"]),
        (["--share", "25%", "--timeslice", "fast"], ["--timeslice", "'fast'"]),
        ([], ["--share is missing"]),
        (["--share", "25%", "--for", "1ms"], ["--for", "1ms"]),
        (["--share", "25%", "--phase", "in"], ["--phase", "burner"]),
        (["--share", "25%", "--start-jitter", "0.1"], ["--start-jitter", "burner"]),
        (["--share", "25%", "--driver", "quota", "--length-jitter", "0.1"], ["--length-jitter", "burner's", "quota"]),
        (["--share", "25%", "--phase", "left"], ["--phase", "'left'"]),
        (["--driver", "competitor"], ["--competitors N"]),
        (["--driver", "competitor", "--share", "40%"], ["--share", "40%", "1/2"]),
        (["--driver", "replay"], ["--replay FILE"]),
        (["--replay", "no-such.csv"], ["no-such.csv", "cannot be read"]),
        (["--replay", "no-such.csv", "--share", "0.5"], ["--replay", "--share"]),
        (["--share", "25%", "--driver", "quota", "--timeslice", "500us"], ["quota", "0.5 ms", "1 ms"]),
        (["--share", "0.1%", "--driver", "burner"], ["--driver burner", "sched_rt_runtime_us"]),
        (["--driver", "competitor", "--competitors", "64", "--nice", "-20"], ["--nice", "-20", "-10", "--force"]),
        (["--share", "25%", "--force"], ["--force needs --for"]),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    machine = [] if set(arguments) & {"--pid", "--qemu", "--libvirt"} or "--qemu NAME" in words else _this_process()
    line = refused(capsys, "contend", *machine, *arguments)
    assert all(word in line for word in words), line


def _this_process() -> list[str]:
    return ["--pid", str(os.getpid()), "--threads", str(os.getpid())]


@contextmanager
def spinning() -> Iterator[int]:
    """A process that wants its CPU all the time."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextmanager
def _held(pid: int, share: str) -> Iterator[None]:
    """Meanwhile a burner has the thread off its CPU, by a command of its own."""
    command = [BROBUST, "contend", "--pid", str(pid), "--threads", str(pid), "--driver", "burner", "--share", share]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.stdout.readline()  # what was found, and a first second
        yield
        process.terminate()


def _contend(brobust: Brobust, pid: int, *arguments: str) -> dict[str, Any]:
    said = brobust("contend", "--pid", str(pid), "--threads", str(pid), *arguments, "--for", "2s", "--json")
    first, *_, last = json_lines(said.stdout)
    assert first["found"]["threads"][0]["thread"] == pid and last["summary"], said.stderr
    assert said.returncode == (1 if last["threads"][0]["unfaithful"] else 0)
    return last


def _undisturbed(pid: int) -> float:
    """The share of a CPU that a thread has now, beside whatever else this host does."""
    with _core.Recorder([pid]) as recorder:
        time.sleep(0.5)
    return recorder.recordings[0].summary().effective_share


def _needs(driver: str) -> None:
    if driver == "quota" and not _core.quota_usable():
        pytest.skip("no CPU controller that groups can be made in")


host = pytest.mark.host
root = pytest.mark.root


@root
@host
@pytest.mark.parametrize("driver", ["deadline", "burner", "quota"])
def test_a_thread_gets_what_was_asked_for_and_is_then_what_it_was(brobust: Brobust, driver: str) -> None:
    _needs(driver)
    with spinning() as pid:
        before, group = scheduling_of(pid), Path(f"/proc/{pid}/cgroup").read_text()
        free = _undisturbed(pid)
        report = _contend(brobust, pid, "--driver", driver, "--share", "25%", "--timeslice", "20ms")
        assert scheduling_of(pid) == before and Path(f"/proc/{pid}/cgroup").read_text() == group
    row = report["threads"][0]
    # Others on this host may take some of what is left to it, never give it more.
    assert 0.5 * min(free, 1) * 0.25 < row["share"] < 0.31, (free, row)
    assert row["offtimes"]["median_ms"] > row["timeslices"]["median_ms"], row
    assert report["recorded_by"] == "bpf"


@root
@host
def test_a_competitor_takes_its_part(brobust: Brobust) -> None:
    with spinning() as pid:
        before, free = scheduling_of(pid), _undisturbed(pid)
        report = _contend(brobust, pid, "--driver", "competitor", "--competitors", "3")
        assert scheduling_of(pid) == before
    share = report["threads"][0]["share"]
    assert 0.5 * min(free, 1) * 0.25 < share < 0.4, (free, share)


@root
@host
def test_what_was_recorded_of_one_thread_is_done_to_another(brobust: Brobust, tmp_path: Path) -> None:
    trace = tmp_path / "recording.parquet"
    with spinning() as pid:
        with _held(pid, "40%"):
            which = ("--pid", str(pid), "--threads", str(pid))
            recorded = brobust("contend", "record", *which, "--for", "2s", "-o", str(trace))
        assert recorded.returncode == 0
        assert "by bpf" in recorded.stdout
    table = pl.read_parquet(trace)
    assert set(table["kind"]) <= {"running", "asleep", "off", "noise", "unknown"}
    off = sorted(duration for _, duration in recordings.offtimes(str(trace)))
    away = sum(off) / 1e6 / table["duration_ms"].sum()
    assert away > 0.5, "the burner had it off its CPU for 60 %"
    with spinning() as pid:
        report = _contend(brobust, pid, "--replay", f"{trace}#{table['thread'][0]}")
    row = report["threads"][0]
    assert row["share"] < 1 - away + 0.08, (away, row)
    assert row["offtimes"]["median_ms"] > 0.8 * off[len(off) // 2] / 1e6, row


def _state(pid: int) -> tuple[Any, ...]:
    """What contention may change of a thread, and of the host."""
    # Another brobust, in another checkout's tests, may hold it for a moment.
    with locks.locked(locks.private_directory(Path("/run/brobust")) / "sysctl.lock"):
        host_wide = Path("/proc/sys/kernel/sched_rt_runtime_us").read_text()
    groups = sorted(str(path) for path in Path("/sys/fs/cgroup").rglob("brobust-*"))
    return scheduling_of(pid), Path(f"/proc/{pid}/cgroup").read_text(), host_wide, groups


@contextmanager
def _contending(pid: int, driver: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """A command that holds the thread; killed at the end at the latest."""
    arguments = ["--pid", str(pid), "--threads", str(pid), "--share", "50%", "--driver", driver, *more]
    with subprocess.Popen(
        [BROBUST, "contend", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _wait_held(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()  # what was found, and a first second


def _guardian_of(process: subprocess.Popen[str]) -> psutil.Process:
    (guardian,) = [child for child in psutil.Process(process.pid).children() if "guard" in child.cmdline()]
    return guardian


@root
@host
@pytest.mark.parametrize("driver", ["deadline", "burner", "quota", "pinned"])
def test_what_a_killed_command_did_to_a_thread_is_undone(
    brobust: Brobust, capsys: pytest.CaptureFixture[str], driver: str
) -> None:
    pinned, driver = driver == "pinned", "deadline" if driver == "pinned" else driver
    _needs(driver)
    with spinning() as pid:
        if pinned:  # which takes the sysctl
            os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})
        before = _state(pid)
        with _contending(pid, driver) as process:
            _wait_held(process)
            arguments = ["--pid", str(pid), "--threads", str(pid), "--share", "50%", "--driver", driver]
            assert f"already under contention by process {process.pid}" in refused(capsys, "contend", *arguments)
            assert _state(pid)[:2] != before[:2]
            process.kill()
            assert eventually(lambda: _state(pid) == before and _core.leftovers() == []), "by its guardian"
        with _contending(pid, driver) as process:
            _wait_held(process)
            _guardian_of(process).kill()
            process.kill()
        assert _state(pid) != before
        left = " ".join(map(" ".join, _core.leftovers()))
        assert f"contention of thread {pid}" in left or f"brobust-{pid}" in left
        assert brobust("doctor", "--clean").returncode == 0
        assert _state(pid) == before
    assert _core.leftovers() == []


@root
@host
@pytest.mark.parametrize("driver", ["deadline", "burner", "quota", "competitor"])
def test_a_command_that_is_killed_at_any_moment_leaves_the_host_as_it_was(driver: str) -> None:
    _needs(driver)
    with spinning() as pid:
        os.sched_setaffinity(pid, {max(os.sched_getaffinity(0))})  # so that deadline takes the sysctl
        before, draw = _state(pid), random.Random(driver)
        for _ in range(3):
            with _contending(pid, driver) as process:
                assert process.stdout is not None
                process.stdout.readline()  # found: from now on it changes something
                time.sleep(draw.uniform(0, 2))
            eventually(lambda: _core.leftovers() == [] and _state(pid) == before)
            assert (_core.leftovers(), _state(pid)) == ([], before)
            assert _started_by_the_killed() == []


def _started_by_the_killed() -> list[int]:
    """Competitors and guardians that are left."""
    marks = ("while :; do :; done", "guard")
    return [one.pid for one in psutil.process_iter(["cmdline", "ppid"])
            if one.info["ppid"] == 1 and any(mark in (one.info["cmdline"] or []) for mark in marks)]  # fmt: skip


@root
@host
def test_a_command_that_is_stopped_is_ended_by_its_guardian(monkeypatch: pytest.MonkeyPatch) -> None:
    with spinning() as pid:
        before = _state(pid)
        code = f"from brobust.contention import any_vm; any_vm.STUCK_SECONDS = 2; {_MAIN}"
        hold = code.replace("PID", str(pid))
        with subprocess.Popen(
            [sys.executable, "-c", hold], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            _wait_held(process)
            assert _state(pid) != before
            process.send_signal(signal.SIGSTOP)
            assert eventually(lambda: _state(pid) == before)
            said = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL
        assert f"process {process.pid} was stopped or stuck for" in said
    assert _core.leftovers() == []


_HOLD = ["contend", "--pid", "PID", "--threads", "PID", "--share", "50%"]
_MAIN = f"from brobust.cli import main; main({_HOLD!r})"


@root
@host
def test_two_commands_do_not_admit_more_deadline_time_than_the_host_has(brobust: Brobust) -> None:
    """Each thread is confined to a CPU, so that the kernel does not count; the third one would be too much for two."""
    cpus = sorted(os.sched_getaffinity(0))
    fits = int(0.9 * len(cpus) / 0.9)
    with ExitStack() as stack:
        pids = [stack.enter_context(sleeping(cpus[0])) for _ in range(fits + 1)]
        sysctl = Path("/proc/sys/kernel/sched_rt_runtime_us").read_text()
        for pid in pids[:-1]:
            command = ["--share", "90%", "--force", "--for", "120s"]
            arguments = ["--pid", str(pid), "--threads", str(pid), "--driver", "deadline", *command]
            process = stack.enter_context(
                subprocess.Popen(
                    [BROBUST, "contend", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                )
            )
            stack.callback(process.terminate)
            _wait_held(process)
        pid = pids[-1]
        said = brobust("contend", "--pid", str(pid), "--threads", str(pid), "--share", "90%", "--force", "--for", "1s")
        assert said.returncode == 2 and "would not admit" in said.stderr and said.stderr.count("\n") == 1, said.stderr
        assert Path("/proc/sys/kernel/sched_rt_runtime_us").read_text() == sysctl
    assert Path("/proc/sys/kernel/sched_rt_runtime_us").read_text() == sysctl
    assert _core.leftovers() == []


@contextmanager
def sleeping(cpu: int) -> Iterator[int]:
    """A process that wants no CPU, confined to this one."""
    with subprocess.Popen(["taskset", "-c", str(cpu), "sleep", "1000"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@root
@host
def test_ctrl_c_ends_it_with_the_summary(brobust: Brobust) -> None:
    with spinning() as pid:
        before = scheduling_of(pid)
        with _contending(pid, "deadline", "--json") as process:
            assert process.stdout is not None
            found, second = process.stdout.readline(), process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest = json_lines(process.stdout.read())
            assert process.wait() in (0, 1)
        assert json.loads(found)["found"] and not json.loads(second)["summary"]
        assert rest[-1]["summary"] and rest[-1]["interrupted"]
        assert scheduling_of(pid) == before


@root
@host
def test_it_ends_with_its_thread(brobust: Brobust) -> None:
    with spinning() as pid:
        command = [BROBUST, "contend", *("--pid", str(pid), "--threads", str(pid), "--share", "50%", "--json")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline(), process.stdout.readline()
            os.kill(pid, signal.SIGKILL)
            said, complaints = process.communicate(timeout=60)
        assert json_lines(said)[-1]["summary"] and complaints == ""
    assert _core.leftovers() == []


def test_a_thread_that_has_the_id_of_the_one_that_was_found_is_not_it() -> None:
    tid = os.getpid()
    found = vcpus.find(pid=tid, threads=str(tid))
    assert found.vcpus[0].lives
    later = replace(found.vcpus[0], started=found.vcpus[0].started - 1)  # type: ignore[operator]
    assert not later.lives


@root
@host
def test_an_ordinary_user_may_record(brobust: Brobust, tmp_path: Path) -> None:
    """What the kernel tells everybody is enough to see what the contention does."""
    tmp_path.chmod(0o777)
    with spinning() as pid:
        record = [str(BROBUST), "contend", "record", "--pid", str(pid), "--threads", str(pid), "--for", "1500ms"]
        with _held(pid, "25%"):
            # The virtual environment may lie where nobody else may look: capabilities are dropped, not the user.
            drop = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
            said = subprocess.run(
                [*drop, *record, "-o", "recording.parquet"], cwd=tmp_path, capture_output=True, text=True, check=True
            )
    assert "by schedstat" in said.stdout
    offtimes = sorted(duration / 1e6 for _, duration in recordings.offtimes(str(tmp_path / "recording.parquet")))
    # 30 ms each, longer where this host was busy with other things; crates/contention/tests/root.rs compares recorders.
    assert offtimes[len(offtimes) // 2] > 27


def _names(record: dict[str, Any], prefix: str = "") -> set[str]:
    """The names of a record's fields, and of the records within: threads.share. Those of a histogram stand alone."""
    names = {prefix + name for name in record}
    for name, value in record.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                names |= _names(one, "" if "counts" in one else f"{prefix}{name}.")
    return names


@pytest.mark.root
def test_the_documentation_has_every_field(brobust: Brobust, tmp_path: Path) -> None:
    with spinning() as pid:
        which = ("--pid", str(pid), "--threads", str(pid), "--json")
        held = brobust("contend", *which, "--driver", "quota", "--share", "50%", "--timeslice", "2ms", "--for", "1s")
        recorded = brobust("contend", "record", *which, "--for", "100ms", "-o", "recording.parquet")
    fields = set().union(*map(_names, json_lines(held.stdout + recorded.stdout)))
    assert {"found.threads.cpu", "threads.unfaithful", "edges_ms", "out"} <= fields, (held, recorded)
    fields |= set(pl.read_parquet(tmp_path / "recording.parquet").columns)
    page = (Path(__file__).parents[1] / "docs" / "contend.md").read_text()
    assert {field for field in fields if f"`{field}`" not in page} == set()


def test_what_threads_got_is_not_written_through_a_link(tmp_path: Path) -> None:
    """In a directory where others may put links, root would write where these point to."""
    machine, nothing = vcpus.Machine(1, "sleep", "", (), False), _core.Recorder([], unprivileged=True)
    victim, out = tmp_path / "victim", tmp_path / "recording.parquet"
    victim.write_text("theirs")
    out.symlink_to(victim)
    (tmp_path / "recording.parquet.new").symlink_to(victim)  # the name that was used for what is being written
    with pytest.raises(BadInput, match="something other than a regular file"):
        any_vm._write(machine, nothing, out, 0)
    out.unlink()
    any_vm._write(machine, nothing, out, 0)
    assert pl.read_parquet(out).is_empty()
    assert victim.read_text() == "theirs"


def test_the_name_of_somebodys_thread_reaches_no_terminal_as_an_escape_sequence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task = tmp_path / "7" / "task" / "7"
    task.mkdir(parents=True)
    (tmp_path / "7" / "comm").write_bytes(b"sh\n")
    (task / "comm").write_bytes(b"a\x1b[2J\nb\xff\n")
    monkeypatch.setattr(vcpus, "PROC", tmp_path)
    (vcpu,) = vcpus.find(pid=7, threads="7").vcpus
    assert vcpu.name == r"a\x1b[2J\nb\udcff"
