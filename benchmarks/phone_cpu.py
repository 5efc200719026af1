#!/usr/bin/env python3
"""Fit the cycles of [cpu] (docs/scenario.md) to four throughputs of a phone:

    .venv/bin/python benchmarks/phone_cpu.py                       # with the kernel's own pacing
    .venv/bin/python benchmarks/phone_cpu.py --pacing linux-4.14   # with that of the phone's kernel

The throughputs are from "Are Mobiles Ready for BBR?", section 4.1: CUBIC and BBR with 1 and 20 connections, on a Pixel
4's small core at 576 MHz. The scenario is that of figure 2's study (python/brobust/studies/mobiles/figure-02.toml). The
fit is least squares of the logarithms, four parameters for four numbers; it uses nothing else from that paper. It takes
about two minutes.
"""

from __future__ import annotations

import argparse
import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import spread
from scipy.optimize import least_squares

import brobust
from brobust.scenario.grid import override
from brobust.study import Scale, model

PAPER_MBPS = {("cubic", 1): 364.0, ("cubic", 20): 310.0, ("bbr", 1): 325.0, ("bbr", 20): 138.0}
# The start of the search: within an order of magnitude of the usual cost of such work.
BEGIN = {"timer_cycles": 40_000.0, "rx_packet_cycles": 5_000.0, "tx_skb_cycles": 20_000.0, "tx_byte_cycles": 8.0}
# The bounds of the search: CUBIC at 364 Mbit/s leaves 12.7 cycles per byte of 576 MHz.
MIN_CYCLES = {"timer_cycles": 100.0, "rx_packet_cycles": 100.0, "tx_skb_cycles": 100.0, "tx_byte_cycles": 0.05}
MAX_CYCLES = {"timer_cycles": 4e5, "rx_packet_cycles": 1e5, "tx_skb_cycles": 4e5, "tx_byte_cycles": 13.0}
# One step of the search, as a part of a logarithm. Smaller steps disappear in the spread between runs.
STEP = 0.02


def measure(case: tuple[str, int], cycles: dict[str, float], pacing: str) -> float:
    """Return the throughput of all connections, Mbit/s."""
    control, connections = case
    (study,) = model.of_paper("mobiles", ["2"])
    fields: dict[str, Any] = override(
        study.fields(Scale.QUICK, "virtual") or {},
        {
            "cpu": {"frequency": "576MHz", **cycles},
            "flows": [{"cc": control, "count": connections}],
            "pacing": pacing,
            "duration": "5s",
        },
    )
    del fields["repeat"]
    return float(brobust.run(fields).runs["throughput_mbps"].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the cycles of [cpu] to four throughputs of a phone.")
    parser.add_argument("--pacing", choices=("kernel", "linux-4.14"), default="kernel", help="how TCP paces by itself")
    pacing = parser.parse_args().pacing
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def off_by(logarithms: np.ndarray[tuple[int], np.dtype[np.float64]], /) -> list[float]:
            cycles = dict(zip(BEGIN, (float(value) for value in np.exp(logarithms)), strict=True))
            got = list(pool.map(lambda case: measure(case, cycles, pacing), PAPER_MBPS))
            shown = ", ".join(f"{name} {value:.4g}" for name, value in cycles.items())
            print(f"{shown}: {', '.join(f'{mbps:.0f}' for mbps in got)} Mbit/s", flush=True)
            return [math.log(mbps / paper) for mbps, paper in zip(got, PAPER_MBPS.values(), strict=True)]

        begin, lowest, highest = (np.log(list(cycles.values())) for cycles in (BEGIN, MIN_CYCLES, MAX_CYCLES))
        found = least_squares(off_by, begin, diff_step=[STEP], max_nfev=10, bounds=(lowest, highest))
    print(f"\nwithin {100 * (math.exp(max(abs(found.fun))) - 1):.1f} % of the paper's")
    for name, logarithm in zip(BEGIN, found.x, strict=True):
        print(f"{name} = {math.exp(logarithm):.4g}")


if __name__ == "__main__":
    spread.run(main)
