"""Record how many instructions the verifier examines in each of our programs, on this kernel and in VMs.

    sudo .venv/bin/python benchmarks/verifier.py [--kernel debian-6.1 --kernel debian-6.12]
    sudo .venv/bin/python benchmarks/verifier.py --kernel debian-7.2 --own      # whose own BBR takes no calls from BPF

It prints the largest as a table, and writes verifier_counts.csv, a count for each kernel, control and callback, with
which the tests compare: the verifier's limit is a million per program, and one more `if` can take a program with many
branches there.
"""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import spread
import typer

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import OURS
from brobust.host.programs import ask_host_program
from brobust.kernels import vm as vm_kernels
from brobust.kernels.virtual import series_of

FILE = Path(__file__).with_name("verifier_counts.csv")
MAX_INSTRUCTIONS = 1_000_000
MAX_GROWTH = 1.25

# Instructions by control and callback.
Counts = dict[str, dict[str, int]]


def recorded() -> dict[str, Counts]:
    """Return the recorded counts by series of Linux, such as 6.12."""
    found: dict[str, Counts] = {}
    with FILE.open(newline="") as lines:
        for row in csv.DictReader(lines):
            kernel, control = row.pop("kernel"), row.pop("control")
            counts = {callback: int(count) for callback, count in row.items() if count}
            found.setdefault(kernel, {})[control] = counts
    return found


def record(found: Mapping[str, Counts]) -> None:
    """Write the counts of these kernels, beside those that are recorded of others."""
    rows = [
        {"kernel": release, "control": control, **counts}
        for release, of_kernel in sorted({**recorded(), **found}.items())
        for control, counts in sorted(of_kernel.items())
    ]
    callbacks = {key for row in rows for key in row} - {"kernel", "control"}
    with FILE.open("w", newline="") as lines:
        written = csv.DictWriter(lines, ("kernel", "control", *sorted(callbacks)), lineterminator="\n")
        written.writeheader()
        written.writerows(rows)


def of_host(controls: Iterable[str]) -> tuple[str, Counts]:
    """Return the running kernel's series and its counts. Each control is loaded for a moment; raise MissingSupport if
    that is impossible."""
    counts: Counts = {}
    for control in controls:
        ask_host_program("cc", "load", control, "--pin")
        try:
            programs = ask_host_program("cc", "programs", control)
            counts[control] = {program["callback"]: program["verified_instructions"] for program in programs}
        finally:
            ask_host_program("cc", "unload", control)
    return series_of(platform.release()), counts


def of_vm(backend: VmBackend, kernel: str, controls: Iterable[str]) -> tuple[str, Counts]:
    """Return the series of a guest's kernel and its counts."""
    counts: Counts = {}
    for control in controls:
        backend.ask_sender("brobust", "cc", "load", control, kernel=kernel)
        programs = json.loads(backend.ask_sender("brobust", "cc", "programs", control))
        counts[control] = {program["callback"]: program["verified_instructions"] for program in programs}
        backend.ask_sender("brobust", "cc", "unload", control)
    return series_of(vm_kernels.find(kernel).release), counts


def grown(counts: Counts, before: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a line for each program that is not recorded, has grown too much, or is near the verifier's limit."""
    lines = []
    for control, callbacks in counts.items():
        for callback, count in callbacks.items():
            known = before.get(control, {}).get(callback)
            if known is None:
                lines.append(f"{control} {callback}: {count} instructions, not recorded; run benchmarks/verifier.py")
            elif count > min(MAX_INSTRUCTIONS / 2, max(MAX_GROWTH * known, known + 100)):
                lines.append(f"{control} {callback}: {count} instructions, but {known} in the record")
    return lines


def main(
    kernel: Annotated[list[str] | None, typer.Option(help="of VMs")] = None,
    own: Annotated[
        bool, typer.Option(help="only controls that build on none of the kernel's; not on this kernel")
    ] = False,
) -> None:
    controls = [name for name, needed in OURS.items() if needed is None or not own]
    found = {} if own else dict([of_host(controls)])
    with backends.opened("vm", print) as backend:
        assert isinstance(backend, VmBackend)
        for name in kernel or ["debian-6.1", "debian-6.12"]:
            release, counts = of_vm(backend, name, controls)
            found[release] = counts
    record(found)
    print(f"| control | {' | '.join(found)} |\n|---|{'--:|' * len(found)}")
    for control in controls:
        largest = [f"{max(counts[control].values()):,}" for counts in found.values()]
        print(f"| {control} | {' | '.join(largest)} |")


if __name__ == "__main__":
    spread.run(lambda: typer.run(main))
