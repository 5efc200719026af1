"""Repeat runs of VMs in virtual time, to find out how well the two backends agree.

Every run is repeated with the off-times that its vCPU really had. So only the differences between the backends remain:
in virtual time work costs no CPU time within a timeslice, the link has no hosts, and there is another NIC than QEMU's.
With accelerator uml the kernel is the same, so what remains is the time that work takes, and the path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust import api, units
from brobust.dataset import Dataset
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run


@dataclass(frozen=True)
class WhatIf:
    """Changes to the VM's scenario in virtual time, to find out what may cause a difference."""

    added_rtt: int = 0  # ns
    cpu_frequency: str | None = None
    adaptive_rx: str = "off"

    def in_words(self) -> str:
        """Return the options that ask for it, or `none`."""
        words = [
            f"--added-rtt {self.added_rtt}ns" if self.added_rtt else "",
            f"--cpu-frequency {self.cpu_frequency}" if self.cpu_frequency else "",
            f"--adaptive-rx {self.adaptive_rx}" if self.adaptive_rx != "off" else "",
        ]
        return " ".join(filter(None, words)) or "none"


def replay_in_virtual_time(recorded: Dataset, what_if: WhatIf = WhatIf()) -> Iterator[tuple[str, api.Result]]:
    """Repeat each measured run of a VM dataset in virtual time. Yield the run's id and the result, in order."""
    measured = set(recorded.runs().filter(pl.col("outcome") != "failed")["run"])
    runs = [run for run in recorded.grid().runs() if run.id in measured]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        futures = [(run.id, threads.submit(api.run, as_virtual(run, recorded, what_if))) for run in runs]
        try:
            for name, future in futures:
                yield name, future.result()
        finally:
            for _, future in futures:
                future.cancel()


def as_virtual(run: Run, recorded: Dataset, what_if: WhatIf = WhatIf()) -> dict[str, Any]:
    """Return the scenario that repeats this run in virtual time: its path, its flows and its recorded off-times."""
    s = run.scenario
    series = s.kernel.removeprefix("debian-")
    kernel = f"virtual-{series}" if s.kernel.startswith("debian-") else virtual_kernels.default()
    if s.accelerator == "uml":  # the very same kernel
        kernel = s.kernel
    path = s.path.model_dump(mode="json")
    # The buffer in bytes, because it is the testbed's even if the RTT differs.
    path |= {"buffer": f"{s.path.buffer_bytes}B", "rtt": units.show_time(s.path.rtt + what_if.added_rtt)}
    return {
        "backend": "virtual",
        "kernel": kernel,
        "path": path,
        "flows": [group.model_dump(mode="json") for group in s.flows],
        "contention": {"replay": f"{recorded.directory}#{run.id}"} if s.contention.active else {"driver": "none"},
        "cpu": {"frequency": what_if.cpu_frequency} if what_if.cpu_frequency else {},
        "nic": {"adaptive_rx": what_if.adaptive_rx},
        "duration": s.model_dump(mode="json")["duration"],
        "seed": run.seed,
    }
