"""Repeat runs of VMs, or of the hosts of lab, in virtual time, to find out how well the two backends agree.

Every run is repeated with the off-times that its vCPU really had. So only the differences between the backends remain:
in virtual time work costs no CPU time within a timeslice, the link has no hosts, and there is another NIC than QEMU's.
With accelerator uml the kernel is the same, so what remains is the time that work takes, and the path. On lab the
network's own RTT is known from the calibration, and added.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust import api, backends, units
from brobust.backends.base import in_threads
from brobust.dataset import Dataset
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import scenario
from brobust.scenario.specs import VIRTUAL_MIN_RTT


@dataclass(frozen=True)
class WhatIf:
    """Changes to the scenario in virtual time, to find out what may cause a difference."""

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


def replay_in_virtual_time(
    recorded: Dataset, what_if: WhatIf = WhatIf()
) -> Generator[tuple[str, api.Result], None, None]:
    """Repeat each measured run of a dataset in virtual time. Yield the run's id and the result, in order."""
    measured = recorded.runs().filter(pl.col("outcome") != "failed").unique("run")
    releases = dict(measured.select("run", "kernel_release").iter_rows())
    networks = network_rtts(recorded)
    runs = [run for run in recorded.grid().runs() if run.id in releases]

    def repeated(run: Run) -> dict[str, Any]:
        network = networks.get(run.scenario.hosts or "", 0)
        return as_virtual(run, recorded, what_if, network, releases[run.id] or "")

    with backends.opened("virtual", lambda _: None) as backend:

        def again(name: str, requested: Run) -> tuple[str, api.Result]:
            backends.check([requested.scenario], jobs=1)
            return name, api.Result(requested, backend.measure(requested))

        calls = [(run.id, Run(scenario(repeated(run)), repeat=0)) for run in runs]
        yield from in_threads(backend, again, calls)


def network_rtts(recorded: Dataset) -> dict[str, int]:
    """Return the RTT (ns) that the network between the hosts of each file had by itself when it was calibrated."""
    known = [one for one in recorded.calibrations() if isinstance(one.get("network_rtt_ms"), int | float)]
    return {str(one["file"]): round(one["network_rtt_ms"] * 1e6) for one in known}


def hosts_of(recorded: Dataset) -> dict[str, dict[str, Any]] | None:
    """Return what the last calibration says of each host of lab; None if the dataset has none."""
    known = [one["hosts"] for one in recorded.calibrations() if "hosts" in one]
    return known[-1] if known else None


def check(scenarios: Sequence[Scenario], what_if: WhatIf = WhatIf()) -> None:
    """Refuse what virtual time could not repeat of these, before they are measured for minutes in real time."""
    backends.check([scenario(_undisturbed(s, what_if)) for s in scenarios])


def as_virtual(
    run: Run, recorded: Dataset, what_if: WhatIf = WhatIf(), network_rtt: int = 0, release: str = ""
) -> dict[str, Any]:
    """Return the scenario that repeats this run in virtual time: its path, its flows and its recorded off-times.

    `network_rtt` (ns) is what the network adds to the RTT that was asked for. `release` is the sender's kernel: if its
    series is built for virtual time, that is used."""
    repeat = {**_undisturbed(run.scenario, what_if, network_rtt, release), "seed": run.seed}
    if run.scenario.contention.active:
        repeat["contention"] = {"replay": f"{recorded.directory}#{run.id}"}
    return repeat


def _undisturbed(s: Scenario, what_if: WhatIf, network_rtt: int = 0, release: str = "") -> dict[str, Any]:
    """Return the scenario in virtual time with the path and the flows of this one, whose sender has its CPU."""
    series = s.kernel.removeprefix("debian-")
    kernel = f"virtual-{series}" if s.kernel.startswith("debian-") else virtual_kernels.default()
    if s.backend == "lab":
        same = f"virtual-{virtual_kernels.series_of(release)}"
        kernel = same if same in {one.name for one in virtual_kernels.available() if not one.stale} else kernel
    if s.accelerator == "uml":  # the very same kernel
        kernel = s.kernel
    path = s.path.model_dump(mode="json")
    # The buffer in bytes, because it is the testbed's even if the RTT differs.
    rtt = max(s.path.rtt + network_rtt, VIRTUAL_MIN_RTT if s.backend == "lab" else 0) + what_if.added_rtt
    path |= {"buffer": f"{s.path.buffer_bytes}B", "rtt": units.show_time(rtt)}
    return {
        "backend": "virtual",
        "kernel": kernel,
        "path": path,
        "flows": [group.model_dump(mode="json") for group in s.flows],
        "contention": {"driver": "none"},
        "cpu": {"frequency": what_if.cpu_frequency} if what_if.cpu_frequency else {},
        "nic": {"adaptive_rx": what_if.adaptive_rx},
        "duration": s.model_dump(mode="json")["duration"],
    }
