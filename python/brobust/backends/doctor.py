"""Check what this machine can do, one thing after the other, and say how to get what it lacks."""

from __future__ import annotations

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
from brobust.errors import BrobustError
from brobust.host import network
from brobust.host.cache import cache_directory
from brobust.host.session import Session
from brobust.kernels import virtual as virtual_kernels
from brobust.kernels import vm as vm_kernels
from brobust.testbed import accelerator, image
from brobust.testbed.qemu import Guest, GuestConfig
from brobust.virtual import programs as virtual_programs

Status = Literal["ok", "limited", "missing"]


@dataclass(frozen=True)
class CheckResult:
    """The result of a check. `missing`: the vm backend cannot work; `limited`: something works less well, or not."""

    check: str
    status: Status
    detail: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def all_checks() -> Iterator[CheckResult]:
    """Yield the result of each check. The boots at the end take seconds."""
    for check in _CHECKS:
        try:
            yield check()
        except (BrobustError, OSError) as error:
            yield CheckResult(check.__name__.strip("_"), "missing", str(error), "see the message")


def for_report(results: list[CheckResult]) -> dict[str, str]:
    """Return each check's status, and the detail of those whose details never have a name, an address or a path."""
    return {
        result.check: result.status
        if result.status == "missing" or result.check not in _WITHOUT_NAMES
        else f"{result.status}: {result.detail}"
        for result in results
    }


_WITHOUT_NAMES = ("capabilities", "cpus", "programs", "tick", "SCHED_FIFO")


def _root() -> CheckResult:
    if os.geteuid() == 0:
        return CheckResult("root", "ok", "effective user is root")
    return CheckResult(
        "root", "missing", f"user {os.geteuid()}", "run it as root: taps, namespaces and SCHED_DEADLINE need root"
    )


def _capabilities() -> CheckResult:
    wanted = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_SYS_NICE": 23, "CAP_PERFMON": 38, "CAP_BPF": 39}
    line = next(li for li in Path("/proc/self/status").read_text().splitlines() if li.startswith("CapEff"))
    held = int(line.split()[1], 16)
    lacking = [name for name, bit in wanted.items() if not held >> bit & 1]
    if not lacking:
        return CheckResult("capabilities", "ok", ", ".join(wanted))
    return CheckResult(
        "capabilities", "missing", f"without {', '.join(lacking)}", "leave the container, or give it these"
    )


def _cpus() -> CheckResult:
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return CheckResult("cpus", "ok", f"{count} usable")
    return CheckResult(
        "cpus", "missing", f"{count} usable", "give this machine two: the sender's vCPU needs one to itself"
    )


def _programs() -> CheckResult:
    needed = {"qemu-system-x86_64": "qemu-system-x86", "setpriv": "util-linux", "nsenter": "util-linux",
              "cpio": "cpio", "depmod": "kmod", "ldd": "libc-bin", **image.PROGRAMS}  # fmt: skip
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacking = {package for program, package in needed.items() if shutil.which(program, path=path) is None}
    if not lacking:
        return CheckResult(
            "programs", "ok", f"QEMU {accelerator.qemu_version()}, iperf3 {_iperf3()}, iproute2, kmod, cpio"
        )
    return CheckResult(
        "programs", "missing", ", ".join(sorted(lacking)), f"apt-get install {' '.join(sorted(lacking))}"
    )


def _iperf3() -> str:
    text = subprocess.run(["iperf3", "--version"], capture_output=True, text=True, check=False).stdout
    return text.split()[1] if text else "missing"


def _tick() -> CheckResult:
    hz = _core.hz()
    hrtick = _core.hrtick_dl()
    if hz is None:
        return CheckResult("tick", "limited", "HZ unknown", "every run records the timeslices that it really had")
    tick_ms = 1000 / hz
    if hrtick:
        return CheckResult("tick", "ok", f"HZ={hz}, HRTICK_DL on: SCHED_DEADLINE slices end to the microsecond")
    return CheckResult(
        "tick", "limited" if hz < 1000 else "ok",
        f"HZ={hz}, HRTICK_DL {'off' if hrtick is False else 'unknown'}: its slices end at {tick_ms:g} ms ticks",
        f"for slices below {2.5 * tick_ms:g} ms use --driver burner" if hz < 1000 else "",
    )  # fmt: skip


