"""The file that names the hosts of backend lab, and what is refused by reading it: no host is asked."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from brobust.backends.lab import LabBackend, _of_contend
from brobust.errors import BadInput, MissingSupport, RunFailed
from brobust.host.programs import host_program
from brobust.lab import hosts, places, ssh
from brobust.lab.ssh import MAX_ERRORS, Connection
from brobust.scenario import Contention
from conftest import eventually, have_ended, refused

SENDER = '[sender]\nssh = "server-1"\naddress = "10.0.1.1"\n'
RECEIVER = '[receiver]\nssh = "server-2"\naddress = "10.0.2.1"\n'
HYPERVISOR = '[hypervisor]\nssh = "kvm-1"\nqemu = "web-1"\n'


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    file = tmp_path / "lab.toml"
    file.write_text(SENDER + RECEIVER)
    return file


def test_the_shortest_file_has_a_sender_and_a_receiver(lab: Path) -> None:
    read = hosts.read(str(lab))
    assert (read.sender.ssh, read.receiver.address, read.path, read.hypervisor) == ("server-1", "10.0.2.1", None, None)
    assert (read.sender.max_steal, read.cut_after) == (0.1, 20_000_000_000)
    lab.write_text('cut_after = "5s"\n' + SENDER + RECEIVER + '[path]\nssh = "router"\n' + HYPERVISOR)
    read = hosts.read(str(lab))
    assert read.path is not None and read.path.to_sender is None
    assert read.hypervisor is not None and read.hypervisor.which == ["--qemu", "web-1"]
    assert read.cut_after == 5_000_000_000


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SENDER, "receiver: it is missing; docs/lab.md shows the shortest file"),
        (SENDER + 'port = 5201\n' + RECEIVER, "sender.port: no such key; docs/lab.md lists all keys"),
        (SENDER + RECEIVER + "[router]\n", "router: no such key; docs/lab.md lists all keys"),
        (SENDER.replace("10.0.1.1", "server-1") + RECEIVER, "sender.address: 'server-1' is no IPv4 address"),
        (SENDER.replace("server-1", "-oProxyCommand=x") + RECEIVER, "sender.ssh: '-oProxyCommand=x' is no destination"),
        (SENDER.replace("server-1", "a b") + RECEIVER, "sender.ssh: 'a b' is no destination of ssh"),
        (SENDER + 'namespace = "$(reboot)"\n' + RECEIVER, "sender.namespace: '$(reboot)' is no name"),
        (SENDER + "max_steal = 2\n" + RECEIVER, "sender.max_steal: "),
        (SENDER + RECEIVER.replace("server-2", "server-1"), "receiver: it is where the sender is (server-1)"),
        (SENDER + RECEIVER + '[path]\nssh = "server-2"\n', "path: it is where the receiver is (server-2)"),
        (SENDER + RECEIVER.replace("10.0.2.1", "10.0.1.1"), "receiver.address: 10.0.1.1 is the sender's, too"),
        (SENDER + RECEIVER + '[hypervisor]\nssh = "kvm-1"\n', "hypervisor: say which VM the sender is"),
        (SENDER + RECEIVER + HYPERVISOR + "pid = 7\n", "hypervisor: say which VM the sender is"),
        (SENDER + RECEIVER + HYPERVISOR + 'threads = "7,vcpu1"\n', "hypervisor.threads: '7,vcpu1' is not allowed"),
        ('cut_after = "1s"\n' + SENDER + RECEIVER, "cut_after: 1s is not allowed; give 2s to 600s"),
        ("sender = 3\n" + RECEIVER, "sender: 3 is not allowed"),
        ("[sender\n", "not a TOML file"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_meant_is_refused_in_one_line(lab: Path, text: str, line: str) -> None:
    lab.write_text(text)
    with pytest.raises(BadInput) as refusal:
        hosts.read(str(lab))
    assert str(refusal.value).startswith(f"{lab}: {line}") and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--share", "0.5"), "contention.share: 0.5 takes the sender's CPU away, which only the host on which it is"),
        (("--share", "1", "--kernel", "debian-6.12"), "kernel: 'debian-6.12' is no choice on backend lab"),
        (("--share", "1", "--traffic", "quic:quinn"), "traffic: 'quic:quinn' is possible on backends virtual and vm"),
        (("--share", "1", "--vcpus", "2"), "contention.vcpus: 2 is no choice on backend lab"),
        (("--share", "1", "--aqm", "codel"), "path.aqm: 'codel' is possible on backend virtual only; on lab give none"),
        (("--share", "1", "--buffer", "9sp"), "path.buffer: '9sp' is possible on backend virtual only; on lab give"),
        (("--share", "1", "--samples", "0.5ms"), "samples: 500us is too often for a sender short of CPU; on lab give"),
        (("--share", "1", "--accelerator", "kvm"), "accelerator: 'kvm' is possible on backend vm only; on lab give"),
        (("--driver", "burner", "--phase", "5ms"), "contention.phase: '5ms' is possible on backends virtual and vm;"),
        (("--phase", "5ms"), "contention.phase: '5ms' is possible on backends virtual and vm;"),
        (("--driver", "deadline", "--phase", "out"), "contention.phase: out is the burner's on lab; give driver"),
        (("--timeslice", "50us"), "contention.timeslice: 50us is shorter than `brobust contend` takes; on lab"),
        (("--share", "1", "--jobs", "2"), "--jobs: 2 is not allowed: backend lab measures one run at a time"),
    ],
)  # fmt: skip
def test_what_these_hosts_cannot_do_is_refused_before_one_is_asked(
    capsys: pytest.CaptureFixture[str], lab: Path, arguments: tuple[str, ...], line: str
) -> None:
    command = ("run", "--backend", "lab", "--hosts", str(lab), "--cc", "cubic", *arguments)
    assert refused(capsys, *command).startswith(f"brobust: {line}")


def test_contend_is_told_a_share_without_an_exponent_which_it_does_not_read() -> None:
    assert _of_contend(Contention(driver="deadline", share=0.00002, start_jitter=0)) == [
        "--driver", "deadline", "--share", "0.00002", "--timeslice", "10ms", "--phase", "random",
    ]  # fmt: skip


def test_backend_lab_needs_a_file_of_hosts_and_no_other_backend_takes_one(
    capsys: pytest.CaptureFixture[str], lab: Path
) -> None:
    assert "name them in a file, and give it with --hosts FILE" in refused(capsys, "run", "--backend", "lab")
    assert "is possible on backend lab only" in refused(capsys, "run", "--backend", "virtual", "--hosts", str(lab))
    missing = ("run", "--backend", "lab", "--hosts", str(lab.with_name("none.toml")))
    assert "none.toml: cannot be read (no such file" in refused(capsys, *missing)


def test_what_hosts_could_not_undo_is_said_before_those_of_another_file_are_reached(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "close", lambda connection: f"{connection.name}: a qdisc is left")
    with pytest.raises(MissingSupport, match=r"sender \(server-0\): a qdisc is left"), LabBackend(print) as backend:
        backend._connections["server-0", False] = Connection("sender", hosts.Machine(ssh="server-0"))
        backend._connected(str(lab))


def test_what_is_known_of_a_host_takes_only_programs_that_every_host_has(tmp_path: Path) -> None:
    for name in ("sh", "uname", "grep", "nproc"):  # distributions for servers bring no `hostname`
        (tmp_path / name).symlink_to(str(shutil.which(name)))

    def run(*command: str) -> str:
        return subprocess.run(
            command, env={"PATH": str(tmp_path)}, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    agent: Any = SimpleNamespace(run=run)
    found = ssh.facts(agent)
    assert (found["host"], found["kernel_release"]) == (platform.node(), platform.release()) and found["cpus"] >= 1


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is missing; apt-get install openssh-client")
def test_a_host_that_does_not_answer_does_not_hold_up_ctrl_c(lab: Path, tmp_path: Path) -> None:
    lab.write_text('ssh_config = "config"\n' + SENDER + RECEIVER)
    (tmp_path / "config").write_text(f"Host *\nProxyCommand sh -c 'touch {tmp_path}/%n; exec sleep 900'\n")
    # ssh itself would wait for so long.
    patient = "from brobust import __main__ as m; from brobust.lab import ssh; ssh.CONNECT_SECONDS = 600; m.main()"
    words = ["run", "--backend", "lab", "--hosts", lab, "--share", "1", "--out", tmp_path / "out"]
    command = [sys.executable, "-c", patient, *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert eventually(lambda: all((tmp_path / name).exists() for name in ("server-1", "server-2")))
        waiting = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr is not None and "interrupted before the first run" in process.stderr.read()
    assert len(waiting) >= 4
    assert eventually(lambda: have_ended(waiting)), "each ssh and its ProxyCommand have ended, too"


def test_of_what_ssh_prints_without_end_the_last_words_are_kept_and_said(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\nProxyCommand sh -c 'yes noise | head -c 3000000 >&2'\n")
    connection = Connection("sender", hosts.Machine(ssh="server-0"))
    connection.start(config, cut_after=60, beside_others=False)
    with pytest.raises(MissingSupport, match=r"sender \(server-0\): ssh: (?!noise)\w.*must work without a password"):
        connection.wait_ready()
    assert len(connection._errors) == MAX_ERRORS
    assert connection.close() is None


def logged_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str) -> Connection:
    """Return a connection to this machine, by an ssh that is this login and a shell."""
    fake = tmp_path / "ssh"
    fake.write_text(f'#!/bin/sh\nfor command; do :; done\n{login}\nexec sh -c "$command"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh, "CONNECT_SECONDS", 3)
    monkeypatch.setattr(ssh, "LOGIN_SECONDS", 0.0)
    connection = Connection("sender", hosts.Machine(ssh="server-0"))
    connection.start(None, cut_after=60, beside_others=False)
    connection._wire.settimeout(60)
    return connection


def test_what_a_login_prints_is_left_out_also_without_the_end_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = logged_in(tmp_path, monkeypatch, "echo Welcome; printf 'quota: 12%%> '")
    assert connection._said(ssh.SEND).startswith("brobust-send ")
    connection.close()


def test_a_login_that_prints_a_letter_now_and_then_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = logged_in(tmp_path, monkeypatch, "for n in $(seq 150); do printf .; sleep 0.2; done")
    with pytest.raises(MissingSupport, match="it does not answer"):
        connection.wait_ready()
    connection.close()


def test_a_host_that_takes_our_program_byte_by_byte_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "MAX_UPLOAD_SECONDS", 1.0)
    slow = "echo; echo brobust-send boot; for n in $(seq 300); do head -c 65536 >/dev/null; sleep 0.2; done"
    connection = logged_in(tmp_path, monkeypatch, slow)
    with pytest.raises(MissingSupport, match="it did not start our program"):
        connection.wait_ready()
    connection.close()


def test_a_host_gets_neither_agent_nor_display_whatever_the_users_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    connection = logged_in(tmp_path, monkeypatch, f'for word; do echo "$word"; done >{given}; exit 1')
    with pytest.raises(MissingSupport):
        connection.wait_ready()
    connection.close()
    assert {"ForwardAgent=no", "ForwardX11=no", "RemoteCommand=none"} <= set(given.read_text().splitlines())


@pytest.mark.parametrize(
    ("login", "why"),
    [
        ("echo This account is not available.; exit 1", "it has closed the connection, the last that it printed is: "
         "This account is not available."),
        ("echo no such quota >&2; exec sleep 60", "it does not answer"),
    ],
)  # fmt: skip
def test_a_login_that_starts_no_shell_is_refused_with_what_it_printed_and_what_must_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str, why: str
) -> None:
    connection = logged_in(tmp_path, monkeypatch, login)
    with pytest.raises(MissingSupport) as refusal:
        connection.wait_ready()
    connection.close()
    assert str(refusal.value) == f"sender (server-0): {why}; `ssh server-0 true` must work without a password"


def test_every_login_shell_hands_our_script_on_to_sh() -> None:
    """csh and tcsh do not take lines in quotes, and look there for ! and backslashes; so does fish for the latter."""
    script = Connection("sender", hosts.Machine(ssh="sender"))._script(["--silence", "it's größer"])
    command = ssh._for_any_shell(script)
    assert not re.search(r"[\n!]|\\\\|\\'", command)
    shown = subprocess.run(["sh", "-c", command.replace("eval", "echo")], check=True, capture_output=True, text=True)
    as_it_is = subprocess.run(["sh", "-c", 'echo "$1"', "sh", script], check=True, capture_output=True, text=True)
    assert shown.stdout.rstrip() == as_it_is.stdout.rstrip() != ""


def _in_shell(tmp_path: Path, before: str, program: str) -> str:
    """Return what the script prints on a host whose places for a copy are one directory, and which is sent a program
    that is this script."""
    script = Connection("sender", hosts.Machine(ssh="sender"))._script([])
    size, text = str(host_program().stat().st_size), f"#!/bin/sh\n{program}\n"
    script = script.replace('/dev/shm /run /tmp "$HOME"', str(tmp_path)).replace(f"-c {size} >", f"-c {len(text)} >")
    done = subprocess.run(["sh", "-c", before + script], input=text, check=False, capture_output=True, text=True)
    assert list(tmp_path.iterdir()) == []
    return done.stdout


def test_a_host_without_room_for_our_program_is_not_sent_it(tmp_path: Path) -> None:
    said = _in_shell(tmp_path, "ulimit -f 100\n", "echo it runs")
    assert "brobust-no /dev/shm, /run, /tmp and ~ have no room for a program of " in said and "it runs" not in said


def test_bash_on_a_host_does_not_read_again_what_is_for_logins(tmp_path: Path) -> None:
    """Debian's does so where SSH_CLIENT is set; what iperf3 prints would stand behind what that prints."""
    before = "export SSH_CLIENT=here SSH_CONNECTION='1 2 3 4' BASH_ENV=quota.sh\n"
    said = _in_shell(tmp_path, before, 'echo "agent: ${SSH_CLIENT-none} ${BASH_ENV-none}"')
    assert said.endswith(" 1 2 3 4\nagent: none none\n")


