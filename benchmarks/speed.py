"""Measure how fast virtual time is. benchmarks/README.md explains each question.

    .venv/bin/python benchmarks/speed.py [--only QUESTION] [--repeat 5]

Things that are compared are measured in turns, so that a machine that is busy for a while affects all of them. A cell
is the median of the rounds with the minimum and the maximum. Round r draws its random numbers from seed + r.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import servers
import spread

from brobust import _core
from brobust.backends.virtual import commands_of, describe_programs
from brobust.host import machine
from brobust.kernels import virtual as virtual_kernels
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import scenario
from brobust.virtual.describe import describe

Sample = dict[str, float]
COLUMNS = {
    "wall": "wall s", "cpu": "CPU s, with boot", "boot_s": "boot s", "throughput_mbps": "Mbit/s",
    "frames": "frames per s", "frame_us": "us per frame", "frames_per_hand_over": "frames per hand-over",
}  # fmt: skip


@dataclass
class Question:
    """What becomes one table: scenarios, and what each is compared with."""

    title: str
    cases: dict[str, Scenario]
    goals: dict[str, str]
    beside: dict[str, str] = field(default_factory=dict)
    """The case with which a case is compared."""
    ratios: Sequence[str] = ()
    """The columns whose ratio to that case is shown."""
    ends: dict[str, str] = field(default_factory=dict)
    """What follows the kernel's name for a case that needs another kernel."""


def flows(groups: Sequence[Mapping[str, Any]], duration: str, bandwidth: str, **fields: Any) -> Scenario:
    path = {"bandwidth": bandwidth, "rtt": "10ms", "buffer": fields.pop("buffer", "12bdp")}
    return scenario({"duration": duration, "path": path, "flows": groups, **fields})


def one_flow(cc: str, duration: str, bandwidth: str, **fields: Any) -> Scenario:
    return flows([{"cc": cc}], duration, bandwidth, **fields)


def speed() -> Question:
    """How long does a virtual second take on one CPU?"""
    starved = {"contention": {"share": 0.25, "timeslice": "10ms"}}
    cases = {
        "cubic, 100 Mbit/s": one_flow("cubic", "20s", "100mbit"),
        "bbr, 100 Mbit/s": one_flow("bbr", "20s", "100mbit"),
        "bbr, 100 Mbit/s, starved (25 % in 10 ms)": one_flow("bbr", "20s", "100mbit", **starved),
        "cubic, 1 Gbit/s": one_flow("cubic", "5s", "1gbit"),
        "bbr, 1 Gbit/s": one_flow("bbr", "5s", "1gbit"),
    }
    goals = {
        name: f"wall <= {limit}, boot <= 0.3"
        for name, limit in zip(cases, ("0.1", "0.1", "0.02", "0.5", "0.5"), strict=True)
    }
    return Question("Wall time of a virtual second, without the kernels' boot, on one CPU", cases, goals)


def many() -> Question:
    """What does a frame cost among many flows, and among many kernels?"""
    cases: dict[str, Scenario] = {}
    goals: dict[str, str] = {}
    beside: dict[str, str] = {}
    for cc in ("cubic", "bbr"):
        one, of_gigabit = f"{cc}, 1 flow", f"{cc}, 1 flow, 1 Gbit/s"
        hundred, eight = f"{cc}, 100 flows of one sender", f"{cc}, 8 senders"
        thousand = f"{cc}, 1,000 flows of one sender, 1 Gbit/s"
        cases[one] = one_flow(cc, "10s", "100mbit")
        cases[hundred] = flows([{"cc": cc, "count": 100}], "10s", "100mbit")
        cases[eight] = flows([{"cc": cc, "sender": number} for number in range(1, 9)], "10s", "100mbit")
        # Enough that none of them waits for a timeout: 1 Gbit/s is a segment per flow and 12 ms.
        cases[of_gigabit] = one_flow(cc, "3s", "1gbit")
        cases[thousand] = flows([{"cc": cc, "count": 1000}], "3s", "1gbit")
        beside |= {hundred: one, eight: one, thousand: of_gigabit}
        goals |= {hundred: "us per frame: 3 times", eight: "us per frame: 3 times", thousand: "us per frame: twice"}
    return Question("Wall time of a frame, ACKs being frames too", cases, goals, beside, ("frame_us",))


