"""What this machine can do, one check after the other, each with its remedy."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from brobust import _core
from brobust.drivers import schedules
from brobust.errors import BrobustError
from brobust.host import network
from brobust.host.session import Session
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.testbed import accelerator, image
from brobust.testbed.qemu import Guest, Machine
from brobust.virtual import iperf3

Status = Literal["ok", "limited", "missing"]


@dataclass(frozen=True)
class Finding:
    """`missing` keeps the vm backend from working; `limited` names what it must do without."""

    check: str
    status: Status
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def all_checks() -> Iterator[Finding]:
    """Each finding as it is made; the boots at the end take seconds."""
    for check in _CHECKS:
        try:
            yield check()
        except (BrobustError, OSError) as error:
            yield Finding(check.__name__.strip("_"), "missing", str(error), "see the message")


def _root() -> Finding:
    if os.geteuid() == 0:
        return Finding("root", "ok", "effective user is root")
    return Finding(
        "root", "missing", f"user {os.geteuid()}", "run as root: taps, namespaces and SCHED_DEADLINE need it"
    )


def _capabilities() -> Finding:
    wanted = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23, "CAP_PERFMON": 38, "CAP_BPF": 39}
    line = next(li for li in Path("/proc/self/status").read_text().splitlines() if li.startswith("CapEff"))
    held = int(line.split()[1], 16)
    lacking = [name for name, bit in wanted.items() if not held >> bit & 1]
    if not lacking:
        return Finding("capabilities", "ok", ", ".join(wanted))
    return Finding("capabilities", "missing", f"without {', '.join(lacking)}", "leave the container or add them to it")


def _cpus() -> Finding:
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return Finding("cpus", "ok", f"{count} usable")
    return Finding(
        "cpus", "missing", f"{count} usable", "the sender's vCPU needs one for itself: give this machine two"
    )


def _programs() -> Finding:
    needed = {"qemu-system-x86_64": "qemu-system-x86", "setpriv": "util-linux", "nsenter": "util-linux",
              "cpio": "cpio", "depmod": "kmod", "ldd": "libc-bin", **image.PROGRAMS}  # fmt: skip
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = {package for program, package in needed.items() if shutil.which(program, path=path) is None}
    if not lacking:
        return Finding("programs", "ok", f"QEMU {accelerator.qemu_version()}, iperf3 {_iperf3()}, iproute2, kmod, cpio")
    return Finding("programs", "missing", ", ".join(sorted(lacking)), f"apt-get install {' '.join(sorted(lacking))}")


def _iperf3() -> str:
    text = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, check=False).stdout
    return text.split()[1] if text else "missing"


def _guest_program() -> Finding:
    if image.AGENT.exists():
        return Finding("guest program", "ok", str(image.AGENT))
    return Finding("guest program", "missing", f"{image.AGENT} was not built", "make setup")


def _tick() -> Finding:
    hz = _core.hz()
    hrtick = _core.hrtick_dl()
    if hz is None:
        return Finding("tick", "limited", "HZ unknown", "the recorder will tell")
    tick_ms = 1000 / hz
    if hrtick:
        return Finding("tick", "ok", f"HZ={hz}, HRTICK_DL on: SCHED_DEADLINE slices end to the microsecond")
    return Finding(
        "tick", "limited" if hz < 1000 else "ok",
        f"HZ={hz}, HRTICK_DL {'off' if hrtick is False else 'unknown'}: its slices end at {tick_ms:g} ms ticks",
        f"for slices below {2.5 * tick_ms:g} ms use --driver burner" if hz < 1000 else "",
    )  # fmt: skip


def _deadline() -> Finding:
    try:
        slices = json.dumps(schedules.slices(10_000_000, 40_000_000))
        _core.check_contention("deadline", slices, 1)
        # A child of ours under SCHED_DEADLINE: the only answer that counts.
        with subprocess.Popen(["sleep", "5"]) as child:
            try:
                contention = _core.Contention("deadline", [(child.pid, None, slices)])
                contention.start()
                contention.settle()
                contention.stop()
            finally:
                child.kill()
    except _core.ContentionError as error:
        return Finding("SCHED_DEADLINE", "limited", str(error), "use --driver burner, or see sched-deadline(7)")
    return Finding("SCHED_DEADLINE", "ok", "admits 10 ms of every 40 ms")


def _real_time() -> Finding:
    runtime = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text())
    period = int(Path("/proc/sys/kernel/sched_rt_period_us").read_text())
    if runtime < 0:
        return Finding("SCHED_FIFO", "ok", "no throttling of real-time threads")
    least = 1 - runtime / period
    return Finding("SCHED_FIFO", "ok", f"burner down to {least:.0%} share (sched_rt_runtime_us {runtime})")


def _btf() -> Finding:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return Finding(
            "BTF", "limited", "the host kernel has none: what the vCPU got cannot be recorded, runs are unfaithful",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian's and Ubuntu's have it)",
        )  # fmt: skip
    return Finding("BTF", "ok", "/sys/kernel/btf/vmlinux")


def _recorder() -> Finding:
    try:
        with _core.Recorder([os.getpid()]):
            pass
    except _core.ContentionError as error:
        return Finding("recorder", "limited", str(error), "without it no run can be called faithful")
    return Finding("recorder", "ok", "BPF on sched_switch works")


def _struct_ops() -> Finding:
    blob = Path("/sys/kernel/btf/vmlinux")
    if blob.exists() and b"bpf_struct_ops_tcp_congestion_ops" in blob.read_bytes():
        return Finding("struct_ops", "ok", "this host's kernel can take congestion controls as BPF")
    return Finding(
        "struct_ops", "limited", "this host's kernel takes no congestion controls as BPF (guests still may)",
        "boot a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF",
    )  # fmt: skip


def _wire() -> Finding:
    if os.geteuid() != 0:
        return Finding("tap and bridge", "missing", "not root", "run as root")
    with Session.start() as session:
        name = network.create(session, ["tap-probe"])
        subprocess.run(
            ["ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
            capture_output=True, check=True,
        )  # fmt: skip
    return Finding("tap and bridge", "ok", "network namespace, bridge, tap and veth can be made")


def _qdiscs() -> Finding:
    try:
        kernel = vm_kernels.find(vm_kernels.default())
    except BrobustError:
        kernel = None
    if kernel is None:
        return Finding("qdiscs", "limited", "no guest kernel to look into yet", "make setup")
    files = vm_kernels.module_files(kernel, ["sch_tbf", "sch_netem", "ifb"])
    present = {file.name.split(".")[0] for file in files}
    lacking = {"sch_tbf", "sch_netem", "ifb"} - present
    if lacking:
        return Finding("qdiscs", "missing", f"{kernel.name} lacks {', '.join(sorted(lacking))}", "use another --kernel")
    return Finding("qdiscs", "ok", f"tbf, netem and ifb in the path guest ({kernel.name}); the host needs none")


def _kernels() -> Finding:
    names = vm_kernels.available()
    if not names:
        return Finding(
            "guest kernels", "missing", "none: apt offers no Debian kernel and /boot has none",
            "apt-get update, or give --kernel BZIMAGE:MODULES",
        )  # fmt: skip
    return Finding("guest kernels", "ok", ", ".join(f"{name} ({where})" for name, where in names.items()))


def _kvm() -> Finding:
    if (kernel := _any_kernel()) is None:
        return Finding("KVM", "limited", "not tried: no guest kernel", "make setup")
    with Session.start() as session:
        probe = accelerator.probe_kvm(kernel, session)
    if probe.works:
        return Finding("KVM", "ok", f"{probe.reason} ({kernel.name})")
    return Finding("KVM", "limited", probe.reason, "guests run under TCG: fine for paths up to some 100 Mbit/s")


def _tcg() -> Finding:
    if (kernel := _any_kernel()) is None:
        return Finding("TCG", "missing", "not tried: no guest kernel", "make setup")
    guest_image = image.build(kernel)
    begun = time.monotonic()
    with (
        Session.start() as session,
        Guest.start(Machine("tcg-probe", tap="", mac=""), kernel, guest_image, "tcg", session) as guest,
    ):
        guest.wait_booted()
        seconds = time.monotonic() - begun
    return Finding("TCG", "ok", f"{kernel.name} booted in {seconds:.1f} s")


def _any_kernel() -> vm_kernels.Kernel | None:
    for name, where in vm_kernels.available().items():
        if not where.startswith("apt"):
            with suppress(BrobustError):
                return vm_kernels.find(name)
    return None


def _virtual_kernel() -> Finding:
    try:
        kernel = virtual_kernels.find()
    except BrobustError as error:
        what, _, remedy = str(error).removeprefix("kernel: ").partition("; ")
        return Finding("virtual kernel", "limited", what, remedy)
    others = [other.name for other in virtual_kernels.available() if other.name != kernel.name and not other.stale]
    more = f"; also {', '.join(others)}" if others else ""
    return Finding("virtual kernel", "ok", f"{kernel.name}: Linux {kernel.release}, HZ={kernel.hz}{more}")


def _memory_file() -> Finding:
    """What a kernel in virtual time asks for at boot: a memfd for its memory, which is mapped to be executed too."""
    try:
        file = os.memfd_create("brobust-probe")
        try:
            os.truncate(file, mmap.PAGESIZE)
            protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
            mmap.mmap(file, mmap.PAGESIZE, mmap.MAP_PRIVATE, protection).close()
        finally:
            os.close(file)
    except OSError as error:
        return Finding(
            "executable memfd", "limited", f"{error.strerror}: kernels in virtual time cannot boot",
            "sysctl vm.memfd_noexec=0, and allow memfd_create and executable mappings (seccomp, SELinux's execmem)",
        )  # fmt: skip
    return Finding("executable memfd", "ok", "kernels in virtual time get their memory")


def _ptrace() -> Finding:
    reason = iperf3.why_no_ptrace()
    if reason is None:
        return Finding("ptrace", "ok", "kernels in virtual time can run iperf3 (traffic iperf3)")
    return Finding(
        "ptrace", "limited", f"{reason}: no traffic iperf3 in virtual time; traffic brobust needs no ptrace",
        "add CAP_SYS_PTRACE to the container, or allow ptrace in its seccomp profile",
    )  # fmt: skip


def load_bearing(findings: list[Finding]) -> bool:
    """Whether the vm backend can work with these findings."""
    return not any(finding.status == "missing" for finding in findings)


_CHECKS: list[Callable[[], Finding]] = [
    _root, _capabilities, _cpus, _programs, _guest_program, _tick, _deadline, _real_time, _btf, _recorder,
    _struct_ops, _wire, _virtual_kernel, _memory_file, _ptrace, _kernels, _qdiscs, _kvm, _tcg,
]  # fmt: skip
