"""`brobust.run`: one scenario from Python, on either backend, without a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from brobust import backends
from brobust.dataset import (
    CONNECTIONS,
    OFFTIMES,
    PACKETS,
    PROGRAMS,
    REQUESTS,
    RUNS,
    SAMPLES,
    THROUGHPUT,
    TRANSFERS,
    Measured,
    frame,
)
from brobust.errors import BadInput
from brobust.lazily import pl
from brobust.scenario import Run, Scenario
from brobust.scenario.grid import scenario as one_scenario


class Result:
    """One measured run: a frame for each table of docs/data.md, made when it is first asked for, and the packets as
    pcap if they were requested."""

    def __init__(self, run: Run, measured: Measured):
        self.run = run
        self._measured = measured

    @property
    def pcap(self) -> bytes | None:
        return self._measured.pcap

    @cached_property
    def runs(self) -> pl.DataFrame:
        return frame(self._measured.runs, RUNS)

    @cached_property
    def throughput(self) -> pl.DataFrame:
        return frame(self._measured.throughput, THROUGHPUT)

    @cached_property
    def samples(self) -> pl.DataFrame:
        return frame(self._measured.samples, SAMPLES)

    @cached_property
    def offtimes(self) -> pl.DataFrame:
        return frame(self._measured.offtimes, OFFTIMES)

    @cached_property
    def packets(self) -> pl.DataFrame:
        return frame(self._measured.packets, PACKETS)

    @cached_property
    def transfers(self) -> pl.DataFrame:
        return frame(self._measured.transfers, TRANSFERS)

    @cached_property
    def requests(self) -> pl.DataFrame:
        return frame(self._measured.requests, REQUESTS)

    @cached_property
    def connections(self) -> pl.DataFrame:
        return frame(self._measured.connections, CONNECTIONS)

    @cached_property
    def programs(self) -> pl.DataFrame:
        return frame(self._measured.programs, PROGRAMS)


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
        return Result(requested, backend.measure(requested))
