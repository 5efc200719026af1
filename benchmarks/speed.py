"""Measure how fast virtual time is, and where its time goes. benchmarks/README.md explains each question.

    .venv/bin/python benchmarks/speed.py [--only QUESTION] [--repeat 5] [--json]

Things that are compared are measured in turns, so that a machine that is busy for a while affects all of them. A cell
is the median of the rounds and, where they differ, the minimum and the maximum. Round r draws its random numbers from
seed + r.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from brobust import _core
from brobust.errors import BrobustError
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
LOOK_EVERY_S = 0.005
LOOP_ROUNDS = 1_000_000

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


@dataclass
class Answer:
    """One table."""

    title: str
    columns: dict[str, str]
    """The heading for each key of a sample."""
    rows: dict[str, list[Sample]]
    goals: dict[str, str] = field(default_factory=dict)
    note: str = ""


# --- Measuring


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
    controller = spent(ours, resource.getrusage(resource.RUSAGE_SELF))
    children = spent(theirs, resource.getrusage(resource.RUSAGE_CHILDREN))
    seconds, work = what.duration / 1e9, result["work"]
    return {
        "wall": work["run_s"] / seconds,
        "cpu": (controller["cpu"] + children["cpu"]) / seconds,
        "boot_s": work["boot_s"],
        "throughput_mbps": sum(flow["received_bytes"] for flow in result["flows"]) * 8e-6 / seconds,
        "drops": sum(flow["drops"] for flow in result["flows"]),
        "frames": work["frames"] / seconds,
        "frame_us": work["run_s"] / work["frames"] * 1e6,
        "hand_overs": work["hand_overs"] / seconds,
        "frames_per_hand_over": work["frames"] / work["hand_overs"],
        "switches": (controller["switches"] + children["switches"]) / seconds,
        **{f"controller_{name}": 1e3 * controller[name] / seconds for name in ("user", "sys")},
        **{f"kernels_{name}": 1e3 * children[name] / seconds for name in ("user", "sys")},
    }


def spent(before: resource.struct_rusage, after: resource.struct_rusage) -> Sample:
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    voluntary, forced = after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw
    return {"user": user, "sys": system, "cpu": user + system, "switches": voluntary + forced}


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
    children = spent(before, resource.getrusage(resource.RUSAGE_CHILDREN))
    return {
        "wall": result["wall_s"] / seconds,
        "cpu": children["cpu"] / seconds,
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


class CpuTimes(threading.Thread):
    """CPU time of each kernel of a run and of the controller's thread, as last read before their end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._kernels: dict[int, int] = {}
        self._controller = 0
        self._over = threading.Event()

    def __enter__(self) -> CpuTimes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            for thread in Path("/proc/self/task").iterdir():
                children = words_of(thread / "children")
                for kernel in children:
                    self._kernels[int(kernel)] = cpu_ns(Path("/proc") / kernel, self._kernels.get(int(kernel), 0))
                if children:
                    self._controller = cpu_ns(thread, self._controller)

    def percent(self) -> Sample:
        """Return the part of each in their sum. The sender's kernel is started first."""
        sender, receiver = (time for _, time in sorted(self._kernels.items()))
        parts = {"controller": self._controller, "sender": sender, "receiver": receiver}
        return {name: 100 * part / sum(parts.values()) for name, part in parts.items()}


def cpu_ns(task: Path, before: int) -> int:
    """Return a task's CPU time (Documentation/scheduler/sched-stats.rst); `before` if the task has just ended."""
    seen = words_of(task / "schedstat")
    return max(before, int(seen[0])) if seen else before