def _deadline() -> CheckResult:
    try:
        # The only reliable way to find out is to put a child process under SCHED_DEADLINE.
        with subprocess.Popen(["sleep", "5"]) as child:
            try:
                _core.try_deadline(child.pid)
            finally:
                child.kill()
    except _core.ContentionError as error:
        return CheckResult("SCHED_DEADLINE", "limited", str(error), "use --driver burner, or see sched(7)")
    return CheckResult("SCHED_DEADLINE", "ok", "the kernel admits 10 ms of every 40 ms")


def _real_time() -> CheckResult:
    runtime = int(Path("/proc/sys/kernel/sched_rt_runtime_us").read_text())
    period = int(Path("/proc/sys/kernel/sched_rt_period_us").read_text())
    if runtime < 0:
        return CheckResult("SCHED_FIFO", "ok", "the kernel does not throttle real-time threads")
    min_share = 1 - runtime / period
    return CheckResult(
        "SCHED_FIFO", "ok", f"the burner can take the share down to {min_share:.0%} (sched_rt_runtime_us {runtime})"
    )


def _btf() -> CheckResult:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return CheckResult(
            "BTF", "limited", "the host's kernel has none, so the vCPU's time cannot be recorded: runs are unfaithful",
            "boot a kernel with CONFIG_DEBUG_INFO_BTF=y (Debian's and Ubuntu's have it)",
        )  # fmt: skip
    return CheckResult("BTF", "ok", "/sys/kernel/btf/vmlinux")


def _recorder() -> CheckResult:
    try:
        _core.Recorder([os.getpid()]).stop([None])
    except _core.ContentionError as error:
        return CheckResult("recorder", "limited", str(error), "without the recorder every run is unfaithful")
    return CheckResult("recorder", "ok", "BPF programs on sched_switch work")


def _struct_ops() -> CheckResult:
    blob = Path("/sys/kernel/btf/vmlinux")
    if blob.exists() and b"bpf_struct_ops_tcp_congestion_ops" in blob.read_bytes():
        return CheckResult("struct_ops", "ok", "this host's kernel accepts congestion controls as BPF programs")
    return CheckResult(
        "struct_ops", "limited", "this host's kernel does not accept congestion controls as BPF (guests may)",
        "boot a kernel with CONFIG_BPF_SYSCALL, CONFIG_BPF_JIT and CONFIG_DEBUG_INFO_BTF",
    )  # fmt: skip


