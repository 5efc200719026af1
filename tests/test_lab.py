"""Backend lab on three hosts with an sshd each (tests/ssh_hosts.py): a series, and that nothing is left on any host,
whatever is killed or cut."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import add_report
import polars as pl
import psutil
import pytest

import ssh_hosts
from brobust.backends import lab as lab_backend
from brobust.dataset import Dataset
from brobust.errors import MissingSupport
from brobust.lab import hosts as hosts_file
from brobust.lab import places
from brobust.lab.hosts import Machine
from brobust.lab.ssh import Connection
from brobust.scenario import Scenario
from conftest import BROBUST, eventually, json_lines, killed_at_end, refused
from ssh_hosts import Lab

pytestmark = [
    pytest.mark.root,
    pytest.mark.host,  # real packets in real time: what else runs would be measured, too
    pytest.mark.skipif(ssh_hosts.why_not() != "", reason=ssh_hosts.why_not()),
]

# The kernel of this machine may have no netem, so the path's RTT is that of its queue. The path is slow: one of 4
# Mbit/s makes up for 6 ms that this machine's own hypervisor takes away, one of 20 for 1 ms.
PATH = ("--bandwidth", "4mbit", "--rtt", "0s", "--buffer", "60kB")
SCENARIO = ("--cc", "cubic,bbr", "--share", "1", *PATH, "--duration", "3s", "--repeat", "1")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with ssh_hosts.started(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


soon = partial(eventually, pause=0.25)  # to look takes several processes


def command(file: Path, *arguments: str) -> list[str]:
    of_scenario = zip(SCENARIO[::2], SCENARIO[1::2], strict=True)
    others = [word for option in of_scenario if option[0] not in arguments for word in option]
    return [str(BROBUST), "run", "--backend", "lab", "--hosts", str(file), *others, *arguments]


def ending(said: str) -> str:
    """Return the one line with which a series ends. A run before may be unfaithful: what else this machine's hypervisor
    has to do is not ours, and a line says so."""
    *before, last = said.splitlines()
    why = ("the sender was to be undisturbed", "of the timers of")
    assert all(": unfaithful: " in line and any(words in line for words in why) for line in before), said
    return last


def complete(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, later if this machine's hypervisor takes so much away that the path cannot be had."""
    for _ in range(4):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "Mbit/s of undisturbed Cubic" not in done.stderr:
            break
        time.sleep(5)
    return done


