#!/usr/bin/env python3
"""Check that `brobust watch` reports the right cause, on real VMs in which the truth is known:

    sudo .venv/bin/python benchmarks/watch_accuracy.py [--repeat 3] [--out DIR]

Each run has one flow of bbr, brb_bbr3 or cubic over 20 Mbit/s and 10 ms, watched from inside the sender (`brobust lab
watch`) every second with a window of 10 s. The truth is what was done to the flow. A contended flow is CPU-limited if
it carries less than 80 % of what its control carries undisturbed; many flows are, if their CPU is busy all the time and
they carry less than 80 % of the path. Prints the confusion matrix, precision and recall of cpu-limited, the time until
that cause was reported, and the host's own figures of its CPU. One run takes about 20 s.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spread

from brobust import backends
from brobust.backends.vm import VmBackend
from brobust.scenario import Run
from brobust.scenario.grid import override, scenario
from brobust.testbed import traffic
from brobust.watch import CAUSES, CPU_LIMITED

DURATION_S = 14
BASE = {
    "backend": "vm", "duration": f"{DURATION_S}s", "path": {"bandwidth": "20mbit", "rtt": "10ms", "buffer": "4bdp"},
}  # fmt: skip
CONTROLS = ("bbr", "brb_bbr3", "cubic")
# A contended flow that carries this part of its undisturbed throughput is past the recovery threshold (2BRobust, 5.3).
RECOVERED = 0.8
# More than an emulated guest can send.
FAST_MBPS = 500


@dataclass(frozen=True)
class Case:
    """What is done to a flow, and what then limits it; None: the throughput decides."""

    name: str
    truth: str | None
    fields: dict[str, Any] = field(default_factory=dict)
    sender_limit: str = ""
    receiver_limit: str = ""
    slow_cpu: bool = False
    """The path is too fast for the guest's CPU; nobody takes the CPU away."""


def cases() -> Iterator[Case]:
    """Return the cases, the uncontended one first, since the others are compared with it."""
    yield Case("undisturbed", "network-limited")
    for share, timeslice, driver in (
        (0.5, "10ms", "deadline"), (0.35, "10ms", "deadline"), (0.25, "10ms", "deadline"),
        (0.5, "1ms", "burner"), (0.25, "1ms", "burner"),
    ):  # fmt: skip
        contention = {"share": share, "timeslice": timeslice, "driver": driver}
        yield Case(f"{share:.0%} CPU, {timeslice}", None, {"contention": contention})
    yield Case("application of 5 Mbit/s", "app-limited", {"flows": [{"pattern": "rate 5mbit"}]})
    yield Case("receiver's window of 10 kB", "rwnd-limited", receiver_limit="tcp_rmem")
    yield Case("send buffer of 10 kB", "sndbuf-limited", sender_limit="tcp_wmem")
    yield Case("1 % loss", "network-limited", {"path": {"loss": 0.01}})
    yield Case("path of 2 Mbit/s", "network-limited", {"path": {"bandwidth": "2mbit"}})
    many = {"path": {"bandwidth": f"{FAST_MBPS}mbit"}, "flows": [{"count": 16}]}
    yield Case(f"16 flows, {FAST_MBPS} Mbit/s, slow CPU", None, many, slow_cpu=True)


@dataclass(frozen=True)
class Seen:
    """A watched run: the cause in most sweeps with a whole window, and when cpu-limited was first reported."""

    case: str
    control: str
    truth: str
    mbps: float
    verdict: str
    detected_s: float | None
    evidence: dict[str, Any]
    """The flow's row in the last sweep with a whole window."""


