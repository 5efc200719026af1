"""Check what this machine can do, one thing after the other, and say how to get what it lacks."""

import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from brobust import _core
from brobust.errors import BrobustError, last_line, reason
from brobust.host import network
from brobust.host.cache import cache_directory, refuse_foreign_images
from brobust.host.session import ANOTHER, Session
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.testbed import accelerator, image
from brobust.testbed.qemu import Guest, GuestConfig
from brobust.virtual import iperf3
from brobust.virtual import programs as virtual_programs

Status = Literal["ok", "limited", "missing"]


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. `missing`: the vm backend cannot work; `limited`: something works less well, or not."""

    check: str
    status: Status
    detail: str
    remedy: str = ""


Found = tuple[Status, str] | tuple[Status, str, str]
"""What a check returns: all of a CheckResult but its name."""


def all_checks() -> Iterator[CheckResult]:
    """Yield the result of each check. The boots at the end take seconds."""
    for name, check in _CHECKS.items():
        try:
            yield CheckResult(name, *check())
        except (BrobustError, OSError) as error:
            what, _, remedy = str(error).partition("; ")
            if what.startswith(ANOTHER):  # nothing is known to be missing, and waiting is all that it takes
                yield CheckResult(name, "limited", f"not tried: {what}", remedy)
            else:
                yield CheckResult(name, "missing", str(error))


def for_report(results: list[CheckResult]) -> dict[str, str]:
    """Return each check's status, and the detail of those whose details never have a name, an address or a path."""
    return {
        result.check: result.status
        if result.status == "missing" or result.check not in _WITHOUT_NAMES
        else f"{result.status}: {result.detail}"
        for result in results
    }


_NO_GUEST_KERNEL: Found = (
    "limited", "not tried: no guest kernel yet",
    "the first `brobust run --backend vm` fetches one, as does `make setup` in a checkout",
)  # fmt: skip
_WITHOUT_NAMES = ("capabilities", "cpus", "programs", "tick", "SCHED_FIFO")


def _root() -> Found:
    if os.geteuid() == 0:
        return "ok", "effective user is root"
    return "missing", f"user {os.geteuid()}", "run it as root: taps, namespaces and SCHED_DEADLINE need root"


def _capabilities() -> Found:
    wanted = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23, "CAP_PERFMON": 38, "CAP_BPF": 39}
    line = next(li for li in Path("/proc/self/status").read_text().splitlines() if li.startswith("CapEff"))
    held = int(line.split()[1], 16)
    lacking = [name for name, bit in wanted.items() if not held >> bit & 1]
    if not lacking:
        return "ok", ", ".join(wanted)
    return "missing", f"without {', '.join(lacking)}", "leave the container, or give it these"


def _cpus() -> Found:
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return "ok", f"{count} usable"
    return "missing", f"{count} usable", "give this machine two: the sender's vCPU needs one to itself"


def _programs() -> Found:
    needed = {"qemu-system-x86_64": "qemu-system-x86", "setpriv": "util-linux", "nsenter": "util-linux",
              "cpio": "cpio", "depmod": "kmod", **image.PROGRAMS}  # fmt: skip
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = {package for program, package in needed.items() if shutil.which(program, path=path) is None}
    if not lacking:
        return "ok", f"QEMU {accelerator.qemu_version()}, iperf3 {iperf3.version()}, iproute2, kmod, cpio"
    return "missing", ", ".join(sorted(lacking)), f"apt-get install {' '.join(sorted(lacking))}"


def _tick() -> Found:
    hz = _core.hz()
    hrtick = _core.hrtick_dl()
    if hz is None:
        return "limited", "HZ unknown", "every run records the timeslices that it really had"
    tick_ms = 1000 / hz
    if hrtick:
        return "ok", f"HZ={hz}, HRTICK_DL on: SCHED_DEADLINE slices end to the microsecond"
    return (
        "limited" if hz < 1000 else "ok",
        f"HZ={hz}, HRTICK_DL {'off' if hrtick is False else 'unknown'}: its slices end at {tick_ms:g} ms ticks",
        f"for slices below {2.5 * tick_ms:g} ms use --driver burner" if hz < 1000 else "",
    )


def _deadline() -> Found:
    try:
        # The only reliable way to find out is to put a child process under SCHED_DEADLINE.
        with subprocess.Popen(["sleep", "5"]) as child:
            try:
                _core.try_deadline(child.pid)
            finally:
                child.kill()
    except _core.ContentionError as error:
        return "limited", str(error), "use --driver burner, or see sched(7)"
    return "ok", "the kernel admits 10 ms of every 40 ms"


def _real_time() -> Found:
    runtime = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text())
    period = int(Path("/proc/sys/kernel/sched_rt_period_us").read_text())
    if runtime < 0:
        return "ok", "the kernel does not throttle real-time threads"
    min_share = 1 - runtime / period
    return "ok", f"the burner can take the share down to {min_share:.0%} (sched_rt_runtime_us {runtime})"


def _btf() -> Found:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return (
            "limited", "the host's kernel has none, so the vCPU's time cannot be recorded: runs are unfaithful",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian's and Ubuntu's have it)",
        )  # fmt: skip
    return "ok", "/sys/kernel/btf/vmlinux"


def _recorder() -> Found:
    try:
        _core.Recorder([os.getpid()]).stop([None])
    except _core.ContentionError as error:
        return "limited", str(error), "without the recorder every run is unfaithful"
    return "ok", "BPF programs on sched_switch work"


