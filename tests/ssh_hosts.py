"""Hosts for backend lab: network namespaces of this machine, each with processes, /run, /dev/shm and a home of its own,
and an sshd. They are joined by a wire for ssh, and by the measured path: sender - path - receiver."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SSHD = "/usr/sbin/sshd"
PORT = 2222
# What a host has of its own begins with this shell, which is the first process of its PID namespace: when that is
# killed, so is everything on the host, as when it is switched off. Its home is empty: the shell that sshd starts would
# read this user's .bashrc, and what that starts may leave a lock in the user's home when it is killed (pyenv's did, so
# that every later shell waited for a minute).
INIT = """
mount -t proc proc /proc; mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs {home}; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /dev/shm; mkdir -p /run/sshd
{sshd} -D -e -f {config} -E {log} &
while :; do sleep 1000 & wait $!; done
"""


@dataclass
class Host:
    """One of them. Its first process is `init` here."""

    name: str
    directory: Path
    init: subprocess.Popen[bytes]
    address: str

    @property
    def pid(self) -> int:
        """The first process of its PID namespace, as this machine numbers it."""
        children = Path(f"/proc/{self.init.pid}/task/{self.init.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command on the host, not by ssh."""
        entered = ["nsenter", "-t", str(self.pid), "-n", "-m", "-p", "--", *command]
        return subprocess.run(entered, check=check, capture_output=True, text=True).stdout

    def processes(self) -> list[str]:
        """The command lines of what runs there, beside its own first process, sshd and what runs this."""
        shown = self.run("ps", "-eo", "args", "--no-headers").splitlines()
        own = ("sh -c", "sleep 1000", "ps -eo", SSHD, "sshd:")
        return [line for line in shown if not line.strip().startswith(own) and "<defunct>" not in line]

    def reboot(self) -> None:
        """Do to the host what a power cut and the boot after it do: every process is gone at once, and so is what
        the kernel and file systems in memory had; files on disks stay, and sshd comes back."""
        self.run("sh", "-c", "kill -9 -1")  # all but the first process of its PID namespace
        script = """
        rm -rf /run/* /run/.[!.]* /dev/shm/* /dev/shm/.[!.]*; mkdir -p /run/sshd
        sysctl -qw net.ipv4.tcp_no_metrics_save=0 net.ipv4.tcp_wmem='4096 16384 4194304'
        for device in /sys/class/net/lab*; do
          device=${device##*/}
          tc qdisc del dev $device root 2>/dev/null
          ethtool -K $device tso on gro on 2>/dev/null
        done
        """
        self.run("sh", "-c", script, check=False)
        sshd = f"{SSHD} -e -f {self.directory}/{self.name}.sshd -E {self.directory}/{self.name}.log"
        self.run("sh", "-c", f"{sshd} </dev/null >/dev/null 2>&1")
        _wait_listening(self)


@dataclass
class Lab:
    """Three hosts, and the file that names them."""

    file: Path
    directory: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def traces(self) -> list[str]:
        """Everything that a series has left on a host: processes, files, queue disciplines, sysctls."""
        found = []
        for name, host in self.hosts.items():
            found += [f"{name}: process {line}" for line in host.processes()]
            # /tmp is also this machine's: what was there before is not ours.
            copies = ("/dev/shm", "/run", "/tmp", "-maxdepth", "1", "-name", ".brobust-lab*", "-newer", str(self.file))
            sessions = ("/run/brobust", "-mindepth", "1", "-not", "-name", "*lock")
            files = [host.run("find", *where, check=False) for where in (copies, sessions)]
            found += [f"{name}: {file}" for file in "".join(files).splitlines()]
            qdiscs = host.run("tc", "qdisc", "show").splitlines()
            found += [f"{name}: {line}" for line in qdiscs if "noqueue" not in line and " 0: " not in line]
            links = host.run("ip", "-o", "link", "show", "type", "ifb").splitlines()
            found += [f"{name}: {line}" for line in links]
            features = host.run("sh", "-c", "for d in /sys/class/net/lab*; do ethtool -k ${d##*/}; done")
            found += [f"{name}: {line}" for line in features.splitlines() if line == "tcp-segmentation-offload: off"]
            if host.run("cat", "/proc/sys/net/ipv4/tcp_no_metrics_save").strip() != "0":
                found.append(f"{name}: tcp_no_metrics_save")
        return found


