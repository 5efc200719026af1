"""Choose between KVM and TCG. /dev/kvm may exist and still not run a guest, so we try to boot one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from brobust import files
from brobust.errors import BadInput, BrobustError
from brobust.host.cache import cache_directory
from brobust.host.session import Session
from brobust.kernels.vm import Kernel
from brobust.testbed import image
from brobust.testbed.qemu import QEMU, Guest, GuestConfig

KVM_BOOT_SECONDS = 10.0
BELIEVE_FAILURE_SECONDS = 3600.0


@dataclass(frozen=True)
class Probe:
    """Whether KVM can run a guest here, and why."""

    works: bool
    reason: str


def probe_kvm(kernel: Kernel, session: Session) -> Probe:
    """Try to boot a guest under KVM within ten seconds."""
    if not Path("/dev/kvm").exists():
        return Probe(False, "/dev/kvm does not exist")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return Probe(False, "this user may not open /dev/kvm")
    config = GuestConfig("kvm-probe", tap="", mac="")
    try:
        with Guest.start(config, kernel, image.build(kernel), "kvm", session) as guest:
            guest.wait_booted(KVM_BOOT_SECONDS)
            return Probe(True, "a guest booted")
    except BrobustError as error:
        return Probe(False, str(error))


def choose(wanted: str, kernel: Kernel, session: Session) -> tuple[str, str]:
    """Return the accelerator to use, and why. That KVM works is remembered until the host boots again; that it does not
    only for an hour, since a busy host, too, may not boot a guest in time."""
    if wanted == "tcg":
        return "tcg", "as requested"
    verdict = _remembered(kernel, session)
    if verdict.works:
        return "kvm", verdict.reason
    if wanted == "kvm":
        raise BadInput(f"accelerator: kvm does not work here ({verdict.reason}); use --accelerator tcg or auto")
    return "tcg", f"KVM does not work here: {verdict.reason}"


def _remembered(kernel: Kernel, session: Session) -> Probe:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = cache_directory() / "kvm" / f"{boot}-{kernel.release}"
    with contextlib.suppress(FileNotFoundError):
        word, _, reason = note.read_text().partition(" ")
        if word == "works" or time.time() - note.stat().st_mtime < BELIEVE_FAILURE_SECONDS:
            return Probe(word == "works", reason)
    verdict = probe_kvm(kernel, session)
    note.parent.mkdir(parents=True, exist_ok=True)
    files.write(note, f"{'works' if verdict.works else 'fails'} {verdict.reason}")
    return verdict


@cache
def qemu_version() -> str:
    """Return QEMU's version, such as `7.2.22`; empty if QEMU is not installed."""
    try:
        text = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return text.split("version ")[1].split()[0]