def words_of(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # its task has ended
        return []


# --- The questions, one function each


def speed(setting: Setting) -> list[Answer]:
    """How long does a virtual second take on one CPU?"""
    cases = {
        "cubic, 100 Mbit/s": one_flow("cubic", "20s", "100mbit"),
        "bbr, 100 Mbit/s": one_flow("bbr", "20s", "100mbit"),
        "bbr, 100 Mbit/s, starved": one_flow(
            "bbr", "20s", "100mbit", contention={"share": 0.25, "timeslice": "10ms"}
        ),
        "cubic, 1 Gbit/s": one_flow("cubic", "5s", "1gbit"),
        "bbr, 1 Gbit/s": one_flow("bbr", "5s", "1gbit"),
    }  # fmt: skip
    limits = dict(zip(cases, ("0.1", "0.1", "0.02", "0.5", "0.5"), strict=True))
    return [
        Answer(
            "Wall time of a virtual second, on one CPU",
            {"wall": "wall s", "cpu": "CPU s, with boot", "boot_s": "boot s", "throughput_mbps": "Mbit/s"},
            in_turns({name: virtual(setting, what) for name, what in cases.items()}, setting.repeat),
            {name: f"wall <= {limit}, boot <= 0.3" for name, limit in limits.items()},
            "wall: without the boot of the kernels; starved: slices of 10 ms, a share of 25 %",
        )
    ]


def parallel(setting: Setting) -> list[Answer]:
    """Does a run cost more with another one beside it?"""
    if len(setting.cpus) < 2:
        print("parallel: skipped, there is only one CPU", file=sys.stderr)
        return []
    pair = setting.cpus[-2:]
    cases: dict[str, Case] = {}
    for cc, bandwidth in (("bbr", "100mbit"), ("cubic", "1gbit")):
        what = one_flow(cc, "20s" if bandwidth == "100mbit" else "5s", bandwidth)
        cases[f"{cc}, {bandwidth}, one at a time"] = both(setting, what, pair, at_once=1)
        cases[f"{cc}, {bandwidth}, side by side"] = both(setting, what, pair, at_once=2)
    cases["a loop without memory, one at a time"] = loops(pair, at_once=1)
    cases["a loop without memory, side by side"] = loops(pair, at_once=2)
    rows = in_turns(cases, setting.repeat)
    goals = {}
    for alone, together in zip(list(rows)[::2], list(rows)[1::2], strict=True):
        compare(rows, together, alone, {"ratio": "wall", "ratio_elapsed": "elapsed_s"})
        if not together.startswith("a loop"):
            goals[together] = "ratio of runs <= 1"
    columns = {
        "wall": "wall s per virtual s", "ratio": "ratio of runs", "elapsed_s": "both done after s",
        "ratio_elapsed": "ratio of both",
    }  # fmt: skip
    note = "the loop: what the machine itself takes for a neighbour, as on two threads of one core"
    return [Answer(f"Two runs, on CPUs {pair[0]} and {pair[1]}", columns, rows, goals, note)]


def both(setting: Setting, what: Scenario, cpus: Sequence[int], at_once: int) -> Case:
    """Measure a scenario once on each CPU, this many at once; return the mean duration of the runs."""

    def measure(number: int) -> Sample:
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            samples = list(pool.map(lambda cpu: run_virtual(setting, what, number, cpu), cpus))
        elapsed = time.monotonic() - begun
        # Not their CPU time: getrusage returns only the sum of everything that ran in that time.
        return {"wall": statistics.mean(sample["wall"] for sample in samples), "elapsed_s": elapsed}

    return measure


def loops(cpus: Sequence[int], at_once: int) -> Case:
    """Measure the same with a computation that stays in registers and first-level cache; its unit is the loop."""

    def loop(cpu: int) -> float:
        os.sched_setaffinity(0, {cpu})  # of this thread
        begun = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"", b"", LOOP_ROUNDS)  # without the GIL
        return time.monotonic() - begun

    def measure(_: int) -> Sample:
        begun = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            samples = list(pool.map(loop, cpus))
        return {"wall": statistics.mean(samples), "elapsed_s": time.monotonic() - begun}

    return measure


def many(setting: Setting) -> list[Answer]:
    """What does a frame cost among many flows, and among many kernels?"""
    cases: dict[str, Scenario] = {}
    for cc in ("cubic", "bbr"):
        cases[f"{cc}, 1 flow"] = one_flow(cc, "10s", "100mbit")
        cases[f"{cc}, 100 flows of one sender"] = flows([{"cc": cc, "count": 100}], "10s", "100mbit")
        senders = [{"cc": cc, "sender": number} for number in range(1, 9)]
        cases[f"{cc}, 8 senders"] = flows(senders, "10s", "100mbit")
        # Enough that none of them waits for a timeout: 1 Gbit/s is a segment per flow and 12 ms.
        cases[f"{cc}, 1 flow, 1 Gbit/s"] = one_flow(cc, "3s", "1gbit")
        cases[f"{cc}, 1,000 flows of one sender, 1 Gbit/s"] = flows([{"cc": cc, "count": 1000}], "3s", "1gbit")
    rows = in_turns({name: virtual(setting, what) for name, what in cases.items()}, setting.repeat)
    goals = {}
    for name in rows:
        cc, gigabit = name.split(",")[0], "1 Gbit/s" in name
        one = f"{cc}, 1 flow, 1 Gbit/s" if gigabit else f"{cc}, 1 flow"
        if name != one:
            compare(rows, name, one, {"ratio": "frame_us"})
            goals[name] = "ratio <= 2" if gigabit else "ratio <= 3"
    columns = {
        "frame_us": "us per frame", "ratio": "ratio to 1 flow", "frames": "frames per s",
        "frames_per_hand_over": "frames per hand-over", "boot_s": "boot s",
    }  # fmt: skip
    return [Answer("Wall time of a frame, ACKs being frames too", columns, rows, goals)]


