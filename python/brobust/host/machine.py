"""What a reader of measurements must know about a machine, as a file that can be sent to strangers: hardware, kernel
and versions, and nothing that names the machine, its owner or its network."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import brobust
from brobust import _core, files
from brobust.errors import BadInput
from brobust.host import cpus

SCHEMA_VERSION = 1
"""Of the file that `write` writes."""

_DMI = Path("/sys/class/dmi/id")
# A kernel's own name may be a person's or a company's; of its release we say the numbers, and what distributions add.
_RELEASE = re.compile(r"\d+\.\d+(?:\.\d+)?")
_FLAVOURS = re.compile(
    r"(?<![a-z\d])(?:amd64|arm64|cloud|generic|lowlatency|aws|azure|gcp|oracle|kvm|rt|el\d+|fc\d+|deb\d+|android\d+)"
    r"(?![a-z])"  # whole words: a kernel called smart is none of real time
)


def check(file: Path) -> None:
    """Refuse a name to which no report can be written, before anything is measured for it."""
    if file.is_dir():
        raise BadInput(f"--report {file}: this is a directory; give the name of a file")
    if file.exists() and not file.is_file():
        raise BadInput(f"--report {file}: this is no regular file; give the name of a new file")
    if not file.parent.is_dir():
        raise BadInput(f"--report {file}: there is no directory {file.parent}; make it, or give another name")


def write(file: Path, **parts: Mapping[str, Any]) -> None:
    """Write a report as TOML: `schema`, `date` (a day, UTC), `brobust` (its version), the table `machine`, and a table
    for each of `parts`, for example `validation`. Values that are None are left out."""
    import tomli_w

    report = {
        "schema": SCHEMA_VERSION,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "brobust": brobust.__version__,
        "machine": described(),
        **{name: _known(part) for name, part in parts.items()},
    }
    files.write(file, tomli_w.dumps(report))


def described() -> dict[str, Any]:
    """Return what is known about this machine: cpu, architecture, cpus (that this process may use), memory_gb (10^9
    bytes, rounded), kernel, ticks_per_s, distribution, virtualization, container, product, clocksource, cgroups,
    steal_share (part of all CPUs' time since boot), load (runnable tasks, mean of the last minute), python."""
    return _known(
        {
            "cpu": cpu(),
            "architecture": platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
            "kernel": public_release(platform.release()),
            "ticks_per_s": _core.hz(),
            "distribution": _distribution(),
            "virtualization": _detected("--vm"),
            "container": _detected("--container"),
            "product": _product(),
            "clocksource": _word(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
            "cgroups": 2 if Path("/sys/fs/cgroup/cgroup.controllers").exists() else 1,
            "steal_share": _steal_share(),
            "load": load(),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
    )


def load() -> float:
    """Return how many tasks wanted a CPU, or a disk, in the mean of the last minute."""
    return round(os.getloadavg()[0], 2)


def public_release(release: str) -> str:
    """Return a kernel's release without names that its builder gave it: 6.12.1-acme-3-cloud becomes 6.12.1-cloud."""
    number = _RELEASE.match(release)
    kept = dict.fromkeys(_FLAVOURS.findall(release[number.end() :] if number else release))
    return "-".join([number[0] if number else "unknown", *kept])


def _known(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


def cpu() -> str:
    """Return what the first CPU is called."""
    text = _cpuinfo()
    if named := re.search(r"^model name\s*: (.*)$", text, re.MULTILINE):
        return named[1].strip()
    arm = [re.search(rf"^CPU {what}\s*: (\S+)", text, re.MULTILINE) for what in ("implementer", "part")]
    return " ".join(["ARM", *(found[1] for found in arm if found)]) if any(arm) else "unknown"


def _distribution() -> str | None:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return None
    return f"{release.get('ID', '')} {release.get('VERSION_ID', '')}".strip()


def _detected(kind: str) -> str:
    """Return the hypervisor (`--vm`) or the container manager (`--container`), as systemd-detect-virt calls it."""
    try:
        said = subprocess.run(["systemd-detect-virt", kind], capture_output=True, text=True, check=False).stdout.strip()
    except OSError:  # no systemd: what the CPU itself says
        if kind == "--container":
            return "unknown"
        hypervisor = re.search(r"^flags.* hypervisor\b", _cpuinfo(), re.MULTILINE)
        return "unknown hypervisor" if hypervisor else "none"
    return said or "unknown"


def _cpuinfo() -> str:
    return Path("/proc/cpuinfo").read_text()


def _product() -> str | None:
    """Return vendor and model of the hardware, or of the virtual machine; never a serial number."""
    words = [_word(_DMI / name) for name in ("sys_vendor", "product_name")]
    return " ".join(word for word in words if word) or None


def _word(file: Path) -> str | None:
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def _steal_share() -> float | None:
    of_each = cpus.times().values()
    total = sum(counted for _, counted in of_each)
    return round(sum(stolen for stolen, _ in of_each) / total, 4) if total else None
