"""`brobust.run`: one scenario from Python, on either backend, without a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from brobust import backends
from brobust.dataset import (
    CONNECTIONS,
    OFFTIMES,
    PACKETS,
    PROGRAMS,
    RUNS,
    SAMPLES,
    THROUGHPUT,
    TRANSFERS,
    Measured,
    frame,
)
from brobust.errors import BadInput
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import scenario as one_scenario


@dataclass(frozen=True)
class Result:
    """One measured run: a frame for each table of docs/data.md, and the packets as pcap if they were requested."""

    run: Run
    runs: pl.DataFrame
    throughput: pl.DataFrame
    samples: pl.DataFrame
    offtimes: pl.DataFrame
    packets: pl.DataFrame
    transfers: pl.DataFrame
    connections: pl.DataFrame
    programs: pl.DataFrame
    pcap: bytes | None

    @classmethod
    def of(cls, run: Run, measured: Measured) -> Result:
        """Return the tables that a backend measured, as frames."""
        return cls(
            run,
            frame(measured.runs, RUNS),
            frame(measured.throughput, THROUGHPUT),
            frame(measured.samples, SAMPLES),
            frame(measured.offtimes, OFFTIMES),
            frame(measured.packets, PACKETS),
            frame(measured.transfers, TRANSFERS),
            frame(measured.connections, CONNECTIONS),
            frame(measured.programs, PROGRAMS),
            measured.pcap,
        )


def run(scenario: Scenario | Mapping[str, Any], *, repeat: int = 0) -> Result:
    """Measure one scenario, given as a Scenario or by the fields of docs/scenario.md; absent fields have their default.

    `repeat` is the number of the repeat, from 0: each draws other random numbers, and on backend virtual the same
    number always draws the same ones. What cannot be measured is refused with a BrobustError.
    """
    if not isinstance(scenario, Scenario):
        scenario = one_scenario(scenario)
    if isinstance(repeat, bool) or not isinstance(repeat, int) or repeat < 0:
        raise BadInput(f"repeat: {repeat!r} is not a whole number from 0")
    requested = Run(scenario=scenario, repeat=repeat)
    backends.check([scenario], jobs=1)
    with backends.opened(scenario.backend, lambda _: None) as backend:
        backend.calibrate([scenario])
        return Result.of(requested, backend.measure(requested))