def gigabits(setting: Setting) -> list[Answer]:
    """What do 10 and 25 Gbit/s cost, beside 1 Gbit/s, with NICs that adapt their interrupts?"""
    cases, adaptive = {}, {"nic": {"adaptive_rx": "on"}, "buffer": "1bdp"}
    for cc in ("cubic", "bbr"):
        for bandwidth, duration in (("1gbit", "10s"), ("10gbit", "3s"), ("25gbit", "3s")):
            cases[f"{cc}, {bandwidth}"] = one_flow(cc, duration, bandwidth, **adaptive)
    rows = in_turns({name: virtual(setting, what) for name, what in cases.items()}, setting.repeat)
    for name in rows:
        compare(rows, name, f"{name.split(',')[0]}, 1gbit", {"ratio": "wall", "per_frame": "frame_us"})
    goals = {name: "ratio <= 8" for name in rows if ", 10gbit" in name}
    columns = {
        "wall": "wall s", "ratio": "of 1 Gbit/s", "frame_us": "us per frame", "per_frame": "of 1 Gbit/s",
        "throughput_mbps": "Mbit/s",
    }  # fmt: skip
    return [Answer("Wall time of a virtual second, RTT 10 ms, a buffer of 1 BDP", columns, rows, goals)]


def ns3(setting: Setting) -> list[Answer]:
    """How much CPU time does ns-3 need for the same flows?"""
    missing = [name for name in ("g++", "taskset") if shutil.which(name) is None]
    if missing or not NS3_HEADERS.exists():
        print("ns3: skipped, it needs `apt-get install g++ libns3-dev util-linux`", file=sys.stderr)
        return []
    build_ns3()
    # ns-3 3.37's TcpBbr stops in its first PROBE_RTT, after 10 s: see README.md.
    paths = {
        "cubic, 100 Mbit/s": one_flow("cubic", "20s", "100mbit"),
        "bbr, 100 Mbit/s": one_flow("bbr", "8s", "100mbit"),
        "cubic, 1 Gbit/s": one_flow("cubic", "2s", "1gbit"),
        "bbr, 1 Gbit/s": one_flow("bbr", "2s", "1gbit"),
        "cubic, 1 Gbit/s, 1 BDP": one_flow("cubic", "2s", "1gbit", buffer="1bdp"),
        "bbr, 1 Gbit/s, 1 BDP": one_flow("bbr", "2s", "1gbit", buffer="1bdp"),
    }
    cases: dict[str, Case] = {}
    for name, what in paths.items():
        cases[f"{name}: virtual"] = virtual(setting, what)
        cases[f"{name}: ns-3"] = simulated(setting, what)
    rows = in_turns(cases, setting.repeat)
    goals = {}
    for name in paths:
        compare(rows, f"{name}: ns-3", f"{name}: virtual", {"ratio": "cpu", "ratio_wall": "wall"})
        goals[f"{name}: ns-3"] = "ratio >= 20" if "Gbit" in name else "ratio > 1"
    columns = {
        "cpu": "CPU s per simulated s", "ratio": "ratio", "wall": "wall s", "ratio_wall": "ratio",
        "throughput_mbps": "Mbit/s", "drops": "drops",
    }  # fmt: skip
    note = "CPU: user and system of all processes, with their start; wall: without. The buffer is 12 BDP, or 1."
    return [Answer("Beside ns-3: the same flow over the same path, on one CPU", columns, rows, goals, note)]


def where(setting: Setting) -> list[Answer]:
    """Where does the time go?"""
    cases = {
        "cubic, 100 Mbit/s": one_flow("cubic", "40s", "100mbit"),
        "bbr, 100 Mbit/s": one_flow("bbr", "40s", "100mbit"),
        "bbr, 100 Mbit/s, starved": one_flow("bbr", "100s", "100mbit", contention={"share": 0.25}),
        "cubic, 1 Gbit/s": one_flow("cubic", "5s", "1gbit"),
        "bbr, 1 Gbit/s": one_flow("bbr", "5s", "1gbit"),
    }
    rows = in_turns({name: split(setting, what) for name, what in cases.items()}, setting.repeat)
    kinds = {f"{who}_{kind}": f"{who}, {kind}" for who in ("controller", "kernels") for kind in ("user", "sys")}
    processes = {name: f"{name}, %" for name in ("controller", "sender", "receiver")}
    hand_overs = {
        "hand_overs": "hand-overs", "frames": "frames", "frames_per_hand_over": "frames per hand-over",
        "switches": "context switches",
    }  # fmt: skip
    return [
        Answer("Whose CPU time: ms per virtual second, with boot", kinds, rows),
        Answer("Whose CPU time: the controller, the sender's kernel, the receiver's", processes, rows),
        Answer("Hand-overs from controller to kernel, and what they bring, per virtual second", hand_overs, rows),
    ]