def _wire() -> CheckResult:
    if os.geteuid() != 0:
        return CheckResult("tap and bridge", "missing", "not root", "run it as root")
    with Session.start() as session:
        name = network.create(session, ["tap-probe"])
        subprocess.run(
            ["ip", "-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
            capture_output=True, check=True,
        )  # fmt: skip
    return CheckResult("tap and bridge", "ok", "network namespace, bridge, tap and veth can be created")


def _qdiscs() -> CheckResult:
    try:
        kernel = vm_kernels.find(vm_kernels.default())
    except BrobustError:
        kernel = None
    if kernel is None:
        return CheckResult("qdiscs", "limited", "not checked: no guest kernel yet", "make setup")
    files = vm_kernels.module_files(kernel, ["sch_tbf", "sch_netem", "ifb"])
    present = {file.name.split(".")[0] for file in files}
    lacking = {"sch_tbf", "sch_netem", "ifb"} - present
    if lacking:
        return CheckResult(
            "qdiscs", "missing", f"{kernel.name} lacks {', '.join(sorted(lacking))}", "use another --kernel"
        )
    return CheckResult("qdiscs", "ok", f"the path guest ({kernel.name}) has tbf, netem and ifb; the host needs none")


def _kernels() -> CheckResult:
    names = vm_kernels.available()
    if not names:
        return CheckResult(
            "guest kernels", "missing", "none: neither apt nor /boot offers one",
            "apt-get update, or give --kernel BZIMAGE:MODULES",
        )  # fmt: skip
    return CheckResult("guest kernels", "ok", ", ".join(f"{name} ({where})" for name, where in names.items()))


def _cache() -> CheckResult:
    where = cache_directory()
    if not where.is_dir():
        return CheckResult("cache", "ok", f"nothing is kept in {where}")
    held = sum(path.lstat().st_size for path in where.rglob("*") if path.is_file() and not path.is_symlink())
    return CheckResult("cache", "ok", f"{where}, {held / 1e6:.0f} MB; it may be deleted, and is all that brobust keeps")


def _kvm() -> CheckResult:
    if (kernel := _any_kernel()) is None:
        return CheckResult("KVM", "limited", "not tried: no guest kernel yet", "make setup")
    with Session.start() as session:
        probe = accelerator.probe_kvm(kernel, session)
    if probe.works:
        return CheckResult("KVM", "ok", f"{probe.reason} ({kernel.name})")
    return CheckResult(
        "KVM", "limited", probe.reason, "guests run under TCG, which is fast enough for about 100 Mbit/s"
    )


def _tcg() -> CheckResult:
    if (kernel := _any_kernel()) is None:
        return CheckResult("TCG", "missing", "not tried: no guest kernel yet", "make setup")
    guest_image = image.build(kernel)
    begun = time.monotonic()
    with (
        Session.start() as session,
        Guest.start(GuestConfig("tcg-probe", tap="", mac=""), kernel, guest_image, "tcg", session) as guest,
    ):
        guest.wait_booted()
        seconds = time.monotonic() - begun
    return CheckResult("TCG", "ok", f"{kernel.name} booted in {seconds:.1f} s")


def _any_kernel() -> vm_kernels.Kernel | None:
    for name, where in vm_kernels.available().items():
        if not where.startswith("apt"):
            with suppress(BrobustError):
                return vm_kernels.find(name)
    return None


def _virtual_kernel() -> CheckResult:
    try:
        kernel = virtual_kernels.find()
    except BrobustError as error:
        what, _, remedy = str(error).removeprefix("kernel: ").partition("; ")
        return CheckResult("virtual kernel", "limited", what, remedy)
    others = [other.name for other in virtual_kernels.available() if other.name != kernel.name and not other.stale]
    more = f"; also {', '.join(others)}" if others else ""
    return CheckResult("virtual kernel", "ok", f"{kernel.name}: Linux {kernel.release}, HZ={kernel.hz}{more}")


def _memory_file() -> CheckResult:
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
        return CheckResult(
            "executable memfd", "limited", f"{error.strerror}: virtual kernels cannot boot",
            "sysctl vm.memfd_noexec=0, and allow memfd_create and executable mappings (seccomp, SELinux's execmem)",
        )  # fmt: skip
    return CheckResult("executable memfd", "ok", "virtual kernels get their memory")


def _ptrace() -> CheckResult:
    reason = virtual_programs.why_no_ptrace()
    if reason is None:
        return CheckResult("ptrace", "ok", "virtual kernels can run programs (traffic programs and iperf3)")
    return CheckResult(
        "ptrace", "limited", f"{reason}: no programs, no iperf3 in virtual time (but with virtual-7.2)",
        "add CAP_SYS_PTRACE to the container, or allow ptrace in its seccomp profile",
    )  # fmt: skip


def can_run_vms(results: list[CheckResult]) -> bool:
    """Return whether the vm backend can work, given the results of all checks."""
    return not any(result.status == "missing" for result in results)


_CHECKS: list[Callable[[], CheckResult]] = [
    _root, _capabilities, _cpus, _programs, _tick, _deadline, _real_time, _btf, _recorder,
    _struct_ops, _wire, _virtual_kernel, _memory_file, _ptrace, _kernels, _cache, _qdiscs, _kvm, _tcg,
]  # fmt: skip