def begun(file: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    words = command(file, "--out", str(out), *more)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_traffic(series: subprocess.Popen[str], receiver: str = "192.168.2.1") -> None:
    """Wait until iperf3 sends; then everything has been changed that a run changes. The processes of the hosts are also
    processes of this machine."""

    def sends() -> bool:
        commands = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
        return any(words[:3] == ["iperf3", "-c", receiver] for words in commands)

    assert soon(lambda: sends() or series.poll() is not None, 200)
    assert series.poll() is None, series.communicate()


def test_a_series_over_three_hosts_whose_cable_is_cut_and_one_of_which_reboots_is_completed_by_resume(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, path = tmp_path / "data", lab.hosts["path"]
    with begun(lab.file, out) as series:
        wait_for_traffic(series)
        assert "pfifo_fast" in lab.hosts["sender"].run("tc", "qdisc", "show", "dev", "lab0")
        assert "tbf" in path.run("tc", "qdisc", "show", "dev", "lab2")
        other = refused(capsys, *command(lab.file, "--out", str(tmp_path / "other"))[1:])
        assert "(process " in other and "is at work on this host" in other
        assert soon(lambda: len(list(out.glob("runs/*.parquet"))) == 1, 200)
        path.run("ip", "link", "set", "ssh0", "down")
        try:
            _, said = series.communicate()
            # The host that cannot be reached undoes everything by itself.
            assert soon(lambda: lab.traces() == []), lab.traces()
        finally:
            path.run("ip", "link", "set", "ssh0", "up")
    assert series.returncode == 1, said
    assert f"path (path) no longer answered; {out} has 1 of 2 runs" in ending(said)
    assert f"go on with `brobust run --resume --out {out}`" in ending(said)

    resume = [str(BROBUST), "run", "--resume", "--out", str(out)]
    with subprocess.Popen(resume, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as series:
        wait_for_traffic(series)
        lab.hosts["sender"].reboot()
        _, said = series.communicate()
    assert series.returncode == 1, said
    assert f"sender (sender) no longer answered; {out} has 1 of 2 runs" in ending(said)
    assert soon(lambda: lab.traces() == []), lab.traces()

    # A copy of our program, on a disk, that was never started; and one that may be about to.
    left, begun_now = (Path(tempfile.mkdtemp(prefix=".brobust-lab.", dir="/tmp")) for _ in range(2))
    os.utime(left, (0, 0))
    resumed = complete(resume)
    assert not left.exists(), resumed.stderr
    begun_now.rmdir()
    assert lab.traces() == []
    rows = Dataset.open(out).runs().rows(named=True)
    assert sorted(row["cc"] for row in rows) == ["bbr", "cubic"], resumed.stderr
    assert all(row["outcome"] in ("ok", "unfaithful") for row in rows), rows
    assert (resumed.returncode == 0) == any(row["outcome"] == "ok" for row in rows), resumed.stderr
    # The calibration has shown what the path carries, and here nobody is held up.
    carried = [row["throughput_mbps"] for row in rows]
    assert min(carried) > 0.5 * max(carried) > 0 or any(row["outcome"] == "unfaithful" for row in rows), rows
    for row in rows:
        assert row["effective_share"] == pytest.approx(1 - max(row["steal_share"], row["late_share"]))
        assert (row["backend"], row["hosts"], row["kernel"]) == ("lab", str(lab.file), "host")
    assert not (tmp_path / "other").exists()


def test_a_login_that_nobody_waits_for_any_more_leaves_no_copy(tmp_path: Path) -> None:
    """The command gave up, since another host had refused, before this host's shell said its first word."""
    script = Connection("sender", Machine(ssh="sender"))._script([])
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as nobody:
        shell = ["sh", "-c", script.replace("/dev/shm /run /tmp", str(tmp_path))]
        done = subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=nobody, stderr=subprocess.DEVNULL, check=False)
    assert done.returncode != 0 and list(tmp_path.iterdir()) == []


def test_a_command_that_is_killed_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    with begun(lab.file, tmp_path / "data") as series:
        wait_for_traffic(series)
        series.kill()
    assert soon(lambda: lab.traces() == []), lab.traces()


@pytest.mark.parametrize("name", ["sender", "receiver"])
def test_what_an_agent_leaves_that_was_killed_its_guardian_undoes(lab: Lab, tmp_path: Path, name: str) -> None:
    host = lab.hosts[name]
    with begun(lab.file, tmp_path / "data", "--cc", "bbr", "--duration", "100s") as series:
        wait_for_traffic(series)
        for line in host.run("ps", "-eo", "pid,args", "--no-headers").splitlines():
            pid, program = line.split(None, 1)
            if "lab agent" in program and not program.startswith("sh "):
                host.run("kill", "-9", pid)
        _, said = series.communicate(timeout=60)  # a sender whose receiver is gone would wait until its time is over
    assert series.returncode == 1 and f"{name} ({name}) no longer answered; nothing is kept" in ending(said), said
    assert soon(lambda: lab.traces() == []), lab.traces()


def test_one_host_with_namespaces_is_a_lab_too_and_ctrl_c_leaves_nothing(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    host, file = lab.hosts["path"], lab.file.with_name("one.toml")
    ends = "".join(
        f'[{role}]\nssh = "path"\nnamespace = "{role}"\naddress = "192.168.9.{number}"\n'
        for number, role in enumerate(("sender", "receiver"), start=1)
    )
    file.write_text(f'ssh_config = "config"\n{ends}')
    for number, role in enumerate(("sender", "receiver"), start=1):
        host.run("ip", "netns", "add", role)
        if number == 1:
            host.run(
                "ip", "link", "add", "name", "end1", "netns", "sender", "type", "veth", "peer", "name", "end2",
            )  # fmt: skip
        else:
            host.run("ip", "link", "set", "end2", "netns", role)
        host.run("ip", "-n", role, "address", "add", f"192.168.9.{number}/24", "dev", f"end{number}")
        host.run("ip", "-n", role, "link", "set", f"end{number}", "up")
    inside = ("ip", "netns", "exec", "receiver")
    host.run(*inside, "ip", "link", "add", "name", "ifb-brobust", "type", "ifb")
    refusal = refused(capsys, *command(file, "--out", str(tmp_path / "refused"))[1:])
    assert "receiver has an interface ifb-brobust that brobust has not made; rename it, or remove it" in refusal
    host.run(*inside, "ip", "link", "del", "ifb-brobust")  # it is still there
    with begun(file, tmp_path / "data") as series:
        wait_for_traffic(series, "192.168.9.2")
        assert "tbf" in host.run(*inside, "tc", "qdisc", "show", "dev", "ifb-brobust")
        series.send_signal(signal.SIGINT)
        _, said = series.communicate()
    assert series.returncode == 130 and ending(said).startswith("brobust: interrupted"), said
    assert lab.traces() == []
    assert "ifb-brobust" not in host.run(*inside, "ip", "link")
    assert "ingress" not in host.run(*inside, "tc", "qdisc", "show")
    for role in ("sender", "receiver"):
        host.run("ip", "netns", "del", role)


def test_what_the_hypervisor_took_away_is_what_the_run_says(lab: Lab, tmp_path: Path) -> None:
    # No VM: a process that is always busy stands for its vCPU, on the path host.
    host, file = lab.hosts["path"], lab.file.with_name("vm.toml")
    entered = ["nsenter", "-t", str(host.pid), "-n", "-m", "-p", "--", "sh", "-c", "while :; do :; done"]
    with killed_at_end([*entered, "stands-for-a-vcpu"]):
        assert soon(lambda: "stands-for-a-vcpu" in host.run("ps", "-eo", "args"))
        shown = host.run("ps", "-eo", "pid,args", "--no-headers").splitlines()
        (pid,) = [line.split()[0] for line in shown if line.endswith("stands-for-a-vcpu")]
        file.write_text(f'{lab.file.read_text()}[hypervisor]\nssh = "path"\npid = {pid}\nthreads = "{pid}"\n')
        out, report = tmp_path / "validate", tmp_path / "report.toml"
        words = ("--cc", "cubic", "--share", "0.5", *PATH, "--duration", "3s")
        asked = ("--backend", "lab", "--hosts", str(file), *words, "--repeat", "1")
        command = [BROBUST, "validate", *asked, "--out", out, "--report", report, "--json"]
        done = complete(command)
    assert done.returncode == 0, done.stderr
    data = Dataset.open(out / "lab")
    (row,) = data.runs().rows(named=True)
    # On a busy machine it may not get what it was given; then the run says so.
    assert (row["outcome"] == "ok") == (0.45 <= row["effective_share"] <= 0.55 and row["reason"] is None)
    assert 0 < row["effective_share"] < 0.9 and row["effective_timeslice_ms"] > 0 and row["timeslices"] > 10
    assert (row["driver"], row["when_idle"]) == ("deadline", "spin")
    assert lab.traces() == []

    # Virtual time repeats what was recorded there, from the moment at which the traffic began.
    off = data.offtimes().filter(kind="off", sender=1)
    during = [(max(0.0, start), start + ms / 1e3) for start, ms in off.select("start_s", "duration_ms").iter_rows()]
    off_s = sum(min(end, 3.0) - start for start, end in during if start < 3 and end > 0)
    assert off_s / 3 == pytest.approx(1 - row["effective_share"], abs=0.15)
    # It is recorded from before the traffic until after it, on a busy machine for many seconds.
    assert -60 < off["start_s"].min() < 0 and 3 < off["start_s"].max() < 60
    (calibration,) = data.calibrations()
    assert 0 < calibration["network_rtt_ms"] < 10
    repeated = pl.read_parquet(out / "virtual.parquet").row(0, named=True)
    assert repeated["replay"] == f"{out / 'lab'}#{row['run']}"
    assert repeated["rtt_ms"] == pytest.approx(max(calibration["network_rtt_ms"], 0.2))
    cell, _ = json_lines(done.stdout)
    # Nothing holds up what stands for a vCPU's host: only the model could be off by such a factor.
    assert 0.5 < cell["ratio"] < 2 and cell["lab_throughput_mbps"] == row["throughput_mbps"]
    assert list(add_report.problems(tomllib.loads(report.read_text()))) == []
    assert not re.search("lab.toml|198[.]18|192[.]168", report.read_text())


Connections = Mapping[tuple[str, bool], Connection]


@pytest.fixture(scope="module")
def connections(lab: Lab) -> Iterator[Connections]:
    """The three hosts with agents, on which nothing is changed."""
    hosts = hosts_file.read(str(lab.file))
    assert hosts.path is not None
    opened: dict[tuple[str, bool], Connection] = {}
    for name, machine in (("sender", hosts.sender), ("receiver", hosts.receiver), ("path", hosts.path)):
        connection = opened[machine.ssh, machine.sudo] = Connection(name, machine)
        connection.start(lab.directory / "config", 60, beside_others=False)
    try:
        for connection in opened.values():
            connection.wait_ready()
        yield opened
    finally:
        problems = [connection.close() for connection in opened.values()]
    assert problems == [None, None, None]
    # A test before may have given up a login that a busy host has not ended yet.
    assert soon(lambda: lab.traces() == []), lab.traces()


IPERF3 = str(Path(shutil.which("iperf3") or "").resolve())


@pytest.mark.parametrize(
    ("host", "change", "undo", "line"),
    [
        (
            "path", "tc qdisc add dev lab2 root tbf rate 1mbit burst 9k limit 9k", "tc qdisc del dev lab2 root",
            "path: lab2 of path (path) has a queue discipline that somebody has set (tbf ",
        ),
        (
            "path", "sysctl -qw net.ipv4.ip_forward=0", "sysctl -qw net.ipv4.ip_forward=1",
            "path: path (path) does not forward packets; `sysctl -w net.ipv4.ip_forward=1` there",
        ),
        (
            "path", f"echo jiffies >/run/clock; mount --bind /run/clock {places.CLOCKSOURCE}",
            f"umount {places.CLOCKSOURCE}",
            "path: path (path) counts time in ticks (clocksource jiffies), so its packets could not be paced; boot",
        ),
        (
            "sender", "echo '.hres_active: 0' >/run/timers; mount --bind /run/timers /proc/timer_list",
            "umount /proc/timer_list",
            "sender: sender (sender) has no high-resolution timers, so its packets could not be paced; boot it without",
        ),
        (
            "sender", f"mount --bind /dev/null {IPERF3}", f"umount {IPERF3}",
            "sender: sender (sender) has no iperf3; install the package iperf3 there",
        ),
        (
            "receiver", "ip route del 192.168.1.0/24", "ip route add 192.168.1.0/24 via 192.168.2.254",
            "receiver: receiver (receiver) has no route to 192.168.1.1; add one",
        ),
        (
            "receiver", "iperf3 -s -p 5201 -D -I /run/iperf3.pid; until ss -Hltn | grep -q :5201; do sleep 0.1; done",
            "kill $(tr -d '\\0' </run/iperf3.pid)",
            "receiver: something listens on port 5201 of receiver (receiver); end that",
        ),
    ],
)  # fmt: skip
def test_hosts_that_cannot_measure_are_refused_in_one_line(
    lab: Lab, connections: Connections, host: str, change: str, undo: str, line: str
) -> None:
    lab.hosts[host].run("sh", "-c", change)
    try:
        with pytest.raises(MissingSupport) as refusal:
            places.found(hosts_file.read(str(lab.file)), connections)
    finally:
        lab.hosts[host].run("sh", "-c", undo)
    assert str(refusal.value).startswith(line) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            'address = "192.168.1.1"', 'address = "192.168.1.7"',
            "sender.address: 192.168.1.7 is no address of sender (sender); it has 198.18.",
        ),
        (
            'ssh = "path"', 'ssh = "path"\nto_receiver = "ssh0"',
            "path: ssh0 of path (path) carries the ssh connection (198.18.",
        ),
        (
            'ssh = "path"', 'ssh = "path"\nto_receiver = "lab1"',
            "path: path (path) reaches sender and receiver through lab1; it needs an interface for each",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_not_of_these_hosts_is_refused_in_one_line(
    lab: Lab, connections: Connections, old: str, new: str, line: str
) -> None:
    file = lab.file.with_name("other.toml")
    file.write_text(lab.file.read_text().replace(old, new))
    with pytest.raises(MissingSupport) as refusal:
        places.found(hosts_file.read(str(file)), connections)
    assert str(refusal.value).startswith(line) and "\n" not in str(refusal.value)


def test_other_traffic_on_the_path_is_refused(lab: Lab, connections: Connections) -> None:
    sender = lab.hosts["sender"]
    sends = ("python3", "-c", "import socket as s\nwhile True: s.socket(2, 2).sendto(bytes(1400), ('192.168.2.1', 9))")
    entered = ["nsenter", "-t", str(sender.pid), "-n", "--", *sends]
    with killed_at_end(entered):
        counter = Path(f"/proc/{sender.pid}/net/dev")
        assert soon(lambda: int(counter.read_text().split("lab0:")[1].split()[8]) > 1_000_000)
        found = places.found(hosts_file.read(str(lab.file)), connections)
        said: list[str] = []

        def refused_now() -> bool:
            try:
                places.refuse_traffic(found, 20_000_000)
            except MissingSupport as refusal:
                said.append(str(refusal))
            return said != []

        # On a busy machine what sends may have no CPU for a second.
        assert soon(refused_now, 20)
    assert re.match(r"sender: lab0 of sender \(sender\) carries .*bit of other traffic", said[0])


def test_what_the_sender_or_its_hypervisor_lacks_is_refused_before_anything_is_changed(
    lab: Lab, connections: Connections
) -> None:
    file = lab.file.with_name("none.toml")
    file.write_text(f'{lab.file.read_text()}[hypervisor]\nssh = "path"\nqemu = "no-such-vm"\n')
    found = places.found(hosts_file.read(str(file)), connections)
    asked = {"backend": "lab", "hosts": str(file), "contention": {"share": "0.5"}}
    with pytest.raises(MissingSupport, match=r"^path \(path\): brobust contend: .*no-such-vm") as refusal:
        lab_backend.check_on_hosts(found, [Scenario.model_validate({**asked, "flows": [{"cc": "cubic"}]})])
    assert "\n" not in str(refusal.value)
    with pytest.raises(
        MissingSupport, match=r"^cc: the kernel of sender \(sender\) has neither nosuchcc nor the module"
    ):
        lab_backend.check_on_hosts(found, [Scenario.model_validate({**asked, "flows": [{"cc": "nosuchcc"}]})])
    kept = {**asked, "flows": [{"cc": "cubic"}], "pacing": "kept lag=50ms"}
    with pytest.raises(
        MissingSupport, match=r"^pacing: 'kept lag=50ms' needs net\.ipv4.* which sender \(sender\) lacks"
    ):
        lab_backend.check_on_hosts(found, [Scenario.model_validate(kept)])
    assert lab.hosts["sender"].run("cat", "/proc/sys/net/ipv4/tcp_no_metrics_save").strip() == "0"


def test_a_control_that_somebody_has_loaded_on_the_sender_is_not_taken_away(lab: Lab, connections: Connections) -> None:
    # The hosts are on one kernel, which has it.
    loaded = subprocess.run([BROBUST, "cc", "load", "brb_reno", "--pin"], capture_output=True, text=True, check=False)
    if loaded.returncode != 0:
        pytest.skip(loaded.stderr)
    try:
        found = places.found(hosts_file.read(str(lab.file)), connections)
        asked = {"backend": "lab", "hosts": str(lab.file), "flows": [{"cc": "brb_reno"}]}
        with pytest.raises(MissingSupport, match=r"^cc: brb_reno is loaded on sender \(sender\) already"):
            lab_backend.check_on_hosts(found, [Scenario.model_validate(asked)])
    finally:
        subprocess.run([BROBUST, "cc", "unload", "brb_reno"], check=True, stdout=subprocess.DEVNULL)


def test_a_path_without_netem_is_refused_where_it_is_needed(lab: Lab, connections: Connections) -> None:
    if lab.hosts["path"].run("sh", "-c", "tc qdisc add dev lo root netem delay 1ms 2>&1 || :") == "":
        lab.hosts["path"].run("tc", "qdisc", "del", "dev", "lo", "root")
        pytest.skip("the kernel of this machine has netem")
    found = places.found(hosts_file.read(str(lab.file)), connections)
    asked = Scenario.model_validate({"backend": "lab", "hosts": str(lab.file), "path": {"rtt": "10ms"}})
    with pytest.raises(MissingSupport, match=r"path: the kernel of path \(path\) has no netem .*--rtt 0s and --loss 0"):
        places.prepare(found, [asked])


class Here:
    """An agent for this machine, as far as places need one."""

    def __init__(self) -> None:
        self.undo: list[str] = []

    def run(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def try_run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def record(self, _: str, *undo: str) -> None:
        self.undo = [*undo]


def test_an_interface_gets_the_qdisc_back_that_it_came_up_with_whatever_the_default_is_now() -> None:
    default, here = Path(places.DEFAULT_QDISC), Here()
    before = default.read_text()
    place: Any = SimpleNamespace(agent=here, ask=lambda *command: json.loads(here.run(*command)))

    def kind() -> str:
        return here.run("tc", "qdisc", "show", "dev", "brt-tap", "root").split()[1]

    here.run("ip", "tuntap", "add", "brt-tap", "mode", "tap")
    try:
        default.write_text("pfifo")
        here.run("ip", "link", "set", "brt-tap", "up")
        default.write_text(before)
        for _ in range(2):
            places._own_qdisc(place, "brt-tap")
            here.run("tc", "qdisc", "replace", "dev", "brt-tap", "root", "pfifo_fast")
            here.run(*here.undo)
            here.run(*here.undo)  # as when it is not known to have succeeded
            assert (kind(), default.read_text()) == ("pfifo", before)
    finally:
        default.write_text(before)
        here.run("ip", "link", "del", "brt-tap")


@pytest.mark.parametrize(
    ("config", "line"),
    [
        ("User nobody", "sender (sender): ssh: "),  # who has no key there
        ("Port 1", "sender (sender): ssh: "),
    ],
)
def test_a_host_that_ssh_does_not_reach_is_refused_in_one_line(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path, config: str, line: str
) -> None:
    given = (lab.directory / "config").read_text()
    (lab.directory / "config.other").write_text(f"Host sender\n  {config}\n{given}")
    file = lab.file.with_name("unreached.toml")
    file.write_text(lab.file.read_text().replace('"config"', '"config.other"'))
    said = refused(capsys, *command(file, "--out", str(tmp_path / "data"))[1:])
    advice = f"`ssh -F {lab.directory}/config.other sender true` must work without a password"
    assert said.startswith(f"brobust: {line}") and advice in said
    assert not (tmp_path / "data").exists()


def test_two_names_of_one_machine_are_refused_as_such(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also where one is reached later than the other is refused."""
    given = (lab.directory / "config").read_text()
    again = f'Match originalhost again exec "sleep 0.5"\n  HostName {lab.hosts["sender"].address}\n'
    (lab.directory / "config.again").write_text(again + given)
    file = lab.file.with_name("again.toml")
    without_path = lab.file.read_text().replace('"config"', '"config.again"').partition("[path]")[0]
    file.write_text(without_path.replace('ssh = "receiver"', 'ssh = "again"'))
    said = refused(capsys, *command(file, "--out", str(tmp_path / "data"))[1:])
    assert "another brobust" in said
    assert said.endswith("; sender and again are the same machine; give both the same ssh and sudo\n")