def _struct_ops() -> Found:
    blob = Path("/sys/kernel/btf/vmlinux")
    if blob.exists() and b"bpf_struct_ops_tcp_congestion_ops" in blob.read_bytes():
        return "ok", "this host's kernel accepts congestion controls as BPF programs"
    return (
        "limited", "this host's kernel does not accept congestion controls as BPF (guests may)",
        "boot a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF",
    )  # fmt: skip


def _wire() -> Found:
    if os.geteuid() != 0:
        return "missing", "not root", "run it as root"
    with Session.start() as session:
        name = network.create(session, ["tap-probe"])
        made = subprocess.run(
            ["ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if made.returncode != 0:
        return "missing", f"no veth: {last_line(made.stderr)}", "load the kernel's module veth, or boot one that has it"
    return "ok", "network namespace, bridge, tap and veth can be created"


def _qdiscs() -> Found:
    if (kernel := _guest_kernel()) is None:
        return _NO_GUEST_KERNEL
    needed = ["sch_tbf", "sch_netem", "ifb"]
    present = {file.name.split(".")[0] for file in vm_kernels.module_files(kernel, needed)}
    if lacking := set(needed) - present:
        return "missing", f"{kernel.name} lacks {', '.join(sorted(lacking))}", "use another --kernel"
    return "ok", f"the path guest ({kernel.name}) has tbf, netem and ifb; the host needs none"


def _kernels() -> Found:
    names = vm_kernels.available()
    if not names:
        return "missing", "none: neither apt nor /boot offers one", "apt-get update, or give --kernel BZIMAGE:MODULES"
    return "ok", ", ".join(f"{name} ({where})" for name, where in names.items())


def _cache() -> Found:
    where = cache_directory()
    if not where.is_dir():
        return "ok", f"nothing is kept in {where}"
    held = sum(path.lstat().st_size for path in where.rglob("*") if path.is_file() and not path.is_symlink())
    return "ok", f"{where}, {held / 1e6:.0f} MB; it may be deleted, and is all that brobust keeps"


def _kvm() -> Found:
    if (kernel := _guest_kernel()) is None:
        return _NO_GUEST_KERNEL
    with Session.start() as session:
        probe = accelerator.probe_kvm(kernel, session)
    if probe.works:
        return "ok", f"{probe.reason} ({kernel.name})"
    return "limited", probe.reason, "guests run under TCG, which is fast enough for about 100 Mbit/s"


def _tcg() -> Found:
    if (kernel := _guest_kernel()) is None:
        return _NO_GUEST_KERNEL
    guest_image = image.build(kernel)
    begun = time.monotonic()
    with (
        Session.start() as session,
        Guest.start(GuestConfig("tcg-probe", tap="", mac=""), kernel, guest_image, "tcg", session) as guest,
    ):
        guest.wait_booted()
        seconds = time.monotonic() - begun
    return "ok", f"{kernel.name} booted in {seconds:.1f} s"


def _guest_kernel() -> vm_kernels.Kernel | None:
    """Return a guest kernel that is here, the default one if it is. Nothing is fetched."""
    default, known = vm_kernels.default(), vm_kernels.available()
    here = [name for name, where in known.items() if not where.startswith("apt")]
    if here:
        refuse_foreign_images()
    for name in sorted(here, key=lambda name: name != default):
        with suppress(BrobustError):
            return vm_kernels.find(name)
    return None


def _virtual_kernel() -> Found:
    try:
        kernel = virtual_kernels.find()
    except BrobustError as error:
        what, _, remedy = str(error).removeprefix("kernel: ").partition("; ")
        return "limited", what, remedy
    others = [other.name for other in virtual_kernels.available() if other.name != kernel.name and not other.stale]
    more = f"; also {', '.join(others)}" if others else ""
    return "ok", f"{kernel.name}: Linux {kernel.release}, HZ={kernel.hz}{more}"


def _memory_file() -> Found:
    """Check what a virtual kernel needs at boot: a memfd for its memory, which is also mapped as executable."""
    try:
        file = os.memfd_create("brobust-probe")
        try:
            os.truncate(file, mmap.PAGESIZE)
            protection = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
            mmap.mmap(file, mmap.PAGESIZE, mmap.MAP_PRIVATE, protection).close()
        finally:
            os.close(file)
    except OSError as error:
        return (
            "limited", f"{reason(error)}: virtual kernels cannot boot",
            "sysctl vm.memfd_noexec=0, and allow memfd_create and executable mappings (seccomp, SELinux's execmem)",
        )  # fmt: skip
    return "ok", "virtual kernels get their memory"


def _ptrace() -> Found:
    reason = virtual_programs.why_no_ptrace()
    if reason is None:
        return "ok", "virtual kernels can run programs (traffic programs and iperf3)"
    return (
        "limited", f"{reason}: no programs, no iperf3 in virtual time (but with virtual-7.2)",
        "add CAP_SYS_PTRACE to the container, or allow ptrace in its seccomp profile",
    )  # fmt: skip


_CHECKS: dict[str, Callable[[], Found]] = {
    "root": _root, "capabilities": _capabilities, "cpus": _cpus, "programs": _programs, "tick": _tick,
    "SCHED_DEADLINE": _deadline, "SCHED_FIFO": _real_time, "BTF": _btf, "recorder": _recorder,
    "struct_ops": _struct_ops, "tap and bridge": _wire, "virtual kernel": _virtual_kernel,
    "executable memfd": _memory_file, "ptrace": _ptrace, "guest kernels": _kernels, "cache": _cache,
    "qdiscs": _qdiscs, "KVM": _kvm, "TCG": _tcg,
}  # fmt: skip
