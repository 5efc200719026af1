#!/usr/bin/env python3
"""Try backend lab on three machines with kernels of their own: guests of QEMU with sshd, one of which is reset in the
middle of a series.

    .venv/bin/python benchmarks/lab_guests.py [--accelerator kvm] [--keep DIR]     # no root; minutes under TCG

The sender, the path and the receiver boot Debian's kernel with the initramfs of backend vm, to which sshd is added.
ssh reaches each through QEMU's own network; the measured path is two wires between the QEMUs. A series of cubic and bbr
with netem begins; when its first run is in, the path guest is reset like a machine that loses its power; `--resume`
completes the series. Then nothing may be left on any guest. Printed: how long each step took, the runs, and what was
left. Exit status 1 if the series was not completed, or something was left.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from brobust.dataset import Dataset
from brobust.host.children import killed_with_parent
from brobust.host.libraries import shared_libraries
from brobust.host.programs import find_program, host_program
from brobust.kernels import vm as kernels
from brobust.testbed import image
from brobust.testbed.qemu import QEMU

BROBUST = Path(sys.executable).with_name("brobust")
SSHD = Path("/usr/sbin/sshd")
BOOT_SECONDS = 300.0
# What ssh's login and our script need beside the programs of the vm guests.
APPLETS = (
    "sh", "uname", "id", "find", "rm", "head", "mktemp", "chmod", "grep", "base64", "nproc", "hostname", "ps", "touch",
)  # fmt: skip
INIT = """#!/bin/bash
export PATH=/bin:/usr/sbin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run; mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
ln -s /proc/self/fd /dev/fd
modprobe -q virtio_pci; modprobe -q virtio_net; modprobe -q tcp_diag
hostname $role
last=eth1; [ $role != path ] || last=eth2
until [ -e /sys/class/net/$last ]; do sleep 0.1; done
up() { ip address add $2/24 dev $1; ip link set $1 up; }
ip link set lo up
up eth0 10.0.2.15
case $role in
sender) up eth1 192.168.1.1; ip route add 192.168.2.0/24 via 192.168.1.254 ;;
receiver) up eth1 192.168.2.1; ip route add 192.168.1.0/24 via 192.168.2.254 ;;
path) up eth1 192.168.1.254; up eth2 192.168.2.254; echo 1 >/proc/sys/net/ipv4/ip_forward ;;
esac
mkdir -p /run/sshd
/usr/sbin/sshd -D -e &
while :; do wait; sleep 1; done
"""
SSHD_CONFIG = """Port 22
HostKey /etc/ssh/host.key
AuthorizedKeysFile /etc/ssh/authorized
StrictModes no
PidFile none
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
LEFT = """
find /run/brobust -mindepth 1 -not -name '*lock' 2>/dev/null
find /dev/shm /run /tmp -maxdepth 1 -name '.brobust-lab*'
tc qdisc show | grep -v noqueue | grep -v ' 0: '
ip -o link show type ifb
grep -v 0 /proc/sys/net/ipv4/tcp_no_metrics_save
ps | grep -E 'brobust|iperf3' | grep -v grep
:
"""


def overlay(directory: Path) -> Path:
    """Make an archive that the kernel unpacks over the guests' own: sshd with keys, and another first process."""
    root = directory / "root"
    for name in ("bin", "etc/ssh", "usr/sbin", "root", "var/empty"):
        (root / name).mkdir(parents=True)
    for name in ("host", "user"):
        key = directory / f"{name}.key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(directory / "host.key", root / "etc/ssh/host.key")
    shutil.copy(directory / "user.key.pub", root / "etc/ssh/authorized")
    (root / "etc/ssh/sshd_config").write_text(SSHD_CONFIG)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    shutil.copy(SSHD, root / "usr/sbin/sshd")
    for program in (SSHD, host_program()):  # ours is sent, but its libraries are not
        for name, library in shared_libraries(program, {}).items():
            target = root / (name if "/" in name else str(library)).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy(library.resolve(), target)
    (root / "sbin").symlink_to("usr/sbin")  # where the kernel looks for modprobe
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    archive = directory / "overlay.cpio"
    names = "\n".join(sorted(str(one.relative_to(root)) for one in root.rglob("*")))
    with archive.open("wb") as out:
        command = ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"]
        subprocess.run(command, cwd=root, input=names.encode(), stdout=out, check=True)
    return archive


