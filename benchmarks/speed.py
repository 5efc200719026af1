"""Measure how fast virtual time is. benchmarks/README.md explains each question.

    .venv/bin/python benchmarks/speed.py [--only QUESTION] [--repeat 5]

Things that are compared are measured in turns, so that a machine that is busy for a while affects all of them. A cell
is the median of the rounds and, where they differ, the minimum and the maximum. Round r draws its random numbers from
seed + r.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from speed_cases import (
    NS3_HEADERS,
    Case,
    Sample,
    Setting,
    build_ns3,
    compare,
    flows,
    in_turns,
    one_flow,
    run_virtual,
    simulated,
    virtual,
)

from brobust.errors import BrobustError
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Scenario


@dataclass
class Answer:
    """One table."""

    title: str
    columns: dict[str, str]
    """The heading for each key of a sample."""
    rows: dict[str, list[Sample]]
    goals: dict[str, str] = field(default_factory=dict)
    note: str = ""


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


QUESTIONS: dict[str, Callable[[Setting], list[Answer]]] = {
    "speed": speed,
    "many": many,
    "gigabits": gigabits,
    "ns3": ns3,
}


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How fast virtual time is. benchmarks/README.md says more.")
    parser.add_argument("--only", action="append", choices=QUESTIONS, help="a question; may be given again")
    parser.add_argument("--repeat", type=positive, default=5, help="rounds (default 5)")
    parser.add_argument("--kernel", default=virtual_kernels.DEFAULT, help=f"default {virtual_kernels.DEFAULT}")
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
    console.print(*(f"{name}: {value}" for name, value in machine(setting).items()), sep="\n", highlight=False)
    for question in arguments.only or QUESTIONS:
        for answer in QUESTIONS[question](setting):
            console.print("", table(answer, command(question, arguments)))


if __name__ == "__main__":
    main()