@pytest.mark.parametrize(
    "printed", ["}{", "[" * 100_000, "null", "7", "[null]", '{"dev": "eth1"}'], ids=lambda t: t[:9]
)
def test_a_host_whose_programs_print_no_objects_is_refused_and_no_mistake_of_ours(printed: str) -> None:
    place: Any = SimpleNamespace(name="server-1", agent=SimpleNamespace(run=lambda *_: printed))
    with pytest.raises(RunFailed, match=r"^server-1: `ip -j route` did not print a list of objects as JSON$"):
        places.Place.ask(place, "ip", "-j", "route")
    place.agent.run = lambda *_: '[{"dev": "eth1"}]'
    assert places.Place.ask(place, "ip", "-j", "route") == [{"dev": "eth1"}]


def test_an_interface_that_ssh_reaches_by_a_link_local_address_is_no_bottleneck() -> None:
    links = [{"ifname": "eth1", "addr_info": [{"local": "10.0.1.1"}, {"local": "fe80::2"}]}]
    connection = SimpleNamespace(peers=("fe80::1%eth1", "fe80::2%eth1"))
    place: Any = SimpleNamespace(
        role="path", name="router", namespace=None, connection=connection, ask=lambda *_: links
    )
    with pytest.raises(MissingSupport, match=r"^path: eth1 of router carries the ssh connection"):
        places._refuse_own_way(place, "eth1")


