"""Measure what brobust.run costs over boot and simulation, when it is called in a loop.

    .venv/bin/python benchmarks/loop.py [--repeat 50] [--duration 1s]

CPU time of this process, per call: all of it, and that of the controller, which simulates link and schedules. The
difference is Python's: the scenario's fields, what is checked before a run, and the frame of its runs. CPU time of the
kernels is not in it. Also the first call, which imports everything.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from spread import shown

import brobust


def main(
    repeat: Annotated[int, typer.Option(min=1)] = 50,
    duration: Annotated[str, typer.Option(help="of a run")] = "1s",
) -> None:
    fields: dict[str, Any] = {
        "path": {"bandwidth": "100mbit", "buffer": "12bdp"},
        "flows": [{"cc": "bbr"}],
        "contention": {"share": 0.5},
        "duration": duration,
    }
    begun = time.process_time()
    brobust.run(fields)
    print(f"first call: {time.process_time() - begun:.2f} s of CPU")
    from brobust.backends.virtual import VirtualBackend

    simulate, simulated = VirtualBackend._run, []

    def timed(backend: VirtualBackend, described: str) -> dict[str, Any]:
        begun = time.process_time()
        result = simulate(backend, described)
        simulated.append(time.process_time() - begun)
        return result

    VirtualBackend._run = timed  # type: ignore[method-assign, assignment]
    over = []
    for number in range(repeat):
        begun = time.process_time()
        brobust.run({**fields, "seed": number}).runs["throughput_mbps"].sum()
        over.append(time.process_time() - begun - simulated[-1])
    for what, values in (("the controller", simulated), ("all the rest of brobust.run", over)):
        print(f"{what}, ms of CPU: {shown([1e3 * value for value in values])}, n = {repeat}")


if __name__ == "__main__":
    typer.run(main)