def gigabits() -> Question:
    """What do 10 and 25 Gbit/s cost, beside 1 Gbit/s, with NICs that adapt their interrupts?"""
    cases, goals, beside = {}, {}, {}
    for cc in ("cubic", "bbr"):
        for bandwidth, duration in (("1gbit", "10s"), ("10gbit", "3s"), ("25gbit", "3s")):
            name = f"{cc}, {bandwidth}"
            cases[name] = one_flow(cc, duration, bandwidth, nic={"adaptive_rx": "on"}, buffer="1bdp")
            beside[name] = f"{cc}, 1gbit"
        goals[f"{cc}, 10gbit"] = "wall: 8 times"
    title = "Wall time of a virtual second, RTT 10 ms, a buffer of 1 BDP"
    return Question(title, cases, goals, beside, ("wall", "frame_us"))


def series() -> Question:
    """What does the series kept cost a sender that has its CPU? Its packets are the same without the series, and with
    the sysctl off and on."""
    cases: dict[str, Scenario] = {}
    goals: dict[str, str] = {}
    beside: dict[str, str] = {}
    ends: dict[str, str] = {}
    for bandwidth, duration in (("1gbit", "10s"), ("10gbit", "2s")):
        without, off, on = (f"{bandwidth}, {setting}" for setting in ("without the series", "off", "on"))
        cases |= {
            name: one_flow("bbr", duration, bandwidth, nic={"adaptive_rx": "on"}, pacing=pacing)
            for name, pacing in ((without, "kernel"), (off, "kernel"), (on, "kept"))
        }
        beside |= {off: without, on: without}
        goals |= dict.fromkeys((off, on), "us per frame: 1 %")
        ends[without] = virtual_kernels.STOCK
    title = "A kernel without the series kept, and one with it, its sysctl off and on"
    return Question(title, cases, goals, beside, ("frame_us",), ends)


def programs() -> Question:
    """What does a virtual second of programs cost, each of whose system calls stops it?"""
    cases = {
        f"{stack}, 100 Mbit/s": one_flow(cc, "5s", "100mbit", traffic=f"quic:{stack}")
        for stack, cc in (("quinn", "bbr"), ("quic-go", "reno"))
    }
    iperf3 = {"sender": "iperf3 -c {receiver} -p {port} -t {seconds}", "receiver": "iperf3 -s -1 -p {port}"}
    cases["iperf3, 100 Mbit/s"] = flows([{"cc": "cubic"}], "5s", "100mbit", programs=iperf3)
    goals = {"quinn, 100 Mbit/s": "wall <= 0.5", "quic-go, 100 Mbit/s": "wall <= 1.0"}
    if shutil.which("nginx"):
        served = Path(tempfile.mkdtemp(prefix="brobust-speed-"))
        atexit.register(shutil.rmtree, served)
        (served / "page").write_bytes(os.urandom(servers.PAGE_BYTES))
        said = servers.FILES["nginx.conf"].replace("LISTEN", "5201")
        for row, sendfile in (("nginx, sendfile", "on"), ("nginx, no sendfile", "off")):
            config = served / f"nginx-{sendfile}.conf"
            config.write_text(said.replace("sendfile on", f"sendfile {sendfile}"))
            page = f"http://{{sender}}:{{port}}{served}/page?[1-20]"
            nginx = {
                "sender": f"nginx -c {config}", "receiver": f"curl -sS -f -o /dev/null {page}", "waits": "sender",
                "files": [str(config), str(served / "page")],
            }  # fmt: skip
            cases[f"{row}, 100 Mbit/s"] = flows([{"cc": "cubic"}], "5s", "100mbit", programs=nginx)
        goals["nginx, sendfile, 100 Mbit/s"] = "wall <= 0.1"
    return Question("Wall time of a virtual second of programs, all on one CPU", cases, goals)


