"""How many instructions the verifier looks at in each of our programs, beside what it did when that was recorded.

Its limit is a million for one program, and a program of many branches can reach it by one more `if`. The record
(verified.json, written by benchmarks/verifier.py) has a number for each kernel, control and callback.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path

from brobust import _core
from brobust.backends.vm import VmBackend
from brobust.kernels import vm as vm_kernels

FILE = Path(__file__).with_name("verified.json")
LIMIT = 1_000_000
MAY_GROW = 1.25

# Instructions by control and callback.
Counts = dict[str, dict[str, int]]


def recorded() -> dict[str, Counts]:
    """By kernel, such as 6.12."""
    found: dict[str, Counts] = json.loads(FILE.read_text())
    return found


def of_host(controls: Iterable[str]) -> tuple[str, Counts]:
    """This machine's kernel, and its counts. Loads each control for a moment. LoadRefused where that cannot be."""
    counts: Counts = {}
    for control in controls:
        _core.load(control, [])
        try:
            counts[control] = {callback: verified for callback, verified, *_ in _core.programs(control)}
        finally:
            _core.unload(control)
    return _version(platform.release()), counts


def of_vm(backend: VmBackend, kernel: str, controls: Iterable[str]) -> tuple[str, Counts]:
    """A guest's kernel, and its counts."""
    counts: Counts = {}
    for control in controls:
        backend.ask_sender("brobust-guest", "cc", "load", control, kernel=kernel)
        programs = json.loads(backend.ask_sender("brobust-guest", "cc", "programs", control))
        counts[control] = {program["callback"]: program["verified_instructions"] for program in programs}
        backend.ask_sender("brobust-guest", "cc", "unload", control)
    return _version(vm_kernels.find(kernel).release), counts


def grown(counts: Counts, before: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Programs beyond the limit, beyond what was recorded and some growth, or not recorded: a line each."""
    lines = []
    for control, callbacks in counts.items():
        for callback, count in callbacks.items():
            known = before.get(control, {}).get(callback)
            if known is None:
                lines.append(f"{control} {callback}: {count} instructions, not recorded; run benchmarks/verifier.py")
            elif count > min(LIMIT / 2, max(MAY_GROW * known, known + 100)):
                lines.append(f"{control} {callback}: {count} instructions, {known} when they were recorded")
    return lines


def _version(release: str) -> str:
    return ".".join(release.split(".")[:2])