def split(setting: Setting, what: Scenario) -> Case:
    """Measure a run, and in another run which of its processes used the CPU, since observing takes CPU time itself."""

    def measure(number: int) -> Sample:
        sample = run_virtual(setting, what, number, setting.cpu)
        with CpuTimes() as times:
            run_virtual(setting, what, number, setting.cpu)
        return sample | times.percent()

    return measure


# --- What is printed


def machine(setting: Setting) -> dict[str, str]:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": models[0].split(":", 1)[1].strip() if models else platform.machine(),
        "cpus": str(len(setting.cpus)),
        "host_kernel": platform.release(),
        "kernel": f"{setting.kernel.name} ({setting.kernel.release}, {setting.kernel.sha256[:8]})",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def command(question: str, arguments: argparse.Namespace) -> str:
    kernel = "" if arguments.kernel == virtual_kernels.DEFAULT else f" --kernel {arguments.kernel}"
    return f".venv/bin/python benchmarks/speed.py --only {question} --repeat {arguments.repeat}{kernel}"


def figures(samples: Sequence[Sample], key: str) -> tuple[float, float, float] | None:
    """Return median, minimum and maximum."""
    values = [sample[key] for sample in samples if key in sample]
    return (statistics.median(values), min(values), max(values)) if values else None


def cell(samples: Sequence[Sample], key: str) -> str:
    found = figures(samples, key)
    if found is None:
        return ""
    median, low, high = map(short, found)
    return median if low == high else f"{median} ({low}-{high})"


def short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(answer: Answer, repeat_it: str) -> Table:
    note = f"{answer.note}\n" if answer.note else ""
    made = Table(title=answer.title, caption=f"{note}{repeat_it}", title_justify="left", caption_justify="left")
    made.add_column("", no_wrap=True)
    made.add_column("n", justify="right")
    for heading in answer.columns.values():
        made.add_column(heading, justify="right")
    if answer.goals:
        made.add_column("goal", no_wrap=True)
    for name, samples in answer.rows.items():
        goal = [answer.goals.get(name, "")] if answer.goals else []
        made.add_row(name, str(len(samples)), *(cell(samples, key) for key in answer.columns), *goal)
    return made


def plain(answer: Answer, repeat_it: str) -> dict[str, Any]:
    rows = []
    for name, samples in answer.rows.items():
        found = {key: figures(samples, key) for key in answer.columns}
        rows.append(
            {
                "name": name,
                "n": len(samples),
                "goal": answer.goals.get(name),
                **{key: dict(zip(("median", "min", "max"), f, strict=True)) for key, f in found.items() if f},
            }
        )
    return {"title": answer.title, "command": repeat_it, "note": answer.note, "columns": answer.columns, "rows": rows}


QUESTIONS: dict[str, Callable[[Setting], list[Answer]]] = {
    "speed": speed,
    "parallel": parallel,
    "many": many,
    "gigabits": gigabits,
    "ns3": ns3,
    "where": where,
}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=f"How fast virtual time is. {HERE / 'README.md'} says more.")
    parser.add_argument("--only", action="append", choices=QUESTIONS, help="a question; may be given again")
    parser.add_argument("--repeat", type=positive, default=5, help="rounds (default 5)")
    parser.add_argument("--kernel", default=virtual_kernels.DEFAULT, help=f"default {virtual_kernels.DEFAULT}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    return parser.parse_args()


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def main() -> None:
    arguments = read_arguments()
    try:
        kernel = virtual_kernels.find(arguments.kernel)
    except BrobustError as error:
        sys.exit(f"speed.py: {error}")
    setting = Setting(kernel, sorted(os.sched_getaffinity(0)), arguments.repeat)
    # The first run reads the kernel from disk.
    run_virtual(setting, one_flow("cubic", "1s", "100mbit"), 0, setting.cpu)
    console = Console(width=None if sys.stdout.isatty() else 170)
    if not arguments.json:
        console.print(*(f"{name}: {value}" for name, value in machine(setting).items()), sep="\n", highlight=False)
    everything = []
    for question in arguments.only or QUESTIONS:
        for answer in QUESTIONS[question](setting):
            everything.append(plain(answer, command(question, arguments)))
            if not arguments.json:
                console.print("", table(answer, command(question, arguments)))
    if arguments.json:
        print(json.dumps({"machine": machine(setting), "answers": everything}, indent=1))


if __name__ == "__main__":
    main()