QUESTIONS = {"speed": speed, "many": many, "gigabits": gigabits, "series": series, "programs": programs}


def run(what: Scenario, kernel: virtual_kernels.VirtualKernel, number: int, cpu: int) -> Sample:
    """Measure a scenario in virtual time, with controller and kernels on one CPU."""
    asked = describe(Run(scenario=what, repeat=number), kernel)
    with tempfile.TemporaryDirectory() as scratch:
        if what.traffic != "brobust":
            asked["programs"] = describe_programs(what, commands_of(what), Path(scratch) / "ramdisk")
        begun = cpu_s()
        result = _core.VirtualRun(json.dumps(asked), cpu).run()
    used, seconds, work = cpu_s() - begun, what.duration / 1e9, result["work"]
    return {
        "wall": work["run_s"] / seconds,
        "cpu": used / seconds,
        "boot_s": work["boot_s"],
        "throughput_mbps": sum(flow["received_bytes"] for flow in result["flows"]) * 8e-6 / seconds,
        "frames": work["frames"] / seconds,
        "frame_us": work["run_s"] / work["frames"] * 1e6,
        "frames_per_hand_over": work["frames"] / work["hand_overs"],
    }


def cpu_s() -> float:
    """Return the CPU time of this process and of those that it has waited for, user and system, s."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(of.ru_utime + of.ru_stime for of in used)


def answer(question: Question, kernels: Mapping[str, virtual_kernels.VirtualKernel], repeat: int, cpu: int) -> str:
    """Measure every case once per round, where each round begins with another one, and return the table. `kernels`: by
    the ends of their names."""
    names = list(question.cases)
    rows: dict[str, list[Sample]] = {name: [] for name in names}
    for number in range(repeat):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            print(f"round {number + 1} of {repeat}: {name}", file=sys.stderr)
            rows[name].append(run(question.cases[name], kernels[question.ends.get(name, "")], number, cpu))
    headings = [*COLUMNS.values(), *(f"{COLUMNS[key]}, ratio" for key in question.ratios), "goal"]
    lines = [
        f"{question.title} (n = {repeat})\n",
        f"| row | {' | '.join(headings)} |",
        "|---|" + "--:|" * len(headings),
    ]
    for name, samples in rows.items():
        cells = [spread.shown([sample[key] for sample in samples], None) for key in COLUMNS]
        base = rows.get(question.beside.get(name, ""), [])
        for key in question.ratios:
            ratios = [one[key] / of[key] for one, of in zip(samples, base, strict=True)] if base else []
            cells.append(spread.shown(ratios, None) if ratios else "")
        lines.append(f"| {name} | {' | '.join(cells)} | {question.goals.get(name, '')} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast virtual time is. benchmarks/README.md says more.")
    parser.add_argument("--only", action="append", choices=QUESTIONS, help="a question; may be given again")
    parser.add_argument("--repeat", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--kernel", default=virtual_kernels.DEFAULT, help=f"default {virtual_kernels.DEFAULT}")
    given = parser.parse_args()
    if given.repeat < 1:
        parser.error(f"--repeat: {given.repeat} is too few; give 1 or more")
    questions = [QUESTIONS[name]() for name in given.only or QUESTIONS]
    ends = ["", *(end for question in questions for end in question.ends.values())]
    kernels = {end: virtual_kernels.find(given.kernel + end) for end in ends}
    kernel = kernels[""]
    cpu = max(os.sched_getaffinity(0))  # interrupts tend to go to the first
    run(one_flow("cubic", "1s", "100mbit"), kernel, 0, cpu)  # the first run reads the kernel from disk
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} CPUs of {machine.cpu()}, Linux "
        f"{platform.release()}, load {os.getloadavg()[0]:.2f}, {kernel.name} ({kernel.release}, {kernel.sha256[:8]})"
    )
    for question in questions:
        print(f"\n{answer(question, kernels, given.repeat, cpu)}")


if __name__ == "__main__":
    spread.run(main)