@pytest.mark.parametrize("name", ["$(id)", "a;id", "-x", "a`id`", "a|b", "a&b", "a>b"])
def test_an_interface_whose_name_a_shell_would_take_apart_is_refused(name: str) -> None:
    """Root of a container names the interfaces of its namespace, and root of the host undoes by a script."""
    said = {"address": [{"ifname": name, "addr_info": [{"local": "10.0.1.1"}]}], "route": [{"dev": name}]}
    place: Any = SimpleNamespace(
        role="sender", name="server-1, web", ask=lambda *words: said["address" if "address" in words else "route"]
    )
    end = hosts.End(ssh="server-1", address="10.0.1.1", namespace="web")
    for found in (lambda: places._device_of(place, end), lambda: places._way(place, "10.0.2.1")):
        with pytest.raises(MissingSupport, match=r"^sender: server-1, web calls an interface '.*rename it$"):
            found()


@pytest.mark.parametrize("name", ["eth0", "br-1a2b", "veth1@if2", "wg+x", "eth0.7", "größe0"])
def test_usual_and_unusual_names_of_interfaces_are_taken(name: str) -> None:
    place: Any = SimpleNamespace(role="sender", name="server-1", ask=lambda *_: [{"dev": name}])
    assert places._way(place, "10.0.2.1") == name
