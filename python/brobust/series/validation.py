"""How far virtual time can be believed: the same cells on real VMs and on `virtual`, side by side.

Every run of the VMs is repeated in virtual time with the off-times that its vCPU really had, so that only what differs
between the backends is left: a CPU that costs nothing inside its timeslices, a link without hosts, another QEMU NIC.
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
    """What is to differ from the VM's scenario in the twins, to see what a difference may come from."""

    added_rtt: int = 0  # ns
    cpu_frequency: str | None = None


def twins(recorded: Dataset, what_if: WhatIf = WhatIf()) -> Iterator[tuple[str, api.Result]]:
    """Each measured run of a VM dataset, repeated in virtual time, as it finishes: (its id, the twin's result)."""
    measured = set(recorded.runs().filter(pl.col("outcome") != "failed")["run"])
    runs = [run for run in recorded.grid().runs() if run.id in measured]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        futures = [(run.id, threads.submit(api.run, twin(run, recorded, what_if))) for run in runs]
        try:
            for name, future in futures:
                yield name, future.result()
        finally:
            for _, future in futures:
                future.cancel()


def twin(run: Run, recorded: Dataset, what_if: WhatIf = WhatIf()) -> dict[str, Any]:
    """The scenario in virtual time that is this run's: its path, its flows, its recorded off-times."""
    s = run.scenario
    series = s.kernel.removeprefix("debian-")
    kernel = f"virtual-{series}" if s.kernel.startswith("debian-") else virtual_kernels.default()
    path = s.path.model_dump(mode="json")
    # The buffer in bytes: it is the testbed's, whatever the RTT of the twin.
    path |= {"buffer": f"{s.path.buffer_bytes}B", "rtt": units.show_time(s.path.rtt + what_if.added_rtt)}
    return {
        "backend": "virtual",
        "kernel": kernel,
        "path": path,
        "flows": [group.model_dump(mode="json") for group in s.flows],
        "contention": {"replay": f"{recorded.directory}#{run.id}"} if s.contention.active else {"driver": "none"},
        "cpu": {"frequency": what_if.cpu_frequency} if what_if.cpu_frequency else {},
        "duration": s.model_dump(mode="json")["duration"],
        "seed": run.seed,
    }