def watched(backend: VmBackend, case: Case, control: str, repeat: int) -> tuple[float, list[dict[str, Any]]]:
    """Return the throughput in Mbit/s, and the flow's row in every sweep that contains it."""
    flows = [{"cc": control, **case.fields.get("flows", [{}])[0]}]
    run = Run(scenario=scenario(override(override(BASE, case.fields), {"flows": flows})), repeat=repeat)
    asks = [(backend.ask_sender, case.sender_limit), (backend.ask_receiver, case.receiver_limit)]
    limits = [(ask, f"/proc/sys/net/ipv4/{name}") for ask, name in asks if name]
    before = [ask("cat", file, kernel=run.scenario.kernel).strip() for ask, file in limits]
    for ask, file in limits:
        ask("bash", "-c", f"echo 4096 10000 10000 >{file}")
    if case.slow_cpu:  # what keeps the vCPU awake would make a CPU look busy that is not; the last case has no other
        backend.ask_sender("bash", "-c", "busybox pkill -f 'brobust-host lab spin' || true", kernel=run.scenario.kernel)
    watch = ("brobust", "watch", "--port", str(traffic.FIRST_PORT), "--count", str(DURATION_S + 8))
    try:
        measured, said = backend.measure_beside(run, *watch)
    finally:
        for (ask, file), values in zip(limits, before, strict=True):
            ask("bash", "-c", f"echo {values} >{file}")
    rows = []
    for sweep in map(json.loads, said.splitlines()):
        # iperf3's control connection is always idle. Of several flows, the one in the middle is used.
        sending = sorted((flow for flow in sweep["flows"] if flow["rate_mbps"] > 0), key=lambda flow: flow["rate_mbps"])
        sending = [flow for flow in sending if flow["rate_mbps"] > 0.1 * sending[-1]["rate_mbps"]]
        if sending:
            rows.append({**sending[len(sending) // 2], "host": sweep["host"]})
    return sum(row["throughput_mbps"] for row in measured.runs), rows


def judged(backend: VmBackend, repeats: int) -> Iterator[Seen]:
    undisturbed: dict[str, float] = {}
    for case in cases():
        for control in CONTROLS:
            for repeat in range(repeats):
                mbps, rows = watched(backend, case, control, repeat)
                undisturbed.setdefault(control, mbps)
                slow = mbps < RECOVERED * (FAST_MBPS if case.slow_cpu else undisturbed[control])
                truth = case.truth or (CPU_LIMITED if slow else "network-limited")
                named = [flow["cause"] for flow in rows if flow["seconds"] >= 8]
                (verdict, _), *_ = Counter(named).most_common(1) or [("unseen", 0)]
                first = next((number for number, flow in enumerate(rows, 1) if flow["cause"] == CPU_LIMITED), None)
                whole = [flow for flow in rows if flow["seconds"] >= 8]
                detected = None if first is None else float(first)
                yield Seen(case.name, control, truth, mbps, verdict, detected, whole[-1] if whole else {})


def table(seen: list[Seen]) -> str:
    """Return the confusion matrix: rows are the truth, columns the reported causes."""
    named = [cause for cause in (*CAUSES, "unseen") if any(one.verdict == cause for one in seen)]
    lines = [f"| truth | {' | '.join(named)} |", "|---|" + "--:|" * len(named)]
    for truth in (cause for cause in CAUSES if any(one.truth == cause for one in seen)):
        of = [one for one in seen if one.truth == truth]
        lines.append(f"| {truth} | {' | '.join(str(sum(one.verdict == cause for one in of)) for cause in named)} |")
    return "\n".join(lines)


def summary(seen: list[Seen], who: str) -> str:
    """Return precision and recall of cpu-limited, and the time until it was reported."""
    true = [one for one in seen if one.truth == CPU_LIMITED]
    said = [one for one in seen if one.verdict == CPU_LIMITED]
    both = [one for one in true if one.verdict == CPU_LIMITED]
    times = [one.detected_s for one in both if one.detected_s is not None]
    precision = f"{len(both)} of {len(said)}" if said else "none named"
    within = f"; named after {statistics.median(times):.0f} s ({min(times):.0f} to {max(times):.0f})" if times else ""
    return f"{who}: precision {precision}, recall {len(both)} of {len(true)}{within}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each case and control [3]")
    parser.add_argument("--out", type=Path, help="a file for each run's verdict and last evidence, JSON lines")
    options = parser.parse_args()
    seen: list[Seen] = []
    with backends.opened("vm", print) as backend:
        assert isinstance(backend, VmBackend)
        for one in judged(backend, options.repeat):
            seen.append(one)
            print(f"{one.case:28} {one.control:9} {one.mbps:6.2f} Mbit/s  {one.truth:16} {one.verdict}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(one.__dict__) + "\n")
    print(f"\n{table(seen)}\n")
    print(summary([one for one in seen if one.control != "cubic"], "BBR"))
    print(summary([one for one in seen if one.control == "cubic"], "CUBIC"))


if __name__ == "__main__":
    spread.run(main)
