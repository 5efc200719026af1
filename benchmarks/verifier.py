"""Record how many instructions the verifier examines in each of our programs, on this kernel and in VMs.

    sudo .venv/bin/python benchmarks/verifier.py [--kernel debian-6.1 --kernel debian-6.12]
    sudo .venv/bin/python benchmarks/verifier.py --kernel debian-7.2 --own      # whose own BBR takes no calls from BPF

It writes python/brobust/conformance/verifier_counts.csv, with which the tests compare, and prints the largest as a
table.
"""

from __future__ import annotations

from typing import Annotated

import typer

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.cc.names import OURS
from brobust.conformance import verifier_counts


def main(
    kernel: Annotated[list[str] | None, typer.Option(help="of VMs")] = None,
    own: Annotated[
        bool, typer.Option(help="only controls that build on none of the kernel's; not on this kernel")
    ] = False,
) -> None:
    controls = [name for name, needed in OURS.items() if needed is None or not own]
    found = {} if own else dict([verifier_counts.of_host(controls)])
    with backends.opened("vm", print) as backend:
        assert isinstance(backend, VmBackend)
        for name in kernel or ["debian-6.1", "debian-6.12"]:
            release, counts = verifier_counts.of_vm(backend, name, controls)
            found[release] = counts
    verifier_counts.record(found)
    print(f"| control | {' | '.join(found)} |\n|---|{'--:|' * len(found)}")
    for control in controls:
        largest = [f"{max(counts[control].values()):,}" for counts in found.values()]
        print(f"| {control} | {' | '.join(largest)} |")


if __name__ == "__main__":
    typer.run(main)