def guest(role: str, kernel: kernels.Kernel, initrd: Path, directory: Path, port: int, accelerator: str) -> list[str]:
    """Return the command of a guest. The path's QEMU has the ends of the wires that wait for the others."""
    wires = {"sender": ["to_sender"], "receiver": ["to_receiver"], "path": ["to_sender", "to_receiver"]}[role]
    network = ["-netdev", f"user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
    network += ["-device", "virtio-net-pci,netdev=ssh,romfile="]
    for wire in wires:
        where = f"server={'on' if role == 'path' else 'off'},addr.type=unix,addr.path={directory}/{wire}"
        network += ["-netdev", f"stream,id={wire},{where}", "-device", f"virtio-net-pci,netdev={wire},romfile="]
    return [
        QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-name", f"lab-{role}",
        "-machine", f"q35,accel={accelerator},usb=off,vmport=off", "-cpu", "max" if accelerator == "tcg" else "host",
        "-smp", "1", "-m", "512", "-kernel", str(kernel.image), "-initrd", str(initrd),
        "-append", f"console=ttyS0 quiet panic=-1 mitigations=off nowatchdog net.ifnames=0 random.trust_cpu=on "
                   f"no_timer_check role={role}",
        "-serial", f"file:{directory}/{role}.console",
        "-monitor", f"unix:{directory}/{role}.monitor,server=on,wait=off",
        *network,
    ]  # fmt: skip


@contextlib.contextmanager
def booted(directory: Path, accelerator: str, ports: dict[str, int]) -> Iterator[None]:
    """Run the three guests; the path's first, for whose wires the others ask."""
    kernel = kernels.find(kernels.default())
    initrd = directory / "initrd"
    initrd.write_bytes(image.build(kernel).read_bytes() + overlay(directory).read_bytes())
    with contextlib.ExitStack() as stack:
        for role, port in ports.items():
            command = killed_with_parent(guest(role, kernel, initrd, directory, port, accelerator))
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL))
            stack.callback(process.kill)
            wanted = [directory / f"{role}.monitor", *([directory / "to_receiver"] if role == "path" else [])]
            until(partial(all_exist, wanted), 30, f"QEMU of the {role}")
        yield


def all_exist(files: Sequence[Path]) -> bool:
    return all(file.exists() for file in files)


def until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Wait until the condition holds, and return how long that took, s."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            sys.exit(f"lab_guests: {what}: not within {seconds:g} s")
        time.sleep(0.2)
    return time.monotonic() - begun


def reset(monitor: Path) -> None:
    """Reset a guest, as its button would."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.connect(str(monitor))
        wire.sendall(b"system_reset\n")
        time.sleep(0.5)


def main(directory: Path, accelerator: str) -> int:
    ports = {"path": 2301, "sender": 2302, "receiver": 2303}
    config, file, out = directory / "config", directory / "lab.toml", directory / "data"
    hosts = "".join(f"Host {role}\n  HostName 127.0.0.1\n  Port {port}\n" for role, port in ports.items())
    config.write_text(
        f"{hosts}Host *\n  User root\n  IdentityFile {directory}/user.key\n  IdentitiesOnly yes\n"
        f"  StrictHostKeyChecking accept-new\n  UserKnownHostsFile {directory}/known\n"
    )
    file.write_text(
        'ssh_config = "config"\n[sender]\nssh = "sender"\naddress = "192.168.1.1"\n'
        '[receiver]\nssh = "receiver"\naddress = "192.168.2.1"\n[path]\nssh = "path"\n'
    )

    def ssh(role: str, script: str) -> subprocess.CompletedProcess[str]:
        words = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", role]
        return subprocess.run([*words, f"sh -c {shlex.quote(script)}"], capture_output=True, text=True, check=False)

    def answers(role: str) -> bool:
        return ssh(role, "true").returncode == 0

    with booted(directory, accelerator, ports):
        for role in ports:
            print(f"{role} answers after {until(partial(answers, role), BOOT_SECONDS, role):.1f} s more")
        series = [str(BROBUST), "run", "--backend", "lab", "--hosts", str(file), "--cc", "cubic,bbr", "--share", "1"]
        series += ["--bandwidth", "5mbit", "--rtt", "20ms", "--duration", "5s", "--repeat", "1", "--out", str(out)]
        begun = time.monotonic()
        with subprocess.Popen(series, stderr=subprocess.PIPE, text=True) as first:
            until(
                lambda: len(list(out.glob("runs/*.parquet"))) > 0 or first.poll() is not None, 600, "the first run"
            )  # fmt: skip
            if first.poll() is None:
                reset(directory / "path.monitor")
            _, said = first.communicate()
        print(f"the series ended after {time.monotonic() - begun:.1f} s, status {first.returncode}: {said.strip()}")
        print(f"path answers again after {until(lambda: answers('path'), BOOT_SECONDS, 'path'):.1f} s more")
        begun = time.monotonic()
        resumed = subprocess.run([BROBUST, "run", "--resume", "--out", out], text=True, check=False)
        print(f"--resume ended after {time.monotonic() - begun:.1f} s, status {resumed.returncode}")
        left = {role: ssh(role, LEFT).stdout.strip() for role in ports}
    if not (out / "dataset.json").exists():
        sys.exit("lab_guests: no run was measured")
    columns = ("cc", "outcome", "throughput_mbps", "rtt_mean_ms", "steal_share", "late_share", "path_waiting_share",
               "kernel_release", "reason")  # fmt: skip
    runs = Dataset.open(out).runs().select(columns).to_dicts()
    print(runs)
    print("left:", {role: lines for role, lines in left.items() if lines} or "nothing")
    # Runs that a busy machine has disturbed count: what is tried is that they come, and that nothing is left.
    return 0 if first.returncode == 1 and len(runs) == 2 and not any(left.values()) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--accelerator", choices=("tcg", "kvm"), default="tcg")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new directory for keys, consoles and data")
    given = parser.parse_args()
    find_program(QEMU, "qemu-system-x86")
    if not SSHD.exists():
        sys.exit("lab_guests: sshd is not installed; `apt-get install openssh-server`")
    os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="lab-guests-") as scratch:
        if given.keep:
            given.keep.mkdir(parents=True)
        sys.exit(main((given.keep or Path(scratch)).resolve(), given.accelerator))