def why_not() -> str:
    """Why there can be no such hosts on this machine; empty if there can be."""
    missing = [tool for tool in ("ssh", "ssh-keygen", "unshare", "nsenter", "iperf3") if shutil.which(tool) is None]
    if not Path(SSHD).exists():
        missing.append(SSHD)
    return f"{', '.join(missing)}: not installed" if missing else ""


@contextlib.contextmanager
def started(directory: Path) -> Iterator[Lab]:
    """Yield three hosts."""
    directory.chmod(0o700)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / f"{name}.key")], check=True
        )
    (directory / "authorized").write_text((directory / "user.key.pub").read_text())
    lab = Lab(directory / "lab.toml", directory)
    number = os.getpid() % 200
    with contextlib.ExitStack() as stack:
        for index, name in enumerate(("sender", "receiver", "path")):
            address = f"198.18.{number}.{4 * index + 2}"
            lab.hosts[name] = host = _host(name, directory, address, stack)
            # The wire for ssh: its other end is here.
            here, there = f"lt{number}{name[0]}", "ssh0"
            _ip("link", "add", "name", here, "type", "veth", "peer", "name", there, "netns", str(host.pid))
            stack.callback(_ip, "link", "del", here, check=False)
            _ip("address", "add", f"198.18.{number}.{4 * index + 1}/30", "dev", here)
            _ip("link", "set", here, "up")
            host.run("ip", "address", "add", f"{address}/30", "dev", there)
            host.run("ip", "link", "set", there, "up")
            host.run("ip", "link", "set", "lo", "up")
        _measured_path(lab)
        _written(lab)
        for host in lab.hosts.values():
            _wait_listening(host)
        yield lab


def _host(name: str, directory: Path, address: str, stack: contextlib.ExitStack) -> Host:
    config = directory / f"{name}.sshd"
    config.write_text(
        f"Port {PORT}\nHostKey {directory}/host.key\nAuthorizedKeysFile {directory}/authorized\nStrictModes no\n"
        f"PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    script = INIT.format(sshd=SSHD, home=Path("~root").expanduser(), config=config, log=directory / f"{name}.log")
    init = subprocess.Popen(
        ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", script],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    host = Host(name, directory, init, address)

    def end() -> None:
        with contextlib.suppress(OSError, IndexError):
            os.kill(host.pid, signal.SIGKILL)
        init.kill()
        init.wait()

    stack.callback(end)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, IndexError, subprocess.CalledProcessError):
            if "tmpfs /dev/shm" in host.run("cat", "/proc/mounts"):
                return host
        time.sleep(0.02)
    raise AssertionError(f"{name} did not start")


def _measured_path(lab: Lab) -> None:
    sender, receiver, path = (lab.hosts[name] for name in ("sender", "receiver", "path"))
    for end, network in ((sender, 1), (receiver, 2)):
        there = f"lab{network}"
        path.run("ip", "link", "add", "name", there, "type", "veth", "peer", "name", "lab0")
        subprocess.run(
            ["nsenter", "-t", str(path.pid), "-n", "ip", "link", "set", "lab0", "netns", str(end.pid)], check=True
        )
        path.run("ip", "address", "add", f"192.168.{network}.254/24", "dev", there)
        path.run("ip", "link", "set", there, "up")
        end.run("ip", "address", "add", f"192.168.{network}.1/24", "dev", "lab0")
        end.run("ip", "link", "set", "lab0", "up")
        end.run("ip", "route", "add", f"192.168.{3 - network}.0/24", "via", f"192.168.{network}.254")
    path.run("sysctl", "-qw", "net.ipv4.ip_forward=1")


def _written(lab: Lab) -> None:
    config = "".join(f"Host {name}\n  HostName {host.address}\n" for name, host in lab.hosts.items())
    config += (
        f"Host *\n  Port {PORT}\n  User root\n  IdentityFile {lab.directory}/user.key\n  IdentitiesOnly yes\n"
        f"  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {lab.directory}/known\n"
    )
    (lab.directory / "config").write_text(config)
    lab.file.write_text(
        'ssh_config = "config"\ncut_after = "6s"\n'
        '[sender]\nssh = "sender"\naddress = "192.168.1.1"\n'
        '[receiver]\nssh = "receiver"\naddress = "192.168.2.1"\n'
        '[path]\nssh = "path"\n'
    )


def _wait_listening(host: Host) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host.address, PORT), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=not check)
