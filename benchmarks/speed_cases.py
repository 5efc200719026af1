"""The cases of speed.py: a flow in virtual time, and the same in ns-3."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brobust import _core
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import scenario
from brobust.virtual.describe import describe

HERE = Path(__file__).resolve().parent
NS3_SOURCE = HERE / "ns3" / "bulk.cc"
NS3_HEADERS = Path("/usr/include/ns3/core-module.h")
NS3_PROGRAM = HERE.parent / "build" / "benchmarks" / "ns3-bulk"
# Named one by one, since Debian's ns3-*.pc require development packages that are not needed here (libgsl-dev).
NS3_LIBRARIES = ["-lns3-point-to-point", "-lns3-internet", "-lns3-network", "-lns3-core"]

Sample = dict[str, float]
Case = Callable[[int], Sample]
"""A function that measures once; its argument is the number of the round."""


@dataclass
class Setting:
    """The settings that all questions share."""

    kernel: virtual_kernels.VirtualKernel
    cpus: list[int]
    repeat: int

    @property
    def cpu(self) -> int:
        """Return the CPU to which single runs are pinned: the last one, since interrupts tend to go to the first."""
        return self.cpus[-1]


def in_turns(cases: Mapping[str, Case], repeat: int) -> dict[str, list[Sample]]:
    """Measure every case once per round; each round begins with another case."""
    names = list(cases)
    rows: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(repeat):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            print(f"round {number + 1} of {repeat}: {name}", file=sys.stderr)
            rows[name].append(cases[name](number))
    return rows


def compare(rows: dict[str, list[Sample]], name: str, other: str, ratios: Mapping[str, str]) -> None:
    """Add to each sample of `name` its ratio to the one of `other` in the same round: {new key: key}."""
    for sample, base in zip(rows[name], rows[other], strict=True):
        for ratio, key in ratios.items():
            sample[ratio] = sample[key] / base[key]


def one_flow(cc: str, duration: str, bandwidth: str, **fields: Any) -> Scenario:
    return flows([{"cc": cc}], duration, bandwidth, **fields)


def flows(groups: Sequence[Mapping[str, Any]], duration: str, bandwidth: str, **fields: Any) -> Scenario:
    path = {"bandwidth": bandwidth, "rtt": "10ms", "buffer": fields.pop("buffer", "12bdp")}
    return scenario({"duration": duration, "path": path, "flows": groups, **fields})


def virtual(setting: Setting, what: Scenario) -> Case:
    """Measure a scenario in virtual time, with controller and kernels on one CPU."""
    return lambda number: run_virtual(setting, what, number, setting.cpu)


def run_virtual(setting: Setting, what: Scenario, number: int, cpu: int) -> Sample:
    asked = json.dumps(describe(Run(scenario=what, repeat=number), setting.kernel))
    ours, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = _core.VirtualRun(asked, cpu).run()
    cpu = cpu_s(ours, resource.RUSAGE_SELF) + cpu_s(theirs, resource.RUSAGE_CHILDREN)
    seconds, work = what.duration / 1e9, result["work"]
    return {
        "wall": work["run_s"] / seconds,
        "cpu": cpu / seconds,
        "boot_s": work["boot_s"],
        "throughput_mbps": sum(flow["received_bytes"] for flow in result["flows"]) * 8e-6 / seconds,
        "drops": sum(flow["drops"] for flow in result["flows"]),
        "frames": work["frames"] / seconds,
        "frame_us": work["run_s"] / work["frames"] * 1e6,
        "frames_per_hand_over": work["frames"] / work["hand_overs"],
    }


def cpu_s(before: resource.struct_rusage, who: int) -> float:
    """Return the CPU time since then, user and system, s."""
    after = resource.getrusage(who)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def simulated(setting: Setting, what: Scenario) -> Case:
    """Measure the first flow of a scenario in ns-3, on one CPU."""
    return lambda _: run_ns3(what, setting.cpu)


def run_ns3(what: Scenario, cpu: int) -> Sample:
    seconds = what.duration / 1e9
    control = {"cubic": "TcpCubic", "bbr": "TcpBbr"}[what.flows[0].cc]
    command = [
        "taskset", "-c", str(cpu), str(NS3_PROGRAM), f"--cc={control}", f"--rate={what.path.bandwidth}bps",
        f"--rtt={what.path.rtt}ns", f"--buffer={what.path.buffer_bytes}B", f"--seconds={seconds}",
    ]  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return {
        "wall": result["wall_s"] / seconds,
        "cpu": cpu_s(before, resource.RUSAGE_CHILDREN) / seconds,
        "throughput_mbps": result["throughput_mbps"],
        "drops": result["drops"],
    }


def build_ns3() -> None:
    """Build the ns-3 program with -O3 against the distribution's shared libraries."""
    if NS3_PROGRAM.exists() and NS3_PROGRAM.stat().st_mtime > NS3_SOURCE.stat().st_mtime:
        return
    NS3_PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    options = ["-std=c++17", "-O3", "-DNDEBUG", "-Wall", "-Wextra"]
    subprocess.run(["g++", *options, "-o", str(NS3_PROGRAM), str(NS3_SOURCE), *NS3_LIBRARIES], check=True)
